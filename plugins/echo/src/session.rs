//! One conversation: each turn runs on a separate task and ends exactly once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_contract::points::{
    AgentSession, BoundTool, Emit, ResourceContent, Start, TurnFrom, Worker, WorkerRequest,
};
use ostler_contract::protocol::actions;
use ostler_contract::wire::StateAction;
use ostler_contract::wire::state::{ChatInputAnswer, MessageAttachment, ModelSelection};
use ostler_contract::{Call, Func, HostFunction, JsonObject, Thrown, Value, json};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::script::Script;

type Begin = (String, String, Option<ModelSelection>, Option<TurnFrom>, Option<Vec<MessageAttachment>>);

/// Shared state of all conversations.
#[derive(Clone)]
pub(crate) struct Ways {
    /// The permanently approved tools, by session.
    pub approved: Arc<Mutex<HashMap<String, HashSet<String>>>>,
    /// Whether stopping a worker stops its turn.
    pub stops_lead: bool,
}

/// The answers for which a conversation waits.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Approvals, by tool call.
    pub approvals: HashMap<String, oneshot::Sender<(bool, Option<String>)>>,
    /// Results of tools that clients run, by tool call.
    pub results: HashMap<String, oneshot::Sender<Value>>,
    /// Workers, by their calls.
    pub workers: HashMap<String, oneshot::Sender<()>>,
    /// Answers, by request.
    answers: HashMap<String, oneshot::Sender<Option<String>>>,
}

pub(crate) struct Conversation {
    /// The session.
    pub uri: String,
    pub chat_uri: String,
    /// Whether it is in the session's first chat.
    first: bool,
    emit: Func<fn(Emit, StateAction)>,
    pub subagent: Option<HostFunction<fn(String, WorkerRequest) -> Worker>>,
    pub read: Option<HostFunction<fn(String) -> ResourceContent>>,
    pub client_settings: Option<HostFunction<fn() -> JsonObject>>,
    pub ways: Ways,
    pub tools: Mutex<Vec<BoundTool>>,
    delay: AtomicU64,
    /// The additional context of the first turn.
    context: Mutex<Option<String>>,
    pub waiting: Mutex<Waiting>,
    /// Receives the id of a turn to stop; an empty one stops all.
    stop: watch::Sender<Option<String>>,
}

impl Conversation {
    /// Returns whether a tool is approved for the rest of the session.
    pub(crate) fn always_approves(&self, tool: &str) -> bool {
        self.ways.approved.lock().get(&self.uri).is_some_and(|tools| tools.contains(tool))
    }
}

/// Emits until the turn is stopped or over.
pub(crate) struct Turn {
    pub conversation: Arc<Conversation>,
    pub id: String,
    /// Its additional context.
    context: Option<String>,
    begun: Instant,
    stop: watch::Receiver<Option<String>>,
}

/// Why a turn ends early.
pub(crate) enum Stopped {
    Cancelled,
    Failed(String),
}

impl From<Thrown> for Stopped {
    fn from(thrown: Thrown) -> Self {
        Self::Failed(thrown.message)
    }
}

