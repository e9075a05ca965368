//! Commands for pull requests of sessions.

use std::sync::Arc;

use ostler_contract::points::{PullRequestRequest, PullRequests};
use ostler_contract::{Thrown, limit};
use ostler_engine_core::refusals::nothing_at;
use ostler_protocol::own::PullRequestCreateParams;
use ostler_protocol::wire::commands::{InvokeChangesetOperationParams, InvokeChangesetOperationResult};
use ostler_protocol::{RpcError, Value, json};

use crate::front::connection::Connection;

impl Connection {
    /// `invokeChangesetOperation`
    pub(crate) async fn handle_changeset_operation(
        self: &Arc<Self>,
        params: InvokeChangesetOperationParams,
    ) -> Result<InvokeChangesetOperationResult, RpcError> {
        let own = |resource: &str| self.credentials().and_then(|mut tokens| tokens.remove(resource));
        self.front().sessions.operate(params, own).await
    }

    /// `x-ostler/pull-request/create`: creates a pull request for the branch of a session.
    pub(crate) async fn handle_pull_request(
        self: &Arc<Self>,
        params: PullRequestCreateParams,
    ) -> Result<Value, RpcError> {
        let front = self.front();
        let github = front.core.registry().and_then(|registry| registry.port::<PullRequests>());
        let github =
            github.ok_or_else(|| RpcError::method_not_found("this host cannot create pull requests"))?;
        let entry = front.sessions.session_at(&params.channel).await.known()?;
        let entry = entry.ok_or_else(|| nothing_at(&params.channel))?;
        let Some((directory, uri)) = entry.directory() else {
            return Err(RpcError::invalid_params(format!("{} has no directory", entry.uri)));
        };
        if params.title.trim().is_empty() {
            return Err(RpcError::invalid_params("title is empty"));
        }
        let facts = entry.view().summary.meta.clone().unwrap_or_default();
        let resource = &github.resource.0.resource;
        let own = self.credentials().and_then(|mut tokens| tokens.remove(resource));
        let request = PullRequestRequest {
            directory,
            branch: front.sessions.branch_of(&entry, &facts),
            token: own.or_else(|| entry.token_of(resource)),
            title: params.title,
            body: params.body,
            base: params.base,
            draft: params.draft,
        };
        let made = github.create.within(limit::PULL_REQUEST, (request,)).await.map_err(Thrown::into_rpc)?;
        let answer = json!(made);
        front.sessions.store_pull_request(&entry, &uri, &made).await;
        front.sessions.look_around(&entry, false);
        Ok(answer)
    }
}
