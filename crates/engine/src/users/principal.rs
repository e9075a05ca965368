//! Who a connection is, and the one gate every command, action and subscription passes.

use std::sync::Arc;

use ostler_contract::points::Reader;
use ostler_protocol::grants::Grant;
use ostler_protocol::{RpcError, json};

use crate::host::Host;
use crate::users::{GROUP_ROLE, People, Person};

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

impl Host {
    /// Whether the owner of some work may do what is asked. On a host with no users directory everybody may.
    pub fn may(&self, owner: &str, asked: &Grant) -> bool {
        self.grants_of(owner).is_none_or(|held| held.iter().any(|held| held.covers(asked)))
    }

    /// Refuses work its owner may not do.
    pub(crate) fn require_of(&self, owner: &str, asked: &Grant) -> Result<(), RpcError> {
        match self.may(owner, asked) {
            true => Ok(()),
            false => Err(RpcError::permission_denied(format!("{owner} may not {asked} here"))),
        }
    }

    /// What an owner holds; `None` where nothing is asked. A team and a project hold what their role gives.
    fn grants_of(&self, owner: &str) -> Option<Arc<[Grant]>> {
        if !self.gate.guarded {
            return None;
        }
        match owner.split_once(':') {
            Some(("root", _)) => None,
            Some(("plugin", id)) => {
                let plugins = self.registry().map(|registry| registry.plugins()).unwrap_or_default();
                let plugin = plugins.iter().find(|plugin| **plugin.id() == *id);
                Some(plugin.map(|plugin| plugin.caller().grants.clone()).unwrap_or_default())
            }
            Some(("user", id)) => {
                Some(self.person(id).map(|person| person.grants.clone().into()).unwrap_or_default())
            }
            _ => Some(
                self.gate.people().map(|people| people.now().group_grants(owner).into()).unwrap_or_default(),
            ),
        }
    }

    /// Whether the work of an owner may see what another owner has. A team and a project see their own alone; everybody
    /// else sees what their grants say.
    pub(crate) fn sees_of(&self, owner: &str, other: Option<&str>) -> bool {
        if !self.gate.guarded || !is_group(owner) {
            return true;
        }
        self.reader_for(owner).zip(other).is_some_and(|(reader, other)| reader.belongs_to(other))
    }

    /// Whose work a principal starts; nobody's on a host with no users directory, but a plugin's is always the plugin's.
    pub(crate) fn owner_of(&self, principal: &Principal) -> Option<String> {
        match (principal, self.gate.guarded) {
            (Principal::Plugin { .. }, _) | (_, true) => principal.owner(&self.options.host_name),
            _ => None,
        }
    }

    /// The person of an id, as the host knows them now.
    pub(crate) fn person(&self, id: &str) -> Option<Arc<Person>> {
        self.gate.people()?.now().person(id)
    }

    /// Whether an owner's work may start by itself: a person has to have been here once. Everybody else is no
    /// person.
    pub fn has_been_here(&self, owner: &str) -> bool {
        match owner.strip_prefix("user:") {
            Some(id) if self.gate.guarded => self.person(id).is_some_and(|person| person.has_signed_in),
            _ => true,
        }
    }

    /// Records that a user signed in, whichever way: work of theirs starts by itself only after the first time.
    pub fn record_sign_in(&self, person: &Person) {
        let (Some(people), Some(host)) = (self.gate.people(), self.me()) else { return };
        if person.has_signed_in {
            return;
        }
        let (id, at) = (person.id.clone(), self.clock.iso());
        let who = id.clone();
        let recorded = people.change(Box::new(move |file| file.set_signed_in(&id, &at)));
        tokio::spawn(async move {
            if let Err(why) = recorded.await {
                host.log.line(format_args!("the first sign-in of user {who} could not be recorded: {why}"));
            }
        });
    }

    /// What a plugin is told of an owner it serves; the host itself and nobody are told of as nobody.
    pub(crate) fn reader_for(&self, owner: &str) -> Option<Reader> {
        let grants = self.grants_of(owner)?;
        if let Some(person) = owner.strip_prefix("user:").and_then(|id| self.person(id)) {
            return Some(person.reader.clone());
        }
        let (mut roles, mut memberships) = (Vec::new(), Vec::new());
        if let Some((_, scope)) = owner.split_once(':').filter(|_| is_group(owner) && !grants.is_empty()) {
            roles.push(GROUP_ROLE.to_owned());
            memberships.push(scope.to_owned());
        }
        let grants = grants.iter().map(ToString::to_string).collect();
        Some(Reader { id: owner.to_owned(), roles, memberships, grants })
    }
}

/// Whether an owner is a team or a project.
fn is_group(owner: &str) -> bool {
    owner.starts_with("team:") || owner.starts_with("project:")
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
