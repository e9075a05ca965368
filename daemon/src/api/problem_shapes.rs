//! What is wrong now, as requests and commands show it.

use ostler_contract::problems::ProblemKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is wrong now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// What it is about.
    #[schemars(extend("enum" = ProblemKind::ALL.map(ProblemKind::name)))]
    pub kind: String,
    /// `error` if something does not work, `warning` if it works and may not be intended.
    #[schemars(extend("enum" = ["error", "warning"]))]
    pub severity: String,
    /// What is wrong with what: a file, or the name of a plugin or an automation.
    pub place: String,
    /// What is wrong.
    pub found: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// When it was noticed.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}
