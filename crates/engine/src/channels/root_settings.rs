//! The daemon's own settings on the root channel: who may read the configuration sees them beside the host's,
//! credentials hidden, and changes them there. The engine knows none of their names; whoever builds the host
//! hands them in.

use std::sync::Arc;

use ostler_contract::Pending;
use ostler_protocol::grants::Grant;
use ostler_protocol::{JsonObject, Value, Version, json, uri};

use crate::core::fanout::{Origin, Outgoing, Overlaid, Overlay, rejection};
use crate::front::connection::Connection;
use crate::host::Host;
use crate::users::principal::Principal;

pub use crate::core::refusals::no_setting;

/// Settings of whoever built the host.
pub trait OwnSettings: Send + Sync {
    /// Whether a key of the root channel's configuration is one of them.
    fn owns(&self, key: &str) -> bool;

    /// What each key looks like, as properties of a configuration schema.
    fn schema(&self) -> JsonObject;

    /// What is set, as it is shown: no credential is in it.
    fn values(&self) -> JsonObject;

    /// Keys of the root state's `_meta`.
    fn meta(&self) -> JsonObject;

    /// Takes a change of some of them.
    fn change(&self, config: JsonObject) -> Pending<OwnChange>;
}

/// What came of a change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnChange {
    /// The keys that changed, as they are shown now.
    pub shown: JsonObject,
    /// Why the rest was not taken.
    pub refused: Option<String>,
}

impl std::fmt::Debug for dyn OwnSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OwnSettings")
    }
}

impl Host {
    /// Shows settings on the root channel beside the host's own; before anybody is let in.
    pub fn set_own_settings(&self, settings: Arc<dyn OwnSettings>) {
        let _ = self.own_settings.set(settings);
    }

    fn may_read_config(&self, principal: &Principal) -> bool {
        self.access.gate.require(principal, &Grant::of("config", "settings")).is_ok()
    }

    /// Puts them into a root state somebody is about to see.
    pub(crate) fn show_own_settings(&self, state: &mut Value, to: &Principal) {
        let Some(settings) = self.own_settings.get().filter(|_| self.may_read_config(to)) else { return };
        let mut extend = |pointer: &str, with: JsonObject| {
            if let Some(fields) = state.pointer_mut(pointer).and_then(Value::as_object_mut) {
                fields.extend(with);
            }
        };
        extend("/config/schema/properties", settings.schema());
        extend("/config/values", settings.values());
        let meta = settings.meta();
        if !meta.is_empty()
            && let Some(state) = state.as_object_mut()
            && let Some(fields) = state.entry("_meta").or_insert_with(|| json!({})).as_object_mut()
        {
            fields.extend(meta);
        }
    }

    /// Tells who may read the configuration what changed in it.
    fn publish_own_settings(&self, origin: Option<Origin>, values: &JsonObject) {
        let Some(me) = self.me() else { return };
        let host = Arc::downgrade(&me);
        let overlay = move |id| {
            let reads = host.upgrade().is_some_and(|host| {
                host.access
                    .clients
                    .get(id)
                    .is_some_and(|connection| host.may_read_config(&connection.principal()))
            });
            match reads {
                true => Overlaid::Same,
                false => Overlaid::Other(json!({ "type": "root/configChanged", "config": {} }).to_string()),
            }
        };
        let action = json!({ "type": "root/configChanged", "config": values }).to_string();
        let overlay = Some(Overlay::new(overlay));
        self.fanout
            .publish(uri::ROOT, vec![Outgoing { origin, overlay, ..Outgoing::host(action, Version::V0_9) }]);
    }
}

impl Connection {
    /// Takes a change of the root channel's settings: those of whoever built the host first, then the rest.
    pub(crate) fn change_config(
        self: &Arc<Self>,
        channel: &str,
        origin: Origin,
        config: JsonObject,
        replace: bool,
    ) {
        let host = self.host().clone();
        let settings = host.own_settings.get().cloned();
        let owns = |key: &str| settings.as_ref().is_some_and(|settings| settings.owns(key));
        let (own, rest): (JsonObject, JsonObject) = config.into_iter().partition(|(key, _)| owns(key));
        let (connection, channel) = (self.clone(), channel.to_owned());
        // What a client sent may be a credential: it is not sent back with the refusal, but what is in force is.
        let refuse = move |host: &Host, origin: &Origin, shown: JsonObject, why: &str| {
            let action = json!({ "type": "root/configChanged", "config": shown }).to_string();
            connection.outbox.send(rejection(&channel, &action, host.fanout.seq(), origin, why));
        };
        let id = self.id();
        let sent: Vec<String> = rest.keys().cloned().collect();
        let others = move |host: &Host, origin: Option<Origin>| {
            let taken = host.root.set_config(&host.fanout, id, origin, rest, replace);
            if replace
                && taken.is_ok()
                && let Some(settings) = host.own_settings.get()
            {
                // Nothing of these is taken back by being left out.
                host.publish_own_settings(None, &settings.values());
            }
            taken
        };
        let Some(settings) = settings.filter(|_| !own.is_empty()) else {
            if let Err(why) = others(&host, Some(origin.clone())) {
                refuse(&host, &origin, host.root.values(id, &sent), &why);
            }
            return;
        };
        let others_first = others(&host, None);
        let reads = host.may_read_config(&self.principal());
        tokio::spawn(async move {
            let outcome = match others_first {
                Ok(()) => settings
                    .change(own)
                    .await
                    .unwrap_or_else(|why| OwnChange { refused: Some(why.message), ..OwnChange::default() }),
                Err(why) => OwnChange { refused: Some(why), ..OwnChange::default() },
            };
            match outcome.refused {
                None => host.publish_own_settings(Some(origin), &outcome.shown),
                Some(why) => {
                    if !outcome.shown.is_empty() {
                        host.publish_own_settings(None, &outcome.shown);
                    }
                    let shown = if reads { settings.values() } else { JsonObject::new() };
                    refuse(&host, &origin, shown, &why);
                }
            }
        });
    }
}
