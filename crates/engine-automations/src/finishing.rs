//! The operation at the end of a run: a commit or a pull request of what the run changed in its working tree.

use std::path::Path;
use std::sync::Arc;

use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::read::Read;
use ostler_engine_core::file_uris::file_path;
use ostler_engine_sessions::SessionEntry;
use ostler_protocol::error::code;
use ostler_protocol::grants::Grant;
use ostler_protocol::run_list::RunOperation;
use ostler_protocol::wire::commands::InvokeChangesetOperationParams;
use ostler_protocol::wire::common::StringOrMarkdown;
use ostler_protocol::wire::state::{AutomationRunLifecycle, AutomationRunState};
use ostler_protocol::{JsonObject, RpcError, json, names, uri};
use serde::Deserialize as _;

use super::Automations;
use super::run::OWNER;
use super::starting::AGAIN;

/// The fact of a run about its operation, under `_meta.ostler.<fact>`.
const AFTER: &str = "after";
/// The states of an operation.
const RUNNING: &str = "running";
const DONE: &str = "done";
const FAILED: &str = "failed";
/// The changeset that both operations are for.
const SCOPE: &str = "uncommitted";
/// How often an operation is tried whose session another turn has taken.
const TRIES: u32 = 5;
/// The longest message of an operation that a run contains, in bytes.
const MESSAGE: usize = 4 << 10;
/// The reason in the error of a pull request of a branch without commits.
const NO_COMMITS: &str = "noCommits";

/// What is done with the changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// They are committed.
    Commit,
    /// They are committed and pushed, and get a pull request.
    PullRequest,
}

const ALL: [(&str, After); 2] = [("commit", After::Commit), ("create-pr", After::PullRequest)];

impl After {
    /// Reads the operation of a changeset by its id.
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(known, _)| *known == name).map(|(_, after)| *after)
    }

    /// Returns the ids of all operations.
    pub fn names() -> String {
        ALL.map(|(name, _)| name).join(", ")
    }

    fn name(self) -> &'static str {
        ALL.iter().find(|(_, after)| *after == self).map_or("", |(name, _)| name)
    }

    fn fact(self, state: &str) -> RunOperation {
        RunOperation { operation: self.name().to_owned(), state: state.to_owned(), message: None, url: None }
    }
}

/// Returns what a run's `_meta` says about its operation.
pub(super) fn operation_of(meta: Option<&JsonObject>) -> Option<RunOperation> {
    RunOperation::deserialize(meta?.get(&names::meta_key(AFTER))?).ok()
}

/// Returns the operation of a running run whose turn has completed.
pub(super) fn begun(run: &AutomationRunState) -> Option<After> {
    let is_running = matches!(run.lifecycle, AutomationRunLifecycle::Running(_));
    let operation = operation_of(run.meta.as_ref()).filter(|fact| is_running && fact.state == RUNNING)?;
    After::named(&operation.operation)
}

impl Automations {
    /// Ends a run whose turn has completed, after the operation of its automation.
    pub(super) async fn complete_run(self: &Arc<Self>, run: &str) {
        let operation = {
            let runs = self.runs.lock();
            let Some(state) = runs.open.get(run) else { return };
            let id = uri::automation_id(&state.automation).unwrap_or_default().to_owned();
            begun(state).ok_or(id)
        };
        let operation = match operation {
            Ok(begun) => Some(begun),
            Err(id) => self.entry(&id).and_then(|entry| entry.settings.after),
        };
        match operation {
            Some(operation) => self.finish_run(run, operation).await,
            None => self.settle_run(run, "completed", None).await,
        }
    }

    /// Does the operation of a run and ends the run. That it begins is stored before, so that a host that stops during it
    /// does it again: it finds what is already done.
    pub(super) async fn finish_run(self: &Arc<Self>, run: &str, operation: After) {
        for tried in 1.. {
            // Another turn of the session may end during the operation.
            if !self.runs.lock().finishing.insert(run.to_owned()) {
                return;
            }
            self.note_operation(run, &operation.fact(RUNNING));
            if !self.core.can_store().await {
                // The run is as the next start finds it.
                return;
            }
            let stored = self.keep_run_at_last(run, None).await;
            let Some(state) = self.runs.lock().open.get(run).cloned() else { return };
            if !stored {
                let why = format!("its {} did not begin: the run could not be stored", operation.name());
                return self.settle_run(run, "failed", Some(why)).await;
            }
            self.list_run(run, &state.automation).await;
            let outcome = self.operate(&state, operation).await;
            let is_busy = outcome.as_ref().is_err_and(|why| why.code == code::TURN_IN_PROGRESS);
            if is_busy && tried < TRIES {
                // Another turn has begun in the session: its end continues here.
                self.runs.lock().finishing.remove(run);
                if self.is_busy(&state).await {
                    return;
                }
                continue;
            }
            let (how, why, fact) = match outcome {
                Ok(fact) => ("completed", None, fact),
                Err(RpcError { message, .. }) => {
                    let why = format!("its {} failed: {message}", operation.name());
                    ("failed", Some(why), RunOperation { message: Some(message), ..operation.fact(FAILED) })
                }
            };
            let message = fact.message.map(|text| text[..text.floor_char_boundary(MESSAGE)].to_owned());
            self.note_operation(run, &RunOperation { message, ..fact });
            return self.settle_run(run, how, why).await;
        }
    }

