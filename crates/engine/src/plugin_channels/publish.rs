//! Publishing on a plugin's channel. An action everybody may see goes out at once; one whose subscribers are asked about
//! waits for that in the lane of its URI, and what is published there meanwhile waits behind it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use ostler_contract::points::{PublishOptions, Reader, Subscriber};
use ostler_contract::registry::Owner;
use ostler_contract::{Call, Caller, JsonObject, Thrown, Value};
use ostler_protocol::{Version, uri};
use parking_lot::Mutex;

use super::channel_name;
use crate::fanout::{ConnectionId, Outgoing, Overlaid, Overlay};
use crate::host::{Host, Stage};
use crate::in_time::in_time;

/// How long a `visible` may take before its subscriber is passed over.
const VISIBLE_LIMIT: Duration = Duration::from_secs(5);
/// The most actions that wait in one lane.
pub(super) const MOST_WAITING: usize = 10_000;

type Visible = Call<fn(reader: Option<Reader>, client: String) -> bool>;

/// What waits, by URI. A URI is here while somebody works on its lane.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<String, VecDeque<Published>>>);

/// One action on its way.
#[derive(Debug)]
struct Published {
    channel: String,
    action: String,
    audience: Option<Audience>,
}

/// Who may see an action.
#[derive(Debug, Clone)]
struct Audience {
    owner: Owner,
    channel: String,
    visible: Option<Visible>,
    to: Option<String>,
}

type Decided = Arc<Mutex<HashMap<ConnectionId, bool>>>;

impl Host {
    /// Publishes an action on a channel of the caller's.
    pub(crate) fn publish_on_channel(
        self: &Arc<Self>,
        caller: &Caller,
        scheme: &str,
        spelled: &str,
        action: JsonObject,
        options: Option<PublishOptions>,
    ) -> Result<(), Thrown> {
        let refused = |why: String| Thrown::new(format_args!("plugin {}: publish {why}", caller.plugin));
        if self.stage() == Stage::Loading {
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
        let action = Value::Object(action).to_string();
        self.take_publish(Published { channel, action, audience }).map_err(refused)
    }

    fn take_publish(self: &Arc<Self>, published: Published) -> Result<(), String> {
        let mut lanes = self.plugin_channels.lanes.0.lock();
        if let Some(lane) = lanes.get_mut(&published.channel) {
            if lane.len() >= MOST_WAITING {
                let channel = &published.channel;
                return Err(format!(
                    "is not taken: {MOST_WAITING} actions of {channel} wait for their visible"
                ));
            }
            lane.push_back(published);
            return Ok(());
        }
        let asks = published.audience.as_ref().is_some_and(|audience| audience.visible.is_some());
        if !asks {
            drop(lanes);
            // Nobody is waited for, so it is out before this returns.
            self.send_published(published).now_or_never();
            return Ok(());
        }
        lanes.insert(published.channel.clone(), VecDeque::new());
        drop(lanes);
        let host = self.clone();
        tokio::spawn(async move {
            let mut next = Some(published);
            while let Some(published) = next {
                let channel = published.channel.clone();
                host.send_published(published).await;
                next = host.next_published(&channel);
            }
        });
        Ok(())
    }

    fn next_published(&self, channel: &str) -> Option<Published> {
        let mut lanes = self.plugin_channels.lanes.0.lock();
        let next = lanes.get_mut(channel).and_then(VecDeque::pop_front);
        if next.is_none() {
            lanes.remove(channel);
        }
        next
    }

    /// Sends an action to everybody who may see it. Whoever subscribes while others are asked about is asked about too.
    async fn send_published(self: &Arc<Self>, published: Published) {
        let Published { channel, action, audience } = published;
        let Some(audience) = audience else {
            return self.fanout.publish(&channel, vec![Outgoing::host(action, Version::V0_9)]);
        };
        let decided = Decided::default();
        let mut outgoing = Outgoing {
            overlay: Some(overlay(Arc::downgrade(self), audience.clone(), decided.clone())),
            ..Outgoing::host(action, Version::V0_9)
        };
        let mut unknown = self.fanout.watchers(&channel);
        loop {
            let answers = self.see(&audience, &unknown).await;
            decided.lock().extend(answers);
            let known = |connection: ConnectionId| decided.lock().contains_key(&connection);
            match self.fanout.publish_known(&channel, outgoing, known) {
                Ok(()) => return,
                Err((again, came)) => (outgoing, unknown) = (again, came),
            }
        }
    }

    /// Which of these connections may see an action: each client and person is asked about once, all together.
    async fn see(&self, audience: &Audience, connections: &[ConnectionId]) -> HashMap<ConnectionId, bool> {
        let mut asked: Vec<Subscriber> = Vec::new();
        let mut rows: HashMap<ConnectionId, Option<usize>> = HashMap::with_capacity(connections.len());
        let mut at: HashMap<Subscriber, usize> = HashMap::new();
        for connection in connections {
            let subscriber = self.subscriber_of(*connection).filter(|subscriber| audience.may_be(subscriber));
            let row = subscriber.map(|subscriber| {
                *at.entry(subscriber.clone()).or_insert_with(|| {
                    asked.push(subscriber);
                    asked.len() - 1
                })
            });
            rows.insert(*connection, row);
        }
        let seen = match &audience.visible {
            Some(visible) => self.ask_visible(audience, visible, &asked).await,
            None => vec![true; asked.len()],
        };
        let sees = |row: Option<usize>| row.and_then(|row| seen.get(row).copied()).unwrap_or_default();
        rows.into_iter().map(|(connection, row)| (connection, sees(row))).collect()
    }

    /// Asks about all in one crossing. Where one does not answer in time each is asked about alone, so that it costs
    /// itself.
    async fn ask_visible(&self, audience: &Audience, visible: &Visible, of: &[Subscriber]) -> Vec<bool> {
        if of.is_empty() {
            return Vec::new();
        }
        let row = |subscriber: &Subscriber| (subscriber.reader.clone(), subscriber.client.clone());
        let together = visible.call_each(of.iter().map(row).collect());
        let answers = match tokio::time::timeout(VISIBLE_LIMIT, together).await {
            Ok(answers) => answers,
            Err(_) => {
                let alone = of.iter().map(|subscriber| in_time(VISIBLE_LIMIT, visible.call(row(subscriber))));
                futures::future::join_all(alone).await
            }
        };
        let failed: Vec<&Thrown> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        if let Some(first) = failed.first() {
            let what = format!("visible for {} of {} on {}", failed.len(), of.len(), audience.channel);
            self.report_failed(&audience.owner, &what, first);
        }
        answers.into_iter().map(|answer| answer.unwrap_or_default()).collect()
    }
}

impl Audience {
    fn may_be(&self, subscriber: &Subscriber) -> bool {
        self.to.as_ref().is_none_or(|to| *to == subscriber.client)
    }
}

/// What was decided holds for the send; whoever is replayed the action is asked about anew.
fn overlay(host: Weak<Host>, audience: Audience, decided: Decided) -> Overlay {
    let seen = move |connection| match decided.lock().get(&connection) {
        Some(true) => Overlaid::Same,
        _ => Overlaid::Nothing,
    };
    Overlay::new(seen).asked_again(move |connection| {
        let (host, audience) = (host.clone(), audience.clone());
        Box::pin(async move {
            let Some(host) = host.upgrade() else { return false };
            host.see(&audience, &[connection]).await.get(&connection).copied().unwrap_or_default()
        })
    })
}
