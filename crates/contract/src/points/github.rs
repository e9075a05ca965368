//! Pull requests of a code host. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::bare_resource;
use ostler_protocol::wire::state::ProtectedResourceMetadata;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::Call;
use crate::cross::{Cross, Mismatch};
use crate::shape::Shape;

/// The provider of pull requests. The pull request of a session's branch is in the session's `_meta`.
///
/// ```
/// use ostler_contract::{Call, points::PullRequests};
///
/// let none = PullRequests {
///     resource: ostler_contract::points::Resource::named("https://api.github.com/repos"),
///     for_branch: Call::now(|_| Ok(None)),
///     create: Call::new(|_| async { Err("nothing is pushed from here".into()) }),
///     ..PullRequests::default()
/// };
/// # assert!(ostler_contract::Cross::check(&none).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct PullRequests {
    /// The protected resource whose token the port uses, advertised with those of the backends.
    pub resource: Resource,
    /// The pull request of a branch, or nothing.
    pub for_branch: Call<fn(asked: BranchAsked) -> Option<PullRequest>>,
    /// Creates a pull request.
    pub create: Call<fn(request: PullRequestRequest) -> PullRequest>,
    /// Whether a remote of a directory's repository is on GitHub, also on a server of a company. It is
    /// `git.hasGitHubRemote` in the `_meta` of sessions.
    pub is_on_github: Option<Call<fn(directory: String) -> bool>>,
}

impl PortValue for PullRequests {
    const NAME: &'static str = "github";
}

/// A protected resource, as the protocol describes one.
#[derive(Debug, Clone)]
pub struct Resource(pub ProtectedResourceMetadata);

impl Resource {
    /// Returns the metadata of a resource by its URL.
    pub fn named(url: &str) -> Self {
        let mut resource = Self::default();
        url.clone_into(&mut resource.0.resource);
        resource
    }
}

impl Default for Resource {
    fn default() -> Self {
        Self(bare_resource(""))
    }
}

impl Cross for Resource {
    fn shape() -> Shape {
        ProtectedResourceMetadata::shape()
    }

    fn into_live(self) -> crate::Live {
        self.0.into_live()
    }

    fn from_live(live: crate::Live) -> Result<Self, Mismatch> {
        match live {
            crate::Live::Undefined => Err(Mismatch::expected("an object")),
            live => ProtectedResourceMetadata::from_live(live).map(Self),
        }
    }

    fn check(&self) -> Result<(), Mismatch> {
        match self.0.resource.is_empty() {
            true => Err(Mismatch::expected("an object")),
            false => Ok(()),
        }
    }
}

/// The branch whose pull request is requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct BranchAsked {
    /// The path of the directory.
    pub directory: String,
    /// The branch, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The client's token for the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// A request to create a pull request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct PullRequestRequest {
    /// The path of the directory.
    pub directory: String,
    /// The branch, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The client's token for the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Title.
    pub title: String,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The target branch. Default: the repository's default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Whether it is a draft.
    #[serde(default)]
    pub draft: bool,
}

/// A pull request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct PullRequest {
    /// Owner of the repository.
    pub owner: String,
    /// Name of the repository.
    pub repo: String,
    /// URL of its page.
    pub url: String,
    /// Its branch.
    pub branch: String,
    /// Its state.
    pub state: PullRequestState,
    /// The results of its checks, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<PullRequestChecks>,
}

/// The results of the checks of a pull request, such as builds and tests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct PullRequestChecks {
    /// All of them in one word.
    pub state: ChecksState,
    /// How many have passed.
    #[serde(default)]
    pub passed: u32,
    /// How many have failed.
    #[serde(default)]
    pub failed: u32,
    /// How many have not ended.
    #[serde(default)]
    pub pending: u32,
}

/// The state of all checks of a pull request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum ChecksState {
    /// None has failed, and some have not ended.
    #[default]
    Pending,
    /// All have passed.
    Passed,
    /// At least one has failed.
    Failed,
}

/// The state of a pull request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum PullRequestState {
    /// Open.
    #[default]
    Open,
    /// Closed without a merge.
    Closed,
    /// Merged.
    Merged,
}
