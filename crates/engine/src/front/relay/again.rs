//! What is passed to another host again, because its session has another owner now, or its host was lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_contract::cluster::{ClusterHost, SessionElsewhere};
use ostler_contract::read::Read;
use ostler_engine_core::outbox::Closed;
use ostler_engine_core::refusals::moving;
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_sessions::Collected;
use ostler_protocol::commands::{Command, Notification};
use ostler_protocol::message::{Params, encode};
use ostler_protocol::{Id, Message, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::gateway::{BOUNCES_MAX, Passed, Pending, TAKEN_OVER, Tries};
use super::{Link, Relay, Route, unreachable};
use crate::front::commands::subject;
use crate::front::connection::Connection;
use crate::front::order::Work;

/// How long to wait before the owner of a session is determined again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

impl Connection {
    /// Sends a returned message to the host that owns its session now.
    pub(super) fn relay_bounced(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        link: &Arc<Link>,
        session: &str,
        frame: &str,
        bounces: u8,
    ) {
        let Some(relayed) = self.relayed_if_any() else { return };
        let Ok(message) = Message::parse(frame) else { return };
        let bounces = bounces.saturating_add(1);
        let tries = Tries { bounces, ..Tries::new() };
        let (connection, relay) = (self.clone(), relay.clone());
        match message {
            Message::Request { id, method, params } => match relayed.take_pending(link, &id) {
                Some(Pending::Request(responder)) => {
                    drop(tasks::spawn(async move {
                        connection.command_again(&relay, &method, params, responder, tries).await;
                    }));
                }
                Some(Pending::Subscribe { responder, params, channel, .. }) => {
                    relayed.unsubscribed(link, &channel);
                    drop(tasks::spawn(async move {
                        connection.command_again(&relay, &method, params, responder, tries).await;
                    }));
                }
                // It determines the owner again.
                Some(Pending::Collect { channel, answer }) => {
                    relayed.unsubscribed(link, &channel);
                    drop(answer);
                }
                None => {}
            },
            Message::Notification { method, params } => {
                let Some(Ok(Notification::DispatchAction(dispatch))) = Notification::decode(&method, &params)
                else {
                    return;
                };
                if bounces > BOUNCES_MAX {
                    return self.refuse_unsent(&dispatch, &moving(session));
                }
                let frame = frame.to_owned();
                tasks::spawn(async move {
                    match relay.route(connection.front(), &dispatch.channel).await {
                        Ok(Route::Here) => {
                            let length = params.text().len();
                            connection.take(Work::Dispatch { dispatch, length }, None).await;
                        }
                        Ok(Route::Elsewhere(host, session)) => {
                            let passed = Passed { host, session, frame, bounces, request: None };
                            connection.pass(&relay, passed).await;
                        }
                        Err(why) => connection.refuse_unsent(&dispatch, &why),
                    }
                });
            }
            Message::Response { .. } => {}
        }
    }

    /// Handles a command again whose session has another owner now.
    async fn command_again(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        method: &str,
        params: Params,
        responder: Responder,
        tries: Tries,
    ) {
        let command = match Command::decode(method, &params) {
            Ok(command) => command,
            Err(error) => return responder.fail(error),
        };
        let subject = subject(&command);
        let route = relay.route_command(self.front(), &subject).await;
        match route {
            Ok(Route::Here) => {
                let work = Work::Command { command, responder, span: Span::none() };
                Box::pin(self.take(work, None)).await;
            }
            Ok(Route::Elsewhere(host, session)) => {
                let subscribes = subject.served.filter(|_| subject.subscribes).map(str::to_owned);
                drop(command);
                self.pass_command(relay, (host, session), (method, params), subscribes, responder, tries)
                    .await;
            }
            Err(why) => responder.fail(why),
        }
    }

    /// Ends what the connection has over a link that ended, or at a host that closed it. A client that subscribed there
    /// is disconnected, and receives the current states when it reconnects.
    pub(super) fn relay_ended(self: &Arc<Self>, relay: &Arc<Relay>, link: &Arc<Link>, why: Closed) {
        let Some(end) = self.relayed_if_any().and_then(|relayed| relayed.take(link)) else { return };
        let mut subscriptions = end.subscriptions;
        for (_, pending) in end.pending {
            match pending {
                Pending::Request(responder) => responder.fail(unreachable(&link.host)),
                Pending::Subscribe { responder, until, .. } if Instant::now() > until => {
                    responder.fail(unreachable(&link.host));
                }
                Pending::Subscribe { responder, params, channel, until } => {
                    subscriptions.remove(&channel);
                    let tries = Tries { until, ..Tries::new() };
                    let (connection, relay) = (self.clone(), relay.clone());
                    tasks::spawn(async move {
                        connection.subscribe_later(&relay, params, responder, &channel, tries).await;
                    });
                }
                Pending::Collect { channel, answer } => {
                    subscriptions.remove(&channel);
                    drop(answer);
                }
            }
        }
        if !subscriptions.is_empty() || why != Closed::Moved {
            self.outbox.close(why);
        }
    }

    /// Subscribes once the session of a lost host is served again.
    async fn subscribe_later(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        params: Params,
        responder: Responder,
        channel: &str,
        tries: Tries,
    ) {
        loop {
            tokio::time::sleep(ASK_AGAIN).await;
            if self.is_closed() {
                return responder.leave();
            }
            let route = relay.route(self.front(), channel).await;
            let is_served = match &route {
                Ok(Route::Here) => true,
                Ok(Route::Elsewhere(host, _)) => relay.is_reachable(host),
                Err(_) => false,
            };
            if is_served || Instant::now() > tries.until {
                return self.command_again(relay, "subscribe", params, responder, tries).await;
            }
        }
    }

    /// Subscribes to the channels of `initialize` or `reconnect` that other hosts serve; omits those that fail.
    pub(in crate::front) fn collect_elsewhere(
        self: &Arc<Self>,
    ) -> Option<impl Future<Output = Vec<Collected>> + use<>> {
        let relay = self.front().relay()?.clone();
        let entering = std::mem::take(&mut *self.relayed_if_any()?.entering.lock());
        if entering.is_empty() {
            return None;
        }
        let connection = self.clone();
        Some(async move {
            let mut named = HashSet::new();
            let wanted = entering.iter().filter(|channel| named.insert(channel.as_str()));
            let each = wanted.map(|channel| connection.collect_one(&relay, channel));
            futures::future::join_all(each).await.into_iter().flatten().collect()
        })
    }

    async fn collect_one(self: &Arc<Self>, relay: &Arc<Relay>, channel: &str) -> Option<Collected> {
        let end = Instant::now() + TAKEN_OVER;
        while !self.is_closed() && !self.outbox.is_closed() && Instant::now() < end {
            match relay.route(self.front(), channel).await {
                Ok(Route::Here) => {
                    let held = self.front().sessions.load_channel(channel).await;
                    // Another host may have taken it over since.
                    if !matches!(&held, Read::Unknown(why) if SessionElsewhere::is(&why.0)) {
                        return self.collect(&[channel.to_owned()]).await.pop();
                    }
                }
                Ok(Route::Elsewhere(host, session)) => {
                    let (answer, wait) = oneshot::channel();
                    let number = self.relayed().requests.fetch_add(1, Ordering::Relaxed);
                    let id = Id::Text(format!("ostler/subscribe/{number}"));
                    let params = json!({ "channel": channel });
                    let frame = encode::request(&id, "subscribe", &params).unwrap_or_default();
                    let pending = Pending::Collect { channel: channel.to_owned(), answer };
                    let request = Some((id, pending));
                    self.pass(relay, Passed { host, session, frame, bounces: 0, request }).await;
                    if let Ok(snapshot) = wait.await {
                        return snapshot.map(|text| Collected { text, charge: None });
                    }
                }
                Err(_) => {}
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        None
    }
}

impl Relay {
    /// Returns whether a host may answer: it can be connected to.
    fn is_reachable(self: &Arc<Self>, host: &Arc<ClusterHost>) -> bool {
        let link = self.link_to(host);
        let is_ended = link.table.lock().is_ended;
        !is_ended
    }
}
