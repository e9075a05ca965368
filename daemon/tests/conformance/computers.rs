//! `registerComputers`, and what a backend's `machine()` needs: which machine a session runs in, what one is given that
//! is made for it, and what refuses it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ostler::local_system::OnDisk;
use ostler_contract::host::SessionRequest;
use ostler_contract::points::{
    Agent, AgentSession, Computer, Computers, Emit, MachineMount, MachineNeed, MachineProcess,
    MachineProfile, MachineRequest, Policies, Start, Tool, ToolSpec, Usage, UsageEntry,
};
use ostler_contract::{Call, Frozen, JsonObject, Options, PluginHost, Thrown, Value, json};
use ostler_testkit::{MemoryHost, RawClient};
use serde::de::DeserializeOwned;

use crate::side::{Both, Side, Talk, action, builder, lines_of, object};

const PLUGIN: Both =
    Both { spec: "@conformance/computers", native, javascript: "computers.mjs", dress: None };

both! { PLUGIN:
    a_session_runs_in_the_machine_it_names,
    a_machine_is_made_to_what_its_backend_needs,
    a_session_that_cannot_be_made_leaves_no_machine,
    values_come_from_the_profile_then_the_option_then_the_need,
    what_cannot_work_refuses_the_machine_and_says_where_it_came_from,
    a_profile_says_whom_its_machines_are_for,
    start_session_makes_the_machine_it_names,
    who_may_make_no_machine_gets_none,
    policies_are_asked_of_the_machine_a_session_names,
}

async fn begin(start: Arc<Start>, turn: String, text: String) -> Result<(), Thrown> {
    let said = match &start.computer {
        None => "this host".to_owned(),
        Some(computer) => {
            let process = MachineProcess {
                program: "agent".into(),
                args: vec!["-x".into()],
                env: [("A".to_owned(), "b".to_owned())].into(),
                ..MachineProcess::default()
            };
            let how = serde_json::to_value(computer.how.call((process,)).await?).unwrap();
            json!([computer.uri, how, computer.place.call((text,)).await?]).to_string()
        }
    };
    let part = json!({ "kind": "markdown", "id": turn, "content": said });
    start
        .emit
        .call((Emit::Chat, action(json!({ "type": "chat/responsePart", "turnId": turn, "part": part }))?))?;
    start
        .emit
        .call((Emit::Chat, action(json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }))?))
}

