//! Changesets of sessions.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{ChangeScope, Changes, ChangesOf, ChangesState};
use ostler_contract::protocol::uri::inline;
use ostler_contract::wire::commands::{ChangesetOperationTarget, InvokeChangesetOperationResult};
use ostler_contract::wire::state::{
    ChangesSummary, ChangesetFile, ContentRef, FileEdit, FileEditDiffStats, FileEditSide,
};
use ostler_contract::{Call, HostFunction, JsonObject, RpcError, Thrown, Value};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use crate::content::{Contents, LFS, objects};
use crate::line_endings::{Comparison, comparisons};
use crate::lines;
use crate::operations;
use crate::program::Failure;
use crate::session_trees::SessionTree;
use crate::snapshots::{Snapshots, between};
use crate::status::{LINK, Object, Row};
use crate::tree::{Tree, Trees};

/// How many files of a changeset have their lines counted.
const COUNTED: usize = 1_000;
/// Marks the last listed file if there are more, and a number that is too low.
pub(crate) const TRUNCATED: &str = "ostler.truncated";
/// Marks a file that is not compared, with the filter that would be needed: the repository's own configuration names its
/// program.
const NOT_COMPARED: &str = "ostler.notCompared";
/// How often at most changes are reported.
const REPORTED: Duration = Duration::from_millis(50);
/// The most counts that are remembered.
const REMEMBERED: usize = 20_000;

/// The changesets.
pub(crate) struct Source {
    pub trees: Arc<Trees>,
    pub contents: Arc<Contents>,
    pub snapshots: Snapshots,
    /// Lines added and removed, by the content before and the file's stamp.
    counts: Mutex<HashMap<CountKey, Option<(i64, i64)>>>,
}

/// The content before, the file with its stamp, and the stamps of the files that say how it is compared.
type CountKey = (Option<String>, PathBuf, Stamp, [Option<Stamp>; 3]);
/// Size and time of the last change of a file.
type Stamp = (u64, i64, i64);

/// One file of a changeset before its URIs are made.
pub(crate) struct Change {
    /// The path before, from the top of the tree, with its content.
    pub before: Option<(PathBuf, Object)>,
    /// The path after.
    pub after: Option<(PathBuf, After)>,
    pub meta: Option<JsonObject>,
}

/// The content after a change.
pub(crate) enum After {
    /// The file in the tree, of this mode.
    File(u32),
    /// A submodule, at its commit if it is checked out.
    Submodule,
    /// An object.
    Object(Object),
}

impl Source {
    pub(crate) fn new(trees: Arc<Trees>, contents: Arc<Contents>) -> Self {
        Self { trees, contents, snapshots: Snapshots::default(), counts: Mutex::default() }
    }

    pub(crate) fn into_point(self: Arc<Self>) -> Changes {
        let (scopes, states, sums, turns, watches, operates) =
            (self.clone(), self.clone(), self.clone(), self.clone(), self.clone(), self);
        type Operate = (ChangesOf, String, String, Option<ChangesetOperationTarget>, Option<JsonObject>);
        Changes {
            scopes: Call::new(move |(of,): (ChangesOf,)| {
                let source = scopes.clone();
                async move { source.scopes(&of).await }
            }),
            state: Call::new(move |(of, scope): (ChangesOf, String)| {
                let source = states.clone();
                async move { source.state(&of, &scope).await }
            }),
            summary: Call::new(move |(of,): (ChangesOf,)| {
                let source = sums.clone();
                async move { source.summary(&of).await }
            }),
            operate: Some(Call::new(move |(of, scope, operation, target, meta): Operate| {
                let source = operates.clone();
                async move {
                    let answer: Result<InvokeChangesetOperationResult, Thrown> =
                        operations::run(&source, &of, &scope, &operation, target, &meta.unwrap_or_default())
                            .await;
                    answer
                }
            })),
            watch: Some(Call::new(move |(directory, changed): (String, HostFunction<fn()>)| {
                let source = watches.clone();
                async move { source.watch(Path::new(&directory), changed).await }
            })),
            turn_start: Some(Call::new(move |(of, turn): (ChangesOf, String)| {
                let source = turns.clone();
                async move {
                    let places = source.trees.of_session(&of).await?;
                    // A slow repository does not delay the snapshots of the others.
                    let begun =
                        places.iter().map(|place| source.snapshots.begin(&place.tree, &of.session, &turn));
                    let begun = futures::future::join_all(begun).await;
                    Ok(begun.into_iter().collect::<Result<(), Failure>>()?)
                }
            })),
        }
    }

