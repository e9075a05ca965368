//! `dispatchAction`: the channel of an action, and its authorization.

use std::sync::Arc;

use ostler_engine_core::editor_settings::is_own;
use ostler_engine_core::fanout::{Origin, rejection};
use ostler_engine_core::refusals::{NO_ACTION_TYPE, Rejection, message_too_long};
use ostler_protocol::commands::{DispatchAction, UnreadAction};
use ostler_protocol::grants::Grant;
use ostler_protocol::{JsonObject, RpcError, Value, actions, json, uri};
use serde_json::value::RawValue;

use crate::front::channels::{Dispatched, kind_of};
use crate::front::connection::Connection;

/// The action that changes the host's settings.
const SETTINGS: &str = "root/configChanged";

/// The paths of messages in actions of clients, whose text is `text`.
const MESSAGES: &[&str] = &["message", "draft"];

/// Returns an action in the form for its rejection, without the values of settings, because one can be a credential.
fn refused(channel: &str, action: &Value) -> String {
    let mut shown = action.clone();
    if (channel == uri::ROOT || action["type"] == SETTINGS)
        && let Some(config) = shown.get_mut("config")
    {
        *config = json!({});
    }
    shown.to_string()
}

impl Connection {
    pub(crate) fn refuse_dispatch(self: &Arc<Self>, dispatch: &DispatchAction, why: impl Into<Rejection>) {
        let client_id = self.client_id().unwrap_or_default();
        let origin = Origin { client_id, client_seq: dispatch.client_seq };
        self.refuse_dispatched(&dispatch.channel, &dispatch.action, &origin, why);
    }

    /// Passes a dispatched action to its channel. An action without a valid channel is rejected, never dropped.
    /// `length` is the length of its text.
    pub(crate) fn handle_dispatch(self: &Arc<Self>, dispatch: DispatchAction, length: usize) {
        let front = self.front();
        let origin =
            Origin { client_id: self.client_id().unwrap_or_default(), client_seq: dispatch.client_seq };
        let refuse = |why: &str| self.refuse_dispatched(&dispatch.channel, &dispatch.action, &origin, why);
        let Some(name) = dispatch.action.get("type").and_then(Value::as_str) else {
            return refuse(NO_ACTION_TYPE);
        };
        let kind = kind_of(front, &dispatch.channel);
        if let Some(why) = kind.takes_none() {
            return refuse(why);
        }
        let Some(row) = actions::action(name) else {
            return refuse(&format!("{name} is not an action this host serves"));
        };
        let Some(asked) = row.client.as_ref() else {
            return refuse(&format!("only the host sends {name}"));
        };
        if let Err(error) = self.may_dispatch(name, asked, &dispatch.action) {
            return refuse(&error.message);
        }
        let too_long = MESSAGES.iter().find_map(|place| {
            let text = dispatch.action.get(place)?.get("text")?.as_str()?;
            Some((place, message_too_long(text)?))
        });
        let DispatchAction { channel, mut action, .. } = dispatch;
        if let Some((place, why)) = too_long {
            action[place]["text"] = json!("");
            let seq = front.core.fanout.seq();
            return self.outbox.send(rejection(&channel, &action.to_string(), seq, &origin, why));
        }
        let action = Arc::new(action);
        let dispatched = Dispatched { spelled: &channel, row, action: &action, origin: &origin, length };
        if let Err(why) = kind.dispatch(self, dispatched) {
            self.refuse_dispatched(&channel, &action, &origin, why);
        }
    }

    /// Notifies the sender of an action why it is rejected.
    fn refuse_dispatched(&self, channel: &str, action: &Value, origin: &Origin, why: impl Into<Rejection>) {
        let seq = self.front().core.fanout.seq();
        self.outbox.send(rejection(channel, &refused(channel, action), seq, origin, why));
    }

    /// Notifies the sender of an action why it did not reach its session.
    pub(crate) fn refuse_unsent(&self, dispatch: &DispatchAction, why: impl Into<Rejection>) {
        let origin =
            Origin { client_id: self.client_id().unwrap_or_default(), client_seq: dispatch.client_seq };
        self.refuse_dispatched(&dispatch.channel, &dispatch.action, &origin, why);
    }

    /// Notifies the sender of an invalid action why it is rejected.
    pub(crate) fn refuse_unread(&self, unread: &UnreadAction) {
        let origin =
            Origin { client_id: self.client_id().unwrap_or_default(), client_seq: unread.client_seq };
        let seq = self.front().core.fanout.seq();
        let action = unread.action.as_deref().map_or("null", RawValue::get);
        let action = match serde_json::from_str::<Value>(action) {
            Ok(read) => refused(&unread.channel, &read),
            // Its content is unknown and can contain a credential.
            Err(_) if unread.channel == uri::ROOT || action.contains("config") => "null".to_owned(),
            Err(_) => action.to_owned(),
        };
        self.outbox.send(rejection(&unread.channel, &action, seq, &origin, &*unread.why));
    }

    /// Returns whether a change of settings changes one of the host. An equal value is not a change.
    fn changes_host(&self, config: &JsonObject) -> bool {
        let front = self.front();
        let mut config = config.clone();
        let settings = front.channels.own_settings();
        front.core.root.drop_unknown(&mut config, |key| settings.is_some_and(|settings| settings.owns(key)));
        config.iter().any(|(key, value)| !is_own(key) && !front.core.root.is_in_force(key, value))
    }

    /// Checks that the connection can dispatch an action. Settings of a connection require less than the host's.
    pub(super) fn may_dispatch(&self, name: &str, asked: &Grant, action: &Value) -> Result<(), RpcError> {
        let asked = match name {
            SETTINGS => {
                let replace = action.get("replace") == Some(&Value::Bool(true));
                let keys = action.get("config").and_then(Value::as_object);
                match keys {
                    Some(keys) if !replace && !self.changes_host(keys) => {
                        match keys.contains_key("workspaceTrust") {
                            true => Grant::of("trust", "push"),
                            false => return Ok(()),
                        }
                    }
                    _ => asked.clone(),
                }
            }
            _ => asked.clone(),
        };
        self.front().access.gate.require(&self.principal(), &asked)
    }
}
