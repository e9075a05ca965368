//! Fan-out: one sequence of actions for the whole host, encoded once, sent to the subscribers, and retained for a while
//! so that a client that lost its connection can continue.

mod log;
mod overlay;
mod replay;
mod stream;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use ostler_contract::Charge;
use ostler_protocol::{Version, uri};
use parking_lot::{Mutex, MutexGuard};

use crate::backlog::Backlog;
pub use crate::envelope::{Encoded, Origin, rejection};
use crate::envelope::{action_of, envelope_frame, params_of, renumbered};
use crate::ids::ConnectionId;
use crate::outbox::{Batch, Frame, Item, Outbox};
use log::Log;
pub use overlay::{Overlaid, Overlay};
pub use replay::{Missed, Replay};
use stream::Flow;
pub use stream::{Room, Stream, Ticket};

/// The counted size of an overlay in addition to its frame, in bytes.
const OVERLAY_WEIGHT: usize = 1024;
/// The overhead of a frame for the allocator and the reference count, in bytes.
const FRAME_WEIGHT: usize = 48;

/// The maximum number of actions of a replay that are checked; with more, a client receives new snapshots.
const MOST_ASKED: usize = 1000;

/// How much of the past is retained, in bytes of memory.
pub const DEFAULT_REPLAY: usize = 16 * 1024 * 1024;

/// An action to publish.
#[derive(Debug)]
pub struct Outgoing {
    /// The action as JSON text.
    pub action: Encoded,
    /// Who dispatched it; the host itself if absent.
    pub origin: Option<Origin>,
    /// The first protocol version that contains it.
    pub since: Version,
    /// The action in the form of 0.9, if a later version extended it.
    pub older: Option<String>,
    /// Other forms by connection; `None` sends nothing to the connection.
    pub overlay: Option<Overlay>,
}

impl Outgoing {
    /// Creates an action of the host itself.
    pub fn host(action: String, since: Version) -> Self {
        Self { action: Encoded::Action(action), origin: None, since, older: None, overlay: None }
    }
}

/// Facts about the subscribers of a channel that its owner reads without the lock.
#[derive(Debug)]
pub struct Audience {
    count: AtomicUsize,
    /// The lowest latency that a subscriber requested, in ms; `u64::MAX` if none did.
    latency: AtomicU64,
}

impl Default for Audience {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), latency: AtomicU64::new(u64::MAX) }
    }
}

impl Audience {
    /// The number of subscribers.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// How long streamed text can be coalesced for them, in ms.
    pub fn latency(&self, default: u64) -> u64 {
        self.latency.load(Ordering::Acquire).min(default)
    }
}

/// One subscriber of one channel.
#[derive(Debug, Clone)]
pub struct Subscriber {
    pub connection: ConnectionId,
    pub outbox: Arc<Outbox>,
    pub version: Version,
    /// The URI with which it subscribed, if that is another spelling of the channel.
    pub alias: Option<Arc<str>>,
    /// How long streamed text can be coalesced for it, in ms, if it requested that.
    pub latency: Option<u64>,
    /// Retains its frames until its snapshot is sent, if that takes long.
    pub hold: Option<Arc<Backlog>>,
    /// Its state on a stream, set by the fan-out.
    pub flow: Option<Arc<Flow>>,
}

impl Subscriber {
    fn push(&self, item: Item) {
        match &self.hold {
            Some(hold) => hold.push(&self.outbox, item),
            None => self.outbox.push(item),
        }
    }
}

#[derive(Debug, Default)]
struct Channel {
    subscribers: Vec<Subscriber>,
    audience: Arc<Audience>,
    stream: Option<Streamed>,
}

/// The state of a stream in addition to its subscribers.
#[derive(Debug)]
struct Streamed {
    stream: Arc<Stream>,
    /// The number of its latest action.
    latest: u64,
    /// Whether a subscriber has missed actions, so that the last number it saw is meaningless.
    missed: bool,
}

