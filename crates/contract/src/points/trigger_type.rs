//! Event trigger types. Spec: *Trigger type definition*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use serde::{Deserialize, Serialize};

use super::{Contribution, Slot};
use crate::cross::{Mismatch, Text};
use crate::problem;
use crate::recorder::{Key, Space, Unique};
use crate::reserved;
use crate::thrown::Thrown;

/// An event trigger type for automations. The plugin fires it with `fireTrigger`.
///
/// ```
/// use ostler_contract::points::{TriggerEvent, TriggerType};
///
/// let build = TriggerType {
///     r#type: "build".into(),
///     title: "A build".into(),
///     events: vec![TriggerEvent { id: "failed".into(), title: "A build failed".into(), description: None }],
///     ..TriggerType::default()
/// };
/// # assert!(ostler_contract::Cross::check(&build).is_ok());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct TriggerType {
    /// Its name. `session` and `watch` are reserved for the host.
    pub r#type: Text,
    /// Display name.
    pub title: Text,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its events: at least one, with ids unique within the type.
    pub events: Vec<TriggerEvent>,
    /// JSON Schema a client draws the trigger's settings from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<JsonObject>,
}

/// One event of a type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct TriggerEvent {
    /// The id used in `fireTrigger` and in triggers of automations.
    pub id: Text,
    /// Display name.
    pub title: Text,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl TriggerType {
    /// Checks whether a plugin can fire an event of a type; `own` is the plugin's type of that name.
    ///
    /// # Errors
    /// The plugin has no such type, or the type has no such event.
    pub fn may_fire(
        own: Option<&Self>,
        plugin: impl std::fmt::Display,
        r#type: &str,
        event: &str,
    ) -> Result<(), Thrown> {
        let needs = |what: String| problem::needs(&plugin, "fireTrigger", what);
        let own =
            own.ok_or_else(|| needs(format!("type to be a type this plugin registered, not {type}")))?;
        match own.events.iter().any(|offered| *offered.id == *event) {
            true => Ok(()),
            false => Err(needs(format!("event to be an event {type} offers, not {event}"))),
        }
    }
}

impl Contribution for TriggerType {
    const SLOT: Slot = Slot::Keyed;

    fn key(&self) -> Option<Key> {
        Some(Key {
            space: Space::TriggerType,
            name: self.r#type.to_string(),
            member: "type",
            unique: Unique::Among { kind: "trigger type", takes: "type name", other: "type" },
        })
    }

    fn refuse(&self) -> Result<(), Mismatch> {
        for (member, text) in [("type", &self.r#type), ("title", &self.title)] {
            if text.trim().is_empty() {
                return Err(Mismatch::of::<Text>().within(member));
            }
        }
        if reserved::TRIGGER_TYPES.contains(&self.r#type.to_ascii_lowercase().as_str()) {
            let own = format!("a name other than {}, which is reserved for the host", self.r#type);
            return Err(Mismatch::expected(own).within("type"));
        }
        if self.events.is_empty() {
            return Err(Mismatch::expected("a list with at least one event").within("events"));
        }
        for (at, event) in self.events.iter().enumerate() {
            let wrong = |wrong: Mismatch, member: &str| wrong.within(member).at(at).within("events");
            for (member, text) in [("id", &event.id), ("title", &event.title)] {
                if text.trim().is_empty() {
                    return Err(wrong(Mismatch::of::<Text>(), member));
                }
            }
            if self.events[..at].iter().any(|other| other.id == event.id) {
                return Err(wrong(Mismatch::expected("an event id no other event of this type uses"), "id"));
            }
        }
        Ok(())
    }
}
