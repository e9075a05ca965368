//! The operations of changesets.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::points::ChangesOf;
use ostler_contract::wire::commands::{ChangesetOperationTarget, InvokeChangesetOperationResult};
use ostler_contract::wire::common::StringOrMarkdown;
use ostler_contract::wire::state::{ChangesetOperation, ChangesetOperationScope, ChangesetOperationStatus};
use ostler_contract::{JsonObject, RpcError, Thrown, Value, json};

use crate::changes::Source;
use crate::commits::{Part, commit, refresh};
use crate::program::Git;
use crate::restore::{Restoration, submodule};
use crate::session_trees::SessionTree;
use crate::snapshots::between;
use crate::status::{Row, SUBMODULE};
use crate::tree::Tree;

/// The key of an operation's `_meta` with the message of a commit.
const COMMIT: &str = "ostler.commit";
/// The operation that commits and pushes, and after which the host creates a pull request.
const CREATE: &str = "create-pr";
/// The default title of a commit.
pub(crate) const TITLE: &str = "Changes of an agent session";

fn operation(id: &str, label: &str, icon: &str, scopes: Vec<ChangesetOperationScope>) -> ChangesetOperation {
    ChangesetOperation {
        id: id.to_owned(),
        label: label.to_owned(),
        description: None,
        scopes,
        confirmation: None,
        icon: Some(icon.to_owned()),
        group: None,
        status: ChangesetOperationStatus::Idle,
        error: None,
    }
}

fn confirmed(mut operation: ChangesetOperation, question: String) -> ChangesetOperation {
    operation.confirmation = Some(StringOrMarkdown::Plain(question));
    operation
}

fn unless(mut operation: ChangesetOperation, disabled: bool) -> ChangesetOperation {
    if disabled {
        operation.status = ChangesetOperationStatus::Disabled;
    }
    operation
}

pub(crate) fn title(of: &ChangesOf) -> &str {
    of.title.as_deref().map(str::trim).filter(|title| !title.is_empty()).unwrap_or(TITLE)
}

pub(crate) fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// The operations of uncommitted changes.
pub(crate) fn of_uncommitted(
    of: &ChangesOf,
    rows: &[Row],
    is_cut: bool,
    fresh: bool,
) -> Vec<ChangesetOperation> {
    use ChangesetOperationScope::{Changeset, Resource};
    let staged = rows.iter().filter(|row| row.is_staged()).count();
    let conflict = rows.iter().any(|row| row.conflict);
    let count = if staged > 0 { staged } else { rows.len() };
    // Of more, the rest is not listed, but committed.
    let least = if is_cut { "at least " } else { "" };
    let question = format!("Commit {least}{} as \"{}\"?", files(count), title(of));
    let mut operations = vec![
        unless(
            confirmed(operation("commit", "Commit", "check", vec![Changeset]), question),
            rows.is_empty() || conflict,
        ),
        unless(
            confirmed(
                operation("discard", "Discard Changes", "discard", vec![Resource]),
                "Discard the changes of this file? They cannot be restored.".to_owned(),
            ),
            rows.is_empty(),
        ),
        unless(operation("stage", "Stage Changes", "add", vec![Changeset, Resource]), rows.is_empty()),
        unless(operation("unstage", "Unstage Changes", "remove", vec![Changeset, Resource]), staged == 0),
        operation("prepare-pull-request", "Prepare Pull Request", "git-pull-request", vec![Changeset]),
        create_operation(conflict),
    ];
    if fresh {
        operations.push(operation("checkout", "Checkout", "git-branch", vec![Changeset]));
    }
    operations
}

/// The operations of a session's changes.
pub(crate) fn of_session() -> Vec<ChangesetOperation> {
    use ChangesetOperationScope::{Changeset, Resource};
    vec![
        confirmed(
            operation("revert", "Revert", "discard", vec![Resource]),
            "Restore this file as the session found it? Later changes of it are lost.".to_owned(),
        ),
        operation("prepare-pull-request", "Prepare Pull Request", "git-pull-request", vec![Changeset]),
        create_operation(false),
    ]
}

fn create_operation(disabled: bool) -> ChangesetOperation {
    let create = operation(
        CREATE,
        "Create Pull Request",
        "git-pull-request",
        vec![ChangesetOperationScope::Changeset],
    );
    let question = "Commit what is left, push the branch and create a pull request?".to_owned();
    unless(confirmed(create, question), disabled)
}

fn done(message: String) -> InvokeChangesetOperationResult {
    InvokeChangesetOperationResult { message: Some(StringOrMarkdown::Plain(message)), follow_up: None }
}

