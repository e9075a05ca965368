//! The users of a host: the current users file, and changes of it.

pub mod access;
pub mod authority;
pub mod clients;
mod directory;
mod edit;
mod file;
mod issuers;
pub mod plugin_grants;
pub mod policies;
pub mod principal;
mod records;
mod schemes;
mod validity;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::live::ready;
use ostler_contract::{Pending, Thrown};
use ostler_engine_core::outbound::Outbound;
use ostler_protocol::wire::state::ProtectedResourceMetadata;
use ostler_protocol::{RpcError, bare_resource};
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use authority::{Credential, Ends, Living};
pub use directory::GROUP_ROLE;
pub use directory::{BUILT_IN_ROLES, Directory, Person, hash_of};
pub use edit::{Caller, Kind};
pub use file::UsersFile;
pub use issuers::{Issuer, Verified};
pub use records::RecordKey;
pub use schemes::providers;
use validity::Validity;
pub use validity::ValidityWatch;

/// A change to the users file. A failed change leaves the file unchanged. It is repeated if the file changes before it
/// is written.
pub type Change = Box<dyn Fn(&mut UsersFile) -> Result<(), RpcError> + Send>;

/// Writes changes to the place where users are stored. Resolves once the change is in force in this host.
pub type UsersWriter = Arc<dyn Fn(Change) -> Pending<()> + Send + Sync>;

/// Reads the users again where they are stored. Resolves once they are in force in this host.
pub type UsersReader = Arc<dyn Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

/// The users of a host.
pub struct People {
    held: RwLock<(Arc<UsersFile>, Arc<Directory>)>,
    sign_in: ProtectedResourceMetadata,
    trust_token: bool,
    issuer: Option<Issuer>,
    /// Limits concurrent requests to issuers about unknown tokens.
    asking: Semaphore,
    writer: Option<UsersWriter>,
    reader: Option<UsersReader>,
    /// The roles that an issuer confirmed at the latest sign-in of each user, by id.
    claims: RwLock<HashMap<String, Vec<String>>>,
    /// Whether grants are checked. Once they are, they stay so.
    are_in_force: AtomicBool,
    /// Until when the content is known to be the stored one.
    validity: Validity,
}

impl fmt::Debug for People {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("People")
    }
}

/// The maximum number of concurrent requests to issuers.
const ASKED_AT_ONCE: usize = 8;

/// The document that describes to clients how to sign in.
const DOCUMENTATION: &str = "https://microsoft.github.io/agent-host-protocol/";

/// The protected resource for signing in, as every backend advertises it.
fn sign_in_of(resource: &str, host_name: &str) -> ProtectedResourceMetadata {
    ProtectedResourceMetadata {
        resource_name: Some(host_name.to_owned()),
        resource_documentation: Some(DOCUMENTATION.to_owned()),
        required: Some(true),
        ..bare_resource(resource)
    }
}

impl People {
    /// Creates an empty set of users who sign in to `resource`.
    pub fn new(resource: &str, host_name: &str) -> Self {
        Self {
            held: RwLock::default(),
            sign_in: sign_in_of(resource, host_name),
            trust_token: false,
            issuer: None,
            asking: Semaphore::new(ASKED_AT_ONCE),
            writer: None,
            reader: None,
            claims: RwLock::default(),
            are_in_force: AtomicBool::new(true),
            validity: Validity::default(),
        }
    }

    /// Treats personal tokens on the handshake as authentication, for all users.
    #[must_use]
    pub fn trusting(mut self, trust_token: bool) -> Self {
        self.trust_token = trust_token;
        self
    }

    /// Sets the default issuer, for users without one in their records.
    #[must_use]
    pub fn issued_by(mut self, issuer: Option<Issuer>) -> Self {
        self.issuer = issuer;
        self
    }

    /// Sets the writer of changes.
    #[must_use]
    pub fn written_by(mut self, writer: UsersWriter) -> Self {
        self.writer = Some(writer);
        self
    }

    /// Sets what reads the users file again.
    #[must_use]
    pub fn reread_by(mut self, reader: UsersReader) -> Self {
        self.reader = Some(reader);
        self
    }

    /// Leaves grants unchecked until there is a users file.
    #[must_use]
    pub fn pending(self) -> Self {
        self.are_in_force.store(false, Ordering::Release);
        self
    }

    /// Checks grants from now on. Returns whether they were not checked before.
    pub fn enforce(&self) -> bool {
        !self.are_in_force.swap(true, Ordering::AcqRel)
    }

    /// Returns whether grants are checked.
    pub fn are_in_force(&self) -> bool {
        self.are_in_force.load(Ordering::Acquire)
    }

    /// Records that the content in force is what was stored when it was read, which began then, and that the host may rely on it
    /// for so long. Without a record it may rely on it without an end.
    pub fn confirm(&self, read_at: Instant, valid_for: Duration) {
        self.validity.extend(read_at + valid_for);
    }

    /// Returns whether the content in force is known to be the stored one.
    pub fn are_confirmed(&self) -> bool {
        self.validity.holds()
    }

    /// Returns whether other hosts change the users too.
    pub fn are_shared(&self) -> bool {
        self.validity.has_end()
    }

    /// Waits for changes of [`Self::are_confirmed`].
    pub fn watch_validity(&self) -> ValidityWatch {
        self.validity.watch()
    }

    /// Reads the users file again, and returns once its content is in force.
    pub async fn reread(&self) {
        if let Some(reader) = &self.reader {
            reader().await;
        }
    }

