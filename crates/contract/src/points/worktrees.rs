//! Working trees for sessions. Spec: *Registration methods*.

use std::path::{Path, PathBuf};

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::Call;

/// The provider of working trees. With this port, a session whose directory is in a repository can get a separate tree;
/// the host creates it before the backend, however the session starts. Directories are paths.
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
    /// The repository of a directory, or nothing.
    pub repository: Call<fn(directory: String) -> Option<Repository>>,
    /// Its branches that contain the typed text, newest commit first.
    pub branches: Call<fn(repository: String, typed: String) -> Vec<String>>,
    /// Creates a tree.
    pub create: Call<fn(request: WorktreeRequest) -> Worktree>,
    /// Whether a tree has uncommitted changes.
    pub dirty: Call<fn(tree: String) -> bool>,
    /// Removes a tree; its branch remains.
    pub remove: Call<fn(tree: String)>,
    /// The directory of git's data about a tree, which changes with every commit and staged file.
    pub git_dir: Option<Call<fn(tree: String) -> Option<String>>>,
    /// Deletes a branch, unless commits would be lost with it; returns whether it did.
    pub remove_branch: Option<Call<fn(repository: String, branch: String) -> bool>>,
}

/// The folder beside a repository in which its trees are, unless a provider is configured otherwise:
/// `<repository>.worktrees`. Where the repository is a served directory, this folder is served too.
pub fn worktrees_beside(repository: &Path) -> Option<PathBuf> {
    let mut name = repository.file_name()?.to_owned();
    name.push(".worktrees");
    Some(repository.with_file_name(name))
}

impl PortValue for Worktrees {
    const NAME: &'static str = "worktrees";
}

/// A repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Repository {
    /// Path of its main tree.
    pub root: String,
}

/// A request for a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct WorktreeRequest {
    /// Path of the repository.
    pub repository: String,
    /// Name of the tree, unique on this host.
    pub name: String,
    /// Base branch. Default: the one with the latest commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether to create a branch; otherwise the tree uses the base branch.
    pub create_new_branch: bool,
    /// Prefix of the new branch's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_prefix: Option<String>,
    /// Whether the new branch tracks the base branch.
    pub track: bool,
    /// Ignored files to copy after the links, as gitignore patterns.
    #[serde(default)]
    pub include_files: Vec<String>,
    /// Ignored directories to link, as gitignore patterns.
    #[serde(default)]
    pub symlink_folders: Vec<String>,
}

/// A working tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Worktree {
    /// Its path.
    pub path: String,
    /// Its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Path of its repository. The host fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
}
