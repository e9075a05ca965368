//! The plugin's connection: reading bots, sending turns, and waiting for their echo and their end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_contract::host::Peer;
use ostler_contract::{Call, PluginHost, Thrown, Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::turn::{Ended, TurnPhase, find};

/// How long a call waits for the echo of its turn.
const ECHO_LIMIT: Duration = Duration::from_secs(10);
/// How often a turn is checked whose end was not reported.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long an unconfirmed turn is searched for.
const UNHEARD_LIMIT: Duration = Duration::from_secs(600);
/// How many of the newest turns are searched first.
const NEWEST: u32 = 20;
/// The client id of the plugin.
const CLIENT: &str = "webhook";
const ROOT: &str = ostler_contract::protocol::uri::ROOT;

/// A chat of the plugin with a bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chat {
    /// The chat's URI.
    pub uri: String,
    /// Its session's URI.
    pub session: String,
}

/// How the host accepted a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnAcceptance {
    /// It runs, or waits for the running one.
    Accepted,
    /// The host has not confirmed it yet.
    Unheard,
}

/// Why the host rejected a turn.
#[derive(Debug)]
pub(crate) enum TurnRejection {
    /// The chat no longer exists.
    Gone(String),
    /// Anything else.
    Refused(String),
}

/// The connection, opened with the first call and again after it was lost.
#[derive(Debug)]
pub(crate) struct HostConnection {
    host: PluginHost,
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
    next: AtomicI64,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug)]
struct Line {
    peer: Peer,
    /// The chats with waiting calls, to which it is subscribed.
    watched: Mutex<HashMap<String, Subscription>>,
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
struct Watched {
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

/// The waiting calls.
#[derive(Debug, Default)]
struct Heard {
    /// By sequence number of the action: whether the host accepted it, or why not.
    echoes: HashMap<i64, oneshot::Sender<Result<(), String>>>,
    /// By turn.
    ends: HashMap<String, Arc<Notify>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostConnection {
    pub fn new(host: PluginHost) -> Self {
        Self { host, line: tokio::sync::Mutex::default(), next: AtomicI64::new(1), heard: Arc::default() }
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
    /// chat's actions from then on.
    pub async fn send(
        &self,
        waiting: &mut Waiting,
        chat: &str,
        turn: &str,
        message: &Value,
    ) -> Result<TurnAcceptance, TurnRejection> {
        let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": message });
        // Both are sent concurrently, because a busy session answers them together.
        let watch = tokio::time::timeout(ECHO_LIMIT, self.watch(chat));
        let (watched, dispatched) = tokio::join!(watch, self.dispatch(chat, &started));
        match watched {
            Ok(Ok(watched)) => waiting.watched = Some(watched),
            Ok(Err(why)) if !matches!(dispatched, Ok(Ok(()))) => {
                return Err(match why.rpc {
                    Some(_) => TurnRejection::Gone(why.message),
                    None => TurnRejection::Refused(why.message),
                });
            }
            // The first check of the turn subscribes.
            Ok(Err(_)) | Err(_) => {}
        }
        let mut dispatched = Some(dispatched);
        for last in [false, true] {
            let dispatched = match dispatched.take() {
                Some(dispatched) => dispatched,
                None => self.dispatch(chat, &started).await,
            };
            let Err(why) = dispatched? else { return Ok(TurnAcceptance::Accepted) };
            let Some(why) = why else { return Ok(TurnAcceptance::Unheard) };
            let (_, state) = self.read(chat, 1).await.map_err(|why| TurnRejection::Gone(why.message))?;
            if !state["activeTurn"].is_null() {
                let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": turn, "message": message });
                return match self.dispatch(chat, &queued).await? {
                    Ok(()) => Ok(TurnAcceptance::Accepted),
                    Err(None) => Ok(TurnAcceptance::Unheard),
                    Err(Some(why)) => Err(TurnRejection::Refused(why)),
                };
            }
            // A turn that has ended in the meantime may have caused the rejection, so try once more.
            if last {
                return Err(TurnRejection::Refused(why));
            }
        }
        Ok(TurnAcceptance::Unheard)
    }

    /// Waits for the end of a turn. `sure` means that the host has confirmed it.
    pub async fn end_of(&self, mut waiting: Waiting, chat: &str, turn: &str, sure: bool) -> Ended {
        let began = Instant::now();
        loop {
            let _ = tokio::time::timeout(LOOK_EVERY, waiting.notify.notified()).await;
            match self.look(&mut waiting, chat, turn).await {
                TurnPhase::Ended(ended) => return ended,
                TurnPhase::Nowhere if sure => return Ended::withdrawn(),
                TurnPhase::Nowhere if began.elapsed() > UNHEARD_LIMIT => {
                    return Ended::failed("the host did not accept the turn");
                }
                TurnPhase::Nowhere | TurnPhase::Goes => {}
            }
        }
    }

    /// Like [`HostConnection::end_of`], for a turn that may already have ended.
    pub async fn end_of_old(&self, chat: &str, turn: &str) -> Ended {
        let mut waiting = self.wait_for(turn);
        match self.look(&mut waiting, chat, turn).await {
            TurnPhase::Ended(ended) => ended,
            TurnPhase::Nowhere => Ended::withdrawn(),
            TurnPhase::Goes => self.end_of(waiting, chat, turn, true).await,
        }
    }

    /// Starts the queued messages of an idle chat, which remain after the host ended.
    pub async fn go_on(&self, chat: &str) {
        let Ok((_watched, state)) = self.read(chat, 1).await else { return };
        let waiting = &state["queuedMessages"][0];
        if !state["activeTurn"].is_null() || waiting.is_null() {
            return;
        }
        let (id, message) = (&waiting["id"], &waiting["message"]);
        let again =
            json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message });
        let _ = self.dispatch(chat, &again).await;
    }

