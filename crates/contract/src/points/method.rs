//! Plugin commands. Spec: *Command definition*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::names;
use serde_json::Value;

use super::channel::{is_own, refuse_grant};
use super::{Checked, Contribution, Description, Reader, Slot};
use crate::call::Call;
use crate::cross::{Cross, Mismatch, Text};
use crate::recorder::{Key, Space, Unique};

/// A command that clients send by name. Plugins use names of the form `x-<plugin>/<verb>`.
///
/// ```
/// use ostler_contract::{Call, JsonObject, Value, json, points::Method};
///
/// let shout = Method {
///     grant: "x-shout:call".into(),
///     handle: Call::new(|(params, _reader, _client, _owner): (JsonObject, _, _, _)| async move {
///         let text = params.get("text").and_then(Value::as_str).unwrap_or_default();
///         Ok(json!({ "text": text.to_uppercase() }))
///     }),
///     ..Method::default()
/// };
/// # assert!(ostler_contract::Cross::check(&shout).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Method {
    /// The grant required to call: `<subject>:<operation>`.
    pub grant: Text,
    /// Called only for a caller without the grant; can accept the caller.
    pub authorize: Option<Call<fn(params: JsonObject, reader: Reader) -> bool>>,
    /// Handles a request and returns its result; the caller receives a thrown `RpcError`. `owner` is the owner of the
    /// work: `user:<id>`, `plugin:<id>` or `root:<host>`, absent on a host without a users file.
    pub handle:
        Call<fn(params: JsonObject, reader: Option<Reader>, client: String, owner: Option<String>) -> Value>,
    /// Describes the command to clients. Default title: the name.
    pub describe: Option<Call<fn() -> Description>>,
}

/// A command with its name.
#[derive(Debug)]
pub struct NamedMethod {
    /// The name, starting with `x-`.
    pub name: Text,
    /// The command.
    pub method: Method,
}

impl Checked for NamedMethod {
    fn holds(&self) -> Result<(), Mismatch> {
        self.name.check().map_err(|wrong| wrong.within("name"))?;
        self.method.check().map_err(|wrong| wrong.within("method"))
    }
}

impl Contribution for NamedMethod {
    const SLOT: Slot = Slot::Keyed;

    fn key(&self) -> Option<Key> {
        Some(Key {
            space: Space::Command,
            name: self.name.to_string(),
            member: "name",
            unique: Unique::Among { kind: "command", takes: "name", other: "command" },
        })
    }

    fn refuse(&self) -> Result<(), Mismatch> {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if !is_own(&self.name) || !self.name.chars().all(word) {
            let wanted = "a command's name that starts with x-, as x-board/move";
            return Err(Mismatch::expected(wanted).within("name"));
        }
        refuse_grant(&self.method.grant, "method.grant")
    }

    fn is_hosts(&self) -> bool {
        names::is_own_command(&self.name)
    }
}
