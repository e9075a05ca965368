//! Ports between engines. A message is queued until the receiver takes it, and is charged to the plugin's memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rquickjs::{Array, Ctx, Function, Object, Persistent, Result, Value};

use super::natives;
use crate::engine::{Family, Message, Post, State};
use crate::errors::plain_error;
use crate::values::{bytes_of, bytes_to_js};

/// The property in which ports are passed.
pub(super) const PORTS: &str = "ports";

/// A message in transit.
pub(crate) struct Packet {
    bytes: Vec<u8>,
    ports: Vec<Endpoint>,
    family: Arc<Family>,
}

impl Packet {
    fn new(family: &Arc<Family>, bytes: Vec<u8>, ports: Vec<Endpoint>) -> Option<Self> {
        family.charge(bytes.len()).then(|| Self { bytes, ports, family: family.clone() })
    }

    /// Returns the content and releases its charge.
    pub(super) fn open(mut self) -> (Vec<u8>, Vec<Endpoint>) {
        let opened = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.ports));
        self.family.discharge(opened.0.len());
        opened
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.family.discharge(self.bytes.len());
    }
}

/// One direction of a channel: its queue and the listener to wake.
#[derive(Default)]
struct Lane {
    queue: VecDeque<Packet>,
    listener: Option<(Post, u64)>,
    woken: bool,
    closed: bool,
}

type Shared = Arc<Mutex<Lane>>;

fn lock(lane: &Shared) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    fn wake(&mut self) {
        if self.woken || (self.queue.is_empty() && !self.closed) {
            return;
        }
        if let Some((post, id)) = &self.listener {
            self.woken = true;
            let id = *id;
            post.send(Message::Run(Box::new(move |ctx, state| {
                let call = state.callbacks.get(id);
                let called = call.map(|call| call.restore(ctx).and_then(|call| call.call::<_, ()>(())));
                if let Some(Err(error)) = called {
                    crate::errors::report_uncaught(ctx, state, error);
                }
            })));
        }
    }
}

/// One end of a channel, which is closed when the endpoint is dropped.
pub(crate) struct Endpoint {
    incoming: Shared,
    outgoing: Shared,
}

impl Endpoint {
    /// Returns both ends of a new channel.
    pub(crate) fn pair() -> (Self, Self) {
        let (one, other) = (Shared::default(), Shared::default());
        (Self { incoming: one.clone(), outgoing: other.clone() }, Self { incoming: other, outgoing: one })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.closed = true;
        outgoing.wake();
        drop(outgoing);
        // Packets may contain endpoints, whose drop locks their lanes.
        let rest = std::mem::take(&mut lock(&self.incoming).queue);
        drop(rest);
    }
}

/// Returns the native functions for `internal/messaging`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "pair": |ctx: Ctx<'js>| {
            let (one, other) = Endpoint::pair();
            Ok::<_, rquickjs::Error>(vec![attach(&ctx, one)?, attach(&ctx, other)?])
        },
        "broadcast": broadcast,
        "onBroadcast": |ctx: Ctx<'js>, call: Function<'js>| {
            *State::of(&ctx)?.broadcast.borrow_mut() = Some(Persistent::save(&ctx, call));
            Ok::<_, rquickjs::Error>(())
        },
        "hold": |ctx: Ctx<'js>, more: i32| {
            let state = State::of(&ctx)?;
            state.held.set(state.held.get().saturating_add(more));
            Ok::<_, rquickjs::Error>(())
        },
    }
}

type Cell = Rc<RefCell<Option<Endpoint>>>;

