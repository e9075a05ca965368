//! Working trees of sessions: their settings, creation and removal.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::points::{Agent, Repository, Worktree, WorktreeRequest, Worktrees};
use ostler_contract::{JsonObject, Thrown, Value, json, limit};
use ostler_engine_core::file_uris::{file_path, file_uri};
use ostler_protocol::RpcError;
use ostler_protocol::wire::commands::SessionConfigValueItem;
use ostler_protocol::wire::state::{SessionConfigPropertySchema, SessionConfigState};
use parking_lot::Mutex;

use crate::Workspace;

/// How many branches are listed initially.
const BRANCHES: usize = 20;
/// The maximum length of a tree's name.
const NAME_MAX: usize = 60;

const ISOLATION: &str = "isolation";
const BRANCH: &str = "branch";

/// A working tree that a session requests.
#[derive(Debug)]
pub struct WantedTree {
    /// The session's directory, in the repository.
    directory: String,
    request: WorktreeRequest,
}

/// A working tree that was created for a session.
#[derive(Debug)]
pub struct Isolated {
    pub worktree: Worktree,
    /// The session's directory in it, as a URI.
    pub directory: String,
}

impl Workspace {
    pub fn worktrees(&self) -> Option<&Worktrees> {
        self.core.registry()?.port::<Worktrees>()
    }

    async fn repository(&self, directory: &str) -> Option<Repository> {
        let found = self.worktrees()?.repository.within(limit::REPOSITORY, (directory.to_owned(),)).await;
        found.unwrap_or_else(|why| {
            self.core.log.warn(format_args!("cannot find the repository of {directory}: {why}"));
            None
        })
    }

    async fn branches(&self, repository: &Repository, typed: &str) -> Vec<String> {
        let Some(worktrees) = self.worktrees() else { return Vec::new() };
        let asked = worktrees.branches.within(limit::REPOSITORY, (repository.root.clone(), typed.to_owned()));
        asked.await.unwrap_or_else(|why| {
            self.core
                .log
                .warn(format_args!("the branches of {} could not be listed: {why}", repository.root));
            Vec::new()
        })
    }

    /// Adds the settings of working trees, if a directory is in a repository. Existing settings of the same names stay.
    pub async fn offer_trees(&self, config: &mut SessionConfigState, directory: Option<&str>) {
        let directory = directory.map(file_path).or_else(|| self.core.options.paths.first().cloned());
        let Some(directory) = directory.filter(|_| self.worktrees().is_some()) else { return };
        let Some(repository) = self.repository(&directory).await else { return };
        let mut branches = self.branches(&repository, "").await;
        branches.truncate(BRANCHES);
        for (key, property) in properties(&branches) {
            config.schema.properties.entry(key).or_insert(property);
        }
        if config.schema.properties.get(ISOLATION).is_some_and(is_own) {
            config.values.entry(ISOLATION).or_insert_with(|| "folder".into());
        }
    }

    /// Returns the rows for typed text of a branch; `None` if the setting is not the host's.
    pub async fn complete_branch(
        &self,
        property: &str,
        directory: Option<&str>,
        typed: &str,
    ) -> Option<Vec<SessionConfigValueItem>> {
        if property != BRANCH || self.worktrees().is_none() {
            return None;
        }
        let directory = directory.map(file_path).or_else(|| self.core.options.paths.first().cloned())?;
        let repository = self.repository(&directory).await?;
        let item =
            |name: String| SessionConfigValueItem { value: name.clone(), label: name, description: None };
        Some(self.branches(&repository, typed).await.into_iter().map(item).collect())
    }

