//! Who a connection is, and the one gate every command, action and subscription passes.

use std::sync::Arc;

use ostler_contract::points::Reader;
use ostler_protocol::RpcError;
use ostler_protocol::grants::Grant;

use crate::host::Host;

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

/// Somebody signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The id in the users directory.
    pub id: String,
    /// What the record's roles allow.
    pub grants: Vec<Grant>,
    /// For plugins.
    pub reader: Reader,
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
    fn name(&self) -> String {
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

    /// What an owner holds; `None` where nothing is asked. People, teams and projects hold nothing until the
    /// host knows them.
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
            _ => Some(Arc::default()),
        }
    }

    /// What a plugin is told of an owner it serves; the host itself and nobody are told of as nobody.
    pub(crate) fn reader_for(&self, owner: &str) -> Option<Reader> {
        let grants = self.grants_of(owner)?;
        Some(Reader {
            id: owner.to_owned(),
            grants: grants.iter().map(ToString::to_string).collect(),
            ..Reader::default()
        })
    }
}

/// The gate. On a host with no users directory it is open.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Whether the host knows people.
    pub guarded: bool,
}

impl Gate {
    /// Lets a principal through that holds what is asked.
    pub fn require(&self, principal: &Principal, asked: &Grant) -> Result<(), RpcError> {
        if !self.guarded || principal.holds(asked) {
            return Ok(());
        }
        if *principal == Principal::Anyone {
            return Err(RpcError::auth_required(format!(
                "sign in first: {asked} is not open to everybody here"
            )));
        }
        Err(RpcError::permission_denied(format!("{} may not {asked} here", principal.name())))
    }
}
