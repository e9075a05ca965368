//! A plugin's connection, in memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ostler_contract::host::Peer;
use ostler_contract::{Call, Func, HostFunction, JsonObject, Thrown, Value};
use ostler_engine_core::outbox::{Closed, Item, Outbox};
use ostler_engine_core::tasks;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::message::Params;
use ostler_protocol::origins::WayIn;
use ostler_protocol::{Id, Message, RpcError};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::front::Front;
use crate::front::connection::Connection;

type Listener = Call<fn(message: Value)>;
type Outcome = Result<Value, RpcError>;

/// How long an answer waits behind messages that the listener has not received.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Shared {
    pending: Mutex<HashMap<u64, PendingRequest>>,
    listener: Mutex<Option<Listener>>,
    next: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Notified when a message arrives in `inbox`.
    arrived: Notify,
}

/// A request of the plugin.
struct PendingRequest {
    answer: oneshot::Sender<Outcome>,
    /// The call of the listener that was running when it was sent, and can wait for it.
    during: Option<u64>,
}

/// The messages that the plugin has not received yet.
#[derive(Default)]
struct Inbox {
    queue: VecDeque<Delivery>,
    /// The size of the messages in `queue`.
    bytes: usize,
    /// The number of calls of the listener.
    calls: u64,
    /// The running call of the listener.
    listening: Option<u64>,
    /// Whether it runs for so long that answers no longer wait for it.
    is_late: bool,
    is_closed: bool,
}

enum Delivery {
    /// The message with its charge.
    Message(Message, usize, #[expect(dead_code, reason = "held for its charge")] Arc<Item>),
    Answer(u64, Outcome),
}

/// Opens a connection for a plugin.
pub(crate) fn open(front: &Arc<Front>, principal: Principal) -> Peer {
    let connection = Connection::open(front, principal, WayIn::Plugin);
    let shared = Arc::new(Shared::default());
    // `None` instead of a message means that the plugin closed its end; earlier messages are still handled.
    let (inbound, mut inbox) = mpsc::unbounded_channel::<Option<Message>>();
    let outbox = connection.outbox.clone();
    let most = front.core.options.outbox;
    let delivering = tasks::spawn(deliver(outbox.clone(), shared.clone(), most));
    tasks::spawn(listen(shared.clone()));
    tasks::spawn(async move {
        let receiving = async {
            while let Some(Some(message)) = inbox.recv().await {
                connection.receive_own(message).await;
            }
        };
        // The plugin drops its end, or either side closes.
        tokio::select! {
            () = receiving => {}
            _ = delivering => {}
        }
        connection.close();
    });
    let line = Line { inbound, outbox, closed: Arc::default() };
    let (requests, notifications) = (line.clone(), line.clone());
    let (for_request, for_listener) = (shared.clone(), shared);
    Peer {
        request: HostFunction::new(move |(method, params): (String, Option<JsonObject>)| {
            let sent = request(&requests, &for_request, method, params);
            async move {
                match sent?.await {
                    Ok(outcome) => outcome.map_err(Thrown::from),
                    Err(_) => Err(closed_peer()),
                }
            }
        }),
        notify: Func::new(move |(method, params): (String, Option<JsonObject>)| {
            let params = params_of(params)?;
            notifications.send(Message::Notification { method, params })
        }),
        on_message: Func::new(move |(listener,): (Listener,)| {
            *for_listener.listener.lock() = Some(listener);
            Ok(())
        }),
        close: Func::new(move |()| {
            line.close();
            Ok(())
        }),
    }
}

/// The plugin's end of a connection.
#[derive(Clone)]
struct Line {
    inbound: mpsc::UnboundedSender<Option<Message>>,
    outbox: Arc<Outbox>,
    closed: Arc<AtomicBool>,
}

impl Line {
    /// Sends a message; fails once either end has closed.
    fn send(&self, message: Message) -> Result<(), Thrown> {
        if self.closed.load(Ordering::Acquire) || self.outbox.is_closed() {
            return Err(closed_peer());
        }
        self.inbound.send(Some(message)).map_err(|_| closed_peer())
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            let _ = self.inbound.send(None);
        }
    }
}

fn closed_peer() -> Thrown {
    Thrown::new("this connection is closed")
}

fn params_of(params: Option<JsonObject>) -> Result<Params, Thrown> {
    Params::from_value(&Value::Object(params.unwrap_or_default())).map_err(Thrown::new)
}

fn request(
    line: &Line,
    shared: &Shared,
    method: String,
    params: Option<JsonObject>,
) -> Result<oneshot::Receiver<Outcome>, Thrown> {
    let id = shared.next.fetch_add(1, Ordering::Relaxed);
    let (answer, wait) = oneshot::channel();
    let message = Message::Request { id: id.into(), method, params: params_of(params)? };
    let during = shared.inbox.lock().listening;
    shared.pending.lock().insert(id, PendingRequest { answer, during });
    if let Err(closed) = line.send(message) {
        shared.pending.lock().remove(&id);
        return Err(closed);
    }
    Ok(wait)
}