/// Wraps an endpoint for JavaScript: `send`, `take`, `listen`, `close`, and the id for a transfer.
pub(super) fn attach<'js>(ctx: &Ctx<'js>, endpoint: Endpoint) -> Result<Object<'js>> {
    let cell: Cell = Rc::new(RefCell::new(Some(endpoint)));
    let id = State::of(ctx)?.endpoints.insert(cell.clone());
    let (sender, taker, listener) = (cell.clone(), cell.clone(), cell);
    let handle: Result<Object<'js>> = natives! { ctx;
        "send": move |ctx: Ctx<'js>, bytes: Value<'js>, ports: Array<'js>| {
            let state = State::of(&ctx)?;
            let bytes = bytes_of(&bytes).ok_or_else(|| plain_error(&ctx, "a message is bytes"))?;
            let packet = packet(&ctx, &state, &bytes, endpoints(&ports)?)?;
            let outgoing = sender.borrow().as_ref().map(|endpoint| endpoint.outgoing.clone());
            if let Some(outgoing) = outgoing {
                let mut lane = lock(&outgoing);
                if !lane.closed {
                    lane.queue.push_back(packet);
                    lane.wake();
                }
            }
            Ok::<_, rquickjs::Error>(())
        },
        // Returns the next message as `{ data, ports, more }`; `null` at the end, `undefined` if none is queued.
        "take": move |ctx: Ctx<'js>| take(&ctx, &taker),
        "listen": move |ctx: Ctx<'js>, call: Function<'js>| {
            let state = State::of(&ctx)?;
            let call = state.callbacks.insert(Persistent::save(&ctx, call));
            if let Some(endpoint) = &*listener.borrow() {
                let mut lane = lock(&endpoint.incoming);
                lane.listener = Some((state.post.clone(), call));
                lane.woken = false;
                lane.wake();
            }
            Ok::<_, rquickjs::Error>(call)
        },
    };
    let handle = handle?;
    handle.set("id", id)?;
    handle.set(
        "close",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, listening: Option<u64>| {
            let state = State::of(&ctx)?;
            let cell = state.endpoints.remove(id);
            let endpoint = cell.and_then(|cell| cell.borrow_mut().take());
            drop(endpoint);
            let call = listening.and_then(|call| state.callbacks.remove(call));
            drop(call);
            Ok::<_, rquickjs::Error>(())
        }),
    )?;
    Ok(handle)
}

fn take<'js>(ctx: &Ctx<'js>, cell: &Cell) -> Result<Value<'js>> {
    let incoming = cell.borrow().as_ref().map(|endpoint| endpoint.incoming.clone());
    let Some(incoming) = incoming else { return Ok(Value::new_null(ctx.clone())) };
    let (packet, more) = {
        let mut lane = lock(&incoming);
        let packet = lane.queue.pop_front();
        let more = !lane.queue.is_empty() || lane.closed;
        if packet.is_none() && lane.closed {
            return Ok(Value::new_null(ctx.clone()));
        }
        // The next message wakes the listener again.
        lane.woken = more;
        (packet, more)
    };
    let Some(packet) = packet else { return Ok(Value::new_undefined(ctx.clone())) };
    let (bytes, ports) = packet.open();
    let taken = Object::new(ctx.clone())?;
    taken.set("data", bytes_to_js(ctx, bytes.into())?)?;
    let list = Array::new(ctx.clone())?;
    for (at, port) in ports.into_iter().enumerate() {
        list.set(at, attach(ctx, port)?)?;
    }
    taken.set(PORTS, list)?;
    taken.set("more", more)?;
    Ok(taken.into_value())
}

/// Takes the endpoints that JavaScript transfers; they no longer belong to this engine.
pub(super) fn endpoints(handles: &Array<'_>) -> Result<Vec<Endpoint>> {
    let state = State::of(handles.ctx())?;
    let mut endpoints = Vec::new();
    for handle in handles.iter::<Object>() {
        let cell = state.endpoints.remove(handle?.get("id")?);
        if let Some(endpoint) = cell.and_then(|cell| cell.borrow_mut().take()) {
            lock(&endpoint.incoming).listener = None;
            endpoints.push(endpoint);
        }
    }
    Ok(endpoints)
}

/// Creates a message of these bytes if the plugin has the memory.
pub(super) fn packet(ctx: &Ctx<'_>, state: &State, bytes: &[u8], ports: Vec<Endpoint>) -> Result<Packet> {
    let packet = Packet::new(&state.shared.family, bytes.to_vec(), ports);
    packet.ok_or_else(|| plain_error(ctx, state.shared.sentence(&state.shared.out_of_memory())))
}

/// Sends a message to the other engines of the plugin.
fn broadcast<'js>(ctx: Ctx<'js>, name: String, bytes: Value<'js>) -> Result<()> {
    let state = State::of(&ctx)?;
    let bytes = bytes_of(&bytes).ok_or_else(|| plain_error(&ctx, "a message is bytes"))?;
    for other in state.shared.family.others(state.shared.number) {
        let (name, packet) = (name.clone(), packet(&ctx, &state, &bytes, Vec::new())?);
        other.send(Message::Run(Box::new(move |ctx, state| {
            let call = state.broadcast.borrow().clone();
            let (bytes, _) = packet.open();
            let called =
                call.map(|call| call.restore(ctx)?.call::<_, ()>((name, bytes_to_js(ctx, bytes.into())?)));
            if let Some(Err(error)) = called {
                crate::errors::report_uncaught(ctx, state, error);
            }
        })));
    }
    Ok(())
}
