//! `start.subagent`: workers of a backend, in chats of their own that clients answer and stop.

use std::sync::{Arc, Mutex};

use ostler_contract::events::TurnStatus;
use ostler_contract::points::{Agent, AgentSession, Emit, Start, Worker, WorkerRequest};
use ostler_contract::{Call, Frozen, JsonObject, Options, PluginHost, Thrown, Value, json};
use ostler_testkit::{MemoryHost, RawClient};

use crate::side::{Both, Side, Talk, action, object};

const PLUGIN: Both = Both { spec: "@conformance/worker", native, javascript: "worker.mjs", dress: None };

both! { PLUGIN:
    a_worker_has_a_chat_of_its_own_and_its_leads_backend_hears_the_answers,
    stopping_a_worker_is_asked_of_its_leads_backend,
}

/// A conversation whose turns each have one worker dig.
struct Session {
    host: PluginHost,
    start: Start,
    turn: Mutex<String>,
    worker: Mutex<Option<Worker>>,
}

fn of_turn(kind: &str, turn: &str, more: Value) -> Value {
    let mut whole = object(json!({ "type": kind, "turnId": turn }));
    whole.extend(object(more));
    Value::Object(whole)
}

impl Session {
    fn emit(&self, kind: &str, more: Value) -> Result<(), Thrown> {
        let emitted = of_turn(kind, &self.turn.lock().unwrap(), more);
        self.start.emit.call((Emit::Chat, action(emitted)?))
    }

    fn in_worker(&self, kind: &str, more: Value) -> Result<(), Thrown> {
        let worker = self.worker.lock().unwrap().clone().unwrap();
        worker.emit.call((action(of_turn(kind, &worker.turn_id, more))?,))
    }

    fn call(&self) -> String {
        format!("{}-dig", self.turn.lock().unwrap())
    }

    async fn begin(&self, turn: String) -> Result<(), Thrown> {
        *self.turn.lock().unwrap() = turn;
        let call = self.call();
        let about = json!({ "toolCallId": call, "toolName": "dig", "displayName": "Dig" });
        self.emit("chat/toolCallStart", about)?;
        let ready = json!({ "toolCallId": call, "invocationMessage": "Digging", "confirmed": "not-needed" });
        self.emit("chat/toolCallReady", ready)?;
        let request = WorkerRequest {
            title: "Digger".to_owned(),
            agent_name: Some("mole".to_owned()),
            description: Some("Digs.".to_owned()),
            prompt: Some("Dig.".to_owned()),
            parent_tool_call_id: None,
        };
        let worker = self.start.subagent.as_ref().unwrap().call((call, request)).await?;
        let handed = json!([worker.uri, worker.turn_id]);
        *self.worker.lock().unwrap() = Some(worker);
        let asked = json!({ "toolCallId": "rm", "toolName": "rm", "displayName": "Remove" });
        self.in_worker("chat/toolCallStart", asked)?;
        let options = json!([{ "id": "once", "label": "Once", "kind": "approve", "group": 0 }]);
        let ready = json!({ "toolCallId": "rm", "invocationMessage": "Removing", "options": options });
        self.in_worker("chat/toolCallReady", ready)?;
        let question = json!({ "kind": "inputRequest", "request": { "id": "q", "message": "How deep?" } });
        self.in_worker("chat/responsePart", json!({ "part": question }))?;
        self.host.log(handed.to_string())
    }

    fn confirm(&self, call: &str, approved: bool, option: Option<String>) -> Result<(), Thrown> {
        self.host.log(format!("confirm {call} {approved} {}", option.unwrap_or_default()))?;
        let result = json!({ "success": true, "pastTenseMessage": "Removed" });
        self.in_worker("chat/toolCallComplete", json!({ "toolCallId": call, "result": result }))
    }

    fn answer(&self, request: &str, accepted: bool, response: &str) -> Result<bool, Thrown> {
        self.host.log(format!("answer {request} {accepted} {response}"))?;
        let part = json!({ "kind": "markdown", "id": "dug", "content": "Deep enough." });
        self.in_worker("chat/responsePart", json!({ "part": part }))?;
        self.end(TurnStatus::Complete)?;
        Ok(true)
    }

    fn end(&self, status: TurnStatus) -> Result<(), Thrown> {
        self.worker.lock().unwrap().clone().unwrap().end.call((status, None))?;
        let result = json!({ "success": true, "pastTenseMessage": "Dug" });
        self.emit("chat/toolCallComplete", json!({ "toolCallId": self.call(), "result": result }))?;
        self.emit("chat/turnComplete", json!({ "duration": 0 }))
    }
}

