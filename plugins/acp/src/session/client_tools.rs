//! Tools that clients of the session run: called by the agent through the tools endpoint, shown as calls of the turn.

use ostler_contract::{Value, json};
use tokio::sync::oneshot;

use super::Conversation;
use crate::updates::{ClientTool, Place};

/// A call that a client runs.
pub(super) struct ClientCall {
    id: String,
    /// The request to the client. It is not the one for the approval of the same call.
    request: String,
    turn: String,
    done: oneshot::Sender<Result<Value, String>>,
}

impl Conversation {
    /// Makes the client that contributed a tool run it. The call is the one that the agent has reported, or a new one.
    pub(super) async fn run_by_client(
        &mut self,
        name: &str,
        input: &Value,
        done: oneshot::Sender<Result<Value, String>>,
    ) {
        let refuse = |done: oneshot::Sender<Result<Value, String>>, why: String| drop(done.send(Err(why)));
        let Some(turn) = &mut self.turn else {
            return refuse(done, format!("{name} can only be called in a turn"));
        };
        let tool = self.tools.iter().find(|tool| tool.definition.name == name);
        let Some(tool) = tool.and_then(ClientTool::of) else {
            return refuse(done, format!("no client offers the tool {name}"));
        };
        let ClientTool { name: own, title, client, .. } = &tool;
        let contributor = tool.contributor();
        let turn_id = turn.id.clone();
        let (id, request, runs) = match turn.place_of(name, input) {
            Place::Done(result) => return drop(done.send(Ok(result))),
            Place::Reported { shown, runs } => (shown.clone(), format!("{shown}-client"), runs),
            Place::New => {
                self.client_calls_made += 1;
                let id = format!("{turn_id}-client-{}", self.client_calls_made);
                turn.add_unreported(id.clone(), name, input);
                let started = json!({ "type": "chat/toolCallStart", "turnId": turn_id, "toolCallId": id, "toolName": own,
                    "displayName": title, "contributor": contributor });
                self.emit.chat(started).await;
                (id.clone(), id, false)
            }
        };
        if !runs {
            let ready = json!({ "type": "chat/toolCallReady", "turnId": turn_id, "toolCallId": id,
                "invocationMessage": title, "toolInput": input.to_string(), "confirmed": "not-needed" });
            self.emit.chat(ready).await;
        }
        let running = json!({ "toolCallId": id, "toolName": own, "displayName": title, "contributor": contributor,
            "invocationMessage": title, "toolInput": input.to_string(), "confirmed": "not-needed", "status": "running" });
        let needed = json!({ "kind": "toolClientExecution", "id": request, "chat": self.start.chat_uri, "turnId": turn_id,
            "clientId": client, "toolCall": running });
        self.emit.session(json!({ "type": "session/inputNeededSet", "request": needed })).await;
        self.client_calls.push(ClientCall { id, request, turn: turn_id, done });
    }

    /// Handles the client's result. Returns `false` if the client runs no such call.
    pub(super) async fn completed_by_client(&mut self, call: &str, result: Value) -> bool {
        let at = self.client_calls.iter().position(|waiting| waiting.id == call);
        let waiting = at.map(|at| self.client_calls.swap_remove(at));
        let is_shown = match &mut self.turn {
            Some(turn) => turn.completed_by_client(call, &result).await,
            None => false,
        };
        match waiting {
            Some(ClientCall { id, turn, done, .. }) => {
                if !is_shown {
                    let action = json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": id,
                        "result": result });
                    self.emit.chat(action).await;
                }
                let _ = done.send(Ok(result));
            }
            None if !is_shown => return false,
            None => {}
        }
        self.heard_user();
        true
    }

    /// Ends the calls that the agent has reported as ended.
    pub(super) fn end_reported_calls(&mut self) {
        let Some(turn) = &self.turn else { return };
        let ended: Vec<ClientCall> =
            self.client_calls.extract_if(.., |call| turn.has_ended(&call.id)).collect();
        for ClientCall { request, done, .. } in ended {
            let _ = done.send(Err("the agent ended the call before the client had run the tool".to_owned()));
            self.withdraw_request(&request);
        }
    }

    /// Ends all calls because the turn is over.
    pub(super) fn abandon_client_calls(&mut self) {
        for ClientCall { request, done, .. } in std::mem::take(&mut self.client_calls) {
            let _ = done.send(Err("the turn ended before the client had run the tool".to_owned()));
            self.withdraw_request(&request);
        }
    }
}
