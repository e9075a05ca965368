//! The plugin's own connection: reads of bots, turns sent, their echo and their end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_contract::host::Peer;
use ostler_contract::{Call, PluginHost, Thrown, Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::turn::{Ended, TurnPhase, find};

/// How long the host may take to echo a turn before the call goes on without.
const ECHO_LIMIT: Duration = Duration::from_secs(10);
/// How often a turn whose end nobody told of is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long a turn the host said nothing of is looked for.
const UNHEARD_LIMIT: Duration = Duration::from_secs(600);
/// How many of the newest turns are looked at first.
const NEWEST: u32 = 20;
/// Who the plugin is to the host.
const CLIENT: &str = "webhook";
const ROOT: &str = ostler_contract::protocol::uri::ROOT;

/// A chat the plugin has with a bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chat {
    /// The chat's URI.
    pub uri: String,
    /// Its session's.
    pub session: String,
}

/// How a turn was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnAcceptance {
    /// It runs, or waits for the one that does.
    Accepted,
    /// The host has said nothing yet.
    Unheard,
}

/// Why the host did not take one.
#[derive(Debug)]
pub(crate) enum TurnRejection {
    /// There is no such chat any more.
    Gone(String),
    /// Anything else.
    Refused(String),
}

/// The connection, opened with the first call and again where it was lost.
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
    /// The chats that calls are waiting in, each subscribed to on it.
    watched: Mutex<HashMap<String, Subscription>>,
}

#[derive(Debug, Default)]
struct Subscription {
    /// How many hold it.
    holders: usize,
    /// Whether the host has confirmed it.
    confirmed: bool,
}

/// A hold on the subscription to a chat. Dropping the last one unsubscribes, so that the chat's session can sleep.
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
            // Sent under the lock, so that it arrives before the next subscribe. A connection that was lost has none.
            let params = json!({ "channel": self.chat });
            let _ = self.line.peer.notify.call(("unsubscribe".to_owned(), params.as_object().cloned()));
        }
    }
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Heard {
    /// By the count of the action: whether the host took it, or why not.
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

    /// Reads a bot, and with it the chat of a key and the model a turn there names; nothing where the read
    /// answers no chat.
    pub async fn chat_with(&self, bot: &str, key: &str) -> Result<Option<(Chat, Option<String>)>, Thrown> {
        let uri = format!("{bot}?chat={key}");
        let read = self.request("resourceRead", json!({ "channel": ROOT, "uri": uri })).await;
        // Which chat is asked for is this plugin's matter; a caller knows the bot.
        let read = read.map_err(|why| Thrown { message: why.message.replace(&uri, bot), ..why })?;
        let data = read.get("data").and_then(Value::as_str).unwrap_or_default();
        let record: Value = serde_json::from_str(data)
            .map_err(|_| Thrown::new(format_args!("{bot} did not return a record")))?;
        let text = |field: &Value| field.as_str().map(str::to_owned);
        let Some((uri, session)) = text(&record["chat"]["uri"]).zip(text(&record["chat"]["session"])) else {
            return Ok(None);
        };
        // A preset brings a model of its own; a bot that does not answer has none.
        let own = record["answers"] == true && record["preset"].is_null();
        Ok(Some((Chat { uri, session }, text(&record["model"]).filter(|_| own))))
    }

    /// Sends a turn and waits for the host's echo. In a chat where one runs it waits for that one. `waiting` receives the
    /// chat's actions from then on.
    pub async fn send(
        &self,
        waiting: &mut Waiting,
        chat: &str,
        turn: &str,
        message: &Value,
    ) -> Result<TurnAcceptance, TurnRejection> {
        let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": message });
        // Both are sent at once: a session that is busy answers them together.
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
            // The first look at the turn subscribes.
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
            // A turn that ended meanwhile may have been in the way: once more, and then it is something else.
            if last {
                return Err(TurnRejection::Refused(why));
            }
        }
        Ok(TurnAcceptance::Unheard)
    }

    /// What a turn ends as, once it has. `sure` where the host is known to have it.
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

    /// As [`HostConnection::end_of`], for a turn that may have ended before anybody asked.
    pub async fn end_of_old(&self, chat: &str, turn: &str) -> Ended {
        let mut waiting = self.wait_for(turn);
        match self.look(&mut waiting, chat, turn).await {
            TurnPhase::Ended(ended) => ended,
            TurnPhase::Nowhere => Ended::withdrawn(),
            TurnPhase::Goes => self.end_of(waiting, chat, turn, true).await,
        }
    }

    /// Begins what waits in a chat where nothing runs: a host that went down left it waiting.
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

    /// Starts to listen for a turn's end; has to come before the turn is sent.
    pub fn wait_for(&self, turn: &str) -> Waiting {
        let notify = lock(&self.heard).ends.entry(turn.to_owned()).or_default().clone();
        Waiting { notify, heard: self.heard.clone(), watched: None }
    }

    /// Where a turn is. `waiting` receives the chat's actions from then on.
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
                // The connection was lost; the next look is over another one.
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

    /// Dispatches an action; answers `Ok` once the host took it, why not, or nothing where it was not heard.
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

    /// Sends a request; once more over a new connection if this one was lost. `before` is called for the connection
    /// before the request is sent on it; what it returns lives until the answer, also if this future is dropped.
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

    /// Leaves a connection that was lost.
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

/// Somebody waiting for a turn's end.
#[derive(Debug)]
pub(crate) struct Waiting {
    notify: Arc<Notify>,
    heard: Arc<Mutex<Heard>>,
    /// The subscription that carries the turn's end.
    watched: Option<Watched>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.heard).ends.retain(|_, held| !Arc::ptr_eq(held, &self.notify));
    }
}

/// Takes one message of the host.
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
            // What waited is a turn now, under a name of the host's.
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
