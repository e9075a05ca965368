//! The plugin's connection: reading bots, sending turns, and waiting for their echo and their end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::host::Peer;
use ostler_contract::protocol::error::code;
use ostler_contract::{Call, PluginHost, Thrown, Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::heard::{self, Heard, Rejected, Waiting, lock};
use crate::turn::{Ended, TurnPhase, find};

/// How long a call waits for the echo of its turn.
const ECHO_LIMIT: Duration = Duration::from_secs(10);
/// How often the connection is checked while a call waits for its echo.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long an echo can be on its way after the connection was closed.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// How often a turn is checked whose end was not reported.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long a turn is searched for that cannot be sent again.
pub(crate) const SEARCHED: Duration = Duration::from_secs(600);
/// How many of the newest turns are searched first.
const NEWEST: u32 = 20;
/// How the client id of the plugin begins.
const CLIENT: &str = "webhook";
const ROOT: &str = ostler_contract::protocol::uri::ROOT;

/// A chat of the plugin with a bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chat {
    pub uri: String,
    /// Its session's URI.
    pub session: String,
}

/// How the host accepted a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnAcceptance {
    /// It runs, or waits for the running one.
    Accepted,
    /// The host had it already.
    Known(TurnPhase),
    /// The host has not confirmed it yet.
    Unheard,
}

/// Whether a turn was sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentBefore {
    /// Its id is new.
    Never,
    /// Its id is that of a delivery, which an earlier start may have sent.
    Perhaps,
    /// It was, and the outcome is unknown.
    Yes,
}

/// Why the host did not accept a turn.
#[derive(Debug)]
pub(crate) enum TurnRejection {
    /// The chat no longer exists.
    Gone(String),
    /// The host refuses the turn.
    Refused(String),
    /// The host failed, so the same turn can be sent again. It can have been stored.
    Failed(String),
}

impl From<Thrown> for TurnRejection {
    fn from(why: Thrown) -> Self {
        match is_failure(&why) {
            true => Self::Failed(why.message),
            false => Self::Gone(why.message),
        }
    }
}

/// Whether the host failed, and did not refuse.
pub(crate) fn is_failure(why: &Thrown) -> bool {
    why.rpc.as_ref().is_none_or(|rpc| rpc.code == code::INTERNAL_ERROR)
}

/// The answer to a dispatched action.
enum Echo {
    /// The host accepted it.
    Accepted,
    /// The host refuses it, for this reason.
    Refused(String),
    /// The host failed for this reason.
    Failed(String),
    /// The connection was lost first.
    Lost(String),
    /// There is none in time.
    Missing,
}

impl Echo {
    fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted)
    }
}

/// The connection, opened with the first call and again after it was lost.
#[derive(Debug)]
pub(crate) struct HostConnection {
    host: PluginHost,
    /// Its client id. Plugins of other hosts call the same chats, and echoes name the client and its number of the action.
    client: String,
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
    next: AtomicI64,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug)]
struct Line {
    peer: Peer,
    /// The chats with waiting calls, to which it is subscribed.
    watched: Mutex<HashMap<String, Subscription>>,
    /// Whether a task checks the connection for the waiting calls.
    is_checked: AtomicBool,
}

#[derive(Debug, Default)]
struct Subscription {
    /// The number of waiting calls.
    holders: usize,
    /// Whether the host has confirmed the subscription.
    confirmed: bool,
}

/// A reference to the subscription of a chat. Dropping the last one unsubscribes, so that the chat's session can sleep.
#[derive(Debug)]
pub(crate) struct Watched {
    line: Arc<Line>,
    chat: String,
}

impl Watched {
    fn of(line: &Arc<Line>, chat: &str) -> Self {
        lock(&line.watched).entry(chat.to_owned()).or_default().holders += 1;
        Self { line: line.clone(), chat: chat.to_owned() }
    }

    fn confirmed(&self) -> bool {
        lock(&self.line.watched).get(&self.chat).is_some_and(|subscription| subscription.confirmed)
    }

    fn confirm(&self) {
        if let Some(subscription) = lock(&self.line.watched).get_mut(&self.chat) {
            subscription.confirmed = true;
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watched = lock(&self.line.watched);
        let Some(subscription) = watched.get_mut(&self.chat) else { return };
        subscription.holders -= 1;
        if subscription.holders == 0 {
            watched.remove(&self.chat);
            // Sent under the lock, so that it arrives before the next subscribe. A lost connection has no
            // subscriptions.
            let params = json!({ "channel": self.chat });
            let _ = self.line.peer.notify.call(("unsubscribe".to_owned(), params.as_object().cloned()));
        }
    }
}

impl HostConnection {
    pub fn new(host: PluginHost) -> Self {
        let client = format!("{CLIENT}-{}", uuid::Uuid::new_v4());
        Self {
            host,
            client,
            line: tokio::sync::Mutex::default(),
            next: AtomicI64::new(1),
            heard: Arc::default(),
        }
    }

