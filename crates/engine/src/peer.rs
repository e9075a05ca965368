//! A plugin's own connection: the same door, in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_contract::host::Peer;
use ostler_contract::{Call, Func, JsonObject, Thrown, Value};
use ostler_protocol::message::Params;
use ostler_protocol::{Id, Message, RpcError};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::connection::Connection;
use crate::host::Host;
use crate::outbox::Outbox;
use crate::principal::Principal;

type Listener = Call<fn(message: Value)>;
type Pending = HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>;

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    listener: Mutex<Option<Listener>>,
    next: AtomicU64,
}

/// Opens a connection for a plugin.
pub(crate) fn open(host: &Arc<Host>, principal: Principal) -> Peer {
    let connection = Connection::open(host, principal);
    let shared = Arc::new(Shared::default());
    let (inbound, mut inbox) = mpsc::unbounded_channel::<Message>();
    let outbox = connection.outbox.clone();
    let delivering = tokio::spawn(deliver(outbox.clone(), shared.clone()));
    tokio::spawn(async move {
        let receiving = async {
            while let Some(message) = inbox.recv().await {
                connection.receive(message).await;
            }
        };
        // The plugin lets go of its end, or either side closes.
        tokio::select! {
            () = receiving => {}
            _ = delivering => {}
        }
        connection.close();
    });
    let (requests, notifications) = (inbound.clone(), inbound);
    let (for_request, for_listener) = (shared.clone(), shared);
    let closed = outbox.clone();
    Peer {
        request: Call::new(move |(method, params): (String, Option<JsonObject>)| {
            let sent = request(&requests, &for_request, &outbox, method, params);
            async move {
                match sent?.await {
                    Ok(outcome) => outcome.map_err(Thrown::from),
                    Err(_) => Err(closed_peer()),
                }
            }
        }),
        notify: Func::new(move |(method, params): (String, Option<JsonObject>)| {
            let params = params_of(params)?;
            notifications.send(Message::Notification { method, params }).map_err(|_| closed_peer())
        }),
        on_message: Func::new(move |(listener,): (Listener,)| {
            *for_listener.listener.lock() = Some(listener);
            Ok(())
        }),
        close: Func::new(move |()| {
            closed.close(crate::outbox::Closed::Done);
            Ok(())
        }),
    }
}

fn closed_peer() -> Thrown {
    Thrown::new("this connection is closed")
}

fn params_of(params: Option<JsonObject>) -> Result<Params, Thrown> {
    Params::from_value(&Value::Object(params.unwrap_or_default())).map_err(Thrown::new)
}

fn request(
    requests: &mpsc::UnboundedSender<Message>,
    shared: &Shared,
    outbox: &Outbox,
    method: String,
    params: Option<JsonObject>,
) -> Result<oneshot::Receiver<Result<Value, RpcError>>, Thrown> {
    if outbox.is_closed() {
        return Err(closed_peer());
    }
    let id = shared.next.fetch_add(1, Ordering::Relaxed);
    let (answer, wait) = oneshot::channel();
    shared.pending.lock().insert(id, answer);
    let message = Message::Request { id: id.into(), method, params: params_of(params)? };
    requests.send(message).map_err(|_| closed_peer())?;
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
                let _ =
                    listener.call((ostler_protocol::json!({ "method": method, "params": params }),)).await;
            }
        }
        _ => {}
    }
}