    /// Applies the content of the users file, from the next command of each user on. Returns a line for everything in
    /// it that is omitted.
    ///
    /// # Errors
    /// Why it is invalid; the previous content stays in force.
    pub fn set(&self, file: UsersFile) -> Result<Vec<String>, String> {
        let (directory, lines) = file.directory()?;
        // A later user of the same id does not have them, nor one whom another issuer or another claim identifies.
        let (before, default) = (self.now(), self.issuer.as_ref());
        let mut claims = self.claims.write();
        claims.retain(|id, _| {
            let by = directory.identification_of(id, default);
            let is_same = by.is_some() && by == before.identification_of(id, default);
            // Another host may have recorded a later sign-in.
            is_same && directory.confirmed_of(id, default) == before.confirmed_of(id, default)
        });
        *self.held.write() = (Arc::new(file), Arc::new(directory));
        Ok(lines)
    }

    /// Returns the directory in force.
    pub fn now(&self) -> Arc<Directory> {
        self.held.read().1.clone()
    }

    /// Returns the file in force.
    pub fn file(&self) -> Arc<UsersFile> {
        self.held.read().0.clone()
    }

    /// Returns the protected resource for signing in, with all issuers.
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

    /// Returns the name of the resource for signing in.
    pub fn resource(&self) -> &str {
        &self.sign_in.resource
    }

    /// Returns the default issuer.
    pub fn issuer(&self) -> Option<&Issuer> {
        self.issuer.as_ref()
    }

    /// Returns whether any user can sign in through an issuer.
    pub fn has_issuers(&self) -> bool {
        !self.now().issuers(self.issuer.as_ref()).is_empty()
    }

    /// Asks the issuers one after the other for the user of a token; returns also a line for every problem. The host asks
    /// only once, so that the credential is valid until the record names another issuer or another claim.
    pub async fn person_by_issuer(
        self: &Arc<Self>,
        outbound: &Outbound,
        token: &str,
    ) -> (Option<(Arc<Person>, Credential)>, Vec<String>) {
        let mut lines = Vec::new();
        let Ok(_turn) = self.asking.acquire().await else { return (None, lines) };
        for issuer in self.now().issuers(self.issuer.as_ref()) {
            match issuer.verify(outbound, token).await {
                Ok(verified) => {
                    let now = self.now();
                    let known = now.person_of_subject(&issuer, self.issuer.as_ref(), &verified);
                    if let Some((person, more)) = known {
                        lines.extend(more);
                        let by = self.credential_by_issuer(&now, &person);
                        self.note_claims(&person, &by);
                        return (Some((person, by)), lines);
                    }
                }
                Err(why) => lines.push(format!("sign-in through {issuer} is unavailable: {why}")),
            }
        }
        (None, lines)
    }

    /// Returns the user of a token.
    pub fn person_of_token(&self, token: &str) -> Option<Arc<Person>> {
        self.now().person_of_token(token)
    }

    /// Records the roles that an issuer confirmed when it identified a user, unless the record changed meanwhile.
    pub fn note_claims(&self, person: &Person, by: &Credential) {
        // The users change under this lock.
        let mut claims = self.claims.write();
        match person.claimed.as_ref().filter(|_| by.is_valid()) {
            Some(roles) => drop(claims.insert(person.id.clone(), roles.clone())),
            None => drop(claims.remove(&person.id)),
        }
    }

    /// Returns the user of an id with the roles that an issuer confirmed at the latest sign-in, here or, as it is recorded, before
    /// the host started or on another host.
    pub fn person_as_signed_in(&self, id: &str) -> Option<Arc<Person>> {
        let (claims, now) = (self.claims.read(), self.now());
        let roles =
            claims.get(id).map(Vec::as_slice).or_else(|| now.confirmed_of(id, self.issuer.as_ref()))?;
        now.person_claiming(id, Some(roles))
    }

    /// Returns the change that records a sign-in with the users, if there is something to record.
    pub fn sign_in_to_record(&self, person: &Person, at: impl FnOnce() -> String) -> Option<Change> {
        let (now, default) = (self.now(), self.issuer.as_ref());
        let confirmed = person
            .claimed
            .as_ref()
            .and_then(|roles| now.identification_of(&person.id, default)?.confirms(roles));
        let is_recorded = confirmed.as_ref().is_none_or(|new| now.recorded_of(&person.id) == Some(new));
        if person.has_signed_in && is_recorded {
            return None;
        }
        let (id, at) = (person.id.clone(), at());
        Some(Box::new(move |file| {
            file.set_signed_in(&id, &at)?;
            confirmed.as_ref().map_or(Ok(()), |confirmed| file.set_confirmed(&id, confirmed))
        }))
    }

    /// Returns a credential that is valid as long as a user has a personal token.
    pub fn credential_of(self: &Arc<Self>, person: &Person, token: &str) -> Credential {
        let (people, id, hash) = (Arc::downgrade(self), person.id.clone(), hash_of(token));
        Credential::new(move || people.upgrade().is_some_and(|people| people.now().has_token(&id, &hash)))
    }

    pub fn credential_by_issuer(self: &Arc<Self>, then: &Directory, person: &Person) -> Credential {
        let (people, id) = (Arc::downgrade(self), person.id.clone());
        let by = then.identification_of(&id, self.issuer.as_ref());
        Credential::new(move || {
            let people = people.upgrade();
            people.is_some_and(|people| people.now().identification_of(&id, people.issuer.as_ref()) == by)
        })
    }

    /// Returns whether a personal token on the handshake authenticates its user. The record has priority over the file,
    /// the file over the configuration.
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
