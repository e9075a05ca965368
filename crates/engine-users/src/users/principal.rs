//! Principals, and the authorization of every command, action and subscription.

use std::sync::Arc;

use ostler_contract::points::Reader;
use ostler_engine_core::refusals::unread_users;
use ostler_protocol::grants::Grant;
use ostler_protocol::{RpcError, json};

use crate::users::{People, Person};

/// The name of clients without a user, and the owner of work that has none, in messages and for providers.
pub const ANONYMOUS: &str = "anonymous";

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
            Self::Anyone => ANONYMOUS.to_owned(),
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
        let known = self
            .people()
            .and_then(|people| people.now().person_claiming(&person.id, person.claimed.as_deref()));
        known.map_or(Principal::Anyone, Principal::Person)
    }

    /// Waits a moment until the host is sure who its users are, where other hosts change them too.
    ///
    /// # Errors
    /// They could not be read, so what the host knows of them may have been revoked. The request can be repeated.
    pub async fn settled(&self) -> Result<(), RpcError> {
        let Some(people) = self.people().filter(|people| !people.are_confirmed()) else { return Ok(()) };
        match people.watch_validity().settled().await {
            true => Ok(()),
            false => Err(unread_users()),
        }
    }

    /// Checks that the host is sure who its users are.
    ///
    /// # Errors
    /// As [`Self::settled`].
    pub fn check_users(&self) -> Result<(), RpcError> {
        match self.people().is_none_or(|people| people.are_confirmed()) {
            true => Ok(()),
            false => Err(unread_users()),
        }
    }

    /// Reads the users again before a token is refused as unknown, where another host may have added its user a moment ago.
    /// Returns whether they were read.
    pub async fn learn(&self) -> bool {
        let Some(people) = self.people().filter(|people| people.are_shared()) else { return false };
        people.reread().await;
        true
    }

    /// Returns the users, also before there is a users file.
    pub fn stored_people(&self) -> Option<&Arc<People>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::UsersFile;

    /// The users of a host: an admin, a member of a team, and a guest.
    fn people() -> Arc<People> {
        let people = People::new("https://inn.example", "inn");
        let file = json!({
            "teams": { "blue": {} },
            "projects": { "site": {} },
            "roles": { "reads": ["session:read"] },
            "users": [
                { "id": "ada", "roles": ["admin"] },
                { "id": "ben", "roles": ["reads"], "memberships": ["blue"] },
                { "id": "cy", "roles": ["reads"], "memberships": ["blue:site"] },
            ],
        });
        people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
        Arc::new(people)
    }

    fn person(people: &People, id: &str) -> Principal {
        Principal::Person(people.now().person(id).unwrap())
    }

    fn plugin(grants: &[Grant]) -> Principal {
        Principal::Plugin { id: "mine".to_owned(), grants: grants.into() }
    }

    #[test]
    fn an_administrator_has_all_grants() {
        let people = people();
        assert!(Principal::Root.is_administrator());
        assert!(person(&people, "ada").is_administrator());
        assert!(plugin(&[Grant::of("*", "*")]).is_administrator());
        assert!(!Principal::Anyone.is_administrator());
        assert!(!person(&people, "ben").is_administrator());
        assert!(!plugin(&[Grant::of("session", "*")]).is_administrator());
    }

    #[test]
    fn plugins_see_users_and_plugins_by_id_and_grants() {
        let reader = plugin(&[Grant::of("session", "read")]).reader().unwrap();
        assert_eq!((reader.id.as_str(), reader.grants), ("plugin:mine", vec!["session:read".to_owned()]));
        assert_eq!(person(&people(), "ben").reader().unwrap().id, "user:ben");
        assert_eq!(Principal::Root.reader(), None);
        assert_eq!(Principal::Anyone.reader(), None);
    }

    #[test]
    fn grants_are_checked_where_users_are_known() {
        let asked = Grant::of("session", "create");
        let open = Gate::default();
        assert!(!open.is_guarded() && open.people().is_none() && open.stored_people().is_none());
        assert_eq!(open.root(), Principal::Anyone);
        assert!(open.require(&Principal::Anyone, &asked).is_ok());

        let people = people();
        let gate = Gate::of(people.clone());
        assert!(gate.is_guarded() && gate.stored_people().is_some());
        assert_eq!(gate.root(), Principal::Root);
        assert!(gate.require(&gate.root(), &asked).is_ok());
        assert!(gate.require(&person(&people, "ada"), &asked).is_ok());
        let refusal = gate.require(&person(&people, "ben"), &asked).unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (-32009, "ben may not session:create here"));
        let refusal = gate.require(&Principal::Anyone, &asked).unwrap_err();
        assert_eq!(refusal.code, -32007);
    }

    #[test]
    fn work_is_its_owners() {
        let people = people();
        let gate = Gate::of(people.clone());
        let may = |who: &Principal, owner: Option<&str>| gate.require_owned(who, owner, "run", "it").is_ok();
        let (ada, ben, cy) = (person(&people, "ada"), person(&people, "ben"), person(&people, "cy"));
        for who in [&Principal::Root, &ada] {
            assert!(may(who, None) && may(who, Some("user:ben")) && may(who, Some("root:inn")));
        }
        assert!(
            may(&ben, Some("user:ben"))
                && may(&ben, Some("team:blue"))
                && may(&ben, Some("project:blue:site"))
        );
        assert!(!may(&ben, Some("user:cy")) && !may(&ben, Some("root:inn")) && !may(&ben, None));
        assert!(may(&cy, Some("project:blue:site")) && !may(&cy, Some("project:blue:other")));
        assert!(!may(&cy, Some("team:blue")) && !may(&cy, Some("user:ben")));
        assert!(may(&plugin(&[]), Some("plugin:mine")) && !may(&plugin(&[]), Some("plugin:other")));
        assert!(!may(&Principal::Anyone, Some("user:ben")) && !may(&Principal::Anyone, None));
        let open = Gate::default();
        assert!(open.require_owned(&Principal::Anyone, Some("user:ben"), "run", "it").is_ok());
        let refusal = gate.require_owned(&cy, Some("user:ben"), "run", "the automation a").unwrap_err();
        let text = "Only the owner of the automation a, a member of its team or project, an admin or this host may run it";
        assert_eq!((refusal.code, refusal.message.as_str()), (-32009, text));
    }
}
