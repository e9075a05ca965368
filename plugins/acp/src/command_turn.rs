//! Turns that are a command line, such as `!ls`: the command runs in a terminal of the host, the turn shows it as a
//! tool call, and the next prompt includes it.

use std::collections::VecDeque;
use std::sync::Arc;

use ostler_contract::points::SessionTerminal;
use ostler_contract::wire::state::Turn as ChatTurn;
use ostler_contract::{HostFunction, Thrown, Value, json};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::emitter::Emitter;
use crate::terminals::{result, shown};

/// How many characters of the end of a command's output the agent receives.
const TOLD: usize = 16 << 10;
/// The maximum number of commands in a prompt; the latest ones count.
const REMEMBERED: usize = 20;

/// The tool's name in the calls that show commands.
const TOOL: &str = "command";

/// Opens the terminal that a command runs in.
pub type Run = HostFunction<fn(tool_call_id: Option<String>) -> SessionTerminal>;

/// The command turns of one chat.
#[derive(Debug, Clone, Default)]
pub struct CommandTurns(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The running turn, and its cancellation.
    running: Option<(String, oneshot::Sender<()>)>,
    /// Commands that the agent does not know of.
    untold: VecDeque<String>,
    /// The number of earlier commands.
    earlier: u64,
}

impl CommandTurns {
    /// Creates it for a chat with these turns. The agent does not know the commands after its last turn.
    pub fn of(turns: &[ChatTurn]) -> Self {
        let since = turns.iter().rev().map_while(told_of).take(REMEMBERED);
        let mut untold = VecDeque::new();
        since.for_each(|command| untold.push_front(command));
        Self(Arc::new(Mutex::new(State { running: None, untold, earlier: 0 })))
    }

    /// Runs a command and ends its turn. The turn can be cancelled from now on.
    ///
    /// # Errors
    /// No terminal can be opened, or it was removed before the command ended.
    pub fn run(
        &self,
        emitter: Emitter,
        turn: String,
        command: String,
        run: Run,
    ) -> impl Future<Output = Result<(), Thrown>> + Send + use<> {
        let (cancel, cancelled) = oneshot::channel();
        self.0.lock().running = Some((turn.clone(), cancel));
        let turns = self.clone();
        async move { turns.serve(&emitter, turn, command, run, cancelled).await }
    }

    async fn serve(
        &self,
        emitter: &Emitter,
        turn: String,
        command: String,
        run: Run,
        cancelled: oneshot::Receiver<()>,
    ) -> Result<(), Thrown> {
        let begun = Instant::now();
        let call = call_of(&turn);
        let about = |kind: &str, more: Value| {
            let mut action = json!({ "type": kind, "turnId": turn, "toolCallId": call });
            if let (Some(action), Value::Object(more)) = (action.as_object_mut(), more) {
                action.extend(more);
            }
            action
        };
        let start = json!({ "toolName": TOOL, "displayName": "Command" });
        emitter.chat(about("chat/toolCallStart", start)).await;
        let ready = json!({ "invocationMessage": format!("Running {command}"), "toolInput": command,
            "confirmed": "not-needed" });
        emitter.chat(about("chat/toolCallReady", ready)).await;
        let ended = self.in_terminal(emitter, &call, &command, &about, run, cancelled).await;
        self.0.lock().running = None;
        let result = match &ended {
            Ok(ended) => ended.result(&command),
            Err(why) => json!({ "success": false, "pastTenseMessage": format!("{command} did not run"),
                "error": { "message": why.message } }),
        };
        emitter.chat(about("chat/toolCallComplete", json!({ "result": result }))).await;
        let ended = ended?;
        self.remember(ended.told(&command));
        let kind = if ended.cancelled { "chat/turnCancelled" } else { "chat/turnComplete" };
        let duration = u64::try_from(begun.elapsed().as_millis()).unwrap_or_default();
        emitter.chat(json!({ "type": kind, "turnId": turn, "duration": duration })).await;
        Ok(())
    }

