//! The calls of plugins to the host.

use std::sync::{Arc, Weak};

use ostler_contract::call::Answering;
use ostler_contract::cluster::{Cluster, SessionElsewhere};
use ostler_contract::host::{
    EventData, ExplainedAutomation, Fired, Peer, Routing, SecretScope, SessionRequest,
};
use ostler_contract::http::{Request, Response};
use ostler_contract::live::ready;
use ostler_contract::owner::Owner;
use ostler_contract::points::{
    Collection, CollectionOptions, PublishOptions, RecordChange, StoredCollection, Subscriber, UsageEntry,
};
use ostler_contract::problem::no_network;
use ostler_contract::problems::Problems;
use ostler_contract::protocol::sent::SentObject;
use ostler_contract::read::{Read, Unknown};
use ostler_contract::shared_runs::{EventRecords, FiredOnce, RunTransactions, SharedRuns};
use ostler_contract::users::UsersStore;
use ostler_contract::{
    Call, Caller, Func, HostCalls, HostFunction, JsonObject, Pending, RpcError, Slug, Thrown, Value,
    VaultName, limit, problem,
};
use ostler_engine_core::file_uris::file_uri;
use ostler_engine_core::refusals::STOPPING;
use ostler_engine_core::stage::Stage;
use ostler_engine_core::tasks;
use ostler_engine_core::weak::upgraded;
use ostler_engine_sessions::NewSession;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::grants::Grant;
use ostler_protocol::wire::state::MessageKind;
use tokio::sync::{OnceCell, watch};

use crate::front::Front;
use crate::front::take_over::TakeOver;

/// The host object of plugins, which does not keep the host alive.
#[derive(Debug, Clone)]
pub struct PluginHostCalls {
    front: Weak<Front>,
    take_over: Arc<TakeOver>,
}

impl PluginHostCalls {
    /// Creates the calls of a host.
    pub fn new(front: &Arc<Front>) -> Arc<Self> {
        Arc::new(Self { front: Arc::downgrade(front), take_over: Arc::default() })
    }

    fn front(&self) -> Result<Arc<Front>, Thrown> {
        upgraded(&self.front)
    }

    /// Asks the vault for a secret. It is not an async function, because its future would contain the caller and the vault.
    fn begin_secret(
        &self,
        caller: &Caller,
        name: &str,
        scope: Option<&SecretScope>,
    ) -> Result<impl Future<Output = Result<Option<String>, Thrown>> + Send + use<>, Thrown> {
        let front = self.front()?;
        let parsed = VaultName::parse(name)?;
        in_scope(&parsed, scope).map_err(|why| needs(caller, &why))?;
        let vault = match front.core.registry() {
            Some(_) => front.core.vault(),
            // During loading, the vault is the one from which options are read.
            None => caller.vault.as_ref(),
        };
        let vault = vault.ok_or_else(|| Thrown::from(RpcError::not_found(problem::no_vault(name))))?;
        Ok(vault.get.within(limit::STORE, (name.to_owned(),)))
    }
}

fn needs(caller: &Caller, what: &str) -> Thrown {
    Thrown::new(format_args!("plugin {}: {what}", caller.plugin))
}

impl HostCalls for PluginHostCalls {
    fn log(&self, caller: &Caller, line: String) -> Result<(), Thrown> {
        let front = self.front()?;
        // A line from a listener to lines would otherwise be sent to it again, without end.
        let log = if front.core.events.hears_lines(&caller.plugin) {
            &front.core.unheard_log
        } else {
            &front.core.log
        };
        log.info(format_args!("plugin {}: {line}", caller.plugin));
        Ok(())
    }

    fn say(&self, caller: &Caller, line: String) -> Result<(), Thrown> {
        let front = self.front()?;
        match &mut *front.announcements.lock() {
            Some(lines) => lines.push(line),
            None => front
                .core
                .log
                .warn(format_args!("plugin {}: announced after the start, dropped: {line}", caller.plugin)),
        }
        Ok(())
    }

    fn parse_yaml(&self, _: &Caller, text: String) -> Result<Value, Thrown> {
        (self.front()?.core.yaml.parse)(&text)
    }

    fn stringify_yaml(&self, _: &Caller, value: Value) -> Result<String, Thrown> {
        (self.front()?.core.yaml.stringify)(&value)
    }

