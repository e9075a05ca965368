//! The daemon's settings on the root channel: connections that can read the configuration see them next to the host's,
//! with credentials hidden, and can change them. The engine does not know their names; the builder of the host provides
//! them.

use std::sync::Arc;

use ostler_contract::Pending;
use ostler_engine_core::fanout::{Origin, Outgoing, Overlaid, Overlay};
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::grants::Grant;
use ostler_protocol::{JsonObject, Value, Version, json, uri};

use crate::channels::Channels;

pub use ostler_engine_core::refusals::no_setting;

/// Settings of the builder of the host.
pub trait OwnSettings: Send + Sync {
    /// Returns whether a key of the root channel's configuration is one of them.
    fn owns(&self, key: &str) -> bool;

    /// Returns the schemas of the keys, as properties of a configuration schema.
    fn schema(&self) -> JsonObject;

    /// Returns the values, without credentials.
    fn values(&self) -> JsonObject;

    /// Returns keys of the root state's `_meta`.
    fn meta(&self) -> JsonObject;

    /// Changes some of them.
    fn change(&self, config: JsonObject) -> Pending<OwnChange>;
}

/// The result of a change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnChange {
    /// The changed keys with their new values, without credentials.
    pub shown: JsonObject,
    /// Why the rest was rejected.
    pub refused: Option<String>,
}

impl std::fmt::Debug for dyn OwnSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OwnSettings")
    }
}

impl Channels {
    /// Adds settings to the root channel, before connections are accepted.
    pub fn set_own_settings(&self, settings: Arc<dyn OwnSettings>) {
        let _ = self.own_settings.set(settings);
    }

    /// Returns whether a principal can read the configuration.
    pub(crate) fn may_read_config(&self, principal: &Principal) -> bool {
        self.access.gate.require(principal, &Grant::of("config", "settings")).is_ok()
    }

    /// Returns the settings, if there are any.
    pub(crate) fn own_settings(&self) -> Option<&Arc<dyn OwnSettings>> {
        self.own_settings.get()
    }

    /// Adds them to a root state for a connection.
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

    /// Sends changes of the configuration to the connections that can read it.
    pub(crate) fn publish_own_settings(&self, origin: Option<Origin>, values: &JsonObject) {
        let channels = self.weak();
        let overlay = move |id| {
            let reads = channels.upgrade().is_some_and(|channels| {
                channels
                    .access
                    .clients
                    .get(id)
                    .is_some_and(|connection| channels.may_read_config(&connection.principal()))
            });
            match reads {
                true => Overlaid::Same,
                false => Overlaid::Other(json!({ "type": "root/configChanged", "config": {} }).to_string()),
            }
        };
        let action = json!({ "type": "root/configChanged", "config": values }).to_string();
        let overlay = Some(Overlay::new(overlay));
        self.core
            .fanout
            .publish(uri::ROOT, vec![Outgoing { origin, overlay, ..Outgoing::host(action, Version::V0_9) }]);
    }
}