pub(crate) fn refused(why: impl Into<String>) -> Thrown {
    RpcError::invalid_params(why).into()
}

/// Runs an operation.
pub(crate) async fn run(
    source: &Source,
    of: &ChangesOf,
    scope: &str,
    operation: &str,
    target: Option<ChangesetOperationTarget>,
    meta: &JsonObject,
) -> Result<InvokeChangesetOperationResult, Thrown> {
    let places = source.trees.of_session(of).await?;
    if places.is_empty() {
        return Err(refused(format!("{} is not in a git working tree", of.session)));
    }
    let on = |place| Operation { source, place, tree: &place.tree, of };
    if target.is_none() && matches!(operation, "commit" | "stage" | "unstage") {
        return everywhere(places.iter().map(on).collect(), operation, meta).await.map(done);
    }
    let (place, path) = match &target {
        Some(target) => {
            let (place, path) = placed(&places, target)?;
            (place, Some(path))
        }
        None => (&places[0], None),
    };
    let on = on(place);
    let _writing = place.tree.writing.lock().await;
    let path = || path.as_deref().ok_or_else(|| refused("the operation needs a file as its target"));
    match operation {
        "discard" => on.discard(path()?).await.map(done),
        "stage" => on.stage(&[path()?.to_owned()]).await.map(done),
        "unstage" => on.unstage(&[path()?.to_owned()]).await.map(done),
        "revert" => on.revert(path()?).await.map(done),
        "checkout" => on.checkout(meta).await.map(done),
        "prepare-pull-request" => on.prepare().await,
        CREATE => on.publish(meta).await,
        other => Err(refused(format!("{scope} has no operation {other}"))),
    }
}

/// Runs an operation in each tree of a session that has changes.
async fn everywhere(on: Vec<Operation<'_>>, operation: &str, meta: &JsonObject) -> Result<String, Thrown> {
    let mut changed = Vec::new();
    for on in &on {
        if !on.rows(&on.place.prefixes).await?.is_empty() {
            changed.push(on);
        }
    }
    if operation == "commit" {
        // What is staged is committed, and nothing else, also where it is staged in one of the trees only.
        let mut staged = Vec::new();
        for on in &changed {
            staged.push(on.own_rows().await?.iter().any(Row::is_staged));
        }
        if staged.contains(&true) {
            let mut staged = staged.into_iter();
            changed.retain(|_| staged.next().unwrap_or_default());
        }
    }
    // The first one reports that nothing has changed.
    if changed.is_empty() {
        changed.extend(on.first());
    }
    let mut messages: Vec<String> = Vec::new();
    for on in changed {
        let _writing = on.tree.writing.lock().await;
        let outcome = match operation {
            "commit" => {
                let message =
                    meta.get(COMMIT).and_then(|commit| commit.get("message")).and_then(Value::as_str);
                on.commit(message.unwrap_or(title(on.of))).await
            }
            "stage" => on.stage(&on.place.prefixes).await,
            _ => on.unstage(&on.place.prefixes).await,
        };
        match outcome {
            Ok(message) => messages.push(message),
            Err(why) if messages.is_empty() => return Err(why),
            Err(why) => {
                let root = on.tree.root.display();
                return Err(refused(format!("{}, but not in {root}: {}", messages.join("; "), why.message)));
            }
        }
    }
    Ok(messages.join("; "))
}

/// The tree and the path, from its top, of a target. It has to be in a directory of the session.
fn placed<'a>(
    places: &'a [SessionTree],
    target: &ChangesetOperationTarget,
) -> Result<(&'a SessionTree, PathBuf), Thrown> {
    let ChangesetOperationTarget::Resource { resource, .. } = target else {
        return Err(refused("the operation needs a file as its target"));
    };
    let path = url::Url::parse(resource).ok().filter(|url| url.scheme() == "file");
    let path = path.and_then(|url| url.to_file_path().ok());
    let found = path.and_then(|path| {
        let inside = places.iter().filter_map(|place| Some((place, below(place, &path)?)));
        // A repository can be in a folder of another one.
        inside.max_by_key(|(place, _)| place.tree.root.as_os_str().len())
    });
    found.ok_or_else(|| {
        let all = places.iter().flat_map(|place| &place.directories);
        let all: Vec<String> = all.map(|directory| directory.display().to_string()).collect();
        refused(format!("{resource} is not in {}", all.join(" or ")))
    })
}

