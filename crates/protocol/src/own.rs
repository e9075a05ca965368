//! Parameters of the host's own commands, `x-ostler/<domain>/<verb>`.

use serde::Deserialize;

/// Which pools' totals are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct UsageTotalsParams {
    /// Every pool the caller may read where left out.
    #[serde(default)]
    pub pools: Option<Vec<String>>,
    /// A day, or an ISO 8601 instant. With `until`, what was charged between them is answered too.
    #[serde(default)]
    pub from: Option<String>,
    /// A day, which is meant whole, or an ISO 8601 instant.
    #[serde(default)]
    pub until: Option<String>,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct UsageRecordsParams {
    /// Those that charged this pool.
    pub pool: String,
    /// A day, or an ISO 8601 instant; the first of this month where left out.
    #[serde(default)]
    pub from: Option<String>,
    /// A day, which is meant whole, or an ISO 8601 instant; now where left out.
    #[serde(default)]
    pub until: Option<String>,
}

/// A pull request for a session's branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct PullRequestCreateParams {
    /// The session.
    pub channel: String,
    /// What it is called.
    pub title: String,
    /// What it says.
    #[serde(default)]
    pub body: Option<String>,
    /// The branch it is to be merged into; the repository's own where left out.
    #[serde(default)]
    pub base: Option<String>,
    /// Whether it is a draft.
    #[serde(default)]
    pub draft: bool,
}

/// A URL to try.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct DiagnosticsFetchParams {
    /// Which.
    pub url: String,
}

/// How entries are to be grouped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct UsageGroupsParams {
    /// A comma list of `user`, `team` and `project`.
    pub by: String,
    /// A day, or an ISO 8601 instant; the first of this month where left out.
    #[serde(default)]
    pub from: Option<String>,
    /// A day, which is meant whole, or an ISO 8601 instant; now where left out.
    #[serde(default)]
    pub until: Option<String>,
}
