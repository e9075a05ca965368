//! Tokens that clients lend to the chats they created. A chat's backend receives them at its start, and again when the
//! client pushes a new one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_contract::json;
use ostler_contract::owner::Owner;
use ostler_contract::points::{Agent, Lender};
use ostler_contract::registry::Owned;
use ostler_engine_core::message::run_of;
use ostler_engine_core::outbox::Outbox;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::grants::Grant;
use ostler_protocol::message::encode;
use ostler_protocol::wire::state::ProtectedResourceMetadata;
use ostler_protocol::{RpcError, uri};

use super::actor::Actor;
use super::backend::Tell;
use super::chat::Chat;
use super::client_actions::{Refused, refuse};
use super::deferred::DeferredPart;
use super::mailbox::{Dispatch, ToSession};
use super::{Resting, SessionEntry, Sessions};

/// Tokens by protected resource.
pub(super) type Tokens = BTreeMap<String, String>;

/// The tokens that the creators of a session and of its chats lent, by creator.
#[derive(Default)]
pub(super) struct LentTokens(Vec<(Lender, Tokens)>);

impl fmt::Debug for LentTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(lender, _)| lender)).finish()
    }
}

impl LentTokens {
    fn of(&self, lender: &Lender) -> Option<&Tokens> {
        self.0.iter().find(|(known, _)| known == lender).map(|(_, tokens)| tokens)
    }

    fn entry(&mut self, lender: &Lender) -> &mut Tokens {
        let at = match self.0.iter().position(|(known, _)| known == lender) {
            Some(at) => at,
            None => {
                self.0.push((lender.clone(), Tokens::new()));
                self.0.len() - 1
            }
        };
        &mut self.0[at].1
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, tokens)| tokens.is_empty())
    }
}

impl SessionEntry {
    /// Returns the client that created the session.
    pub(super) fn lender(&self) -> Option<Lender> {
        let client = self.client.clone()?;
        Some(Lender { client, owner: self.owner.clone() })
    }

    /// Returns the token that the session's creator lent for a resource.
    pub fn token_of(&self, resource: &str) -> Option<String> {
        self.lent_tokens.lock().of(&self.lender()?)?.get(resource).cloned()
    }

    /// Stores the tokens of a client that creates the session or a chat.
    pub(super) fn borrow(&self, lender: &Lender, tokens: Tokens) {
        self.lent_tokens.lock().entry(lender).extend(tokens);
    }

    /// Copies the tokens that a client lent another session, one of whose chats is moved here.
    pub(super) fn borrow_from(&self, other: &Self, lender: &Lender) {
        let tokens = other.lent_tokens.lock().of(lender).cloned().unwrap_or_default();
        self.borrow(lender, tokens);
    }

    /// Stores a token of a client that created the session or one of its chats, or removes it if it is empty. Returns
    /// whether the client is such a creator.
    fn take_token(&self, lender: &Lender, resource: &str, token: &str) -> bool {
        let mut lent = self.lent_tokens.lock();
        if lent.of(lender).is_none() && self.lender().as_ref() != Some(lender) {
            return false;
        }
        match token.is_empty() {
            true => drop(lent.entry(lender).remove(resource)),
            false => drop(lent.entry(lender).insert(resource.to_owned(), token.to_owned())),
        }
        true
    }
}

impl Sessions {
    /// Passes a token that a client pushed to the chats that it created. A revoked token is not given to backends that
    /// start from then on; running backends keep it.
    pub fn lend(self: &Arc<Self>, lender: &Lender, resource: &str, token: &str) {
        if !token.is_empty() && !self.may_lend(lender) {
            return;
        }
        for entry in self.all() {
            if !entry.take_token(lender, resource, token) || token.is_empty() {
                continue;
            }
            // A sleeping session reads the token when it wakes, which it does for a message that waits for the token.
            let (lender, resource, token) = (lender.clone(), resource.to_owned(), token.to_owned());
            let lent = ToSession::TokenLent { lender, resource, token };
            let is_awake = matches!(&*entry.mailbox.lock(), Resting::Open(..));
            if is_awake || entry.waits_for_token.load(Ordering::Acquire) {
                self.tell(&entry, lent);
            }
        }
    }