    fn connect(&self, caller: &Caller) -> Result<Peer, Thrown> {
        let front = self.front()?;
        match front.core.stage() {
            Stage::Listening => {}
            Stage::Stopping | Stage::Closing => return Err(needs(caller, "connect: the host is closing")),
            Stage::Loading | Stage::Built => {
                return Err(needs(
                    caller,
                    "connect needs a connection to be asked for once a host is built over this plugin; \
                     connect from `listening` or later",
                ));
            }
        }
        let principal = Principal::Plugin { id: caller.plugin.to_string(), grants: caller.grants.clone() };
        Ok(crate::front::peer::open(&front, principal))
    }

    fn start_session(&self, caller: &Caller, request: SessionRequest) -> Pending<String> {
        let (front, caller) = (self.front(), caller.clone());
        Box::pin(async move {
            let front = front?;
            if front.core.stage() == Stage::Loading {
                return Err(needs(
                    &caller,
                    "startSession needs to be asked for once a host is built over this plugin",
                ));
            }
            let host = &front.core.options.host_name;
            let owners = [("owner", Some(&request.owner)), ("worksFor", request.works_for.as_ref())];
            for (field, owner) in owners {
                let Some(owner) = owner else { continue };
                let wrong = match Owner::parse(owner) {
                    None => Some(Owner::FORMS.to_owned()),
                    // The other hosts of a cluster have sessions of their own root, too.
                    Some(Owner::Root(named)) if named != host && front.core.cluster().is_none() => {
                        Some(format!("of this host, root:{host}"))
                    }
                    Some(_) => None,
                };
                if let Some(wrong) = wrong {
                    let what = format!("startSession needs {field} to be {wrong}");
                    return Err(Thrown::from(RpcError::invalid_params(needs(&caller, &what).message)));
                }
            }
            let create = Grant::of("session", "create");
            front.access.require_of(&request.owner, &create)?;
            if let Some(owner) = &request.works_for {
                front.access.require_still(owner, &create)?;
            }
            let new = NewSession {
                id: front.core.new_id(),
                provider: request.provider,
                owner: Some(request.owner),
                works_for: request.works_for,
                working_directories: request.working_directory.iter().map(|path| file_uri(path)).collect(),
                config: request.config.unwrap_or_default(),
                title: request.title.as_deref().and_then(ostler_engine_core::titles::tidy_title),
                ..NewSession::default()
            };
            let model = request.model.map(|model| model.id);
            let entry =
                front.sessions.session_with_prompt(new, request.prompt, model, MessageKind::Agent).await?;
            Ok(entry.uri.clone())
        })
    }

    fn may_work_for(&self, _: &Caller, owner: String) -> Result<(), Thrown> {
        let front = self.front()?;
        front.access.gate.check_users()?;
        Ok(front.access.require_still(&owner, &Grant::of("session", "create"))?)
    }

    fn session_kept(&self, _: &Caller, uri: String) -> Pending<bool> {
        let front = self.front();
        Box::pin(async move {
            let front = front?;
            front.core.built().await;
            if front.core.session_store().is_none() {
                return Ok(false);
            }
            let scheme = ostler_protocol::uri::scheme(&uri).unwrap_or_default();
            let found = session_of(&front, &uri).await?;
            Ok(found.is_some_and(|found| found.provider.eq_ignore_ascii_case(&scheme)))
        })
    }

    fn session_owner(&self, _: &Caller, uri: String) -> Pending<Option<String>> {
        let front = self.front();
        Box::pin(async move {
            let front = front?;
            front.core.built().await;
            Ok(session_of(&front, &uri).await?.and_then(|found| found.owner))
        })
    }

    fn record_usage(&self, caller: &Caller, entry: UsageEntry) -> Pending<()> {
        if let Err(wrong) = entry.refuse() {
            let what = format!("recordUsage needs {}", wrong);
            return ready(Err(Thrown { name: "TypeError".to_owned(), ..needs(caller, &what) }));
        }
        let front = self.front();
        Box::pin(async move {
            let front = front?;
            front.core.built().await;
            front.usage.record_use(entry).await
        })
    }

