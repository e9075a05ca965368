//! Principals, and the authorization of every command, action and subscription.

use std::sync::Arc;

use ostler_contract::points::Reader;
use ostler_protocol::grants::Grant;
use ostler_protocol::{RpcError, json};

use crate::users::{People, Person};

/// The identity of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Principal {
    /// Anonymous, such as every client of a host without a users file.
    #[default]
    Anyone,
    /// The host itself: a client with the connection token, or a stdio peer.
    Root,
    /// A plugin's connection.
    Plugin {
        /// The plugin's id.
        id: String,
        /// The grants of its configuration entry.
        grants: Arc<[Grant]>,
    },
    /// A signed-in user.
    Person(Arc<Person>),
}

impl Principal {
    /// Returns the owner of this principal's work on a host with a users file: `user:<id>`, `plugin:<id>`,
    /// `root:<host>`.
    pub fn owner(&self, host_name: &str) -> Option<String> {
        match self {
            Self::Anyone => None,
            Self::Root => Some(format!("root:{host_name}")),
            Self::Plugin { id, .. } => Some(format!("plugin:{id}")),
            Self::Person(person) => Some(format!("user:{}", person.id)),
        }
    }

    /// Returns whether it has all grants.
    pub fn is_administrator(&self) -> bool {
        self.holds(&Grant::of("*", "*"))
    }

    /// Returns the principal in the form for plugins; `None` for the root connection and anonymous ones.
    pub fn reader(&self) -> Option<Reader> {
        match self {
            Self::Anyone | Self::Root => None,
            Self::Plugin { id, grants } => Some(Reader {
                id: format!("plugin:{id}"),
                grants: grants.iter().map(ToString::to_string).collect(),
                ..Reader::default()
            }),
            Self::Person(person) => Some(person.reader.clone()),
        }
    }

    fn holds(&self, asked: &Grant) -> bool {
        match self {
            Self::Anyone => false,
            Self::Root => true,
            Self::Plugin { grants, .. } => grants.iter().any(|held| held.covers(asked)),
            Self::Person(person) => person.grants.iter().any(|held| held.covers(asked)),
        }
    }

    /// Returns the name in errors: `<name> may not session:create here`.
    pub fn name(&self) -> String {
        match self {
            Self::Anyone => "nobody".to_owned(),
            Self::Root => "root".to_owned(),
            Self::Plugin { id, .. } => format!("plugin:{id}"),
            Self::Person(person) => person.id.clone(),
        }
    }
}

/// The check of grants. On a host without a users file it allows everything.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    people: Option<Arc<People>>,
}

impl Gate {
    /// Creates the check for a host with a users file.
    pub fn of(people: Arc<People>) -> Self {
        Self { people: Some(people) }
    }

    /// Returns whether grants are checked.
    pub fn is_guarded(&self) -> bool {
        self.people().is_some()
    }

    /// Returns the users, if the host has a users file.
    pub fn people(&self) -> Option<&Arc<People>> {
        self.people.as_ref().filter(|people| people.are_in_force())
    }

    /// Returns the current principal: a user's record may have changed or been removed.
    pub fn now(&self, principal: Principal) -> Principal {
        let Principal::Person(person) = &principal else { return principal };
        let known =
            self.people().and_then(|people| people.now().person_claiming(&person.id, &person.claimed));
        known.map_or(Principal::Anyone, Principal::Person)
    }

    /// Returns the users, also before there is a users file.
    pub(crate) fn stored_people(&self) -> Option<&Arc<People>> {
        self.people.as_ref()
    }

    /// Returns the principal of a client with the connection token, or on stdio.
    pub fn root(&self) -> Principal {
        if self.is_guarded() { Principal::Root } else { Principal::Anyone }
    }

    /// Returns the principal of a client with a personal token; `None` for an unknown token. The token only opens the
    /// connection, and `authenticate` sets the user, unless the host treats it as authentication.
    pub fn by_token(&self, token: &str) -> Option<Principal> {
        let people = self.people()?;
        let person = people.person_of_token(token)?;
        Some(if people.trusts_token_of(&person) { Principal::Person(person) } else { Principal::Anyone })
    }

    /// Checks that a principal has a grant.
    ///
    /// # Errors
    /// `-32009` if a user does not have it, `-32007` if no user has signed in.
    pub fn require(&self, principal: &Principal, asked: &Grant) -> Result<(), RpcError> {
        if !self.is_guarded() || principal.holds(asked) {
            return Ok(());
        }
        if *principal == Principal::Anyone {
            let refusal =
                RpcError::auth_required(format!("sign in first: {asked} is not open to everybody here"));
            return Err(match self.people() {
                Some(people) => refusal.with_data(json!({ "resources": [people.sign_in()] })),
                None => refusal,
            });
        }
        Err(RpcError::permission_denied(format!("{} may not {asked} here", principal.name())))
    }

    /// Checks that a principal can `verb` the work of an owner: the owner, a member of the owning team or project, or a
    /// principal with all grants. Work without an owner belongs to the host. The grant of the operation is checked
    /// separately.
    ///
    /// # Errors
    /// `-32009` for all others.
    pub fn require_owned(
        &self,
        principal: &Principal,
        owner: Option<&str>,
        verb: &str,
        what: &str,
    ) -> Result<(), RpcError> {
        let belongs = || {
            let reader = principal.reader();
            reader.zip(owner).is_some_and(|(reader, owner)| reader.belongs_to(owner))
        };
        match !self.is_guarded() || principal.is_administrator() || belongs() {
            true => Ok(()),
            false => Err(RpcError::permission_denied(format!(
                "Only the owner of {what}, a member of its team or project, an admin or this host may {verb} it"
            ))),
        }
    }
}
