//! The plan of a machine is a function: needs and values in, a plan or one sentence out.

use ostler_engine_core::local_system::Found;
use proptest::prelude::*;

use super::*;

/// A host where a few things stand.
struct Inn;

impl LocalSystem for Inn {
    fn home(&self) -> Option<String> {
        Some("/home/ada".to_owned())
    }

    fn look(&self, path: &str) -> Option<Found> {
        let found = |is_directory, real: &str| Some(Found { is_directory, real: real.to_owned() });
        match path {
            "/srv" | "/home/ada" | "/home/ada/.agent" | "/opt/built" => found(true, path),
            "/home/ada/.gitconfig" | "/home/ada/settings.json" | "/home/ada/auth.json" => found(false, path),
            "/home/ada/link.json" => found(false, "/home/ada/auth.json"),
            _ => None,
        }
    }

    fn parts(&self) -> Result<BTreeMap<String, Pinned>, String> {
        let pinned = |version: &str, requires: &[&str]| Pinned {
            version: version.to_owned(),
            package: None,
            requires: requires.iter().map(|&part| part.to_owned()).collect(),
        };
        Ok([
            ("agent".to_owned(), pinned("1.2.3", &["node"])),
            ("node".to_owned(), pinned("24.1.0", &[])),
            ("lame".to_owned(), pinned("1", &["leg"])),
            ("knot".to_owned(), pinned("1", &["knot", "node"])),
        ]
        .into())
    }
}

fn need(json: Value) -> MachineNeed {
    serde_json::from_value(json).unwrap()
}

use ostler_contract::json;

fn asking(needs: &[(&str, Value)]) -> Asking {
    let needs = needs.iter().map(|(name, json)| ((*name).to_owned(), need(json.clone()))).collect();
    let needy = Needy { agent: "echo".into(), plugin: Some("inn".into()), needs, ..Needy::default() };
    Asking { agents: vec![needy], ..Asking::default() }
}

fn planned(needs: &[(&str, Value)]) -> Result<Value, String> {
    plan(&asking(needs), &Inn).map(|plan| serde_json::to_value(plan).unwrap())
}

fn refused(needs: &[(&str, Value)]) -> String {
    planned(needs).unwrap_err()
}

#[test]
fn each_shape_lands_where_it_belongs() {
    let plan = planned(&[
        ("dir", json!({ "directory": "~/.agent", "target": "/root/.agent", "readOnly": true })),
        ("env", json!({ "name": "LEVEL", "default": "high" })),
        ("file", json!({ "file": "~/.gitconfig", "target": "/root/.gitconfig" })),
        ("copy", json!({ "source": "/srv", "target": "/work" })),
        ("cli", json!({ "part": "agent" })),
        ("mine", json!({ "state": "/root/.echo/", "seed": ["~/settings.json", "~/not-there"] })),
    ]);
    assert_eq!(
        plan.unwrap(),
        json!({
            "mounts": [
                { "source": "/home/ada/.agent", "target": "/root/.agent", "readOnly": true },
                { "source": "/home/ada/.gitconfig", "target": "/root/.gitconfig", "readOnly": false },
            ],
            "env": { "LEVEL": "high" },
            "copies": [{ "source": "/srv", "target": "/work" }],
            "parts": [
                { "part": "agent", "version": "1.2.3", "target": "/opt/ostler/agent" },
                { "part": "node", "version": "24.1.0", "target": "/opt/ostler/node" },
            ],
            "volumes": [{ "name": "ostler-echo-mine", "target": "/root/.echo",
                "seed": [{ "source": "/home/ada/settings.json", "target": "/root/.echo/settings.json" }] }],
        })
    );
}

#[test]
fn the_nearer_value_wins() {
    let dir = |default: Value| json!({ "directory": "/own", "target": "/t", "default": default });
    let origin = |asking: &Asking| plan(asking, &Inn).unwrap_err();
    let mut all = asking(&[("a", dir("/default".into()))]);
    all.agents[0].options = json!({ "a": "/option" }).as_object().cloned().unwrap();
    all.profile = Some(("rust".into(), [("a".to_owned(), "/profile".to_owned())].into()));
    assert_eq!(origin(&all), "need a of agent echo: /profile does not exist (from profile rust)");
    all.profile = Some(("rust".into(), [("b".to_owned(), "/profile".to_owned())].into()));
    let option = "need a of agent echo: /option does not exist (from the option plugins.inn.options.a)";
    assert_eq!(origin(&all), option);
    all.profile = None;
    assert_eq!(origin(&all), option);
    all.agents[0].options = JsonObject::new();
    assert_eq!(origin(&all), "need a of agent echo: /default does not exist (the need's default)");
    let own = asking(&[("a", dir(Value::Null))]);
    assert_eq!(origin(&own), "need a of agent echo: /own does not exist (the path the need carries)");
}

