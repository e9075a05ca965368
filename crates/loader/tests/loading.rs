//! The whole way of a plugin, with modules made here: what each mistake costs, and the line it is answered
//! with.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use ostler_contract::live::{Live, Pending};
use ostler_contract::points::{Port, TriggerEvent, TriggerType, Vault, When};
use ostler_contract::recorder::Recorder;
use ostler_contract::{
    Call, HostFacts, JsonObject, Module, Options, Plugin, PluginHost, PluginSource, Slug, Thrown, Value, json,
};
use ostler_engine::{Clock, Gate, Host, HostOptions, Log, PluginHostCalls, Yaml};
use ostler_loader::{Loaded, Loader, PluginConfig, State};

type Apply = Arc<dyn Fn(PluginHost, Options) -> BoxFuture<'static, Result<(), Thrown>> + Send + Sync>;

fn apply(run: impl Fn(PluginHost, Options) -> Result<(), Thrown> + Send + Sync + 'static) -> Option<Apply> {
    Some(Arc::new(move |host, options| Box::pin(std::future::ready(run(host, options)))))
}

fn module(name: &str, apply: Option<Apply>) -> Module {
    Module { name: Some(name.into()), title: None, defaults: None, options_schema: None, apply, keep: None }
}

/// Imports modules by file name; one called slow takes its time.
struct Fakes(HashMap<String, Result<Module, Thrown>>);

impl PluginSource for Fakes {
    fn import(&self, path: &Path, _: &str) -> Pending<Module> {
        let name = path.file_name().unwrap().to_str().unwrap();
        let module = self.0.get(name).cloned().expect("a fake of that name");
        match name.starts_with("slow") {
            false => ostler_contract::live::ready(module),
            true => Box::pin(async {
                // The test of it pauses time.
                tokio::time::sleep(Duration::from_secs(6)).await;
                module
            }),
        }
    }
}

struct Bench {
    dir: tempfile::TempDir,
    modules: HashMap<String, Result<Module, Thrown>>,
    /// Imports in place of the modules.
    source: Option<Arc<dyn PluginSource>>,
    bundled: Vec<Plugin>,
    entries: Vec<PluginConfig>,
    vault: HashMap<String, String>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            modules: HashMap::new(),
            source: None,
            bundled: Vec::new(),
            entries: Vec::new(),
            vault: HashMap::new(),
            log: Arc::default(),
        }
    }

    fn add(&mut self, file: &str, module: Module) -> &mut PluginConfig {
        std::fs::write(self.dir.path().join(file), "").unwrap();
        self.modules.insert(file.to_owned(), Ok(module));
        self.entries.push(PluginConfig::named(&format!("./{file}")));
        self.entries.last_mut().unwrap()
    }

    async fn load(&self) -> Loaded {
        let log = self.log.clone();
        let host = Host::new(
            HostOptions::default(),
            Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()),
            Log::default(),
            Yaml::default(),
            Gate::default(),
        );
        let door = PluginHostCalls::new(&host.front);
        let loader = Loader {
            bundled: self.bundled.clone(),
            source: self.source.clone().unwrap_or_else(|| Arc::new(Fakes(self.modules.clone()))),
            config_dir: self.dir.path().to_owned(),
            facts: Arc::new(HostFacts { version: "0.1.0".to_owned(), ..HostFacts::default() }),
            calls: door.clone(),
            log: Arc::new(move |_, line| log.lock().unwrap().push(line.to_owned())),
            hidden: Default::default(),
        };
        let caller = ostler_contract::Caller {
            plugin: Slug::parse("host").unwrap(),
            grants: Arc::new([]),
            vault: None,
        };
        let own = PluginHost::new(Arc::default(), caller, door);
        own.register_vault(vault_of(self.vault.clone()), None).unwrap();
        loader.load(&self.entries, own.seal()).await
    }

    async fn lines(&self) -> String {
        let loaded = self.load().await;
        let lines: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
        let dir = self.dir.path().display().to_string();
        lines.join("\n").replace(&dir, "<dir>")
    }

    fn logged(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }
}

