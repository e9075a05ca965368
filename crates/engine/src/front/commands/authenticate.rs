//! `authenticate`: tokens for the resources that the host requests, and the identity of a connection.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::Event;
use ostler_contract::points::Agent;
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_sessions::lending::{check_tokens, require_token};
use ostler_engine_users::users::principal::Principal;
use ostler_engine_users::users::{Credential, People};
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::ProtectedResourceMetadata;
use ostler_protocol::{RpcError, json};
use tokio::time::Instant;

use crate::front::connection::Connection;

/// The result of a token for the host itself.
enum SignIn {
    /// The identity of the connection stays.
    Stays,
    /// The connection becomes this principal.
    As(Principal),
    /// The host did not issue the token.
    Unknown,
}

fn nobodys(people: &People) -> RpcError {
    RpcError::auth_required("no user of this host has this token; ask its operator for a new one")
        .with_data(json!({ "resources": [people.sign_in()] }))
}

/// Returns the lifetime of a token, if it is known.
fn lasts(seconds: Option<i64>) -> Result<Option<Duration>, RpcError> {
    match seconds {
        None => Ok(None),
        Some(seconds) => match u64::try_from(seconds) {
            Ok(seconds) if seconds > 0 => Ok(Some(Duration::from_secs(seconds))),
            _ => Err(RpcError::invalid_params("expiresIn must be a number of seconds above 0")),
        },
    }
}

impl Connection {
    pub(super) fn handle_authenticate(self: &Arc<Self>, params: c::AuthenticateParams, responder: Responder) {
        let lasts = match lasts(params.expires_in) {
            Ok(lasts) => lasts,
            Err(refused) => return responder.fail(refused),
        };
        let front = self.front().clone();
        let people =
            front.access.gate.people().filter(|people| people.resource() == params.resource).cloned();
        let Some(people) = people else {
            let kept = self.keep_for(&params).map(|(record, nth)| {
                self.given(&params, record, Some(nth), lasts);
                json!({})
            });
            return responder.settle(kept);
        };
        match self.sign_in(&people, &params.token) {
            Ok(SignIn::Stays) => {
                self.given(&params, people.sign_in(), None, lasts);
                responder.ok(&json!({}));
            }
            Ok(SignIn::As(principal)) => {
                let by = match &principal {
                    Principal::Person(person) => people.credential_of(person, &params.token),
                    _ => Credential::default(),
                };
                self.signed_in(&people, &params, (principal, by), lasts);
                responder.ok(&json!({}));
            }
            Ok(SignIn::Unknown) => {
                let outbound = front.core.outbound().filter(|_| people.has_issuers()).cloned();
                if outbound.is_none() && !people.are_shared() {
                    return responder.fail(nobodys(&people));
                }
                let connection = self.clone();
                tasks::spawn(async move {
                    if front.access.gate.learn().await
                        && let Some(person) = people.person_of_token(&params.token)
                    {
                        let by = people.credential_of(&person, &params.token);
                        connection.signed_in(&people, &params, (Principal::Person(person), by), lasts);
                        return responder.ok(&json!({}));
                    }
                    let mut found = None;
                    if let Some(outbound) = outbound {
                        let (person, lines) = people.person_by_issuer(&outbound, &params.token).await;
                        lines.into_iter().for_each(|line| front.core.log.warn(line));
                        found = person;
                    }
                    match (found, front.access.gate.check_users()) {
                        (Some((person, by)), _) => {
                            connection.signed_in(&people, &params, (Principal::Person(person), by), lasts);
                            responder.ok(&json!({}));
                        }
                        (None, Ok(())) => responder.fail(nobodys(&people)),
                        (None, Err(unread)) => responder.fail(unread),
                    }
                });
            }
            Err(refused) => responder.fail(refused),
        }
    }

    /// Returns whether the connection has the tokens that an agent requires. Work of plugins uses the agent's own
    /// credentials.
    pub(super) fn check_tokens(&self, agent: Option<&Agent>) -> Result<(), RpcError> {
        match agent.filter(|_| !matches!(self.principal(), Principal::Plugin { .. })) {
            Some(agent) => check_tokens(agent, &self.credentials().unwrap_or_default()),
            None => Ok(()),
        }
    }

