//! Streams: channels that can produce more than a subscriber can receive, such as terminals. Their actions are not
//! retained for replay. A subscriber that does not keep up is left behind: it receives nothing more until it has
//! received what is queued, then the actions that restore the state of the channel from any state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::{Channel, Fanout, Inner, Streamed, Subscriber};
use crate::envelope::{Encoded, envelope_frame};
use crate::ids::ConnectionId;
use crate::outbox::{Batch, Item};

/// How much of a stream can be queued for one subscriber, in bytes.
const WAITING_MAX: usize = 1 << 20;
/// The size in bytes from which the source pauses for the subscriber.
const FULL: usize = WAITING_MAX / 2;
/// How long sources do not pause for a subscriber that was left behind.
const DISTRUST: Duration = Duration::from_secs(10);

/// Notifications of a stream's source about the subscribers.
#[derive(Debug, Default)]
pub struct Stream {
    due: Notify,
    room: Notify,
}

impl Stream {
    /// Waits until a subscriber that was left behind has received what was queued.
    pub async fn due(&self) {
        self.due.notified().await;
    }

    /// Makes [`Stream::due`] resolve.
    pub fn wake(&self) {
        self.due.notify_one();
    }

    /// Resolves when a subscriber with a long queue has received some of it.
    pub fn taken(&self) -> Notified<'_> {
        self.room.notified()
    }
}

/// Whether the subscribers of a stream can receive more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// All of them.
    ForAll,
    /// Some of them.
    ForSome,
    /// None of them.
    ForNone,
}

/// The state of a subscriber that was left behind.
const FOLLOWS: u8 = 0;
/// It has not yet received what was queued when it was left behind.
const BEHIND: u8 = 1;
/// It has received that, and needs the state.
const DUE: u8 = 2;

/// The state of one subscriber of a stream.
#[derive(Debug)]
pub struct Flow {
    stream: Arc<Stream>,
    place: AtomicU8,
    /// How much is queued for it, in bytes.
    waiting: AtomicUsize,
    /// When it was last left behind.
    left: Mutex<Option<Instant>>,
}

impl Flow {
    pub(super) fn of(stream: &Arc<Stream>) -> Arc<Self> {
        Arc::new(Self {
            stream: stream.clone(),
            place: AtomicU8::new(FOLLOWS),
            waiting: AtomicUsize::new(0),
            left: Mutex::new(None),
        })
    }

    fn is(&self, place: u8) -> bool {
        self.place.load(Ordering::Acquire) == place
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether its source pauses for it.
    fn is_trusted(&self) -> bool {
        self.is(FOLLOWS) && self.left.lock().is_none_or(|left| left.elapsed() >= DISTRUST)
    }

    /// It misses actions from now on.
    fn owe(&self) {
        self.place.store(DUE, Ordering::Release);
        self.stream.wake();
    }

    fn ticket(self: &Arc<Self>, bytes: usize, last: bool) -> Ticket {
        self.waiting.fetch_add(bytes, Ordering::AcqRel);
        Ticket { flow: self.clone(), bytes, last }
    }
}

/// Represents bytes that are queued for a subscriber, until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    flow: Arc<Flow>,
    bytes: usize,
    /// Whether the subscriber was left behind at this point.
    last: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let before = self.flow.waiting.fetch_sub(self.bytes, Ordering::AcqRel);
        if before > FULL && before - self.bytes <= FULL {
            self.flow.stream.room.notify_waiters();
        }
        if self.last {
            self.flow.owe();
        }
    }
}

impl Flow {
    /// Queues an action, or leaves the subscriber behind. Returns whether it is up to date.
    fn follow(self: &Arc<Self>, subscriber: &Subscriber, frame: Option<&Arc<Batch>>) -> bool {
        if !self.is(FOLLOWS) {
            return false;
        }
        if let Some(frame) = frame
            && self.waiting() + frame.bytes() <= WAITING_MAX
            && subscriber.outbox.offer(Item::Stream(frame.clone(), self.ticket(frame.bytes(), false)))
        {
            return true;
        }
        self.place.store(BEHIND, Ordering::Release);
        *self.left.lock() = Some(Instant::now());
        // It writes nothing, but it is dropped after everything before it was written.
        subscriber.push(Item::Stream(Batch::new(Vec::new()), self.ticket(0, true)));
        false
    }
}

