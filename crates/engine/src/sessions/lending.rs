//! Tokens that clients lend to the chats they created. A chat's backend receives them at its start, and again when the
//! client pushes a new one.

use std::collections::BTreeMap;
use std::fmt;

use ostler_contract::points::Lender;
use ostler_protocol::grants::Grant;

use super::actor::Actor;
use super::backend::Tell;
use super::chat::Chat;
use super::mailbox::ToSession;
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
    pub(crate) fn token_of(&self, resource: &str) -> Option<String> {
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
    pub(crate) fn lend(&self, lender: &Lender, resource: &str, token: &str) {
        if !token.is_empty() && !self.may_lend(lender) {
            return;
        }
        for entry in self.all() {
            if !entry.take_token(lender, resource, token) || token.is_empty() {
                continue;
            }
            // A sleeping session reads the token when it wakes.
            if let Resting::Open(mailbox, _) = &*entry.mailbox.lock() {
                let (lender, resource, token) = (lender.clone(), resource.to_owned(), token.to_owned());
                let _ = mailbox.send(ToSession::TokenLent { lender, resource, token });
            }
        }
    }

    /// Forgets the tokens of users who may no longer start sessions, after users have changed.
    pub(crate) fn review_lent_tokens(&self) {
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
