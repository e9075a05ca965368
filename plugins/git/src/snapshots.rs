//! The states of a working tree before and after turns, as tree objects that refs below `refs/ostler/` retain.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::Thrown;
use parking_lot::Mutex;

use crate::changes::{After, Change};
use crate::program::{Failure, Git};
use crate::session_trees::SessionTree;
use crate::status::{Object, Row, SUBMODULE};
use crate::tree::Tree;

/// Where the refs are.
const REFS: &str = "refs/ostler";
/// The largest file whose content is retained, in bytes. Of a larger one, only whether it changed is known.
const LARGEST: u64 = 16 << 20;
/// How many trees have their last state stored.
const REMEMBERED: usize = 256;

/// The snapshots.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// The last snapshot of each tree, by what it was made of.
    last: Mutex<HashMap<PathBuf, (u64, String)>>,
    /// The trees of sessions that had a turn.
    sessions: Mutex<HashMap<String, Vec<Arc<Tree>>>>,
    /// Locked while the snapshots of a turn are created, so that the end of one precedes the start of the next.
    turns: tokio::sync::Mutex<()>,
}

/// A part of a ref's name that stands for any text.
fn part(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match !text.is_empty() && text.len() <= 100 && text.bytes().all(plain) && !text.starts_with("x-") {
        true => text.to_owned(),
        false => text.bytes().fold("x-".to_owned(), |name, byte| format!("{name}{byte:02x}")),
    }
}

fn of_session(session: &str) -> String {
    let id = session.split_once(":/").map_or(session, |(_, id)| id.trim_start_matches('/'));
    format!("{REFS}/{}", part(id))
}

fn of_turn(session: &str, turn: &str, side: &str) -> String {
    format!("{}/turns/{}/{side}", of_session(session), part(turn))
}

impl Snapshots {
    /// The state in which the session's first turn found the tree.
    pub(crate) async fn base(&self, tree: &Tree, session: &str) -> Result<Option<String>, Failure> {
        get(tree, &format!("{}/base", of_session(session))).await
    }

    /// The state before a turn, and after it if it has ended.
    pub(crate) async fn turn(
        &self,
        tree: &Tree,
        session: &str,
        turn: &str,
    ) -> Result<(Option<String>, Option<String>), Failure> {
        let before = get(tree, &of_turn(session, turn, "before")).await?;
        Ok((before, get(tree, &of_turn(session, turn, "after")).await?))
    }

    /// Records the state before a turn.
    pub(crate) async fn begin(&self, tree: &Arc<Tree>, session: &str, turn: &str) -> Result<(), Failure> {
        let _turns = self.turns.lock().await;
        self.remember(tree, session);
        let now = self.now(tree).await?;
        let mut refs = format!("update {} {now}\n", of_turn(session, turn, "before"));
        let base = format!("{}/base", of_session(session));
        if get(tree, &base).await?.is_none() {
            refs.push_str(&format!("create {base} {now}\n"));
        }
        update(&tree.root, refs).await
    }