fn vault_of(held: HashMap<String, String>) -> Vault {
    Vault {
        get: Call::now(move |(name,): (String,)| Ok(held.get(&name).cloned())),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        ..Vault::default()
    }
}

fn build() -> TriggerType {
    TriggerType {
        r#type: "build".into(),
        title: "A build".into(),
        events: vec![TriggerEvent { id: "done".into(), title: "Done".into(), description: None }],
        ..TriggerType::default()
    }
}

#[tokio::test]
async fn ids_and_shapes() {
    let mut bench = Bench::new();
    bench.add("a.js", module("notes", apply(|_, _| Ok(()))));
    bench.add("b.js", module("notes", apply(|_, _| panic!("must not run"))));
    bench.add("c.js", module("@inn/horse", apply(|_, _| panic!("must not run"))));
    bench.add("d.js", module("d", None));
    bench.add("off.js", module("off", apply(|_, _| panic!("must not run")))).enabled = false;
    bench.entries.push(PluginConfig::named("missing"));
    let lines = bench.lines().await;
    let lines = lines.replace(&format!("file://{}", bench.dir.path().display()), "file://<dir>");
    insta::assert_snapshot!(lines, @r"
    plugin notes is named by ./a.js and by ./b.js; only ./a.js is loaded
    plugin @inn/horse skipped: its name is not a slug
    file://<dir>/d.js does not export an apply function
    Plugin missing is not installed in <dir>; run npm install there, or name a path.
    ");
    let states: Vec<State> = bench.load().await.plugins.iter().map(|plugin| plugin.state).collect();
    use State::{Applied, Off, Skipped};
    assert_eq!(states, [Applied, Skipped, Skipped, Skipped, Off, Skipped]);
}

/// Imports a module without a name, whatever the file.
struct Nameless(Module);

impl PluginSource for Nameless {
    fn import(&self, _: &Path, _: &str) -> Pending<Module> {
        ostler_contract::live::ready(Ok(self.0.clone()))
    }
}

#[tokio::test]
async fn a_plugin_that_the_program_was_built_without_is_told_and_loaded_from_nowhere_else() {
    let mut bench = Bench::new();
    bench.bundled.push(Plugin::left_out("@ostler/stable", "stable"));
    bench.entries.push(PluginConfig::named("@ostler/stable"));
    let package = bench.dir.path().join("node_modules/@ostler/stable");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("package.json"), r#"{ "name": "@ostler/stable", "main": "index.js" }"#)
        .unwrap();
    std::fs::write(package.join("index.js"), "").unwrap();
    insta::assert_snapshot!(bench.lines().await, @"plugin @ostler/stable skipped: this ostler was built without stable; install a build with it or remove @ostler/stable from the configuration");
    bench.entries[0].enabled = false;
    let loaded = bench.load().await;
    assert_eq!((loaded.problems.len(), loaded.plugins[0].state), (0, State::Off));
}

#[tokio::test]
async fn a_module_without_a_name_has_the_id_of_its_package_file_or_folder() {
    let applied: Arc<Mutex<Vec<String>>> = Arc::default();
    let takes = applied.clone();
    let nameless = Module {
        name: None,
        ..module(
            "unused",
            apply(move |host, _| {
                takes.lock().unwrap().push(host.id().to_string());
                Ok(())
            }),
        )
    };
    let mut bench = Bench::new();
    for (file, text) in [
        // The folder of each package is not its id.
        ("node_modules/@inn/horse/package.json", r#"{ "name": "@inn/horse", "main": "lib/stable.js" }"#),
        ("node_modules/@inn/horse/lib/stable.js", ""),
        ("node_modules/oats/package.json", r#"{ "name": "hay", "main": "index.js" }"#),
        ("node_modules/oats/index.js", ""),
        ("node_modules/loud/package.json", r#"{ "name": "Loud", "main": "quiet.js" }"#),
        ("node_modules/loud/quiet.js", ""),
        ("own/notes.js", ""),
        ("yard/index.js", ""),
        ("own/My Notes.js", ""),
    ] {
        let path = bench.dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let specs = ["@inn/horse", "oats", "loud", "./own/notes.js", "./yard", "./own/My Notes.js"];
    bench.entries = specs.map(PluginConfig::named).into();
    bench.source = Some(Arc::new(Nameless(nameless)));
    insta::assert_snapshot!(bench.lines().await, @r"
    plugin Loud skipped: its name is not a slug
    plugin My Notes skipped: its name is not a slug
    ");
    assert_eq!(*applied.lock().unwrap(), ["inn-horse", "hay", "notes", "yard"]);
}

#[tokio::test]
async fn of_two_with_one_id_the_first_decides_even_where_it_is_off() {
    let mut bench = Bench::new();
    bench.add("a.js", module("notes", apply(|_, _| panic!("must not run")))).enabled = false;
    bench.add("b.js", module("notes", apply(|_, _| panic!("must not run"))));
    assert_eq!(
        bench.lines().await,
        "plugin notes is named by ./a.js and by ./b.js; ./a.js is off, so neither is loaded"
    );
    let states: Vec<State> = bench.load().await.plugins.iter().map(|plugin| plugin.state).collect();
    assert_eq!(states, [State::Off, State::Skipped]);
}

#[tokio::test]
async fn options_are_merged_read_and_checked_before_apply() {
    let seen: Arc<Mutex<Vec<JsonObject>>> = Arc::default();
    let mut bench = Bench::new();
    bench.vault.insert("host:key".into(), "s3cret".into());
    let took = seen.clone();
    let mut notes = module(
        "notes",
        apply(move |_, options| {
            took.lock().unwrap().push((*options).clone());
            Ok(())
        }),
    );
    notes.defaults = Some(json!({ "size": 3, "key": "" }));
    notes.options_schema = Some(json!({
        "type": "object", "required": ["size"], "additionalProperties": false,
        "properties": {
            "size": { "type": "integer" }, "key": { "type": "string", "writeOnly": true },
            "later": { "type": "object", "secretAtUse": true, "additionalProperties": { "type": "string" } }
        }
    }));
    let entry = bench.add("notes.js", notes);
    entry.options =
        json!({ "key": { "$secret": "host:key" }, "other": 1, "later": { "a": { "$secret": "team:t/x" } } })
            .as_object()
            .unwrap()
            .clone();
    assert_eq!(bench.lines().await, "");
    assert_eq!(
        Value::Object(seen.lock().unwrap()[0].clone()),
        json!({ "size": 3, "key": "s3cret", "other": 1, "later": { "a": { "$secret": "team:t/x" } } })
    );
    assert!(
        bench.logged().contains(
            "plugin notes: plugins.notes.options.other is not an option notes knows; passed through"
        )
    );
    assert!(!bench.logged().contains("s3cret"));
}

#[tokio::test]
async fn options_that_do_not_fit_cost_the_plugin_and_nothing_else() {
    let mut bench = Bench::new();
    for (file, options) in [
        ("a.js", json!({ "key": 5 })),
        ("b.js", json!({ "key": { "$secret": "host:gone" } })),
        ("c.js", json!({ "map": { "x": [{ "$secret": "team:t/k" }] } })),
        ("d.js", json!({ "key": { "$secret": "my-real-key" } })),
        ("e.js", json!({ "key": { "$secret": 5 } })),
    ] {
        let id = file.trim_end_matches(".js");
        let mut plugin = module(id, apply(|_, _| panic!("must not run")));
        plugin.options_schema = Some(json!({ "properties": { "key": { "type": "string" }, "map": {} } }));
        bench.add(file, plugin).options = options.as_object().unwrap().clone();
    }
    // The resolved text is checked against the schema like any other text.
    bench.vault.insert("host:short".into(), "s3cret".into());
    for (file, schema) in [
        ("j.js", json!({ "type": "string", "minLength": 8 })),
        ("k.js", json!({ "type": "integer" })),
        ("l.js", json!({ "enum": ["one", "two"] })),
    ] {
        let mut plugin = module(file.trim_end_matches(".js"), apply(|_, _| panic!("must not run")));
        plugin.options_schema = Some(json!({ "properties": { "key": schema } }));
        bench.add(file, plugin).options =
            json!({ "key": { "$secret": "host:short" } }).as_object().unwrap().clone();
    }
    let mut bad = module("f", apply(|_, _| panic!("must not run")));
    bad.options_schema = Some(json!("nonsense"));
    bench.add("f.js", bad);
    for (file, defaults) in [("g.js", json!([1])), ("h.js", json!(5)), ("i.js", json!("x"))] {
        let mut plugin = module(file.trim_end_matches(".js"), apply(|_, _| panic!("must not run")));
        plugin.defaults = Some(defaults);
        bench.add(file, plugin);
    }
    bench.add("good.js", module("good", apply(|_, _| Ok(()))));
    insta::assert_snapshot!(bench.lines().await, @r"
    plugin a skipped: plugins.a.options.key must be text
    plugin b skipped: plugins.b.options.key names host:gone: the vault holds no host:gone
    plugin c skipped: plugins.c.options.map.x[0] names team:t/k: team:t/k belongs to a team or a person, and a plugin is loaded for neither; only host: names are read here
    plugin d skipped: plugins.d.options.key names my-real-key: a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>
    plugin e skipped: plugins.e.options.key names 5: a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>
    plugin j skipped: plugins.j.options.key must be text of at least 8 characters
    plugin k skipped: plugins.k.options.key must be an integer
    plugin l skipped: plugins.l.options.key must be one of one, two
    plugin f skipped: its optionsSchema is not an object
    plugin g skipped: its defaults is not an object
    plugin h skipped: its defaults is not an object
    plugin i skipped: its defaults is not an object
    ");
    assert_eq!(bench.load().await.plugins.last().unwrap().state, State::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_leaves_nothing_behind() {
    let kept: Arc<Mutex<Option<PluginHost>>> = Arc::default();
    let mut bench = Bench::new();
    bench.add(
        "a.js",
        module(
            "a",
            apply(|host, _| {
                host.register_trigger_type(build())?;
                Err("it would not".into())
            }),
        ),
    );
    bench.add(
        "b.js",
        module(
            "b",
            apply(|host, _| {
                host.register_trigger_type(build())?;
                host.register_trigger_type(build())
            }),
        ),
    );
    bench.add("c.js", module("c", apply(|_, _| panic!("boom"))));
    let never: Apply = Arc::new(|_, _| Box::pin(std::future::pending()));
    bench.add("d.js", module("d", Some(never)));
    let keep = kept.clone();
    bench
        .add(
            "e.js",
            module(
                "e",
                apply(move |host, _| {
                    host.problem("one record is broken".into())?;
                    *keep.lock().unwrap() = Some(host);
                    Ok(())
                }),
            ),
        )
        .grants = vec!["bot:get".into(), "nonsense".into()];
    let lines = bench.lines().await;
    let lines: Vec<String> = lines
        .lines()
        .map(|line| {
            let (head, tail) = line.split_once(" ms:").unwrap_or((line, ""));
            if tail.is_empty() {
                line.to_owned()
            } else {
                format!("{} N ms:{tail}", head.rsplit_once(' ').unwrap().0)
            }
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    plugin a failed in N ms: it would not
    plugin b failed in N ms: plugin b: registerTriggerType needs type to be a type name no other type in this plugin uses
    plugin c failed in N ms: apply panicked
    plugin d failed in N ms: apply did not return within 60 seconds
    plugin e: grants: nonsense is not <subject>:<operation>; dropped
    one record is broken
    ");
    let loaded = bench.load().await;
    assert!(loaded.registry.all::<TriggerType>().is_empty());
    let host = kept.lock().unwrap().clone().unwrap();
    assert_eq!(host.caller().grants.len(), 1);
    assert_eq!(
        host.register_trigger_type(build()).unwrap_err().message,
        "e: nothing may be registered after apply returned"
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_waits_says_for_whom() {
    let mut bench = Bench::new();
    bench.add("slow.js", module("import", apply(|_, _| Ok(()))));
    let slow: Apply = Arc::new(|_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            Ok(())
        })
    });
    bench.add("apply.js", module("apply", Some(slow)));
    bench.add(
        "quick.js",
        later("quick", |_| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Ok(())
            })
        }),
    );
    assert_eq!(bench.lines().await, "");
    let logged = bench.logged();
    let waited: Vec<&str> = logged.lines().filter(|line| line.contains("still")).collect();
    assert_eq!(
        waited,
        [
            "plugin ./slow.js: still importing after 5 seconds; the start continues without it after 60",
            "plugin apply: still in its apply after 5 seconds; the start continues without it after 60",
        ]
    );
}

type ApplyLater = fn(PluginHost) -> futures::future::BoxFuture<'static, Result<(), Thrown>>;

/// A plugin whose `apply` awaits something.
fn later(id: &str, run: ApplyLater) -> Module {
    module(id, Some(Arc::new(move |host, _| run(host))))
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_answered_while_plugins_are_applied() {
    let mut bench = Bench::new();
    bench.vault.insert("host:key".into(), "s3cret".into());
    bench.add("early.js", replaces("early"));
    bench.add(
        "a.js",
        later("a", |host| {
            Box::pin(async move {
                assert_eq!(host.secret("host:key".into(), None).await?, "from the plugin");
                let refused = host.secret("host:gone".into(), None).await.unwrap_err();
                host.problem(refused.message)?;
                let refused = host.secret("gone".into(), None).await.unwrap_err();
                host.problem(refused.message)?;
                let refused = host.secret("team:t/k".into(), None).await.unwrap_err();
                host.problem(refused.message)
            })
        }),
    );
    bench.add("late.js", replaces("late"));
    let begun = tokio::time::Instant::now();
    insta::assert_snapshot!(bench.lines().await, @r"
    the vault holds no host:gone
    a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>
    plugin a: secret team:t/k is for work of team t; name it as { team: 't' }
    plugin late sets vault, but plugin a already named a secret; list late first in the configuration
    ");
    assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test]
async fn an_event_is_fired_only_where_its_type_was_registered() {
    let mut bench = Bench::new();
    bench.add(
        "a.js",
        module(
            "a",
            apply(|host, _| {
                let fire = |kind: &str, event: &str| {
                    host.fire_trigger(kind.into(), event.into(), JsonObject::new()).map(drop)
                };
                host.problem(fire("build", "done").unwrap_err().message)?;
                host.register_trigger_type(build())?;
                host.problem(fire("build", "begun").unwrap_err().message)?;
                host.problem(fire("other", "done").unwrap_err().message)
            }),
        ),
    );
    insta::assert_snapshot!(bench.lines().await, @r"
    plugin a: fireTrigger needs type to be a type this plugin registered, not build
    plugin a: fireTrigger needs event to be an event build offers, not begun
    plugin a: fireTrigger needs type to be a type this plugin registered, not other
    ");
    let loaded = bench.load().await;
    let host = &loaded.registry.plugins()[0];
    assert!(host.fire_trigger("build".into(), "gone".into(), JsonObject::new()).is_err(), "nor later");
}

#[tokio::test]
async fn without_a_schema_options_are_handed_on_as_they_are() {
    let seen: Arc<Mutex<Value>> = Arc::default();
    let took = seen.clone();
    let plain = module(
        "plain",
        apply(move |_, options| {
            *took.lock().unwrap() = options.into_live().into_data().unwrap();
            Ok(())
        }),
    );
    let given = json!({ "any": { "thing": [1, null, "x"] }, "n": 2.5, "": false });
    let mut bench = Bench::new();
    bench.add("plain.js", plain).options = given.as_object().unwrap().clone();
    assert_eq!(bench.lines().await, "");
    assert_eq!(*seen.lock().unwrap(), given);
}

#[tokio::test]
async fn what_is_read_at_use_is_frozen_and_nothing_else() {
    let live: Arc<Mutex<Option<Live>>> = Arc::default();
    let took = live.clone();
    let mut notes = module(
        "notes",
        apply(move |_, options| {
            *took.lock().unwrap() = Some(options.into_live());
            Ok(())
        }),
    );
    let at_use = json!({ "secretAtUse": true });
    notes.options_schema = Some(json!({
        "properties": {
            "map": { "type": "object", "secretAtUse": true }, "plain": at_use, "reference": at_use,
            "inner": { "properties": { "a/b": at_use } }, "list": { "items": at_use }, "free": {}
        }
    }));
    let mut bench = Bench::new();
    bench.add("notes.js", notes).options = json!({
        "map": { "a": { "$secret": "host:a" }, "b": "plain" }, "plain": { "x": 1 }, "reference": { "$secret": "host:a" },
        "inner": { "a/b": { "y": 1 }, "c": {} }, "list": [{ "z": 1 }], "free": { "f": {} }
    })
    .as_object()
    .unwrap()
    .clone();
    assert_eq!(bench.lines().await, "");
    let Some(Live::Object(fields)) = live.lock().unwrap().take() else { panic!("no options") };
    let node = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, node)| node).unwrap();
    let is_frozen = |node: &Live| matches!(node, Live::Frozen(_));
    assert!(is_frozen(node("map")) && is_frozen(node("plain")) && is_frozen(node("reference")));
    assert!(!is_frozen(node("free")) && !is_frozen(node("inner")) && !is_frozen(node("list")));
    let Live::Object(inner) = node("inner") else { panic!("no object") };
    assert!(is_frozen(&inner[0].1) && !is_frozen(&inner[1].1));
    let Live::List(entries) = node("list") else { panic!("no list") };
    assert!(is_frozen(&entries[0]));
}

#[tokio::test]
async fn what_is_marked_is_left_out_without_its_secret_and_the_rest_is_used() {
    let seen: Arc<Mutex<Vec<JsonObject>>> = Arc::default();
    let mut bench = Bench::new();
    bench.vault.insert("host:key".into(), "s3cret".into());
    let took = seen.clone();
    let mut notes = module(
        "notes",
        apply(move |_, options| {
            took.lock().unwrap().push((*options).clone());
            Ok(())
        }),
    );
    let marked = json!({ "type": "object", "leftOutWithoutSecret": true });
    notes.options_schema = Some(json!({ "properties": {
        "map": { "type": "object", "additionalProperties": marked }, "list": { "type": "array", "items": marked },
        "plain": { "type": "string" }
    } }));
    let (has, gone) = (json!({ "$secret": "host:key" }), json!({ "$secret": "host:gone" }));
    bench.add("notes.js", notes).options = json!({
        "map": { "a": { "env": { "k": gone } }, "b": { "env": { "k": has } }, "c": { "x": gone, "y": gone } },
        "list": [{ "k": gone }, { "k": has }, { "k": gone }, { "k": "plain" }], "plain": has
    })
    .as_object()
    .unwrap()
    .clone();
    insta::assert_snapshot!(bench.lines().await, @r"
    plugins.notes.options.map.a is left out: map.a.env.k names host:gone: the vault holds no host:gone
    plugins.notes.options.map.c is left out: map.c.x names host:gone: the vault holds no host:gone
    plugins.notes.options.list[0] is left out: list[0].k names host:gone: the vault holds no host:gone
    plugins.notes.options.list[2] is left out: list[2].k names host:gone: the vault holds no host:gone
    ");
    assert_eq!(
        Value::Object(seen.lock().unwrap()[0].clone()),
        json!({ "map": { "b": { "env": { "k": "s3cret" } } }, "list": [{ "k": "s3cret" }, { "k": "plain" }],
            "plain": "s3cret" })
    );
}

#[tokio::test]
async fn what_is_marked_is_left_out_where_it_does_not_fit_and_the_rest_is_used() {
    let seen: Arc<Mutex<Vec<Options>>> = Arc::default();
    let mut bench = Bench::new();
    let took = seen.clone();
    let mut notes = module(
        "notes",
        apply(move |_, options| {
            took.lock().unwrap().push(options);
            Ok(())
        }),
    );
    let marked = json!({ "type": "object", "leftOutUnlessValid": true, "leftOutWithoutSecret": true,
        "properties": { "k": { "type": "string" } } });
    notes.options_schema = Some(json!({ "properties": {
        "map": { "type": "object", "additionalProperties": marked }, "list": { "type": "array", "items": marked }
    } }));
    bench.add("notes.js", notes).options = json!({
        "map": { "a": { "k": 5 }, "b": 7, "c": { "k": "c" } },
        "list": [{ "k": { "$secret": "host:gone" } }, { "k": 1 }, { "k": "two" }, { "k": [], "l": 1 }]
    })
    .as_object()
    .unwrap()
    .clone();
    insta::assert_snapshot!(bench.lines().await, @r"
    plugins.notes.options.list[0] is left out: list[0].k names host:gone: the vault holds no host:gone
    plugins.notes.options.map.a is left out: map.a.k must be text
    plugins.notes.options.map.b is left out: map.b must be an object
    plugins.notes.options.list[0] is left out: list[0].k must be text
    plugins.notes.options.list[2] is left out: list[2].k must be text
    ");
    let seen = seen.lock().unwrap();
    let used = json!({ "map": { "c": { "k": "c" } }, "list": [{ "k": "two" }] });
    assert_eq!(Value::Object((*seen[0]).clone()), used);
    let told: Vec<_> =
        seen[0].left_out().iter().map(|node| (node.at.join("/"), node.remedy.clone())).collect();
    assert_eq!(told[0], ("list/0".to_owned(), "set it with: ostler vault set host:gone".to_owned()));
    assert_eq!(told.last().unwrap(), &("list/2".to_owned(), "correct it".to_owned()));
}

fn replaces(id: &str) -> Module {
    module(
        id,
        apply(|host, _| {
            host.register_vault(
                vault_of(HashMap::from([("host:key".into(), "from the plugin".into())])),
                Some(When::Replace),
            )
        }),
    )
}

#[tokio::test]
async fn a_vault_plugin_comes_first_and_names_no_secret() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let reader = |id: &str| {
        let seen = seen.clone();
        module(
            id,
            apply(move |_, options| {
                seen.lock().unwrap().push(options["key"].as_str().unwrap().to_owned());
                Ok(())
            }),
        )
    };
    let secret = || json!({ "key": { "$secret": "host:key" } }).as_object().unwrap().clone();

    let mut first = Bench::new();
    first.add("vault.js", replaces("vault"));
    first.add("reader.js", reader("reader")).options = secret();
    assert_eq!(first.lines().await, "");
    assert_eq!(*seen.lock().unwrap(), ["from the plugin"]);

    let mut late = Bench::new();
    late.vault.insert("host:key".into(), "from the daemon".into());
    late.add("reader.js", reader("reader")).options = secret();
    late.add("vault.js", replaces("vault"));
    insta::assert_snapshot!(late.lines().await, @"plugin vault sets vault, but plugin reader already named a secret; list vault first in the configuration");
    let loaded = late.load().await;
    let held = loaded.registry.port::<Vault>().unwrap().get.unbounded(("host:key".into(),)).await.unwrap();
    assert_eq!(held.as_deref(), Some("from the daemon"));

    let mut needy = Bench::new();
    needy.vault.insert("host:key".into(), "x".into());
    needy.add("vault.js", replaces("vault")).options = secret();
    insta::assert_snapshot!(needy.lines().await, @"plugin vault skipped: a vault plugin's own options cannot name a secret");
    assert!(!needy.load().await.registry.all::<Port<Vault>>().is_empty());
}

#[tokio::test]
async fn the_daemon_holds_its_own_ports() {
    let mut bench = Bench::new();
    bench.add(
        "vault.js",
        module("vault", apply(|host, _| host.register_vault(vault_of(HashMap::new()), None))),
    );
    insta::assert_snapshot!(bench.lines().await, @"plugin vault sets vault, which the daemon already set; pass 'replace' to take it over");
    let _: Option<Recorder> = None;
}
