//! Records: JSON objects with an id, in collections. Spec: *Records*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use serde::{Deserialize, Serialize};

use super::{ChangeType, PortValue};
use crate::call::{Call, Func, HostFunction};

/// The store of records.
#[derive(Debug, Clone, Default, Cross)]
pub struct RecordStore {
    /// Opens a collection.
    pub collection: Call<fn(name: String, options: CollectionOptions) -> StoredCollection>,
    /// Called once when the host closes, after its sessions and the plugins' close functions: writes pending data.
    pub close: Option<Call<fn()>>,
}

impl PortValue for RecordStore {
    const NAME: &'static str = "records";
}

/// The options of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct CollectionOptions {
    /// The field with a record's long text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Whether records are read for each call and not retained in memory, which suits large ones that are seldom read.
    /// Changes that other programs make are not announced then [false].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncached: Option<bool>,
}

/// A collection of a store.
#[derive(Debug, Clone, Default, Cross)]
pub struct StoredCollection {
    /// One record, or nothing.
    pub get: Call<fn(id: String) -> Option<JsonObject>>,
    /// The ids of all records. Without it the host takes them from `list`.
    pub ids: Option<Call<fn() -> Vec<String>>>,
    /// All records.
    pub list: Call<fn() -> Vec<JsonObject>>,
    /// The records whose top-level fields equal each field of `match`.
    pub find: Call<fn(r#match: JsonObject) -> Vec<JsonObject>>,
    /// Stores a record, replacing the one with its id. Rejects an id that is not a slug.
    pub put: Call<fn(record: JsonObject)>,
    /// Deletes a record; `true` if it existed.
    pub remove: Call<fn(id: String) -> bool>,
    /// Calls back after each change; returns the function that stops it.
    pub watch: Call<fn(on_change: HostFunction<fn(change: RecordChange)>) -> Option<Call<fn()>>>,
}

/// A collection for a plugin: every call except `watch` returns a promise.
///
/// ```
/// use ostler_contract::{PluginHost, Thrown, Value, json};
///
/// async fn remember(host: PluginHost) -> Result<(), Thrown> {
///     let notes = host.records("notes".into(), None)?;
///     let Value::Object(note) = json!({ "id": "first", "title": "Milk" }) else { return Ok(()) };
///     notes.put.call((note,)).await
/// }
/// # let _ = remember;
/// ```
#[derive(Debug, Clone, Cross)]
pub struct Collection {
    /// One record, or nothing.
    pub get: HostFunction<fn(id: String) -> Option<JsonObject>>,
    /// The ids of all records.
    pub ids: HostFunction<fn() -> Vec<String>>,
    /// All records.
    pub list: HostFunction<fn() -> Vec<JsonObject>>,
    /// The records whose top-level fields equal each field of `match`.
    pub find: HostFunction<fn(r#match: JsonObject) -> Vec<JsonObject>>,
    /// Stores a record, replacing the one with its id. Rejects an id that is not a slug.
    pub put: HostFunction<fn(record: JsonObject)>,
    /// Deletes a record; `true` if it existed.
    pub remove: HostFunction<fn(id: String) -> bool>,
    /// Calls back after each change; returns the function that stops it.
    pub watch: Func<fn(on_change: Call<fn(change: RecordChange)>) -> Func<fn()>>,
}

/// A change in a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct RecordChange {
    /// Id of the record.
    pub id: String,
    /// Kind of change.
    pub r#type: ChangeType,
}