/// Returns the path of a file in a tree; `None` outside the session's directories.
fn below(place: &SessionTree, path: &Path) -> Option<PathBuf> {
    let from_top = path.strip_prefix(&place.tree.root).map(Path::to_owned).ok();
    let below = from_top.or_else(|| {
        // The session can know the tree by another path.
        let mut known = place.directories.iter().zip(&place.prefixes);
        known.find_map(|(directory, prefix)| Some(prefix.join(path.strip_prefix(directory).ok()?)))
    })?;
    let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let git = below.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"));
    (plain && !git && place.holds(&below)).then_some(below)
}

/// An operation on one tree of a session.
pub(crate) struct Operation<'a> {
    pub source: &'a Source,
    pub place: &'a SessionTree,
    pub tree: &'a Arc<Tree>,
    pub of: &'a ChangesOf,
}

impl Operation<'_> {
    pub(crate) fn read(&self) -> Git {
        Git::read(&self.tree.root)
    }

    pub(crate) fn write(&self) -> Git {
        Git::write(&self.tree.root)
    }

    /// Paths as arguments; the top is `.`.
    pub(crate) fn spelled(paths: &[PathBuf]) -> Vec<PathBuf> {
        let spelled = |path: &PathBuf| if path.as_os_str().is_empty() { ".".into() } else { path.clone() };
        paths.iter().map(spelled).collect()
    }

    /// The rows of files and of what is below folders.
    async fn rows(&self, paths: &[PathBuf]) -> Result<Vec<Row>, Thrown> {
        let status = self.tree.status().await?;
        let wanted = |row: &&Row| paths.iter().any(|path| row.concerns(path));
        Ok(status.rows.iter().filter(wanted).cloned().collect())
    }

    /// The rows that the session's changesets show.
    pub(crate) async fn own_rows(&self) -> Result<Vec<Row>, Thrown> {
        let status = self.tree.status().await?;
        Ok(self.place.rows(&status).into_iter().cloned().collect())
    }

    pub(crate) async fn changed(&self, paths: &[PathBuf]) -> Result<Vec<Row>, Thrown> {
        let rows = self.rows(paths).await?;
        match rows.is_empty() {
            true => {
                let full = paths.iter().map(|path| self.tree.root.join(path).display().to_string());
                let full: Vec<String> = full.map(|path| path.trim_end_matches('/').to_owned()).collect();
                Err(refused(format!("{} has no uncommitted changes", full.join(" or "))))
            }
            false => Ok(rows),
        }
    }

    async fn commit(&self, message: &str) -> Result<String, Thrown> {
        if message.trim().is_empty() {
            return Err(refused("the message of the commit is empty"));
        }
        self.changed(&self.place.prefixes).await?;
        let rows = self.own_rows().await?;
        if let Some(row) = rows.iter().find(|row| row.conflict) {
            return Err(refused(format!("{} has a conflict; resolve and stage it", row.path.display())));
        }
        let part = if rows.iter().any(Row::is_staged) { Part::Staged } else { Part::All };
        commit(self.place, part, message).await?;
        let commit = self.read().args(["log", "-1", "--no-show-signature", "--format=%h %s"]).text().await?;
        Ok(format!("Committed {commit}"))
    }

    async fn discard(&self, path: &Path) -> Result<String, Thrown> {
        let rows = self.changed(&[path.to_owned()]).await?;
        let named = |row: &&Row| row.path == path || row.origin.as_deref() == Some(path);
        if !rows.iter().any(|row| named(&row)) {
            return Err(refused(format!("{} is not a changed file", self.tree.root.join(path).display())));
        }
        let mut known = Vec::new();
        let mut new = Vec::new();
        for row in rows.iter().filter(named) {
            let full = self.tree.root.join(&row.path);
            if row.submodule {
                return Err(refused(submodule(&full)));
            }
            if row.is_untracked() && tokio::fs::symlink_metadata(&full).await.is_ok_and(|it| it.is_dir()) {
                return Err(refused(format!(
                    "{} is a separate repository, which git does not delete; delete the folder",
                    full.display()
                )));
            }
            // A copy leaves its origin as it is.
            let moved = row.origin.as_ref().filter(|_| !row.is_copy());
            match (&row.before, moved) {
                (_, Some(origin)) => {
                    known.push(origin.clone());
                    new.push(row.path.clone());
                }
                (Some(_), None) if row.origin.is_none() => known.push(row.path.clone()),
                _ => new.push(row.path.clone()),
            }
        }
        let restoration = Restoration::prepare(self.tree, "HEAD", &known, &new).await?;
        let tracked = rows.iter().any(|row| new.contains(&row.path) && !row.is_untracked());
        // All or nothing of the index is changed: both ends of a rename.
        let update = match restoration.sources.first() {
            None if !tracked => None,
            None => {
                let remove = self.write().args(["update-index", "--force-remove", "-z", "--stdin"]);
                Some(remove.paths(new.iter().map(PathBuf::as_path)))
            }
            Some((_, object)) => {
                let zero = "0".repeat(object.id.len());
                let gone = new.iter().map(|path| (format!("0 {zero}\t"), path));
                let known = restoration.sources.iter();
                let known = known.map(|(path, object)| (format!("{:o} {}\t", object.mode, object.id), path));
                let mut entries = Vec::new();
                for (entry, path) in gone.chain(known) {
                    entries.extend_from_slice(entry.as_bytes());
                    entries.extend_from_slice(path.as_os_str().as_bytes());
                    entries.push(0);
                }
                Some(self.write().args(["update-index", "-z", "--index-info"]).input(entries))
            }
        };
        restoration
            .apply(async {
                match update {
                    Some(update) => Ok(update.run().await.map(drop)?),
                    None => Ok(()),
                }
            })
            .await?;
        refresh(self.tree).await;
        Ok(format!("Discarded the changes of {}", path.display()))
    }

    /// Restores a file as the session found it.
    async fn revert(&self, path: &Path) -> Result<String, Thrown> {
        let base = self.source.snapshots.base(self.tree, &self.of.session).await?;
        let base = base.ok_or_else(|| refused("no turn of the session has changed anything yet"))?;
        let now = self.source.snapshots.now(self.tree).await?;
        let changes = between(self.place, &base, &now, true).await?;
        let change = changes.into_iter().find(|change| {
            let after = change.after.as_ref().map(|(after, _)| after.as_path());
            after.or(change.before.as_ref().map(|(before, _)| before.as_path())) == Some(path)
        });
        let full = self.tree.root.join(path);
        let change = change.ok_or_else(|| refused(format!("{} is not a changed file", full.display())))?;
        let is_folder = tokio::fs::symlink_metadata(&full).await.is_ok_and(|found| found.is_dir());
        if change.before.as_ref().is_some_and(|(_, object)| object.mode == SUBMODULE)
            || change.after.is_some() && is_folder
        {
            return Err(refused(submodule(&full)));
        }
        let known: Vec<PathBuf> = change.before.into_iter().map(|(before, _)| before).collect();
        let new: Vec<PathBuf> =
            change.after.into_iter().map(|(after, _)| after).filter(|after| !known.contains(after)).collect();
        Restoration::prepare(self.tree, &base, &known, &new).await?.apply(async { Ok(()) }).await?;
        Ok(match known.first() {
            Some(known) => format!("Restored {}", known.display()),
            None => format!("Removed {}", path.display()),
        })
    }

    async fn checkout(&self, meta: &JsonObject) -> Result<String, Thrown> {
        let text = |key: &str| meta.get(key).and_then(Value::as_str);
        let named = text("treeish").filter(|named| !named.is_empty());
        let named = named.ok_or_else(|| refused("_meta.treeish must name a branch or commit"))?;
        if named.starts_with('-') {
            return Err(refused(format!("{named} is not a branch or commit")));
        }
        if self.source.snapshots.base(self.tree, &self.of.session).await?.is_some() {
            return Err(refused("a session that has had a turn stays on its branch; create another session"));
        }
        let changed = self.tree.status().await?.rows.len();
        if changed > 0 {
            match text("preCheckoutAction") {
                Some("stash") => {
                    let message = format!("Before the checkout of {named}");
                    let stash = self.write().args([
                        "stash",
                        "push",
                        "--quiet",
                        "--include-untracked",
                        "-m",
                        &message,
                    ]);
                    stash.run().await?;
                }
                Some("commit") => {
                    let all = SessionTree {
                        tree: self.tree.clone(),
                        directories: vec![self.tree.root.clone()],
                        prefixes: vec![PathBuf::new()],
                    };
                    commit(&all, Part::All, title(self.of)).await?;
                }
                Some(other) => {
                    return Err(refused(format!(
                        "_meta.preCheckoutAction must be stash or commit, not {other}"
                    )));
                }
                None => {
                    let why =
                        format!("{} has uncommitted changes; stash or commit them", self.tree.root.display());
                    let data = json!({ "reason": "dirtyWorkingTree" });
                    return Err(RpcError::invalid_params(why).with_data(data).into());
                }
            }
        }
        self.write().args(["checkout", "--quiet", named, "--"]).run().await?;
        Ok(format!("Checked out {named}"))
    }
}
