//! Facts about the directory that a session works in: its metadata, its pull request, its changes. They are read when
//! the session starts, when it wakes and after each turn, and published if they changed. Each part is published as soon
//! as it is known, so a slow code host delays only the pull request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_contract::points::{BranchAsked, Changes, Directories, PullRequest, PullRequests};
use ostler_contract::read::Read;
use ostler_contract::{JsonObject, Value, json, limit};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::tasks;
use ostler_engine_workspace::sessions_view::SessionView as _;
use ostler_protocol::names;
use ostler_protocol::wire::actions::{SessionChangesetsChangedAction, SessionMetaChangedAction, StateAction};
use ostler_protocol::wire::state::{ChangesSummary, Changeset, ProjectInfo};
use tokio::time::Instant;

use super::SessionEntry;
use super::actor::Actor;
use super::mailbox::ToSession;
use crate::Sessions;

/// The first facts of a session are not read again for a client that begins to watch it within this time.
pub(super) const LOOKED_RECENTLY: Duration = Duration::from_secs(1);

/// The keys of `_meta` that hold a pull request.
pub(super) const PULL_REQUEST: [&str; 3] = ["github", "githubData", "workingDirectoryKeys"];

/// Why facts are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The session starts or wakes.
    Begin,
    /// A turn has ended, or an operation.
    Worked,
    /// There is another commit.
    Commit,
    /// Another branch is checked out.
    Branch,
    /// Their source reported a change.
    Reported,
}

/// The member of the facts about git that says whether the repository is on a known code host.
const HAS_REMOTE: &str = "hasGitHubRemote";

impl Occasion {
    /// Whether a session that is asleep wakes for changed facts, because clients watch it.
    fn wakes(self) -> bool {
        matches!(self, Self::Commit | Self::Branch | Self::Reported)
    }
}

/// One part of the facts that were read.
#[derive(Debug)]
pub struct DirectoryFacts {
    /// The number of the read, ascending within the session.
    look: u64,
    part: DirectoryRead,
}

#[derive(Debug)]
enum DirectoryRead {
    /// The facts by key, without the host's own keys, and the project that the directory belongs to.
    Facts(JsonObject, Option<ProjectInfo>),
    /// The facts by key; empty if there is no pull request.
    PullRequest(JsonObject),
    Changes {
        changesets: Read<Vec<Changeset>>,
        summary: Read<Option<ChangesSummary>>,
    },
}

/// The numbers of the reads from which an actor has its parts. The result of an earlier read is outdated.
#[derive(Debug, Default)]
pub(super) struct LastLooked {
    facts: u64,
    pull_request: u64,
    changes: u64,
}

impl SessionEntry {
    /// Returns the path of the directory that the session works in, and its URI.
    pub fn directory(&self) -> Option<(String, String)> {
        let uri = self.view().directories().first().cloned()?;
        Some((file_path(&uri), uri))
    }
}

impl Sessions {
    /// Starts to read the facts about a session's directory, outside its mailbox.
    pub fn look_around(self: &Arc<Self>, entry: &Arc<SessionEntry>, after_turn: bool) {
        self.look(entry, if after_turn { Occasion::Worked } else { Occasion::Begin });
    }

    pub(super) fn look(self: &Arc<Self>, entry: &Arc<SessionEntry>, occasion: Occasion) {
        let Some(registry) = self.core.registry() else { return };
        let asked = registry.port::<Directories>().is_some()
            || registry.port::<PullRequests>().is_some()
            || registry.port::<Changes>().is_some();
        if !asked {
            return;
        }
        let (sessions, entry) = (self.clone(), entry.clone());
        let look = entry.looks.fetch_add(1, Ordering::Relaxed) + 1;
        *entry.looked_at.lock() = Some(Instant::now());
        tasks::spawn(async move {
            let known = match sessions.facts(&entry, occasion != Occasion::Begin).await {
                Some((facts, project)) => {
                    let wakes = occasion.wakes() && entry.view().record.facts != facts;
                    sessions.found(&entry, look, DirectoryRead::Facts(facts.clone(), project), wakes);
                    facts
                }
                None => entry.view().summary.meta.clone().unwrap_or_default(),
            };
            let changes = async {
                if let Some(changes) = sessions.changes(&entry).await {
                    sessions.found(&entry, look, changes, false);
                }
                sessions.workspace.refresh_changesets(entry.clone()).await;
            };
            let pull_request = async {
                // A commit is on no code host before it is pushed.
                if occasion != Occasion::Commit {
                    let fresh = occasion != Occasion::Begin;
                    sessions.look_for_pull_request(&entry, look, fresh, &known).await;
                }
            };
            futures::join!(changes, pull_request);
        });
    }

    /// Sends a part to the actor of a session if it is awake, or wakes for the part.
    fn found(self: &Arc<Self>, entry: &Arc<SessionEntry>, look: u64, part: DirectoryRead, wakes: bool) {
        if wakes || entry.is_awake() {
            self.tell(entry, ToSession::DirectoryFacts(Box::new(DirectoryFacts { look, part })));
        }
    }