    /// Starts to listen for a turn's end; call it before the turn is sent.
    pub fn wait_for(&self, turn: &str) -> Waiting {
        let notify = lock(&self.heard).ends.entry(turn.to_owned()).or_default().clone();
        Waiting { notify, heard: self.heard.clone(), watched: None }
    }

    /// Returns the phase of a turn. `waiting` receives the chat's actions from then on.
    async fn look(&self, waiting: &mut Waiting, chat: &str, turn: &str) -> TurnPhase {
        for newest in [NEWEST, u32::MAX] {
            let state = match self.read(chat, newest).await {
                Ok((watched, state)) => {
                    waiting.watched = Some(watched);
                    state
                }
                Err(why) if why.rpc.is_some() => {
                    return TurnPhase::Ended(Ended::failed("the session ended before the turn"));
                }
                // The connection was lost; the next check uses another one.
                Err(_) => return TurnPhase::Goes,
            };
            match find(&state, turn) {
                TurnPhase::Nowhere => {}
                found => return found,
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

    /// Dispatches an action; returns `Ok` once the host has accepted it, the reason of a rejection, or `None` without a
    /// reply.
    async fn dispatch(
        &self,
        chat: &str,
        action: &Value,
    ) -> Result<Result<(), Option<String>>, TurnRejection> {
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        let (echo, wait) = oneshot::channel();
        lock(&self.heard).echoes.insert(seq, echo);
        let params = json!({ "channel": chat, "clientSeq": seq, "action": action });
        if let Err(why) = self.notify("dispatchAction", &params).await {
            lock(&self.heard).echoes.remove(&seq);
            return Err(TurnRejection::Refused(why.message));
        }
        match tokio::time::timeout(ECHO_LIMIT, wait).await {
            Ok(Ok(Ok(()))) => Ok(Ok(())),
            Ok(Ok(Err(why))) => Ok(Err(Some(why))),
            Ok(Err(_)) | Err(_) => {
                lock(&self.heard).echoes.remove(&seq);
                let after = ECHO_LIMIT.as_secs();
                let _ = self.host.log(format!(
                    "the turn in {chat} was not echoed within {after} seconds; the call goes on"
                ));
                Ok(Err(None))
            }
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

    /// Sends a notification; over a new connection if this one was lost.
    async fn notify(&self, method: &str, params: &Value) -> Result<(), Thrown> {
        let line = self.line().await?;
        let sent = line.peer.notify.call((method.to_owned(), params.as_object().cloned()));
        if sent.is_ok() {
            return sent;
        }
        self.lost(&line).await;
        self.line().await?.peer.notify.call((method.to_owned(), params.as_object().cloned()))
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
        let heard = self.heard.clone();
        peer.on_message.call((Call::now(move |(message,): (Value,)| {
            hear(&heard, &message);
            Ok(())
        }),))?;
        let hello = json!({ "channel": ROOT, "clientId": CLIENT, "protocolVersions": ["0.9.0"] });
        peer.request.call(("initialize".to_owned(), hello.as_object().cloned())).await?;
        let line = Arc::new(Line { peer, watched: Mutex::default() });
        *held = Some(line.clone());
        Ok(line)
    }
}

/// A call that waits for a turn's end.
#[derive(Debug)]
pub(crate) struct Waiting {
    notify: Arc<Notify>,
    heard: Arc<Mutex<Heard>>,
    /// The subscription that delivers the turn's end.
    watched: Option<Watched>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.heard).ends.retain(|_, held| !Arc::ptr_eq(held, &self.notify));
    }
}

/// Handles one message of the host.
fn hear(heard: &Mutex<Heard>, message: &Value) {
    if message["method"] != "action" {
        return;
    }
    let (params, action) = (&message["params"], &message["params"]["action"]);
    let mut heard = lock(heard);
    if params["origin"]["clientId"] == CLIENT
        && let Some(echo) = params["origin"]["clientSeq"].as_i64().and_then(|seq| heard.echoes.remove(&seq))
    {
        let _ = echo.send(match params["rejectionReason"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(()),
        });
    }
    let text = |field: &str| action[field].as_str();
    match (text("type"), text("turnId")) {
        (Some("chat/turnStarted"), Some(turn)) => {
            // The queued message is now a turn, with an id from the host.
            if let Some(waiting) = text("queuedMessageId").and_then(|id| heard.ends.get(id).cloned()) {
                heard.ends.insert(turn.to_owned(), waiting);
            }
        }
        (Some("chat/turnComplete" | "chat/turnCancelled" | "chat/error"), Some(turn)) => {
            if let Some(waiting) = heard.ends.get(turn) {
                waiting.notify_one();
            }
        }
        (Some("chat/pendingMessageRemoved"), _) => {
            if let Some(waiting) = text("id").and_then(|id| heard.ends.get(id)) {
                waiting.notify_one();
            }
        }
        _ => {}
    }
}
