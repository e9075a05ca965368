//! The operation of a changeset that ends in a pull request.

use std::sync::Arc;

use ostler_contract::points::{BranchAsked, PullRequestRequest, PullRequestState, PullRequests};
use ostler_contract::{Thrown, limit};
use ostler_engine_core::refusals::nothing_at;
use ostler_protocol::wire::commands::{
    ChangesetOperationFollowUp, InvokeChangesetOperationParams, InvokeChangesetOperationResult,
};
use ostler_protocol::wire::common::StringOrMarkdown;
use ostler_protocol::wire::state::ContentRef;
use ostler_protocol::{RpcError, Value};

use super::Sessions;

/// The operation of a changeset after which a pull request is created.
pub const CREATE: &str = "create-pr";
/// The key of its `_meta` with the user's input.
const FORM: &str = "vscode.pullRequest";
/// The key under which a source of changes returns the form.
const JSON: &str = "data:application/json,";

impl Sessions {
    /// Runs an operation of a changeset. After `create-pr` has committed and pushed, creates a pull request unless there is
    /// one. `own` returns the caller's token for the code host with an address.
    pub async fn operate(
        self: &Arc<Self>,
        params: InvokeChangesetOperationParams,
        own: impl FnOnce(&str) -> Option<String>,
    ) -> Result<InvokeChangesetOperationResult, RpcError> {
        if params.operation_id != CREATE {
            return self.workspace.operate(params).await;
        }
        let none = "this host cannot create pull requests; add a plugin for them to its configuration, such as @ostler/github";
        let github = self.core.registry().and_then(|registry| registry.port::<PullRequests>());
        let github = github.ok_or_else(|| RpcError::invalid_params(none))?;
        let form = params.meta.as_ref().and_then(|meta| meta.get(FORM)).cloned().unwrap_or_default();
        let session = params.channel.split_once("/changeset/").map_or("", |(session, _)| session);
        let entry = self.session_at(session).await.known()?;
        let entry = entry.ok_or_else(|| nothing_at(&params.channel))?;
        let pushed = self.workspace.operate(params).await?;
        let told = told_form(pushed.follow_up.as_ref());
        let text = |key: &str, told_key: &str| {
            let typed = form.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
            typed.or_else(|| told.get(told_key)?.as_str()).map(str::to_owned)
        };
        let (directory, _) = entry.directory().ok_or_else(|| nothing_at(&entry.uri))?;
        let resource = &github.resource.0.resource;
        let asked = BranchAsked {
            directory,
            branch: told.get("branch").and_then(Value::as_str).map(str::to_owned),
            token: own(resource).or_else(|| entry.token_of(resource)),
        };
        let open = github.for_branch.within(limit::DIRECTORY, (asked.clone(),)).await;
        // What was pushed stays: the same operation can be run again.
        let branch = asked.branch.clone().unwrap_or_default();
        let failed = |why: Thrown| {
            let mut error = why.into_rpc();
            error.message = format!(
                "{}; the branch {branch} is committed, pushed and checked out; run the operation again for its pull request",
                error.message
            );
            error
        };
        let open = open.map_err(failed)?.filter(|found| found.state == PullRequestState::Open);
        let (message, found) = match open {
            Some(found) => ("Updated", found),
            None => {
                let request = PullRequestRequest {
                    directory: asked.directory,
                    branch: asked.branch,
                    token: asked.token,
                    title: text("title", "title").unwrap_or_else(|| entry.view().summary.title.clone()),
                    body: text("description", "body"),
                    base: text("base", "base"),
                    draft: form.get("draft").and_then(Value::as_bool).unwrap_or_default(),
                };
                let made = github.create.within(limit::PULL_REQUEST, (request,)).await;
                ("Created", made.map_err(failed)?)
            }
        };
        let url = found.url.clone();
        if let Some((_, uri)) = entry.directory() {
            self.store_pull_request(&entry, &uri, &found).await;
        }
        self.look_around(&entry, false);
        let content = ContentRef { uri: url.clone(), size_hint: None, content_type: None, nonce: None };
        Ok(InvokeChangesetOperationResult {
            message: Some(StringOrMarkdown::Plain(format!("{message} {url}"))),
            follow_up: Some(ChangesetOperationFollowUp { content, external: Some(true) }),
        })
    }
}

/// Returns the form from a source of changes, or an empty one.
fn told_form(told: Option<&ChangesetOperationFollowUp>) -> Value {
    let text = told.and_then(|told| told.content.uri.strip_prefix(JSON));
    let text = text.map(|text| percent_encoding::percent_decode_str(text).decode_utf8_lossy());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}