    /// Returns the working tree that a session requests, if it does.
    pub async fn wants_tree(
        &self,
        id: &str,
        directory: Option<String>,
        agent: &Agent,
        chosen: &JsonObject,
    ) -> Result<Option<WantedTree>, RpcError> {
        let kind = match chosen.get(ISOLATION) {
            None | Some(Value::Null) => return Ok(None),
            Some(kind) => kind,
        };
        if kind == "folder" || declares(agent).await {
            return Ok(None);
        }
        if kind != "worktree" {
            return match self.worktrees() {
                Some(_) => Err(RpcError::invalid_params(format!(
                    "{ISOLATION} must be folder or worktree, not {kind}"
                ))),
                None => Ok(None),
            };
        }
        let refused =
            |why: String| RpcError::invalid_params(format!("{ISOLATION} cannot be worktree: {why}"));
        let worktrees =
            self.worktrees().ok_or_else(|| refused("this host has no working trees".to_owned()))?;
        let directory = directory.ok_or_else(|| refused("the session has no directory".to_owned()))?;
        let found = worktrees.repository.within(limit::REPOSITORY, (directory.clone(),)).await;
        let repository = found
            .map_err(|why| not_created(&directory, why))?
            .ok_or_else(|| refused(format!("{directory} is not in a repository")))?;
        let request = request(&repository, self.tree_name(id), chosen);
        Ok(Some(WantedTree { directory, request }))
    }

    /// Returns where a tree will be created; `None` if its source does not plan trees.
    pub async fn plan_tree(&self, wanted: &WantedTree) -> Result<Option<Worktree>, RpcError> {
        let Some(plan) = self.worktrees().and_then(|worktrees| worktrees.plan.as_ref()) else {
            return Ok(None);
        };
        let planned = plan.within(limit::REPOSITORY, (wanted.request.clone(),)).await;
        let mut planned = planned.map_err(|why| not_created(&wanted.directory, why))?;
        planned.repository.get_or_insert_with(|| wanted.request.repository.clone());
        Ok(Some(planned))
    }

    /// Returns where [`Workspace::make_tree`] will create a tree; `None` if its source does not plan trees.
    pub(super) async fn plan_new_tree(
        &self,
        repository: &Repository,
        name: String,
        chosen: &JsonObject,
    ) -> Result<Option<Worktree>, RpcError> {
        let request = request(repository, name, chosen);
        self.plan_tree(&WantedTree { directory: repository.root.clone(), request }).await
    }

    /// Creates a session's working tree.
    pub async fn isolate(&self, wanted: WantedTree) -> Result<Isolated, RpcError> {
        let WantedTree { directory, request } = wanted;
        let root = request.repository.clone();
        let made = self.create_tree(request).await.map_err(|why| not_created(&directory, why))?;
        let below = Path::new(&directory).strip_prefix(&root).unwrap_or(Path::new(""));
        let mut place = PathBuf::from(&made.path);
        if !below.as_os_str().is_empty() {
            place.push(below);
        }
        Ok(Isolated { worktree: made, directory: file_uri(&place.to_string_lossy()) })
    }

    /// Creates a tree of a repository.
    pub async fn make_tree(
        &self,
        repository: &Repository,
        name: String,
        chosen: &JsonObject,
    ) -> Result<Worktree, Thrown> {
        self.create_tree(request(repository, name, chosen)).await
    }

    async fn create_tree(&self, request: WorktreeRequest) -> Result<Worktree, Thrown> {
        let worktrees = self.worktrees().ok_or_else(|| Thrown::new("this host has no working trees"))?;
        let repository = request.repository.clone();
        let mut made = worktrees.create.within(limit::WORKTREE, (request,)).await?;
        made.repository.get_or_insert(repository);
        Ok(made)
    }

    /// Returns whether removing a tree loses nothing; `false` if that is unknown.
    pub async fn is_clean(&self, tree: &Worktree) -> bool {
        let Some(worktrees) = self.worktrees() else { return false };
        let dirty = worktrees.dirty.within(limit::REPOSITORY, (tree.path.clone(),)).await;
        dirty.is_ok_and(|dirty| !dirty)
    }

