//! Publishing on a plugin's channel. An action that all subscribers can see is sent immediately. One whose subscribers
//! the plugin has to check waits for that in the lane of its URI, and later actions of the URI wait behind it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use ostler_contract::points::{PublishOptions, Reader, Subscriber};
use ostler_contract::registry::Registrant;
use ostler_contract::{Call, Caller, JsonObject, Thrown, Value, limit};
use ostler_engine_core::fanout::{Encoded, Outgoing, Overlaid, Overlay};
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::stage::Stage;
use ostler_engine_core::tasks;
use ostler_protocol::{Version, uri};
use parking_lot::Mutex;

use super::channel_name;
use crate::channels::Channels;

/// The maximum number of actions that wait in a lane.
const MOST_WAITING: usize = 10_000;
/// The maximum number of actions in one check.
const MOST_TOGETHER: usize = 128;

type Visible = Call<fn(reader: Option<Reader>, client: String) -> bool>;

/// The waiting actions by URI. A URI is in here while a task works on its lane.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<String, VecDeque<Published>>>);

/// An action that is being published.
#[derive(Debug)]
struct Published {
    channel: String,
    action: Encoded,
    audience: Option<Audience>,
}

/// The check of who can see an action.
#[derive(Debug, Clone)]
struct Audience {
    owner: Registrant,
    channel: String,
    visible: Option<Visible>,
    to: Option<String>,
}

/// Connections with their subscribers.
#[derive(Debug, Default)]
struct Crowd {
    subscribers: Vec<Subscriber>,
    /// The index in the list; none for one that has disconnected.
    connections: Vec<(ConnectionId, Option<usize>)>,
}

type Decided = Arc<Mutex<HashMap<ConnectionId, bool>>>;

impl Channels {
    /// Publishes an action on a channel of the caller.
    pub(crate) fn publish_on_channel(
        self: &Arc<Self>,
        caller: &Caller,
        scheme: &str,
        spelled: &str,
        action: JsonObject,
        options: Option<PublishOptions>,
    ) -> Result<(), Thrown> {
        let refused = |why: String| Thrown::new(format_args!("plugin {}: publish {why}", caller.plugin));
        if self.core.stage() == Stage::Loading {
            return Err(refused(
                "needs a host to be built over this plugin; publish from `listening` or later".into(),
            ));
        }
        let owner = self
            .channel_of_plugin(&caller.plugin, scheme)
            .map_err(|why| refused(format!("cannot: {why}")))?
            .owner;
        let channel = channel_name(spelled);
        if uri::scheme(&channel).as_deref() != Some(scheme) {
            return Err(refused(format!("needs uri to start with {scheme}:, not {spelled}")));
        }
        let name = action.get("type").and_then(Value::as_str).unwrap_or_default();
        let own = name.strip_prefix(scheme).and_then(|rest| rest.strip_prefix('/'));
        if own.is_none_or(str::is_empty) {
            return Err(refused(format!("needs action.type to start with {scheme}/, not {name:?}")));
        }
        let PublishOptions { visible, to } = options.unwrap_or_default();
        let audience = (visible.is_some() || to.is_some()).then(|| Audience {
            owner,
            channel: channel.clone(),
            visible,
            to,
        });
        let action = Encoded::Action(Value::Object(action).to_string());
        self.take_publish(Published { channel, action, audience }).map_err(refused)
    }

    fn take_publish(self: &Arc<Self>, published: Published) -> Result<(), String> {
        let mut lanes = self.plugin_channels.lanes.0.lock();
        if let Some(lane) = lanes.get_mut(&published.channel) {
            if lane.len() >= MOST_WAITING {
                let channel = &published.channel;
                return Err(format!(
                    "is rejected: {MOST_WAITING} actions of {channel} wait for their visible"
                ));
            }
            lane.push_back(published);
            return Ok(());
        }
        let asks = published.audience.as_ref().is_some_and(|audience| audience.visible.is_some());
        if !asks {
            drop(lanes);
            // Without a check, it is sent before this returns.
            let channel = published.channel.clone();
            let _ = self.send_published(&channel, vec![published]).now_or_never();
            return Ok(());
        }
        let Some(published) = self.send_unwatched(published) else { return Ok(()) };
        lanes.insert(published.channel.clone(), VecDeque::new());
        drop(lanes);
        let channels = self.clone();
        tasks::spawn(async move {
            let channel = published.channel.clone();
            let mut batch = vec![published];
            while !batch.is_empty() {
                channels.send_published(&channel, batch).await;
                batch = channels.next_published(&channel);
            }
        });
        Ok(())
    }

    /// Sends an action immediately if there are no subscribers to check; otherwise returns it.
    fn send_unwatched(self: &Arc<Self>, published: Published) -> Option<Published> {
        if !self.core.fanout.watchers(&published.channel).is_empty() {
            return Some(published);
        }
        let Published { channel, action, audience } = published;
        let outgoing = self.outgoing(action, audience.as_ref(), &Decided::default());
        // New subscribers have to be checked too.
        let (outgoing, _) = self.core.fanout.publish_known(&channel, outgoing, |_| false).err()?;
        Some(Published { channel, action: outgoing.action, audience })
    }

    fn outgoing(
        self: &Arc<Self>,
        action: Encoded,
        audience: Option<&Audience>,
        decided: &Decided,
    ) -> Outgoing {
        let overlay =
            audience.map(|audience| overlay(Arc::downgrade(self), audience.clone(), decided.clone()));
        Outgoing { action, origin: None, since: Version::V0_9, older: None, overlay }
    }