fn agent(host: &PluginHost, provider: &'static str, stops: bool) -> Agent {
    let host = host.clone();
    Agent {
        provider: provider.into(),
        display_name: provider.into(),
        schema: Call::now(|()| Ok(json!({ "properties": {} }))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        create: Call::now(move |(start,): (Frozen<Start>,)| {
            let session = Arc::new(Session {
                host: host.clone(),
                start: start.0,
                turn: Mutex::default(),
                worker: Mutex::default(),
            });
            let (begun, confirmed, answered) = (session.clone(), session.clone(), session.clone());
            let (stopped, cancelled) = (session.clone(), session);
            Ok(AgentSession {
                begin: Call::new(move |(turn, ..): (String, String, _, _, _)| {
                    let session = begun.clone();
                    async move { session.begin(turn).await }
                }),
                confirm: Some(Call::now(move |(call, approved, option): (String, bool, Option<String>)| {
                    confirmed.confirm(&call, approved, option)
                })),
                answer: Some(Call::now(
                    move |(request, accepted, _, response): (String, bool, _, String)| {
                        answered.answer(&request, accepted, &response)
                    },
                )),
                stop_worker: stops.then(|| {
                    Call::now(move |(call,): (String,)| {
                        stopped.host.log(format!("stop {call}"))?;
                        stopped.end(TurnStatus::Cancelled)
                    })
                }),
                cancel: Call::now(move |(turn,): (String,)| cancelled.host.log(format!("cancel {turn}"))),
                close: Call::now(|_| Ok(())),
                ..AgentSession::default()
            })
        }),
        ..Agent::default()
    }
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_agent(agent(&host, "boss", true))?;
    host.register_agent(agent(&host, "lone", false))
}

async fn state(client: &mut RawClient, channel: &str) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    subscribed["snapshot"]["state"].clone()
}

/// Begins a turn, and answers the chat and the turn that its worker was given.
async fn digging(host: &MemoryHost, talk: &mut Talk) -> (String, String) {
    assert_eq!(talk.begin("dig").await, "t1");
    let line = host.log.wait_for("plugin worker: [").await;
    serde_json::from_str(line.strip_prefix("plugin worker: ").unwrap()).unwrap()
}

async fn a_worker_has_a_chat_of_its_own_and_its_leads_backend_hears_the_answers(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "boss").await;
    let (uri, turn) = digging(&host, &mut talk).await;
    let Talk { mut client, session, chat: lead, .. } = talk;
    assert_eq!(uri, ostler_protocol::uri::worker_chat(&session, "t1-dig"));
    assert!(uri.starts_with("ahp-chat://subagent/") && uri.ends_with("/t1-dig"), "{uri}");
    let listed = state(&mut client, &session).await["chats"].clone();
    let row = listed.as_array().unwrap().iter().find(|row| row["resource"] == uri.as_str()).unwrap();
    assert_eq!((&row["interactivity"], &row["title"]), (&json!("read-only"), &json!("Digger")));
    assert_eq!(row["origin"]["toolCallId"], "t1-dig");
    let running = state(&mut client, &uri).await["activeTurn"].clone();
    assert_eq!((&running["id"], &running["message"]["text"]), (&json!(turn), &json!("Dig.")));
    let link = |lead: &Value, place: &str| {
        let content = lead.pointer(&format!("{place}/responseParts/0/toolCall/content/0")).cloned();
        content.map(|content| (content["type"].clone(), content["resource"].clone()))
    };
    let linked = Some((json!("subagent"), json!(uri)));
    assert_eq!(link(&state(&mut client, &lead).await, "/activeTurn"), linked);

    let confirmed = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "rm",
        "approved": true, "selectedOptionId": "once" });
    client.dispatch(&uri, 2, confirmed).await;
    host.log.wait_for("plugin worker: confirm rm true once").await;
    let answered = json!({ "type": "chat/inputCompleted", "requestId": "q", "response": "accept" });
    client.dispatch(&uri, 3, answered).await;
    host.log.wait_for("plugin worker: answer q true accept").await;
    loop {
        let seen = client.next_action().await;
        if seen["channel"] == lead.as_str() && seen["action"]["type"] == "chat/turnComplete" {
            break;
        }
    }
    let ended = state(&mut client, &uri).await["turns"][0].clone();
    assert_eq!((&ended["id"], &ended["state"]), (&json!(turn), &json!("complete")));
    assert_eq!(ended["responseParts"].as_array().unwrap().last().unwrap()["content"], "Deep enough.");
    assert_eq!(link(&state(&mut client, &lead).await, "/turns/0"), linked);
}

async fn stopping_a_worker_is_asked_of_its_leads_backend(side: Side) {
    for (provider, told, other) in [("boss", "stop t1-dig", "cancel"), ("lone", "cancel t1", "stop")] {
        let host = side.host().start().await;
        let mut talk = Talk::with(&host, provider).await;
        let (uri, turn) = digging(&host, &mut talk).await;
        talk.client.request("subscribe", json!({ "channel": uri })).await.unwrap();
        let stop = json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 });
        talk.client.dispatch(&uri, 2, stop).await;
        host.log.wait_for(&format!("plugin worker: {told}")).await;
        assert_eq!(state(&mut talk.client, &uri).await["turns"][0]["state"], "cancelled", "{provider}");
        assert!(!host.log.has(&format!("plugin worker: {other}")), "{:#?}", host.log.all());
    }
}
