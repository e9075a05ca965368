//! Changesets: the changes of a session, as channels under `<session>/changeset/`.

use std::collections::HashMap;
use std::sync::Arc;

use ahp::reducers::{ReduceOutcome, apply_action_to_changeset};
use ostler_contract::points::{Changes, ChangesState};
use ostler_contract::{JsonObject, Thrown, limit};
use ostler_engine_core::fanout::{Origin, Outgoing, Subscriber};
use ostler_engine_core::refusals::{does_not_belong, no_channel, nothing_at, unread};
use ostler_protocol::uri::Channel;
use ostler_protocol::wire::actions as a;
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::{
    ChangesetFile, ChangesetOperation, ChangesetOperationScope, ChangesetOperationStatus, ChangesetState,
    ChangesetStatus, ErrorInfo,
};
use ostler_protocol::{RpcError, Value, Version, actions};
use parking_lot::Mutex;

use crate::Workspace;
use crate::sessions_view::SessionView;

/// The most marks of one changeset that are stored.
const REVIEWED: usize = 2_000;

/// The changesets with subscribers, by URI.
#[derive(Debug, Default)]
pub struct Changesets(Mutex<HashMap<String, ChangesetState>>);

/// A changeset with its content at the request.
pub struct OpenedChangeset {
    of: Of,
    state: Result<ChangesState, Thrown>,
}

impl OpenedChangeset {
    /// Returns the canonical URI of the changeset.
    pub fn uri(&self) -> &str {
        &self.of.uri
    }
}

/// The session and scope of a channel.
pub struct Of {
    session: Arc<dyn SessionView>,
    scope: String,
    uri: String,
}

impl Of {
    fn new(session: Arc<dyn SessionView>, scope: String) -> Self {
        let uri = format!("{}/changeset/{scope}", session.uri());
        Self { session, scope, uri }
    }
}

/// Returns the id of the session and the scope from a changeset's URI.
fn parts(spelled: &str) -> Result<(String, String), RpcError> {
    match Channel::parse(spelled) {
        Channel::Changeset { session, scope } => Ok((session, scope)),
        _ => Err(no_channel(spelled)),
    }
}

impl Workspace {
    fn changes(&self) -> Result<&Changes, RpcError> {
        let changes = self.core.registry().and_then(|registry| registry.port::<Changes>());
        changes.ok_or_else(|| RpcError::method_not_found("this host has no changesets"))
    }

    async fn changeset_of(&self, spelled: &str) -> Result<Of, RpcError> {
        let (id, scope) = parts(spelled)?;
        let loaded = match self.sessions() {
            Some(sessions) => sessions.load(&id).await.known().map_err(|why| unread(spelled, &why))?,
            None => None,
        };
        Ok(Of::new(loaded.ok_or_else(|| nothing_at(spelled))?, scope))
    }

    /// Returns a changeset of a session in memory.
    fn changeset_in_memory(&self, spelled: &str) -> Result<Of, RpcError> {
        let (id, scope) = parts(spelled)?;
        let held = self.sessions().and_then(|sessions| sessions.get(&id));
        Ok(Of::new(held.ok_or_else(|| nothing_at(spelled))?, scope))
    }

    /// Returns the canonical URI of a changeset with subscribers.
    pub fn watched_changeset(&self, spelled: &str) -> Result<String, RpcError> {
        let of = self.changeset_in_memory(spelled)?;
        match self.changesets.0.lock().contains_key(&of.uri) {
            true => Ok(of.uri),
            false => Err(no_channel(spelled)),
        }
    }

    async fn changeset_now(&self, of: &Of) -> Result<ChangesState, Thrown> {
        let asked = (of.session.changes_of(), of.scope.clone());
        let mut told = self.changes()?.state.within(limit::DIRECTORY, asked).await?;
        if of.session.is_running() {
            for operation in told.operations.iter_mut().flatten() {
                operation.status = ChangesetOperationStatus::Disabled;
            }
        }
        Ok(told)
    }

    /// Disables the operations of a session's changesets with subscribers during a turn.
    pub fn disable_operations(&self, session: &str) {
        let beginning = format!("{session}/changeset/");
        let idle = |(uri, state): (&String, &ChangesetState)| {
            let operations = state.operations.iter().flatten();
            let idle = operations.filter(|operation| operation.status == ChangesetOperationStatus::Idle);
            let uri = uri.starts_with(&beginning).then(|| uri.clone())?;
            Some((uri, idle.map(|operation| operation.id.clone()).collect::<Vec<_>>()))
        };
        let open: Vec<_> = self.changesets.0.lock().iter().filter_map(idle).collect();
        for (uri, operations) in open {
            for operation_id in operations {
                let moved = a::ChangesetOperationStatusChangedAction {
                    operation_id,
                    status: ChangesetOperationStatus::Disabled,
                    error: None,
                };
                self.apply_changeset(&uri, &a::StateAction::ChangesetOperationStatusChanged(moved), None);
            }
        }
    }