impl Fanout {
    /// Turns a channel into a stream, until it is removed.
    pub fn open_stream(&self, channel: &str) -> Arc<Stream> {
        let mut inner = self.inner();
        let stream = Arc::new(Stream::default());
        let latest = inner.seq;
        let entry = inner.channels.entry(channel.into()).or_default();
        entry.stream = Some(Streamed { stream: stream.clone(), latest, missed: false });
        for subscriber in &mut entry.subscribers {
            subscriber.flow = Some(Flow::of(&stream));
        }
        stream
    }

    /// Returns whether a subscriber of a stream is up to date.
    pub fn is_followed(&self, channel: &str) -> bool {
        let inner = self.inner();
        inner.channels.get(channel).is_some_and(|entry| entry.flows().any(|(flow, _)| flow.is(FOLLOWS)))
    }

    /// Sends an action of a stream with the next number to the subscribers that keep up. Without an action, all miss
    /// something.
    pub fn publish_stream(&self, channel: &str, action: Option<Encoded>) {
        let mut inner = self.inner();
        inner.seq += 1;
        let seq = inner.seq;
        let Some(entry) = inner.channels.get_mut(channel) else { return };
        let frame = action.map(|action| action.into_frame(channel, seq, None));
        let batch = frame.map(|frame| Batch::new(vec![frame.into()]));
        let mut missed = false;
        for (flow, subscriber) in entry.flows() {
            missed |= !flow.follow(subscriber, batch.as_ref());
        }
        if let Some(streamed) = &mut entry.stream {
            streamed.latest = seq;
            streamed.missed |= missed;
        }
    }

    /// Sends the state of a stream, as actions, to the subscribers that need it. Returns whether there was memory for
    /// all.
    pub fn publish_state(&self, channel: &str, state: impl FnOnce() -> Vec<String>) -> bool {
        let owed = |entry: &Channel| entry.flows().any(|(flow, _)| flow.is(DUE));
        if !self.inner().channels.get(channel).is_some_and(owed) {
            return true;
        }
        let actions = state();
        let mut inner = self.inner();
        let first = inner.seq + 1;
        inner.seq += actions.len() as u64;
        let latest = inner.seq;
        let Some(entry) = inner.channels.get_mut(channel) else { return true };
        let numbered = actions.iter().zip(first..);
        let frames = numbered.map(|(action, seq)| envelope_frame(channel, action, seq, None).into());
        let batch = Batch::new(frames.collect());
        let mut done = true;
        for (flow, subscriber) in entry.flows().filter(|(flow, _)| flow.is(DUE)) {
            match subscriber.outbox.offer(Item::Batch(batch.clone())) {
                true => flow.place.store(FOLLOWS, Ordering::Release),
                false => done = false,
            }
        }
        if let Some(streamed) = &mut entry.stream {
            streamed.latest = latest;
        }
        done
    }

    /// Returns which subscribers of a stream can receive more. Ignores those that were left behind recently.
    pub fn room(&self, channel: &str) -> Room {
        let inner = self.inner();
        let (mut full, mut free) = (false, false);
        let flows = inner.channels.get(channel).into_iter().flat_map(Channel::flows);
        for (flow, _) in flows.filter(|(flow, _)| flow.is_trusted()) {
            match flow.waiting() > FULL {
                true => full = true,
                false => free = true,
            }
        }
        match (full, free) {
            (false, _) => Room::ForAll,
            (true, true) => Room::ForSome,
            (true, false) => Room::ForNone,
        }
    }
}

impl Inner {
    /// A reconnected client needs the state of a stream if it may have missed something.
    pub(super) fn resume_stream(&mut self, channel: &str, connection: ConnectionId, seen: u64) {
        let Some(entry) = self.channels.get_mut(channel) else { return };
        let Some(streamed) = &mut entry.stream else { return };
        if !streamed.missed && streamed.latest <= seen {
            return;
        }
        streamed.missed = true;
        let back = entry.flows().filter(|(_, one)| one.connection == connection);
        back.for_each(|(flow, _)| flow.owe());
    }
}

impl Channel {
    /// Returns the subscribers of a stream, which use its canonical URI.
    fn flows(&self) -> impl Iterator<Item = (&Arc<Flow>, &Subscriber)> {
        self.subscribers.iter().filter_map(|one| Some((one.flow.as_ref()?, one)))
    }
}
