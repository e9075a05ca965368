//! `registerTool`: a tool of the host's, offered to every session's model.

use ostler_contract::points::{Tool, ToolContext, ToolEffects, ToolSession, ToolSpec};
use ostler_contract::{Call, Options, PluginHost, Thrown, Value, json};

use crate::side::{Both, Side, Talk, object};

const PLUGIN: Both = Both { spec: "@conformance/tool", native, javascript: "tool.mjs", dress: None };

both! { PLUGIN:
    a_tool_is_recorded_as_it_says_it_is,
    a_tool_runs_where_it_was_called,
    a_tool_that_returns_nothing_tells_the_model_nothing,
    what_a_tool_throws_is_what_the_model_is_told,
    an_advanced_tool_waits_for_the_operators_leave,
    a_tool_sees_turns_it_cannot_change,
    a_tool_acts_on_its_host,
}

fn tool(name: &str, run: Call<fn(Value, ToolContext) -> Value>) -> Tool {
    Tool { definition: ToolSpec { name: name.into(), ..ToolSpec::default() }, run, ..Tool::default() }
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_tool(Tool {
        definition: ToolSpec {
            name: "where".into(),
            title: Some("Where".into()),
            description: Some("Says where it runs.".into()),
            input_schema: Some(object(
                json!({ "type": "object", "properties": { "loud": { "type": "boolean" } } }),
            )),
            ..ToolSpec::default()
        },
        effects: Some(ToolEffects { reads: Some(true), network: Some(false), ..ToolEffects::default() }),
        run: Call::new(|(input, at): (Value, ToolContext)| async move {
            let turn = at.turn.call(()).await?;
            let said = [Some(at.session), Some(at.chat), at.provider, turn].map(Option::unwrap);
            Ok(match input["loud"] == true {
                true => said.join(" ").to_uppercase().into(),
                false => json!(said),
            })
        }),
        ..Tool::default()
    })?;
    host.register_tool(tool("plain", Call::now(|_| Ok("plain".into()))))?;
    host.register_tool(tool("silent", Call::now(|_| Ok(Value::Null))))?;
    host.register_tool(tool("fails", Call::now(|_| Err(Thrown::new("it has no hands")))))?;
    host.register_tool(Tool {
        advanced_permission: Some(true),
        ..tool("advanced", Call::now(|_| Ok("let through".into())))
    })?;
    host.register_tool(tool(
        "look",
        Call::new(|(_, at): (Value, ToolContext)| async move {
            let mut turns = at.context.call((at.session.clone(), None)).await?.0;
            let said: Vec<String> = turns.iter().map(|turn| turn.message.text.clone()).collect();
            turns[0].message.text = "forged".into();
            let chats = at.chats.call((at.session.clone(),)).await?;
            Ok(json!([said, at.sessions.call(()).await?.len(), chats[0].resource == at.chat]))
        }),
    ))?;
    host.register_tool(tool(
        "act",
        Call::new(|(input, at): (Value, ToolContext)| async move {
            at.rename.call((at.session.clone(), "Renamed".into())).await?;
            let made =
                ToolSession { prompt: "hello".into(), title: Some("Made".into()), ..ToolSession::default() };
            let made = at.create.call((made,)).await?;
            let removed = at.remove.call((at.session.clone(),)).await.unwrap_err().message;
            at.remove.call((made,)).await?;
            let sent = at.send.call((at.session.clone(), None, "later".into())).await?;
            let uri = input["uri"].as_str().unwrap().to_owned();
            let read = at.read.call((uri,)).await.unwrap_or_else(|thrown| thrown.message);
            Ok(json!([removed, sent, read]))
        }),
    ))
}

