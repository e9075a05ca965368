//! What a session changed. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::wire::commands::{ChangesetOperationTarget, InvokeChangesetOperationResult};
use ostler_protocol::wire::state::{ChangesSummary, ChangesetFile, ChangesetOperation};
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::Call;

/// Tells what sessions changed. With one registered, each session lists its changesets, and a client subscribes to
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
    /// Which changesets a session has.
    pub scopes: Call<fn(of: ChangesOf) -> Vec<ChangeScope>>,
    /// What a changeset holds now.
    pub state: Call<fn(of: ChangesOf, scope: String) -> ChangesState>,
    /// What a listing shows of a session's changes, or nothing.
    pub summary: Call<fn(of: ChangesOf) -> Option<ChangesSummary>>,
    /// Runs one of the operations a changeset offers.
    pub operate: Option<
        Call<
            fn(
                of: ChangesOf,
                scope: String,
                operation: String,
                target: Option<ChangesetOperationTarget>,
            ) -> InvokeChangesetOperationResult,
        >,
    >,
}

impl PortValue for Changes {
    const NAME: &'static str = "changes";
}

/// Whose changes are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ChangesOf {
    /// The session's URI.
    pub session: String,
    /// The path it works in, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// One changeset of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ChangeScope {
    /// What follows `<session>/changeset/`: `session`, `uncommitted`, `turn/{turnId}`, …
    pub scope: String,
    /// Shown to people.
    pub label: String,
    /// More words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `session`, `branch`, `uncommitted`, `turn`, `compare-turns` or `other`, as where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_kind: Option<String>,
    /// Whether people mark its files as seen; the host keeps the marks.
    #[serde(default)]
    pub review: bool,
}

/// What a changeset holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ChangesState {
    /// Its files.
    #[serde(default)]
    pub files: Vec<ChangesetFile>,
    /// What may be done with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<ChangesetOperation>>,
}