pub(crate) fn session(start: Start, ways: Ways) -> AgentSession {
    let stops_lead = ways.stops_lead;
    let delay = start.settings.get("delayMs").and_then(Value::as_u64).unwrap_or_default();
    let conversation = Arc::new(Conversation {
        uri: start.uri,
        chat_uri: start.chat_uri,
        first: start.chat_id.is_none(),
        emit: start.emit,
        subagent: start.subagent,
        read: start.read,
        client_settings: start.client_settings,
        tools: Mutex::new(start.tools.unwrap_or_default()),
        context: Mutex::new(start.context),
        ways,
        delay: AtomicU64::new(delay),
        waiting: Mutex::default(),
        stop: watch::Sender::new(None),
    });
    let with = || conversation.clone();
    let (begun, cancelled, confirmed, answered, tooled, ran, set, stopped, closed) =
        (with(), with(), with(), with(), with(), with(), with(), with(), with());
    AgentSession {
        begin: Call::now(move |(turn, text, ..): Begin| {
            let script = Script::read(&text);
            if let Script::Throw(why) = script {
                return Err(Thrown::new(why));
            }
            tokio::spawn(Turn::new(&begun, turn).run(script));
            Ok(())
        }),
        cancel: Call::now(move |(turn,): (String,)| {
            cancelled.stop.send_replace(Some(turn));
            Ok(())
        }),
        confirm: Some(Call::now(move |(call, approved, option): (String, bool, Option<String>)| {
            if let Some(waiting) = confirmed.waiting.lock().approvals.remove(&call) {
                let _ = waiting.send((approved, option));
            }
            Ok(())
        })),
        stop_worker: (!stops_lead).then(|| {
            Call::now(move |(call,): (String,)| {
                if let Some(worker) = stopped.waiting.lock().workers.remove(&call) {
                    let _ = worker.send(());
                }
                Ok(())
            })
        }),
        answer: Some(Call::now(
            move |(request, accepted, answers, _): (
                String,
                bool,
                BTreeMap<String, ChatInputAnswer>,
                String,
            )| {
                let Some(waiting) = answered.waiting.lock().answers.remove(&request) else {
                    return Ok(false);
                };
                Ok(waiting.send(accepted.then(|| text_of(&answers))).is_ok())
            },
        )),
        set_tools: Some(Call::now(move |(tools,): (Vec<BoundTool>,)| {
            *tooled.tools.lock() = tools;
            Ok(true)
        })),
        complete_tool_call: Some(Call::now(move |(call, _, result): (String, String, Value)| {
            let waiting = ran.waiting.lock().results.remove(&call);
            Ok(waiting.is_some_and(|waiting| waiting.send(result).is_ok()))
        })),
        set_config: Some(Call::now(move |(key, value): (String, Value)| {
            match (key.as_str(), value.as_u64()) {
                ("delayMs", Some(delay)) => {
                    set.delay.store(delay, Ordering::Relaxed);
                    Ok(Value::Bool(true))
                }
                _ => Ok("delayMs must be an integer number of milliseconds".into()),
            }
        })),
        close: Call::now(move |(removing,)| {
            if removing == Some(true) && closed.first {
                closed.ways.approved.lock().remove(&closed.uri);
            }
            closed.stop.send_replace(Some(String::new()));
            Ok(())
        }),
        ..AgentSession::default()
    }
}

/// Returns the text of an answer to any question.
fn text_of(answers: &BTreeMap<String, ChatInputAnswer>) -> String {
    let answer = answers.values().next().and_then(|answer| serde_json::to_value(answer).ok());
    let value = answer.as_ref().and_then(|answer| answer.pointer("/value/value"));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "nothing".to_owned(),
    }
}

impl Turn {
    fn new(conversation: &Arc<Conversation>, id: String) -> Self {
        let mut stop = conversation.stop.subscribe();
        // A stop of an earlier turn does not apply to this one.
        stop.mark_unchanged();
        let context = conversation.context.lock().take();
        Self { conversation: conversation.clone(), id, context, begun: Instant::now(), stop }
    }

    async fn run(mut self, script: Script) {
        let outcome = self.play(script).await;
        let duration = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or_default();
        let last = match outcome {
            Ok(()) => json!({ "type": "chat/turnComplete", "turnId": self.id, "duration": duration }),
            Err(Stopped::Cancelled) => {
                json!({ "type": "chat/turnCancelled", "turnId": self.id, "duration": duration })
            }
            Err(Stopped::Failed(why)) => {
                json!({ "type": "chat/error", "turnId": self.id, "duration": duration,
                    "part": { "kind": "error", "error": { "errorType": "echo", "message": why } } })
            }
        };
        let _ = self.emit(Emit::Chat, last);
    }

    async fn play(&mut self, script: Script) -> Result<(), Stopped> {
        match script {
            Script::Say(text) => self.say("answer", &text).await,
            Script::Fail(why) | Script::Throw(why) => Err(Stopped::Failed(why)),
            Script::Slow(wait, text) => {
                self.wait(tokio::time::sleep(wait)).await?;
                self.say("answer", &text).await
            }
            Script::Think(text) => {
                self.emit(
                    Emit::Chat,
                    json!({ "type": "chat/responsePart", "turnId": self.id,
                    "part": { "kind": "reasoning", "id": "thought", "content": "" } }),
                )?;
                for word in words(&text) {
                    self.emit(
                        Emit::Chat,
                        json!({ "type": "chat/reasoning", "turnId": self.id,
                        "partId": "thought", "content": word }),
                    )?;
                    self.pause().await?;
                }
                self.say("answer", "Done thinking.").await
            }
            Script::Heard(text) => {
                let heard = [self.context.take(), Some(text).filter(|text| !text.is_empty())];
                let heard = heard.into_iter().flatten().collect::<Vec<_>>().join("\n\n");
                self.say("answer", &heard).await
            }
            Script::Words(count) => {
                self.open("answer")?;
                for at in 0..count {
                    self.add_in_time("answer", &format!("word {at} ")).await?;
                    if at % 64 == 63 {
                        self.pause().await?;
                    }
                }
                Ok(())
            }
            Script::Read(uri) => self.read(&uri).await,
            Script::Settings => self.say_settings().await,
            Script::Hang => self.wait(std::future::pending::<()>()).await,
            Script::Tool { name, input, confirm } => self.tool(&name, input, confirm).await,
            Script::Ask(question) => self.ask(&question).await,
            Script::Worker(prompt) => self.have_worked(&prompt).await,
        }
    }

