//! Resources: the provider of a URI, and the authorization of operations.

pub mod patterns;
pub mod published;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ostler_contract::budget::SMALL;
use ostler_contract::points::{
    Reader, ResourceChanged, ResourceContent, ResourceResolving, ResourceStore, SchemeProvider,
};
use ostler_contract::registry::{Owned, Registrant};
use ostler_contract::{Budget, Call, Charge, HostFunction, Thrown, json, limit};
use ostler_engine_core::fanout::Outgoing;
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::refusals::{no_memory_to_read, nothing_serves};
use ostler_engine_core::shared::Core;
use ostler_engine_core::tasks;
use ostler_protocol::grants::Grant;
use ostler_protocol::origins::{Effect, WayIn};
use ostler_protocol::wire::state::ResourceWatchState;
use ostler_protocol::{RpcError, Version, uri};
use parking_lot::Mutex;

use crate::resources::patterns::WatchFilter;
use crate::resources::published::Asker;
use crate::usage::{self, Ledger};
use crate::users::access::Access;
use crate::users::principal::{ANONYMOUS, Principal};
use crate::users::{self, policies};

/// How long a watch can be open without a subscriber.
const WATCH_UNSEEN: Duration = Duration::from_secs(60);

/// A watch that a connection opened.
#[derive(Debug)]
pub struct Watch {
    state: ResourceWatchState,
    /// Its owner, if the host has a users file.
    owner: Option<String>,
    opener: ConnectionId,
    stop: Option<Call<fn()>>,
}

/// The scheme whose grants are asked for what a client publishes.
pub const CLIENTS: &str = "file";
/// What a session asks for, its agent or an attachment of its messages.
const LOOK_UP: (WayIn, Effect) = (WayIn::Agent, Effect::LookUp);
/// The maximum number of open watches of a connection and in total, because systems limit them per user, and other
/// programs need them too.
const WATCHES_OF_ONE: usize = 32;
const WATCHES: usize = 96;

/// The maximum size that providers of files read.
const LARGEST_READ: usize = 32 * 1024 * 1024;

/// How long a read for a backend or a tool waits for memory.
const ROOM_LIMIT: Duration = Duration::from_secs(10);

/// The assumed size of a resource if its provider does not report it.
const UNKNOWN_SIZE: usize = 1024 * 1024;

/// Memory for content, as soon as it is available.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    /// The budget that is charged.
    pub budget: &'a Budget,
    /// How long to wait for memory; without a limit, as long as the budget is open.
    pub limit: Option<Duration>,
    /// The error if there is none.
    pub full: fn() -> RpcError,
}

impl Room<'_> {
    /// Charges `bytes`, or at least `needed` if the budget is smaller.
    async fn take(self, bytes: usize, needed: usize) -> Result<Charge, RpcError> {
        let taken = self.budget.take(bytes.min(self.budget.largest()).max(needed));
        let charge = match self.limit {
            Some(limit) => tokio::time::timeout(limit, taken).await.ok().flatten(),
            None => taken.await,
        };
        charge.ok_or_else(self.full)
    }
}

/// A bare path is a file.
pub fn scheme_of(uri: &str) -> String {
    uri::scheme(uri).unwrap_or_else(|| "file".to_owned())
}

/// The resources of the host: the providers of schemes, and the open watches.
#[derive(Debug)]
pub struct Resources {
    core: Arc<Core>,
    access: Arc<Access>,
    usage: Arc<Ledger>,
    watches: Mutex<HashMap<String, Watch>>,
    own_providers: OnceLock<Vec<Owned<SchemeProvider>>>,
    files: OnceLock<Option<Owned<SchemeProvider>>>,
}

fn lacks(scheme: &str, operation: &str) -> RpcError {
    RpcError::method_not_found(format!("{scheme}: cannot {operation}"))
}

