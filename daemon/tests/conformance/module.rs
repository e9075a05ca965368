//! What a module exports, and the options `apply` is handed.

use ostler_contract::points::{Tool, ToolSpec, Vault};
use ostler_contract::{Call, Options, Plugin, PluginHost, Thrown, Value, json};
use ostler_loader::{PluginConfig, State};
use ostler_testkit::Builder;

use crate::side::{Both, Side, Talk, builder, lines_of};

const PLUGIN: Both =
    Both { spec: "@conformance/module", native, javascript: "module.mjs", dress: Some(dress) };

both! { PLUGIN:
    a_module_is_applied_once_with_its_options,
    options_written_to_are_the_plugins_own,
    a_module_that_is_off_is_imported_and_not_applied,
    what_is_said_of_problems_is_said_in_apply,
}

fn dress(plugin: Plugin) -> Plugin {
    plugin.title("A module").defaults(json!({ "most": 3, "deep": { "list": [1] } })).options_schema(json!({
        "type": "object",
        "properties": {
            "most": { "type": "integer" },
            "key": { "type": "string", "writeOnly": true },
            "later": { "type": "string", "secretAtUse": true },
            "servers": { "type": "object", "secretAtUse": true },
            "deep": { "type": "object" },
        },
        "required": ["most"],
    }))
}

fn native(host: PluginHost, options: Options) -> Result<(), Thrown> {
    let mut options = (*options).clone();
    host.log(format!("applied with {}", Value::Object(options.clone())))?;
    options["most"] = json!(99);
    options["deep"]["list"] = json!([1, 2]);
    let tool = |name: &str, run| Tool {
        definition: ToolSpec { name: name.into(), ..ToolSpec::default() },
        run,
        ..Tool::default()
    };
    let (seen, late) = (host.clone(), host.clone());
    host.register_tool(tool(
        "seen",
        Call::new(move |_| {
            let (host, options) = (seen.clone(), options.clone());
            async move {
                let secret =
                    host.secret(options["later"]["$secret"].as_str().unwrap().to_owned(), None).await?;
                Ok(json!([options["most"], options["deep"], secret]))
            }
        }),
    ))?;
    host.register_tool(tool(
        "late",
        Call::now(move |_| Ok(late.problem("late".into()).unwrap_err().message.into())),
    ))?;
    let logs = host.clone();
    // The context a native listener is handed has no such member to ask for.
    host.on(
        ostler_contract::events::EventName::TurnEnd,
        Call::now(move |_| logs.log("the context has a problem: false".into())),
    )
}

fn with_vault(builder: Builder) -> Builder {
    builder.plugin(ostler_plugin_echo::plugin(), json!({})).vault(Vault {
        get: Call::now(|(name,): (String,)| Ok(Some(format!("the value of {name}")))),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        ..Vault::default()
    })
}

fn options() -> Value {
    json!({ "key": { "$secret": "host:key" }, "later": { "$secret": "host:later" },
        "servers": { "a": { "token": { "$secret": "team:t/a" }, "args": ["-v"] } } })
}

async fn a_module_is_applied_once_with_its_options(side: Side) {
    let host = side.load(with_vault(builder()), options()).start().await;
    let loaded = &host.loaded[1];
    assert_eq!((loaded.id.as_deref(), loaded.title.as_deref()), (Some("module"), Some("A module")));
    assert_eq!(loaded.schema.as_ref().unwrap()["required"], json!(["most"]));
    let lines = lines_of(&host.log, "module");
    let applied: Vec<Value> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("applied with "))
        .map(|options| serde_json::from_str(options).unwrap())
        .collect();
    let mut handed = options();
    handed["key"] = json!("the value of host:key");
    handed["most"] = json!(3);
    handed["deep"] = json!({ "list": [1] });
    assert_eq!(applied, [handed], "defaults, the secret itself, and the reference as it was written");
    let unfit = side.load(with_vault(builder()), json!({ "most": "many" })).may_fail().start().await;
    assert_eq!(unfit.loaded[1].state, State::Skipped);
    assert!(lines_of(&unfit.log, "module").iter().all(|line| !line.starts_with("applied")));
}

async fn options_written_to_are_the_plugins_own(side: Side) {
    for _ in 0..2 {
        let host = side.load(with_vault(builder()), options()).start().await;
        let seen: Value =
            serde_json::from_str(&Talk::with(&host, "echo").await.tool("seen", json!({})).await).unwrap();
        assert_eq!(seen, json!([99, { "list": [1, 2] }, "the value of host:later"]));
        let lines = lines_of(&host.log, "module");
        assert!(
            lines.iter().any(|line| line.contains(r#""list":[1]"#)),
            "what one load wrote the next does not see: {lines:?}"
        );
    }
}

async fn a_module_that_is_off_is_imported_and_not_applied(side: Side) {
    let host =
        side.load_as(with_vault(builder()), |entry| PluginConfig { enabled: false, ..entry }).start().await;
    let loaded = &host.loaded[1];
    assert_eq!(
        (loaded.id.as_deref(), loaded.state),
        (Some("module"), State::Off),
        "its id is read from the module"
    );
    assert_eq!(loaded.title.as_deref(), Some("A module"));
    assert!(host.registry().all::<Tool>().is_empty());
    assert!(lines_of(&host.log, "module").iter().all(|line| !line.starts_with("applied")));
}

async fn what_is_said_of_problems_is_said_in_apply(side: Side) {
    let host = side.load(with_vault(builder()), options()).start().await;
    let mut talk = Talk::with(&host, "echo").await;
    assert_eq!(talk.tool("late", json!({})).await, "module: nothing may be registered after apply returned");
    host.log.wait_for("plugin module: the context has a problem: false").await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
}
