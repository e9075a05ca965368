//! Sessions, their chats, and their annotations.

use std::sync::Arc;

use ostler_contract::read::Read;
use ostler_engine_core::refusals::{moving, nothing_at, unread};
use ostler_engine_core::tasks;
use ostler_engine_sessions::{
    ACTIVE_CLIENT_SET, Dispatch, Place, SessionEntry, Snapshots, Subscription, ToSession,
};
use ostler_protocol::uri::Channel;
use ostler_protocol::{RpcError, uri};

use super::{COPIES, ChannelKind, Dispatched, Subscribing, require};
use crate::front::Front;
use crate::front::connection::Connection;

/// The channel of a session, a chat or annotations.
pub(super) struct OfSession(pub Channel);

/// Refuses a subscription to a session that is not in memory any more. In a cluster it may have left for another host since this
/// one was chosen; a client drops a session that is said to be absent.
fn refuse_absent(front: Arc<Front>, spelled: String, answer: Snapshots) {
    if front.core.cluster().is_none() {
        return answer.fail(nothing_at(&spelled));
    }
    tasks::spawn(async move {
        answer.fail(match front.sessions.load_channel(&spelled).await {
            Read::Known(None) => nothing_at(&spelled),
            Read::Known(Some(_)) => moving(&spelled),
            Read::Unknown(why) => unread(&spelled, &why),
        });
    });
}

fn name_of(entry: &SessionEntry, place: &Place) -> String {
    match place {
        Place::Session => entry.uri.clone(),
        Place::DefaultChat => entry.default_chat(),
        Place::Chat(chat) => chat.clone(),
        Place::Annotations => uri::annotations(&entry.uri),
    }
}

impl ChannelKind for OfSession {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        match self.0 {
            Channel::Session(_) | Channel::Annotations(_) => require(connection, "session", "state"),
            _ => require(connection, "chat", "turns"),
        }
    }

    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError> {
        let located = front.sessions.locate(&self.0);
        located.map(|(entry, place)| name_of(&entry, &place)).ok_or_else(|| nothing_at(spelled))
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let front = connection.front();
        let Subscribing { spelled, latency, turns, answer } = subscribing;
        let located = front.sessions.locate(&self.0).filter(|(entry, _)| !entry.is_gone());
        let Some((entry, place)) = located else {
            return refuse_absent(front.clone(), spelled, answer);
        };
        if let Err(full) = front.sessions.may_wake(&entry) {
            return answer.fail(full);
        }
        let name = name_of(&entry, &place);
        let subscriber = connection.subscriber(&spelled, &name, latency);
        connection.remember(&spelled, &name);
        let client = connection.client_id().unwrap_or_else(|| "anonymous".to_owned());
        let subscription = Subscription { spelled, place, subscriber, turns, client, answer, room: None };
        front.sessions.tell(&entry, ToSession::Subscribe(Box::new(subscription)));
    }

    /// Nothing followed its directories while it had no subscribers. A session that sleeps is not woken for that.
    fn resume(&self, connection: &Connection, spelled: &str, channel: &str) {
        connection.remember(spelled, channel);
        let front = connection.front();
        if let Some((entry, Place::Session)) = front.sessions.locate(&self.0)
            && entry.is_awake()
        {
            front.workspace.session_is_watched(entry);
        }
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        let front = connection.front();
        let gone = || nothing_at(dispatched.spelled).message;
        let (entry, place) = front.sessions.locate(&self.0).ok_or_else(gone)?;
        if dispatched.row.name == ACTIVE_CLIENT_SET {
            connection.acts_in(&entry.uri)?;
        }
        let message = Dispatch {
            spelled: dispatched.spelled.to_owned(),
            place,
            row: dispatched.row,
            action: dispatched.action.clone(),
            origin: dispatched.origin.clone(),
            connection: connection.reference(),
            sender: connection.owner(),
            way: connection.way(),
            length: dispatched.length,
            charge: connection.charge_copies(dispatched.length, COPIES),
            room: None,
        };
        if !front.sessions.tell(&entry, ToSession::Dispatch(Box::new(message))) {
            connection.acts_no_more_in(&entry.uri, Some(false));
            return Err(gone());
        }
        Ok(())
    }

    fn unsubscribed(&self, connection: &Connection, _: &str) {
        let sessions = &connection.front().sessions;
        let (Some(client), Some((entry, place))) = (connection.client_id(), sessions.locate(&self.0)) else {
            return;
        };
        sessions.draft_left(&entry, &client);
        if place == Place::Session {
            connection.acts_no_more_in(&entry.uri, None);
        }
        if place == Place::Session && entry.is_awake() {
            sessions.tell(&entry, ToSession::Left { client });
        }
    }
}
