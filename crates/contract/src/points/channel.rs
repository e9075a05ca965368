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

/// What a name of a plugin's own channel or command starts with.
const OWN: &str = "x-";

/// A channel of a plugin's own: clients subscribe to URIs of its scheme and are sent what the plugin publishes.
/// No client dispatches there.
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
    /// The grant a subscribe needs: `<subject>:<operation>`.
    pub grant: Text,
    /// The state a subscribe answers. It is asked once the client counts as a subscriber: what is published from
    /// then on follows the state, so an action may be in both.
    pub snapshot: Call<fn(uri: String, reader: Option<Reader>, client: String) -> Value>,
    /// Asked only of a reader the grant refused; may let it in.
    pub authorize: Option<Call<fn(uri: String, reader: Reader) -> bool>>,
    /// Called once a client watches no URI of the scheme on any connection.
    pub left: Option<Call<fn(client: String)>>,
    /// Names the channel to clients; the title is the scheme where it has none.
    pub describe: Option<Call<fn() -> Description>>,
}

/// What a client may be told about a channel or a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Description {
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// More words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What `registerChannel` answers.
#[derive(Debug, Clone, Cross)]
pub struct ChannelHandle {
    /// Sends an action to whoever watches a URI, under the host's next number; its `type` starts with `<scheme>/`.
    /// Actions of one URI are sent in the order they were published. Throws before the host is built.
    pub publish: Func<fn(uri: String, action: JsonObject, options: Option<PublishOptions>)>,
    /// Who watches a URI, once per client id and person.
    pub subscribers: Func<fn(uri: String) -> Vec<Subscriber>>,
}

/// Somebody who watches a URI of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Subscriber {
    /// The client's id.
    pub client: String,
    /// Who it is; absent on a host with no users directory and on the root connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<Reader>,
}

/// Who is sent an action.
#[derive(Debug, Clone, Default, Cross)]
pub struct PublishOptions {
    /// Asked for each subscriber at the send, and again when the action is replayed; one it refuses or throws
    /// for is not sent the action.
    pub visible: Option<Call<fn(reader: Option<Reader>, client: String) -> bool>>,
    /// The one client that gets it.
    pub to: Option<String>,
}

/// A channel and its scheme, registered.
#[derive(Debug)]
pub struct SchemeChannel {
    /// Starts with `x-`.
    pub scheme: Text,
    /// Serves it.
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

/// Whether a name is one of those a plugin's own channels and commands have.
pub(super) fn is_own(name: &str) -> bool {
    name.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN)) && name.len() > OWN.len()
}

/// Refuses a text that is no grant, or one that nobody could be given.
pub(super) fn refuse_grant(text: &str, member: &str) -> Result<(), Mismatch> {
    match Grant::parse(text) {
        Some(grant) if grant.is_known() => Ok(()),
        Some(grant) => {
            let wanted = format!("a grant somebody may hold; {} knows no {}", grant.subject, grant.operation);
            Err(Mismatch::expected(wanted).within(member))
        }
        None => Err(Mismatch::expected("a grant, <subject>:<operation>, as x-board:get").within(member)),
    }
}