    /// Writes the fact about its operation into a run that has not ended; its next write stores it.
    fn note_operation(&self, run: &str, fact: &RunOperation) {
        let mut runs = self.runs.lock();
        if let Some(state) = runs.open.get_mut(run) {
            state.meta.get_or_insert_default().insert(names::meta_key(AFTER), json!(fact));
            self.feed_run(state);
        }
    }

    async fn is_busy(&self, run: &AutomationRunState) -> bool {
        let Some(session) = &run.primary_session else { return false };
        match self.sessions.session_at_here(session).await {
            Read::Known(entry) => entry.is_some_and(|entry| entry.view().is_running()),
            // The operation is tried again, and says why it cannot be done.
            Read::Unknown(_) => false,
        }
    }

    /// Returns the session of a run. A store that cannot be read is asked again.
    async fn session_of(&self, run: &AutomationRunState) -> Result<Arc<SessionEntry>, RpcError> {
        let gone = || RpcError::session_not_found("the session of the run no longer exists");
        let session = run.primary_session.as_ref().ok_or_else(gone)?;
        let mut pauses = AGAIN.into_iter();
        loop {
            match self.sessions.session_at(session).await {
                Read::Known(entry) => return entry.ok_or_else(gone),
                Read::Unknown(why) => match pauses.next().filter(|_| !SessionElsewhere::is(&why.0)) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(why.0.into_rpc()),
                },
            }
        }
    }

    /// Does the operation of a run as its owner, with the owner's grants as they are now.
    async fn operate(&self, run: &AutomationRunState, operation: After) -> Result<RunOperation, RpcError> {
        let id = uri::automation_id(&run.automation).unwrap_or_default();
        let of_run = || run.meta.as_ref()?.get(&names::meta_key(OWNER))?.as_str().map(str::to_owned);
        let owner = self.entry(id).map_or_else(of_run, |entry| entry.owner.clone());
        if let Some(owner) = &owner {
            self.may_start(Some(owner)).map_err(RpcError::permission_denied)?;
            self.access.require_of(owner, &Grant::of("session", "changes"))?;
        }
        let entry = self.session_of(run).await?;
        refuse_shared_directories(&entry)?;
        let channel = format!("{}/changeset/{SCOPE}", entry.uri);
        if operation == After::Commit && self.sessions.workspace.is_unchanged(&channel).await? {
            return Ok(RunOperation {
                message: Some("Nothing to commit".to_owned()),
                ..operation.fact(DONE)
            });
        }
        let params = InvokeChangesetOperationParams {
            channel,
            operation_id: operation.name().to_owned(),
            target: None,
            meta: None,
        };
        match self.sessions.operate(params, |_| None).await {
            Ok(done) => {
                let message = done.message.map(|message| match message {
                    StringOrMarkdown::Plain(text) => text,
                    StringOrMarkdown::Markdown { markdown } => markdown,
                });
                let url = done.follow_up.filter(|told| told.external == Some(true));
                Ok(RunOperation { message, url: url.map(|told| told.content.uri), ..operation.fact(DONE) })
            }
            Err(why) if why.data.as_ref().is_some_and(|data| data["reason"] == NO_COMMITS) => {
                Ok(RunOperation { message: Some(why.message), ..operation.fact(DONE) })
            }
            Err(why) => Err(why),
        }
    }
}

/// Refuses a session that works outside of a working tree of its own: the operation would take the changes of others, who share
/// the directory.
fn refuse_shared_directories(entry: &SessionEntry) -> Result<(), RpcError> {
    let view = entry.view();
    let Some(tree) = &view.record.worktree else {
        return Err(RpcError::invalid_params(format!(
            "{} has no separate working tree; set session.config.isolation of the automation to worktree",
            entry.uri
        )));
    };
    let shared = view.directories().iter().find(|uri| !Path::new(&file_path(uri)).starts_with(&tree.path));
    match shared {
        None => Ok(()),
        Some(shared) => Err(RpcError::invalid_params(format!(
            "{} also works in {shared}, which is not in its working tree, so its changes may be those of others; give the \
             automation one working directory",
            entry.uri
        ))),
    }
}
