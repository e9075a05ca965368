//! One end of a link: sending, receiving, and noticing the end of the peer. The transport belongs to the server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use ostler_contract::Secret;
use ostler_contract::budget::SMALL;
use ostler_contract::cluster::ClusterHost;
use ostler_engine_core::link_queue::{LinkQueue, Queued};
use ostler_engine_core::shared::Core;
use ostler_engine_core::tasks;
use tokio::time::MissedTickBehavior;

use super::wire::{LinkMessage, frame_for};

/// The interval at which each end sends something.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a peer can be silent.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// The messages of a link in both directions, each one text.
pub struct LinkTransport {
    /// The messages of the peer, in order.
    pub incoming: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    /// Sends messages to the peer, in order.
    pub outgoing: Pin<Box<dyn Sink<String, Error = String> + Send>>,
}

impl fmt::Debug for LinkTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LinkTransport")
    }
}

/// Connects to other hosts of the cluster.
pub trait LinkDialer: fmt::Debug + Send + Sync {
    /// Connects to a host, which has an address, with the token of the cluster. The error is why it could not.
    fn dial(
        &self,
        host: ClusterHost,
        token: Secret<String>,
    ) -> BoxFuture<'static, Result<LinkTransport, String>>;
}

/// Ends a task with the link.
struct Ends(tokio::task::JoinHandle<()>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends what is queued and passes on what the peer sends, until the link ends. Returns why it ended.
pub(super) async fn drive(
    transport: LinkTransport,
    queue: &Arc<LinkQueue>,
    core: &Arc<Core>,
    mut received: impl FnMut(LinkMessage, &str) -> Result<(), String>,
) -> String {
    let LinkTransport { mut incoming, outgoing } = transport;
    // A separate task, so that a peer that sends without a pause does not delay what is sent to it.
    let (to_send, sending) = (queue.clone(), core.clone());
    let (ended, mut writing) = tokio::sync::oneshot::channel();
    let _writer = Ends(tasks::spawn(async move {
        let _ = ended.send(write(outgoing, &to_send, &sending).await);
    }));
    let silent = tokio::time::sleep(SILENCE_LIMIT);
    tokio::pin!(silent);
    loop {
        let bytes = tokio::select! {
            biased;
            why = &mut writing => return why.unwrap_or_default(),
            bytes = incoming.next() => bytes,
            () = &mut silent => return format!("it was silent for {} seconds", SILENCE_LIMIT.as_secs()),
        };
        let Some(bytes) = bytes else { return "the connection was closed".to_owned() };
        silent.as_mut().reset(tokio::time::Instant::now() + SILENCE_LIMIT);
        // It is in memory already, so others wait for the room that it takes.
        let _charge = (bytes.len() > SMALL).then(|| core.budget.take_anyway(bytes.len()));
        let read = std::str::from_utf8(&bytes).map_err(|_| "it sent a message that is not text".to_owned());
        let handled = read.and_then(LinkMessage::parse).and_then(|(message, frame)| received(message, frame));
        if let Err(why) = handled {
            return why;
        }
    }
}

async fn write(
    mut outgoing: Pin<Box<dyn Sink<String, Error = String> + Send>>,
    queue: &LinkQueue,
    core: &Core,
) -> String {
    let mut beat = tokio::time::interval(HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let ready = tokio::select! {
            biased;
            ready = queue.ready() => ready,
            _ = beat.tick() => {
                queue.message(LinkMessage::Ping.text(""), None);
                continue;
            }
        };
        if let Err(why) = ready {
            return why.to_owned();
        }
        // Each action is queued for all its receivers here, so that it is sent once.
        let entries = core.fanout.between_actions(|| queue.take());
        for entry in entries {
            let bytes = entry.bytes();
            if let Err(why) = send(&mut outgoing, entry).await {
                return why;
            }
            queue.sent(bytes);
        }
        if let Err(why) = outgoing.flush().await {
            return why;
        }
    }
}

async fn send(
    outgoing: &mut Pin<Box<dyn Sink<String, Error = String> + Send>>,
    entry: Queued,
) -> Result<(), String> {
    if let Queued::Message { text, charge: _charge } = entry {
        return outgoing.feed(text).await;
    }
    let (frames, to) = entry.frames();
    for frame in frames {
        let Ok(frame) = std::str::from_utf8(frame) else { continue };
        outgoing.feed(frame_for(to.iter().map(|to| to.number), frame)).await?;
    }
    entry.sent();
    Ok(())
}
