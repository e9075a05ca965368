//! All data of a host in a form that its stores exchange: what moves a host between files and a database.
//!
//! The stores of the registration points serve a running host: they cannot list attachments, and they return turns without
//! their senders. A [`Transfer`] reads and appends everything, in pages of bounded size. It is no registration point: only
//! the bundled stores implement it.

use ostler_protocol::{JsonObject, Value};

use crate::live::Pending;
use crate::secret::Secret;

/// The size of the items of a page, in bytes, after which it ends.
pub const PAGE_BYTES: usize = 4 << 20;
/// The maximum number of items of a page.
pub const PAGE_ITEMS: usize = 500;

/// A kind of stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Secrets of the vault, by name.
    Secret,
    /// The users file, whose item has the key `users`.
    Users,
    /// Policies, in the order of their insertion.
    Policy,
    /// Records, by collection and id.
    Record,
    /// Definitions of automations, by id.
    Automation,
    /// Progress of schedules, by automation.
    Progress,
    /// Runs by URI, in the order in which they were accepted.
    Run,
    /// Sessions by id, in the order of their creation.
    Session,
    /// Marks of sessions, by session.
    Marks,
    /// Artifacts, by session.
    Artifacts,
    /// Pull requests, by session.
    PullRequests,
    /// Chats, by session.
    Chats,
    /// Annotations, by session.
    Annotations,
    /// What backends reported, by session.
    Reported,
    /// Titles of chats, by session and chat.
    ChatTitle,
    /// Turns, by session, chat and position.
    Turn,
    /// Attachments, by session and id.
    Attachment,
    /// Usage, in the order in which it was recorded.
    Usage,
}

impl Kind {
    /// All kinds, in the order in which they are copied.
    pub const ALL: [Self; 18] = [
        Self::Secret,
        Self::Users,
        Self::Policy,
        Self::Record,
        Self::Automation,
        Self::Progress,
        Self::Run,
        Self::Session,
        Self::Marks,
        Self::Artifacts,
        Self::PullRequests,
        Self::Chats,
        Self::Annotations,
        Self::Reported,
        Self::ChatTitle,
        Self::Turn,
        Self::Attachment,
        Self::Usage,
    ];

    /// Returns the name of its items, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::Users => "users files",
            Self::Policy => "policies",
            Self::Record => "records",
            Self::Automation => "automations",
            Self::Progress => "schedules",
            Self::Run => "runs",
            Self::Session => "sessions",
            Self::Marks => "marks of sessions",
            Self::Artifacts => "artifacts of sessions",
            Self::PullRequests => "pull requests of sessions",
            Self::Chats => "chats of sessions",
            Self::Annotations => "annotations of sessions",
            Self::Reported => "reports of backends",
            Self::ChatTitle => "titles of chats",
            Self::Turn => "turns",
            Self::Attachment => "attachments",
            Self::Usage => "usage entries",
        }
    }
}

/// The position of an item within its kind, in one store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// The names of the item: one, or the name of what contains it and its own.
    pub key: Vec<String>,
    /// The number of an item in a numbered kind. The numbers of two stores differ, but not their order; only the number of a
    /// turn identifies it.
    pub number: i64,
}

/// The content of an item.
#[derive(Debug, Clone)]
pub enum Content {
    /// JSON, as the store has it.
    Json(String),
    /// The value of a secret.
    Secret(Secret<String>),
    /// An attachment.
    Bytes {
        /// Media type.
        content_type: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

/// A stored item.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its position, after which the next page can begin.
    pub position: Position,
    /// Its content.
    pub content: Content,
}

impl Item {
    /// Creates an item with JSON.
    pub fn json(key: Vec<String>, number: i64, text: String) -> Self {
        Self { position: Position { key, number }, content: Content::Json(text) }
    }

    /// Returns the size of its content, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Json(text) => text.len(),
            Content::Secret(value) => value.reveal().len(),
            Content::Bytes { bytes, .. } => bytes.len(),
        }
    }

    /// Returns its name for messages.
    pub fn name(&self, kind: Kind) -> String {
        let key = self.position.key.join(" ");
        match kind {
            Kind::Turn => format!("{key} {}", self.position.number),
            Kind::Usage => format!("{}", self.position.number),
            _ => key,
        }
    }

    /// Passes what identifies the item and its content to a hash. The result is the same in every store: `1` is `1.0`, and the
    /// order of fields is irrelevant.
    ///
    /// # Errors
    /// The content is not JSON; the message has no value.
    pub fn hash(&self, kind: Kind, sink: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        for name in &self.position.key {
            text(sink, name);
        }
        if kind == Kind::Turn {
            sink(&self.position.number.to_be_bytes());
        }
        match &self.content {
            Content::Json(json) => {
                let mut parsed: Value = serde_json::from_str(json).map_err(|error| {
                    format!("{} {} cannot be read: {error}", kind.name(), self.name(kind))
                })?;
                if kind == Kind::Automation {
                    without_empty(&mut parsed);
                }
                value(sink, &parsed);
            }
            Content::Secret(secret) => text(sink, secret.reveal()),
            Content::Bytes { content_type, bytes } => {
                text(sink, content_type);
                sink(&(bytes.len() as u64).to_be_bytes());
                sink(bytes);
            }
        }
        Ok(())
    }
}