/// Receives what the host writes: answers go to their requests, everything else to the listener, in order. An answer
/// overtakes messages only if the listener may be waiting for it.
async fn deliver(outbox: Arc<Outbox>, shared: Arc<Shared>, most: usize) {
    let mut items = Vec::new();
    while outbox.drain(&mut items).await.is_none() {
        for item in items.drain(..) {
            let item = Arc::new(item);
            for frame in item.frames() {
                shared.accept(frame, &item);
            }
        }
        // Like any client that is behind.
        if shared.inbox.lock().bytes > most {
            outbox.close(Closed::Behind);
        }
        shared.arrived.notify_one();
    }
    shared.close();
}

/// Passes messages to the listener, one after the other.
async fn listen(shared: Arc<Shared>) {
    loop {
        let arrived = shared.arrived.notified();
        match shared.next() {
            Some(Delivery::Answer(id, outcome)) => shared.answer(id, outcome),
            Some(Delivery::Message(message, ..)) => shared.call_listener(message).await,
            None if shared.inbox.lock().is_closed => break,
            None => arrived.await,
        }
    }
}

impl Shared {
    /// The connection has ended, so all waiting requests fail.
    fn close(&self) {
        let answered: HashSet<u64> = {
            let mut inbox = self.inbox.lock();
            inbox.is_closed = true;
            let id = |delivery: &Delivery| match delivery {
                Delivery::Answer(id, _) => Some(*id),
                Delivery::Message(..) => None,
            };
            inbox.queue.iter().filter_map(id).collect()
        };
        self.pending.lock().retain(|id, _| answered.contains(id));
        self.arrived.notify_one();
    }

    fn accept(&self, frame: &[u8], item: &Arc<Item>) {
        let Ok(text) = std::str::from_utf8(frame) else { return };
        match Message::parse(text) {
            Ok(Message::Response { id: Id::Number(id), outcome }) => {
                let Some(id) = id.as_u64() else { return };
                let during = self.pending.lock().get(&id).and_then(|asked| asked.during);
                let mut inbox = self.inbox.lock();
                let is_awaited = during.is_some() && during == inbox.listening;
                let has_place = !inbox.queue.is_empty() || inbox.listening.is_some();
                if has_place && !inbox.is_late && !is_awaited {
                    return inbox.queue.push_back(Delivery::Answer(id, outcome));
                }
                drop(inbox);
                self.answer(id, outcome);
            }
            Ok(message @ Message::Notification { .. }) => {
                let mut inbox = self.inbox.lock();
                inbox.bytes += frame.len();
                inbox.queue.push_back(Delivery::Message(message, frame.len(), item.clone()));
            }
            _ => {}
        }
    }

    fn next(&self) -> Option<Delivery> {
        let mut inbox = self.inbox.lock();
        let next = inbox.queue.pop_front();
        if let Some(Delivery::Message(_, bytes, _)) = &next {
            inbox.bytes -= bytes;
            inbox.calls += 1;
            inbox.listening = Some(inbox.calls);
        }
        next
    }

    fn answer(&self, id: u64, outcome: Outcome) {
        let asked = self.pending.lock().remove(&id);
        if let Some(asked) = asked {
            let _ = asked.answer.send(outcome);
        }
    }

    async fn call_listener(&self, message: Message) {
        let listener = self.listener.lock().clone();
        if let (Some(listener), Message::Notification { method, params }) = (listener, message) {
            let params: Value = serde_json::from_str(params.text()).unwrap_or_default();
            let mut heard =
                listener.unbounded((ostler_protocol::json!({ "method": method, "params": params }),));
            if tokio::time::timeout(PATIENCE, &mut heard).await.is_err() {
                self.stop_waiting();
                let _ = heard.await;
            }
        }
        let mut inbox = self.inbox.lock();
        (inbox.listening, inbox.is_late) = (None, false);
    }

    /// Delivers the answers that wait for the listener, because it may be waiting for one of them.
    fn stop_waiting(&self) {
        let answers: Vec<_> = {
            let mut inbox = self.inbox.lock();
            inbox.is_late = true;
            let (answers, messages) = std::mem::take(&mut inbox.queue)
                .into_iter()
                .partition::<VecDeque<_>, _>(|delivery| matches!(delivery, Delivery::Answer(..)));
            inbox.queue = messages;
            answers.into()
        };
        for answer in answers {
            if let Delivery::Answer(id, outcome) = answer {
                self.answer(id, outcome);
            }
        }
    }
}