    /// Stores a token for a resource of a backend.
    fn keep_for(&self, params: &c::AuthenticateParams) -> Result<(ProtectedResourceMetadata, u64), RpcError> {
        let agents = self.front().core.root.agents();
        let asked = agents.iter().flat_map(|agent| agent.protected_resources.iter().flatten());
        let record = asked.into_iter().find(|asked| asked.resource == params.resource).cloned();
        let record = record.ok_or_else(|| {
            RpcError::invalid_params(format!("{} is not a resource this host asks for", params.resource))
        })?;
        Ok((record, self.keep_credential(&params.resource, &params.token)))
    }

    /// Schedules the end of an accepted token and raises the event.
    fn given(
        self: &Arc<Self>,
        params: &c::AuthenticateParams,
        record: ProtectedResourceMetadata,
        nth: Option<u64>,
        lasts: Option<Duration>,
    ) {
        if let (Some(nth), Some(lasts), false) = (nth, lasts, params.token.is_empty()) {
            self.expire(record, nth, lasts);
        }
        self.front().core.events.raise(Event::Authenticated {
            client: self.client_id().unwrap_or_default(),
            resource: params.resource.clone(),
        });
    }

    fn signed_in(
        self: &Arc<Self>,
        people: &People,
        params: &c::AuthenticateParams,
        (principal, by): (Principal, Credential),
        lasts: Option<Duration>,
    ) {
        let nth = self.become_principal(people.resource(), principal.clone(), by.clone());
        if !by.is_valid() {
            // Users changed meanwhile, and who looked at all connections then did not see this.
            self.lose_identity();
        }
        self.drop_forbidden();
        if let Principal::Person(person) = &principal {
            self.front().access.record_sign_in(person);
        }
        self.given(params, people.sign_in(), Some(nth), lasts);
    }

    /// Returns the identity that a token gives the connection, as far as the host itself knows. An empty token removes
    /// the identity. The host itself and plugins keep theirs.
    fn sign_in(&self, people: &People, token: &str) -> Result<SignIn, RpcError> {
        match self.principal() {
            Principal::Root => return Ok(SignIn::Stays),
            Principal::Plugin { id, .. } => {
                return Err(RpcError::permission_denied(format!(
                    "the connection of plugin {id} cannot sign in as a user"
                )));
            }
            Principal::Anyone | Principal::Person(_) => {}
        }
        Ok(match people.person_of_token(token) {
            _ if token.is_empty() => SignIn::As(Principal::Anyone),
            Some(person) => SignIn::As(Principal::Person(person)),
            None => SignIn::Unknown,
        })
    }

    /// Ends the identity from a token at its expiry, and notifies only this connection.
    fn expire(self: &Arc<Self>, record: ProtectedResourceMetadata, nth: u64, lasts: Duration) {
        // A lifetime beyond the range of the clock is unlimited.
        let Some(end) = Instant::now().checked_add(lasts) else { return };
        let connection = Arc::downgrade(self);
        tasks::spawn(async move {
            tokio::time::sleep_until(end).await;
            let Some(connection) =
                connection.upgrade().filter(|open| open.still_spends(&record.resource, nth))
            else {
                return;
            };
            let people = connection.front().access.gate.people();
            if people.is_some_and(|people| people.resource() == record.resource) {
                connection.lose_identity();
                return connection.drop_forbidden();
            }
            connection.keep_credential(&record.resource, "");
            connection.ask_again(&record);
        });
    }

    /// Ends the identity of the connection and asks its client to sign in again.
    pub(crate) fn lose_identity(&self) {
        let Some(people) = self.front().access.gate.people() else { return };
        self.become_principal(people.resource(), Principal::Anyone, Credential::default());
        self.ask_again(&people.sign_in());
    }

    /// Notifies this connection that a token has ended.
    fn ask_again(&self, record: &ProtectedResourceMetadata) {
        require_token(&self.outbox, record, "expired");
    }
}