fn agent(provider: &'static str, needs: Option<BTreeMap<String, MachineNeed>>, host: &PluginHost) -> Agent {
    let host = host.clone();
    Agent {
        provider: provider.into(),
        display_name: provider.into(),
        schema: Call::now(|()| Ok(json!({ "properties": { "lame": { "type": "boolean" } } }))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        create: Call::now(|(start,): (Frozen<Start>,)| {
            if start.settings.get("lame") == Some(&json!(true)) {
                return Err("no legs".into());
            }
            let start = Arc::new(start.0);
            Ok(AgentSession {
                begin: Call::new(move |(turn, text, ..): (String, String, _, _, _)| {
                    begin(start.clone(), turn, text)
                }),
                cancel: Call::now(|(_turn,)| Ok(())),
                close: Call::now(|(_removing,)| Ok(())),
                ..AgentSession::default()
            })
        }),
        machine: needs.map(|needs| {
            Call::now(move |()| {
                host.log(format!("{provider} is asked"))?;
                Ok(needs.clone())
            })
        }),
        ..Agent::default()
    }
}

fn option<T: DeserializeOwned + Default>(options: &Options, key: &str) -> T {
    options.get(key).cloned().map(|value| serde_json::from_value(value).unwrap()).unwrap_or_default()
}

fn native(host: PluginHost, options: Options) -> Result<(), Thrown> {
    let barn = Computer {
        id: "barn".into(),
        title: Some("Barn".into()),
        running: true,
        workdir: Some("/w".into()),
        mounts: vec![MachineMount { source: "/srv".into(), target: "/work".into(), read_only: false }],
        ..Computer::default()
    };
    let cold = Computer { id: "cold".into(), ..Computer::default() };
    let theirs = Computer {
        id: "theirs".into(),
        running: true,
        agents: Some(vec!["other".into()]),
        ..Computer::default()
    };
    let all = Arc::new(Mutex::new(vec![barn, cold, theirs]));
    host.register_agent(agent("walker", Some(option(&options, "needs")), &host))?;
    host.register_agent(agent("rider", Some(option(&options, "more")), &host))?;
    host.register_agent(agent("sitter", None, &host))?;
    let starts = host.clone();
    host.register_tool(Tool {
        definition: ToolSpec {
            name: "start".into(),
            input_schema: Some(object(json!({ "type": "object" }))),
            ..ToolSpec::default()
        },
        run: Call::new(move |(config, _): (Value, _)| {
            let host = starts.clone();
            async move {
                let request = SessionRequest {
                    owner: "root:localhost".into(),
                    provider: Some("walker".into()),
                    config: config.as_object().cloned(),
                    ..SessionRequest::default()
                };
                host.start_session(request).await.map(Value::from)
            }
        }),
        ..Tool::default()
    })?;
    let profiles: BTreeMap<String, MachineProfile> = option(&options, "profiles");
    let (listed, makes, removes, leaves, closes) =
        (all.clone(), host.clone(), host.clone(), host.clone(), host.clone());
    host.register_computers(
        Computers {
            how: Call::now(|(computer, process): (String, MachineProcess)| {
                let cwd = process.cwd.unwrap_or_else(|| "-".to_owned());
                let args = [vec![computer, cwd, process.program], process.args].concat();
                Ok(MachineProcess {
                    program: "enter".into(),
                    args,
                    env: process.env,
                    ..MachineProcess::default()
                })
            }),
            list: Some(Call::now(move |()| Ok(listed.lock().unwrap().clone()))),
            profiles: Some(Call::now(move |()| Ok(profiles.clone()))),
            make: Some(Call::now(move |(request,): (MachineRequest,)| {
                makes.log(format!("make {}", serde_json::to_string(&request).unwrap()))?;
                if request.profile.as_deref() == Some("broken") {
                    return Err("no room".into());
                }
                all.lock().unwrap().push(Computer { id: "m1".into(), running: true, ..Computer::default() });
                Ok("computer://m1".into())
            })),
            remove: Some(Call::now(move |(computer,): (String,)| removes.log(format!("remove {computer}")))),
            left: Some(Call::now(move |(computer, session): (String, String)| {
                leaves.log(format!("left {computer} {session}"))
            })),
            close: Some(Call::now(move |()| closes.log("closed".into()))),
        },
        None,
    )
}

async fn start(side: Side, dir: &Path, options: Value) -> (MemoryHost, RawClient) {
    let builder = builder();
    let used = builder.log();
    let record = Call::now(move |(entry,): (UsageEntry,)| {
        used.write(&format!("used {}", serde_json::to_string(&entry).unwrap()));
        Ok(())
    });
    let usage = Usage {
        record,
        total: Call::now(|_| Ok(Default::default())),
        pools: Call::now(|()| Ok(vec![])),
        records: Call::now(|_| Ok(vec![])),
        ..Usage::default()
    };
    let builder = builder
        .own(|host| host.register_usage(usage, None))
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .here(Arc::new(OnDisk::new(dir)))
        .options(|options| options.paths = vec!["/srv/inn".into(), "/etc".into()]);
    let host = side.load(builder, options).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    (host, client)
}

async fn create(client: &mut RawClient, provider: &str, config: Value) -> Result<Value, Value> {
    let params = json!({ "channel": format!("{provider}:/1"), "provider": provider, "config": config });
    client.request("createSession", params).await
}

/// The refusal's code and sentence, and that no session came of it.
async fn refusal(client: &mut RawClient, provider: &str, config: Value) -> (i64, String) {
    let error = create(client, provider, config).await.unwrap_err();
    let session = json!({ "channel": format!("{provider}:/1") });
    assert_eq!(client.request("subscribe", session).await.unwrap_err()["code"], -32001, "{error}");
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

/// What the maker was asked for.
async fn asked_for(host: &MemoryHost) -> Value {
    let line = host.log.wait_for("plugin computers: make ").await;
    serde_json::from_str(line.strip_prefix("plugin computers: make ").unwrap()).unwrap()
}

async fn say(host: &MemoryHost, client: &mut RawClient, session: &str, text: &str) -> Value {
    let _ = host;
    let chat = ostler_protocol::uri::default_chat(session);
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": text } });
    client.dispatch(&chat, 1, turn).await;
    let part = client.actions_until("chat/responsePart").await.pop().unwrap();
    let said = part["action"]["part"]["content"].as_str().unwrap().to_owned();
    serde_json::from_str(&said).unwrap_or(Value::String(said))
}

async fn a_session_runs_in_the_machine_it_names(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let profiles = json!({ "rust": { "title": "Rust", "description": "With cargo." }, "theirs": { "agents": ["rider"] } });
    let (host, mut client) = start(side, dir.path(), json!({ "profiles": profiles })).await;
    let resolve = async |client: &mut RawClient, provider: &str| {
        client.request("resolveSessionConfig", json!({ "provider": provider, "config": {} })).await.unwrap()
    };
    let resolved = resolve(&mut client, "walker").await;
    assert_eq!(
        resolved["schema"]["properties"]["computer"],
        json!({ "type": "string", "title": "Computer", "description": "The machine the session runs in.",
            "default": "", "sessionMutable": false, "enumDynamic": true,
            "enum": ["", "computer://barn", "disposable:rust"], "enumLabels": ["This host", "Barn", "Rust"],
            "enumDescriptions": ["", "", "With cargo."] })
    );
    assert_eq!(resolved["values"]["computer"], "");
    let typed = json!({ "provider": "walker", "property": "computer", "query": "RUST" });
    let picked = client.request("sessionConfigCompletions", typed).await.unwrap();
    assert_eq!(
        picked["items"],
        json!([{ "value": "disposable:rust", "label": "Rust", "description": "With cargo." }])
    );
    assert!(resolve(&mut client, "sitter").await["schema"]["properties"].get("computer").is_none());

    create(&mut client, "walker", json!({ "computer": "computer://barn" })).await.unwrap();
    let inside = json!(["computer://barn",
        { "program": "enter", "args": ["computer://barn", "/work/inn", "agent", "-x"], "env": { "A": "b", "OSTLER_SESSION": "walker:/1" } },
        "/work/x"]);
    assert_eq!(say(&host, &mut client, "walker:/1", "/srv/x").await, inside);
    client.request("disposeSession", json!({ "channel": "walker:/1" })).await.unwrap();
    host.log.wait_for("plugin computers: left computer://barn walker:/1").await;
    let used = host.log.wait_for("used {\"kind\":\"computer\"").await;
    let used: Value = serde_json::from_str(used.strip_prefix("used ").unwrap()).unwrap();
    assert_eq!(
        (&used["source"], &used["session"], &used["agent"], &used["computer"]),
        (&json!("computer"), &json!("walker:/1"), &json!("walker"), &json!("computer://barn"))
    );
    assert!(used["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0), "{used}");
    // One that is not mounted begins where the machine says.
    let away = json!({ "channel": "walker:/2", "provider": "walker", "config": { "computer": "computer://barn" },
        "workingDirectories": ["file:///etc"] });
    client.request("createSession", away).await.unwrap();
    let inside = say(&host, &mut client, "walker:/2", "/etc").await;
    assert_eq!((&inside[1]["args"][1], &inside[2]), (&json!("/w"), &Value::Null));
    client.request("disposeSession", json!({ "channel": "walker:/2" })).await.unwrap();

    for (provider, config, code, why) in [
        ("walker", json!("computer://gone"), -32008, "No machine at computer://gone"),
        ("walker", json!("computer://theirs"), -32602, "computer://theirs is not for walker"),
        (
            "walker",
            json!("anything"),
            -32602,
            "config.computer must be computer://<id>, disposable:<profile> or devcontainer://<folder>, not anything",
        ),
        ("walker", json!(5), -32602, "config.computer must be text"),
        ("sitter", json!("computer://barn"), -32602, "sitter cannot run in a machine"),
    ] {
        let refused = refusal(&mut client, provider, json!({ "computer": config })).await;
        assert_eq!(refused, (code, why.to_owned()));
    }
    create(&mut client, "walker", json!({ "computer": "" })).await.unwrap();
    assert_eq!(say(&host, &mut client, "walker:/1", "x").await, "this host");
    assert!(!host.log.has("is asked"), "needs are asked when a machine is made, and never at load");
    host.host.close().await;
    assert!(host.log.has("plugin computers: closed"));
}

async fn a_machine_is_made_to_what_its_backend_needs(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for file in ["gitconfig", "settings.json"] {
        std::fs::write(path(file), "").unwrap();
    }
    std::fs::create_dir(path("agent")).unwrap();
    std::fs::write(
        path("versions.json"),
        r#"{ "cli": { "version": "1.2.3", "requires": ["node"] }, "node": "24.1.0" }"#,
    )
    .unwrap();
    let needs = json!({
        "home": { "directory": path("agent"), "target": "/root/.agent", "readOnly": true, "required": true, "description": "Its folder." },
        "git": { "file": path("gitconfig"), "target": "/root/.gitconfig" },
        "level": { "name": "LEVEL", "default": "high" },
        "unset": { "name": "UNSET" },
        "copied": { "source": path("settings.json"), "target": "/root/settings.json" },
        "cli": { "part": "cli", "required": true },
        "daemon": { "part": "ostler" },
        "mine": { "state": "/root/.walker", "seed": [path("settings.json"), path("gone")] },
        "user": { "directory": "~", "target": "/host-home" },
    });
    let (host, mut client) =
        start(side, dir.path(), json!({ "needs": needs, "profiles": { "rust": {} } })).await;
    client.request("resolveSessionConfig", json!({ "provider": "walker", "config": {} })).await.unwrap();
    assert!(!host.log.has("is asked"), "at load and before a machine is made nobody asks");
    create(&mut client, "walker", json!({ "computer": "disposable:rust" })).await.unwrap();
    assert_eq!(lines_of(&host.log, "computers").iter().filter(|line| *line == "walker is asked").count(), 1);
    let mount = |source: String, target: &str, read_only: bool| json!({ "source": source, "target": target, "readOnly": read_only });
    let home = std::env::var("HOME").unwrap();
    assert_eq!(
        asked_for(&host).await,
        json!({
            "source": "disposable:rust", "profile": "rust", "session": "walker:/1", "workingDirectory": "/srv/inn",
            "agents": ["walker"],
            "plan": {
                "mounts": [
                    mount(path("gitconfig"), "/root/.gitconfig", false),
                    mount(path("agent"), "/root/.agent", true),
                    mount(home.trim_end_matches('/').to_owned(), "/host-home", false),
                ],
                "env": { "LEVEL": "high" },
                "copies": [{ "source": path("settings.json"), "target": "/root/settings.json" }],
                "parts": [
                    { "part": "cli", "version": "1.2.3", "target": "/opt/ostler/cli" },
                    { "part": "node", "version": "24.1.0", "target": "/opt/ostler/node" },
                    { "part": "ostler", "version": env!("CARGO_PKG_VERSION"), "target": "/opt/ostler/ostler" },
                ],
                "volumes": [{ "name": "ostler-walker-mine", "target": "/root/.walker",
                    "seed": [{ "source": path("settings.json"), "target": "/root/.walker/settings.json" }] }],
            },
        })
    );
    // The session is in the machine that was made, and stays there.
    let state = client.request("subscribe", json!({ "channel": "walker:/1" })).await.unwrap();
    assert_eq!(state["snapshot"]["state"]["config"]["values"]["computer"], "computer://m1");
    let moved = json!({ "type": "session/configChanged", "config": { "computer": "computer://barn" } });
    client.dispatch("walker:/1", 5, moved).await;
    assert!(client.next_action().await["rejectionReason"].is_string());
    assert_eq!(say(&host, &mut client, "walker:/1", "/").await[0], "computer://m1");
    // A pin that moves is the next machine's.
    std::fs::write(path("versions.json"), "{}").unwrap();
    let next =
        json!({ "channel": "walker:/2", "provider": "walker", "config": { "computer": "disposable:rust" } });
    let error = client.request("createSession", next).await.unwrap_err();
    assert_eq!(
        error["message"],
        "need cli of agent walker: it is required, and the versions file pins no part cli"
    );
}

async fn a_session_that_cannot_be_made_leaves_no_machine(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let options = json!({ "profiles": { "rust": {}, "broken": {} } });
    let (host, mut client) = start(side, dir.path(), options).await;
    let (code, why) = refusal(&mut client, "walker", json!({ "computer": "disposable:broken" })).await;
    assert_eq!((code, why.as_str()), (-32603, "cannot create a machine from disposable:broken: no room"));
    let (_, why) =
        refusal(&mut client, "walker", json!({ "computer": "disposable:rust", "lame": true })).await;
    assert!(why.contains("no legs"), "{why}");
    host.log.wait_for("plugin computers: remove computer://m1").await;
}

async fn values_come_from_the_profile_then_the_option_then_the_need(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let needs = json!({ "level": { "name": "LEVEL", "default": "default" }, "mine": { "name": "MINE", "default": "default" },
        "other": { "name": "OTHER", "default": "default" } });
    let profiles = json!({ "set": { "agents": ["walker"], "needs": { "level": "profile" } } });
    let options = json!({ "needs": needs, "profiles": profiles, "level": "option", "mine": "option" });
    let (host, mut client) = start(side, dir.path(), options).await;
    create(&mut client, "walker", json!({ "computer": "disposable:set" })).await.unwrap();
    let env = asked_for(&host).await["plan"]["env"].clone();
    assert_eq!(env, json!({ "LEVEL": "profile", "MINE": "option", "OTHER": "default" }));
}

async fn what_cannot_work_refuses_the_machine_and_says_where_it_came_from(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().display().to_string();
    let secret = "s3cr3t-value";
    for (needs, profile, more, why) in [
        (json!({ "a": { "directory": "agent", "target": "/t" } }), json!({}), json!({}),
            "need a of agent walker: agent is not an absolute path (the path the need carries)".to_owned()),
        (json!({ "a": { "file": "/x", "target": "/t" } }), json!({ "a": "/gone" }), json!({}),
            "need a of agent walker: /gone does not exist (from profile p)".to_owned()),
        (json!({ "a": { "source": "/x", "target": "/t" } }), json!({}), json!({ "a": "~gone" }),
            "need a of agent walker: ~gone is not an absolute path (from the option plugins.computers.options.a)".to_owned()),
        (json!({ "a": { "directory": folder, "target": "/t" }, "b": { "directory": folder, "target": "/t/" } }), json!({}), json!({}),
            "need b of agent walker: need a of agent walker has the target /t too (the path the need carries)".to_owned()),
        (json!({ "a": { "name": "A", "required": true } }), json!({}), json!({}),
            "need a of agent walker: it is required and has no value; give one as a in the needs of profile p or as the option plugins.computers.options.a".to_owned()),
        (json!({ "a": { "name": "A", "default": secret }, "b": { "name": "A" } }), json!({}), json!({ "b": "another" }),
            "need b of agent walker: need a of agent walker sets A to another value (from the option plugins.computers.options.b)".to_owned()),
        (json!({ "a": { "name": "A" } }), json!({}), json!({ "a": [secret] }),
            "need a of agent walker: its value must be text (plugins.computers.options.a)".replace("(plugins", "(from the option plugins")),
        (json!({ "a": { "state": "/s", "seed": ["~/.config/agent/auth.json"] } }), json!({}), json!({}),
            "need a of agent walker: ~/.config/agent/auth.json is a login file, and no volume is seeded from one".to_owned()),
    ] {
        let mut options = object(json!({ "needs": needs, "profiles": { "p": { "needs": profile } } }));
        options.extend(object(more));
        let (host, mut client) = start(side, dir.path(), options.into()).await;
        let refused = refusal(&mut client, "walker", json!({ "computer": "disposable:p" })).await;
        assert_eq!(refused, (-32602, why));
        assert!(!host.log.has("plugin computers: make"), "nothing is made");
        assert!(!host.log.has(secret), "{:?}", host.log.all());
    }
}

async fn a_profile_says_whom_its_machines_are_for(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let options = json!({
        "needs": { "w": { "name": "W", "default": "walks" } }, "more": { "r": { "name": "R", "default": "rides" } },
        "profiles": { "both": { "agents": ["walker", "rider"] }, "ridden": { "agents": ["rider"] },
            "lost": { "agents": ["walker", "nobody"] } },
    });
    let (host, mut client) = start(side, dir.path(), options).await;
    for (named, why) in [
        ("disposable:ridden", "profile ridden is not for agent walker"),
        ("disposable:lost", "profile lost names agent nobody, which is not loaded on this host"),
        ("disposable:none", "there is no profile none; there are both, lost, ridden"),
    ] {
        let refused = refusal(&mut client, "walker", json!({ "computer": named })).await;
        assert_eq!(refused, (-32602, why.to_owned()));
    }
    create(&mut client, "walker", json!({ "computer": "disposable:both" })).await.unwrap();
    let asked = asked_for(&host).await;
    assert_eq!(
        (&asked["agents"], &asked["plan"]["env"]),
        (&json!(["walker", "rider"]), &json!({ "W": "walks", "R": "rides" }))
    );
}

async fn start_session_makes_the_machine_it_names(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let (host, mut client) = start(side, dir.path(), json!({ "profiles": { "rust": {} } })).await;
    let mut talk = Talk::with(&host, "echo").await;
    let started = talk.tool("start", json!({ "computer": "devcontainer:///srv/inn" })).await;
    assert!(started.starts_with("walker:/"), "{started}");
    let asked = asked_for(&host).await;
    assert_eq!(
        (&asked["source"], &asked["session"], &asked["owner"]),
        (&json!("devcontainer:///srv/inn"), &json!(started), &json!("root:localhost"))
    );
    let state = client.request("subscribe", json!({ "channel": started })).await.unwrap();
    assert_eq!(state["snapshot"]["state"]["config"]["values"]["computer"], "computer://m1");
    let refused = talk.tool("start", json!({ "computer": "disposable:none" })).await;
    assert!(refused.contains("there is no profile none; there are rust"), "{refused}");
}

async fn who_may_make_no_machine_gets_none(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let asked = async |grants: &[&str]| {
        let builder = side.load(
            builder().guarded().here(Arc::new(OnDisk::new(dir.path()))),
            json!({ "profiles": { "rust": {} } }),
        );
        let host = builder.grants(grants).start().await;
        let config = object(json!({ "computer": "disposable:rust" }));
        let request = SessionRequest {
            owner: "plugin:computers".into(),
            provider: Some("walker".into()),
            config: Some(config),
            ..SessionRequest::default()
        };
        let outcome = host.plugin("computers").start_session(request).await;
        (outcome.map_err(|why| why.message), host.log.has("plugin computers: make"))
    };
    let refused = asked(&["session:create"]).await;
    assert_eq!(refused, (Err("plugin:computers may not computer:put here".to_owned()), false));
    let (made, asked) = asked(&["session:create", "computer:put"]).await;
    assert!(made.is_ok() && asked, "{made:?}");
}

async fn policies_are_asked_of_the_machine_a_session_names(side: Side) {
    let row = |id: &str, kind: &str, effect: &str, computer: &str| {
        object(
            json!({ "id": id, "scope": "all", "kind": kind, "effect": effect, "match": { "computer": [computer] } }),
        )
    };
    let anything = object(json!({ "id": "agents", "scope": "all", "kind": "agent", "effect": "allow" }));
    for (rows, outcome) in [
        (vec![], Err("no policy allows computer disposable:rust")),
        (vec![row("c", "computer", "allow", "disposable:*")], Ok(())),
        (
            vec![row("c", "computer", "allow", "computer://*")],
            Err("no policy allows computer disposable:rust"),
        ),
        (
            vec![row("c", "computer", "allow", "*"), row("no", "computer", "deny", "disposable:rust")],
            Err("no refuses agent walker on disposable:rust"),
        ),
        (
            vec![row("c", "computer", "allow", "*"), row("no", "agent", "deny", "disposable:*")],
            Err("no refuses agent walker on disposable:rust"),
        ),
    ] {
        let all: Vec<JsonObject> = [vec![anything.clone()], rows].concat();
        let policies = Policies {
            list: Call::now(move |()| Ok(all.clone())),
            get: Call::now(|_| Ok(None)),
            put: Call::now(|_| Ok(())),
            remove: Call::now(|_| Ok(false)),
            ..Policies::default()
        };
        let builder = builder().guarded().policies(policies).options(|options| options.check_policies = true);
        let builder = side.load(builder, json!({ "profiles": { "rust": {} } }));
        let host = builder.grants(&["session:create", "computer:put"]).start().await;
        let request = SessionRequest {
            owner: "plugin:computers".into(),
            provider: Some("walker".into()),
            config: Some(object(json!({ "computer": "disposable:rust" }))),
            ..SessionRequest::default()
        };
        let started = host.plugin("computers").start_session(request).await;
        assert_eq!(started.map(drop).map_err(|why| why.message), outcome.map_err(str::to_owned));
        assert_eq!(host.log.has("plugin computers: make"), outcome.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_machines_none_can_be_named() {
    let host = builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let resolved = client.request("resolveSessionConfig", json!({ "config": {} })).await.unwrap();
    assert!(resolved["schema"]["properties"].get("computer").is_none());
    let refused = refusal(&mut client, "echo", json!({ "computer": "computer://barn" })).await;
    assert_eq!(refused, (-32602, "echo cannot run in a machine".to_owned()));
}
