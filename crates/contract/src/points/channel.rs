//! Plugin channels. Spec: *Channel definition*.

use std::sync::Arc;

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::grants::Grant;
use ostler_protocol::{names, uri};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, Checked, Contribution, Reader, Slot};
use crate::call::{Call, Func};
use crate::cross::{Cross, Mismatch, Text};
use crate::host::PluginHost;
use crate::recorder::{Key, Space, Unique};

/// The prefix of names of plugin channels and commands.
const OWN: &str = "x-";

/// A plugin channel: clients subscribe to URIs of its scheme and receive the actions that the plugin publishes. Clients
/// cannot dispatch to it.
///
/// ```
/// use ostler_contract::{Call, json, points::{Channel, Description}};
///
/// let board = Channel {
///     grant: "x-board:watch".into(),
///     snapshot: Call::now(|(uri, _reader, _client)| Ok(json!({ "board": uri, "cards": [] }))),
///     describe: Some(Call::now(|()| Ok(Description { title: Some("Board".into()), ..Description::default() }))),
///     ..Channel::default()
/// };
/// # assert!(ostler_contract::Cross::check(&board).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Channel {
    /// The grant required to subscribe: `<subject>:<operation>`.
    pub grant: Text,
    /// Returns the state for a new subscriber. The client is already a subscriber when it is called, so later actions
    /// follow the state and can be contained in both.
    pub snapshot: Call<fn(uri: String, reader: Option<Reader>, client: String) -> Value>,
    /// Called only for a reader without the grant; can accept the reader.
    pub authorize: Option<Call<fn(uri: String, reader: Reader) -> bool>>,
    /// Called when a client no longer subscribes to any URI of the scheme.
    pub left: Option<Call<fn(client: String)>>,
    /// Describes the channel to clients. Default title: the scheme.
    pub describe: Option<Call<fn() -> Description>>,
}

/// The description of a channel or command for clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Description {
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Longer description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The result of `registerChannel`.
#[derive(Debug, Clone, Cross)]
pub struct ChannelHandle {
    /// Sends an action to the subscribers of a URI, with the next sequence number; its `type` starts with `<scheme>/`.
    /// Actions of one URI are sent in the order of the calls. Throws before the host is built.
    pub publish: Func<fn(uri: String, action: JsonObject, options: Option<PublishOptions>)>,
    /// The subscribers of a URI, one entry per client id and user.
    pub subscribers: Func<fn(uri: String) -> Vec<Subscriber>>,
}

/// A subscriber of a plugin channel's URI.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Subscriber {
    /// The client's id.
    pub client: String,
    /// The user; absent on a host without a users file and for the root connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<Reader>,
}

/// Who receives an action.
#[derive(Debug, Clone, Default, Cross)]
pub struct PublishOptions {
    /// Called for each subscriber, and again when the action is replayed. A subscriber that it rejects, or for which it
    /// throws, does not receive the action.
    pub visible: Option<Call<fn(reader: Option<Reader>, client: String) -> bool>>,
    /// The only client that receives the action.
    pub to: Option<String>,
}

/// A channel with its scheme.
#[derive(Debug)]
pub struct SchemeChannel {
    /// The scheme, starting with `x-`.
    pub scheme: Text,
    /// The channel.
    pub channel: Channel,
}

impl Checked for SchemeChannel {
    fn holds(&self) -> Result<(), Mismatch> {
        self.scheme.check().map_err(|wrong| wrong.within("scheme"))?;
        self.channel.check().map_err(|wrong| wrong.within("channel"))
    }
}

impl Contribution for SchemeChannel {
    const SLOT: Slot = Slot::Keyed;

    fn key(&self) -> Option<Key> {
        Some(Key {
            space: Space::Scheme,
            name: self.scheme.to_string(),
            member: "scheme",
            unique: Unique::Among { kind: "channel", takes: "scheme", other: "channel" },
        })
    }

    fn refuse(&self) -> Result<(), Mismatch> {
        if !is_own(&self.scheme) || !uri::is_scheme(&self.scheme) {
            return Err(Mismatch::expected("a URI scheme that starts with x-, as x-board").within("scheme"));
        }
        refuse_grant(&self.channel.grant, "channel.grant")
    }

    fn is_hosts(&self) -> bool {
        self.scheme.eq_ignore_ascii_case(&names::own_scheme())
    }
}

impl Answer<SchemeChannel> for ChannelHandle {
    fn answer(value: &Arc<SchemeChannel>, host: &PluginHost) -> Self {
        let scheme = value.scheme.to_ascii_lowercase();
        let (publishes, asks) = ((host.clone(), scheme.clone()), (host.clone(), scheme));
        Self {
            publish: Func::new(move |(uri, action, options)| {
                let (host, scheme) = &publishes;
                host.publish(scheme.clone(), uri, action, options)
            }),
            subscribers: Func::new(move |(uri,)| {
                let (host, scheme) = &asks;
                host.subscribers(scheme.clone(), uri)
            }),
        }
    }
}

/// Returns whether a name has the prefix of plugin channels and commands.
pub(super) fn is_own(name: &str) -> bool {
    name.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN)) && name.len() > OWN.len()
}

/// Rejects text that is not a grant, or a grant that no user can hold.
pub(super) fn refuse_grant(text: &str, member: &str) -> Result<(), Mismatch> {
    match Grant::parse(text) {
        Some(grant) if grant.is_known() => Ok(()),
        Some(grant) => {
            let wanted = format!("a known grant; {} has no operation {}", grant.subject, grant.operation);
            Err(Mismatch::expected(wanted).within(member))
        }
        None => Err(Mismatch::expected("a grant, <subject>:<operation>, as x-board:get").within(member)),
    }
}