    /// Reports changes of a directory's tree until the returned function is called.
    async fn watch(
        &self,
        directory: &Path,
        changed: HostFunction<fn()>,
    ) -> Result<Option<Call<fn()>>, Thrown> {
        let Some(tree) = self.trees.of(directory).await? else { return Ok(None) };
        let Some(mut changes) = tree.follow().await else { return Ok(None) };
        let reports = tokio::spawn(async move {
            // Otherwise the host no longer exists.
            while changes.changed().await.is_ok() && changed.call(()).await.is_ok() {
                tokio::time::sleep(REPORTED).await;
            }
        });
        Ok(Some(Call::new(move |()| {
            reports.abort();
            let tree = tree.clone();
            async move {
                tree.unfollow().await;
                Ok(())
            }
        })))
    }

    async fn scopes(&self, of: &ChangesOf) -> Result<Vec<ChangeScope>, Thrown> {
        match self.trees.of_session(of).await {
            Ok(places) if places.is_empty() => return Ok(Vec::new()),
            // Who opens a changeset is told what is wrong.
            Err(Failure::Other(_)) if of.directories().any(is_in_repository) => {}
            places => drop(places?),
        }
        let scope = |scope: &str, label: &str, description: &str, kind: &str, review| ChangeScope {
            scope: scope.to_owned(),
            label: label.to_owned(),
            description: Some(description.to_owned()),
            change_kind: Some(kind.to_owned()),
            review,
        };
        Ok(vec![
            scope(
                "session",
                "Session Changes",
                "Changes since the first turn of the session",
                "session",
                true,
            ),
            scope("uncommitted", "Uncommitted Changes", "Changes since the last commit", "uncommitted", true),
            scope("turn/{turnId}", "Turn Changes", "Changes during one turn", "turn", false),
            scope(
                "compare/{originalTurnId}/{modifiedTurnId}",
                "Changes Between Turns",
                "Changes between the ends of two turns",
                "compare-turns",
                false,
            ),
        ])
    }

    async fn state(&self, of: &ChangesOf, scope: &str) -> Result<ChangesState, Thrown> {
        let places = self.trees.of_session(of).await?;
        if places.is_empty() {
            let directory = of.directory.as_deref().unwrap_or("the session");
            return Err(RpcError::invalid_params(format!("{directory} is not in a git working tree")).into());
        }
        let mut files: Vec<ChangesetFile> = Vec::new();
        let operations = match scope {
            "uncommitted" => {
                let (mut all, mut fresh, mut is_cut) = (Vec::new(), true, false);
                for place in &places {
                    let status = place.tree.status().await?;
                    is_cut |= status.is_cut;
                    let rows = place.rows(&status);
                    fresh &= self.snapshots.base(&place.tree, &of.session).await?.is_none();
                    let changes = rows.iter().filter_map(|row| uncommitted(row)).collect();
                    files.extend(self.files(&place.tree, changes).await?);
                    all.extend(rows.into_iter().cloned());
                }
                // The protocol has no place for it beside the files.
                if is_cut && let Some(last) = files.last_mut() {
                    last.meta.get_or_insert_default().insert(TRUNCATED.to_owned(), true.into());
                }
                Some(operations::of_uncommitted(of, &all, is_cut, fresh))
            }
            "session" => {
                for place in &places {
                    files.extend(self.since_base(of, place).await?.unwrap_or_default());
                }
                Some(operations::of_session())
            }
            _ => {
                let mut known = false;
                for place in &places {
                    let Some((before, after)) = self.turns(of, &place.tree, scope).await? else { continue };
                    known = true;
                    let live = after.is_none();
                    let after = match after {
                        Some(after) => after,
                        None => self.snapshots.now(&place.tree).await?,
                    };
                    let changes = between(place, &before, &after, live).await?;
                    files.extend(self.files(&place.tree, changes).await?);
                }
                if !known {
                    for place in &places {
                        if let Some(why) = self.snapshots.missed(&place.tree, &of.session).await? {
                            return Err(Thrown::new(why));
                        }
                    }
                    let none = RpcError::not_found(format!("{} has no changeset {scope}", of.session));
                    return Err(none.into());
                }
                None
            }
        };
        Ok(ChangesState { files, operations })
    }

