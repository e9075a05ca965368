//! Records: JSON objects with an id, in collections. Spec: *Records*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use serde::{Deserialize, Serialize};

use super::{ChangeType, PortValue};
use crate::call::{Call, Func};

/// Where records are kept.
#[derive(Debug, Clone, Default, Cross)]
pub struct RecordStore {
    /// Opens a collection.
    pub collection: Call<fn(name: String, options: CollectionOptions) -> StoredCollection>,
    /// Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet.
    pub close: Option<Call<fn()>>,
}

impl PortValue for RecordStore {
    const NAME: &'static str = "records";
}

/// How a collection is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct CollectionOptions {
    /// The field that holds a record's long text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// A collection as a store serves it.
#[derive(Debug, Clone, Default, Cross)]
pub struct StoredCollection {
    /// The record of an id, or nothing.
    pub get: Call<fn(id: String) -> Option<JsonObject>>,
    /// Every record.
    pub list: Call<fn() -> Vec<JsonObject>>,
    /// The records whose top-level fields equal each field of `match`.
    pub find: Call<fn(r#match: JsonObject) -> Vec<JsonObject>>,
    /// Keeps a record, replacing what its id held. Refuses an id that is no slug.
    pub put: Call<fn(record: JsonObject)>,
    /// Forgets a record; `true` when there was one.
    pub remove: Call<fn(id: String) -> bool>,
    /// Calls back after each change; answers the function that stops it.
    pub watch: Call<fn(on_change: Call<fn(change: RecordChange)>) -> Option<Call<fn()>>>,
}

/// A collection as a plugin is handed it: every call but `watch` answers a promise.
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
    /// The record of an id, or nothing.
    pub get: Call<fn(id: String) -> Option<JsonObject>>,
    /// Every record.
    pub list: Call<fn() -> Vec<JsonObject>>,
    /// The records whose top-level fields equal each field of `match`.
    pub find: Call<fn(r#match: JsonObject) -> Vec<JsonObject>>,
    /// Keeps a record, replacing what its id held. Refuses an id that is no slug.
    pub put: Call<fn(record: JsonObject)>,
    /// Forgets a record; `true` when there was one.
    pub remove: Call<fn(id: String) -> bool>,
    /// Calls back after each change; answers the function that stops it.
    pub watch: Func<fn(on_change: Call<fn(change: RecordChange)>) -> Func<fn()>>,
}

/// One change in a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct RecordChange {
    /// The record.
    pub id: String,
    /// How it changed.
    pub r#type: ChangeType,
}