    /// Returns the facts about the session's directory and its project; `None` without a port or on failure.
    async fn facts(
        &self,
        entry: &SessionEntry,
        after_turn: bool,
    ) -> Option<(JsonObject, Option<ProjectInfo>)> {
        let registry = self.core.registry()?;
        let directories = registry.port::<Directories>()?;
        let (path, _) = entry.directory()?;
        if let Some(refresh) = directories.refresh.as_ref().filter(|_| after_turn) {
            // The facts say so themselves if the directory cannot be read.
            let _ =
                self.asked(entry, "its directory", refresh.within(limit::DIRECTORY, (path.clone(),))).await;
        }
        let facts = directories.meta.within(limit::DIRECTORY, (path,));
        let Read::Known(mut facts) = self.asked(entry, "its directory", facts).await else { return None };
        let own = names::meta_key("");
        facts.retain(|key, _| !key.starts_with(&own));
        let project = facts.shift_remove("project").and_then(|project| serde_json::from_value(project).ok());
        self.note_github(entry, &mut facts).await;
        Some((facts, project))
    }

    /// Sets `git.hasGitHubRemote` for a repository on a host that only the port of pull requests knows.
    async fn note_github(&self, entry: &SessionEntry, facts: &mut JsonObject) {
        let Some(Value::Object(git)) = facts.get_mut("git") else { return };
        let Some(registry) = self.core.registry() else { return };
        let is_on_github = registry.port::<PullRequests>().and_then(|github| github.is_on_github.clone());
        let (Some(is_on_github), Some((path, _))) = (is_on_github, entry.directory()) else { return };
        let is_on_github = is_on_github.within(limit::DIRECTORY, (path,));
        let before = || entry.view().record.facts.get("git")?.get(HAS_REMOTE)?.as_bool();
        let is_on_github = match self.asked(entry, "its code host", is_on_github).await {
            Read::Known(is_on_github) => is_on_github,
            Read::Unknown(_) => before().unwrap_or_default(),
        };
        if is_on_github {
            git.insert(HAS_REMOTE.to_owned(), true.into());
        }
    }

    async fn look_for_pull_request(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        look: u64,
        after_turn: bool,
        facts: &JsonObject,
    ) {
        let Some(registry) = self.core.registry() else { return };
        let Some(github) = registry.port::<PullRequests>() else { return };
        let Some((path, uri)) = entry.directory() else { return };
        // The stored pull request is shown while the code host is asked.
        if !after_turn && let Read::Known(Some(stored)) = self.stored_pull_request(entry, &uri).await {
            self.found(entry, look, DirectoryRead::PullRequest(facts_of(&uri, &stored)), false);
        }
        let asked = BranchAsked {
            directory: path,
            branch: self.branch_of(entry, facts),
            token: entry.token_of(&github.resource.0.resource),
        };
        let found = github.for_branch.within(limit::DIRECTORY, (asked,));
        let row = match self.asked(entry, "its pull request", found).await {
            Read::Known(Some(found)) => Some(self.store_pull_request(entry, &uri, &found).await),
            // The stored pull request remains.
            Read::Known(None) | Read::Unknown(_) => match self.stored_pull_request(entry, &uri).await {
                Read::Known(stored) => stored,
                Read::Unknown(_) => return,
            },
        };
        let facts = row.map(|row| facts_of(&uri, &row)).unwrap_or_default();
        self.found(entry, look, DirectoryRead::PullRequest(facts), false);
    }

    async fn changes(&self, entry: &SessionEntry) -> Option<DirectoryRead> {
        let registry = self.core.registry()?;
        let changes = registry.port::<Changes>()?;
        entry.directory()?;
        let of = entry.changes_of();
        let scopes = changes.scopes.within(limit::DIRECTORY, (of.clone(),));
        let scopes = self.asked(entry, "its changesets", scopes).await;
        let summary = changes.summary.within(limit::DIRECTORY, (of,));
        let summary = self.asked(entry, "its changes", summary).await;
        let changesets = scopes.map(|scopes| scopes.iter().map(|scope| listed(&entry.uri, scope)).collect());
        Some(DirectoryRead::Changes { changesets, summary })
    }

    /// Waits for an answer; a failure is logged, and what is shown stays.
    async fn asked<T, R: Into<Read<T>>>(
        &self,
        entry: &SessionEntry,
        what: &str,
        answer: impl Future<Output = R>,
    ) -> Read<T> {
        let read = answer.await.into();
        if let Read::Unknown(why) = &read {
            self.core.log.warn(format_args!("{}: {what}: {}", entry.uri, why.0.for_log()));
        }
        read
    }

    /// Returns the branch that a session works on, if known: the one that is checked out, or else that of its working
    /// tree.
    pub fn branch_of(&self, entry: &SessionEntry, facts: &JsonObject) -> Option<String> {
        let told = facts.get("git").and_then(|git| git.get("branchName")?.as_str()).map(str::to_owned);
        let own = || entry.view().record.worktree.as_ref().and_then(|tree| tree.branch.clone());
        told.or_else(own)
    }

