//! Subscribing: which channel a name means, who may watch it, and the snapshot it begins with.

use std::sync::Arc;
use std::time::Duration;

use ostler_protocol::grants::Grant;
use ostler_protocol::uri::Channel;
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::ResourceWatchState;
use ostler_protocol::{RpcError, names, uri};
use tokio::sync::oneshot;

use crate::channels::plugin::channel_name;
use crate::core::refusals::{no_automations, no_channel, no_run, nothing_at, nothing_serves};
use crate::core::responder::Responder;
use crate::front::connection::Connection;
use crate::sessions::{Place, Snapshots, Subscription, ToSession, snapshot};
use crate::workspace::terminals::no_terminal;

/// How long a plugin's channel may hold back the answer to a client that comes in; after that it is left out.
pub(super) const COLLECT_LIMIT: Duration = Duration::from_secs(5);

impl Connection {
    /// Subscribes to several channels; what cannot be is left out.
    pub(super) fn collect(self: &Arc<Self>, wanted: &[String]) -> impl Future<Output = Vec<String>> + use<> {
        let pending: Vec<_> = wanted
            .iter()
            .map(|spelled| {
                let (answer, wait) = oneshot::channel();
                let channel = self.front().sessions.channel(spelled);
                if self.may_subscribe(&channel).is_ok() {
                    self.subscribe(spelled, None, None, Snapshots::Collect(answer));
                }
                let asked = matches!(channel, Channel::Plugin { .. }).then(|| spelled.clone());
                (asked, wait)
            })
            .collect();
        let connection = self.clone();
        async move {
            let snapshots = pending.into_iter().map(|(asked, wait)| async {
                let Some(asked) = asked else { return wait.await.ok().flatten() };
                let in_time = tokio::time::timeout(COLLECT_LIMIT, wait).await;
                if in_time.is_err() {
                    connection.handle_unsubscribe(&asked);
                }
                in_time.ok()?.ok().flatten()
            });
            futures::future::join_all(snapshots).await.into_iter().flatten().collect()
        }
    }

    pub(super) fn handle_subscribe(self: &Arc<Self>, params: c::SubscribeParams, responder: Responder) {
        let channel = self.front().sessions.channel(&params.channel);
        if let Err(error) = self.may_subscribe(&channel) {
            return responder.fail(error);
        }
        let latency = params.delivery.and_then(|delivery| delivery.max_latency_ms);
        let latency = latency.map(|ms| u64::try_from(ms).unwrap_or_default());
        let turns = params.view.and_then(|view| view.turns);
        let turns = turns.map(|turns| usize::try_from(turns).unwrap_or_default());
        self.subscribe(&params.channel, latency, turns, Snapshots::Subscribe(responder));
    }

    /// Whether the connection may watch a channel.
    pub(crate) fn may_subscribe(&self, channel: &Channel) -> Result<(), RpcError> {
        let asked = match channel {
            Channel::Session(_) | Channel::Changeset { .. } | Channel::Annotations(_) => {
                Grant::of("session", "state")
            }
            Channel::Chat(_) | Channel::DefaultChat(_) | Channel::Worker { .. } => Grant::of("chat", "turns"),
            Channel::Automations | Channel::AutomationRun(_) => Grant::of("automation", "list"),
            Channel::Terminal(_) => Grant::of("terminal", "output"),
            Channel::Telemetry => Grant::of("diagnostics", "logs"),
            Channel::ResourceWatch(id) => {
                return self.front().resources.may_watch(&uri::resource_watch(id), &self.principal());
            }
            // Open to everybody, asked by whoever serves it, or nothing at all.
            Channel::Root | Channel::Plugin { .. } | Channel::Other => return Ok(()),
        };
        self.front().access.gate.require(&self.principal(), &asked)
    }

    /// The channel's own name.
    pub(super) fn channel_of(&self, spelled: &str) -> Result<String, RpcError> {
        let front = self.front();
        let channel = front.sessions.channel(spelled);
        if let Some((entry, place)) = front.sessions.locate(&channel) {
            return Ok(match place {
                Place::Session => entry.uri.clone(),
                Place::DefaultChat => entry.default_chat(),
                Place::Chat(chat) => chat,
                Place::Annotations => uri::annotations(&entry.uri),
            });
        }
        match channel {
            Channel::Root => Ok(uri::ROOT.to_owned()),
            Channel::Automations if front.core.automation_store().is_some() => {
                Ok(uri::AUTOMATIONS.to_owned())
            }
            Channel::AutomationRun(id) => {
                let run = uri::automation_run(&id);
                match front.automations.has_run(&run) {
                    true => Ok(run),
                    false => Err(no_run(spelled)),
                }
            }
            Channel::ResourceWatch(_) if front.resources.watched(spelled).is_some() => Ok(spelled.to_owned()),
            Channel::Terminal(uri) => match front.workspace.terminals.get(&uri) {
                Some(_) => Ok(uri),
                None => Err(no_terminal(&uri)),
            },
            Channel::Session(_)
            | Channel::Chat(_)
            | Channel::DefaultChat(_)
            | Channel::Worker { .. }
            | Channel::Annotations(_) => Err(nothing_at(spelled)),
            Channel::Changeset { .. } => front.workspace.watched_changeset(spelled),
            Channel::Automations => Err(no_automations()),
            Channel::Plugin { scheme } if front.channels.plugin_channel(&scheme).is_some() => {
                Ok(channel_name(spelled))
            }
            Channel::Plugin { scheme } => Err(nothing_serves(&scheme)),
            _ => Err(no_channel(spelled)),
        }
    }

