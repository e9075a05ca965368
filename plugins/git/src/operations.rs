//! The operations of changesets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::points::ChangesOf;
use ostler_contract::wire::commands::{
    ChangesetOperationFollowUp, ChangesetOperationTarget, InvokeChangesetOperationResult,
};
use ostler_contract::wire::common::StringOrMarkdown;
use ostler_contract::wire::state::{
    ChangesetOperation, ChangesetOperationScope, ChangesetOperationStatus, ContentRef,
};
use ostler_contract::{JsonObject, RpcError, Thrown, Value, json};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::changes::{Source, file_uri};
use crate::facts::{BASE, base_branch};
use crate::program::Git;
use crate::session_trees::SessionTree;
use crate::status::Row;
use crate::tree::Tree;

/// The key of an operation's `_meta` with the message of a commit.
const COMMIT: &str = "ostler.commit";
/// The operation that commits and pushes, and after which the host creates a pull request.
const CREATE: &str = "create-pr";
/// The key of an operation's `_meta` with the form of a pull request.
const PULL_REQUEST: &str = "vscode.pullRequest";
/// The default title of a commit.
const TITLE: &str = "Changes of an agent session";
/// The maximum number of commits in the text of a pull request.
const COMMITS: usize = 50;

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

fn title(of: &ChangesOf) -> &str {
    of.title.as_deref().map(str::trim).filter(|title| !title.is_empty()).unwrap_or(TITLE)
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// The operations of uncommitted changes.
pub(crate) fn of_uncommitted(of: &ChangesOf, rows: &[Row], fresh: bool) -> Vec<ChangesetOperation> {
    use ChangesetOperationScope::{Changeset, Resource};
    let staged = rows.iter().filter(|row| row.is_staged()).count();
    let conflict = rows.iter().any(|row| row.conflict);
    let count = if staged > 0 { staged } else { rows.len() };
    let question = format!("Commit {} as \"{}\"?", files(count), title(of));
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

/// Returns whether a row is a file, or below a folder.
fn concerns(row: &Row, path: &Path) -> bool {
    row.path.starts_with(path) || row.origin.as_ref().is_some_and(|origin| origin.starts_with(path))
}

fn done(message: String) -> InvokeChangesetOperationResult {
    InvokeChangesetOperationResult { message: Some(StringOrMarkdown::Plain(message)), follow_up: None }
}

fn refused(why: impl Into<String>) -> Thrown {
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
        return Err(refused(format!("{} works in no git working tree", of.session)));
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

struct Operation<'a> {
    source: &'a Source,
    place: &'a SessionTree,
    tree: &'a Arc<Tree>,
    of: &'a ChangesOf,
}

impl Operation<'_> {
    fn read(&self) -> Git {
        Git::read(&self.tree.root)
    }

    fn write(&self) -> Git {
        Git::write(&self.tree.root)
    }

    /// Paths as arguments; the top is `.`.
    fn spelled(paths: &[PathBuf]) -> Vec<PathBuf> {
        let spelled = |path: &PathBuf| if path.as_os_str().is_empty() { ".".into() } else { path.clone() };
        paths.iter().map(spelled).collect()
    }

    /// The rows of files and of what is below folders.
    async fn rows(&self, paths: &[PathBuf]) -> Result<Vec<Row>, Thrown> {
        let status = self.tree.status().await?;
        let wanted = |row: &&Row| paths.iter().any(|path| concerns(row, path));
        Ok(status.rows.iter().filter(wanted).cloned().collect())
    }

    async fn changed(&self, paths: &[PathBuf]) -> Result<Vec<Row>, Thrown> {
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
        let rows = self.changed(&self.place.prefixes).await?;
        if let Some(row) = rows.iter().find(|row| row.conflict) {
            return Err(refused(format!("{} has a conflict; resolve and stage it", row.path.display())));
        }
        if !self.tree.status().await?.rows.iter().any(Row::is_staged) {
            self.add(&rows, &self.place.prefixes).await?;
        }
        self.write().args(["commit", "--quiet", "--file=-"]).input(message.as_bytes().to_vec()).run().await?;
        let commit = self.read().args(["log", "-1", "--no-show-signature", "--format=%h %s"]).text().await?;
        Ok(format!("Committed {commit}"))
    }

    async fn discard(&self, path: &Path) -> Result<String, Thrown> {
        let rows = self.changed(&[path.to_owned()]).await?;
        if !rows.iter().any(|row| row.path == path || row.origin.as_deref() == Some(path)) {
            return Err(refused(format!("{} is not a changed file", self.tree.root.join(path).display())));
        }
        let mut known = Vec::new();
        let mut new = Vec::new();
        for row in &rows {
            match (&row.before, &row.origin) {
                (_, Some(origin)) => {
                    known.push(origin.as_path());
                    new.push(row.path.as_path());
                }
                (Some(_), None) => known.push(&row.path),
                (None, None) => new.push(&row.path),
            }
        }
        if !new.is_empty() {
            // First removed from the index, after which git does not track it.
            let gone = self.write().args(["rm", "--cached", "--quiet", "--force", "--ignore-unmatch", "--"]);
            gone.args(&new).run().await?;
            self.write().args(["clean", "--quiet", "--force", "-d", "--"]).args(&new).run().await?;
        }
        if !known.is_empty() {
            let restore = self.write().args(["restore", "--source=HEAD", "--staged", "--worktree", "--"]);
            restore.args(&known).run().await?;
        }
        Ok(format!("Discarded the changes of {}", path.display()))
    }

    /// Stages the paths that contain rows, because git rejects a path without known files.
    async fn add(&self, rows: &[Row], paths: &[PathBuf]) -> Result<(), Thrown> {
        let changed = paths.iter().filter(|path| rows.iter().any(|row| concerns(row, path)));
        let changed = Self::spelled(&changed.cloned().collect::<Vec<_>>());
        self.write().args(["add", "--all", "--"]).args(&changed).run().await?;
        Ok(())
    }

    async fn stage(&self, paths: &[PathBuf]) -> Result<String, Thrown> {
        let rows = self.changed(paths).await?;
        self.add(&rows, paths).await?;
        Ok(format!("Staged {}", files(rows.len())))
    }

    async fn unstage(&self, named: &[PathBuf]) -> Result<String, Thrown> {
        let rows = self.changed(named).await?;
        let mut paths = named.to_vec();
        // Both ends of a rename are one change.
        paths.extend(rows.iter().flat_map(|row| [Some(row.path.clone()), row.origin.clone()]).flatten());
        paths.sort_unstable();
        paths.dedup();
        if named.iter().any(|path| path.as_os_str().is_empty()) {
            paths = vec![PathBuf::new()];
        }
        let paths = Self::spelled(&paths);
        let unstage = match self.tree.repository.head().await? {
            Some(_) => self.write().args(["restore", "--staged", "--"]),
            None => self.write().args(["rm", "--cached", "--quiet", "-r", "--ignore-unmatch", "--"]),
        };
        unstage.args(&paths).run().await?;
        Ok(format!("Unstaged {}", files(rows.iter().filter(|row| row.is_staged()).count())))
    }

    /// Restores a file as the session found it.
    async fn revert(&self, path: &Path) -> Result<String, Thrown> {
        let base = self.source.snapshots.base(self.tree, &self.of.session).await?;
        let base = base.ok_or_else(|| refused("no turn of the session has changed anything yet"))?;
        let found = self.read().args(["ls-tree", "--full-tree", "-z", &base, "--"]).arg(path).text().await?;
        if found.is_empty() {
            let full = self.tree.root.join(path);
            let is_file = tokio::fs::symlink_metadata(&full).await.is_ok_and(|found| !found.is_dir());
            if !is_file {
                return Err(refused(format!("{} is not a changed file", full.display())));
            }
            tokio::fs::remove_file(&full)
                .await
                .map_err(|why| Thrown::new(format_args!("cannot remove {}: {why}", full.display())))?;
            return Ok(format!("Removed {}", path.display()));
        }
        let restore =
            self.write().args(["restore", &format!("--source={base}"), "--worktree", "--"]).arg(path);
        restore.run().await?;
        Ok(format!("Restored {}", path.display()))
    }

    async fn checkout(&self, meta: &JsonObject) -> Result<String, Thrown> {
        let text = |key: &str| meta.get(key).and_then(Value::as_str);
        let named = text("treeish").filter(|named| !named.is_empty());
        let named = named.ok_or_else(|| refused("_meta.treeish has to name a branch or commit"))?;
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
                    self.write().args(["add", "--all"]).run().await?;
                    let message = title(self.of).as_bytes().to_vec();
                    self.write().args(["commit", "--quiet", "--file=-"]).input(message).run().await?;
                }
                Some(other) => {
                    return Err(refused(format!(
                        "_meta.preCheckoutAction has to be stash or commit, not {other}"
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

    /// Commits the rest and pushes the branch, a new one if the work is on the base. Returns the form of the pull
    /// request, with which the host creates it.
    async fn publish(&self, meta: &JsonObject) -> Result<InvokeChangesetOperationResult, Thrown> {
        let status = self.tree.status().await?;
        if let Some(row) = status.rows.iter().find(|row| row.conflict) {
            return Err(refused(format!("{} has a conflict; resolve and stage it", row.path.display())));
        }
        let branch = &status.branch;
        let remote = match branch.upstream.as_deref().and_then(|upstream| upstream.split_once('/')) {
            Some((remote, _)) => remote.to_owned(),
            None => {
                let remotes = self.read().args(["remote"]).text().await?;
                let remotes: Vec<&str> = remotes.lines().collect();
                let usual = remotes.iter().find(|remote| **remote == "origin").or(remotes.first());
                let none = || {
                    refused(format!(
                        "{} has no remote to push to; add one with git remote add origin <url>",
                        self.tree.root.display()
                    ))
                };
                (*usual.ok_or_else(none)?).to_owned()
            }
        };
        let form = meta.get(PULL_REQUEST);
        let asked = form.and_then(|form| form.get("title")).and_then(Value::as_str).map(str::trim);
        let named = asked.filter(|title| !title.is_empty()).unwrap_or_else(|| title(self.of));
        let base = match (&branch.name, base_branch(&self.tree.root, branch).await?) {
            (Some(_), Some(base)) => base,
            // On the base itself or without a branch, the work gets a separate branch.
            (name, base) => {
                let own = self.branch_for(named).await?;
                self.write().args(["switch", "--quiet", "--create", &own]).run().await?;
                match name.clone().or(base) {
                    Some(base) => {
                        let key = format!("branch.{own}.{BASE}");
                        self.write().args(["config", &key, &base]).run().await?;
                        base
                    }
                    None => String::new(),
                }
            }
        };
        let rows = self.rows(&self.place.prefixes).await?;
        if !rows.is_empty() {
            self.add(&rows, &self.place.prefixes).await?;
            let message = named.as_bytes().to_vec();
            self.write().args(["commit", "--quiet", "--file=-"]).input(message).run().await?;
        }
        if !base.is_empty() {
            let known = format!("refs/remotes/{remote}/{base}");
            let known = self.read().args(["rev-parse", "--verify", "--quiet", &known]).maybe().await?;
            let range = format!("{}..HEAD", known.as_deref().unwrap_or(&base));
            let ahead =
                self.read().args(["rev-list", "--count", "--end-of-options", &range, "--"]).text().await?;
            if ahead == "0" {
                return Err(refused(format!("there are no commits that {base} does not have")));
            }
        }
        let current = self.read().args(["symbolic-ref", "--short", "HEAD"]).text().await?;
        let to = format!("HEAD:refs/heads/{current}");
        self.write().args(["push", "--quiet", "--set-upstream", &remote, &to]).run().await?;
        self.prepare().await
    }

    /// Returns an unused name of a branch.
    async fn branch_for(&self, title: &str) -> Result<String, Thrown> {
        let words: String = title
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(40)
            .collect();
        let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
        let words = if words.is_empty() { "changes".to_owned() } else { words.join("-") };
        let taken =
            self.read().args(["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes"]);
        let taken = taken.text().await?;
        let is_free = |name: &String| {
            !taken
                .lines()
                .any(|other| other == name || other.split_once('/').is_some_and(|(_, short)| short == name))
        };
        let mut names = (1..).map(|number| match number {
            1 => format!("agents/{words}"),
            number => format!("agents/{words}-{number}"),
        });
        names.find(is_free).ok_or_else(|| refused("every name of a branch is taken"))
    }

    /// The title, text and branches of a pull request for the branch.
    async fn prepare(&self) -> Result<InvokeChangesetOperationResult, Thrown> {
        let status = self.tree.status().await?;
        let branch = status.branch.name.clone();
        let branch =
            branch.ok_or_else(|| refused("no branch is checked out; create one for the pull request"))?;
        let base = base_branch(&self.tree.root, &status.branch).await?;
        let range = match &base {
            Some(base) => {
                let remote = format!("refs/remotes/origin/{base}");
                let known = self.read().args(["rev-parse", "--verify", "--quiet", &remote]).maybe().await?;
                format!("{}..HEAD", if known.is_some() { &remote } else { base })
            }
            None => "HEAD".to_owned(),
        };
        let log = ["log", "--no-show-signature", "--reverse", "--format=%s", "-n"];
        let log = self.read().args(log).arg(COMMITS.to_string()).args(["--end-of-options", &range, "--"]);
        let log = if base.is_some() { log.text().await.unwrap_or_default() } else { String::new() };
        let commits: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
        let title = match (&commits[..], self.of.title.as_deref().map(str::trim)) {
            (_, Some(title)) if !title.is_empty() => title,
            ([only], _) => only,
            _ => TITLE,
        };
        let body = commits.iter().map(|subject| format!("- {subject}\n")).collect::<String>();
        let form = json!({ "title": title, "body": body, "branch": branch, "base": base,
            "uncommittedChanges": status.rows.len(), "directory": file_uri(&self.tree.root) });
        let uri =
            format!("data:application/json,{}", utf8_percent_encode(&form.to_string(), NON_ALPHANUMERIC));
        let content = ContentRef {
            uri,
            size_hint: None,
            content_type: Some("application/json".to_owned()),
            nonce: None,
        };
        Ok(InvokeChangesetOperationResult {
            message: None,
            follow_up: Some(ChangesetOperationFollowUp { content, external: None }),
        })
    }
}