#[derive(Debug)]
struct Logged {
    seq: u64,
    channel: Arc<str>,
    frame: Bytes,
    outgoing: LoggedAction,
}

/// Stored next to the frame only if a subscriber sees another form.
#[derive(Debug)]
struct LoggedAction {
    since: Version,
    older: Option<String>,
    overlay: Option<Overlay>,
    origin: Option<Origin>,
}

/// The sequence, the subscribers and the recent past.
#[derive(Debug)]
pub struct Fanout {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    seq: u64,
    channels: HashMap<Arc<str>, Channel>,
    log: Log,
    /// The connections that receive no notifications of the root channel.
    without_lists: HashSet<ConnectionId>,
}

impl Fanout {
    /// Creates a fan-out that retains `replay` bytes of the past and numbers its actions from `after` on. A restarted
    /// host has to begin above every earlier number; otherwise a reconnecting client with an earlier number would
    /// receive a replay whose beginning it never saw.
    pub fn new(replay: usize, after: u64) -> Self {
        let inner = Inner {
            seq: after,
            channels: HashMap::new(),
            log: Log::new(replay, after),
            without_lists: HashSet::new(),
        };
        Self { inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns the number of the latest action.
    pub fn seq(&self) -> u64 {
        self.inner().seq
    }

    /// Returns facts about a channel's subscribers for its owner.
    pub fn audience(&self, channel: &str) -> Arc<Audience> {
        let mut inner = self.inner();
        inner.channels.entry(channel.into()).or_default().audience.clone()
    }

    /// Adds a subscriber and returns the number of its snapshot. The channel's owner calls this, so that no action of
    /// the channel occurs between snapshot and subscription. A second subscription of a connection under the same name
    /// replaces the first.
    pub fn subscribe(&self, channel: &str, subscriber: Subscriber) -> u64 {
        let mut inner = self.inner();
        let seq = inner.seq;
        inner.add(channel, subscriber);
        seq
    }

    /// Ends a connection's subscriptions of a channel, under all its names; returns whether there were any.
    pub fn unsubscribe(&self, channel: &str, connection: ConnectionId) -> bool {
        let mut inner = self.inner();
        inner.take(channel, |subscriber| subscriber.connection == connection)
    }

    /// Ends a connection's subscription of a channel under one of its names.
    pub fn unsubscribe_as(&self, channel: &str, spelled: &str, connection: ConnectionId) {
        let mut inner = self.inner();
        inner.take(channel, |subscriber| {
            subscriber.connection == connection && subscriber.alias.as_deref().unwrap_or(channel) == spelled
        });
    }

    /// Ends a channel with its subscriptions. `aliases` are its names that another channel can have later. A later
    /// channel of one of the names does not continue it: a client of the ended one that reconnects receives a snapshot.
    pub fn end(&self, channel: &str, aliases: &[String]) {
        let mut inner = self.inner();
        let names = std::iter::once(channel).chain(aliases.iter().map(String::as_str));
        let was_watched = inner.is_watched(channel);
        let ended = (inner.end_pasts(names, was_watched), inner.channels.remove(channel));
        drop(inner);
        drop(ended);
    }

    /// Ends a channel if it has no subscribers; returns whether it has none.
    pub fn end_unwatched(&self, channel: &str) -> bool {
        let mut inner = self.inner();
        if inner.is_watched(channel) {
            return false;
        }
        let ended = (inner.end_pasts([channel].into_iter(), false), inner.channels.remove(channel));
        drop(inner);
        drop(ended);
        true
    }

    /// Ends the pasts of names that are about to be those of another channel. No client is resumed with them.
    pub fn end_names(&self, names: &[String]) {
        let ended = self.inner().end_pasts(names.iter().map(String::as_str), true);
        drop(ended);
    }

    /// Ends the pasts of channels, because another host may continue them: a client that reconnects receives snapshots.
    pub fn end_pasts<'a>(&self, channels: impl Iterator<Item = &'a str>) {
        let ended = self.inner().end_pasts(channels, false);
        drop(ended);
    }

    /// Returns the connections that subscribe to a channel.
    pub fn watchers(&self, channel: &str) -> Vec<ConnectionId> {
        let inner = self.inner();
        inner
            .channels
            .get(channel)
            .map(|entry| entry.subscribers.iter().map(|subscriber| subscriber.connection).collect())
            .unwrap_or_default()
    }

    /// Ends a subscription if it was begun with this backlog; returns whether it was.
    pub fn withdraw(&self, channel: &str, connection: ConnectionId, hold: &Arc<Backlog>) -> bool {
        let mut inner = self.inner();
        inner.take(channel, |subscriber| {
            subscriber.connection == connection
                && subscriber.hold.as_ref().is_some_and(|held| Arc::ptr_eq(held, hold))
        })
    }

    /// Sends actions of one channel to its subscribers, in order, each with the next number.
    pub fn publish(&self, channel: &str, actions: Vec<Outgoing>) {
        if !actions.is_empty() {
            self.inner().send(channel, actions);
        }
    }

    /// Sends an action if its overlay knows every subscriber; otherwise sends nothing and returns it with the unknown
    /// ones.
    pub fn publish_known(
        &self,
        channel: &str,
        action: Outgoing,
        known: impl Fn(ConnectionId) -> bool,
    ) -> Result<(), (Outgoing, Vec<ConnectionId>)> {
        let mut inner = self.inner();
        let subscribers =
            inner.channels.get(channel).map(|entry| entry.subscribers.as_slice()).unwrap_or_default();
        let connections = subscribers.iter().map(|subscriber| subscriber.connection);
        let unknown: Vec<_> = connections.filter(|connection| !known(*connection)).collect();
        if !unknown.is_empty() {
            return Err((action, unknown));
        }
        inner.send(channel, vec![action]);
        Ok(())
    }

    /// Returns whether a channel has subscribers.
    pub fn is_watched(&self, channel: &str) -> bool {
        self.inner().is_watched(channel)
    }

    /// Returns whether a connection subscribes to a channel.
    pub fn is_watched_by(&self, channel: &str, connection: ConnectionId) -> bool {
        let inner = self.inner();
        let entry = inner.channels.get(channel);
        entry.is_some_and(|entry| entry.subscribers.iter().any(|other| other.connection == connection))
    }

    /// Sends an action of a channel to only one of its subscribers, with the next number, charged to the subscriber's
    /// budget. It is not part of the channel's past and never replayed.
    pub fn publish_to(&self, channel: &str, connection: ConnectionId, action: &str, room: Option<Charge>) {
        let mut inner = self.inner();
        let Some(entry) = inner.channels.get(channel) else { return };
        let Some(at) = entry.subscribers.iter().position(|other| other.connection == connection) else {
            return;
        };
        inner.seq += 1;
        let seq = inner.seq;
        let subscriber = &inner.channels[channel].subscribers[at];
        let frame = envelope_frame(subscriber.alias.as_deref().unwrap_or(channel), action, seq, None);
        subscriber.push(Item::Frame(match room {
            Some(charge) => Frame::charged(frame.into(), charge),
            None => frame.into(),
        }));
    }

    /// Sends a numbered action of another host to connections here, with the next number in place of the other host's.
    /// `head` and `tail` are its frame before and after the number. It is not part of the past of this host.
    pub fn relay<'a>(&self, head: &str, tail: &str, to: impl IntoIterator<Item = &'a Arc<Outbox>>) {
        let mut inner = self.inner();
        inner.seq += 1;
        let batch = Batch::new(vec![renumbered(head, inner.seq, tail).into()]);
        for outbox in to {
            outbox.push(Item::Batch(batch.clone()));
        }
    }

