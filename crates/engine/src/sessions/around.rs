//! What is known of where a session works: facts of its directory, its pull request, what it changed. Asked when it
//! starts, when it wakes, and once a turn has ended; told to whoever watches where it is another than before.

use std::sync::Arc;

use ostler_contract::points::{BranchAsked, Changes, Directories, PullRequest, PullRequests};
use ostler_contract::{JsonObject, Thrown, Value, json, limit};
use ostler_protocol::names;
use ostler_protocol::wire::actions::{SessionChangesetsChangedAction, SessionMetaChangedAction, StateAction};
use ostler_protocol::wire::state::{ChangesSummary, Changeset};

use super::Entry;
use super::actor::Actor;
use super::mailbox::ToSession;
use crate::core::file_uris::file_path;
use crate::sessions::Sessions;
use crate::workspace::sessions_view::SessionView as _;

/// What was found.
#[derive(Debug, Default)]
pub struct Around {
    /// By key; none of them the host's own.
    facts: JsonObject,
    changesets: Option<Vec<Changeset>>,
    summary: Option<ChangesSummary>,
}

impl Entry {
    /// The path the session works in, and the same as a URI.
    pub(crate) fn directory(&self) -> Option<(String, String)> {
        let uri = self.view().directories().first().cloned()?;
        Some((file_path(&uri), uri))
    }
}

impl Sessions {
    /// Asks what is around a session, away from its mailbox.
    pub(crate) fn look_around(self: &Arc<Self>, entry: &Arc<Entry>, after_turn: bool) {
        let Some(registry) = self.core.registry() else { return };
        let asked = registry.port::<Directories>().is_some()
            || registry.port::<PullRequests>().is_some()
            || registry.port::<Changes>().is_some();
        if !asked {
            return;
        }
        let (sessions, entry) = (self.clone(), entry.clone());
        tokio::spawn(async move {
            let found = sessions.around(&entry, after_turn).await;
            if entry.is_awake() {
                sessions.tell(&entry, ToSession::Around(Box::new(found)));
            }
            sessions.workspace.refresh_changesets(entry).await;
        });
    }

    async fn around(&self, entry: &Arc<Entry>, after_turn: bool) -> Around {
        let mut found = Around::default();
        let Some(registry) = self.core.registry() else { return found };
        let Some((path, uri)) = entry.directory() else { return found };
        if let Some(directories) = registry.port::<Directories>() {
            if let Some(refresh) = directories.refresh.as_ref().filter(|_| after_turn) {
                self.known(entry, "its directory", refresh.within(limit::DIRECTORY, (path.clone(),))).await;
            }
            let facts = self
                .known(entry, "its directory", directories.meta.within(limit::DIRECTORY, (path.clone(),)))
                .await;
            let own = names::meta_key("");
            found.facts = facts.unwrap_or_default();
            found.facts.retain(|key, _| !key.starts_with(&own));
        }
        if let Some(github) = registry.port::<PullRequests>() {
            let asked = BranchAsked {
                directory: path,
                branch: self.branch_of(entry, &found.facts),
                token: entry.token_of(&github.resource.0.resource),
            };
            let told = self
                .known(entry, "its pull request", github.for_branch.within(limit::DIRECTORY, (asked,)))
                .await
                .flatten();
            self.put_pull_request(entry, &uri, told, &mut found.facts).await;
        }
        if let Some(changes) = registry.port::<Changes>() {
            let of = entry.changes_of();
            let scopes = self
                .known(entry, "its changesets", changes.scopes.within(limit::DIRECTORY, (of.clone(),)))
                .await;
            found.changesets =
                scopes.map(|scopes| scopes.iter().map(|scope| listed(&entry.uri, scope)).collect());
            found.summary = self
                .known(entry, "its changes", changes.summary.within(limit::DIRECTORY, (of,)))
                .await
                .flatten();
        }
        found
    }

    /// An answer in time; one that fails is a line.
    async fn known<T>(
        &self,
        entry: &Entry,
        what: &str,
        answer: impl Future<Output = Result<T, Thrown>>,
    ) -> Option<T> {
        let outcome = answer.await;
        outcome
            .map_err(|why| self.core.log.line(format_args!("{}: {what}: {}", entry.uri, why.for_log())))
            .ok()
    }

    /// The branch a session works on, as far as it is known.
    pub(crate) fn branch_of(&self, entry: &Entry, facts: &JsonObject) -> Option<String> {
        let own = entry.view().record.worktree.as_ref().and_then(|tree| tree.branch.clone());
        let told = || facts.get("git")?.get("branchName")?.as_str().map(str::to_owned);
        own.or_else(told)
    }

    /// Puts a pull request among the facts, and keeps it; where none is found now, the one that was kept stands.
    pub(crate) async fn put_pull_request(
        &self,
        entry: &Entry,
        directory: &str,
        found: Option<PullRequest>,
        facts: &mut JsonObject,
    ) {
        let store = self.core.session_store();
        let row = match (found, store) {
            (Some(found), store) => {
                let row = told(&found);
                if let Some(store) = store {
                    let kept = JsonObject::from_iter([(directory.to_owned(), row.clone())]);
                    self.known(
                        entry,
                        "its pull request",
                        store.set_pull_requests.within(limit::STORE, (entry.id.clone(), kept)),
                    )
                    .await;
                }
                Some(row)
            }
            (None, Some(store)) => {
                let kept = self
                    .known(
                        entry,
                        "its pull request",
                        store.pull_requests.within(limit::STORE, (entry.id.clone(),)),
                    )
                    .await;
                kept.and_then(|kept| kept.get(directory).cloned())
            }
            (None, None) => None,
        };
        if let Some(row) = row {
            facts.insert("github".to_owned(), row.clone());
            facts.insert(
                "githubData".to_owned(),
                Value::Object(JsonObject::from_iter([(directory.to_owned(), row)])),
            );
            facts.insert("workingDirectoryKeys".to_owned(), json!([directory]));
        }
    }
}

fn told(found: &PullRequest) -> Value {
    json!({ "owner": found.owner, "repo": found.repo, "pullRequestUrls": [found.url],
        "pullRequestBranchName": found.branch, "pullRequestState": found.state, "pullRequestStateUrl": found.url })
}

/// A changeset as the catalogue of its session lists it.
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
    /// Takes what was found around the session.
    pub(super) fn take_around(&mut self, found: Around) {
        let mut meta = self.state.meta.clone().unwrap_or_default();
        meta.retain(|key, _| !self.facts.contains(key));
        self.facts = found.facts.keys().cloned().collect();
        meta.extend(found.facts);
        let meta = (!meta.is_empty()).then_some(meta);
        if meta != self.state.meta {
            self.apply_session(StateAction::SessionMetaChanged(SessionMetaChangedAction { meta }), None);
        }
        if found.changesets.is_some() && found.changesets != self.state.changesets {
            let action = SessionChangesetsChangedAction { changesets: found.changesets };
            self.apply_session(StateAction::SessionChangesetsChanged(action), None);
        }
        if self.changes != found.summary {
            self.changes = found.summary;
            self.dirty = true;
        }
    }
}
