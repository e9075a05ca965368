//! No plugin call blocks others: ports, backends and listeners that never answer hold up only what waits for them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::points::{
    Agent, AgentSession, AutomationStore, Emit, Policies, SessionStore, Start, Tool, ToolSpec, Usage,
    UsageTotal,
};
use ostler_contract::{Call, Frozen, JsonObject, Options, Pending, PluginHost, Thrown, Value, json, limit};
use ostler_engine::users::UsersFile;
use ostler_engine::{People, Principal};
use ostler_testkit::cases::{empty_automations, empty_sessions};
use ostler_testkit::{Builder, MemoryHost, RawClient, SIGN_IN};

use crate::side::{Both, Side, action, builder, object};

const PLUGIN: Both = Both { spec: "@conformance/lanes", native, javascript: "lanes.mjs", dress: None };

both! { PLUGIN:
    policies_that_never_answer,
    an_automation_store_that_never_answers,
    a_session_store_that_never_answers,
    a_usage_store_that_never_answers,
    a_backend_that_never_steers_or_closes,
    a_cancel_takes_effect_in_a_flood,
    a_listener_that_awaits_its_own_requests,
}

/// Longer than anything here may take.
const LONG: Duration = Duration::from_secs(60);
const SESSION: &str = "lanes:/1";

/// Answers, or never once there is a file that says so.
#[derive(Clone)]
struct Unless(PluginHost);

impl Unless {
    fn call<A: Send + 'static, T: Clone + Send + Sync + 'static>(
        &self,
        what: &'static str,
        answer: T,
    ) -> impl Fn(A) -> Pending<T> + Send + Sync + 'static {
        let host = self.0.clone();
        move |_| {
            if !Path::new(&*host.facts().config_dir).join("stuck").exists() {
                return Box::pin(std::future::ready(Ok(answer.clone())));
            }
            host.log(format!("stuck in {what}")).unwrap();
            Box::pin(std::future::pending())
        }
    }
}

fn native(host: PluginHost, options: Options) -> Result<(), Thrown> {
    let unless = Unless(host.clone());
    host.register_agent(agent(host.clone()))?;
    match options["port"].as_str().unwrap() {
        "policies" => {
            let allow = json!({ "id": "yes", "scope": "all", "kind": "agent", "effect": "allow" });
            let policies = Policies {
                list: Call::new(unless.call("list", vec![object(allow)])),
                get: Call::now(|_| Ok(None)),
                put: Call::now(|_| Ok(())),
                remove: Call::now(|_| Ok(false)),
                close: None,
            };
            host.register_policies(policies, None)
        }
        "automations" => {
            let never = unless.call("create", ());
            let store = AutomationStore {
                triggers: Call::new(unless.call("triggers", Vec::new())),
                create: Call::new(move |arguments| {
                    let never = never(arguments);
                    async move {
                        never.await?;
                        Err("none".into())
                    }
                }),
                ..empty_automations()
            };
            host.register_automations(store, None)
        }
        "sessions" => {
            let store = SessionStore {
                session: Some(Call::new(unless.call("session", None))),
                page: Some(Call::now(|_| Ok(Vec::new()))),
                session_of_chat: Some(Call::now(|_| Ok(None))),
                drafts: Some(Call::now(|()| Ok(Vec::new()))),
                // More than there are, so that the store is asked.
                count: Some(Call::now(|()| Ok(100))),
                turns: Some(Call::now(|_| Ok(Vec::new()))),
                set_turn: Some(Call::new(unless.call("setTurn", ()))),
                drop_turns: Some(Call::now(|_| Ok(()))),
                ..empty_sessions()
            };
            host.register_sessions(store, None)
        }
        "usage" => {
            let usage = Usage {
                record: Call::new(unless.call("record", ())),
                total: Call::new(unless.call("total", UsageTotal::default())),
                pools: Call::now(|()| Ok(Vec::new())),
                records: Call::now(|_| Ok(Vec::new())),
                close: None,
            };
            host.register_usage(usage, None)
        }
        "listener" => {
            let hears = host.clone();
            host.register_tool(Tool {
                definition: ToolSpec { name: "hear".into(), ..ToolSpec::default() },
                run: Call::new(move |_| hear(hears.clone())),
                ..Tool::default()
            })
        }
        _ => Ok(()),
    }
}