    /// Forgets the tokens of users who may no longer start sessions, after users have changed.
    pub fn review_lent_tokens(&self) {
        for entry in self.all() {
            entry.lent_tokens.lock().0.retain(|(lender, _)| self.may_lend(lender));
        }
    }

    /// Returns whether the user of a client may still start sessions.
    fn may_lend(&self, lender: &Lender) -> bool {
        let asked = Grant::of("session", "create");
        lender.owner.as_ref().is_none_or(|owner| self.access.require_still(owner, &asked).is_ok())
    }

    /// Returns the tokens that a client currently lends a chat: the stored ones, overridden by those of its open
    /// connections.
    fn lent_by(&self, entry: &SessionEntry, lender: &Lender) -> Tokens {
        if !self.may_lend(lender) {
            return Tokens::new();
        }
        let mut tokens = entry.lent_tokens.lock().of(lender).cloned().unwrap_or_default();
        let mut open = self.access.clients.open();
        // The newest connection takes precedence.
        open.sort_by_key(|open| open.id());
        for open in open {
            if open.client_id().as_ref() == Some(&lender.client) && open.owner() == lender.owner {
                tokens.extend(open.credentials());
            }
        }
        tokens
    }
}

/// Returns the resources that an agent requires and for which there is no token.
fn lacking<'a>(agent: &'a Agent, tokens: &Tokens) -> Vec<&'a ProtectedResourceMetadata> {
    let asked = agent.protected_resources.iter().flatten();
    asked.filter(|asked| asked.required != Some(false) && !tokens.contains_key(&asked.resource)).collect()
}

/// Checks that there is a token for each resource that an agent requires.
///
/// # Errors
/// AHP's error for a missing token, with those resources.
pub fn check_tokens(agent: &Agent, tokens: &Tokens) -> Result<(), RpcError> {
    let lacking = lacking(agent, tokens);
    let Some(first) = lacking.first() else { return Ok(()) };
    let name = first.resource_name.as_ref().unwrap_or(&first.resource);
    let why = format!("{name} needs a token for {}; push one with authenticate", first.resource);
    Err(RpcError::auth_required(why).with_data(json!({ "resources": lacking })))
}

/// Tells a connection that a resource needs a token. `reason` is that of AHP.
pub fn require_token(outbox: &Outbox, resource: &ProtectedResourceMetadata, reason: &str) {
    let params = json!({ "channel": uri::ROOT, "resource": resource, "reason": reason });
    if let Ok(frame) = encode::notification("auth/required", &params) {
        outbox.send(frame);
    }
}

impl Actor {
    fn lender_of(&self, chat: &Chat) -> Option<Lender> {
        chat.lender.as_deref().cloned().or_else(|| self.entry.lender())
    }

    /// Returns the tokens that a chat's backend starts with.
    pub(super) fn lent_to(&self, chat: &Chat) -> Option<Tokens> {
        let asks = |resources: &Vec<_>| !resources.is_empty();
        self.agent.as_ref()?.protected_resources.as_ref().filter(|resources| asks(resources))?;
        let tokens = self.sessions.lent_by(&self.entry, &self.lender_of(chat)?);
        (!tokens.is_empty()).then_some(tokens)
    }

    /// Returns the agent of a chat whose backend would start without a token that it requires, and the client whose tokens it
    /// gets. Work of plugins and automations uses the agent's own credentials.
    fn lacks_tokens(&self, at: usize) -> Option<(Owned<Agent>, Lender)> {
        let chat = &self.chats[at];
        if chat.backend.as_ref().is_some_and(|backend| !backend.is_dead()) {
            return None;
        }
        let (agent, lender) = (self.agent.clone()?, self.lender_of(chat)?);
        if matches!(lender.owner.as_deref().and_then(Owner::parse), Some(Owner::Plugin(_))) {
            return None;
        }
        let asks = agent.protected_resources.as_ref().is_some_and(|asked| !asked.is_empty());
        let lacks = asks && !lacking(&agent, &self.sessions.lent_by(&self.entry, &lender)).is_empty();
        lacks.then_some((agent, lender))
    }