    fn secret(&self, caller: &Caller, name: String, scope: Option<SecretScope>) -> Pending<String> {
        match self.begin_secret(caller, &name, scope.as_ref()) {
            Ok(value) => {
                // The code tells a plugin an absent secret from a vault that cannot be read.
                Box::pin(async move {
                    let absent = || Thrown::from(RpcError::not_found(problem::no_secret(&name)));
                    value.await?.ok_or_else(absent)
                })
            }
            Err(why) => ready(Err(why)),
        }
    }

    fn records(
        &self,
        caller: &Caller,
        name: String,
        options: Option<CollectionOptions>,
    ) -> Result<Collection, Thrown> {
        let front = self.front()?;
        if Slug::parse(&name).is_none() {
            return Err(needs(caller, &format!("records needs name to be a slug, not {name}")));
        }
        if name == ostler_engine_automations::by_value::COLLECTION {
            return Err(needs(caller, &format!("records {name} are reserved for the host")));
        }
        let mut taken = front.collections.lock();
        match taken.get(&name) {
            Some(holder) if *holder != caller.plugin => {
                return Err(needs(caller, &format!("records {name} belong to plugin {holder}")));
            }
            _ => {
                taken.insert(name.clone(), caller.plugin.clone());
            }
        }
        drop(taken);
        Ok(collection(&front, name, options.unwrap_or_default()))
    }