    /// Runs a function while no action is being sent, so that each action was sent to all its subscribers or to none.
    pub fn between_actions<T>(&self, then: impl FnOnce() -> T) -> T {
        let _inner = self.inner();
        then()
    }

    /// Begins the numbers of this host so much later, before it has sent any.
    pub fn skip_numbers(&self, count: u64) {
        let mut inner = self.inner();
        inner.seq += count;
        let seq = inner.seq;
        inner.log.begin_at(seq);
    }

    /// Sends a notification that is not an action: it has no number and is never replayed.
    pub fn notify(&self, channel: &str, frame: String) {
        self.notify_each(channel, frame, |_| true);
    }

    /// Like [`Fanout::notify`], without the other hosts of the cluster, which sent the notification.
    pub fn notify_clients(&self, channel: &str, frame: String) {
        self.notify_each(channel, frame, |subscriber| !subscriber.outbox.is_of_host());
    }

    /// Sends a notification to the other hosts of the cluster alone.
    pub fn notify_hosts(&self, channel: &str, frame: String) {
        self.notify_each(channel, frame, |subscriber| subscriber.outbox.is_of_host());
    }

    /// Sets whether a connection receives the notifications of the root channel, which are about sessions.
    pub fn shows_lists(&self, connection: ConnectionId, may: bool) {
        let without = &mut self.inner().without_lists;
        match may {
            true => without.remove(&connection),
            false => without.insert(connection),
        };
    }