    /// Returns what changed in a tree since the session's first turn there; `None` before it.
    async fn since_base(
        &self,
        of: &ChangesOf,
        place: &SessionTree,
    ) -> Result<Option<Vec<ChangesetFile>>, Thrown> {
        let Some(base) = self.snapshots.base(&place.tree, &of.session).await? else {
            return match self.snapshots.missed(&place.tree, &of.session).await? {
                Some(why) => Err(Thrown::new(why)),
                None => Ok(None),
            };
        };
        let now = self.snapshots.now(&place.tree).await?;
        let changes = between(place, &base, &now, true).await?;
        Ok(Some(self.files(&place.tree, changes).await?))
    }

    /// The states of a tree that a changeset of turns compares; a running turn has no later one. `None` if the turn did
    /// not work in the tree.
    async fn turns(
        &self,
        of: &ChangesOf,
        tree: &Tree,
        scope: &str,
    ) -> Result<Option<(String, Option<String>)>, Thrown> {
        let id = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let parts: Vec<&str> = scope.split('/').collect();
        Ok(match parts[..] {
            ["turn", turn] => {
                let (before, after) = self.snapshots.turn(tree, &of.session, &id(turn)).await?;
                before.map(|before| (before, after))
            }
            ["compare", original, modified] => {
                let (_, before) = self.snapshots.turn(tree, &of.session, &id(original)).await?;
                let (started, after) = self.snapshots.turn(tree, &of.session, &id(modified)).await?;
                before.filter(|_| started.is_some()).map(|before| (before, after))
            }
            _ => None,
        })
    }

    async fn summary(&self, of: &ChangesOf) -> Result<Option<ChangesSummary>, Thrown> {
        let mut all: Option<Vec<ChangesetFile>> = None;
        for place in self.trees.of_session(of).await? {
            if let Some(files) = self.since_base(of, &place).await? {
                // The session may have had its turns before the host was started again.
                self.snapshots.remember(&place.tree, &of.session);
                all.get_or_insert_default().extend(files);
            }
        }
        Ok(all.map(|files| summed(&files)))
    }

    /// Changes in the protocol's form, with their lines counted.
    pub(crate) async fn files(
        &self,
        tree: &Arc<Tree>,
        mut changes: Vec<Change>,
    ) -> Result<Vec<ChangesetFile>, Failure> {
        let mut stamps = Vec::with_capacity(changes.len());
        let root = tree.root.clone();
        let paths: Vec<Option<PathBuf>> = changes
            .iter()
            .map(|change| match &change.after {
                Some((path, After::File(_))) => Some(root.join(path)),
                _ => None,
            })
            .collect();
        let looked = tokio::task::spawn_blocking(move || {
            paths.into_iter().map(|path| std::fs::symlink_metadata(path?).ok()).collect::<Vec<_>>()
        });
        let mut looked = looked.await.unwrap_or_default();
        looked.resize_with(changes.len(), || None);
        let uncompared = tree.uncompared();
        for (change, found) in changes.iter_mut().zip(looked) {
            stamps.push(found.as_ref().map(stamp));
            if let Some((path, After::File(_))) = &change.after
                && let Some(filter) = uncompared.get(path)
            {
                let meta = change.meta.get_or_insert_default();
                meta.insert(NOT_COMPARED.to_owned(), Value::String(filter.clone()));
            }
            // Git does not tell what an untracked path is.
            if let (Some((_, after)), Some(found)) = (&mut change.after, found) {
                if found.is_symlink() {
                    *after = After::File(LINK);
                } else if found.is_dir() {
                    *after = After::Submodule;
                }
            }
        }
        let counts = self.count(tree, &changes, &stamps).await?;
        let files = changes.into_iter().zip(stamps).zip(counts);
        Ok(files.filter_map(|((change, stamp), lines)| self.file(tree, change, stamp, lines)).collect())
    }

