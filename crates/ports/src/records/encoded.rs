//! A record in memory, encoded as JSON text: a quarter of the size of an object, and as fast to copy.

use std::sync::Arc;

use ostler_contract::JsonObject;

use ostler_contract::stores::equality::equal_objects;

#[derive(Clone)]
pub(crate) struct EncodedRecord(Arc<[u8]>);

impl EncodedRecord {
    pub(super) fn encode(record: &JsonObject) -> Self {
        // An object with text keys always encodes.
        Self(serde_json::to_vec(record).unwrap_or_default().into())
    }

    pub(super) fn decode(&self) -> JsonObject {
        // `encode` wrote it.
        serde_json::from_slice(&self.0).unwrap_or_default()
    }

    pub(super) fn equals(&self, other: &Self) -> bool {
        self.0 == other.0 || equal_objects(&self.decode(), &other.decode())
    }
}
