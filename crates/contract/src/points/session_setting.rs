//! Settings of sessions that are no backend's. Spec: *Session configuration picker*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::state::SessionConfigPropertySchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Checked, Contribution, Slot};
use crate::call::Call;
use crate::cross::{Cross, Mismatch, Text};
use crate::recorder::{Key, Space, Unique};
use crate::registry::Owner;

/// Answers the rows of a picker.
pub type SettingAnswerer = Call<fn(asked: SettingQuery) -> Vec<SettingChoice>>;

/// What a picker is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct SettingQuery {
    /// What the person typed; empty for what is shown first.
    #[serde(default)]
    pub query: String,
    /// The backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// A path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The other settings as they are answered so far.
    #[serde(flatten)]
    pub others: JsonObject,
}

/// One row of a picker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SettingChoice {
    /// What the setting becomes.
    pub value: String,
    /// Shown to people.
    pub label: String,
    /// More words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What [`SettingQuery`] holds beside the other settings, which therefore cannot be called so.
const ASKED_BESIDE: [&str; 3] = ["query", "provider", "workingDirectory"];
/// What a setting may be, in JSON Schema's words.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// A setting a client draws on every session, beside the backend's own. With an answerer it is a picker.
#[derive(Debug)]
pub struct SessionSetting {
    /// What it is called among the session's settings.
    pub key: Text,
    /// JSON Schema of the one value.
    pub schema: JsonObject,
    /// Answers the rows of a picker; the host marks the setting `enumDynamic` itself.
    pub completions: Option<SettingAnswerer>,
}

impl SessionSetting {
    /// The setting as the protocol carries it; marked where it is a picker.
    pub fn drawn(&self) -> Option<SessionConfigPropertySchema> {
        let mut property = drawn(&self.key, &self.schema).ok()?;
        if self.completions.is_some() {
            property.enum_dynamic = Some(true);
        }
        Some(property)
    }
}

fn drawn(key: &str, schema: &JsonObject) -> Result<SessionConfigPropertySchema, serde_json::Error> {
    let whole = serde_json::json!({ "properties": { key: schema } });
    let mut whole = crate::settings::drawn(whole);
    serde_json::from_value(whole["properties"].get_mut(key).map(Value::take).unwrap_or_default())
}

impl Checked for SessionSetting {
    fn holds(&self) -> Result<(), Mismatch> {
        self.key.check().map_err(|wrong| wrong.within("key"))?;
        self.completions.check().map_err(|wrong| wrong.within("completions"))
    }
}

impl Contribution for SessionSetting {
    const SLOT: Slot = Slot::Keyed;

    fn key(&self) -> Option<Key> {
        Some(Key {
            space: Space::Setting,
            name: self.key.to_string(),
            member: "key",
            unique: Unique::Among { kind: "session setting", takes: "key", other: "setting" },
        })
    }

    fn refuse(&self) -> Result<(), Mismatch> {
        if ASKED_BESIDE.contains(&&*self.key) {
            let others = format!("none of {}: pickers are asked with those", ASKED_BESIDE.join(", "));
            return Err(Mismatch::expected(others).within("key"));
        }
        let property = drawn(&self.key, &self.schema)
            .map_err(|why| Mismatch::expected(format!("the schema of a setting ({why})")).within("schema"))?;
        match TYPES.contains(&property.r#type.as_str()) {
            true => Ok(()),
            false => Err(Mismatch::expected(format!("one of {}", TYPES.join(", ")))
                .within("type")
                .within("schema")),
        }
    }

    fn clash(&self, key: &Key, owner: &Owner, holder: &Owner) -> String {
        key.clash(owner, holder, "declares")
    }
}