    /// Reads a bot with the chat of a key and the model of its turns; `None` if the answer contains no chat.
    pub async fn chat_with(&self, bot: &str, key: &str) -> Result<Option<(Chat, Option<String>)>, Thrown> {
        let uri = format!("{bot}?chat={key}");
        let read = self.request("resourceRead", json!({ "channel": ROOT, "uri": uri })).await;
        // Errors name the bot, because callers do not know the chat.
        let read = read.map_err(|why| Thrown { message: why.message.replace(&uri, bot), ..why })?;
        let data = read.get("data").and_then(Value::as_str).unwrap_or_default();
        let record: Value = serde_json::from_str(data)
            .map_err(|_| Thrown::new(format_args!("{bot} did not return a record")))?;
        let text = |field: &Value| field.as_str().map(str::to_owned);
        let Some((uri, session)) = text(&record["chat"]["uri"]).zip(text(&record["chat"]["session"])) else {
            return Ok(None);
        };
        // A preset has its own model; a bot that does not answer has none.
        let own = record["answers"] == true && record["preset"].is_null();
        Ok(Some((Chat { uri, session }, text(&record["model"]).filter(|_| own))))
    }

    /// Sends a turn and waits for the host's echo. In a chat with a running turn it is queued. `waiting` receives the
    /// chat's actions from then on. A turn that was sent before is accepted if the host has it.
    pub async fn send(
        &self,
        waiting: &mut Waiting,
        chat: &str,
        turn: &str,
        message: &Value,
        sent_before: SentBefore,
    ) -> Result<TurnAcceptance, TurnRejection> {
        let until = Instant::now() + ECHO_LIMIT;
        let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": message });
        // Both are sent concurrently, because a busy session answers them together.
        let watch = tokio::time::timeout_at(until, self.watch(chat));
        let (watched, mut echo) = tokio::join!(watch, self.dispatch(chat, &started, until));
        match watched {
            Ok(Ok(watched)) => waiting.watched = Some(watched),
            Ok(Err(why)) if matches!(echo, Echo::Refused(_)) || !is_failure(&why) && !echo.is_accepted() => {
                return Err(why.into());
            }
            // The first check of the turn subscribes.
            Ok(Err(_)) | Err(_) => {}
        }
        for last in [false, true] {
            let why = match echo {
                Echo::Refused(why) => why,
                echo => return self.accepted(waiting, chat, turn, echo, until).await,
            };
            let newest = if sent_before == SentBefore::Never { 1 } else { NEWEST };
            let (_, state) = self.read(chat, newest).await?;
            let is_idle = state["activeTurn"].is_null();
            let phase = match (find(&state, turn), sent_before) {
                (TurnPhase::Nowhere, SentBefore::Yes) => self.look(waiting, chat, turn).await,
                // The turn may be refused because there was one with this id.
                (TurnPhase::Nowhere, SentBefore::Perhaps) if last && is_idle => {
                    self.look(waiting, chat, turn).await
                }
                (phase, _) => phase,
            };
            match phase {
                TurnPhase::Ended(_) | TurnPhase::Goes => return Ok(waiting.known(phase)),
                TurnPhase::Unknown => return Err(TurnRejection::Failed(why)),
                TurnPhase::Nowhere | TurnPhase::Gone => {}
            }
            if !is_idle {
                let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": turn, "message": message });
                let echo = self.dispatch(chat, &queued, until).await;
                return self.accepted(waiting, chat, turn, echo, until).await;
            }
            // A turn that has ended in the meantime may have caused the rejection, so try once more.
            if last {
                return Err(TurnRejection::Refused(why));
            }
            echo = self.dispatch(chat, &started, until).await;
        }
        Ok(TurnAcceptance::Unheard)
    }

    /// Returns what an echo says of a turn. If the connection was lost first, the host is asked for the turn.
    async fn accepted(
        &self,
        waiting: &mut Waiting,
        chat: &str,
        turn: &str,
        echo: Echo,
        until: Instant,
    ) -> Result<TurnAcceptance, TurnRejection> {
        let why = match echo {
            Echo::Accepted => return Ok(TurnAcceptance::Accepted),
            Echo::Missing => return Ok(TurnAcceptance::Unheard),
            Echo::Refused(why) => return Err(TurnRejection::Refused(why)),
            Echo::Failed(why) => return Err(TurnRejection::Failed(why)),
            Echo::Lost(why) => why,
        };
        match tokio::time::timeout_at(until, self.look(waiting, chat, turn)).await {
            Ok(phase) if phase.is_there() => Ok(waiting.known(phase)),
            Ok(_) => Err(TurnRejection::Failed(why)),
            Err(_) => Ok(TurnAcceptance::Unheard),
        }
    }