    async fn in_terminal(
        &self,
        emitter: &Emitter,
        call: &str,
        command: &str,
        about: &impl Fn(&str, Value) -> Value,
        run: Run,
        cancelled: oneshot::Receiver<()>,
    ) -> Result<Ended, Thrown> {
        let terminal = run.call((Some(call.to_owned()),)).await?;
        let content = shown(&terminal.uri, command, None);
        emitter.chat(about("chat/toolCallContentChanged", json!({ "content": [content] }))).await;
        let (code, cancelled) = tokio::select! {
            code = terminal.wait.call(()) => (code?, false),
            Ok(()) = cancelled => {
                terminal.kill.call(()).await?;
                (terminal.wait.call(()).await?, true)
            }
        };
        let output = terminal.output.call(()).await?;
        let shown = shown(&terminal.uri, command, Some(result(code, Some(&output))));
        Ok(Ended { shown, code, cancelled, output })
    }

    /// Stops a turn's command; returns `false` if no such command runs.
    pub fn cancel(&self, turn: &str) -> bool {
        let running = self.0.lock().running.take_if(|(running, _)| running == turn);
        running.is_some_and(|(_, cancel)| cancel.send(()).is_ok())
    }

    /// Returns the commands that the agent does not know as context of the next prompt, and the number of the latest
    /// one.
    pub fn untold(&self) -> Option<(String, u64)> {
        let mut state = self.0.lock();
        let latest = state.earlier + state.untold.len() as u64;
        let untold = state.untold.make_contiguous();
        (!untold.is_empty()).then(|| {
            (format!("Meanwhile the user ran commands in a terminal:\n\n{}", untold.join("\n\n")), latest)
        })
    }

    /// Records that the agent knows the commands up to this one.
    pub fn told(&self, latest: u64) {
        let mut state = self.0.lock();
        while state.earlier < latest && state.untold.pop_front().is_some() {
            state.earlier += 1;
        }
    }

    fn remember(&self, told: String) {
        let mut state = self.0.lock();
        if state.untold.len() >= REMEMBERED {
            state.untold.pop_front();
            state.earlier += 1;
        }
        state.untold.push_back(told);
    }
}

/// Returns the text for the agent of a turn that was a command; `None` for another turn.
fn told_of(turn: &ChatTurn) -> Option<String> {
    let turn = serde_json::to_value(turn).ok()?;
    let parts = turn.get("responseParts")?.as_array()?;
    let call = parts.iter().find_map(|part| {
        part.get("toolCall").filter(|call| call.get("toolName").is_some_and(|name| name == TOOL))
    })?;
    if call.get("toolCallId")?.as_str()? != call_of(turn.get("id")?.as_str()?) {
        return None;
    }
    let text = |content: &Value| content.get("text").and_then(Value::as_str).map(str::to_owned);
    let output = call.get("content").and_then(Value::as_array).into_iter().flatten().find_map(text);
    let how = call.pointer("/error/message").and_then(Value::as_str).unwrap_or("exit code 0");
    Some(told(call.get("toolInput")?.as_str()?, &output.unwrap_or_default(), how))
}

/// The tool call that shows the command of a turn.
fn call_of(turn: &str) -> String {
    format!("{turn}-command")
}

/// A command with the end of its output, for the agent.
fn told(command: &str, output: &str, how: &str) -> String {
    format!("$ {command}\n{}\n({how})", output.trim_end())
}

/// How a command ended.
struct Ended {
    /// Its terminal as a tool call's content.
    shown: Value,
    code: Option<i64>,
    cancelled: bool,
    output: String,
}

impl Ended {
    fn how(&self) -> String {
        match self.code {
            Some(code) => format!("exit code {code}"),
            None => "ended by a signal".to_owned(),
        }
    }

    fn result(&self, command: &str) -> Value {
        let success = self.code == Some(0);
        let text = json!({ "type": "text", "text": end_of(&self.output) });
        let mut result = json!({ "success": success, "pastTenseMessage": format!("Ran {command}"),
            "content": [self.shown, text] });
        if !success {
            result["error"] = json!({ "message": self.how() });
        }
        result
    }

    fn told(&self, command: &str) -> String {
        told(command, &end_of(&self.output), &self.how())
    }
}

/// The end of an output, with a mark where it does not begin there.
fn end_of(output: &str) -> String {
    let over = output.len().saturating_sub(TOLD);
    match over {
        0 => output.to_owned(),
        over => format!("[...]{}", &output[output.ceil_char_boundary(over)..]),
    }
}
