//! What is known of the directories sessions work in. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;

use super::PortValue;
use crate::call::Call;

/// Tells facts about a directory, as its branch and how far it is ahead. They stand in the `_meta` of every session that
/// works there, where clients read them.
///
/// ```
/// use ostler_contract::{Call, json, points::Directories};
///
/// let facts = Directories {
///     meta: Call::now(|(directory,)| Ok(json!({ "git": { "branchName": directory } }).as_object().cloned().unwrap_or_default())),
///     ..Directories::default()
/// };
/// # assert!(ostler_contract::Cross::check(&facts).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Directories {
    /// The facts of a directory, by key. Keys of the host's own are passed over.
    pub meta: Call<fn(directory: String) -> JsonObject>,
    /// Says that a turn has ended there, so that what was known may be old.
    pub refresh: Option<Call<fn(directory: String)>>,
}

impl PortValue for Directories {
    const NAME: &'static str = "directories";
}
