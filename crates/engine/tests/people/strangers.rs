//! Whatever a stranger sends, a connection answers each request once and the host goes on.

use std::collections::HashMap;

use ostler_contract::{Value, json};
use ostler_protocol::Message;
use ostler_testkit::{MemoryHost, RawClient};
use proptest::prelude::*;
use proptest::sample::select;

/// Commands whose params decide much, and one nobody serves.
const METHODS: [&str; 35] = [
    "ping",
    "initialize",
    "reconnect",
    "authenticate",
    "subscribe",
    "listSessions",
    "createSession",
    "disposeSession",
    "createChat",
    "disposeChat",
    "moveChat",
    "fetchTurns",
    "completions",
    "resolveSessionConfig",
    "sessionConfigCompletions",
    "createTerminal",
    "disposeTerminal",
    "invokeChangesetOperation",
    "listAutomationTriggerDefinitions",
    "runAutomation",
    "fetchAutomationRuns",
    "x-ostler/runs/list",
    "resourceRead",
    "resourceList",
    "resourceResolve",
    "resourceWrite",
    "resourceMkdir",
    "resourceDelete",
    "resourceMove",
    "resourceCopy",
    "resourceRequest",
    "createResourceWatch",
    "dispatchAction",
    "unsubscribe",
    "x-nobody/asks",
];

const FIELDS: [&str; 30] = [
    "channel",
    "clientId",
    "protocolVersions",
    "lastSeenServerSeq",
    "subscriptions",
    "initialSubscriptions",
    "provider",
    "config",
    "workingDirectories",
    "activeClient",
    "progressToken",
    "limit",
    "cursor",
    "uri",
    "source",
    "destination",
    "data",
    "encoding",
    "recursive",
    "automation",
    "requestId",
    "chat",
    "clientSeq",
    "action",
    "delivery",
    "view",
    "kind",
    "text",
    "offset",
    "resource",
];

const ACTIONS: [&str; 26] = [
    "chat/turnStarted",
    "chat/turnCancelled",
    "chat/turnResume",
    "chat/truncated",
    "chat/draftChanged",
    "chat/pendingMessageSet",
    "chat/pendingMessageRemoved",
    "chat/queuedMessagesReordered",
    "chat/toolCallConfirmed",
    "chat/toolCallComplete",
    "chat/toolCallResultConfirmed",
    "chat/inputAnswerChanged",
    "chat/inputCompleted",
    "chat/workingDirectorySet",
    "session/titleChanged",
    "session/isReadChanged",
    "session/isArchivedChanged",
    "session/activeClientSet",
    "session/activeClientRemoved",
    "session/configChanged",
    "session/workingDirectoryReplaced",
    "session/customizationToggled",
    "root/configChanged",
    "automation/createRequested",
    "automation/removed",
    "automationRun/cancelRequested",
];

