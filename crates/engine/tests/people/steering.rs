//! Messages for a running turn that wait until the agent has started.

use std::time::Duration;

use ostler_contract::points::Emit;
use ostler_contract::{Value, json};
use ostler_protocol::uri;
use ostler_testkit::{MemoryHost, RawClient, Stage};

use crate::authority::{DAN, client, file, host_of_one, set};

const SESSION: &str = "stage:/1";

/// A session of dan whose agent has to start again for its next turn, and waits with that.
struct Waiting {
    host: MemoryHost,
    stage: Stage,
    chat: String,
    dan: RawClient,
    ben: RawClient,
    _state: tempfile::TempDir,
}

impl Waiting {
    async fn new() -> Self {
        let stage = Stage::default().steering().waiting_to_start();
        let (host, state) = host_of_one(&stage).await;
        let (ben, mut dan) = (client(&host, "ben", "ben's").await, client(&host, "dan", DAN).await);
        // The second one puts the first one to sleep.
        for session in [SESSION, "stage:/2"] {
            stage.let_start();
            dan.request("createSession", json!({ "channel": session })).await.unwrap();
        }
        let chat = uri::default_chat(SESSION);
        let mut waiting = Self { host, stage, chat, dan, ben, _state: state };
        for client in [&mut waiting.dan, &mut waiting.ben] {
            client.request("subscribe", json!({ "channel": waiting.chat })).await.unwrap();
        }
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Go." } });
        waiting.dan.dispatch(&waiting.chat, 1, turn).await;
        waiting.dan.actions_until("chat/turnStarted").await;
        waiting
    }

    /// Sends a message for the running turn as ben, then as dan.
    async fn steer(&mut self) {
        for (client, id, text) in [(&mut self.ben, "b", "For ben."), (&mut self.dan, "d", "For dan.")] {
            let message = json!({ "text": text });
            let set =
                json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": id, "message": message });
            client.dispatch(&self.chat, 2, set).await;
            client.actions_until("chat/pendingMessageSet").await;
        }
        // The host waits for the agent by now.
        self.state().await;
    }

    /// What the agent was told by a name.
    fn told(&self, name: &str) -> Vec<Value> {
        self.stage.told().iter().filter_map(|told| told.get(name).cloned()).collect()
    }

    async fn state(&mut self) -> Value {
        let subscribed = self.dan.request("subscribe", json!({ "channel": self.chat })).await.unwrap();
        subscribed["snapshot"]["state"].clone()
    }

    /// Waits until so many messages are queued.
    async fn queued(&mut self, count: usize) {
        for _ in 0..1000 {
            if self.state().await["queuedMessages"].as_array().is_some_and(|queued| queued.len() == count) {
                return;
            }
        }
        panic!("{count} messages are queued");
    }

    /// Ends the running turn as the agent does.
    async fn end(&mut self) {
        let state = self.state().await;
        let running = state["activeTurn"]["id"].as_str().unwrap();
        let last = self.stage.started() - 1;
        self.stage.emit(
            last,
            Emit::Chat,
            json!({ "type": "chat/turnComplete", "turnId": running, "duration": 1 }),
        );
        self.dan.actions_until("chat/turnComplete").await;
    }
}

#[tokio::test]
async fn a_message_for_a_turn_is_not_delivered_after_its_sender_is_removed() {
    let mut waiting = Waiting::new().await;
    waiting.steer().await;
    let mut users = file();
    users["users"].as_array_mut().unwrap().remove(0);
    set(&waiting.host, &users);
    waiting.stage.let_start();
    waiting.queued(1).await;
    assert_eq!(waiting.told("steer"), [json!("For dan.")]);
    waiting.end().await;
    waiting.dan.actions_until("chat/error").await;
    let state = waiting.state().await;
    let turn = &state["turns"][1];
    assert_eq!(turn["message"]["text"], "For ben.");
    assert_eq!(turn["responseParts"][0]["error"]["errorType"], "permission", "{turn}");
    assert_eq!(waiting.told("begin").len(), 1);
}

#[tokio::test]
async fn a_message_for_a_turn_that_was_queued_meanwhile_is_not_delivered_as_well() {
    let mut waiting = Waiting::new().await;
    waiting.steer().await;
    tokio::time::pause();
    tokio::time::advance(ostler_contract::limit::STEER + Duration::from_secs(1)).await;
    tokio::time::resume();
    waiting.queued(2).await;
    waiting.stage.let_start();
    waiting.stage.wait_told("begin").await;
    for _ in 0..3 {
        waiting.end().await;
    }
    let said: Vec<Value> = waiting.told("begin").iter().map(|begin| begin[1].clone()).collect();
    assert_eq!(said, ["Go.", "For ben.", "For dan."]);
    assert_eq!(waiting.told("steer"), [Value::Null; 0]);
}
