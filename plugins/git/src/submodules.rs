//! The submodules of a working tree. In a tree that is not the main one, each has its own repository in git's folder of the
//! tree, which is deleted with the tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::guard::Guard;
use crate::program::{Failure, Git};
use crate::repository::Repository;
use crate::status::Status;

/// How deep folders of repositories are searched.
const DEPTH: usize = 32;

/// Returns what would be lost with the submodules of a tree, if anything.
pub(crate) async fn work_in(tree: &Path, git_dir: &Path) -> Result<Option<String>, Failure> {
    let modules = git_dir.join("modules");
    let found = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        repositories(&modules, DEPTH, &mut found);
        found
    });
    let mut found = found.await.unwrap_or_default();
    found.extend(embedded(tree).await?);
    for repository in found {
        if let Some(work) = work_of(&repository).await? {
            return Ok(Some(work));
        }
    }
    Ok(None)
}

/// Finds the repositories below a folder, and those of their submodules.
fn repositories(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    if folder.join("HEAD").is_file() && folder.join("objects").is_dir() {
        found.push(folder.to_owned());
        return repositories(&folder.join("modules"), depth, found);
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            repositories(&entry.path(), depth, found);
        }
    }
}

/// The submodules that contain their repositories.
async fn embedded(tree: &Path) -> Result<Vec<PathBuf>, Failure> {
    let git = links(tree).await?.into_iter().map(|path| path.join(".git"));
    Ok(git.filter(|git| git.is_dir()).collect())
}

/// The folders of the submodules of a tree.
async fn links(tree: &Path) -> Result<Vec<PathBuf>, Failure> {
    let listed = Git::read(tree).args(["ls-files", "--stage", "-z"]).run().await?;
    let links = listed.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
    let paths = links.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1));
    Ok(paths.map(|path| tree.join(OsStr::from_bytes(path))).collect())
}

/// Whether a tree or one of its submodules has changes. Git itself would look into a submodule with the submodule's own
/// configuration.
pub(crate) async fn has_changes(tree: &Path) -> Result<bool, Failure> {
    let (mut open, mut seen) = (vec![tree.to_owned()], HashSet::new());
    while let Some(tree) = open.pop() {
        let repository = Repository::of(&tree).await?.ok_or(Failure::NoRepository)?;
        let Some(root) = repository.tree.clone() else { continue };
        if !seen.insert(root.clone()) {
            continue;
        }
        let guard = Guard::of(&repository).await?;
        let mut status = Status::parse(&guard.status("--untracked-files=normal", &[]).await?);
        guard.mark(&mut status).await?;
        if !status.rows.is_empty() {
            return Ok(true);
        }
        open.extend(links(&root).await?.into_iter().filter(|path| path.join(".git").exists()));
    }
    Ok(false)
}

/// What would be lost with one repository.
async fn work_of(repository: &Path) -> Result<Option<String>, Failure> {
    let at = || Git::read(repository);
    let files = match at().args(["config", "--get", "core.worktree"]).maybe().await? {
        Some(files) => repository.join(files),
        None => repository.with_file_name(""),
    };
    let name = || std::fs::canonicalize(&files).unwrap_or_else(|_| files.clone()).display().to_string();
    if files.join(".git").exists() && has_changes(&files).await? {
        return Ok(Some(format!("the submodule {} has uncommitted changes", name())));
    }
    if at().args(["rev-parse", "--verify", "--quiet", "refs/stash"]).maybe().await?.is_some() {
        return Ok(Some(format!("the submodule {} has a stash", name())));
    }
    let own = ["rev-list", "--max-count=1", "HEAD", "--branches", "--not", "--remotes"];
    Ok(match at().args(own).text().await {
        Ok(commits) if commits.is_empty() => None,
        _ => Some(format!("the submodule {} has commits that are on no remote", name())),
    })
}
