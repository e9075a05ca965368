//! A plugin's own connection: the same door, in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ostler_contract::host::Peer;
use ostler_contract::{Call, Func, HostFunction, JsonObject, Thrown, Value};
use ostler_protocol::message::Params;
use ostler_protocol::{Id, Message, RpcError};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::core::outbox::Outbox;
use crate::front::Front;
use crate::front::connection::Connection;
use crate::users::principal::Principal;

type Listener = Call<fn(message: Value)>;
type Pending = HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>;

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    listener: Mutex<Option<Listener>>,
    next: AtomicU64,
}

/// Opens a connection for a plugin.
pub(crate) fn open(front: &Arc<Front>, principal: Principal) -> Peer {
    let connection = Connection::open(front, principal);
    let shared = Arc::new(Shared::default());
    // Nothing instead of a message is the plugin's end: what it sent before is still taken.
    let (inbound, mut inbox) = mpsc::unbounded_channel::<Option<Message>>();
    let outbox = connection.outbox.clone();
    let delivering = tokio::spawn(deliver(outbox.clone(), shared.clone()));
    tokio::spawn(async move {
        let receiving = async {
            while let Some(Some(message)) = inbox.recv().await {
                connection.receive_own(message).await;
            }
        };
        // The plugin lets go of its end, or either side closes.
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
    /// Sends a message; refused once either end has closed.
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
) -> Result<oneshot::Receiver<Result<Value, RpcError>>, Thrown> {
    let id = shared.next.fetch_add(1, Ordering::Relaxed);
    let (answer, wait) = oneshot::channel();
    let message = Message::Request { id: id.into(), method, params: params_of(params)? };
    shared.pending.lock().insert(id, answer);
    if let Err(closed) = line.send(message) {
        shared.pending.lock().remove(&id);
        return Err(closed);
    }
    Ok(wait)
}

/// Hands answers to whoever asked and everything else to the listener, in order.
async fn deliver(outbox: Arc<Outbox>, shared: Arc<Shared>) {
    let mut items = Vec::new();
    while outbox.drain(&mut items).await.is_none() {
        for item in items.drain(..) {
            for frame in item.frames() {
                handle(&shared, frame).await;
            }
        }
    }
    // Whoever still waits hears that there will be no answer.
    shared.pending.lock().clear();
}

async fn handle(shared: &Shared, frame: &[u8]) {
    let Ok(text) = std::str::from_utf8(frame) else { return };
    match Message::parse(text) {
        Ok(Message::Response { id: Id::Number(id), outcome }) => {
            let waiting = id.as_u64().and_then(|id| shared.pending.lock().remove(&id));
            if let Some(waiting) = waiting {
                let _ = waiting.send(outcome);
            }
        }
        Ok(Message::Notification { method, params }) => {
            let listener = shared.listener.lock().clone();
            if let Some(listener) = listener {
                let params: Value = serde_json::from_str(params.text()).unwrap_or_default();
                let _ = listener
                    .unbounded((ostler_protocol::json!({ "method": method, "params": params }),))
                    .await;
            }
        }
        _ => {}
    }
}
