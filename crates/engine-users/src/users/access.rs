//! Authorization of owners of work, according to the current users file.

use std::sync::Arc;

use ostler_contract::Value;
use ostler_contract::owner::Owner;
use ostler_contract::points::Reader;
use ostler_engine_core::shared::Core;
use ostler_engine_core::tasks;
use ostler_protocol::RpcError;
use ostler_protocol::grants::Grant;
use ostler_protocol::origins::{Effect, Rule, WayIn, rule};

use super::clients::Clients;
use super::principal::{Gate, Principal};
use super::{GROUP_ROLE, Person};

/// Authorization, and the connected clients.
#[derive(Debug)]
pub struct Access {
    pub core: Arc<Core>,
    /// Checks grants of principals.
    pub gate: Gate,
    /// The connections that are open.
    pub clients: Clients,
}

impl Access {
    pub fn new(core: Arc<Core>, gate: Gate) -> Arc<Self> {
        Arc::new(Self { core, gate, clients: Clients::default() })
    }

    /// Returns whether the owner of work has a grant. On a host without a users file, everyone does.
    pub fn may(&self, owner: &str, asked: &Grant) -> bool {
        self.grants_of(owner).is_none_or(|held| held.iter().any(|held| held.covers(asked)))
    }

    /// Checks that work which began in the name of an owner may go on, or may start now that it has waited. A user has the
    /// roles that an issuer confirmed at the latest sign-in, as when the work began.
    ///
    /// # Errors
    /// `-32009` if the owner does not have the grant any more.
    pub fn require_still(&self, owner: &str, asked: &Grant) -> Result<(), RpcError> {
        let parsed = Owner::parse(owner);
        if matches!(parsed, Some(Owner::Plugin(_))) {
            // Nothing can take the grants of a plugin while the daemon runs.
            return Ok(());
        }
        let user = self.gate.people().zip(parsed.and_then(Owner::user));
        let by_issuer = user.and_then(|(people, id)| people.person_as_signed_in(id));
        match by_issuer.is_some_and(|person| person.grants.iter().any(|held| held.covers(asked))) {
            true => Ok(()),
            false => self.require_of(owner, asked),
        }
    }

    /// Checks, when it is about to happen, that an effect of what entered the host by a way may happen. `who` is the one whom
    /// the rule asks, the sender or the owner of the session; `scheme` that of a resource.
    ///
    /// # Errors
    /// `-32009` if no rule of the table of origins lets it happen, or `who` lacks what the rule asks.
    pub fn require_effect(
        &self,
        (way, effect): (WayIn, Effect),
        who: &str,
        scheme: Option<&str>,
    ) -> Result<(), RpcError> {
        match (rule(way, effect), scheme) {
            (Rule::Always(_), _) => Ok(()),
            (Rule::Granted(grants, _), _) => {
                grants.iter().try_for_each(|grant| self.require_still(who, grant))
            }
            (Rule::GrantedOnScheme(operation, _), Some(scheme)) => {
                let asked = Grant::on(scheme, operation);
                match Owner::parse(who) {
                    // It has those of its configuration entry.
                    Some(Owner::Plugin(_)) => self.require_of(who, &asked),
                    _ => self.require_still(who, &asked),
                }
            }
            (Rule::Never(_) | Rule::AsEntered | Rule::GrantedOnScheme(..), _) => {
                let (way, effect) = (way.name(), effect.name());
                Err(RpcError::permission_denied(format!("input by {way} must not cause {effect}")))
            }
        }
    }

    /// Rejects work that its owner is not authorized for.
    pub fn require_of(&self, owner: &str, asked: &Grant) -> Result<(), RpcError> {
        match self.may(owner, asked) {
            true => Ok(()),
            false => Err(RpcError::permission_denied(format!("{owner} may not {asked} here"))),
        }
    }

    /// Returns the grants of an owner; `None` if grants are not checked. Teams and projects have the grants of their
    /// role.
    fn grants_of(&self, owner: &str) -> Option<Arc<[Grant]>> {
        if !self.gate.is_guarded() {
            return None;
        }
        match Owner::parse(owner) {
            Some(Owner::Root(_)) => None,
            Some(Owner::Plugin(id)) => {
                let plugins = self.core.registry().map(|registry| registry.plugins()).unwrap_or_default();
                let plugin = plugins.iter().find(|plugin| **plugin.id() == *id);
                Some(plugin.map(|plugin| plugin.caller().grants.clone()).unwrap_or_default())
            }
            Some(Owner::User(id)) => {
                Some(self.person(id).map(|person| person.grants.clone().into()).unwrap_or_default())
            }
            _ => Some(
                self.gate.people().map(|people| people.now().group_grants(owner).into()).unwrap_or_default(),
            ),
        }
    }