/// A backend that takes no message in, does not close, and floods its host when it is asked to.
fn agent(host: PluginHost) -> Agent {
    Agent {
        provider: "lanes".into(),
        display_name: "Lanes".into(),
        schema: Call::now(|()| Ok(json!({ "properties": {} }))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        create: Call::now(move |(start,): (Frozen<Start>,)| {
            let (emit, is_cancelled) = (start.0.emit.clone(), Arc::new(AtomicBool::new(false)));
            let (cancels, steers, closes, cancelled) =
                (host.clone(), host.clone(), host.clone(), is_cancelled.clone());
            Ok(AgentSession {
                begin: Call::new(move |(turn, text, ..): (String, String, _, _, _)| {
                    let (emit, is_cancelled) = (emit.clone(), is_cancelled.clone());
                    async move {
                        let say = |what: Value| emit.call((Emit::Chat, action(what)?));
                        is_cancelled.store(false, Ordering::SeqCst);
                        let part = json!({ "kind": "markdown", "id": turn, "content": "" });
                        say(json!({ "type": "chat/responsePart", "turnId": turn, "part": part }))?;
                        let word = json!({ "type": "chat/delta", "turnId": turn, "partId": turn, "content": "neigh " });
                        while text == "flood" && !is_cancelled.load(Ordering::SeqCst) {
                            // Until as many wait as may.
                            let _ = (0..1000).try_for_each(|_| say(word.clone()));
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        if text == "use" {
                            let usage = json!({ "inputTokens": 5, "outputTokens": 7, "model": "oats" });
                            say(json!({ "type": "chat/usage", "turnId": turn, "usage": usage }))?;
                            say(json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 }))?;
                        }
                        Ok(())
                    }
                }),
                cancel: Call::now(move |(turn,): (String,)| {
                    cancelled.store(true, Ordering::SeqCst);
                    cancels.log(format!("cancelled {turn}"))
                }),
                steer: Some(Call::new(move |_| {
                    steers.log("stuck in steer".into()).unwrap();
                    std::future::pending()
                })),
                close: Call::new(move |_| {
                    closes.log("stuck in close".into()).unwrap();
                    std::future::pending()
                }),
                ..AgentSession::default()
            })
        }),
        ..Agent::default()
    }
}

/// Listens on a connection of its own, and awaits requests on it in the listener.
async fn hear(host: PluginHost) -> Result<Value, Thrown> {
    let peer = host.connect()?;
    let heard: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
    let (opened, ready) = tokio::sync::watch::channel(false);
    let (done, all) = tokio::sync::oneshot::channel();
    let done = Arc::new(Mutex::new(Some(done)));
    let (asking, hears) = (peer.clone(), heard.clone());
    peer.on_message.call((Call::new(move |(message,): (Value,)| {
        let (asking, hears, done, mut ready) = (asking.clone(), hears.clone(), done.clone(), ready.clone());
        async move {
            let listed = asking.request.call(("listSessions".into(), None)).await?;
            ready.wait_for(|open| *open).await.unwrap();
            let said = message["params"]["action"]["type"].as_str().or_else(|| message["method"].as_str());
            let said = said.unwrap_or_default().to_owned();
            let ended = said == "chat/turnComplete";
            let some = !listed["items"].as_array().unwrap().is_empty();
            hears.lock().unwrap().push((said, some));
            if ended && let Some(done) = done.lock().unwrap().take() {
                let _ = done.send(());
            }
            Ok(())
        }
    }),))?;
    let ask = |method: &str, params: Value| peer.request.call((method.to_owned(), Some(object(params))));
    let hello = json!({ "channel": "ahp-root://", "clientId": "peer", "protocolVersions": ["1.0.0"] });
    ask("initialize", hello).await?;
    ask("subscribe", json!({ "channel": "ahp-root://" })).await?;
    ask("createSession", json!({ "channel": "lanes:/heard", "provider": "lanes" })).await?;
    let session = ask("subscribe", json!({ "channel": "lanes:/heard" })).await?;
    let chat = session["snapshot"]["state"]["chats"][0]["resource"].clone();
    ask("subscribe", json!({ "channel": chat })).await?;
    let begin = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "use" } });
    let params = object(json!({ "channel": chat, "clientSeq": 1, "action": begin }));
    peer.notify.call(("dispatchAction".into(), Some(params)))?;
    let listed = ask("listSessions", json!({})).await?;
    opened.send(true).unwrap();
    all.await.unwrap();
    peer.close.call(())?;
    let heard = heard.lock().unwrap().clone();
    Ok(json!([
        !listed["items"].as_array().unwrap().is_empty(),
        heard.iter().any(|(said, _)| said == "chat/turnStarted"),
        heard.iter().any(|(_, some)| !some),
    ]))
}

/// A host whose plugin is stuck when the test says so.
struct Stuck {
    host: MemoryHost,
    dir: tempfile::TempDir,
}

impl Stuck {
    async fn start(side: Side, port: &str, change: impl FnOnce(Builder) -> Builder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let builder = side.load(change(builder()), json!({ "port": port })).folder(dir.path());
        let host = builder.start().await;
        assert!(host.problems.is_empty(), "{:?}", host.problems);
        Self { host, dir }
    }

    fn is_stuck(&self) {
        std::fs::write(self.dir.path().join("stuck"), "").unwrap();
    }