    /// Stores the pull request of a session. Returns it in its `_meta` form.
    pub async fn store_pull_request(
        &self,
        entry: &SessionEntry,
        directory: &str,
        found: &PullRequest,
    ) -> Value {
        let row = told(found);
        if let Some(store) = self.core.session_store() {
            let kept = JsonObject::from_iter([(directory.to_owned(), row.clone())]);
            let stored = store.set_pull_requests.within(limit::STORE, (entry.id.clone(), kept));
            // It is found again; the failure is logged.
            let _ = self.asked(entry, "its pull request", stored).await;
        }
        row
    }

    async fn stored_pull_request(&self, entry: &SessionEntry, directory: &str) -> Read<Option<Value>> {
        let Some(store) = self.core.session_store() else { return Read::Known(None) };
        let stored = store.pull_requests.read(limit::STORE, (entry.id.clone(),));
        self.asked(entry, "its pull request", stored).await.map(|stored| stored.get(directory).cloned())
    }
}

/// Returns a pull request as entries of a session's `_meta`.
fn facts_of(directory: &str, row: &Value) -> JsonObject {
    let [one, by_directory, keys] = PULL_REQUEST.map(str::to_owned);
    let rows = JsonObject::from_iter([(directory.to_owned(), row.clone())]);
    JsonObject::from_iter([
        (one, row.clone()),
        (by_directory, Value::Object(rows)),
        (keys, json!([directory])),
    ])
}

fn told(found: &PullRequest) -> Value {
    let mut row = json!({ "owner": found.owner, "repo": found.repo, "pullRequestUrls": [found.url],
        "pullRequestBranchName": found.branch, "pullRequestState": found.state, "pullRequestStateUrl": found.url });
    if let Some(checks) = &found.checks {
        row[names::meta_key("checks")] = json!(checks);
    }
    row
}

/// Returns a changeset in the form in which its session lists it.
fn listed(session: &str, scope: &ostler_contract::points::ChangeScope) -> Changeset {
    Changeset {
        label: scope.label.clone(),
        uri_template: format!("{session}/changeset/{}", scope.scope),
        description: scope.description.clone(),
        change_kind: scope.change_kind.clone().unwrap_or_else(|| "other".to_owned()),
        capabilities: scope
            .review
            .then(|| ostler_protocol::wire::state::ChangesetCapabilities { review: Some(JsonObject::new()) }),
    }
}

impl Actor {
    /// Applies facts that were read about the session's directory.
    pub(super) fn take_around(&mut self, found: DirectoryFacts) {
        let DirectoryFacts { look, part } = found;
        let latest = match &part {
            DirectoryRead::Facts(..) => &mut self.looked.facts,
            DirectoryRead::PullRequest(_) => &mut self.looked.pull_request,
            DirectoryRead::Changes { .. } => &mut self.looked.changes,
        };
        if look < *latest {
            return;
        }
        *latest = look;
        match part {
            DirectoryRead::Facts(facts, project) => {
                // No action changes the project in a session's state; clients see it in the listing.
                if project.is_some() && project != self.state.project {
                    self.state.project = project;
                    self.dirty = true;
                    self.deferred.add(super::deferred::DeferredPart::Session);
                }
                if self.entry.view().record.facts != facts {
                    self.revise(|record| record.facts.clone_from(&facts));
                    self.deferred.add(super::deferred::DeferredPart::Session);
                }
                let former = std::mem::replace(&mut self.facts, facts.keys().cloned().collect());
                self.replace_meta(|key| former.iter().any(|former| former == key), facts);
            }
            DirectoryRead::PullRequest(facts) => self.replace_meta(|key| PULL_REQUEST.contains(&key), facts),
            DirectoryRead::Changes { changesets, summary } => {
                // What is unknown stays as it is shown.
                if let Read::Known(changesets) = changesets
                    && self.state.changesets.as_ref() != Some(&changesets)
                {
                    self.reports_changesets = false;
                    let action = SessionChangesetsChangedAction { changesets: Some(changesets) };
                    self.apply_session(StateAction::SessionChangesetsChanged(action), None);
                }
                if let Read::Known(summary) = summary
                    && self.changes != summary
                {
                    self.changes = summary;
                    self.dirty = true;
                }
            }
        }
    }

    /// Replaces the selected keys of `_meta` and publishes the change if there is one.
    fn replace_meta(&mut self, meant: impl Fn(&str) -> bool, facts: JsonObject) {
        let mut meta = self.state.meta.clone().unwrap_or_default();
        meta.retain(|key, _| !meant(key));
        meta.extend(facts);
        let meta = (!meta.is_empty()).then_some(meta);
        if meta != self.state.meta {
            self.apply_session(StateAction::SessionMetaChanged(SessionMetaChangedAction { meta }), None);
        }
    }
}