    /// Applies an action to a changeset with subscribers, and publishes it.
    fn apply_changeset(&self, uri: &str, action: &a::StateAction, origin: Option<Origin>) {
        let mut held = self.changesets.0.lock();
        let Some(state) = held.get_mut(uri) else { return };
        if apply_action_to_changeset(state, action) != ReduceOutcome::Applied {
            return;
        }
        if let Ok(text) = serde_json::to_string(action) {
            self.core.fanout.publish(uri, vec![Outgoing { origin, ..Outgoing::host(text, Version::V0_9) }]);
        }
    }

    /// Finds a changeset and requests its content, for a client that subscribes.
    pub async fn find_changeset(&self, spelled: &str) -> Result<OpenedChangeset, RpcError> {
        self.changes()?;
        let of = self.changeset_of(spelled).await?;
        match self.changeset_now(&of).await {
            // The request is wrong. Failures to read a changeset of the session are its state, and it can be read again.
            Err(why) if why.rpc.is_some() || !self.lists_changeset(&of).await => Err(why.into_rpc()),
            state => Ok(OpenedChangeset { of, state }),
        }
    }

    /// Returns whether the session has this changeset.
    async fn lists_changeset(&self, of: &Of) -> bool {
        let Ok(changes) = self.changes() else { return false };
        let scopes = changes.scopes.within(limit::DIRECTORY, (of.session.changes_of(),)).await;
        scopes.unwrap_or_default().iter().any(|listed| match listed.scope.split_once('{') {
            Some((beginning, _)) => of.scope.starts_with(beginning),
            None => listed.scope == of.scope,
        })
    }

    /// Adds a subscriber of a changeset; returns the snapshot, its number, and what has to be refreshed once both are
    /// sent.
    pub fn watch_changeset(&self, asked: OpenedChangeset, subscriber: Subscriber) -> (String, u64, Of) {
        let OpenedChangeset { of, state } = asked;
        // Earlier subscribers see the same state, and no subscriber begins with an old one.
        self.take_changeset(&of, state.clone());
        let mut held = self.changesets.0.lock();
        // Existing subscribers have a state to which actions apply.
        let state = held.entry(of.uri.clone()).or_insert_with(|| match state {
            Ok(state) => state_of(state, None, &of.session.reviewed(&of.scope)),
            Err(why) => ChangesetState {
                status: ChangesetStatus::Error,
                error: Some(error_of(&why)),
                files: Vec::new(),
                operations: None,
            },
        });
        let text = serde_json::to_string(state).unwrap_or_else(|_| "{}".to_owned());
        let seq = self.core.fanout.subscribe(&of.uri, subscriber);
        (text, seq, of)
    }

    /// Follows the trees of a changeset that has subscribers from now on, and requests its content again.
    pub async fn changeset_is_watched(self: &Arc<Self>, of: &Of) {
        self.follow_trees(&of.session);
        self.refresh_changeset(of).await;
    }

    /// Does the same for a subscription that was restored without a snapshot.
    pub async fn changeset_is_watched_again(self: &Arc<Self>, spelled: &str) {
        if let Ok(of) = self.changeset_in_memory(spelled) {
            self.changeset_is_watched(&of).await;
        }
    }

    /// Returns whether a changeset of a session has subscribers.
    pub fn has_watched_changesets(&self, session: &str) -> bool {
        let beginning = format!("{session}/changeset/");
        let held = self.changesets.0.lock();
        held.keys().any(|uri| uri.starts_with(&beginning) && !self.core.fanout.watchers(uri).is_empty())
    }

    /// Refreshes the changesets with subscribers of several sessions.
    pub async fn refresh_all(self: &Arc<Self>, sessions: Vec<Arc<dyn SessionView>>) {
        for session in sessions {
            self.refresh_changesets(session).await;
        }
    }

    /// Refreshes the changesets with subscribers of a session.
    pub async fn refresh_changesets(self: &Arc<Self>, session: Arc<dyn SessionView>) {
        let beginning = format!("{}/changeset/", session.uri());
        let held: Vec<String> =
            self.changesets.0.lock().keys().filter(|uri| uri.starts_with(&beginning)).cloned().collect();
        for uri in held {
            if self.forget_unwatched(&uri) {
                continue;
            }
            let scope = uri[beginning.len()..].to_owned();
            self.refresh_changeset(&Of { session: session.clone(), scope, uri }).await;
        }
        // Its directories may have changed.
        if self.is_watched(session.uri()) {
            self.follow_trees(&session);
        }
    }

