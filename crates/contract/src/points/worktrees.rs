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
    /// Where a tree will be, and its branch; an error if either exists already. The host stores it before it creates the
    /// tree, and after a crash removes what an unfinished creation left.
    pub plan: Option<Call<fn(request: WorktreeRequest) -> Worktree>>,
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

/// Returns the folder with the working trees of a served directory, if a path is in it: `<repository>.worktrees`, or for a
/// directory below the top of a repository, the same directory in the tree of the path. `is_repository` returns whether a
/// folder is the top of a repository.
pub fn served_trees(served: &Path, path: &Path, is_repository: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let trees_of = |above: &Path| worktrees_beside(above).filter(|trees| path.starts_with(trees));
    let (repository, trees) = served.ancestors().find_map(|above| Some((above, trees_of(above)?)))?;
    // The nearest one, because a repository can be in another one.
    if served.ancestors().find(|above| is_repository(above)) != Some(repository) {
        return None;
    }
    let below = served.strip_prefix(repository).ok()?;
    if below.as_os_str().is_empty() {
        return Some(trees);
    }
    let name = path.strip_prefix(&trees).ok()?.components().next()?;
    let folder = trees.join(name).join(below);
    path.starts_with(&folder).then_some(folder)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trees_of_a_served_directory_are_beside_its_repository() {
        let found = |served: &str, path: &str| {
            let is_repository =
                |folder: &Path| ["/srv/inn", "/srv/inn/vendor/lib"].map(Path::new).contains(&folder);
            served_trees(Path::new(served), Path::new(path), is_repository)
                .map(|folder| folder.to_string_lossy().into_owned())
        };
        let some = |folder: &str| Some(folder.to_owned());
        assert_eq!(found("/srv/inn", "/srv/inn.worktrees/one/a"), some("/srv/inn.worktrees"));
        assert_eq!(found("/srv/inn/bar", "/srv/inn.worktrees/one/bar/a"), some("/srv/inn.worktrees/one/bar"));
        assert_eq!(found("/srv/inn/bar", "/srv/inn.worktrees/one/bar"), some("/srv/inn.worktrees/one/bar"));
        assert_eq!(found("/srv/inn/bar", "/srv/inn.worktrees/one/cellar"), None);
        assert_eq!(found("/srv/inn/bar", "/srv/inn.worktrees/one"), None);
        assert_eq!(found("/srv/inn/bar", "/srv/inn.worktrees/bar"), None);
        assert_eq!(
            found("/srv/inn/vendor/lib", "/srv/inn.worktrees/one/vendor/lib"),
            None,
            "another repository"
        );
        assert_eq!(found("/srv", "/srv.worktrees/one"), None, "no repository");
        assert_eq!(found("/srv/inn", "/srv/inn/a"), None);
    }
}
