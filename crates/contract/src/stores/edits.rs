//! What users edit, as a store that is not files has it: automations, policies and some collections of records.

use crate::{Value, json};
use ostler_protocol::wire::state::AutomationDefinition;

/// What an item is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EditedKey {
    /// An automation.
    Automation(String),
    /// A record of a collection.
    Record(String, String),
    /// A policy.
    Policy(String),
}

/// An item that users edit.
#[derive(Debug, Clone, PartialEq)]
pub struct EditedItem {
    /// What it is.
    pub key: EditedKey,
    /// Its value: a record, a policy, or the definition and the owner of an automation.
    pub value: Value,
    /// The text that the database has, with which a change begins. Empty for an item from elsewhere.
    pub stored: String,
}

/// Returns the value of an automation, as it is compared.
pub fn automation_value(definition: &AutomationDefinition, owner: Option<&str>) -> Value {
    json!({ "definition": definition, "owner": owner })
}
