//! Channels of plugins: who may watch one, the state a watch begins with, what is published on it and to whom. What a
//! plugin is asked on the way is never waited for by anything but what asked.

mod publish;
mod subscribe;
mod watching;

use ostler_contract::PluginId;
use ostler_contract::points::{SchemeChannel, Subscriber};
use ostler_contract::registry::{Owned, Owner};
use ostler_protocol::uri;

use crate::core::ids::ConnectionId;
use crate::host::Host;
use publish::Lanes;
use watching::Watching;

/// The channels of plugins, as far as the host keeps something of them.
#[derive(Debug, Default)]
pub(crate) struct PluginChannels {
    lanes: Lanes,
    watching: Watching,
}

/// A URI of a plugin's channel as the channel itself is called: its scheme is lowercase.
pub(crate) fn channel_name(spelled: &str) -> String {
    match (uri::scheme(spelled), spelled.split_once(':')) {
        (Some(scheme), Some((_, rest))) => format!("{scheme}:{rest}"),
        _ => spelled.to_owned(),
    }
}

impl Host {
    /// The plugin channel of a scheme.
    pub(crate) fn plugin_channel(&self, scheme: &str) -> Option<Owned<SchemeChannel>> {
        let channels = self.registry()?.all::<SchemeChannel>();
        channels.iter().find(|channel| channel.scheme.eq_ignore_ascii_case(scheme)).cloned()
    }

    /// The channel of a scheme, if it is this plugin's.
    fn channel_of_plugin(&self, plugin: &PluginId, scheme: &str) -> Result<Owned<SchemeChannel>, String> {
        match self.plugin_channel(scheme) {
            Some(channel) if channel.owner == Owner::Plugin(plugin.clone()) => Ok(channel),
            Some(channel) => Err(format!("{scheme} is {}'s", channel.owner)),
            None => Err(format!("{scheme} is not served here")),
        }
    }

    /// A connection as a plugin's channel is told of it.
    fn subscriber_of(&self, connection: ConnectionId) -> Option<Subscriber> {
        let connection = self.access.clients.get(connection)?;
        Some(Subscriber {
            client: connection.client_id()?,
            reader: self.access.reader_known(&connection.principal()),
        })
    }

    /// Who watches a URI of a plugin's channel, once per client and person.
    pub(crate) fn channel_subscribers(
        &self,
        plugin: &PluginId,
        scheme: &str,
        spelled: &str,
    ) -> Vec<Subscriber> {
        let channel = channel_name(spelled);
        if uri::scheme(&channel).as_deref() != Some(scheme) || self.channel_of_plugin(plugin, scheme).is_err()
        {
            return Vec::new();
        }
        let mut subscribers: Vec<Subscriber> = Vec::new();
        for connection in self.fanout.watchers(&channel) {
            if let Some(subscriber) = self.subscriber_of(connection)
                && !subscribers.contains(&subscriber)
            {
                subscribers.push(subscriber);
            }
        }
        subscribers
    }
}