    /// Waits for the end of a turn that the host has confirmed.
    pub async fn end_of(&self, waiting: Waiting, chat: &str, turn: &str) -> Ended {
        self.end(waiting, chat, turn, true).await
    }

    /// Like [`HostConnection::end_of`], for a turn of an earlier start, which may have ended. One of which it is not known that the
    /// host accepted it is searched for first: a repeated delivery may start it.
    pub async fn end_of_earlier(&self, chat: &str, turn: &str, was_accepted: bool) -> Ended {
        let mut waiting = self.wait_for(turn);
        waiting.look_now();
        self.end(waiting, chat, turn, was_accepted).await
    }

    async fn end(&self, mut waiting: Waiting, chat: &str, turn: &str, mut was_accepted: bool) -> Ended {
        let mut missing_since = None;
        loop {
            if let Some(watched) = &waiting.watched {
                self.check(&watched.line);
            }
            let _ = tokio::time::timeout(LOOK_EVERY, waiting.changed()).await;
            match self.look(&mut waiting, chat, turn).await {
                TurnPhase::Ended(ended) => return ended,
                TurnPhase::Gone => return Ended::without_session(),
                TurnPhase::Nowhere if was_accepted || waiting.was_shown() => return Ended::withdrawn(),
                TurnPhase::Nowhere => {
                    if missing_since.get_or_insert_with(Instant::now).elapsed() > SEARCHED {
                        return Ended::missing();
                    }
                }
                TurnPhase::Goes => was_accepted = true,
                TurnPhase::Unknown => {}
            }
        }
    }

    /// Lets the host load a chat, which starts the messages that wait in its queue.
    pub async fn load(&self, chat: &str) {
        drop(self.read(chat, 1).await);
    }

    /// Starts to listen for a turn's end; call it before the turn is sent.
    pub fn wait_for(&self, turn: &str) -> Waiting {
        Waiting::new(&self.heard, turn)
    }