    pub(crate) fn emit(&self, channel: Emit, action: Value) -> Result<(), Thrown> {
        let action = actions::read(action).map_err(Thrown::new)?;
        self.conversation.emit.call((channel, action))
    }

    fn open(&self, part: &str) -> Result<(), Thrown> {
        self.emit(
            Emit::Chat,
            json!({ "type": "chat/responsePart", "turnId": self.id,
            "part": { "kind": "markdown", "id": part, "content": "" } }),
        )
    }

    fn add(&self, part: &str, content: &str) -> Result<(), Thrown> {
        use ostler_contract::wire::actions::ChatDeltaAction;
        let delta = ChatDeltaAction {
            turn_id: self.id.clone(),
            part_id: part.to_owned(),
            content: content.to_owned(),
            meta: None,
        };
        self.conversation.emit.call((Emit::Chat, StateAction::ChatDelta(delta)))
    }

    /// Appends to a part, as soon as the host has handled enough of the earlier text.
    async fn add_in_time(&mut self, part: &str, content: &str) -> Result<(), Stopped> {
        loop {
            match self.add(part, content) {
                Err(thrown) if thrown.name == "QuotaExceededError" => {
                    self.wait(tokio::time::sleep(Duration::from_millis(1))).await?;
                }
                added => return Ok(added?),
            }
        }
    }

    pub(crate) async fn say(&mut self, part: &str, text: &str) -> Result<(), Stopped> {
        self.open(part)?;
        for word in words(text) {
            self.add(part, word)?;
            self.pause().await?;
        }
        Ok(())
    }

    /// Yields to other tasks, and ends if the turn was stopped.
    async fn pause(&mut self) -> Result<(), Stopped> {
        match self.conversation.delay.load(Ordering::Relaxed) {
            0 => self.wait(tokio::task::yield_now()).await,
            delay => self.wait(tokio::time::sleep(Duration::from_millis(delay))).await,
        }
    }

    pub(crate) async fn wait<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Stopped> {
        let mine =
            |stopped: &Option<String>| stopped.as_ref().is_some_and(|id| id.is_empty() || *id == self.id);
        let mut stop = self.stop.clone();
        let stopped = async {
            loop {
                if stop.changed().await.is_err() || mine(&stop.borrow_and_update()) {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = stopped => Err(Stopped::Cancelled),
            outcome = what => Ok(outcome),
        }
    }

    async fn ask(&mut self, question: &str) -> Result<(), Stopped> {
        let id = format!("{}-question", self.id);
        let (answer, answered) = oneshot::channel();
        self.conversation.waiting.lock().answers.insert(id.clone(), answer);
        let request = json!({ "id": id, "message": question,
            "questions": [{ "kind": "text", "id": "answer", "message": question, "required": true }] });
        self.emit(Emit::Chat, json!({ "type": "chat/inputRequested", "request": request }))?;
        self.emit(
            Emit::Session,
            json!({ "type": "session/inputNeededSet", "request": {
            "kind": "chatInput", "id": id, "chat": self.conversation.chat_uri, "request": request } }),
        )?;
        match self.wait(answered).await? {
            Ok(Some(text)) => self.say("answer", &format!("You said: {text}")).await,
            _ => self.say("answer", "You did not say.").await,
        }
    }
}

/// The maximum number of pieces of a text.
const MOST_PIECES: usize = 4096;

/// Splits a text into words with their trailing spaces; a long text into groups of words that a space or a line break
/// ends.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let least = text.len() / MOST_PIECES;
    let mut rest = text;
    std::iter::from_fn(move || {
        let from = rest.ceil_char_boundary(least);
        let end = match least {
            0 => rest.find(char::is_whitespace),
            // A long word takes a tenth of the time of the above.
            _ => memchr::memchr2(b' ', b'\n', &rest.as_bytes()[from..]).map(|at| from + at),
        };
        let end = end.map_or(rest.len(), |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
        let (piece, more) = rest.split_at(end);
        rest = more;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_together_are_the_text() {
        for text in ["", "one", "two words", " a  b ", "é\u{2003}ü\n"] {
            let split: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
            assert_eq!(words(text).collect::<Vec<_>>(), split, "{text:?}");
        }
        let long = "wörd ".repeat(100_000);
        let pieces: Vec<&str> = words(&long).collect();
        assert!(pieces.len() <= MOST_PIECES && pieces.iter().all(|piece| piece.ends_with(' ')));
        assert_eq!(pieces.concat(), long);
    }
}
