//! A worker, which streams its prompt in a separate chat and can be stopped.

use ostler_contract::events::TurnStatus;
use ostler_contract::points::{Emit, Worker, WorkerRequest};
use ostler_contract::protocol::actions;
use ostler_contract::{Thrown, Value, json};
use tokio::sync::oneshot;

use crate::script::Script;
use crate::session::{Stopped, Turn, words};

impl Turn {
    /// Runs a worker and streams its outcome.
    pub(crate) async fn have_worked(&mut self, prompt: &str) -> Result<(), Stopped> {
        let Some(subagent) = self.conversation.subagent.clone() else {
            return self.say("answer", "There are no workers here.").await;
        };
        let call = format!("{}-worker", self.id);
        let about = |kind: &str, more: Value| {
            let mut action = json!({ "type": kind, "turnId": self.id, "toolCallId": call });
            if let (Some(action), Value::Object(more)) = (action.as_object_mut(), more) {
                action.extend(more);
            }
            action
        };
        let start = about("chat/toolCallStart", json!({ "toolName": "worker", "displayName": "Worker" }));
        let ready = json!({ "invocationMessage": "Having it worked on", "confirmed": "not-needed" });
        let ready = about("chat/toolCallReady", ready);
        self.emit(Emit::Chat, start)?;
        self.emit(Emit::Chat, ready)?;
        let request = WorkerRequest {
            title: "Worker".to_owned(),
            agent_name: Some("echo".to_owned()),
            prompt: Some(prompt.to_owned()),
            ..WorkerRequest::default()
        };
        let worker = self.wait(subagent.call((call.clone(), request))).await??;
        let (stop, stopped) = oneshot::channel();
        self.conversation.waiting.lock().workers.insert(call.clone(), stop);
        let outcome = self.wait(work(&worker, prompt, stopped)).await;
        self.conversation.waiting.lock().workers.remove(&call);
        let finished = match outcome {
            Ok(finished) => finished?,
            Err(stopped) => {
                worker.end.call((TurnStatus::Cancelled, None))?;
                return Err(stopped);
            }
        };
        let (status, said) = match finished {
            true => (TurnStatus::Complete, "The worker is done."),
            false => (TurnStatus::Cancelled, "The worker was stopped."),
        };
        worker.end.call((status, None))?;
        let result = json!({ "success": finished, "pastTenseMessage": said });
        let done = json!({ "type": "chat/toolCallComplete", "turnId": self.id, "toolCallId": call, "result": result });
        self.emit(Emit::Chat, done)?;
        self.say("answer", said).await
    }
}

/// Works until it is done or stopped; returns whether it completed.
async fn work(worker: &Worker, prompt: &str, stopped: oneshot::Receiver<()>) -> Result<bool, Thrown> {
    let emit = |action: Value| {
        let action = actions::read(action).map_err(Thrown::new)?;
        worker.emit.call((action,))
    };
    if Script::read(prompt) == Script::Hang {
        // If it is dropped with the conversation, it is also stopped.
        let _ = stopped.await;
        return Ok(false);
    }
    let part = json!({ "kind": "markdown", "id": "work", "content": "" });
    emit(json!({ "type": "chat/responsePart", "turnId": worker.turn_id, "part": part }))?;
    for word in words(prompt) {
        emit(json!({ "type": "chat/delta", "turnId": worker.turn_id, "partId": "work", "content": word }))?;
    }
    Ok(true)
}