    /// Returns whether the work of an owner can see that of another one. Teams and projects see only their own; others
    /// see what their grants allow.
    pub fn sees_of(&self, owner: &str, other: Option<&str>) -> bool {
        if !self.gate.is_guarded() || !is_group(owner) {
            return true;
        }
        self.reader_for(owner).zip(other).is_some_and(|(reader, other)| reader.belongs_to(other))
    }

    /// Returns the owner of the work that a principal starts; none on a host without a users file, except for plugins.
    pub fn owner_of(&self, principal: &Principal) -> Option<String> {
        match (principal, self.gate.is_guarded()) {
            (Principal::Plugin { .. }, _) | (_, true) => principal.owner(&self.core.options.host_name),
            _ => None,
        }
    }

    /// Returns the team and project that work is charged to: those of `scope`, the `{ team, project }` it was created for,
    /// or else those that its owner's work is charged to.
    pub fn charged_to(&self, owner: Option<&str>, scope: Option<&Value>) -> ChargedTo {
        if let Some(scope) = scope {
            let named = |key: &str| scope.get(key).and_then(Value::as_str).map(str::to_owned);
            return ChargedTo { team: named("team"), project: named("project") };
        }
        let owner = owner.and_then(Owner::parse);
        let person = owner.and_then(Owner::user).and_then(|id| self.person(id));
        let primary = person.as_ref().and_then(|person| person.primary.as_deref());
        let group = primary.and_then(Owner::from_membership).or(owner);
        let owned = |id: Option<&str>| id.map(str::to_owned);
        ChargedTo { team: owned(group.and_then(Owner::team)), project: owned(group.and_then(Owner::project)) }
    }

    /// Returns the current user of an id.
    pub fn person(&self, id: &str) -> Option<Arc<Person>> {
        self.gate.people()?.now().person(id)
    }

    /// Returns whether the work of an owner can start by itself: a user must have signed in once. Other owners always
    /// can.
    pub fn has_been_here(&self, owner: &str) -> bool {
        match Owner::parse(owner) {
            Some(Owner::User(id)) if self.gate.is_guarded() => {
                self.person(id).is_some_and(|person| person.has_signed_in)
            }
            _ => true,
        }
    }

    /// Records that a user signed in by any method, after which the user's work can start by itself, and the roles that an issuer
    /// named.
    pub fn record_sign_in(&self, person: &Person) {
        let Some(people) = self.gate.people() else { return };
        let Some(change) = people.sign_in_to_record(person, || self.core.clock.iso()) else { return };
        let recorded = people.change(change);
        let (who, core) = (person.id.clone(), self.core.clone());
        tasks::spawn(async move {
            if let Err(why) = recorded.await {
                core.log.warn(format_args!("the sign-in of user {who} could not be recorded: {why}"));
            }
        });
    }

    /// Returns an owner in the form for plugins; `None` for the host itself and for no owner.
    pub fn reader_for(&self, owner: &str) -> Option<Reader> {
        let grants = self.grants_of(owner)?;
        let parsed = Owner::parse(owner);
        if let Some(person) = parsed.and_then(Owner::user).and_then(|id| self.person(id)) {
            return Some(person.reader.clone());
        }
        let (mut roles, mut memberships) = (Vec::new(), Vec::new());
        if let Some(membership) = parsed.and_then(Owner::membership).filter(|_| !grants.is_empty()) {
            roles.push(GROUP_ROLE.to_owned());
            memberships.push(membership);
        }
        let grants = grants.iter().map(ToString::to_string).collect();
        Some(Reader { id: owner.to_owned(), roles, memberships, grants })
    }

    /// Returns the identity of a connection for the client, if the host has a users file.
    pub fn principal_fact(&self, principal: &Principal) -> Option<String> {
        self.gate.is_guarded().then(|| principal.owner(&self.core.options.host_name)).flatten()
    }
}

/// The team and project that work is charged to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChargedTo {
    pub team: Option<String>,
    /// A project of the team.
    pub project: Option<String>,
}

impl ChargedTo {
    /// Returns whether the work is charged to an owner, as a team or a project.
    pub fn includes(&self, owner: &str) -> bool {
        match Owner::parse(owner) {
            Some(Owner::Team(team)) => self.team.as_deref() == Some(team),
            Some(Owner::Project { team, project }) => {
                self.team.as_deref() == Some(team) && self.project.as_deref() == Some(project)
            }
            _ => false,
        }
    }
}

/// Returns whether an owner is a team or a project.
fn is_group(owner: &str) -> bool {
    matches!(Owner::parse(owner), Some(Owner::Team(_) | Owner::Project { .. }))
}