    fn next_published(&self, channel: &str) -> Vec<Published> {
        let mut lanes = self.plugin_channels.lanes.0.lock();
        let Some(lane) = lanes.get_mut(channel) else { return Vec::new() };
        let batch: Vec<_> = lane.drain(..lane.len().min(MOST_TOGETHER)).collect();
        if batch.is_empty() {
            lanes.remove(channel);
        }
        batch
    }

    /// Sends actions of a URI, in order, to the subscribers who can see each. Checks them together, and also those who
    /// subscribe in the meantime.
    async fn send_published(self: &Arc<Self>, channel: &str, batch: Vec<Published>) {
        let crowd = match batch.iter().any(|published| published.audience.is_some()) {
            true => self.crowd(&self.core.fanout.watchers(channel)),
            false => Crowd::default(),
        };
        let seen = batch.iter().map(|published| self.see(published.audience.as_ref(), &crowd));
        let seen = futures::future::join_all(seen).await;
        for (Published { action, audience, .. }, seen) in batch.into_iter().zip(seen) {
            let decided: Decided = Arc::new(Mutex::new(seen));
            let mut outgoing = self.outgoing(action, audience.as_ref(), &decided);
            let Some(audience) = audience else {
                self.core.fanout.publish(channel, vec![outgoing]);
                continue;
            };
            loop {
                let known = |connection: ConnectionId| decided.lock().contains_key(&connection);
                match self.core.fanout.publish_known(channel, outgoing, known) {
                    Ok(()) => {
                        // The send is complete; a replay checks again.
                        *decided.lock() = HashMap::new();
                        break;
                    }
                    Err((again, came)) => {
                        let seen = self.see(Some(&audience), &self.crowd(&came)).await;
                        decided.lock().extend(seen);
                        outgoing = again;
                    }
                }
            }
        }
    }

    fn crowd(&self, connections: &[ConnectionId]) -> Crowd {
        let mut crowd = Crowd::default();
        let mut known: HashMap<Subscriber, usize> = HashMap::new();
        for connection in connections {
            let at = self.subscriber_of(*connection).map(|subscriber| {
                *known.entry(subscriber).or_insert_with_key(|subscriber| {
                    crowd.subscribers.push(subscriber.clone());
                    crowd.subscribers.len() - 1
                })
            });
            crowd.connections.push((*connection, at));
        }
        crowd
    }

    /// Returns which connections can see an action.
    async fn see(&self, audience: Option<&Audience>, crowd: &Crowd) -> HashMap<ConnectionId, bool> {
        let Some(audience) = audience else { return HashMap::new() };
        let may_be: Vec<usize> =
            (0..crowd.subscribers.len()).filter(|at| audience.may_be(&crowd.subscribers[*at])).collect();
        let mut sees = vec![false; crowd.subscribers.len()];
        match &audience.visible {
            None => may_be.into_iter().for_each(|at| sees[at] = true),
            Some(visible) => {
                let asked: Vec<&Subscriber> = may_be.iter().map(|at| &crowd.subscribers[*at]).collect();
                let answers = self.ask_visible(audience, visible, &asked).await;
                may_be.into_iter().zip(answers).for_each(|(at, answer)| sees[at] = answer);
            }
        }
        crowd
            .connections
            .iter()
            .map(|(connection, at)| (*connection, at.is_some_and(|at| sees[at])))
            .collect()
    }

    /// Checks all in one crossing of the boundary. If that times out, checks each alone, so that only the slow one
    /// fails.
    async fn ask_visible(&self, audience: &Audience, visible: &Visible, of: &[&Subscriber]) -> Vec<bool> {
        if of.is_empty() {
            return Vec::new();
        }
        let row = |subscriber: &Subscriber| (subscriber.reader.clone(), subscriber.client.clone());
        let ask = |subscriber: &&Subscriber| visible.within(limit::VISIBLE, row(subscriber));
        let answers = match of {
            [one] => vec![ask(one).await],
            of => {
                let rows = of.iter().map(|subscriber| row(subscriber)).collect();
                match visible.each_within(limit::VISIBLE, rows).await {
                    Ok(answers) => answers,
                    Err(_) => futures::future::join_all(of.iter().map(ask)).await,
                }
            }
        };
        let failed: Vec<&Thrown> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        if let Some(first) = failed.first() {
            let what = format!("visible for {} of {} on {}", failed.len(), of.len(), audience.channel);
            self.core.report_failed(&audience.owner, &what, first);
        }
        answers.into_iter().map(|answer| answer.unwrap_or_default()).collect()
    }
}

impl Audience {
    fn may_be(&self, subscriber: &Subscriber) -> bool {
        self.to.as_ref().is_none_or(|to| *to == subscriber.client)
    }
}

/// The decision is valid for the send; a replay of the action checks again.
fn overlay(channels: Weak<Channels>, audience: Audience, decided: Decided) -> Overlay {
    let seen = move |connection| match decided.lock().get(&connection) {
        Some(true) => Overlaid::Same,
        _ => Overlaid::Nothing,
    };
    Overlay::new(seen).asked_again(move |connection| {
        let (channels, audience) = (channels.clone(), audience.clone());
        Box::pin(async move {
            let Some(channels) = channels.upgrade() else { return false };
            let crowd = channels.crowd(&[connection]);
            channels.see(Some(&audience), &crowd).await.get(&connection).copied().unwrap_or_default()
        })
    })
}