    fn file(
        &self,
        tree: &Tree,
        change: Change,
        stamp: Option<Stamp>,
        lines: Option<(i64, i64)>,
    ) -> Option<ChangesetFile> {
        let side =
            |path: &Path, content: ContentRef| FileEditSide { uri: file_uri(&tree.root.join(path)), content };
        let named = |uri: String| ContentRef { uri, size_hint: None, content_type: None, nonce: None };
        let stored = |path: &Path, object: &Object| match object.mode {
            crate::status::SUBMODULE => named(commit_text(&tree.root.join(path), &object.id)),
            _ => named(self.contents.object(tree, &object.id, path)),
        };
        let before = change.before.as_ref().map(|(path, object)| side(path, stored(path, object)));
        let after = change.after.as_ref().map(|(path, after)| {
            let content = match after {
                After::Object(object) => stored(path, object),
                After::Submodule => {
                    let path = tree.root.join(path);
                    named(commit_text(&path, &submodule_commit(&path).unwrap_or_default()))
                }
                // Not the file's own URI: VS Code in a browser reads that one from the computer of the browser.
                After::File(_) => ContentRef {
                    uri: self.contents.file(tree, path),
                    size_hint: stamp.and_then(|(size, ..)| i64::try_from(size).ok()),
                    content_type: None,
                    nonce: stamp.map(|(size, seconds, nanos)| format!("{size:x}-{seconds:x}.{nanos:x}")),
                },
            };
            side(path, content)
        });
        let id = after.as_ref().or(before.as_ref())?.uri.clone();
        let diff =
            lines.map(|(added, removed)| FileEditDiffStats { added: Some(added), removed: Some(removed) });
        Some(ChangesetFile { id, edit: FileEdit { before, after, diff }, reviewed: None, meta: change.meta })
    }

