//! The memory of an agent's messages.

use ostler_contract::Value;
use ostler_contract::budget::VALUE;

/// What a value counts in the size of a message, in bytes.
pub const EACH: usize = 16;

/// Returns the approximate memory of a message.
pub fn weight(value: &Value) -> usize {
    measure(value, VALUE)
}

/// Returns the length of a message's text, and a little for each of its values: numbers without end are no text.
pub fn text_size(value: &Value) -> usize {
    measure(value, EACH)
}

/// Adds the text of a message, and a constant for each of its values.
fn measure(value: &Value, each: usize) -> usize {
    let of_members = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| measure(item, each)).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + measure(value, each)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    each + of_members
}