    /// Lets the waiting calls look for their turns once a connection is lost, for as long as there are any. A host disconnects
    /// the plugin when a session moves to another one.
    fn check(&self, line: &Arc<Line>) {
        if line.is_checked.swap(true, Ordering::AcqRel) {
            return;
        }
        let (line, heard) = (line.clone(), self.heard.clone());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(CHECK_EVERY).await;
                {
                    let heard = lock(&heard);
                    if !heard.is_awaited() {
                        // Under the lock: a call that begins to wait after this starts another task.
                        return line.is_checked.store(false, Ordering::Release);
                    }
                }
                if is_closed(&line).await {
                    return lock(&heard).wake_all();
                }
            }
        });
    }

    /// Returns the phase of a turn. `waiting` receives the chat's actions from then on.
    pub async fn look(&self, waiting: &mut Waiting, chat: &str, turn: &str) -> TurnPhase {
        for newest in [NEWEST, u32::MAX] {
            loop {
                let state = match self.read(chat, newest).await {
                    Ok((watched, state)) => {
                        waiting.watched = Some(watched);
                        state
                    }
                    // The store cannot be read, or the connection was lost; the next check uses another one.
                    Err(why) if is_failure(&why) => return TurnPhase::Unknown,
                    Err(_) => return TurnPhase::Gone,
                };
                match find(&state, turn) {
                    TurnPhase::Nowhere => break,
                    // It may have ended before its id was known.
                    TurnPhase::Goes if waiting.runs_as(&state["activeTurn"], turn) => {}
                    found => return found,
                }
            }
        }
        TurnPhase::Nowhere
    }

    /// Subscribes to a chat and returns its state with its newest turns.
    async fn read(&self, chat: &str, newest: u32) -> Result<(Watched, Value), Thrown> {
        let params = match newest {
            u32::MAX => json!({ "channel": chat }),
            newest => json!({ "channel": chat, "view": { "turns": newest } }),
        };
        let (watched, mut subscribed) =
            self.request_with("subscribe", params, |line| Watched::of(line, chat)).await?;
        watched.confirm();
        Ok((watched, subscribed["snapshot"]["state"].take()))
    }

    /// Subscribes to a chat, unless another call is subscribed to it.
    async fn watch(&self, chat: &str) -> Result<Watched, Thrown> {
        let watched = Watched::of(&self.line().await?, chat);
        match watched.confirmed() {
            true => Ok(watched),
            false => self.read(chat, 1).await.map(|(watched, _)| watched),
        }
    }

    /// Dispatches an action and waits for its echo.
    async fn dispatch(&self, chat: &str, action: &Value, until: Instant) -> Echo {
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        let (echo, mut wait) = oneshot::channel();
        lock(&self.heard).echoes.insert(seq, echo);
        let params = json!({ "channel": chat, "clientSeq": seq, "action": action });
        let line = match self.notify("dispatchAction", &params).await {
            Ok(line) => line,
            Err(why) => {
                lock(&self.heard).echoes.remove(&seq);
                return Echo::Failed(why.message);
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = &mut wait => outcome.ok(),
            () = closed(&line) => {
                self.lost(&line).await;
                tokio::time::timeout(ON_ITS_WAY, &mut wait).await.ok().and_then(Result::ok)
            }
            () = tokio::time::sleep_until(until) => {
                lock(&self.heard).echoes.remove(&seq);
                let after = ECHO_LIMIT.as_secs();
                let _ = self.host.log(format!(
                    "the turn in {chat} was not echoed within {after} seconds; the call continues"
                ));
                return Echo::Missing;
            }
        };
        lock(&self.heard).echoes.remove(&seq);
        match outcome {
            Some(Ok(())) => Echo::Accepted,
            Some(Err(Rejected { why, is_retryable: true })) => Echo::Failed(why),
            Some(Err(Rejected { why, is_retryable: false })) => Echo::Refused(why),
            None => Echo::Lost("the host disconnected the plugin before it confirmed the turn".to_owned()),
        }
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value, Thrown> {
        self.request_with(method, params, |_| ()).await.map(|((), answer)| answer)
    }

    /// Sends a request, and again over a new connection if this one was lost. `before` is called with the connection
    /// before the request is sent; its result lives until the answer, also if this future is dropped.
    async fn request_with<T: Send + 'static>(
        &self,
        method: &str,
        params: Value,
        before: impl Fn(&Arc<Line>) -> T,
    ) -> Result<(T, Value), Thrown> {
        for last in [false, true] {
            let line = self.line().await?;
            let with = before(&line);
            let asked = line.peer.request.call((method.to_owned(), params.as_object().cloned()));
            let answered = tokio::spawn(async move { (with, asked.await) }).await;
            let (with, answer) = answered.map_err(|_| Thrown::new("the host is closing"))?;
            match answer {
                Err(why) if why.rpc.is_none() && !last => self.lost(&line).await,
                answer => return answer.map(|answer| (with, answer)),
            }
        }
        Err(Thrown::new("the connection was lost"))
    }

    /// Sends a notification; over a new connection if this one was lost. Returns the connection.
    async fn notify(&self, method: &str, params: &Value) -> Result<Arc<Line>, Thrown> {
        let line = self.line().await?;
        if line.peer.notify.call((method.to_owned(), params.as_object().cloned())).is_ok() {
            return Ok(line);
        }
        self.lost(&line).await;
        let line = self.line().await?;
        line.peer.notify.call((method.to_owned(), params.as_object().cloned()))?;
        Ok(line)
    }

    /// Drops a lost connection.
    async fn lost(&self, line: &Arc<Line>) {
        let mut held = self.line.lock().await;
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, line)) {
            *held = None;
        }
    }

    async fn line(&self) -> Result<Arc<Line>, Thrown> {
        let mut held = self.line.lock().await;
        if let Some(line) = &*held {
            return Ok(line.clone());
        }
        let peer = self.host.connect()?;
        let (heard, client) = (self.heard.clone(), self.client.clone());
        peer.on_message.call((Call::now(move |(message,): (Value,)| {
            heard::hear(&heard, &client, &message);
            Ok(())
        }),))?;
        let hello = json!({ "channel": ROOT, "clientId": self.client, "protocolVersions": ["0.9.0"] });
        peer.request.call(("initialize".to_owned(), hello.as_object().cloned())).await?;
        let line = Arc::new(Line { peer, watched: Mutex::default(), is_checked: AtomicBool::new(false) });
        *held = Some(line.clone());
        Ok(line)
    }
}

/// Waits until a connection is closed.
async fn closed(line: &Line) {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        if is_closed(line).await {
            return;
        }
    }
}

/// Whether a connection is closed, which a request finds out.
async fn is_closed(line: &Line) -> bool {
    let ping = json!({ "channel": ROOT });
    let answer = line.peer.request.call(("ping".to_owned(), ping.as_object().cloned())).await;
    answer.is_err_and(|why| why.rpc.is_none())
}