async fn a_tool_is_recorded_as_it_says_it_is(side: Side) {
    let host = side.host_with_echo().start().await;
    let tools = host.registry().all::<Tool>();
    let said = &tools[0].definition;
    assert_eq!((&*said.name, said.title.as_deref()), ("where", Some("Where")));
    assert_eq!(said.description.as_deref(), Some("Says where it runs."));
    assert_eq!(said.input_schema.as_ref().unwrap()["properties"]["loud"]["type"], "boolean");
    let effects = tools[0].effects.unwrap();
    assert_eq!((effects.reads, effects.network), (Some(true), Some(false)));
    assert_eq!(
        (effects.writes, effects.destructive),
        (None, None),
        "nothing is set that the tool does not say"
    );
    assert_eq!((tools[1].effects, tools[1].advanced_permission), (None, None));
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.definition.name).collect();
    assert_eq!(
        names,
        ["where", "plain", "silent", "fails", "advanced", "look", "act"],
        "in the order they were registered"
    );
}

async fn a_tool_runs_where_it_was_called(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    let chat = talk.chat.clone();
    let said = talk.tool("where", json!({})).await;
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!(["echo:/talk", chat, "echo", "t1"]));
    assert_eq!(
        talk.tool("where", json!({ "loud": true })).await,
        format!("ECHO:/TALK {} ECHO T2", chat.to_uppercase())
    );
    assert_eq!(talk.tool("plain", json!({})).await, "plain");
}

async fn a_tool_that_returns_nothing_tells_the_model_nothing(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    talk.begin("/tool silent {}").await;
    let seen = talk.client.actions_until("chat/toolCallComplete").await;
    let result = &seen.last().unwrap()["action"]["result"];
    assert_eq!(result["success"], true);
    assert_eq!(result["content"], json!([{ "type": "text", "text": "" }]));
    talk.client.actions_until("chat/turnComplete").await;
    assert_eq!(talk.tool("silent", json!({})).await, "");
}

async fn what_a_tool_throws_is_what_the_model_is_told(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    talk.begin("/tool fails {}").await;
    let seen = talk.client.actions_until("chat/toolCallComplete").await;
    let result = &seen.last().unwrap()["action"]["result"];
    assert_eq!((&result["success"], &result["error"]["message"]), (&json!(false), &json!("it has no hands")));
    talk.client.actions_until("chat/turnComplete").await;
    assert_eq!(talk.tool("plain", json!({})).await, "plain", "the tools beside it are none the worse");
}

async fn an_advanced_tool_waits_for_the_operators_leave(side: Side) {
    let host = side.host_with_echo().start().await;
    assert_eq!(
        Talk::with(&host, "echo").await.tool("advanced", json!({})).await,
        "there is no tool advanced"
    );
    let host = side.host_with_echo().options(|options| options.advanced_tools = true).start().await;
    assert_eq!(Talk::with(&host, "echo").await.tool("advanced", json!({})).await, "let through");
}

async fn a_tool_sees_turns_it_cannot_change(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    talk.say("first").await;
    let look: Value = serde_json::from_str(&talk.tool("look", json!({})).await).unwrap();
    assert_eq!(look, json!([["first"], 1, true]));
    let chat = talk.chat.clone();
    let state = talk.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    assert_eq!(state["snapshot"]["state"]["turns"][0]["message"]["text"], "first");
}

async fn a_tool_acts_on_its_host(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    let said: Value = serde_json::from_str(&talk.tool("act", json!({ "uri": "nobody://x" })).await).unwrap();
    assert_eq!(said, json!(["a session cannot remove itself", "queued", "nothing here serves nobody:"]));
    let listed = talk.client.request("listSessions", json!({})).await.unwrap();
    let titles: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|row| row["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["Renamed"]);
}

#[tokio::test]
async fn nothing_that_comes_with_the_host_asks_for_the_operators_leave() {
    // The stores of a database need one, and give no tools.
    let has_tools =
        |plugin: &ostler_contract::Plugin| plugin.spec != "@ostler/postgres" && plugin.left_out.is_none();
    let plugins = ostler::bundled::plugins().into_iter().filter(has_tools);
    let builder = plugins
        .fold(crate::side::builder().session_tools(), |builder, plugin| builder.plugin(plugin, json!({})));
    let host = builder.records(ostler_ports::memory_records()).start().await;
    let advanced: Vec<_> =
        host.registry().all::<Tool>().iter().filter(|tool| tool.advanced_permission == Some(true)).collect();
    assert!(advanced.is_empty(), "{advanced:?}");
    assert!(!host.registry().all::<Tool>().is_empty());
}