    /// Checks that a chat's backend has the tokens that it requires, or would have them if it started now. Where the lender has
    /// none, another client of its user becomes the lender, and is asked for a token if it has none either.
    pub(super) fn check_tokens_for(&mut self, at: usize, dispatch: &Dispatch) -> Refused {
        let Some((agent, lender)) = self.lacks_tokens(at) else { return Ok(()) };
        let client = self.sessions.access.clients.get(dispatch.connection.id);
        if client.as_ref().is_some_and(|client| matches!(client.principal(), Principal::Plugin { .. })) {
            return Ok(());
        }
        let client = client.filter(|client| client.owner() == lender.owner);
        let tokens = match client.as_ref().and_then(|client| client.client_id()) {
            Some(client) => {
                let lender = Lender { client, owner: lender.owner };
                // Its next token is for this session as well.
                self.entry.borrow(&lender, Tokens::new());
                let tokens = self.sessions.lent_by(&self.entry, &lender);
                if Some(&lender) != self.lender_of(&self.chats[at]).as_ref() {
                    self.chats[at].lender = Some(Box::new(lender));
                    self.deferred.add(DeferredPart::Chats);
                    self.forget_lenders();
                }
                tokens
            }
            None => self.sessions.lent_by(&self.entry, &lender),
        };
        match check_tokens(&agent, &tokens) {
            Ok(()) => Ok(()),
            Err(why) => {
                if client.is_some() {
                    for resource in lacking(&agent, &tokens) {
                        require_token(&dispatch.connection.outbox, resource, "required");
                    }
                }
                refuse(why.message)
            }
        }
    }

    /// Forgets clients that lend nothing and are asked for nothing any more.
    fn forget_lenders(&self) {
        let asked: Vec<Lender> = self.chats.iter().filter_map(|chat| self.lender_of(chat)).collect();
        let mut lent = self.entry.lent_tokens.lock();
        lent.0.retain(|(lender, tokens)| !tokens.is_empty() || asked.contains(lender));
    }

    /// Whether a message waits for a token of the client that lends them to its chat, which is asked for one.
    pub(super) fn waits_for_token(&self, at: usize) -> bool {
        let Some((agent, lender)) = self.lacks_tokens(at) else { return false };
        let tokens = self.sessions.lent_by(&self.entry, &lender);
        for open in self.sessions.access.clients.open() {
            if open.client_id().as_ref() == Some(&lender.client) && open.owner() == lender.owner {
                for resource in lacking(&agent, &tokens) {
                    require_token(open.outbox(), resource, "required");
                }
            }
        }
        true
    }

    /// Whether the first queued message of a chat waits for a token.
    pub(super) fn any_waits_for_token(&self) -> bool {
        (0..self.chats.len()).any(|at| {
            let first = self.first_queued(at).filter(|first| run_of(&first.message).is_none());
            first.is_some() && self.lacks_tokens(at).is_some()
        })
    }

    /// Checks that a chat's backend has the tokens that it requires, for work that the host begins.
    pub(super) fn check_own_tokens(&self, at: usize) -> Result<(), String> {
        let Some((agent, lender)) = self.lacks_tokens(at) else { return Ok(()) };
        check_tokens(&agent, &self.sessions.lent_by(&self.entry, &lender)).map_err(|why| why.message)
    }

    /// Sends a token that a client pushed to the backends of that client's chats.
    pub(super) fn take_lent(&self, lender: &Lender, resource: &str, token: &str) {
        for (at, chat) in self.chats.iter().enumerate() {
            if !chat.is_worker() && self.lender_of(chat).as_ref() == Some(lender) {
                let (resource, token) = (resource.to_owned(), token.to_owned());
                self.tell_if_awake(at, Tell::Authenticated { resource, token });
            }
        }
    }
}
