//! Whatever clients do, lose and take up again, in the end all of them see the same.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use ahp::reducers::{apply_action_to_chat, apply_action_to_session};
use ostler_contract::{Value, json};
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{ChatState, SessionState};
use ostler_testkit::{MemoryHost, RawClient};
use proptest::prelude::*;

const SESSION: &str = "echo:/one";

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

#[derive(Debug, Clone)]
enum Step {
    /// A client says something, at once or behind what runs.
    Say(usize, u8),
    Cancel(usize),
    Rename(usize, u8),
    Read(usize, bool),
    Draft(usize, u8),
    /// The connection is lost.
    Drop(usize),
    /// It comes back.
    Return(usize),
    /// Time goes by.
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..3_usize;
    prop_oneof![
        3 => (client.clone(), any::<u8>()).prop_map(|(c, n)| Step::Say(c, n)),
        1 => client.clone().prop_map(Step::Cancel),
        1 => (client.clone(), any::<u8>()).prop_map(|(c, n)| Step::Rename(c, n)),
        1 => (client.clone(), any::<bool>()).prop_map(|(c, on)| Step::Read(c, on)),
        1 => (client.clone(), any::<u8>()).prop_map(|(c, n)| Step::Draft(c, n)),
        2 => client.clone().prop_map(Step::Drop),
        2 => client.prop_map(Step::Return),
        2 => (0..200_u16).prop_map(Step::Wait),
    ]
}

/// A client as an editor has one: its own copy of the states, and the last number it saw.
struct Mirror {
    name: String,
    socket: Option<RawClient>,
    session: SessionState,
    chat: ChatState,
    seen: u64,
    sent: i64,
}

impl Mirror {
    async fn new(host: &MemoryHost, at: usize) -> Self {
        let mut socket = host.raw();
        let name = format!("c{at}");
        socket.initialize(&name).await;
        let (session, one) = snapshot(&mut socket, SESSION).await;
        let (chat, two) = snapshot(&mut socket, &chat()).await;
        Self {
            name,
            socket: Some(socket),
            session: serde_json::from_value(session).unwrap(),
            chat: serde_json::from_value(chat).unwrap(),
            seen: one.max(two),
            sent: 0,
        }
    }

    fn apply(&mut self, envelope: &Value) {
        if envelope.get("rejectionReason").is_some() {
            return;
        }
        let seq = envelope["serverSeq"].as_u64().unwrap();
        assert!(seq > self.seen, "{}: {seq} came after {}", self.name, self.seen);
        self.seen = seq;
        let action: StateAction = serde_json::from_value(envelope["action"].clone()).unwrap();
        if envelope["channel"] == json!(SESSION) {
            apply_action_to_session(&mut self.session, &action);
        } else {
            apply_action_to_chat(&mut self.chat, &action);
        }
    }

    /// Reads what has come so far.
    async fn read(&mut self) {
        let Some(socket) = self.socket.as_mut() else { return };
        for frame in socket.ready_frames().await {
            if frame["method"] == "action" {
                self.apply(&frame["params"]);
            }
        }
    }

    async fn dispatch(&mut self, channel: &str, action: Value) {
        self.sent += 1;
        if let Some(socket) = &self.socket {
            socket.dispatch(channel, self.sent, action).await;
        }
    }

    async fn come_back(&mut self, host: &MemoryHost) {
        if self.socket.is_some() {
            return;
        }
        let mut socket = host.raw();
        let params = json!({ "channel": "ahp-root://", "clientId": self.name, "lastSeenServerSeq": self.seen,
            "subscriptions": [SESSION, chat()] });
        let result = socket.request("reconnect", params).await.unwrap();
        if result["type"] == "replay" {
            assert_eq!(result["missing"], json!([]));
            for envelope in result["actions"].as_array().unwrap() {
                self.apply(envelope);
            }
        } else {
            for snapshot in result["snapshots"].as_array().unwrap() {
                let state = snapshot["state"].clone();
                self.seen = self.seen.max(snapshot["fromSeq"].as_u64().unwrap());
                if snapshot["resource"] == json!(SESSION) {
                    self.session = serde_json::from_value(state).unwrap();
                } else {
                    self.chat = serde_json::from_value(state).unwrap();
                }
            }
        }
        self.socket = Some(socket);
        self.read().await;
    }
}

async fn snapshot(socket: &mut RawClient, channel: &str) -> (Value, u64) {
    let subscribed = socket.request("subscribe", json!({ "channel": channel })).await.unwrap();
    let snapshot = &subscribed["snapshot"];
    (snapshot["state"].clone(), snapshot["fromSeq"].as_u64().unwrap())
}

