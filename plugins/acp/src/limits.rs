//! Limits of what an agent lists in a message. What exceeds them is left out, before it is converted.

use ostler_contract::Value;

use crate::weight::weight;

/// The maximum number of JSON values in a message; names of members count.
pub const VALUES: usize = 100_000;
/// The maximum number of tool calls of a turn.
pub const CALLS: usize = 5_000;

/// A list in a message of an agent.
#[derive(Debug)]
pub struct List {
    /// The member that contains it.
    pub name: &'static str,
    /// The maximum number of entries.
    most: usize,
    /// Their maximum memory, in bytes.
    bytes: usize,
}

const fn list(name: &'static str, most: usize, bytes: usize) -> List {
    List { name, most, bytes }
}

/// The slash commands.
pub const COMMANDS: List = list("availableCommands", 1_000, 1 << 20);
/// The configuration options.
pub const OPTIONS: List = list("configOptions", 100, 1 << 20);
/// The values of a configuration option, flat or in groups.
pub const CHOICES: List = list("options", 1_000, 1 << 20);
pub const MODES: List = list("availableModes", 1_000, 1 << 20);
pub const MODELS: List = list("availableModels", 1_000, 1 << 20);
/// The entries of a plan.
pub const PLAN: List = list("entries", 1_000, 256 << 10);
/// The parts of a tool call's content.
pub const CONTENT: List = list("content", 1_000, 64 << 20);
/// The locations of a tool call.
pub const LOCATIONS: List = list("locations", 1_000, 1 << 20);
/// The options of a request for approval.
pub const APPROVALS: List = list("options", 64, 256 << 10);
/// The ways to sign in.
pub const SIGN_INS: List = list("authMethods", 64, 256 << 10);

/// The lists of a `session/update`, for the log.
const OF_UPDATES: &[&List] = &[&COMMANDS, &OPTIONS, &PLAN, &CONTENT, &LOCATIONS];

impl List {
    /// Returns the entries within the limits; `None` if there is no list.
    pub fn of<'a>(&'a self, message: &'a Value) -> Option<impl Iterator<Item = &'a Value>> {
        let entries = message.get(self.name)?.as_array()?;
        let mut room = self.bytes;
        Some(entries.iter().take(self.most).take_while(move |entry| {
            let left = room.checked_sub(weight(entry));
            room = left.unwrap_or_default();
            left.is_some()
        }))
    }

    /// The maximum number of entries.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns whether entries are left out.
    pub fn is_exceeded(&self, message: &Value) -> bool {
        let all = message.get(self.name).and_then(Value::as_array).map_or(0, Vec::len);
        self.of(message).is_some_and(|within| within.count() < all)
    }
}

/// Returns what is left out of a `session/update`, for the log.
pub fn left_out(update: &Value) -> Option<String> {
    let exceeded = OF_UPDATES.iter().find(|list| list.is_exceeded(update))?;
    let List { name, most, bytes } = exceeded;
    Some(format!("{name} has more than {most} entries or {} KiB; the rest is left out", bytes >> 10))
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn a_list_ends_at_its_number_or_its_size() {
        let commands = |count: usize, text: usize| {
            let command = |at| json!({ "name": format!("c{at}"), "description": "x".repeat(text) });
            json!({ "availableCommands": (0..count).map(command).collect::<Vec<_>>() })
        };
        let within = |message: &Value| COMMANDS.of(message).map(Iterator::count);
        assert_eq!(within(&commands(10, 200)), Some(10));
        assert_eq!(left_out(&commands(10, 200)), None);
        assert_eq!(within(&commands(2_000, 1)), Some(1_000));
        let long = commands(10, 300 << 10);
        assert_eq!(within(&long), Some(3));
        assert!(
            left_out(&long).unwrap().starts_with("availableCommands has more than 1000 entries or 1024 KiB")
        );
        assert_eq!(within(&json!({})), None);
        assert_eq!(within(&json!({ "availableCommands": 7 })), None);
    }
}
