//! Session settings of plugins. Spec: *Session configuration picker*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::state::SessionConfigPropertySchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Checked, Contribution, Slot};
use crate::call::Call;
use crate::cross::{Cross, Mismatch, Text};
use crate::recorder::{Key, Space, Unique};
use crate::registry::Registrant;

/// Returns the rows of a picker.
pub type SettingAnswerer = Call<fn(asked: SettingQuery) -> Vec<SettingChoice>>;

/// The query of a picker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct SettingQuery {
    /// The typed text; empty for the first rows.
    #[serde(default)]
    pub query: String,
    /// The backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The directory, a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The current values of the other settings.
    #[serde(flatten)]
    pub others: JsonObject,
}

/// A row of a picker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SettingChoice {
    /// The value of the setting.
    pub value: String,
    /// Display name.
    pub label: String,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Fields of [`SettingQuery`] next to the other settings; settings cannot have these names.
const ASKED_BESIDE: [&str; 3] = ["query", "provider", "workingDirectory"];
/// The types of settings, as in JSON Schema.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// A setting of every session, in addition to those of the backend. With an answerer it is a picker.
#[derive(Debug)]
pub struct SessionSetting {
    /// Name of the setting.
    pub key: Text,
    /// JSON Schema of the value.
    pub schema: JsonObject,
    /// Returns the rows of a picker; the host marks the setting as `enumDynamic`.
    pub completions: Option<SettingAnswerer>,
}

impl SessionSetting {
    /// Returns the setting in the protocol's form, marked if it is a picker.
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

    fn clash(&self, key: &Key, owner: &Registrant, holder: &Registrant) -> String {
        key.clash(owner, holder, "declares")
    }
}
