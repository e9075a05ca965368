//! Working trees of a repository, one for a session. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::Call;

/// Makes working trees. With one registered, a session whose directory is in a repository may be given a tree of its
/// own: the host asks before it starts the backend, whoever starts the session. Directories are paths.
///
/// ```
/// use ostler_contract::{Call, points::Worktrees};
///
/// let none = Worktrees {
///     repository: Call::now(|_| Ok(None)),
///     branches: Call::now(|_| Ok(vec![])),
///     create: Call::new(|_| async { Err("this machine has no git".into()) }),
///     dirty: Call::now(|_| Ok(false)),
///     remove: Call::now(|_| Ok(())),
///     ..Worktrees::default()
/// };
/// # assert!(ostler_contract::Cross::check(&none).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Worktrees {
    /// The repository a directory is in, or nothing.
    pub repository: Call<fn(directory: String) -> Option<Repository>>,
    /// Its branches that hold what a person typed, newest commit first.
    pub branches: Call<fn(repository: String, typed: String) -> Vec<String>>,
    /// Makes a tree.
    pub create: Call<fn(request: WorktreeRequest) -> Worktree>,
    /// Whether a tree holds work that is not committed.
    pub dirty: Call<fn(tree: String) -> bool>,
    /// Removes a tree; its branch stays.
    pub remove: Call<fn(tree: String)>,
    /// Where git keeps what it knows of a tree: what moves there moves with every commit and every staged file.
    pub git_dir: Option<Call<fn(tree: String) -> Option<String>>>,
}

impl PortValue for Worktrees {
    const NAME: &'static str = "worktrees";
}

/// A repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Repository {
    /// The path of its own tree.
    pub root: String,
}

/// A tree asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct WorktreeRequest {
    /// The path of the repository.
    pub repository: String,
    /// What the tree is to be called: a word no other tree of this host has.
    pub name: String,
    /// The branch to begin from; the one committed to last where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether the tree gets a branch of its own; otherwise it is on the branch itself.
    pub create_new_branch: bool,
    /// What the name of that branch begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_prefix: Option<String>,
    /// Whether that branch tracks the one it began from.
    pub track: bool,
    /// Ignored files to copy, as gitignore patterns; after the links.
    #[serde(default)]
    pub include_files: Vec<String>,
    /// Ignored folders to link, as gitignore patterns.
    #[serde(default)]
    pub symlink_folders: Vec<String>,
}

/// A tree that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Worktree {
    /// Its path.
    pub path: String,
    /// The branch it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}