/// Returns an optional member of a provider, or the error that names it.
pub fn member<'a, T>(scheme: &str, operation: &str, member: &'a Option<T>) -> Result<&'a T, RpcError> {
    member.as_ref().ok_or_else(|| lacks(scheme, operation))
}

impl Resources {
    pub fn new(core: Arc<Core>, access: Arc<Access>, usage: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self {
            core,
            access,
            usage,
            watches: Mutex::default(),
            own_providers: OnceLock::new(),
            files: OnceLock::new(),
        })
    }

    /// Reads a resource of a client or a provider on behalf of the owner of a session. Its memory is charged while it is
    /// read.
    pub async fn content_for(&self, asker: &Asker, uri: &str) -> Result<ResourceContent, Thrown> {
        let owner = asker.owner.as_deref().unwrap_or(ANONYMOUS).to_owned();
        if let Some(client) = self.publisher(uri, asker)? {
            self.access.require_effect(LOOK_UP, &owner, Some(CLIENTS))?;
            return Ok(self.read_published(&client, uri).await?);
        }
        let provider = self.provider(uri)?;
        let reader = self.access.reader_for(&owner);
        if let Err(refusal) = self.access.require_effect(LOOK_UP, &owner, Some(&provider.scheme)) {
            let admitted = match (&provider.provider.authorize, &reader) {
                (Some(authorize), Some(reader)) => {
                    authorize.within(limit::AUTHORIZE, (uri.to_owned(), reader.clone())).await?
                }
                _ => false,
            };
            if !admitted {
                return Err(refusal.into());
            }
        }
        let _charge = self.room(self.size_of(&provider, uri, reader.clone()).await).await?;
        provider.provider.read.within(limit::RESOURCE, (uri.to_owned(), reader)).await
    }

    /// Charges the host for content that is read without a client's request, as soon as there is memory. Small content
    /// does not wait behind large content if there is room for it.
    ///
    /// # Errors
    /// `-32603` if there is none in time.
    pub async fn room(&self, size: usize) -> Result<Charge, RpcError> {
        let budget = &self.core.reads;
        // The content, and its form as base64.
        let bytes = (size.saturating_mul(8) / 3).min(budget.largest());
        if bytes <= SMALL
            && let Some(charge) = budget.try_take(bytes)
        {
            return Ok(charge);
        }
        self.reads().take(bytes, 0).await
    }

    /// Returns the memory for content that is read without a client's request.
    pub fn reads(&self) -> Room<'_> {
        Room { budget: &self.core.reads, limit: Some(ROOM_LIMIT), full: no_memory_to_read }
    }

    /// Schemes the host serves itself; no plugin can take their names.
    pub fn own_providers(&self) -> &[Owned<SchemeProvider>] {
        self.own_providers.get_or_init(|| {
            let mut own = self.access.gate.people().map(users::providers).unwrap_or_default();
            if self.core.policies().is_some() {
                own.push(policies::provider(Arc::downgrade(&self.core)));
            }
            if self.usage.usage_store().is_some() {
                own.push(usage::provider(Arc::downgrade(&self.usage)));
            }
            own.into_iter().map(|own| Owned { owner: Registrant::Host, value: Arc::new(own) }).collect()
        })
    }

    /// The provider of `file:`, if any. It is not the scheme of a resource provider and not advertised as one.
    fn files(&self) -> Option<&Owned<SchemeProvider>> {
        let files = self.files.get_or_init(|| {
            let registry = self.core.registry()?;
            let owner = registry.holder::<ResourceStore>()?.clone();
            let value = Arc::new(registry.port::<ResourceStore>()?.provider());
            Some(Owned { owner, value })
        });
        files.as_ref()
    }

    pub fn provider(&self, uri: &str) -> Result<Owned<SchemeProvider>, RpcError> {
        let scheme = scheme_of(uri);
        let of_plugins =
            self.core.registry().map(|registry| registry.all::<SchemeProvider>()).unwrap_or_default();
        let mut served = of_plugins.iter().chain(self.own_providers()).chain(self.files());
        served
            .find(|held| held.scheme.eq_ignore_ascii_case(&scheme))
            .cloned()
            .ok_or_else(|| nothing_serves(&scheme))
    }

    /// Returns the size of a resource in bytes: that of a file as its provider reports it, or an assumed one.
    pub async fn size_of(&self, held: &Owned<SchemeProvider>, uri: &str, reader: Option<Reader>) -> usize {
        let is_file = held.scheme.eq_ignore_ascii_case("file");
        let Some(resolve) = held.provider.resolve.as_ref().filter(|_| is_file) else { return UNKNOWN_SIZE };
        let options = ResourceResolving { follow_symlinks: true };
        // The read reports errors.
        let facts = resolve.within(limit::RESOURCE, (uri.to_owned(), reader, options)).await;
        let size = facts.ok().and_then(|facts| usize::try_from(facts.size?).ok());
        // Files without a size have content as well, such as those in /proc.
        size.filter(|size| *size > 0).map_or(UNKNOWN_SIZE, |size| size.min(LARGEST_READ))
    }

    /// Calls a member of a provider. Its error is returned, and logged with the plugin's name.
    pub async fn asked<T>(
        &self,
        held: &Owned<SchemeProvider>,
        member: &str,
        answer: impl Future<Output = Result<T, Thrown>>,
    ) -> Result<T, RpcError> {
        answer.await.map_err(|why| {
            if why.rpc.is_none() {
                self.core.report_failed(
                    &held.owner,
                    &format!("the {member} of its scheme {}", held.scheme),
                    &why,
                );
            }
            why.into_rpc()
        })
    }

    /// Returns the provider of a URI if it can be read: calls its `authorize` before the check of the grant.
    pub async fn readable(
        &self,
        uri: &str,
        operation: &'static str,
        principal: &Principal,
    ) -> Result<Owned<SchemeProvider>, RpcError> {
        let provider = self.provider(uri)?;
        let asked = Grant::on(&provider.scheme, operation);
        if let Err(refusal) = self.access.gate.require(principal, &asked) {
            let admitted = match (&provider.provider.authorize, principal.reader()) {
                (Some(authorize), Some(reader)) => {
                    self.asked(
                        &provider,
                        "authorize",
                        authorize.within(limit::AUTHORIZE, (uri.to_owned(), reader)),
                    )
                    .await?
                }
                _ => false,
            };
            if !admitted {
                return Err(refusal);
            }
        }
        Ok(provider)
    }

    /// Returns the reader in the form for providers. A plugin is included even on a host without a users file, because
    /// it may read its own resources, and has all grants there.
    pub fn reader_of(&self, principal: &Principal) -> Option<Reader> {
        let reader = principal.reader()?;
        match (self.access.gate.is_guarded(), principal) {
            (true, _) => Some(reader),
            (false, Principal::Plugin { .. }) => Some(Reader { grants: vec!["*:*".to_owned()], ..reader }),
            (false, _) => None,
        }
    }

    pub fn writable(
        &self,
        uri: &str,
        operation: &'static str,
        principal: &Principal,
    ) -> Result<Owned<SchemeProvider>, RpcError> {
        let provider = self.provider(uri)?;
        self.access.gate.require(principal, &Grant::on(&provider.scheme, operation))?;
        Ok(provider)
    }

    pub async fn open_watch(
        self: &Arc<Self>,
        provider: &Owned<SchemeProvider>,
        state: ResourceWatchState,
        owner: Option<String>,
        opener: ConnectionId,
    ) -> Result<String, RpcError> {
        let watch = member(&provider.scheme, "watch", &provider.provider.watch)?;
        let wanted = WatchFilter::read(&state)?;
        let channel = uri::resource_watch(&self.core.new_id());
        let (resources, published) = (Arc::downgrade(self), channel.clone());
        let on_change = HostFunction::now(move |(changes,): (Vec<ResourceChanged>,)| {
            let changes: Vec<_> = changes.into_iter().filter(|change| wanted.holds(&change.uri)).collect();
            if let Some(resources) = resources.upgrade().filter(|_| !changes.is_empty()) {
                let action = json!({ "type": "resourceWatch/changed", "changes": { "items": changes } });
                resources
                    .core
                    .fanout
                    .publish(&published, vec![Outgoing::host(action.to_string(), Version::V0_9)]);
            }
            Ok(())
        });
        // It counts from now on, because its provider can take time to open it.
        self.count_watch(&channel, Watch { state: state.clone(), owner, opener, stop: None })?;
        let opened = watch.within(limit::RESOURCE, (state.root, state.recursive, on_change));
        let stop = match self.asked(provider, "watch", opened).await {
            Ok(stop) => stop,
            Err(error) => {
                self.watches.lock().remove(&channel);
                return Err(error);
            }
        };
        match (self.watches.lock().get_mut(&channel), stop) {
            (Some(watch), stop) => watch.stop = stop,
            // The requester has disconnected.
            (None, Some(stop)) => drop(tasks::spawn(stop.unbounded(()))),
            (None, None) => {}
        }
        // A watch without a subscriber in time is released, like one whose subscribers have left.
        let (resources, unwatched) = (Arc::downgrade(self), channel.clone());
        tasks::spawn(async move {
            tokio::time::sleep(WATCH_UNSEEN).await;
            if let Some(resources) = resources.upgrade() {
                resources.release_watch(&unwatched);
            }
        });
        Ok(channel)
    }

    /// Adds a watch within the limits.
    fn count_watch(&self, channel: &str, watch: Watch) -> Result<(), RpcError> {
        let mut watches = self.watches.lock();
        let own = watches.values().filter(|other| other.opener == watch.opener).count();
        let (count, of, most) = match own >= WATCHES_OF_ONE {
            true => (own, "this connection", WATCHES_OF_ONE),
            false => (watches.len(), "this host", WATCHES),
        };
        if count < most {
            watches.insert(channel.to_owned(), watch);
            return Ok(());
        }
        Err(RpcError::invalid_params(format!(
            "{of} has {count} open watches, which is the limit; unsubscribe from one, or watch a directory recursively"
        )))
    }

    /// Ends the watches without subscribers that a closed connection opened.
    pub fn release_watches_of(&self, opener: ConnectionId) {
        let of_opener =
            |(channel, watch): (&String, &Watch)| (watch.opener == opener).then(|| channel.clone());
        let opened: Vec<_> = self.watches.lock().iter().filter_map(of_opener).collect();
        for channel in opened {
            self.release_watch(&channel);
        }
    }

    /// Returns the state of an open watch.
    pub fn watched(&self, channel: &str) -> Option<ResourceWatchState> {
        self.watches.lock().get(channel).map(|watch| watch.state.clone())
    }

    /// Returns whether a principal can subscribe to a watch: its owner, and those who could open it.
    pub fn may_watch(&self, channel: &str, principal: &Principal) -> Result<(), RpcError> {
        let watch =
            self.watches.lock().get(channel).map(|watch| (watch.state.root.clone(), watch.owner.clone()));
        match watch {
            None => Ok(()),
            Some((_, owner)) if owner.is_some() && owner == principal.owner(&self.core.options.host_name) => {
                Ok(())
            }
            Some((root, _)) => self.access.gate.require(principal, &Grant::on(&scheme_of(&root), "watch")),
        }
    }

    /// Ends a watch without subscribers.
    pub fn release_watch(&self, channel: &str) {
        if !self.core.fanout.watchers(channel).is_empty() {
            return;
        }
        let watch = self.watches.lock().remove(channel);
        if let Some(stop) = watch.and_then(|watch| watch.stop) {
            tasks::spawn(stop.unbounded(()));
        }
    }
}