/// Removes what a file of an automation omits: conditions and metadata without content.
fn without_empty(automation: &mut Value) {
    let Some(definition) = automation.get_mut("definition").and_then(Value::as_object_mut) else { return };
    for field in ["disableConditions", "_meta"] {
        let is_empty = match definition.get(field) {
            Some(Value::Array(values)) => values.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if is_empty {
            definition.shift_remove(field);
        }
    }
}

fn value(sink: &mut dyn FnMut(&[u8]), held: &Value) {
    match held {
        Value::Null => sink(b"n"),
        Value::Bool(true) => sink(b"t"),
        Value::Bool(false) => sink(b"f"),
        Value::Number(number) => {
            // Whole numbers that a float has exactly are hashed as that float.
            let is_exact = match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => whole.unsigned_abs() <= 1 << 53,
                (None, Some(whole)) => whole <= 1 << 53,
                (None, None) => true,
            };
            match is_exact {
                true => {
                    sink(b"#");
                    // Adding zero turns `-0.0` into `0.0`.
                    sink(&(number.as_f64().unwrap_or_default() + 0.0).to_bits().to_be_bytes());
                }
                false => {
                    sink(b"i");
                    text(sink, &number.to_string());
                }
            }
        }
        Value::String(held) => {
            sink(b"s");
            text(sink, held);
        }
        Value::Array(values) => {
            sink(b"[");
            sink(&(values.len() as u64).to_be_bytes());
            values.iter().for_each(|one| value(sink, one));
        }
        Value::Object(fields) => object(sink, fields),
    }
}

fn object(sink: &mut dyn FnMut(&[u8]), fields: &JsonObject) {
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    sink(b"{");
    sink(&(sorted.len() as u64).to_be_bytes());
    for (key, held) in sorted {
        text(sink, key);
        value(sink, held);
    }
}

fn text(sink: &mut dyn FnMut(&[u8]), held: &str) {
    sink(&(held.len() as u64).to_be_bytes());
    sink(held.as_bytes());
}

/// All stores of a host, while no host uses them.
pub trait Transfer: Send + Sync {
    /// Returns where the data is stored, for messages.
    fn place(&self) -> String;

    /// Reads the items after a position, in their order: at most [`PAGE_ITEMS`], and none after [`PAGE_BYTES`]. Empty only at
    /// the end.
    fn read(&self, kind: Kind, after: Option<Position>) -> Pending<Vec<Item>>;

    /// Stores items that follow those it has. When it resolves, they are durable; after an interruption, it has some of the
    /// first ones.
    fn append(&self, kind: Kind, items: Vec<Item>) -> Pending<()>;

    /// Finishes a copy to these stores.
    fn close(&self) -> Pending<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(kind: Kind, key: &[&str], number: i64, json: &str) -> Result<Vec<u8>, String> {
        let key = key.iter().map(|&name| name.to_owned()).collect();
        let mut bytes = Vec::new();
        Item::json(key, number, json.to_owned())
            .hash(kind, &mut |part| bytes.extend_from_slice(part))
            .map(|()| bytes)
    }

    #[test]
    fn equal_items_have_equal_hashes_and_others_do_not() {
        let of = |json: &str| hashed(Kind::Record, &["notes", "a"], 0, json);
        assert_eq!(of(r#"{ "a": 1, "b": [null, -0.0] }"#), of(r#"{"b":[null,0],"a":1.0}"#));
        for other in [r#"{"a":"1"}"#, r#"{"a":2}"#, r#"{"a":[1]}"#, r#"{"b":1}"#, r#"{"a":1,"b":null}"#] {
            assert_ne!(of(r#"{"a":1}"#), of(other), "{other}");
        }
        assert_ne!(of("9007199254740993"), of("9007199254740992"));
        assert_ne!(hashed(Kind::Record, &["a", "b"], 0, "1"), hashed(Kind::Record, &["ab", ""], 0, "1"));
        assert_ne!(hashed(Kind::Turn, &["s", "c"], 0, "1"), hashed(Kind::Turn, &["s", "c"], 1, "1"));
        assert_eq!(hashed(Kind::Run, &["r"], 0, "1"), hashed(Kind::Run, &["r"], 7, "1"));
        assert!(hashed(Kind::Run, &["r"], 0, "{").is_err());
        let automation = |definition: &str| {
            hashed(Kind::Automation, &["a"], 0, &format!(r#"{{"definition":{definition}}}"#))
        };
        assert_eq!(
            automation(r#"{"title":"T","disableConditions":[],"_meta":{}}"#),
            automation(r#"{"title":"T"}"#)
        );
    }
}