    /// Forgets the state of a changeset without subscribers; returns whether it has none.
    fn forget_unwatched(&self, uri: &str) -> bool {
        // A subscription begins while the states are locked.
        let mut held = self.changesets.0.lock();
        let is_forgotten = self.core.fanout.end_unwatched(uri);
        if is_forgotten {
            held.remove(uri);
        }
        is_forgotten
    }

    async fn refresh_changeset(&self, of: &Of) {
        let told = self.changeset_now(of).await;
        self.take_changeset(of, told);
    }

    /// Updates a changeset with subscribers.
    fn take_changeset(&self, of: &Of, told: Result<ChangesState, Thrown>) {
        let Some(before) = self.changesets.0.lock().get(&of.uri).cloned() else { return };
        match told {
            Ok(told) => {
                // What was reviewed before a failure, or before a restart, is stored.
                let stored = match before.status {
                    ChangesetStatus::Ready => JsonObject::new(),
                    _ => of.session.reviewed(&of.scope),
                };
                let next = state_of(told, Some(&before), &stored);
                if next.files != before.files || next.operations != before.operations {
                    let content =
                        a::ChangesetContentChangedAction { files: next.files, operations: next.operations };
                    self.apply_changeset(
                        &of.uri,
                        &a::StateAction::ChangesetContentChanged(Box::new(content)),
                        None,
                    );
                }
                if before.status != ChangesetStatus::Ready {
                    let ready =
                        a::ChangesetStatusChangedAction { status: ChangesetStatus::Ready, error: None };
                    self.apply_changeset(&of.uri, &a::StateAction::ChangesetStatusChanged(ready), None);
                }
            }
            Err(why) => {
                let error = Some(error_of(&why));
                let failed = a::ChangesetStatusChangedAction { status: ChangesetStatus::Error, error };
                self.apply_changeset(&of.uri, &a::StateAction::ChangesetStatusChanged(failed), None);
            }
        }
    }

    /// Ends the changesets of a removed session.
    pub fn clear_changesets(&self, session: &str) {
        let beginning = format!("{session}/changeset/");
        let mut held = self.changesets.0.lock();
        let gone: Vec<String> = held.keys().filter(|uri| uri.starts_with(&beginning)).cloned().collect();
        for uri in gone {
            held.remove(&uri);
            let cleared = a::StateAction::ChangesetCleared(a::ChangesetClearedAction {});
            if let Ok(text) = serde_json::to_string(&cleared) {
                self.core.fanout.publish(&uri, vec![Outgoing::host(text, Version::V0_9)]);
            }
            self.core.fanout.end(&uri, &[]);
        }
    }

    /// Returns whether a changeset has no changes now.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn is_unchanged(&self, spelled: &str) -> Result<bool, RpcError> {
        let of = self.changeset_of(spelled).await?;
        Ok(self.changeset_now(&of).await.map_err(Thrown::into_rpc)?.files.is_empty())
    }

    /// Runs an operation of a changeset.
    pub async fn operate(
        &self,
        params: c::InvokeChangesetOperationParams,
    ) -> Result<c::InvokeChangesetOperationResult, RpcError> {
        let changes = self.changes()?;
        let of = self.changeset_of(&params.channel).await?;
        let operate = changes.operate.as_ref();
        let operate =
            operate.ok_or_else(|| RpcError::method_not_found("this host has no operations of changesets"))?;
        let held = self.changesets.0.lock().get(&of.uri).and_then(|state| state.operations.clone());
        // Disabled operations may have changed since, for example by a previous operation.
        let open = |operation: &ChangesetOperation| {
            operation.id == params.operation_id && operation.status != ChangesetOperationStatus::Disabled
        };
        let offered = match held.filter(|offered| offered.iter().any(open)) {
            Some(offered) => offered,
            None => self.changeset_now(&of).await.map_err(Thrown::into_rpc)?.operations.unwrap_or_default(),
        };
        let operation = offered.iter().find(|operation| operation.id == params.operation_id);
        let operation = operation.ok_or_else(|| {
            RpcError::invalid_params(format!(
                "{} offers no operation {}",
                params.channel, params.operation_id
            ))
        })?;
        if of.session.is_running() {
            return Err(RpcError::turn_in_progress(format!("{} is mid-turn", of.session.uri())));
        }
        fits(operation, params.target.as_ref())?;
        let status = |status, error| {
            let id = params.operation_id.clone();
            let moved = a::ChangesetOperationStatusChangedAction { operation_id: id, status, error };
            self.apply_changeset(&of.uri, &a::StateAction::ChangesetOperationStatusChanged(moved), None);
        };
        status(ChangesetOperationStatus::Running, None);
        let arguments = (
            of.session.changes_of(),
            of.scope.clone(),
            params.operation_id.clone(),
            params.target.clone(),
            params.meta.clone(),
        );
        let outcome = operate.within(limit::CHANGESET_OPERATION, arguments).await;
        match &outcome {
            Ok(_) => status(ChangesetOperationStatus::Idle, None),
            Err(why) => status(ChangesetOperationStatus::Error, Some(error_of(why))),
        }
        if let Some(sessions) = self.sessions() {
            sessions.look_around(&*of.session);
        }
        outcome.map_err(Thrown::into_rpc)
    }

    /// Marks files as reviewed or not, if the changeset supports reviews.
    pub async fn review(&self, spelled: &str, action: &Value, origin: Origin) -> Result<(), String> {
        let of = self.changeset_of(spelled).await.map_err(|error| error.message)?;
        let changes = self.changes().map_err(|error| error.message)?;
        let scopes = changes.scopes.within(limit::DIRECTORY, (of.session.changes_of(),)).await;
        let scopes = scopes.map_err(|why| why.message)?;
        if !scopes.iter().any(|scope| scope.scope == of.scope && scope.review) {
            return Err(format!("{spelled} does not support reviews"));
        }
        let name = action.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let action = actions::read(action).map_err(|error| error.to_string())?;
        if !matches!(action, a::StateAction::ChangesetFilesReviewChanged(_)) {
            return Err(does_not_belong(&name, "a changeset"));
        }
        self.apply_changeset(&of.uri, &action, Some(origin));
        let files = self.changesets.0.lock().get(&of.uri).map(|state| {
            let reviewed = state.files.iter().filter(|file| file.reviewed == Some(true)).take(REVIEWED);
            reviewed.map(|file| (file.id.clone(), Value::from(fingerprint(file)))).collect()
        });
        if let (Some(files), Some(sessions)) = (files, self.sessions()) {
            sessions.keep_reviewed(&*of.session, of.scope.clone(), files);
        }
        Ok(())
    }
}