#[test]
fn what_is_required_has_to_be_there_and_the_rest_may_be_left_out() {
    let required = json!({ "name": "TOKEN", "required": true });
    assert_eq!(
        refused(&[("key", required.clone())]),
        "need key of agent echo: it is required and has no value; give one as the option plugins.inn.options.key"
    );
    let mut with_profile = asking(&[("key", required)]);
    with_profile.profile = Some(("rust".into(), BTreeMap::new()));
    assert!(
        plan(&with_profile, &Inn)
            .unwrap_err()
            .contains("give one as key in the needs of profile rust or as the option")
    );
    let optional = [
        ("key", json!({ "name": "TOKEN" })),
        ("dir", json!({ "directory": "", "target": "/t" })),
        ("cli", json!({ "part": "unpinned" })),
    ];
    assert_eq!(plan(&asking(&optional), &Inn), Ok(MachinePlan::default()));
    assert_eq!(
        refused(&[("cli", json!({ "part": "unpinned", "required": true }))]),
        "need cli of agent echo: it is required, and the versions file pins no part unpinned"
    );
}

#[test]
fn a_part_is_taken_from_a_folder_that_is_named_then_pinned_then_fallen_back_to() {
    let cli = |more: Value| {
        let mut need = json!({ "part": "agent" }).as_object().cloned().unwrap();
        need.extend(more.as_object().cloned().unwrap());
        planned(&[("cli", need.into())])
    };
    let named = cli(json!({ "default": "/opt/built" })).unwrap();
    assert_eq!(
        named["mounts"][0],
        json!({ "source": "/opt/built", "target": "/opt/ostler/agent", "readOnly": true })
    );
    assert_eq!(named["parts"], json!([]));
    assert_eq!(cli(json!({ "fallback": "/opt/built" })).unwrap()["parts"][0]["version"], "1.2.3");
    let fallen = cli(json!({ "part": "other", "fallback": "/opt/built" })).unwrap();
    assert_eq!(fallen["mounts"][0]["target"], "/opt/ostler/other");
    assert_eq!(cli(json!({ "part": "knot" })).unwrap()["parts"].as_array().unwrap().len(), 2);
    let lame = cli(json!({ "part": "lame" })).unwrap_err();
    assert_eq!(
        lame,
        "need cli of agent echo: part lame requires part leg, which the versions file does not pin"
    );
    // Two backends that need one part share it.
    let mut two = asking(&[("cli", json!({ "part": "agent" }))]);
    two.agents.push(Needy { agent: "stage".into(), ..two.agents[0].clone() });
    assert_eq!(plan(&two, &Inn).unwrap().parts.len(), 2);
}

#[test]
fn a_value_that_cannot_work_is_named_with_where_it_came_from() {
    for (need, why) in [
        (
            json!({ "directory": "agent", "target": "/t" }),
            "agent is not an absolute path (the path the need carries)",
        ),
        (
            json!({ "directory": "~bob/x", "target": "/t" }),
            "~bob/x is not an absolute path (the path the need carries)",
        ),
        (
            json!({ "directory": "/srv/../etc", "target": "/t" }),
            "/srv/../etc is not an absolute path (the path the need carries)",
        ),
        (json!({ "file": "~/gone", "target": "/t" }), "~/gone does not exist (the path the need carries)"),
        (json!({ "file": "/srv", "target": "/t" }), "/srv is not a file (the path the need carries)"),
        (
            json!({ "directory": "~/.gitconfig", "target": "/t" }),
            "~/.gitconfig is not a directory (the path the need carries)",
        ),
        (
            json!({ "source": "/gone", "target": "/t", "default": "gone" }),
            "gone is not an absolute path (the need's default)",
        ),
        (
            json!({ "directory": "/srv", "target": "t" }),
            "its target t is not an absolute path below the root (the path the need carries)",
        ),
        (
            json!({ "directory": "/srv", "target": "//" }),
            "its target // is not an absolute path below the root (the path the need carries)",
        ),
        (json!({ "directory": "/srv" }), "a directory needs a target"),
        (
            json!({ "directory": "/srv", "file": "/srv", "target": "/t" }),
            "it must name one of directory, file, name, source, part and state",
        ),
        (json!({}), "it must name one of directory, file, name, source, part and state"),
        (
            json!({ "name": "BAD NAME", "default": "x" }),
            "\"BAD NAME\" is not a name of an environment variable; use letters, digits and _, not a digit first",
        ),
        (
            json!({ "name": "A=B" }),
            "\"A=B\" is not a name of an environment variable; use letters, digits and _, not a digit first",
        ),
        (
            json!({ "name": "1A" }),
            "\"1A\" is not a name of an environment variable; use letters, digits and _, not a digit first",
        ),
        (json!({ "part": "../up" }), "\"../up\" is not a name of a part"),
        (
            json!({ "state": "/s", "seed": ["~/auth.json"] }),
            "~/auth.json is a login file, and no volume is seeded from one",
        ),
        (
            json!({ "state": "/s", "seed": ["~/link.json"] }),
            "~/link.json is a login file, and no volume is seeded from one",
        ),
        (
            json!({ "state": "/s", "seed": ["settings.json"] }),
            "settings.json is not an absolute path (the path the need carries)",
        ),
    ] {
        assert_eq!(refused(&[("a", need)]), format!("need a of agent echo: {why}"));
    }
}

