//! The messages of a link: a line of JSON, followed by a frame of a client or of the host where the message has one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::Slug;
use ostler_engine_core::outbox::{Closed, HOST_NUMBER};
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::{JsonObject, Version};
use serde::{Deserialize, Serialize};

use crate::front::Front;

/// The number of the root channel's notifications in place of a connection's.
pub(super) const ROOT: u64 = HOST_NUMBER;

/// A message of a link. A host ignores types that it does not know, because hosts of adjacent versions work together.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum LinkMessage {
    /// The first message of each end: its run.
    Hello { incarnation: String },
    /// Opens a connection for a client of the sender.
    Open {
        connection: u64,
        client: String,
        /// How the client's messages entered its host. A host of an earlier version does not say it.
        #[serde(default)]
        way: String,
        version: String,
        principal: WirePrincipal,
        credentials: BTreeMap<String, String>,
        settings: JsonObject,
    },
    /// A frame from the client of a connection, or for the clients of several. `bounces` is how often another host
    /// returned it.
    Frame {
        to: Vec<u64>,
        #[serde(default, skip_serializing_if = "is_zero")]
        bounces: u8,
    },
    /// The identity of a connection changed.
    Principal { connection: u64, principal: WirePrincipal },
    /// A token for a resource; an empty one removes it.
    Credential { connection: u64, resource: String, token: String },
    /// The settings of a connection changed.
    Settings { connection: u64, settings: JsonObject },
    /// The client of a connection disconnected.
    Close { connection: u64 },
    /// A frame that is returned because its session is owned by another host.
    Bounced { connection: u64, bounces: u8, session: String },
    /// The owner closed a connection.
    Closed { connection: u64, why: Ended },
    /// Requests the notifications of the root channel, as frames to [`ROOT`].
    Watch,
    /// Sent regularly, so that the end of a peer is noticed.
    Ping,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde requires")]
fn is_zero(bounces: &u8) -> bool {
    *bounces == 0
}

/// Why the owner closed a connection.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum Ended {
    /// The client did not keep up.
    Behind,
    /// No memory was available for its messages.
    NoMemory,
    /// The host no longer serves what it subscribed to.
    #[serde(other)]
    Moved,
}

impl From<Closed> for Ended {
    fn from(why: Closed) -> Self {
        match why {
            Closed::Behind => Self::Behind,
            Closed::NoMemory => Self::NoMemory,
            _ => Self::Moved,
        }
    }
}

impl From<Ended> for Closed {
    fn from(why: Ended) -> Self {
        match why {
            Ended::Behind => Self::Behind,
            Ended::NoMemory => Self::NoMemory,
            Ended::Moved => Self::Moved,
        }
    }
}

/// The identity of a connection for another host, which determines the grants itself.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(super) enum WirePrincipal {
    /// Not signed in.
    Anyone,
    /// The host itself.
    Root,
    /// A plugin, by its id.
    Plugin { id: String },
    /// A user, by its id, with the names of the roles that the issuer of its token confirmed, if an issuer identified it.
    User {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        roles: Option<Vec<String>>,
    },
}

impl From<&Principal> for WirePrincipal {
    fn from(principal: &Principal) -> Self {
        match principal {
            Principal::Anyone => Self::Anyone,
            Principal::Root => Self::Root,
            Principal::Plugin { id, .. } => Self::Plugin { id: id.clone() },
            Principal::Person(person) => Self::User { id: person.id.clone(), roles: person.claimed.clone() },
        }
    }
}

impl WirePrincipal {
    /// Returns whether it is a user that is unknown on this host.
    pub fn is_unknown(&self, here: &Principal) -> bool {
        matches!((self, here), (Self::User { .. }, Principal::Anyone))
    }

    /// Returns the principal with its grants on this host. An unknown user or plugin is anonymous.
    pub fn here(self, front: &Front) -> Principal {
        match self {
            Self::Anyone => Principal::Anyone,
            Self::Root => front.access.gate.root(),
            Self::Plugin { id } => {
                let slug = Slug::parse(&id);
                let registry = front.core.registry().zip(slug);
                let plugin = registry.and_then(|(registry, slug)| registry.plugin(&slug));
                let grants: Arc<[_]> =
                    plugin.map(|plugin| plugin.caller().grants.clone()).unwrap_or_default();
                Principal::Plugin { id, grants }
            }
            Self::User { id, roles } => {
                let person = front.access.gate.people().and_then(|people| {
                    let now = people.now();
                    let person = now.person_claiming(&id, roles.as_deref())?;
                    // A user can also sign in without an issuer, which confirms no roles.
                    // Where the users are shared, a later sign-in than this one may be known.
                    let may_be_older = people.are_shared() && people.person_as_signed_in(&id).is_some();
                    if roles.is_some() && !may_be_older {
                        people.note_claims(&person, &people.credential_by_issuer(&now, &person));
                    }
                    Some(person)
                });
                person.map_or(Principal::Anyone, Principal::Person)
            }
        }
    }
}

/// Returns a protocol version as clients name it.
pub(super) fn version_text(version: Version) -> &'static str {
    match version {
        Version::V0_9 => "0.9.0",
        _ => "1.0.0",
    }
}

impl LinkMessage {
    /// Returns the text of the message with its frame.
    pub fn text(&self, frame: &str) -> String {
        // A message can always be encoded.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.reserve_exact(frame.len() + 1);
        if !frame.is_empty() {
            text.push('\n');
            text.push_str(frame);
        }
        text
    }

    /// Parses a message; returns it with its frame.
    pub fn parse(text: &str) -> Result<(Self, &str), String> {
        let (head, frame) = text.split_once('\n').unwrap_or((text, ""));
        let message = serde_json::from_str(head);
        // The error can contain a token.
        message
            .map(|message| (message, frame))
            .map_err(|_| "it sent a message that cannot be read".to_owned())
    }
}

/// Returns the text of a frame for several connections.
pub(super) fn frame_for(to: impl Iterator<Item = u64>, frame: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(frame.len() + 64);
    text.push_str(r#"{"type":"frame","to":["#);
    for (at, number) in to.enumerate() {
        let _ = write!(text, "{}{number}", if at > 0 { "," } else { "" });
    }
    text.push_str("]}\n");
    text.push_str(frame);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_with_its_frame() {
        let frame = "{\n\"pretty\":1}";
        let text = LinkMessage::Frame { to: vec![3], bounces: 2 }.text(frame);
        let (message, read) = LinkMessage::parse(&text).expect("read");
        assert!(matches!(message, LinkMessage::Frame { to, bounces: 2 } if to == [3]));
        assert_eq!(read, frame);
        let text = frame_for([1, 20].into_iter(), frame);
        let (message, read) = LinkMessage::parse(&text).map_err(|_| ()).expect("read");
        assert!(matches!(message, LinkMessage::Frame { to, bounces: 0 } if to == [1, 20]));
        assert_eq!(read, frame);
    }

    #[test]
    fn a_message_of_a_later_version_is_ignored() {
        let later = LinkMessage::parse(r#"{"type":"later","connection":1}"#);
        assert!(matches!(later, Ok((LinkMessage::Unknown, ""))));
        let closed = LinkMessage::parse(r#"{"type":"closed","connection":1,"why":"later"}"#);
        assert!(matches!(closed, Ok((LinkMessage::Closed { why: Ended::Moved, .. }, ""))));
    }

    #[test]
    fn an_error_does_not_repeat_the_message() {
        let bad = LinkMessage::parse(r#"{"type":"credential","connection":"secret"}"#);
        assert!(bad.is_err_and(|why| !why.contains("secret")));
    }
}
