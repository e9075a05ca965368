//! What an agent's messages weigh.

use ostler_contract::Value;
use ostler_contract::budget::VALUE;

/// The memory that a message takes, about.
pub fn weight(value: &Value) -> usize {
    measure(value, VALUE)
}

/// How much text a message has.
pub fn text_size(value: &Value) -> usize {
    measure(value, 0)
}

/// The text of a message, and so much for each of its values.
fn measure(value: &Value, each: usize) -> usize {
    let of_members = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| measure(item, each)).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + measure(value, each)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    each + of_members
}