    fn notify_each(&self, channel: &str, frame: String, which: impl Fn(&Subscriber) -> bool) {
        let inner = self.inner();
        let Some(entry) = inner.channels.get(channel) else { return };
        let batch = Batch::new(vec![frame.into()]);
        let sees = |subscriber: &&Subscriber| {
            channel != uri::ROOT || !inner.without_lists.contains(&subscriber.connection)
        };
        for subscriber in entry.subscribers.iter().filter(|subscriber| which(subscriber)).filter(sees) {
            subscriber.push(Item::Batch(batch.clone()));
        }
    }

    /// Restores the subscriptions of a lost connection together with the actions they missed since `seen`; `None` if
    /// those are no longer available, or more than can be checked.
    pub fn resume(&self, seen: u64, subscriptions: &[(String, Subscriber)]) -> Option<Replay> {
        let mut inner = self.inner();
        if seen > inner.seq || !inner.log.knows(seen) {
            return None;
        }
        // A later subscription of a channel under the same name replaces an earlier one.
        let by_name: HashMap<(&str, Option<&str>), &Subscriber> = subscriptions
            .iter()
            .map(|(channel, subscriber)| ((channel.as_str(), subscriber.alias.as_deref()), subscriber))
            .collect();
        let mut missed = Vec::new();
        for ((channel, alias), subscriber) in by_name {
            // The channel that has the alias now may have existed when another one had it.
            if alias.is_some_and(|alias| inner.log.after(alias, seen).is_none()) {
                return None;
            }
            missed.extend(inner.log.after(channel, seen)?.map(|logged| (logged, subscriber)));
        }
        missed.sort_by_key(|(logged, _)| logged.seq);
        let envelopes: Vec<Missed> = missed
            .into_iter()
            .filter_map(|(logged, subscriber)| {
                let again = logged.outgoing.overlay.as_ref().and_then(|overlay| overlay.again.as_ref());
                let overlaid = again.map_or_else(|| overlaid(logged, subscriber), |_| Overlaid::Same);
                let envelope = params_of(&frame_as(logged, subscriber, overlaid)?).to_owned();
                Some(match again {
                    Some(again) => Missed::Asked(envelope, again(subscriber.connection)),
                    None => Missed::Known(envelope),
                })
            })
            .collect();
        if envelopes.iter().filter(|missed| matches!(missed, Missed::Asked(..))).count() > MOST_ASKED {
            return None;
        }
        for (channel, subscriber) in subscriptions {
            inner.add(channel, subscriber.clone());
            inner.resume_stream(channel, subscriber.connection, seen);
        }
        Some(Replay { envelopes })
    }
}

