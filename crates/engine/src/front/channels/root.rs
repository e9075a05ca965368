//! The root channel, and changes of its settings.

use std::sync::Arc;

use ostler_engine_core::fanout::{Origin, rejection};
use ostler_engine_core::refusals::does_not_belong;
use ostler_engine_core::tasks;
use ostler_protocol::wire::actions::{RootConfigChangedAction, StateAction};
use ostler_protocol::{JsonObject, RpcError, actions, json, names, uri};

use super::{ChannelKind, Dispatched, Subscribing, begin};
use crate::channels::root_settings::OwnChange;
use crate::front::Front;
use crate::front::connection::Connection;

pub(super) struct Root;

impl ChannelKind for Root {
    fn may_watch(&self, _: &Connection) -> Result<(), RpcError> {
        Ok(())
    }

    fn resolve(&self, _: &Front, _: &str) -> Result<String, RpcError> {
        Ok(uri::ROOT.to_owned())
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let (front, principal) = (connection.front(), connection.principal());
        begin(connection, uri::ROOT, subscribing, |subscriber| {
            let (mut state, seq) = front.core.root.subscribe(&front.core.fanout, subscriber);
            front.channels.show_own_settings(&mut state, &principal);
            if let Some(principal) = front.access.principal_fact(&principal) {
                state["_meta"][names::meta_key("principal")] = principal.into();
            }
            Ok((state.to_string(), seq))
        });
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        let Dispatched { spelled, row, action, origin, .. } = dispatched;
        let Ok(StateAction::RootConfigChanged(RootConfigChangedAction { config, replace })) =
            actions::read(&**action)
        else {
            return Err(does_not_belong(row.name, "the root channel"));
        };
        connection.change_config(spelled, origin.clone(), config, replace == Some(true));
        connection.settings_changed();
        Ok(())
    }
}

impl Connection {
    /// Handles a change of the root channel's settings: first those of the builder of the host, then the others.
    fn change_config(self: &Arc<Self>, channel: &str, origin: Origin, mut config: JsonObject, replace: bool) {
        let front = self.front().clone();
        let settings = front.channels.own_settings().cloned();
        let owns = |key: &str| settings.as_ref().is_some_and(|settings| settings.owns(key));
        front.core.root.drop_unknown(&mut config, owns);
        let (own, rest): (JsonObject, JsonObject) = config.into_iter().partition(|(key, _)| owns(key));
        let (connection, channel) = (self.clone(), channel.to_owned());
        // A client's value can be a credential, so the rejection contains the current value instead.
        let refuse = move |front: &Front, origin: &Origin, shown: JsonObject, why: &str| {
            let action = json!({ "type": "root/configChanged", "config": shown }).to_string();
            connection.outbox.send(rejection(&channel, &action, front.core.fanout.seq(), origin, why));
        };
        let id = self.id();
        let sent: Vec<String> = rest.keys().cloned().collect();
        let others = move |front: &Front, origin: Option<Origin>| {
            let taken = front.core.root.set_config(&front.core.fanout, id, origin, rest, replace);
            if replace
                && taken.is_ok()
                && let Some(settings) = front.channels.own_settings()
            {
                // Omitting these does not reset them.
                front.channels.publish_own_settings(None, &settings.values());
            }
            taken
        };
        let Some(settings) = settings.filter(|_| !own.is_empty()) else {
            if let Err(why) = others(&front, Some(origin.clone())) {
                refuse(&front, &origin, front.core.root.values(id, &sent), &why);
            }
            return;
        };
        let others_first = others(&front, None);
        let reads = front.channels.may_read_config(&self.principal());
        tasks::spawn(async move {
            let outcome = match others_first {
                Ok(()) => settings
                    .change(own)
                    .await
                    .unwrap_or_else(|why| OwnChange { refused: Some(why.message), ..OwnChange::default() }),
                Err(why) => OwnChange { refused: Some(why), ..OwnChange::default() },
            };
            match outcome.refused {
                None => front.channels.publish_own_settings(Some(origin), &outcome.shown),
                Some(why) => {
                    if !outcome.shown.is_empty() {
                        front.channels.publish_own_settings(None, &outcome.shown);
                    }
                    let shown = if reads { settings.values() } else { JsonObject::new() };
                    refuse(&front, &origin, shown, &why);
                }
            }
        });
    }
}
