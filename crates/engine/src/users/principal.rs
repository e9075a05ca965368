//! Who a connection is, and the one gate every command, action and subscription passes.

use std::sync::Arc;

use ostler_contract::points::Reader;
use ostler_protocol::grants::Grant;
use ostler_protocol::{RpcError, json};

use crate::users::{People, Person};

/// Who a connection is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Principal {
    /// Nobody in particular: everybody, on a host with no users directory.
    #[default]
    Anyone,
    /// The host itself: the deployment token, a stdio peer.
    Root,
    /// A plugin's own connection.
    Plugin {
        /// The plugin's id.
        id: String,
        /// The grants of its configuration entry.
        grants: Arc<[Grant]>,
    },
    /// Somebody signed in.
    Person(Arc<Person>),
}

impl Principal {
    /// Whose work this principal starts, on a host that knows people: `user:<id>`, `plugin:<id>`,
    /// `root:<host>`.
    pub fn owner(&self, host_name: &str) -> Option<String> {
        match self {
            Self::Anyone => None,
            Self::Root => Some(format!("root:{host_name}")),
            Self::Plugin { id, .. } => Some(format!("plugin:{id}")),
            Self::Person(person) => Some(format!("user:{}", person.id)),
        }
    }

    /// Whether every grant is held.
    pub fn is_administrator(&self) -> bool {
        self.holds(&Grant::of("*", "*"))
    }

    /// What a plugin is told of the principal; the root connection and nobody are told of as nobody.
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

    /// The name in a refusal: `<name> may not session:create here`.
    pub fn name(&self) -> String {
        match self {
            Self::Anyone => "nobody".to_owned(),
            Self::Root => "root".to_owned(),
            Self::Plugin { id, .. } => format!("plugin:{id}"),
            Self::Person(person) => person.id.clone(),
        }
    }
}

/// The gate. On a host with no users directory it is open.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Whether the host knows people.
    pub guarded: bool,
    people: Option<Arc<People>>,
}

impl Gate {
    /// The gate of a host that knows people.
    pub fn of(people: Arc<People>) -> Self {
        Self { guarded: true, people: Some(people) }
    }

    /// The people it knows.
    pub fn people(&self) -> Option<&Arc<People>> {
        self.people.as_ref()
    }

    /// Who a principal is now: a person's record may have changed, or be gone.
    pub fn now(&self, principal: Principal) -> Principal {
        let Principal::Person(person) = &principal else { return principal };
        let known =
            self.people.as_ref().and_then(|people| people.now().person_claiming(&person.id, &person.claimed));
        known.map_or(Principal::Anyone, Principal::Person)
    }

    /// Who comes in by the token of the host itself, or over a pipe of its own.
    pub fn root(&self) -> Principal {
        if self.guarded { Principal::Root } else { Principal::Anyone }
    }

    /// Who comes in by a person's token: `None` where it is nobody's. The token admits; who it admits is said by
    /// `authenticate`, unless the host takes it for the person's word.
    pub fn by_token(&self, token: &str) -> Option<Principal> {
        let people = self.people.as_ref()?;
        let person = people.person_of_token(token)?;
        Some(if people.trusts_token_of(&person) { Principal::Person(person) } else { Principal::Anyone })
    }

    /// Lets a principal through that holds what is asked.
    ///
    /// # Errors
    /// `-32009` where somebody lacks it, `-32007` where nobody has signed in.
    pub fn require(&self, principal: &Principal, asked: &Grant) -> Result<(), RpcError> {
        if !self.guarded || principal.holds(asked) {
            return Ok(());
        }
        if *principal == Principal::Anyone {
            let refusal =
                RpcError::auth_required(format!("sign in first: {asked} is not open to everybody here"));
            return Err(match &self.people {
                Some(people) => refusal.with_data(json!({ "resources": [people.sign_in()] })),
                None => refusal,
            });
        }
        Err(RpcError::permission_denied(format!("{} may not {asked} here", principal.name())))
    }

    /// Lets a principal through that may `verb` what an owner has: the owner, a member of the owning team or project,
    /// and who holds everything. What has no owner is the host's. The operation's grant is asked beside this.
    ///
    /// # Errors
    /// `-32009` for everybody else.
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
        match !self.guarded || principal.is_administrator() || belongs() {
            true => Ok(()),
            false => Err(RpcError::permission_denied(format!(
                "Only the owner of {what}, a member of its team or project, an admin or this host may {verb} it"
            ))),
        }
    }
}