impl Inner {
    /// Returns the name of a channel, shared where it has subscribers.
    fn key(&self, channel: &str) -> Arc<str> {
        match self.channels.get_key_value(channel) {
            Some((key, _)) => key.clone(),
            None => channel.into(),
        }
    }

    fn is_watched(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|entry| !entry.subscribers.is_empty())
    }

    /// Ends pasts and returns their actions, which are dropped without the lock.
    fn end_pasts<'a>(
        &mut self,
        channels: impl Iterator<Item = &'a str>,
        is_cut: bool,
    ) -> Vec<VecDeque<Logged>> {
        // A client that has seen the last number has not seen what changes after the end.
        self.seq += 1;
        let ended = channels.map(|channel| {
            let key = self.key(channel);
            self.log.end(&key, self.seq, is_cut)
        });
        let ended = ended.collect();
        self.log.trim();
        ended
    }

    fn send(&mut self, channel: &str, actions: Vec<Outgoing>) {
        let mut frames = Vec::with_capacity(actions.len());
        let mut plain = true;
        let mut overlays = false;
        let key = self.key(channel);
        let seq = &mut self.seq;
        let logged = actions.into_iter().map(|outgoing| {
            *seq += 1;
            let frame = Bytes::from(outgoing.action.into_frame(channel, *seq, outgoing.origin.as_ref()));
            plain &= outgoing.since == Version::V0_9 && outgoing.older.is_none();
            overlays |= outgoing.overlay.is_some();
            frames.push(frame.clone());
            let outgoing = LoggedAction {
                since: outgoing.since,
                older: outgoing.older,
                overlay: outgoing.overlay,
                origin: outgoing.origin,
            };
            Logged { seq: *seq, channel: key.clone(), frame, outgoing }
        });
        self.log.add(&key, logged);
        if let Some(entry) = self.channels.get(channel).filter(|entry| !entry.subscribers.is_empty()) {
            let count = frames.len();
            let batch = Batch::new(frames);
            for subscriber in &entry.subscribers {
                if subscriber.alias.is_none() && !overlays && (plain || subscriber.version > Version::V0_9) {
                    subscriber.push(Item::Batch(batch.clone()));
                    continue;
                }
                for logged in self.log.newest(channel, count) {
                    let overlaid = overlaid(logged, subscriber);
                    // A single unchanged frame also shares the transport's encoding.
                    let shared = count == 1 && subscriber.alias.is_none() && overlaid == Overlaid::Same;
                    match frame_as(logged, subscriber, overlaid) {
                        Some(_) if shared => subscriber.push(Item::Batch(batch.clone())),
                        Some(frame) => subscriber.push(Item::Frame(frame.into())),
                        None => {}
                    }
                }
            }
        }
        self.log.trim();
    }

    fn add(&mut self, channel: &str, mut subscriber: Subscriber) {
        let entry = match self.channels.get_mut(channel) {
            Some(entry) => entry,
            None => self.channels.entry(channel.into()).or_default(),
        };
        entry
            .subscribers
            .retain(|other| other.connection != subscriber.connection || other.alias != subscriber.alias);
        if entry.subscribers.capacity() == 0 {
            // Most channels have one subscriber.
            entry.subscribers.reserve_exact(1);
        }
        subscriber.flow = entry.stream.as_ref().map(|streamed| Flow::of(&streamed.stream));
        entry.subscribers.push(subscriber);
        entry.count();
    }

    /// Removes subscribers of a channel; returns whether there were any. A channel without subscribers and owner is
    /// removed.
    fn take(&mut self, channel: &str, which: impl Fn(&Subscriber) -> bool) -> bool {
        let Some(entry) = self.channels.get_mut(channel) else { return false };
        let before = entry.subscribers.len();
        entry.subscribers.retain(|subscriber| !which(subscriber));
        entry.count();
        let taken = entry.subscribers.len() != before;
        let owned = Arc::strong_count(&entry.audience) > 1 || entry.stream.is_some();
        if entry.subscribers.is_empty() && !owned {
            self.channels.remove(channel);
        }
        taken
    }
}