async fn play(steps: Vec<Step>, window: u64, replay: usize) {
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|options| {
            options.delta_window_ms = window;
            options.replay = replay;
        })
        .start()
        .await;
    let mut maker = host.raw();
    maker.initialize("maker").await;
    maker.request("createSession", json!({ "channel": SESSION, "config": { "delayMs": 20 } })).await.unwrap();
    let mut mirrors = Vec::new();
    for at in 0..3 {
        mirrors.push(Mirror::new(&host, at).await);
    }
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Say(client, n) => {
                let text = format!("some words {n} to say back one by one");
                let action = match n % 3 {
                    0 => {
                        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": format!("q{number}"), "message": { "text": text } })
                    }
                    1 => {
                        json!({ "type": "chat/turnStarted", "turnId": format!("t{number}"), "message": { "text": "/think hard about it" } })
                    }
                    _ => {
                        json!({ "type": "chat/turnStarted", "turnId": format!("t{number}"), "message": { "text": text } })
                    }
                };
                mirrors[client].dispatch(&chat(), action).await;
            }
            Step::Cancel(client) => {
                let running = mirrors[client].chat.active_turn.as_ref().map(|turn| turn.id.clone());
                let turn = running.unwrap_or_else(|| "none".to_owned());
                mirrors[client]
                    .dispatch(&chat(), json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 1 }))
                    .await;
            }
            Step::Rename(client, n) => {
                mirrors[client]
                    .dispatch(
                        SESSION,
                        json!({ "type": "session/titleChanged", "title": format!("Title {n}") }),
                    )
                    .await;
            }
            Step::Read(client, on) => {
                mirrors[client]
                    .dispatch(SESSION, json!({ "type": "session/isReadChanged", "isRead": on }))
                    .await;
            }
            Step::Draft(client, n) => {
                let draft = json!({ "text": format!("draft {n}"), "origin": { "kind": "user" } });
                mirrors[client]
                    .dispatch(&chat(), json!({ "type": "chat/draftChanged", "draft": draft }))
                    .await;
            }
            Step::Drop(client) => {
                if let Some(socket) = mirrors[client].socket.take() {
                    socket.connection.close();
                }
            }
            Step::Return(client) => mirrors[client].come_back(&host).await,
            Step::Wait(ms) => tokio::time::sleep(std::time::Duration::from_millis(u64::from(ms))).await,
        }
        for mirror in &mut mirrors {
            mirror.read().await;
        }
    }
    // Everything that was begun ends.
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    for mirror in &mut mirrors {
        mirror.come_back(&host).await;
        mirror.read().await;
    }
    let (session, _) = snapshot(&mut maker, SESSION).await;
    let (chat_now, _) = snapshot(&mut maker, &chat()).await;
    let session: SessionState = serde_json::from_value(session).unwrap();
    let chat_now: ChatState = serde_json::from_value(chat_now).unwrap();
    assert!(chat_now.active_turn.is_none(), "nothing runs any more");
    for mirror in &mut mirrors {
        // A chat's title travels on its session's channel; the chat's own has no action for it.
        mirror.chat.title.clone_from(&chat_now.title);
        assert_eq!(mirror.chat, chat_now, "{}", mirror.name);
        assert_eq!(mirror.session, session, "{}", mirror.name);
    }
}

/// Says something and answers the last number that came of it.
async fn said(socket: &mut RawClient, turn: &str) -> u64 {
    let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "some words" } });
    socket.dispatch(&chat(), 1, action).await;
    let actions = socket.actions_until("chat/turnComplete").await;
    actions.last().unwrap()["serverSeq"].as_u64().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_of_the_host_before_a_restart_is_given_snapshots() {
    let mut seen = 0;
    for (at, started) in ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"].into_iter().enumerate() {
        let host = MemoryHost::builder()
            .plugin(ostler_plugin_echo::plugin(), json!({}))
            .started(started.parse().unwrap())
            .start()
            .await;
        let mut socket = host.raw();
        socket.initialize("maker").await;
        socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
        snapshot(&mut socket, &chat()).await;
        let last = said(&mut socket, "t1").await;
        // The second host has given out more numbers than the first, so that none of the first's is too high.
        for turn in ["t2", "t3"].into_iter().take(2 * at) {
            said(&mut socket, turn).await;
        }
        if at == 0 {
            seen = last;
            continue;
        }
        let mut back = host.raw();
        let params = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": seen,
            "subscriptions": [chat()] });
        let result = back.request("reconnect", params).await.unwrap();
        assert_eq!(result["type"], "snapshot", "{result}");
        assert_eq!(result["snapshots"][0]["state"]["turns"].as_array().unwrap().len(), 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn all_clients_end_equal(
        steps in proptest::collection::vec(step(), 1..40),
        window in prop_oneof![Just(0_u64), Just(75)],
        replay in prop_oneof![Just(2_000_usize), Just(1 << 20)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(steps, window, replay));
    }
}
