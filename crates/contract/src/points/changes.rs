//! Changesets of sessions. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::commands::{ChangesetOperationTarget, InvokeChangesetOperationResult};
use ostler_protocol::wire::state::{ChangesSummary, ChangesetFile, ChangesetOperation};
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::{Call, HostFunction};

/// The source of changesets. With this port, each session lists its changesets, and clients subscribe to
/// `<session>/changeset/<scope>`.
///
/// ```
/// use ostler_contract::{Call, points::{ChangeScope, Changes, ChangesState}};
///
/// let nothing = Changes {
///     scopes: Call::now(|_| Ok(vec![ChangeScope { scope: "uncommitted".into(), label: "Uncommitted".into(), ..ChangeScope::default() }])),
///     state: Call::now(|_| Ok(ChangesState::default())),
///     summary: Call::now(|_| Ok(None)),
///     ..Changes::default()
/// };
/// # assert!(ostler_contract::Cross::check(&nothing).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Changes {
    /// The changesets of a session.
    pub scopes: Call<fn(of: ChangesOf) -> Vec<ChangeScope>>,
    /// The current content of a changeset.
    pub state: Call<fn(of: ChangesOf, scope: String) -> ChangesState>,
    /// The summary of a session's changes for listings, or nothing.
    pub summary: Call<fn(of: ChangesOf) -> Option<ChangesSummary>>,
    /// Runs one of the operations of a changeset. `meta` is what the client sent with it.
    pub operate: Option<
        Call<
            fn(
                of: ChangesOf,
                scope: String,
                operation: String,
                target: Option<ChangesetOperationTarget>,
                meta: Option<JsonObject>,
            ) -> InvokeChangesetOperationResult,
        >,
    >,
    /// Called before a backend receives a turn, so that the state of the directory can be recorded. The turn waits for
    /// it, at most 5 seconds.
    pub turn_start: Option<Call<fn(of: ChangesOf, turn: String)>>,
    /// Watches a directory while somebody watches a changeset of it; returns the function that stops it. After a change,
    /// the host asks for the content again. The host itself notices commits and staged files (`gitDir` of the working
    /// trees), finished tool calls, what clients write and terminals that exit.
    pub watch: Option<Call<fn(directory: String, on_change: HostFunction<fn()>) -> Option<Call<fn()>>>>,
}

impl PortValue for Changes {
    const NAME: &'static str = "changes";
}

/// The session whose changes are requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ChangesOf {
    /// The session's URI.
    pub session: String,
    /// Path of its first directory, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Paths of its further directories. Their changes belong to the same changesets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<String>,
    /// Its title, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl ChangesOf {
    /// The paths of all its directories, the first one first.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.directory.iter().chain(&self.further).map(String::as_str)
    }
}

/// One changeset of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ChangeScope {
    /// The part after `<session>/changeset/`: `session`, `uncommitted`, `turn/{turnId}`, …
    pub scope: String,
    /// Display name.
    pub label: String,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `session`, `branch`, `uncommitted`, `turn`, `compare-turns` or `other`. Default: `other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_kind: Option<String>,
    /// Whether users can mark files as reviewed; the host stores the marks.
    #[serde(default)]
    pub review: bool,
}

/// The content of a changeset.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ChangesState {
    /// Its files.
    #[serde(default)]
    pub files: Vec<ChangesetFile>,
    /// The available operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<ChangesetOperation>>,
}
