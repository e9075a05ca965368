//! Facts about the directories of sessions. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;

use super::PortValue;
use crate::call::{Call, HostFunction};

/// The source of facts about a directory, such as its branch. They are in the `_meta` of every session in that
/// directory, where clients read them.
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
    /// The facts of a directory by key. Keys of the host are ignored. `project`, as `{ uri, displayName }`, is what the
    /// directory belongs to, such as its repository, and becomes the `project` of the session.
    pub meta: Call<fn(directory: String) -> JsonObject>,
    /// Reports that a turn has ended in a directory, whose facts can have changed.
    pub refresh: Option<Call<fn(directory: String)>>,
    /// Reports changes of the facts that other programs make, such as a push from a terminal, while a client is subscribed
    /// to a session in the directory; returns the function that ends this. The host itself notices another commit and
    /// another branch (`gitDir` of the working trees).
    pub watch: Option<Call<fn(directory: String, on_change: HostFunction<fn()>) -> Option<Call<fn()>>>>,
}

impl PortValue for Directories {
    const NAME: &'static str = "directories";
}