    async fn reached(&self, what: &str) {
        self.host.log.wait_for(&format!("stuck in {what}")).await;
    }

    async fn client(&self, name: &str) -> RawClient {
        let mut client = self.host.raw();
        client.initialize(name).await;
        client
    }

    /// A client that watches a chat of a session.
    async fn with_session(&self) -> RawClient {
        let mut client = self.client("c").await;
        client.request("createSession", json!({ "channel": SESSION, "provider": "lanes" })).await.unwrap();
        client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        client
    }
}

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

fn begin(turn: &str, text: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } })
}

fn cancel(turn: &str) -> Value {
    json!({ "type": "chat/turnCancelled", "turnId": turn })
}

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": { "text": text, "origin": { "kind": "user" } } })
}

/// Asks for something that will not be answered for a while.
async fn ask_slow(client: &RawClient, method: &str, params: Value) {
    let frame = json!({ "jsonrpc": "2.0", "id": "slow", "method": method, "params": params });
    client.send(&frame.to_string()).await;
}

/// What came back of an action.
async fn echo_of(client: &mut RawClient, seq: i64) -> Value {
    loop {
        let mut frame = client.next_frame().await.unwrap();
        assert_ne!(frame["id"], "slow", "it was to be slow: {frame}");
        if frame["params"]["origin"]["clientSeq"] == seq {
            return frame["params"].take();
        }
    }
}

async fn not_answered(client: &mut RawClient) {
    let frames = client.ready_frames().await;
    assert!(frames.iter().all(|frame| frame["id"] != "slow"), "it was to be slow: {frames:?}");
}

async fn in_time(case: impl Future<Output = ()>) {
    tokio::time::timeout(LONG, case).await.expect("nothing waits for what never answers");
}

async fn policies_that_never_answer(side: Side) {
    in_time(async {
        let people = People::new(SIGN_IN, "inn");
        let file = json!({
            "roles": { "keeper": ["session:*"] },
            "users": [{ "id": "ada", "roles": ["admin"] }, { "id": "ben", "roles": ["keeper"] }]
        });
        people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
        let guarded =
            |builder: Builder| builder.people(people).options(|options| options.check_policies = true);
        let stuck = Stuck::start(side, "policies", guarded).await;
        let user = async |id: &str| {
            let person = stuck.host.host.access.gate.people().unwrap().now().person(id).unwrap();
            let mut client = stuck.host.raw_as(Principal::Person(person));
            client.initialize(id).await;
            client
        };
        let (mut ada, mut ben) = (user("ada").await, user("ben").await);
        ben.request("createSession", json!({ "channel": SESSION, "provider": "lanes" })).await.unwrap();
        for client in [&mut ada, &mut ben] {
            client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        }
        stuck.is_stuck();
        ben.dispatch(&chat(), 1, begin("b", "Go.")).await;
        stuck.reached("list").await;
        ada.dispatch(&chat(), 11, begin("a", "Go.")).await;
        ada.dispatch(&chat(), 12, cancel("a")).await;
        for seq in [11, 12] {
            assert_eq!(echo_of(&mut ada, seq).await["rejectionReason"], Value::Null);
        }
        ben.request("fetchTurns", json!({ "channel": chat() })).await.unwrap();
        let told = ben.ready_frames().await;
        assert!(
            told.iter().all(|frame| frame["params"]["origin"]["clientSeq"] != 1),
            "ben's turn waits: {told:?}"
        );
    })
    .await;
}

async fn an_automation_store_that_never_answers(side: Side) {
    in_time(async {
        let stuck = Stuck::start(side, "automations", |builder| builder).await;
        let mut client = stuck.with_session().await;
        stuck.is_stuck();
        ask_slow(&client, "listAutomationTriggerDefinitions", json!({ "channel": "ahp-root://" })).await;
        stuck.reached("triggers").await;
        let definition = json!({ "title": "Oats", "enabled": false, "session": { "provider": "lanes" }, "triggers": [],
            "message": { "text": "Go.", "origin": { "kind": "automation" } } });
        let create = json!({ "type": "automation/createRequested", "resource": "ahp-automation:/oats",
            "definition": definition });
        client.dispatch("ahp-automations://", 1, create).await;
        stuck.reached("create").await;
        client.dispatch(&chat(), 2, begin("t", "Go.")).await;
        client.dispatch(&chat(), 3, cancel("t")).await;
        assert_eq!(echo_of(&mut client, 3).await["rejectionReason"], Value::Null);
        client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
        let mut other = stuck.client("o").await;
        other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        not_answered(&mut client).await;
    })
    .await;
}