    /// The lines of each change; `None` for what is large or not text.
    async fn count(
        &self,
        tree: &Arc<Tree>,
        changes: &[Change],
        stamps: &[Option<Stamp>],
    ) -> Result<Vec<Option<(i64, i64)>>, Failure> {
        let mut counts = vec![None; changes.len()];
        let mut open = Vec::new();
        let common = &tree.repository.common_dir;
        let rules = [tree.root.join(".gitattributes"), common.join("info/attributes"), common.join("config")]
            .map(|file| std::fs::metadata(file).ok().as_ref().map(stamp));
        for (at, (change, stamp)) in changes.iter().zip(stamps).enumerate().take(COUNTED) {
            if change.meta.as_ref().is_some_and(|meta| meta.contains_key(NOT_COMPARED)) {
                continue;
            }
            let text = |mode: u32| mode & 0o170_000 == 0o100_000;
            let before = change.before.as_ref().map(|(_, object)| object);
            let (path, key) = match &change.after {
                Some((path, After::File(mode))) if text(*mode) => match stamp {
                    Some(stamp) if stamp.0 <= lines::LARGEST => (path, *stamp),
                    _ => continue,
                },
                Some((path, After::Object(object))) if text(object.mode) => (path, (0, 0, 0)),
                None => match &change.before {
                    Some((path, _)) => (path, (0, 0, 0)),
                    None => continue,
                },
                _ => continue,
            };
            if before.is_some_and(|object| !text(object.mode)) {
                continue;
            }
            let after = match &change.after {
                Some((_, After::Object(object))) => object.id.as_str(),
                _ => "",
            };
            let id = before.map(|object| format!("{}{after}", object.id)).or_else(|| Some(after.to_owned()));
            let key = (id, tree.root.join(path), key, rules);
            match self.counts.lock().get(&key) {
                Some(known) => counts[at] = *known,
                None => open.push((at, key)),
            }
        }
        if open.is_empty() {
            return Ok(counts);
        }
        let mut ids = Vec::new();
        for (at, _) in &open {
            ids.extend(changes[*at].before.as_ref().map(|(_, object)| object.id.clone()));
            if let Some((_, After::Object(object))) = &changes[*at].after {
                ids.push(object.id.clone());
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let paths = open.iter().filter_map(|(at, _)| {
            let Change { before, after, .. } = &changes[*at];
            let after = after.as_ref().map(|(path, _)| path.as_path());
            after.or_else(|| before.as_ref().map(|(path, _)| path.as_path()))
        });
        let (known, comparisons) =
            futures::try_join!(objects(tree, &ids, lines::LARGEST), comparisons(&tree.root, paths))?;
        // What each is compared with: an object, a file, or nothing.
        let work: Vec<_> = open
            .into_iter()
            .map(|(at, key)| {
                let before = changes[at].before.as_ref().map(|(_, object)| object.id.clone());
                let after = match &changes[at].after {
                    Some((_, After::Object(object))) => Some(Err(object.id.clone())),
                    Some((path, _)) => Some(Ok(tree.root.join(path))),
                    None => None,
                };
                let path = key.1.strip_prefix(&tree.root).unwrap_or(&key.1);
                let comparison = comparisons.get(path).copied().unwrap_or_default();
                (at, key, before, after, comparison)
            })
            .collect();
        let compared = tokio::task::spawn_blocking(move || {
            let content = |id: &String| known.get(id).cloned();
            let compare =
                |before: Option<String>, after: Option<Result<PathBuf, String>>, comparison: Comparison| {
                    if !comparison.has_lines() {
                        return None;
                    }
                    let before = before.as_ref().map_or(Some(Vec::new()), content)?;
                    let after = match after {
                        Some(Ok(path)) => comparison.stored(std::fs::read(path).ok()?, &before),
                        Some(Err(id)) => content(&id)?,
                        None => Vec::new(),
                    };
                    // A pointer of Git LFS is not compared with the file.
                    if before.starts_with(LFS) != after.starts_with(LFS)
                        && !before.is_empty()
                        && !after.is_empty()
                    {
                        return None;
                    }
                    lines::count(&before, &after)
                };
            work.into_iter()
                .map(|(at, key, before, after, comparison)| (at, key, compare(before, after, comparison)))
                .collect::<Vec<_>>()
        });
        let compared = compared.await.unwrap_or_default();
        let mut remembered = self.counts.lock();
        if remembered.len() > REMEMBERED {
            remembered.clear();
        }
        for (at, key, lines) in compared {
            counts[at] = lines;
            remembered.insert(key, lines);
        }
        drop(remembered);
        Ok(counts)
    }
}

/// Whether a directory looks as if it were in a repository.
fn is_in_repository(directory: &str) -> bool {
    Path::new(directory).ancestors().any(|above| above.join(".git").exists())
}

/// The number of files and lines of a changeset.
pub(crate) fn summed(files: &[ChangesetFile]) -> ChangesSummary {
    let lines = |side: fn(&FileEditDiffStats) -> Option<i64>| {
        files.iter().filter_map(|file| side(file.edit.diff.as_ref()?)).sum::<i64>()
    };
    ChangesSummary {
        files: i64::try_from(files.len()).ok(),
        additions: Some(lines(|diff| diff.added)),
        deletions: Some(lines(|diff| diff.removed)),
    }
}

/// A row of a status as a change; `None` for what differs only between the index and the tree.
fn uncommitted(row: &Row) -> Option<Change> {
    let before =
        row.before.clone().map(|object| (row.origin.clone().unwrap_or_else(|| row.path.clone()), object));
    // A copy has no former place.
    let before = before.filter(|_| !row.is_copy());
    let after = (!row.is_deleted()).then(|| {
        let after = if row.submodule { After::Submodule } else { After::File(row.mode) };
        (row.path.clone(), after)
    });
    if before.is_none() && after.is_none() {
        return None;
    }
    let mut meta = JsonObject::new();
    let mut letter = |key: &str, letter: char| {
        if letter != '.' {
            meta.insert(format!("ostler.{key}"), Value::String(letter.to_string()));
        }
    };
    match row.conflict {
        true => letter("conflict", row.unstaged),
        false => {
            if row.staged != '?' {
                letter("staged", row.staged);
            }
            // Whether it changed is not known.
            if row.filter.is_none() || row.unstaged != 'M' {
                letter("unstaged", row.unstaged);
            }
        }
    }
    Some(Change { before, after, meta: Some(meta) })
}

fn stamp(found: &std::fs::Metadata) -> Stamp {
    (found.size(), found.mtime(), found.mtime_nsec())
}

/// A path as a `file:` URI.
pub(crate) fn file_uri(path: &Path) -> String {
    url::Url::from_file_path(path).map_or_else(|()| format!("file://{}", path.display()), String::from)
}

/// The content that stands for a submodule, as git shows it.
fn commit_text(path: &Path, commit: &str) -> String {
    inline(&file_uri(path), &format!("Subproject commit {commit}\n"))
}

/// The commit that is checked out in a submodule.
fn submodule_commit(path: &Path) -> Option<String> {
    let git = path.join(".git");
    let folder = match std::fs::read_to_string(&git) {
        Ok(text) => path.join(text.trim().strip_prefix("gitdir: ")?),
        Err(_) => git,
    };
    let head = std::fs::read_to_string(folder.join("HEAD")).ok()?;
    match head.trim().strip_prefix("ref: ") {
        Some(name) => Some(std::fs::read_to_string(folder.join(name)).ok()?.trim().to_owned()),
        None => Some(head.trim().to_owned()),
    }
}
