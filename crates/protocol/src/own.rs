//! Parameters of the host's commands, `x-ostler/<domain>/<verb>`.

use serde::Deserialize;

/// A query of the totals of pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct UsageTotalsParams {
    /// The pools. Default: every pool that the caller can read.
    #[serde(default)]
    pub pools: Option<Vec<String>>,
    /// Start of a period, a day or an ISO 8601 instant. With `until`, the answer also contains the charges of the
    /// period.
    #[serde(default)]
    pub from: Option<String>,
    /// End of a period, an ISO 8601 instant or a day, which is included.
    #[serde(default)]
    pub until: Option<String>,
}

/// A query of entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct UsageRecordsParams {
    /// The charged pool.
    pub pool: String,
    /// Start of the period, a day or an ISO 8601 instant. Default: the first of this month.
    #[serde(default)]
    pub from: Option<String>,
    /// End of the period, an ISO 8601 instant or a day, which is included. Default: now.
    #[serde(default)]
    pub until: Option<String>,
}

/// A pull request for a session's branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct PullRequestCreateParams {
    /// The session.
    pub channel: String,
    /// Its title.
    pub title: String,
    /// Its description.
    #[serde(default)]
    pub body: Option<String>,
    /// The target branch. Default: the repository's default branch.
    #[serde(default)]
    pub base: Option<String>,
    /// Whether it is a draft.
    #[serde(default)]
    pub draft: bool,
}

/// A URL to request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct DiagnosticsFetchParams {
    /// The URL.
    pub url: String,
}

/// The grouping of entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct UsageGroupsParams {
    /// A comma-separated list of `user`, `team` and `project`.
    pub by: String,
    /// Start of the period, a day or an ISO 8601 instant. Default: the first of this month.
    #[serde(default)]
    pub from: Option<String>,
    /// End of the period, an ISO 8601 instant or a day, which is included. Default: now.
    #[serde(default)]
    pub until: Option<String>,
}