#[test]
fn two_mounts_never_land_at_one_target() {
    let twice = refused(&[
        ("a", json!({ "directory": "/srv", "target": "/t" })),
        ("b", json!({ "file": "~/.gitconfig", "target": "/./t/" })),
    ]);
    assert_eq!(
        twice,
        "need b of agent echo: need a of agent echo has the target /t too (the path the need carries)"
    );
    let part = refused(&[
        ("a", json!({ "directory": "/srv", "target": "/opt/ostler/node" })),
        ("b", json!({ "part": "agent" })),
    ]);
    assert_eq!(
        part,
        "need b of agent echo: need a of agent echo has the target /opt/ostler/node too (part node)"
    );
    let state =
        refused(&[("a", json!({ "source": "/srv", "target": "/t" })), ("b", json!({ "state": "/t" }))]);
    assert!(state.starts_with("need b of agent echo: need a"), "{state}");
}

#[test]
fn a_volume_is_one_owners() {
    let mut of = asking(&[("mine", json!({ "state": "/s" }))]);
    let name = |asking: &Asking| plan(asking, &Inn).unwrap().volumes[0].name.clone();
    assert_eq!(name(&of), "ostler-echo-mine");
    of.owner = Some("user:ada".into());
    assert_eq!(name(&of), "ostler-echo-mine-user_3aada");
}

proptest! {
    #[test]
    fn no_value_of_a_variable_is_ever_said(secret in "[A-Za-z0-9]{12,24}", at in 0..4, twice: bool) {
        let mut asked = asking(&[("key", json!({ "name": "TOKEN", "required": true }))]);
        let value = if twice { secret.clone() } else { format!("{secret}\0") };
        match at {
            0 => asked.profile = Some(("p".into(), [("key".to_owned(), value)].into())),
            1 => drop(asked.agents[0].options.insert("key".into(), value.into())),
            2 => drop(asked.agents[0].options.insert("key".into(), json!([value]))),
            _ => asked.agents[0].needs.get_mut("key").unwrap().default = Some(value),
        }
        if twice {
            let other = need(json!({ "name": "TOKEN", "default": "another" }));
            asked.agents[0].needs.insert("other".into(), other);
        }
        let why = plan(&asked, &Inn).unwrap_err();
        prop_assert!(!why.contains(&secret[..6]), "{}", why);
        prop_assert!(why.starts_with("need "), "{}", why);
    }

    #[test]
    fn volumes_of_different_things_have_different_names(
        one in ("[a-z:_-]{1,6}", "[a-z:_-]{1,6}", prop::option::of("[a-z:_-]{1,6}")),
        other in ("[a-z:_-]{1,6}", "[a-z:_-]{1,6}", prop::option::of("[a-z:_-]{1,6}")),
    ) {
        let named = |(agent, need, owner): &(String, String, Option<String>)| volume(agent, need, owner.as_deref());
        prop_assert_eq!(named(&one) == named(&other), one == other);
    }

    #[test]
    fn every_mount_of_a_plan_stands_and_lands_alone(
        needs in prop::collection::btree_map("[a-e]", (0..4usize, "(/srv|/opt/built|srv|~|~/.agent|/gone)", "(/[ab]|/a/|/\\./b|b)"), 0..5),
    ) {
        let needs: Vec<(String, Value)> = needs
            .into_iter()
            .map(|(name, (shape, path, target))| (name, match shape {
                0 => json!({ "directory": path, "target": target }),
                1 => json!({ "source": path, "target": target }),
                2 => json!({ "state": target }),
                _ => json!({ "part": "agent", "default": path }),
            }))
            .collect();
        let borrowed: Vec<(&str, Value)> = needs.iter().map(|(name, need)| (name.as_str(), need.clone())).collect();
        if let Ok(plan) = plan(&asking(&borrowed), &Inn) {
            let mut targets: Vec<&str> = plan.mounts.iter().map(|mount| &*mount.target)
                .chain(plan.copies.iter().map(|copy| &*copy.target))
                .chain(plan.volumes.iter().map(|volume| &*volume.target))
                .chain(plan.parts.iter().map(|part| &*part.target))
                .collect();
            let all = targets.len();
            targets.sort_unstable();
            targets.dedup();
            prop_assert_eq!(all, targets.len());
            for source in plan.mounts.iter().map(|mount| &mount.source).chain(plan.copies.iter().map(|copy| &copy.source)) {
                prop_assert!(source.starts_with('/') && Inn.look(source).is_some(), "{}", source);
            }
        }
    }
}