    /// Returns whether a path is on the disk; `None` without access to a local system.
    pub(super) async fn is_there(&self, path: &str) -> Option<bool> {
        let (here, path) = (self.core.local_system.get()?.clone(), path.to_owned());
        tokio::task::spawn_blocking(move || here.look(&path).is_some()).await.ok()
    }

    /// Removes a clean tree from the disk; its branch stays. `still` returns whether that is still wanted.
    pub async fn archive_tree(&self, session: &str, tree: &Worktree, still: impl Fn() -> bool) {
        let _moving = self.moving_trees.hold(&tree.path).await;
        // Without a branch or a repository it could not be restored.
        let returns = tree.branch.is_some() && repository_of(tree).is_some();
        if returns && still() && self.is_there(&tree.path).await == Some(true) {
            self.release_tree(session, tree.clone()).await;
        }
    }

    /// Restores a tree that is not on the disk, on its branch.
    pub async fn restore_tree(&self, tree: &Worktree, chosen: &JsonObject) -> Result<(), RpcError> {
        let _moving = self.moving_trees.hold(&tree.path).await;
        let (Some(repository), Some(branch)) = (repository_of(tree), &tree.branch) else { return Ok(()) };
        if self.worktrees().is_none() || self.is_there(&tree.path).await != Some(false) {
            return Ok(());
        }
        let name = Path::new(&tree.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut chosen = chosen.clone();
        chosen.insert(BRANCH.to_owned(), branch.as_str().into());
        chosen.insert("worktreeCreateNewBranch".to_owned(), false.into());
        let made = self.make_tree(&repository, name, &chosen).await;
        let failed =
            |why: &str| RpcError::internal(format!("cannot restore the working tree {}: {why}", tree.path));
        match made {
            Ok(made) if made.path == tree.path => Ok(()),
            Ok(made) => Err(failed(&format!("it is now at {}", made.path))),
            Err(why) => Err(failed(&why.message)),
        }
    }

    /// Returns a unique name for a tree: the session's id, if it is a valid name.
    fn tree_name(&self, id: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        match id.len() <= NAME_MAX
            && id.chars().all(plain)
            && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        {
            true => id.to_owned(),
            false => self.core.new_id(),
        }
    }

    /// Removes the tree of a session that did no work: its creation failed or was not completed, or it had no turn. A branch
    /// that was created for it is removed too, unless commits would be lost.
    pub async fn undo_tree(&self, session: &str, tree: Worktree, chosen: &JsonObject) {
        match creates_branch(chosen) {
            true => self.discard_tree(session, tree).await,
            false => drop(self.release_tree(session, tree).await),
        }
    }

    /// Removes the tree of a removed session. One with work stays, and is named in the log. Returns whether it was
    /// removed.
    pub async fn release_tree(&self, session: &str, tree: Worktree) -> bool {
        let (Worktree { path, .. }, Some(worktrees)) = (tree, self.worktrees()) else { return false };
        let removed = async {
            if worktrees.dirty.within(limit::REPOSITORY, (path.clone(),)).await? {
                return Ok(false);
            }
            worktrees.remove.within(limit::WORKTREE, (path.clone(),)).await.map(|()| true)
        };
        match removed.await {
            Ok(true) => return true,
            Ok(false) => self.core.log.warn(format_args!(
                "{session}: kept the working tree {path} because it has uncommitted changes, or commits that are on no branch"
            )),
            Err(why) => {
                self.core.log.warn(format_args!("{session}: cannot remove the working tree {path}: {why}"));
            }
        }
        false
    }
}

/// The trees that are being removed or restored, by path.
#[derive(Debug, Default)]
pub struct MovingTrees(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl MovingTrees {
    /// Waits for the lock of a tree.
    async fn hold(&self, path: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let lane = {
            let mut trees = self.0.lock();
            // Removes locks that are not in use.
            trees.retain(|_, lane| Arc::strong_count(lane) > 1);
            trees.entry(path.to_owned()).or_default().clone()
        };
        lane.lock_owned().await
    }
}

/// Returns the repository of a tree. A tree from before repositories were recorded is beside its repository.
pub fn repository_of(tree: &Worktree) -> Option<Repository> {
    let beside = || Path::new(&tree.path).parent()?.to_str()?.strip_suffix(".worktrees").map(str::to_owned);
    tree.repository.clone().or_else(beside).map(|root| Repository { root })
}

/// Returns whether it is the name of a setting of working trees.
pub fn is_setting(key: &str) -> bool {
    properties(&[]).iter().any(|(name, _)| name == key)
}

/// Returns whether a backend has its own setting of this name.
async fn declares(agent: &Agent) -> bool {
    let schema = agent.schema.within(limit::BACKEND_FACTS, ()).await.ok().and_then(Agent::read_schema);
    schema.is_some_and(|schema| schema.properties.contains_key(ISOLATION))
}

fn is_own(property: &SessionConfigPropertySchema) -> bool {
    property.r#enum.as_ref().is_some_and(|values| values.iter().any(|value| *value == "worktree"))
}

fn request(repository: &Repository, name: String, chosen: &JsonObject) -> WorktreeRequest {
    let text = |key: &str| {
        chosen.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let flag = |key: &str, default: bool| chosen.get(key).and_then(Value::as_bool).unwrap_or(default);
    WorktreeRequest {
        repository: repository.root.clone(),
        name,
        branch: text(BRANCH),
        create_new_branch: creates_branch(chosen),
        branch_prefix: text("worktreeBranchPrefix"),
        track: flag("worktreeBranchTrack", false),
        include_files: list(chosen.get("worktreeIncludeFiles")),
        symlink_folders: list(chosen.get("worktreeSymlinkFolders")),
    }
}

fn creates_branch(chosen: &JsonObject) -> bool {
    chosen.get("worktreeCreateNewBranch").and_then(Value::as_bool).unwrap_or(true)
}

fn not_created(directory: &str, why: Thrown) -> RpcError {
    match why.rpc {
        Some(_) => why.into_rpc(),
        None => RpcError::internal(format!("cannot create a working tree of {directory}: {}", why.message)),
    }
}

/// Parses a list of patterns; a text is a comma-separated list.
fn list(said: Option<&Value>) -> Vec<String> {
    let words: Vec<&str> = match said {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => text.split(',').collect(),
        _ => Vec::new(),
    };
    words.into_iter().map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn properties(branches: &[String]) -> Vec<(String, SessionConfigPropertySchema)> {
    let patterns = |title: &str, description: &str| {
        json!({ "type": "array", "title": title, "description": description,
            "items": { "type": "string", "title": "Pattern" }, "sessionMutable": false })
    };
    let flag = |title: &str, default: bool| json!({ "type": "boolean", "title": title, "default": default, "sessionMutable": false });
    let rows = [
        (
            ISOLATION,
            json!({ "type": "string", "title": "Isolation", "enum": ["folder", "worktree"],
            "enumLabels": ["In the folder", "In a separate working tree"], "default": "folder",
            "sessionMutable": false }),
        ),
        (
            BRANCH,
            json!({ "type": "string", "title": "Branch", "description": "The branch to begin from.",
            "enum": branches, "enumLabels": branches, "enumDynamic": true, "sessionMutable": false }),
        ),
        ("worktreeIncludeFiles", patterns("Files to copy", "Ignored files, as gitignore patterns.")),
        ("worktreeSymlinkFolders", patterns("Folders to link", "Ignored folders, as gitignore patterns.")),
        (
            "worktreeBranchPrefix",
            json!({ "type": "string", "title": "Prefix of the branch", "sessionMutable": false }),
        ),
        ("worktreeCreateNewBranch", flag("Separate branch", true)),
        ("worktreeBranchTrack", flag("Track the branch it began from", false)),
    ];
    let typed = |(key, row): (&str, Value)| Some((key.to_owned(), serde_json::from_value(row).ok()?));
    rows.into_iter().filter_map(typed).collect()
}
