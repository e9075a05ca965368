//! `registerChatPreamble`: text put before the first turn of each chat a person or tool opens.

use ostler_contract::points::{Preamble, PreambleChat, Tool, ToolChat, ToolContext, ToolSpec};
use ostler_contract::{Call, Frozen, Options, PluginHost, Thrown, Value, json};
use ostler_testkit::MemoryHost;

use crate::side::{Both, Side, Talk, lines_of};

const PLUGIN: Both =
    Both { spec: "@conformance/chat-preamble", native, javascript: "chat-preamble.mjs", dress: None };
const LATER: Both = Both {
    spec: "@conformance/chat-preamble-later",
    native: later,
    javascript: "chat-preamble-later.mjs",
    dress: None,
};

const SECOND: &str = "ahp-chat:/second";

both! { PLUGIN:
    a_preamble_is_told_of_the_chat_a_client_opens,
    answers_stand_in_plugin_order_before_the_first_message,
    a_side_chat_has_it_before_the_text_of_its_turn,
    without_a_message_it_goes_with_the_first_one,
    one_that_throws_is_logged_and_the_chat_opens,
    it_is_asked_for_the_tools_that_open_chats,
    it_is_asked_for_no_other_chat,
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let log = host.clone();
    let preamble =
        |answer: fn() -> Result<Option<String>, Thrown>| -> Preamble { Call::now(move |_| answer()) };
    host.register_chat_preamble(Call::new(move |(about,): (Frozen<PreambleChat>,)| {
        let log = log.clone();
        async move {
            let PreambleChat { session, chat, origin, chats } = about.0.clone();
            let rows: Vec<Value> = chats.iter().map(|row| json!([row.resource, row.title])).collect();
            log.log(json!([session, chat, origin, rows]).to_string())?;
            tokio::task::yield_now().await;
            Ok(Some(format!("first of {chat}")))
        }
    }))?;
    host.register_chat_preamble(preamble(|| Err(Thrown::new("no words"))))?;
    host.register_chat_preamble(preamble(|| Ok(None)))?;
    host.register_chat_preamble(preamble(|| Ok(Some("  ".to_owned()))))?;
    host.register_chat_preamble(preamble(|| Ok(Some("second".to_owned()))))?;
    host.register_tool(Tool {
        definition: ToolSpec { name: "open".into(), ..ToolSpec::default() },
        run: Call::new(|(input, at): (Value, ToolContext)| async move {
            let session = input["session"].as_str().map_or_else(|| at.session.clone(), str::to_owned);
            let prompt = input["prompt"].as_str().unwrap_or_default().to_owned();
            let request = ToolChat { prompt, title: Some("Opened by a tool".to_owned()), model: None };
            Ok(at.create_chat.call((session, request)).await?.into())
        }),
        ..Tool::default()
    })
}

fn later(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_chat_preamble(Call::now(|_| Ok(Some("of a later plugin".to_owned()))))
}

async fn talk(host: &MemoryHost) -> Talk {
    Talk::with(host, "echo").await
}

fn user(text: &str) -> Value {
    json!({ "text": text, "origin": { "kind": "user" } })
}

/// Opens a chat and talks there from now on.
async fn open(talk: &mut Talk, more: Value) {
    let mut params = json!({ "channel": talk.session, "chat": SECOND });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    talk.chat = params["chat"].as_str().unwrap().to_owned();
    talk.client.request("createChat", params).await.unwrap();
}

/// What a chat's first turn said, once it is over, and the turn.
async fn first_turn(host: &MemoryHost, chat: &str) -> (String, Value) {
    // Somebody else, so that nobody else's frames are in the way.
    let mut client = host.raw();
    client.initialize("watcher").await;
    loop {
        let state = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let turn = state["snapshot"]["state"]["turns"][0].clone();
        if !turn.is_null() {
            return (turn["responseParts"][0]["content"].as_str().unwrap_or_default().to_owned(), turn);
        }
        tokio::task::yield_now().await;
    }
}

