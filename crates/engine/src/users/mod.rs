//! The people a host knows: what the users file says of them now, and how it is changed.

pub mod access;
pub(crate) mod clients;
mod directory;
mod edit;
mod file;
mod issuers;
pub(crate) mod plugin_grants;
pub(crate) mod policies;
pub mod principal;
mod schemes;

use std::fmt;
use std::sync::Arc;

use ostler_contract::live::ready;
use ostler_contract::{Pending, Thrown};
use ostler_protocol::wire::state::ProtectedResourceMetadata;
use ostler_protocol::{RpcError, bare_resource};
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::core::outbound::Outbound;

pub(crate) use directory::GROUP_ROLE;
pub use directory::{BUILT_IN_ROLES, Directory, Person, hash_of};
pub use edit::{Caller, Kind};
pub use file::UsersFile;
pub use issuers::{Issuer, Verified};
pub(crate) use schemes::providers;

/// A change to the users file; one that refuses leaves the file as it is. It is made anew where the file has become
/// another one before it is written.
pub type Change = Box<dyn Fn(&mut UsersFile) -> Result<(), RpcError> + Send>;

/// Writes changes to the place where users are stored. Resolves once the change is in force in this host.
pub type UsersWriter = Arc<dyn Fn(Change) -> Pending<()> + Send + Sync>;

/// The people a host knows.
pub struct People {
    held: RwLock<(Arc<UsersFile>, Arc<Directory>)>,
    sign_in: ProtectedResourceMetadata,
    trust_token: bool,
    issuer: Option<Issuer>,
    /// Strangers' tokens are asked about a few at a time.
    asking: Semaphore,
    writer: Option<UsersWriter>,
}

impl fmt::Debug for People {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("People")
    }
}

/// Tokens issuers are asked about at once.
const ASKED_AT_ONCE: usize = 8;

/// The document a client is pointed to for how to sign in.
const DOCUMENTATION: &str = "https://microsoft.github.io/agent-host-protocol/";

/// The resource people authenticate against, as every backend advertises it.
fn sign_in_of(resource: &str, host_name: &str) -> ProtectedResourceMetadata {
    ProtectedResourceMetadata {
        resource_name: Some(host_name.to_owned()),
        resource_documentation: Some(DOCUMENTATION.to_owned()),
        required: Some(true),
        ..bare_resource(resource)
    }
}

impl People {
    /// People who sign in against `resource`, nobody yet.
    pub fn new(resource: &str, host_name: &str) -> Self {
        Self {
            held: RwLock::default(),
            sign_in: sign_in_of(resource, host_name),
            trust_token: false,
            issuer: None,
            asking: Semaphore::new(ASKED_AT_ONCE),
            writer: None,
        }
    }

    /// Takes a person's token at the door for the person's own word, for everybody.
    #[must_use]
    pub fn trusting(mut self, trust_token: bool) -> Self {
        self.trust_token = trust_token;
        self
    }

    /// Signs everybody in through an issuer whose record names none of its own.
    #[must_use]
    pub fn issued_by(mut self, issuer: Option<Issuer>) -> Self {
        self.issuer = issuer;
        self
    }

    /// Writes changes with this.
    #[must_use]
    pub fn written_by(mut self, writer: UsersWriter) -> Self {
        self.writer = Some(writer);
        self
    }

    /// Puts what the users file says now in force; it binds the next command of everybody. Answers a line for
    /// everything in it that is left out.
    ///
    /// # Errors
    /// Why it cannot be read; what was in force stays so.
    pub fn set(&self, file: UsersFile) -> Result<Vec<String>, String> {
        let (directory, lines) = file.directory()?;
        *self.held.write() = (Arc::new(file), Arc::new(directory));
        Ok(lines)
    }

    /// What is in force.
    pub fn now(&self) -> Arc<Directory> {
        self.held.read().1.clone()
    }

    /// The file that is in force.
    pub fn file(&self) -> Arc<UsersFile> {
        self.held.read().0.clone()
    }

    /// The record people sign in against, with everybody who may issue a token.
    pub fn sign_in(&self) -> ProtectedResourceMetadata {
        let issuers = self.now().issuers(self.issuer.as_ref());
        let mut record = self.sign_in.clone();
        if !issuers.is_empty() {
            let mut scopes: Vec<String> = issuers.iter().map(|issuer| issuer.scope().to_owned()).collect();
            scopes.sort_unstable();
            scopes.dedup();
            let servers = issuers.iter().map(|issuer| issuer.server().to_owned());
            record.authorization_servers = Some(servers.collect());
            record.scopes_supported = Some(scopes);
        }
        record
    }

    /// What people sign in against is called.
    pub fn resource(&self) -> &str {
        &self.sign_in.resource
    }

    /// The issuer of everybody whose record names none.
    pub fn issuer(&self) -> Option<&Issuer> {
        self.issuer.as_ref()
    }

    /// Whether anybody may sign in through an issuer.
    pub(crate) fn has_issuers(&self) -> bool {
        !self.now().issuers(self.issuer.as_ref()).is_empty()
    }

    /// Whose a token is by the word of the issuers, asked one after the other; and a line for everything amiss.
    pub(crate) async fn person_by_issuer(
        &self,
        outbound: &Outbound,
        token: &str,
    ) -> (Option<Arc<Person>>, Vec<String>) {
        let mut lines = Vec::new();
        let Ok(_turn) = self.asking.acquire().await else { return (None, lines) };
        for issuer in self.now().issuers(self.issuer.as_ref()) {
            match issuer.verify(outbound, token).await {
                Ok(verified) => {
                    let known = self.now().person_of_subject(&issuer, self.issuer.as_ref(), &verified);
                    if let Some((person, more)) = known {
                        lines.extend(more);
                        return (Some(person), lines);
                    }
                }
                Err(why) => lines.push(format!("sign-in through {issuer} is unavailable: {why}")),
            }
        }
        (None, lines)
    }

    /// Whose a token is.
    pub fn person_of_token(&self, token: &str) -> Option<Arc<Person>> {
        self.now().person_of_token(token)
    }

    /// Whether a person's token at the door says who comes in. The record wins over the file, the file over the
    /// configuration.
    pub fn trusts_token_of(&self, person: &Person) -> bool {
        self.now().trusts_token_of(&person.id).unwrap_or(self.trust_token)
    }

    /// Changes the users file.
    pub fn change(&self, change: Change) -> Pending<()> {
        match &self.writer {
            Some(writer) => writer(change),
            None => {
                let why = "the users of this host cannot be changed";
                ready(Err(Thrown::from(RpcError::permission_denied(why))))
            }
        }
    }
}