/// URIs: real ones, near ones, and none at all.
fn uri() -> impl Strategy<Value = String> {
    let known = select(vec![
        "ahp-root://",
        "ahp-root:",
        "ahp-automations://",
        "ahp-automations://catalog",
        "echo:/one",
        "ahp-session:/one",
        "echo:/one/changeset/session",
        "echo:/one/changeset/compare/a/b",
        "echo:/one/annotations",
        "ahp-chat:/one",
        "ahp-chat://default/ZWNobzovb25l",
        "ahp-chat://default/%%%",
        "ahp-chat://subagent/ZWNobzovb25l/call",
        "ahp-terminal:/1",
        "agenthost-terminal:/1",
        "ahp-automation:/a",
        "ahp-automation-run:/a",
        "ahp-resource-watch:/w",
        "ahp-otlp://logs/info",
        "mcp://x",
        "x-notes://all",
        "file:///etc/../tmp",
        "file://elsewhere/tmp",
        "://",
        ":",
        "",
    ])
    .prop_map(str::to_owned);
    prop_oneof![
        4 => known.clone(),
        2 => (known, "[-/:%?#.a-zA-Z0-9\u{e4}\u{1F40E} ]{0,12}", any::<prop::sample::Index>()).prop_map(|(uri, more, at)| {
            let at = at.index(uri.len() + 1);
            format!("{}{more}{}", &uri[..at], &uri[at..])
        }),
        1 => "[a-z-]{0,12}:/{0,3}[^\u{0}]{0,20}",
        1 => ".{0,30}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec![0_i64, -1, 1]).prop_map(Value::from),
        uri().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        select(vec!["1.0.0", "0.9.0", "echo", "one", "queued", "accept", "user"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let action = (select(ACTIONS.to_vec()), prop::collection::vec((field(), inner.clone()), 0..4))
            .prop_map(|(name, fields)| {
                let mut action: serde_json::Map<String, Value> = fields.into_iter().collect();
                action.insert("type".to_owned(), name.into());
                Value::Object(action)
            });
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((field(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            action,
        ]
    })
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => select(FIELDS.to_vec()).prop_map(str::to_owned),
        4 => select(vec!["turnId", "startedAt", "message", "title", "isRead", "id", "items", "origin", "state"]).prop_map(str::to_owned),
        1 => ".{0,8}",
    ]
}

/// Params that would do, to be changed in one place.
fn good(method: &str) -> Value {
    match method {
        "initialize" => json!({ "channel": "ahp-root://", "clientId": "s", "protocolVersions": ["1.0.0"] }),
        "reconnect" => {
            json!({ "channel": "ahp-root://", "clientId": "s", "lastSeenServerSeq": 0, "subscriptions": ["echo:/one"] })
        }
        "subscribe" | "unsubscribe" | "disposeSession" | "fetchTurns" => json!({ "channel": "echo:/one" }),
        "createSession" => {
            json!({ "channel": "echo:/two", "provider": "echo", "config": {}, "activeClient": { "clientId": "s", "tools": [] } })
        }
        "runAutomation" => {
            json!({ "channel": "ahp-automations://", "automation": "ahp-automation:/a", "requestId": "r" })
        }
        "dispatchAction" => {
            json!({ "channel": "ahp-chat:/one", "clientSeq": 1, "action": { "type": "chat/turnStarted", "turnId": "t", "startedAt": "2026-01-01T00:00:00Z", "message": { "text": "x", "origin": { "kind": "user" } } } })
        }
        "resourceMove" | "resourceCopy" => {
            json!({ "channel": "ahp-root://", "source": "file:///nowhere/a", "destination": "file:///nowhere/b" })
        }
        _ => json!({ "channel": "ahp-root://", "uri": "nowhere://a" }),
    }
}

/// A message with an id or without one.
fn frame() -> impl Strategy<Value = Value> {
    let method = prop_oneof![
        6 => select(METHODS.to_vec()).prop_map(str::to_owned),
        1 => ".{0,12}",
    ];
    let changed = (method.clone(), field(), value()).prop_map(|(method, name, value)| {
        let mut params = good(&method);
        params[name] = value;
        (method, Some(params))
    });
    let made = (method.clone(), prop::collection::vec((field(), value()), 0..5))
        .prop_map(|(method, fields)| (method, Some(Value::Object(fields.into_iter().collect()))));
    let odd = (method, prop::option::of(value()));
    let id = prop_oneof![Just(None), Just(Some(()))];
    (prop_oneof![4 => changed, 3 => made, 1 => odd], id).prop_map(|((method, params), id)| {
        let mut frame = json!({ "jsonrpc": "2.0", "method": method });
        if let Some(params) = params {
            frame["params"] = params;
        }
        if id.is_some() {
            frame["id"] = Value::Null;
        }
        frame
    })
}

/// Bytes of a frame that are not as they were.
fn garbled() -> impl Strategy<Value = String> {
    let cut = (frame(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), ".{0,4}");
    prop_oneof![
        3 => cut.prop_map(|(frame, from, to, put)| {
            let text: Vec<char> = frame.to_string().chars().collect();
            let (from, to) = (from.index(text.len()), to.index(text.len()));
            let (from, to) = (from.min(to), (from.max(to)).min(from.min(to) + 6));
            text[..from].iter().copied().chain(put.chars()).chain(text[to..].iter().copied()).collect()
        }),
        1 => ".{0,60}",
        1 => value().prop_map(|value| value.to_string()),
    ]
}

#[derive(Debug, Clone)]
enum Said {
    Frame(Value),
    Garbled(String),
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![3 => frame().prop_map(Said::Frame), 1 => garbled().prop_map(Said::Garbled)]
}

/// Every answer so far, by id, until this one is there; the connection may end before.
async fn answers_until(client: &mut RawClient, last: &Value) -> (HashMap<String, usize>, bool) {
    let mut answers = HashMap::new();
    loop {
        let Some(frame) = client.next_frame().await else { return (answers, false) };
        let Some(id) = frame.get("id").filter(|_| frame.get("method").is_none()) else { continue };
        assert!(frame.get("result").is_some() != frame.get("error").is_some(), "{frame}");
        *answers.entry(id.to_string()).or_default() += 1;
        if id == last {
            return (answers, true);
        }
    }
}

async fn play(said: Vec<Said>, introduced: bool) {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut maker = host.raw();
    maker.initialize("maker").await;
    maker.request("createSession", json!({ "channel": "echo:/one" })).await.unwrap();
    let mut stranger = host.raw();
    if introduced {
        stranger.initialize("s").await;
    }
    let mut wanted = Vec::new();
    for (at, said) in said.into_iter().enumerate() {
        match said {
            Said::Frame(mut frame) => {
                if frame.get("id").is_some() {
                    let id = format!("asked-{at}");
                    frame["id"] = json!(id);
                    wanted.push(json!(id).to_string());
                }
                stranger.send(&frame.to_string()).await;
            }
            Said::Garbled(text) => stranger.send(&text).await,
        }
    }
    // What takes long has the time it takes.
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    stranger.send(r#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#).await;
    let (answers, open) = answers_until(&mut stranger, &json!("last")).await;
    for id in &wanted {
        // A connection the host has closed is told nothing more; what it was told, it was told once.
        let count = answers.get(id).copied().unwrap_or_default();
        assert!(count == 1 || !open && count == 0, "{id} was answered {count} times");
    }
    // Whatever became of the stranger, others go on.
    assert_eq!(maker.request("ping", json!({})).await, Ok(Value::Null));
    maker.request("createSession", json!({ "channel": "echo:/after-all" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/after-all");
    maker.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "still here" } });
    maker.dispatch(&chat, 1, turn).await;
    maker.actions_until("chat/turnComplete").await;
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered_once(said in prop::collection::vec(said(), 1..24), introduced in any::<bool>()) {
        paused().block_on(play(said, introduced));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// A URI is a channel or a resource, or it is none, and then that is what is said.
    #[test]
    fn any_uri_is_answered(uri in uri(), other in uri()) {
        paused().block_on(async {
            let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
            let mut client = host.raw();
            client.initialize("c").await;
            for (method, params) in [
                ("subscribe", json!({ "channel": uri })),
                ("resourceRead", json!({ "uri": uri })),
                ("resourceList", json!({ "uri": uri })),
                ("resourceCopy", json!({ "source": uri, "destination": other })),
                ("createResourceWatch", json!({ "uri": uri })),
                ("createSession", json!({ "channel": uri })),
                ("disposeSession", json!({ "channel": uri })),
                ("fetchTurns", json!({ "channel": uri })),
            ] {
                if let Err(error) = client.request(method, params).await {
                    let code = error["code"].as_i64().unwrap();
                    assert!(CODES.contains(&code), "{method} {uri:?}: {error}");
                    assert!(error["message"].as_str().is_some_and(|says| !says.is_empty()), "{error}");
                }
            }
        });
    }

    #[test]
    fn no_text_is_more_than_a_bad_frame(text in garbled()) {
        if let Err(bad) = Message::parse(&text) {
            assert!(matches!(bad.error.code, -32700 | -32600), "{text:?}: {:?}", bad.error);
        }
    }
}

/// What a command may be refused with. An internal error is none of them.
const CODES: [i64; 7] = [-32601, -32602, -32001, -32002, -32003, -32008, -32009];
