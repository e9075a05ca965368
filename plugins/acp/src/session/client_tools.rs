//! Tools that clients of the session run: called by the agent through the tools endpoint, shown as calls of the turn.

use ostler_contract::points::BoundTool;
use ostler_contract::{Value, json};
use tokio::sync::oneshot;

use super::Conversation;

/// A call that a client runs.
pub(super) struct ClientCall {
    id: String,
    turn: String,
    done: oneshot::Sender<Result<Value, String>>,
}

impl Conversation {
    /// Makes the client that contributed a tool run it.
    pub(super) async fn run_by_client(
        &mut self,
        name: &str,
        input: &Value,
        done: oneshot::Sender<Result<Value, String>>,
    ) {
        let refuse = |done: oneshot::Sender<Result<Value, String>>, why: String| drop(done.send(Err(why)));
        let Some(turn) = self.turn.as_ref().map(|turn| turn.id.clone()) else {
            return refuse(done, format!("{name} can only be called in a turn"));
        };
        let tool = self.tools.iter().find(|tool| tool.definition.name == name);
        let Some((tool, client)) = tool.and_then(|tool| Some((tool, tool.owner.clone()?))) else {
            return refuse(done, format!("no client offers the tool {name}"));
        };
        let own = own_name(tool, &client).to_owned();
        let title = tool.definition.title.clone().unwrap_or_else(|| own.clone());
        self.client_calls_made += 1;
        let id = format!("{turn}-client-{}", self.client_calls_made);
        let contributor = json!({ "kind": "client", "clientId": client });
        let call =
            json!({ "toolCallId": id, "toolName": own, "displayName": title, "contributor": contributor });
        let with = |more: Value| {
            let mut whole = call.clone();
            if let (Some(whole), Value::Object(more)) = (whole.as_object_mut(), more) {
                whole.extend(more);
            }
            whole
        };
        let ready =
            json!({ "invocationMessage": title, "toolInput": input.to_string(), "confirmed": "not-needed" });
        self.emit.chat(with(json!({ "type": "chat/toolCallStart", "turnId": turn }))).await;
        let mut action = json!({ "type": "chat/toolCallReady", "turnId": turn, "toolCallId": id });
        if let (Some(action), Value::Object(ready)) = (action.as_object_mut(), ready.clone()) {
            action.extend(ready);
        }
        self.emit.chat(action).await;
        let mut running = with(ready);
        running["status"] = "running".into();
        let request = json!({ "kind": "toolClientExecution", "id": id, "chat": self.start.chat_uri, "turnId": turn,
            "clientId": client, "toolCall": running });
        self.emit.session(json!({ "type": "session/inputNeededSet", "request": request })).await;
        self.client_calls.push(ClientCall { id, turn, done });
    }

    /// Handles the client's result. Returns `false` if no call waits.
    pub(super) async fn completed_by_client(&mut self, call: &str, result: Value) -> bool {
        let Some(at) = self.client_calls.iter().position(|waiting| waiting.id == call) else { return false };
        let ClientCall { id, turn, done } = self.client_calls.swap_remove(at);
        let action =
            json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": id, "result": result });
        self.emit.chat(action).await;
        let _ = done.send(Ok(result));
        self.heard_user();
        true
    }

    /// Ends all calls because the turn is over.
    pub(super) fn abandon_client_calls(&mut self) {
        for ClientCall { id, done, .. } in std::mem::take(&mut self.client_calls) {
            let _ = done.send(Err("the turn ended before the client had run the tool".to_owned()));
            self.withdraw_request(&id);
        }
    }
}

/// Returns the client's name of the tool.
fn own_name<'a>(tool: &'a BoundTool, client: &str) -> &'a str {
    let name = tool.definition.name.as_str();
    name.strip_prefix(client).and_then(|rest| rest.strip_prefix("__")).unwrap_or(name)
}