impl Channel {
    fn count(&mut self) {
        let latency = self.subscribers.iter().filter_map(|subscriber| subscriber.latency).min();
        self.audience.latency.store(latency.unwrap_or(u64::MAX), Ordering::Release);
        self.audience.count.store(self.subscribers.len(), Ordering::Release);
    }
}

/// Returns the form of a logged action for one subscriber.
fn overlaid(logged: &Logged, subscriber: &Subscriber) -> Overlaid {
    let overlay = logged.outgoing.overlay.as_ref();
    match (overlay.map_or(Overlaid::Same, |overlay| overlay.seen(subscriber.connection)), subscriber.version)
    {
        (Overlaid::Same, Version::V0_9) => {
            logged.outgoing.older.clone().map_or(Overlaid::Same, Overlaid::Other)
        }
        (seen, _) => seen,
    }
}

/// Encodes a logged action for one subscriber, after its overlay.
fn frame_as(logged: &Logged, subscriber: &Subscriber, overlaid: Overlaid) -> Option<Bytes> {
    if logged.outgoing.since > subscriber.version {
        return None;
    }
    let other = match overlaid {
        Overlaid::Nothing => return None,
        Overlaid::Same if subscriber.alias.is_none() => return Some(logged.frame.clone()),
        Overlaid::Same => None,
        Overlaid::Other(action) => Some(action),
    };
    let channel = subscriber.alias.as_deref().unwrap_or(&logged.channel);
    let action = match &other {
        Some(action) => action.as_str(),
        None => action_of(&logged.frame, &logged.channel),
    };
    Some(envelope_frame(channel, action, logged.seq, logged.outgoing.origin.as_ref()).into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn subscriber(connection: u64, version: Version, alias: Option<&str>) -> Subscriber {
        Subscriber {
            connection: ConnectionId(connection),
            outbox: Outbox::new(1 << 20),
            version,
            alias: alias.map(Into::into),
            latency: None,
            hold: None,
            flow: None,
        }
    }

    async fn received(subscriber: &Subscriber) -> Vec<Value> {
        subscriber.outbox.close(crate::outbox::Closed::Done);
        let mut items = Vec::new();
        while subscriber.outbox.drain(&mut items).await.is_none() {}
        let frames = items.iter().flat_map(|item| item.frames().to_vec());
        frames.map(|frame| serde_json::from_slice::<Value>(&frame).expect("JSON")["params"].clone()).collect()
    }

    fn envelope(missed: &Missed) -> Value {
        serde_json::from_str(&format!("{missed:?}")).expect("JSON")
    }

    fn action(name: &str) -> Outgoing {
        Outgoing::host(json!({ "type": name }).to_string(), Version::V0_9)
    }

    #[tokio::test]
    async fn an_older_client_skips_what_it_does_not_know() {
        let fanout = Fanout::new(DEFAULT_REPLAY, 0);
        let (old, new) = (subscriber(1, Version::V0_9, None), subscriber(2, Version::V1, None));
        fanout.subscribe("c", old.clone());
        fanout.subscribe("c", new.clone());
        let newer = Outgoing::host(json!({ "type": "b" }).to_string(), Version::V1);
        fanout.publish("c", vec![action("a"), newer, action("c")]);
        let seen = |frames: &[Value]| {
            frames.iter().map(|f| (f["serverSeq"].clone(), f["action"]["type"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(seen(&received(&old).await), [(1.into(), "a".into()), (3.into(), "c".into())]);
        assert_eq!(received(&new).await.len(), 3);
    }

    #[tokio::test]
    async fn an_alias_is_answered_under_its_own_spelling() {
        let fanout = Fanout::new(DEFAULT_REPLAY, 0);
        let spelled = subscriber(1, Version::V1, Some("ahp-session:/1"));
        fanout.subscribe("echo:/1", spelled.clone());
        let mut outgoing = action("a");
        outgoing.origin = Some(Origin { client_id: "it \"is\"".into(), client_seq: 4 });
        fanout.publish("echo:/1", vec![outgoing]);
        assert_eq!(
            received(&spelled).await,
            [json!({ "channel": "ahp-session:/1", "action": { "type": "a" }, "serverSeq": 1,
                "origin": { "clientId": "it \"is\"", "clientSeq": 4 } })]
        );
    }

    #[tokio::test]
    async fn a_replay_follows_on_exactly_or_not_at_all() {
        let fanout = Fanout::new(2000, 0);
        fanout.publish("c", vec![action("a"), action("b")]);
        fanout.publish("d", vec![action("x")]);
        let again = subscriber(1, Version::V1, None);
        let replay = fanout.resume(1, &[("c".to_owned(), again.clone())]).expect("known");
        let seqs: Vec<Value> =
            replay.envelopes.iter().map(|missed| envelope(missed)["serverSeq"].clone()).collect();
        assert_eq!(seqs, [2]);
        fanout.publish("c", vec![action("c")]);
        assert_eq!(received(&again).await.len(), 1);
        for _ in 0..10 {
            fanout.publish("c", vec![action("more")]);
        }
        let of = |channel: &str| vec![(channel.to_owned(), again.clone())];
        assert!(fanout.resume(1, &of("c")).is_none(), "what fell out of the log is not replayed");
        assert!(fanout.resume(99, &of("c")).is_none(), "nor what never was");
    }

    #[tokio::test]
    async fn a_busy_channel_does_not_push_the_past_of_others_out_before_its_own() {
        let fanout = Fanout::new(4000, 7);
        let again = |channels: &[&str], seen: u64| {
            let subscriber = subscriber(1, Version::V1, None);
            let subscriptions: Vec<_> =
                channels.iter().map(|channel| ((*channel).to_owned(), subscriber.clone())).collect();
            let replay = fanout.resume(seen, &subscriptions)?;
            Some(
                replay.envelopes.iter().filter_map(|missed| envelope(missed)["serverSeq"].as_u64()).collect(),
            )
        };
        fanout.publish("busy", vec![action("a")]);
        let seen = fanout.seq();
        for _ in 0..20 {
            fanout.publish("busy", vec![action("more")]);
        }
        fanout.publish("quiet", vec![action("b")]);
        fanout.publish("busy", vec![action("last")]);
        let last = fanout.seq();
        assert_eq!(again(&["busy"], seen), None);
        assert_eq!(again(&["busy", "quiet"], seen), None);
        assert_eq!(again(&["quiet"], seen), Some(vec![last - 1]), "of this one nothing is gone");
        assert_eq!(again(&["quiet", "busy"], last - 3), Some(vec![last - 2, last - 1, last]));
        assert_eq!(again(&[], seen), Some(Vec::new()), "nothing was missed where nothing was watched");
        assert_eq!(again(&[], 6), None, "a number of another run");
    }

    #[tokio::test]
    async fn the_past_of_a_channel_that_another_host_continued_is_not_replayed() {
        let fanout = Fanout::new(DEFAULT_REPLAY, 0);
        let of = |channel: &str| vec![(channel.to_owned(), subscriber(1, Version::V1, None))];
        fanout.publish("moved", vec![action("a")]);
        fanout.publish("here", vec![action("b")]);
        let last = fanout.seq();
        assert!(fanout.resume(last, &of("moved")).is_some());
        fanout.end_pasts(["moved"].into_iter());
        assert!(fanout.resume(last, &of("moved")).is_none(), "also for who has seen the last action here");
        assert!(fanout.resume(last, &of("here")).is_some());
        let snapshot = fanout.seq();
        fanout.publish("moved", vec![action("c")]);
        assert_eq!(fanout.resume(snapshot, &of("moved")).expect("known").envelopes.len(), 1);
    }

    #[tokio::test]
    async fn a_channel_does_not_continue_an_ended_one_of_its_name() {
        let fanout = Fanout::new(4000, 0);
        let of = |channel: &str| vec![(channel.to_owned(), subscriber(1, Version::V1, None))];
        let missed = |seen, channel| {
            let missed = fanout.resume(seen, &of(channel)).map(|replay| replay.envelopes.len());
            fanout.unsubscribe(channel, ConnectionId(1));
            missed
        };
        fanout.publish("named", vec![action("a")]);
        fanout.publish("other", vec![action("b")]);
        let last = fanout.seq();
        fanout.end("named", &["alias".to_owned()]);
        fanout.end("without actions", &[]);
        assert_eq!(missed(last, "named"), None, "also before there is a later one");
        assert_eq!(missed(last, "without actions"), None);
        fanout.publish("named", vec![action("c"), action("d")]);
        assert_eq!(missed(last, "named"), None);
        assert_eq!(missed(fanout.seq() - 1, "named"), Some(1));
        let aliased = vec![("other".to_owned(), subscriber(1, Version::V1, Some("alias")))];
        assert!(
            fanout.resume(last, &aliased).is_none(),
            "a name of the ended one is a name of another one now"
        );
        assert!(fanout.resume(fanout.seq(), &aliased).is_some());
        assert_eq!(missed(last, "other"), Some(0), "a channel that goes on is not affected");
        assert_eq!(missed(last, "quiet"), Some(0), "nor one that has no past");
        for _ in 0..1000 {
            fanout.end("named", &[]);
        }
        assert_eq!(missed(last, "without actions"), None, "also once its end is no longer retained");
        fanout.publish("named", vec![action("e")]);
        assert_eq!(missed(fanout.seq() - 1, "named"), Some(1));
    }

    #[tokio::test]
    async fn who_was_subscribed_at_the_end_of_a_channel_is_not_resumed_on_a_later_one() {
        let fanout = Fanout::new(DEFAULT_REPLAY, 0);
        let of = |channel: &str| vec![(channel.to_owned(), subscriber(1, Version::V1, None))];
        fanout.subscribe("named", subscriber(1, Version::V1, Some("alias")));
        assert!(!fanout.end_unwatched("named"));
        fanout.end("named", &["alias".to_owned()]);
        fanout.publish("other", vec![action("a")]);
        fanout.publish("named", vec![action("b")]);
        let last = fanout.seq();
        assert!(fanout.resume(last, &of("named")).is_none());
        assert!(fanout.resume(last, &of("other")).is_some());
        let aliased = vec![("other".to_owned(), subscriber(1, Version::V1, Some("alias")))];
        assert!(fanout.resume(last, &aliased).is_none());
        fanout.publish("quiet", vec![action("c")]);
        assert!(fanout.end_unwatched("quiet"));
        assert!(fanout.resume(last + 1, &of("quiet")).is_none());
        assert!(fanout.resume(fanout.seq(), &of("quiet")).is_some(), "nobody had its state then");
    }

    #[tokio::test]
    async fn an_overlay_is_asked_at_the_send_and_again_on_replay() {
        let fanout = Fanout::new(DEFAULT_REPLAY, 0);
        let (one, two) = (subscriber(1, Version::V1, None), subscriber(2, Version::V1, None));
        fanout.subscribe("c", one.clone());
        fanout.subscribe("c", two.clone());
        let mut outgoing = action("a");
        outgoing.overlay = Some(Overlay::new(|connection| match connection.0 {
            1 => Overlaid::Nothing,
            2 => Overlaid::Same,
            _ => Overlaid::Other(r#"{"type":"other"}"#.to_owned()),
        }));
        fanout.publish("c", vec![outgoing]);
        assert_eq!(received(&one).await.len(), 0);
        assert_eq!(received(&two).await.len(), 1);
        let replay = fanout.resume(0, &[("c".to_owned(), subscriber(3, Version::V1, None))]).expect("known");
        assert_eq!(envelope(&replay.envelopes[0])["action"]["type"], "other");
    }
}
