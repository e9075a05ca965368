//! What work cost. Spec: *Usage entry*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use serde::{Deserialize, Serialize};

/// What was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum UsageKind {
    /// A model.
    Model,
    /// A machine.
    Computer,
}

/// One entry of use. Keys beyond these are kept as they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct UsageEntry {
    /// What was used.
    pub kind: UsageKind,
    /// The keys charged: the owner as written, `team:<team>`, `project:<team>:<project>`.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Everything else: when, by whom, in which session, how much.
    #[serde(flatten)]
    pub rest: JsonObject,
}