/// The chats the first preamble was asked for.
fn asked(host: &MemoryHost) -> Vec<Value> {
    let lines = lines_of(&host.log, "chat-preamble");
    let told = lines.iter().filter(|line| line.starts_with('['));
    told.map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn a_preamble_is_told_of_the_chat_a_client_opens(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = talk(&host).await;
    let first = talk.chat.clone();
    talk.say("Hay?").await;
    open(&mut talk, json!({})).await;
    assert_eq!(asked(&host), [json!(["echo:/talk", SECOND, { "kind": "user" }, [[first, "Hay?"]]])]);
    let session = talk.client.request("subscribe", json!({ "channel": "echo:/talk" })).await.unwrap();
    assert_eq!(session["snapshot"]["state"]["chats"][1]["resource"], SECOND, "what it was handed was a copy");
}

async fn answers_stand_in_plugin_order_before_the_first_message(side: Side) {
    let host = side.other(LATER).load(side.host_with_echo(), json!({})).start().await;
    let mut talk = talk(&host).await;
    open(&mut talk, json!({ "initialMessage": user("/heard Oats?") })).await;
    let (said, turn) = first_turn(&host, SECOND).await;
    assert_eq!(said, format!("first of {SECOND}\n\nsecond\n\nof a later plugin\n\nOats?"));
    assert_eq!(turn["message"]["text"], "/heard Oats?", "hidden: the message is the person's own");
    // The first turn's alone.
    talk.client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    assert_eq!(talk.say("/heard again").await, "again");
}

async fn a_side_chat_has_it_before_the_text_of_its_turn(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = talk(&host).await;
    let first = talk.chat.clone();
    talk.say("Hay?").await;
    let source = json!({ "kind": "sideChat", "chat": first, "turnId": "t1" });
    open(&mut talk, json!({ "source": source, "initialMessage": user("/heard Why?") })).await;
    let (said, _) = first_turn(&host, SECOND).await;
    assert!(said.starts_with(&format!("first of {SECOND}\n\nsecond\n\n")), "{said}");
    assert!(said.ends_with("Person: Hay?\n\nAgent: Hay?\n\nWhy?"), "{said}");
    assert_eq!(asked(&host)[0][2], json!({ "kind": "sideChat", "chat": first, "turnId": "t1" }));
}

async fn without_a_message_it_goes_with_the_first_one(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = talk(&host).await;
    open(&mut talk, json!({})).await;
    let state = talk.client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    let state = &state["snapshot"]["state"];
    assert_eq!((&state["turns"], &state["activeTurn"]), (&json!([]), &Value::Null), "no turn runs");
    assert_eq!(talk.say("/heard Oats?").await, format!("first of {SECOND}\n\nsecond\n\nOats?"));
    assert_eq!(talk.say("/heard again").await, "again");
}

async fn one_that_throws_is_logged_and_the_chat_opens(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = talk(&host).await;
    open(&mut talk, json!({ "initialMessage": user("/heard Oats?") })).await;
    let line = host.log.wait_for("no words").await;
    assert!(line.starts_with(&format!("plugin chat-preamble: its preamble of {SECOND} failed: ")), "{line}");
    assert_eq!(first_turn(&host, SECOND).await.0, format!("first of {SECOND}\n\nsecond\n\nOats?"));
}

async fn it_is_asked_for_the_tools_that_open_chats(side: Side) {
    let host = side.host_with_echo().session_tools().start().await;
    let mut talk = talk(&host).await;
    let first = talk.chat.clone();
    let said = talk.tool("createChat", json!({ "prompt": "/heard Oats?", "title": "Oats" })).await;
    let id = said
        .strip_prefix("Chat created (agent-host-session://echo/talk?chat=")
        .unwrap_or_else(|| panic!("{said}"));
    let chat = format!("ahp-chat:/{}", id.strip_suffix(").").unwrap());
    assert_eq!(first_turn(&host, &chat).await.0, format!("first of {chat}\n\nsecond\n\nOats?"));
    let origin = json!({ "kind": "tool", "chat": first, "toolCallId": "t1-call" });
    assert_eq!((&asked(&host)[0][1], &asked(&host)[0][2]), (&json!(chat), &origin));
    let state = talk.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    assert_eq!(state["snapshot"]["state"]["title"], "Oats");
    assert_eq!(state["snapshot"]["state"]["turns"][0]["message"]["origin"]["kind"], "agent");

    let opened = talk.tool("open", json!({ "prompt": "/heard Hay?" })).await;
    assert_eq!(first_turn(&host, &opened).await.0, format!("first of {opened}\n\nsecond\n\nHay?"));
    for (input, why) in [
        (json!({}), "Invalid createChat input: missing field `prompt`"),
        (json!({ "prompt": "  " }), "prompt is blank; say what the chat is to begin with"),
        (json!({ "prompt": "x", "session": "echo:/none" }), "No agent for session echo:/none"),
    ] {
        assert_eq!(talk.tool("createChat", input).await, why);
    }
}

async fn it_is_asked_for_no_other_chat(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = talk(&host).await;
    talk.say("first").await;
    let fork = json!({ "kind": "fork", "chat": talk.chat, "turnId": "t1" });
    let first = talk.chat.clone();
    open(&mut talk, json!({ "source": fork, "initialMessage": user("/heard forked") })).await;
    first_turn(&host, SECOND).await;
    talk.chat = first;
    assert_eq!(talk.say("/worker dig").await, "The worker is done.");
    // Nothing opens a chat for a changeset, whatever comes of asking for one.
    let changeset = format!("{}/changeset/session", talk.session);
    let _ = talk.client.request("subscribe", json!({ "channel": changeset })).await;
    let _ = talk
        .client
        .request("invokeChangesetOperation", json!({ "channel": changeset, "operationId": "commit" }))
        .await;
    let chats = talk.client.request("subscribe", json!({ "channel": talk.session })).await.unwrap();
    let origins: Vec<&str> = chats["snapshot"]["state"]["chats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chat| chat["origin"]["kind"].as_str().unwrap_or("first"))
        .collect();
    assert_eq!(origins, ["first", "fork", "tool"], "a first chat, a fork and a worker's");
    assert_eq!(asked(&host), [""; 0], "and nobody was asked for any of them");
    let forked = talk.client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    assert!(!forked.to_string().contains("second\\n"), "{forked}");
}