/// Returns a short text that changes with the change of a file.
fn fingerprint(file: &ChangesetFile) -> String {
    let text = serde_json::to_string(&file.edit).unwrap_or_default();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Merges the content of a changeset with the users' marks on unchanged files, held or stored, and the status of
/// operations.
fn state_of(told: ChangesState, before: Option<&ChangesetState>, stored: &JsonObject) -> ChangesetState {
    let mut files = told.files;
    for file in &mut files {
        let held = before.and_then(|before| before.files.iter().find(|held| held.id == file.id));
        if let Some(held) = held.filter(|held| held.edit == file.edit) {
            file.reviewed = held.reviewed;
        } else if stored.get(&file.id).is_some_and(|mark| mark.as_str() == Some(&fingerprint(file))) {
            file.reviewed = Some(true);
        }
    }
    let mut operations = told.operations;
    for operation in operations.iter_mut().flatten() {
        let held =
            before.and_then(|before| before.operations.iter().flatten().find(|held| held.id == operation.id));
        // The host determines which operations run or failed.
        if let Some(held) = held
            && operation.status == ChangesetOperationStatus::Idle
            && matches!(held.status, ChangesetOperationStatus::Running | ChangesetOperationStatus::Error)
        {
            operation.status = held.status.clone();
            operation.error.clone_from(&held.error);
        }
    }
    ChangesetState { status: ChangesetStatus::Ready, error: None, files, operations }
}

fn error_of(why: &Thrown) -> ErrorInfo {
    ErrorInfo { error_type: "changes".to_owned(), message: why.message.clone(), stack: None, meta: None }
}

/// Checks that an operation can run on a target now.
fn fits(
    operation: &ChangesetOperation,
    target: Option<&c::ChangesetOperationTarget>,
) -> Result<(), RpcError> {
    let (scope, word) = match target {
        None => (ChangesetOperationScope::Changeset, "the whole changeset"),
        Some(c::ChangesetOperationTarget::Resource { .. }) => (ChangesetOperationScope::Resource, "a file"),
        Some(c::ChangesetOperationTarget::Range { .. }) => {
            (ChangesetOperationScope::Range, "lines of a file")
        }
        Some(c::ChangesetOperationTarget::Unknown(_)) => {
            return Err(RpcError::invalid_params("target.kind must be resource or range"));
        }
    };
    if !operation.scopes.contains(&scope) {
        return Err(RpcError::invalid_params(format!("{} does not apply to {word}", operation.id)));
    }
    match operation.status {
        ChangesetOperationStatus::Disabled => {
            Err(RpcError::invalid_params(format!("{} cannot be run now", operation.id)))
        }
        ChangesetOperationStatus::Running => {
            Err(RpcError::invalid_params(format!("{} is running already", operation.id)))
        }
        _ => Ok(()),
    }
}
