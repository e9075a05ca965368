//! Channels of plugins: who can subscribe, the initial state of a subscription, and what is published to whom. Only the
//! request itself waits for the answers of a plugin.

mod publish;
mod subscriptions;

use std::sync::Arc;

use ostler_contract::points::{SchemeChannel, Subscriber};
use ostler_contract::registry::{Owned, Registrant};
use ostler_contract::{PluginId, limit};
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::tasks;
use ostler_engine_users::users::clients::Client;
use ostler_protocol::uri;

use crate::channels::Channels;
use publish::Lanes;
use subscriptions::Watching;

pub(crate) use subscriptions::Begin;

/// The state that the host has of plugins' channels.
#[derive(Debug, Default)]
pub(crate) struct PluginChannels {
    lanes: Lanes,
    watching: Watching,
}

/// Returns the canonical URI of a plugin's channel, with a lowercase scheme.
pub(crate) fn channel_name(spelled: &str) -> String {
    match (uri::scheme(spelled), spelled.split_once(':')) {
        (Some(scheme), Some((_, rest))) => format!("{scheme}:{rest}"),
        _ => spelled.to_owned(),
    }
}

impl Channels {
    /// Returns the plugin channel of a scheme.
    pub(crate) fn plugin_channel(&self, scheme: &str) -> Option<Owned<SchemeChannel>> {
        let channels = self.core.registry()?.all::<SchemeChannel>();
        channels.iter().find(|channel| channel.scheme.eq_ignore_ascii_case(scheme)).cloned()
    }

    /// Returns the channel of a scheme, if it belongs to this plugin.
    fn channel_of_plugin(&self, plugin: &PluginId, scheme: &str) -> Result<Owned<SchemeChannel>, String> {
        match self.plugin_channel(scheme) {
            Some(channel) if channel.owner == Registrant::Plugin(plugin.clone()) => Ok(channel),
            Some(channel) => Err(format!("{scheme} belongs to {}", channel.owner)),
            None => Err(format!("{scheme} is not served here")),
        }
    }

    /// Returns a connection in the form that a plugin's channel receives.
    fn subscriber_of(&self, connection: ConnectionId) -> Option<Subscriber> {
        let connection = self.access.clients.get(connection)?;
        Some(Subscriber {
            client: connection.client_id()?,
            reader: self.access.reader_known(&connection.principal()),
        })
    }

    /// Returns the subscribers of a URI of a plugin's channel, once per client and user.
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
        for connection in self.core.fanout.watchers(&channel) {
            if let Some(subscriber) = self.subscriber_of(connection)
                && !subscribers.contains(&subscriber)
            {
                subscribers.push(subscriber);
            }
        }
        subscribers
    }

    /// Counts a subscription of a client and starts the resulting notification of the plugin.
    pub(crate) fn begin_to_watch(
        &self,
        scheme: &str,
        client: &str,
        at: (ConnectionId, String),
        begin: Option<Begin>,
    ) {
        self.plugin_channels.watching.add(&scheme.to_ascii_lowercase(), client, at, begin);
    }

    /// Records that a client has its snapshot.
    pub(crate) fn came_to_watch(&self, scheme: &str, client: &str) {
        self.plugin_channels.watching.came(scheme, client);
    }

    /// Notifies a plugin's channel that a connection no longer subscribes to a URI.
    pub(crate) fn left_plugin_channel(
        self: &Arc<Self>,
        scheme: &str,
        name: &str,
        connection: &dyn Client,
        failed: bool,
    ) {
        let Some(client) = connection.client_id() else { return };
        let channel = self.plugin_channel(scheme);
        let left = channel.and_then(|channel| {
            let left = channel.channel.left.clone()?;
            let (channels, owner, client) = (self.clone(), channel.owner, client.clone());
            let what = format!("its left of {}", channel.value.scheme);
            Some(Box::new(move || {
                let told = left.within(limit::LEFT, (client,));
                tasks::spawn(async move {
                    if let Err(why) = told.await {
                        channels.core.report_failed(&owner, &what, &why);
                    }
                });
            }) as Begin)
        });
        let at = (connection.id(), name.to_owned());
        self.plugin_channels.watching.remove(scheme, &client, &at, failed, left);
    }
}