    /// Subscribes to one channel; the snapshot goes where it is wanted.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        spelled: &str,
        latency: Option<u64>,
        turns: Option<usize>,
        answer: Snapshots,
    ) {
        let front = self.front();
        let parsed = front.sessions.channel(spelled);
        if let Channel::Plugin { scheme } = &parsed {
            return self.subscribe_to_plugin(scheme, spelled, latency, answer);
        }
        if parsed == Channel::Telemetry {
            return self.subscribe_telemetry(spelled, answer);
        }
        if let Channel::Changeset { .. } = parsed {
            return self.subscribe_changeset(spelled, latency, answer);
        }
        let channel = match self.channel_of(spelled) {
            Ok(channel) => channel,
            Err(error) => {
                // A run may have ended long ago: the store still knows it.
                if let Channel::AutomationRun(_) = parsed {
                    return self.subscribe_kept_run(spelled, latency, answer);
                }
                return answer.fail(error);
            }
        };
        let located = front.sessions.locate(&parsed);
        if let Some((entry, _)) = &located
            && let Err(full) = front.sessions.may_wake(entry)
        {
            return answer.fail(full);
        }
        let subscriber = self.subscriber(spelled, &channel, latency);
        self.remember(spelled, &channel);
        if let Some((entry, place)) = located {
            let client = self.client_id().unwrap_or_else(|| "anonymous".to_owned());
            let subscription =
                Subscription { spelled: spelled.to_owned(), place, subscriber, turns, client, answer };
            front.sessions.tell(&entry, ToSession::Subscribe(Box::new(subscription)));
            return;
        }
        let (state, seq) = match parsed {
            Channel::Root => {
                let (mut state, seq) = front.core.root.subscribe(&front.core.fanout, subscriber);
                front.channels.show_own_settings(&mut state, &self.principal());
                if let Some(principal) = front.access.principal_fact(&self.principal()) {
                    state["_meta"][names::meta_key("principal")] = principal.into();
                }
                (state.to_string(), seq)
            }
            Channel::Automations => front.automations.subscribe(&front.core.fanout, subscriber),
            Channel::AutomationRun(_) => {
                match front.automations.subscribe_run(&front.core.fanout, &channel, subscriber) {
                    Some(seen) => seen,
                    None => return self.subscribe_kept_run(spelled, latency, answer),
                }
            }
            Channel::Terminal(uri) => {
                let seen = front
                    .workspace
                    .terminals
                    .get(&uri)
                    .and_then(|open| open.subscribe(&front.workspace, subscriber));
                match seen {
                    Some(seen) => seen,
                    None => return answer.fail(no_terminal(&uri)),
                }
            }
            Channel::ResourceWatch(_) => match front.resources.watched(spelled) {
                Some(state) => {
                    let state: ResourceWatchState = state;
                    let text = serde_json::to_string(&state).unwrap_or_else(|_| "{}".to_owned());
                    (text, front.core.fanout.subscribe(&channel, subscriber))
                }
                None => return answer.fail(no_channel(spelled)),
            },
            _ => return answer.fail(no_channel(spelled)),
        };
        answer.give(snapshot(spelled, &state, seq));
    }

    /// A run that ended before this host started.
    pub(super) fn subscribe_kept_run(
        self: &Arc<Self>,
        spelled: &str,
        latency: Option<u64>,
        answer: Snapshots,
    ) {
        let (connection, spelled) = (self.clone(), spelled.to_owned());
        tokio::spawn(async move {
            let front = connection.front();
            match front.automations.kept_run(&spelled).await {
                Some(run) => {
                    let subscriber = connection.subscriber(&spelled, &spelled, latency);
                    connection.remember(&spelled, &spelled);
                    let seq = front.core.fanout.subscribe(&spelled, subscriber);
                    let state = serde_json::to_string(&run).unwrap_or_else(|_| "{}".to_owned());
                    answer.give(snapshot(&spelled, &state, seq));
                }
                None => answer.fail(no_run(&spelled)),
            }
        });
    }
}

impl Snapshots {
    pub(crate) fn fail(self, error: RpcError) {
        match self {
            Self::Subscribe(responder) => responder.fail(error),
            Self::Collect(collect) => {
                let _ = collect.send(None);
            }
        }
    }

    pub(crate) fn give(self, snapshot: String) {
        match self {
            Self::Subscribe(responder) => responder.raw(&format!(r#"{{"snapshot":{snapshot}}}"#)),
            Self::Collect(collect) => {
                let _ = collect.send(Some(snapshot));
            }
        }
    }
}