async fn a_session_store_that_never_answers(side: Side) {
    in_time(async {
        let stuck = Stuck::start(side, "sessions", |builder| builder).await;
        let mut client = stuck.with_session().await;
        let mut other = stuck.client("o").await;
        other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        stuck.is_stuck();
        // Whether an id is taken.
        ask_slow(&client, "createSession", json!({ "channel": "lanes:/2", "provider": "lanes" })).await;
        stuck.reached("session").await;
        client.dispatch(&chat(), 1, draft("Hay.")).await;
        assert_eq!(echo_of(&mut client, 1).await["rejectionReason"], Value::Null);
        client.request("fetchTurns", json!({ "channel": chat() })).await.unwrap();
        not_answered(&mut client).await;
        // The start of a turn.
        let mut client = stuck.client("d").await;
        client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        client.dispatch(&chat(), 2, begin("t", "Go.")).await;
        stuck.reached("setTurn").await;
        other.dispatch(&chat(), 3, draft("Straw.")).await;
        assert_eq!(echo_of(&mut other, 3).await["rejectionReason"], Value::Null);
        let seen = other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        assert_eq!(seen["snapshot"]["state"]["draft"]["text"], "Straw.");
        client.dispatch(&chat(), 4, cancel("t")).await;
        stuck.host.log.wait_for("cancelled t").await;
        let told = other.ready_frames().await;
        assert!(
            told.iter().all(|frame| frame["params"]["action"]["type"] != "chat/turnStarted"),
            "nothing is told before it is stored: {told:?}"
        );
    })
    .await;
}

async fn a_usage_store_that_never_answers(side: Side) {
    in_time(async {
        let stuck = Stuck::start(side, "usage", |builder| builder).await;
        let mut client = stuck.with_session().await;
        let mut other = stuck.client("o").await;
        other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        stuck.is_stuck();
        let totals = json!({ "pools": ["user:ada"] });
        ask_slow(&client, "x-ostler/usage/totals", totals).await;
        stuck.reached("total").await;
        client.dispatch(&chat(), 1, begin("t", "use")).await;
        stuck.reached("record").await;
        other.dispatch(&chat(), 2, draft("Hay.")).await;
        assert_eq!(echo_of(&mut other, 2).await["rejectionReason"], Value::Null);
        let seen = other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        assert_eq!(seen["snapshot"]["state"]["activeTurn"]["id"], "t", "its end is not stored");
        client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
        not_answered(&mut client).await;
    })
    .await;
}

async fn a_backend_that_never_steers_or_closes(side: Side) {
    in_time(async {
        let stuck = Stuck::start(side, "backend", |builder| builder).await;
        let mut client = stuck.with_session().await;
        let mut other = stuck.client("o").await;
        other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        client.dispatch(&chat(), 1, begin("t", "Go.")).await;
        client.actions_until("chat/responsePart").await;
        let steering = json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "s",
            "message": { "text": "Left.", "origin": { "kind": "user" } } });
        client.dispatch(&chat(), 2, steering).await;
        stuck.reached("steer").await;
        let since = std::time::Instant::now();
        other.dispatch(&chat(), 3, draft("Hay.")).await;
        other.dispatch(&chat(), 4, cancel("t")).await;
        assert_eq!(echo_of(&mut other, 4).await["rejectionReason"], Value::Null);
        assert!(since.elapsed() < limit::STEER, "the cancellation waited for the steering");
        stuck.host.log.wait_for("cancelled t").await;
        ask_slow(&client, "disposeSession", json!({ "channel": SESSION })).await;
        stuck.reached("close").await;
        for (client, session) in [(&mut client, "lanes:/2"), (&mut other, "lanes:/3")] {
            client
                .request("createSession", json!({ "channel": session, "provider": "lanes" }))
                .await
                .unwrap();
        }
        not_answered(&mut client).await;
    })
    .await;
}

async fn a_cancel_takes_effect_in_a_flood(side: Side) {
    in_time(async {
        let stuck = Stuck::start(side, "backend", |builder| builder).await;
        let mut client = stuck.with_session().await;
        client.dispatch(&chat(), 1, begin("t", "flood")).await;
        for _ in 0..100 {
            client.actions_until("chat/delta").await;
        }
        let since = std::time::Instant::now();
        client.dispatch(&chat(), 2, cancel("t")).await;
        client.actions_until("chat/turnCancelled").await;
        stuck.host.log.wait_for("cancelled t").await;
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    })
    .await;
}

async fn a_listener_that_awaits_its_own_requests(side: Side) {
    in_time(async {
        let stuck =
            Stuck::start(side, "listener", |builder| builder.plugin(ostler_plugin_echo::plugin(), json!({})))
                .await;
        let mut talk = crate::side::Talk::with(&stuck.host, "echo").await;
        talk.say("Listed from now on.").await;
        let said = talk.tool("hear", json!({})).await;
        assert!(said.contains("[true,true,false]"), "{said}");
    })
    .await;
}