    /// Records the state after a turn.
    pub(crate) async fn end(&self, session: &str, turn: &str) -> Result<(), Failure> {
        let _turns = self.turns.lock().await;
        let trees = self.sessions.lock().get(session).cloned().unwrap_or_default();
        let mut failed = None;
        for tree in trees {
            failed = self.end_in(&tree, session, turn).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    async fn end_in(&self, tree: &Arc<Tree>, session: &str, turn: &str) -> Result<(), Failure> {
        // The directories of the turn can differ from earlier ones.
        if get(tree, &of_turn(session, turn, "before")).await?.is_none() {
            return Ok(());
        }
        let now = self.now(tree).await?;
        update(&tree.root, format!("update {} {now}\n", of_turn(session, turn, "after"))).await
    }

    /// Records that a session has snapshots in a tree, so that they are removed with it.
    pub(crate) fn remember(&self, tree: &Arc<Tree>, session: &str) {
        let mut sessions = self.sessions.lock();
        let trees = sessions.entry(session.to_owned()).or_default();
        trees.retain(|known| known.root != tree.root);
        trees.push(tree.clone());
    }

    /// Removes the snapshots of a session that is disposed of.
    pub(crate) async fn forget(&self, session: &str) -> Result<(), Failure> {
        let _turns = self.turns.lock().await;
        let trees = self.sessions.lock().remove(session).unwrap_or_default();
        let mut failed = None;
        for tree in trees {
            // The working tree may be removed already.
            failed = remove(&tree.repository.common_dir, session).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// The tree object of the state now: of tracked files and of those that are not ignored.
    pub(crate) async fn now(&self, tree: &Arc<Tree>) -> Result<String, Failure> {
        let status = tree.status().await?;
        let (root, rows) = (tree.root.clone(), status.rows.clone());
        let commit = status.branch.commit.clone();
        if let Some(commit) = commit.as_ref().filter(|_| rows.is_empty()) {
            return Git::read(&tree.root)
                .args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")])
                .text()
                .await;
        }
        let looked = tokio::task::spawn_blocking(move || look(&root, rows, commit.as_deref()));
        let (hash, small, large) =
            looked.await.map_err(|why| Failure::Other(format!("cannot look at the changed files: {why}")))?;
        if let Some((_, id)) = self.last.lock().get(&tree.root).filter(|(last, _)| *last == hash) {
            return Ok(id.clone());
        }
        let id = write(tree, &small, &large).await?;
        let mut last = self.last.lock();
        if last.len() >= REMEMBERED {
            last.clear();
        }
        last.insert(tree.root.clone(), (hash, id.clone()));
        Ok(id)
    }
}

/// Removes the snapshots of a session from a repository.
async fn remove(common: &Path, session: &str) -> Result<(), Failure> {
    let listed = ["for-each-ref", "--format=delete %(refname)", &of_session(session)];
    let refs = Git::read(common).args(listed).text().await?;
    match refs.is_empty() {
        true => Ok(()),
        false => update(common, refs + "\n").await,
    }
}

async fn get(tree: &Tree, name: &str) -> Result<Option<String>, Failure> {
    Git::read(&tree.root).args(["rev-parse", "--verify", "--quiet", name]).maybe().await
}

/// Changes refs, all or none of them. No hook takes part.
async fn update(directory: &Path, refs: String) -> Result<(), Failure> {
    let update = Git::read(directory).args(["update-ref", "--no-deref", "--stdin"]);
    update.input(refs.into_bytes()).run().await.map(drop)
}

/// A hash of what a snapshot is made of, the paths whose content is stored, and the large files with what stands for them.
fn look(
    root: &Path,
    rows: Vec<Row>,
    commit: Option<&str>,
) -> (u64, Vec<PathBuf>, Vec<(PathBuf, u32, String)>) {
    let mut hash = DefaultHasher::new();
    commit.hash(&mut hash);
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for row in rows {
        for path in [Some(row.path), row.origin].into_iter().flatten() {
            path.hash(&mut hash);
            (row.staged, row.unstaged).hash(&mut hash);
            let found = std::fs::symlink_metadata(root.join(&path)).ok();
            if let Some(found) = &found {
                (found.size(), found.mtime(), found.mtime_nsec(), found.mode(), found.ino()).hash(&mut hash);
            }
            match found {
                // A repository inside that git does not track.
                Some(found) if found.is_dir() && !row.submodule => {}
                Some(found) if found.is_file() && found.len() > LARGEST => {
                    let mode = if found.mode() & 0o100 == 0 { 0o100_644 } else { 0o100_755 };
                    let what =
                        format!("size {} time {}.{}\n", found.size(), found.mtime(), found.mtime_nsec());
                    large.push((path, mode, what));
                }
                _ => small.push(path),
            }
        }
    }
    (hash.finish(), small, large)
}

/// Writes the tree object: with a copy of the index, so that the index itself stays as it is.
async fn write(tree: &Tree, small: &[PathBuf], large: &[(PathBuf, u32, String)]) -> Result<String, Failure> {
    let failed = |why: std::io::Error| Failure::Other(format!("cannot copy the index: {why}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let index = folder.path().join("index");
    let (from, to) = (tree.repository.git_dir.join("index"), index.clone());
    match tokio::task::spawn_blocking(move || copy_index(&from, &to)).await {
        Ok(Err(why)) if why.kind() != std::io::ErrorKind::NotFound => return Err(failed(why)),
        _ => {}
    }
    let on = || Git::read(&tree.root).env("GIT_INDEX_FILE", &index);
    if !small.is_empty() {
        let add = on().args(["update-index", "--add", "--remove", "-z", "--stdin"]);
        add.paths(small.iter().map(PathBuf::as_path)).run().await?;
    }
    for (path, mode, what) in large {
        // The content is not stored: an id that changes with the file stands for it.
        let id = on().args(["hash-object", "--stdin"]).input(what.clone().into_bytes()).text().await?;
        let mut entry = format!("{mode:o} {id}\t").into_bytes();
        entry.extend_from_slice(path.as_os_str().as_bytes());
        entry.push(0);
        on().args(["update-index", "--add", "-z", "--index-info"]).input(entry).run().await?;
    }
    on().args(["write-tree", "--missing-ok"]).text().await
}

/// Copies an index with its time. Git compares seconds, and looks into the files that changed in the second in which the
/// index was written: with a later time, it would take them for unchanged.
fn copy_index(from: &Path, to: &Path) -> std::io::Result<()> {
    let written = std::fs::metadata(from)?.modified()?;
    std::fs::copy(from, to)?;
    std::fs::File::options().write(true).open(to)?.set_modified(written)
}

/// The changes between two states in the directories of a session. With `live`, the later one is the tree as it is now.
pub(crate) async fn between(
    place: &SessionTree,
    before: &str,
    after: &str,
    live: bool,
) -> Result<Vec<Change>, Thrown> {
    if before == after {
        return Ok(Vec::new());
    }
    let diff = |renames: &str| {
        Git::read(&place.tree.root).args([
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-abbrev",
            "--no-ext-diff",
            renames,
            before,
            after,
        ])
    };
    // Content that is not stored cannot be compared for renames.
    let out = match diff("--find-renames").run().await {
        Ok(out) => out,
        Err(_) => diff("--no-renames").run().await?,
    };
    let mut entries = out.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    let mut changes = Vec::new();
    while let Some(entry) = entries.next() {
        let header = String::from_utf8_lossy(entry).into_owned();
        let words: Vec<&str> = header.trim_start_matches(':').split(' ').collect();
        let (&[old_mode, new_mode, old, new, kind], Some(path)) = (&words[..], entries.next()) else { break };
        let path = PathBuf::from(OsStr::from_bytes(path));
        let moved = kind.starts_with('R') || kind.starts_with('C');
        let last = match moved {
            true => entries.next().map_or_else(|| path.clone(), |path| OsStr::from_bytes(path).into()),
            false => path.clone(),
        };
        if !place.holds(&path) && !place.holds(&last) {
            continue;
        }
        let mode = |word: &str| u32::from_str_radix(word, 8).unwrap_or_default();
        let later = Object::new(new, mode(new_mode)).map(|object| match (live, object.mode) {
            (true, SUBMODULE) => After::Submodule,
            (true, mode) => After::File(mode),
            (false, _) => After::Object(object),
        });
        let earlier = Object::new(old, mode(old_mode)).filter(|_| !kind.starts_with('C'));
        changes.push(Change {
            before: earlier.map(|object| (path, object)),
            after: later.map(|after| (last, after)),
            meta: None,
        });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_a_part_of_a_ref() {
        assert_eq!(of_session("echo:/8d-1"), "refs/ostler/8d-1");
        assert_eq!(part("a/b"), "x-612f62");
        assert_eq!(part(""), "x-");
        assert_ne!(part("x-61"), part("a"));
    }
}
