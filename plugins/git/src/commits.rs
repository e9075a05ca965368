//! Commits with an index of their own, so that a commit that fails leaves the index of the user as it was.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{RpcError, Thrown};

use crate::program::{Failure, Git};
use crate::raw_diff::{self, RAW, RawEntry};
use crate::session_trees::SessionTree;
use crate::status::Row;
use crate::tree::Tree;

/// How often, and how long after each other, the index is updated after a commit while another process holds its lock.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// What is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// What is staged.
    Staged,
    /// Everything that has changed.
    All,
}

/// Commits the changes in the directories of a session, and no others. Returns the new commit.
pub(crate) async fn commit(place: &SessionTree, part: Part, message: &str) -> Result<String, Thrown> {
    let tree = &place.tree;
    let status = tree.status().await?;
    let (inside, outside): (Vec<&Row>, Vec<&Row>) =
        status.rows.iter().partition(|row| place.holds(&row.path));
    let outside: Vec<&Row> = outside.into_iter().filter(|row| row.is_staged()).collect();
    if let Some(row) = outside.first()
        && tokio::fs::try_exists(tree.repository.git_dir.join("MERGE_HEAD")).await.unwrap_or(false)
    {
        // A merge is one commit: without a part of it, its result would be lost.
        return Err(RpcError::invalid_params(format!(
            "a merge is in progress, and {} is staged outside of the session; commit it with git",
            tree.root.join(&row.path).display()
        ))
        .into());
    }
    let failed = |why: std::io::Error| Failure::Other(format!("cannot copy the index: {why}"));
    if tree.repository.git_dir.join("index.lock").exists() {
        let lock = tree.repository.git_dir.join("index.lock");
        return Err(Failure::Locked(format!("{} exists", lock.display())).into());
    }
    let folder = tempfile::tempdir().map_err(failed)?;
    let index = folder.path().join("index");
    let (from, to) = (tree.repository.git_dir.join("index"), index.clone());
    match tokio::task::spawn_blocking(move || crate::snapshots::copy_index(&from, &to)).await {
        Ok(Err(why)) if why.kind() != std::io::ErrorKind::NotFound => return Err(failed(why).into()),
        _ => {}
    }
    let on = || Git::write(&tree.root).env("GIT_INDEX_FILE", &index);
    let head = tree.repository.head().await?;
    if !outside.is_empty() {
        let paths = outside.iter().flat_map(|row| [Some(row.path.clone()), row.origin.clone()]).flatten();
        let paths: Vec<PathBuf> = paths.collect();
        let gone = on().args(["update-index", "--force-remove", "-z", "--stdin"]);
        gone.paths(paths.iter().map(PathBuf::as_path)).run().await?;
        if let Some(head) = &head {
            // The format of a tree's entries is that of the index.
            let known = Git::read(&tree.root).args(["ls-tree", "-r", "--full-tree", "-z", head, "--"]);
            let known = known.args(&paths).run().await?.into_bytes();
            on().args(["update-index", "-z", "--index-info"]).input(known).run().await?;
        }
    }
    if part == Part::All && !inside.is_empty() {
        // Git rejects a path without known files.
        let paths =
            place.prefixes.iter().filter(|prefix| inside.iter().any(|row| row.path.starts_with(prefix)));
        let paths = paths.map(|path| if path.as_os_str().is_empty() { ".".into() } else { path.clone() });
        let mut paths: Vec<PathBuf> = paths.collect();
        // The former places of renamed files can be in other directories.
        let origins = inside.iter().filter(|row| !row.is_copy());
        let origins = origins.filter_map(|row| row.origin.clone()).filter(|path| !place.holds(path));
        let mut removed = Vec::new();
        for origin in origins {
            removed.extend_from_slice(origin.as_os_str().as_bytes());
            removed.push(0);
        }
        paths.dedup();
        on().args(["add", "--all", "--"]).args(&paths).run().await?;
        if !removed.is_empty() {
            on().args(["update-index", "--remove", "-z", "--stdin"]).input(removed).run().await?;
        }
    }
    on().args(["commit", "--quiet", "--file=-"]).input(message.as_bytes().to_vec()).run().await?;
    let new = tree.repository.head().await?.unwrap_or_default();
    follow(tree, head.as_deref(), &new).await?;
    Ok(new)
}

/// Makes the index as the new commit where this differs from the one before: of all else, the index is as it was.
async fn follow(tree: &Arc<Tree>, old: Option<&str>, new: &str) -> Result<(), Thrown> {
    let listed = Git::read(&tree.root).args(["diff-tree", "-r", "--no-renames"]).args(RAW);
    let listed = match old {
        Some(old) => listed.args([old, new]),
        None => listed.args(["--root", "--no-commit-id", new]),
    };
    let out = listed.run().await?;
    let mut input = Vec::new();
    for RawEntry { new, path, .. } in raw_diff::entries(&out) {
        raw_diff::add_index_line(&mut input, &new, &path);
    }
    let mut attempt = 0;
    loop {
        let update = Git::write(&tree.root).args(["update-index", "-z", "--index-info"]).input(input.clone());
        match update.run().await {
            Ok(_) => break,
            Err(Failure::Locked(_)) if attempt < ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(why) => {
                let why = Thrown::from(why).message;
                return Err(Thrown::new(format_args!(
                    "committed {new}, but the index is not updated (run git reset): {why}"
                )));
            }
        }
    }
    refresh(tree).await;
    Ok(())
}

/// Lets git note that files are as in the index, so that it does not read them each time.
pub(crate) async fn refresh(tree: &Tree) {
    let _ = Git::write(&tree.root).args(["update-index", "-q", "--refresh"]).outcome().await;
}