    fn fire_trigger(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        data: JsonObject,
    ) -> Result<Fired, Thrown> {
        self.front()?.automations.fire(caller, &r#type, &event, data)
    }

    fn fire_event(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        data: EventData,
        routing: Option<Routing>,
        records: EventRecords,
    ) -> Pending<FiredOnce> {
        match self.front() {
            Ok(front) => front.automations.clone().fire_event(caller, r#type, event, data, routing, records),
            Err(why) => ready(Err(why)),
        }
    }

    fn explain_event(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        data: SentObject,
        routing: Option<Routing>,
    ) -> Pending<Vec<ExplainedAutomation>> {
        match self.front() {
            Ok(front) => front.automations.clone().explain_event(caller, r#type, event, data, routing),
            Err(why) => ready(Err(why)),
        }
    }

    fn join_runs(
        &self,
        caller: &Caller,
        transactions: Arc<dyn RunTransactions>,
        shared: Option<Arc<dyn SharedRuns>>,
    ) -> Result<(), Thrown> {
        match self.front()?.core.join_runs(transactions, shared) {
            true => Ok(()),
            false => Err(needs(caller, "another plugin stores the runs already")),
        }
    }

    fn has_run_transactions(&self, _: &Caller) -> Result<bool, Thrown> {
        Ok(self.front()?.core.run_transactions().is_some())
    }

    fn problems(&self, _: &Caller) -> Result<Problems, Thrown> {
        Ok(self.front()?.core.log.problems().clone())
    }

    fn lost_storage(&self, _: &Caller) -> Result<Option<String>, Thrown> {
        Ok(self.front()?.core.lost_storage())
    }

    fn incarnation(&self, _: &Caller) -> Result<Option<String>, Thrown> {
        Ok(self.front()?.core.cluster().map(|cluster| cluster.incarnation()))
    }

    fn takes_over(&self, _: &Caller, from: Option<String>, session: String) -> Pending<bool> {
        match self.front() {
            Ok(front) => {
                let take_over = self.take_over.clone();
                Box::pin(async move { take_over.takes_over(&front, from, &session).await })
            }
            Err(why) => ready(Err(why)),
        }
    }

    fn join_users(&self, caller: &Caller, store: Arc<dyn UsersStore>) -> Result<(), Thrown> {
        match self.front()?.core.join_users(store) {
            true => Ok(()),
            false => Err(needs(caller, "another plugin stores the users already")),
        }
    }

    fn join_cluster(&self, caller: &Caller, cluster: Arc<dyn Cluster>) -> Result<(), Thrown> {
        match self.front()?.core.join_cluster(cluster) {
            true => Ok(()),
            false => Err(needs(caller, "the host is in a cluster already")),
        }
    }

    fn link(&self, _: &Caller, uri: String) -> Result<Option<String>, Thrown> {
        Ok(self.front()?.core.options.links.of(&uri))
    }

    fn send(&self, caller: &Caller, request: Request) -> Pending<Response> {
        let front = match self.front() {
            Ok(front) => front,
            Err(why) => return ready(Err(why)),
        };
        match front.core.outbound() {
            Some(outbound) => outbound.send(request),
            None => ready(Err(no_network(&caller.plugin))),
        }
    }

    fn publish(
        &self,
        caller: &Caller,
        scheme: String,
        uri: String,
        action: JsonObject,
        options: Option<PublishOptions>,
    ) -> Result<(), Thrown> {
        self.front()?.channels.publish_on_channel(caller, &scheme, &uri, action, options)
    }

    fn subscribers(&self, caller: &Caller, scheme: String, uri: String) -> Result<Vec<Subscriber>, Thrown> {
        Ok(self.front()?.channels.channel_subscribers(&caller.plugin, &scheme, &uri))
    }
}

/// What plugins ask of a session.
struct FoundSession {
    provider: String,
    owner: Option<String>,
}

/// Returns the session of a URI with any scheme, whichever host serves it.
///
/// # Errors
/// The store does not answer, or the host is stopping and no longer knows whether the session exists. Callers remove a
/// session's data if it does not exist.
async fn session_of(front: &Front, uri: &str) -> Result<Option<FoundSession>, Thrown> {
    let Some(id) = ostler_protocol::uri::session_id(uri) else { return Ok(None) };
    let read = match front.sessions.session(id).await {
        Read::Unknown(Unknown(why)) if SessionElsewhere::is(&why) => return stored_session(front, id).await,
        read => read.known()?,
    };
    match read.filter(|entry| !entry.is_gone()) {
        None if front.core.is_stopping() => Err(Thrown::new(STOPPING)),
        found => {
            Ok(found
                .map(|entry| FoundSession { provider: entry.provider.clone(), owner: entry.owner.clone() }))
        }
    }
}

/// Returns a session of another host as it is stored.
async fn stored_session(front: &Front, id: &str) -> Result<Option<FoundSession>, Thrown> {
    let Some(store) = front.core.session_store() else { return Ok(None) };
    let stored = store.config.read(limit::STORE, (id.to_owned(),)).await.known()?;
    Ok(stored.map(|stored| FoundSession { provider: stored.provider, owner: stored.owner }))
}

/// Returns whether a name can be read for this work. The host trusts the work that a plugin names.
fn in_scope(name: &VaultName, scope: Option<&SecretScope>) -> Result<(), String> {
    let fits = match name {
        VaultName::Host(_) => true,
        VaultName::Team { team, .. } => scope.and_then(|scope| scope.team.as_ref()) == Some(team),
        VaultName::User { id, .. } => {
            scope.and_then(|scope| scope.owner.as_deref()) == Some(format!("user:{id}").as_str())
        }
    };
    match (fits, name) {
        (true, _) => Ok(()),
        (false, VaultName::Team { team, .. }) => {
            Err(format!("secret {name} is for work of team {team}; name it as {{ team: '{team}' }}"))
        }
        (false, _) => {
            Err(format!("secret {name} is for that person's work; name it as {{ owner: 'user:<id>' }}"))
        }
    }
}

/// A collection whose store is known once all plugins are applied; earlier calls wait for that.
fn collection(front: &Arc<Front>, name: String, options: CollectionOptions) -> Collection {
    let opened = Arc::new(OpenCollection {
        front: Arc::downgrade(front),
        name,
        options,
        cell: OnceCell::new(),
        unheard: watch::Sender::new(0),
    });
    /// Calls the collection in the store.
    macro_rules! call {
        ($opened:ident.$member:ident, $arguments:expr) => {
            match $opened.known() {
                // Nearly every call takes this path, which needs no future that contains the wait for the store.
                Some(stored) => stored.$member.answering_within(limit::STORE, $arguments),
                None => {
                    let (opened, arguments) = ($opened.clone(), $arguments);
                    Answering::Later(Box::pin(async move {
                        opened.watched().await?.$member.within(limit::STORE, arguments).await
                    }))
                }
            }
        };
    }
    macro_rules! through {
        ($member:ident) => {{
            let opened = opened.clone();
            HostFunction::either(move |arguments| call!(opened.$member, arguments))
        }};
    }
    let watched = opened.clone();
    Collection {
        get: through!(get),
        ids: {
            let opened = opened.clone();
            HostFunction::new(move |()| {
                let opened = opened.clone();
                async move {
                    let stored = opened.watched().await?;
                    if let Some(ids) = &stored.ids {
                        return ids.within(limit::STORE, ()).await;
                    }
                    let records = stored.list.within(limit::STORE, ()).await?;
                    let id = |record: &JsonObject| Some(record.get("id")?.as_str()?.to_owned());
                    Ok(records.iter().filter_map(id).collect())
                }
            })
        },
        list: through!(list),
        find: through!(find),
        put: {
            let opened = opened.clone();
            HostFunction::either(move |(record,): (JsonObject,)| {
                let id = record.get("id").and_then(Value::as_str);
                match id.and_then(Slug::parse) {
                    Some(_) => call!(opened.put, (record,)),
                    None => {
                        let said = id.map_or_else(|| "nothing".to_owned(), |id| format!("{id:?}"));
                        let name = &opened.name;
                        Answering::Now(Err(Thrown::new(format_args!(
                            "records {name}: put needs id to be a slug, not {said}"
                        ))))
                    }
                }
            })
        },
        remove: through!(remove),
        watch: Func::new(move |(on_change,): (Call<fn(change: RecordChange)>,)| {
            Ok(watch_from_now(&watched, on_change))
        }),
    }
}

struct OpenCollection {
    front: Weak<Front>,
    name: String,
    options: CollectionOptions,
    cell: OnceCell<StoredCollection>,
    /// Requested watchers that the store does not know yet.
    unheard: watch::Sender<usize>,
}

impl OpenCollection {
    /// Returns the collection once the store knows all earlier watchers, so that a plugin that watches and then writes
    /// is notified.
    async fn watched(&self) -> Result<&StoredCollection, Thrown> {
        let mut unheard = self.unheard.subscribe();
        let stored = self.stored().await?;
        let _ = unheard.wait_for(|unheard| *unheard == 0).await;
        Ok(stored)
    }

    /// Returns the collection if it is open and the store knows every watcher.
    fn known(&self) -> Option<&StoredCollection> {
        self.cell.get().filter(|_| *self.unheard.borrow() == 0)
    }

    async fn stored(&self) -> Result<&StoredCollection, Thrown> {
        let opened = self.cell.get_or_try_init(|| async {
            let front = upgraded(&self.front)?;
            front.core.built().await;
            let store =
                front.core.record_store().ok_or_else(|| Thrown::new(problem::no_record_store(&self.name)))?;
            store.collection.within(limit::STORE, (self.name.clone(), self.options.clone())).await
        });
        opened.await
    }
}

/// Watches as soon as the store exists; returns the function that stops it.
fn watch_from_now(opened: &Arc<OpenCollection>, on_change: Call<fn(change: RecordChange)>) -> Func<fn()> {
    let (stop, stopped) = watch::channel(false);
    let opened = opened.clone();
    opened.unheard.send_modify(|unheard| *unheard += 1);
    let mut ended = stopped.clone();
    let heard = HostFunction::new(move |(change,): (RecordChange,)| {
        let on_change = (!*stopped.borrow()).then(|| on_change.clone());
        async move {
            match on_change {
                Some(on_change) => on_change.unbounded((change,)).await,
                None => Ok(()),
            }
        }
    });
    tasks::spawn(async move {
        let watched = match opened.stored().await {
            Ok(stored) => stored.watch.within(limit::STORE, (heard,)).await,
            Err(why) => Err(why),
        };
        opened.unheard.send_modify(|unheard| *unheard -= 1);
        match watched {
            Ok(stop) => {
                // The watch continues if the plugin drops the function that stops it.
                let asked = ended.wait_for(|ended| *ended).await.is_ok();
                if let Some(stop) = stop.filter(|_| asked) {
                    let _ = stop.unbounded(()).await;
                }
            }
            Err(why) => {
                if let Some(front) = opened.front.upgrade() {
                    front.core.log.warn(format_args!("records {} are not watched: {why}", opened.name));
                }
            }
        }
    });
    let stop = Arc::new(stop);
    Func::new(move |()| {
        stop.send_replace(true);
        Ok(())
    })
}
