//! The host object of a plugin: facts, calls to the host, and one method per registration point.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use ostler_contract_derive::{Cross, host_calls};
use ostler_protocol::JsonObject;
use ostler_protocol::grants::Grant;
use ostler_protocol::sent::SentObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Call, Func, FunctionName, HostFunction};
use crate::cluster::Cluster;
use crate::cross::Cross;
use crate::http::{Request, Response};
use crate::id::{PluginId, Slug};
use crate::live::{Live, Pending};
use crate::points::{Collection, CollectionOptions, POINTS, PublishOptions, Subscriber, UsageEntry, Vault};
use crate::problems::Problems;
use crate::recorder::Recorder;
use crate::shape::Shape;
use crate::shared_runs::{EventRecords, FiredOnce, RunTransactions, SharedRuns};
use crate::thrown::Thrown;
use crate::users::UsersStore;

/// Facts about the host for plugins. Spec: *Read-only context on the plugin host*.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// Every directory the host serves.
    pub paths: Vec<String>,
    /// The SDK version actually in use.
    pub version: String,
    /// The name of this host, which is the owner of work without a user.
    pub host_name: String,
    /// Folder holding the daemon's configuration.
    pub config_dir: String,
}

/// The plugin that calls the host.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The plugin.
    pub plugin: PluginId,
    /// The grants in its configuration entry.
    pub grants: Arc<[Grant]>,
    /// The vault at the time of `apply`, which provides secrets until the host is built.
    pub vault: Option<Vault>,
}

impl Caller {
    /// Returns the principal of the plugin's own connection.
    pub fn principal(&self) -> String {
        format!("plugin:{}", self.plugin)
    }
}

/// A session for `startSession`. Spec: *Session request*.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct SessionRequest {
    /// Owner: `user:<id>`, `team:<id>`, `project:<team>:<project>`, `root:<host>` of this host or its cluster, or `plugin:<id>`.
    pub owner: String,
    /// A backend of the host. Default: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Working directory of the backend. Default: the host's first directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Settings of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<JsonObject>,
    /// Model of the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<SessionModel>,
    /// Title. Default: derived from the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Text of the first turn. Without it, the session starts without a turn; blank text is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Another owner in whose name it works, such as that of the bot that answers in it. Its turns run while that owner, too,
    /// could start a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_for: Option<String>,
}

/// A model by its id.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SessionModel {
    /// Model id of the backend.
    pub id: String,
}

/// The work for which a secret is requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SecretScope {
    /// The team of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The user of the work: `user:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A plugin's own connection, a client in memory.
#[derive(Debug, Clone, Cross)]
pub struct Peer {
    /// Sends a request and returns its result, or throws the `RpcError`.
    pub request: HostFunction<fn(method: String, params: Option<JsonObject>) -> Value>,
    /// Sends a notification.
    pub notify: Func<fn(method: String, params: Option<JsonObject>)>,
    /// Receives every notification of the host: `{ method, params }`. One listener at a time.
    pub on_message: Func<fn(listener: Call<fn(message: Value)>)>,
    /// Closes the connection. Further calls have no effect.
    pub close: Func<fn()>,
}

/// The outcome of a fired event.
#[derive(Debug, Clone, Cross)]
pub struct Fired {
    /// Returns the URIs of the started runs when each is durable. Throws if one could not be stored.
    pub kept: HostFunction<fn() -> Vec<String>>,
}

/// The data of an event.
#[derive(Debug, Clone)]
pub enum EventData {
    /// Its fields.
    Fields(SentObject),
    /// Long text of a JSON object: only the parts that automations read are parsed.
    Text {
        /// The text.
        text: Bytes,
        /// Fields that override those of the text.
        over: JsonObject,
    },
}

/// The order and the sessions of an event's runs, for each automation it starts. An event without the field, or with one that
/// is neither text, a number nor a boolean, has no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// Field of the event's data, as in `{{event.<field>}}`. Each event starts a run of its own; runs with the same value
    /// run one after the other, in the order of their events.
    pub by: String,
    /// Whether runs with the same value are turns of one session.
    pub session: bool,
}

/// The outcome of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Firing {
    /// What it started is durable.
    Started {
        /// The URIs of the runs that it started or was merged into.
        runs: Vec<String>,
        /// Why there is no other run: a text for each automation that got none, or for the whole event.
        unstarted: Vec<String>,
    },
    /// The requests for runs are durable, and another host has not decided about them yet. The runs start later.
    Requested,
    /// Too many ordered runs wait; nothing is stored, and the event can be sent again later.
    Full,
}

/// What one automation would do with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedAutomation {
    /// Its id.
    pub automation: String,
    /// The trigger that the event is about.
    pub trigger: String,
    /// The run that it would start; the error is why it would start none.
    pub outcome: Result<ExplainedRun, String>,
}

/// The run that an automation would start for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRun {
    /// When it would begin, such as `now`.
    pub begins: String,
    /// The agent of its session; `None` if the host has none.
    pub agent: Option<String>,
    /// The URI of the session in which it would continue; `None` for a new one.
    pub session: Option<String>,
    /// The message that the agent would get.
    pub message: String,
    /// Why the run would fail, as far as that is known now.
    pub fails: Option<String>,
}

impl Firing {
    /// Returns the outcome of an event that started these runs.
    pub fn started(runs: Vec<String>) -> Self {
        Self::Started { runs, unstarted: Vec::new() }
    }
}

/// The calls of a plugin to its host. Spec: *Plugin host calls*.
#[host_calls]
pub trait HostCalls: Send + Sync {
    /// Writes one line to the daemon's log.
    fn log(&self, caller: &Caller, line: String) -> Result<(), Thrown>;

    /// Adds one line to the daemon's announcement. A line after the `listening` event was handled is dropped.
    fn say(&self, caller: &Caller, line: String) -> Result<(), Thrown>;

    /// Parses YAML text. Throws for invalid YAML.
    fn parse_yaml(&self, caller: &Caller, text: String) -> Result<Value, Thrown>;

    /// Formats data as YAML text from which `parseYaml` returns the same data.
    fn stringify_yaml(&self, caller: &Caller, value: Value) -> Result<String, Thrown>;

    /// Opens the plugin's own connection, which acts as `plugin:<id>`. Throws before the host listens.
    fn connect(&self, caller: &Caller) -> Result<Peer, Thrown>;

    /// Starts a session for an owner and returns its URI, or throws and leaves nothing behind.
    fn start_session(&self, caller: &Caller, request: SessionRequest) -> Pending<String>;

    /// Returns whether this host has the session.
    fn session_kept(&self, caller: &Caller, uri: String) -> Pending<bool>;

    /// Returns the session's owner, or nothing.
    fn session_owner(&self, caller: &Caller, uri: String) -> Pending<Option<String>>;

    /// Records one usage entry. Without a usage store, it has no effect; an error of the store is thrown.
    fn record_usage(&self, caller: &Caller, entry: UsageEntry) -> Pending<()>;

    /// Returns the value of a vault name: `host:<name>`, `team:<team>/<name>` or `user:<id>/<name>`.
    fn secret(&self, caller: &Caller, name: String, scope: Option<SecretScope>) -> Pending<String>;

    /// Opens a collection of the record store. Its calls wait until every plugin has applied.
    fn records(
        &self,
        caller: &Caller,
        name: String,
        options: Option<CollectionOptions>,
    ) -> Result<Collection, Thrown>;

    /// Reports an event of a trigger type of this plugin. Every enabled automation with a matching trigger starts a
    /// run; the call does not wait for runs. `data` is stored with the run and must not contain secrets. An event
    /// before the host is built starts its runs afterwards.
    #[checked(may_fire)]
    fn fire_trigger(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        data: JsonObject,
    ) -> Result<Fired, Thrown>;

    /// Like `fireTrigger`, with data that may be long JSON text, and with runs that may be ordered or share sessions.
    /// Returns when each run is durable. Text that is not a JSON object is rejected with an `RpcError`. An event with
    /// `records.once` that is fired again starts no other runs. Records are stored in the same transaction as the runs where the
    /// store can do so. A host that does not implement this call neither orders runs nor shares sessions, and fires each event.
    #[inner]
    fn fire_event(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        data: EventData,
        _routing: Option<Routing>,
        _records: EventRecords,
    ) -> Pending<FiredOnce> {
        let data = match data {
            EventData::Fields(data) => Ok(data.fields),
            EventData::Text { text, over } => {
                SentObject::read(&text).map_err(Thrown::new).map(|SentObject { mut fields, .. }| {
                    fields.extend(over);
                    fields
                })
            }
        };
        let fired = data.and_then(|data| self.fire_trigger(caller, r#type, event, data));
        Box::pin(
            async move { fired?.kept.call(()).await.map(|runs| FiredOnce::Fired(Firing::started(runs))) },
        )
    }

    /// Returns what each automation that an event is about would do with it, sorted by id. Nothing is started, stored or counted.
    /// A host that does not implement this call knows of none.
    #[inner]
    fn explain_event(
        &self,
        _caller: &Caller,
        _type: String,
        _event: String,
        _data: SentObject,
        _routing: Option<Routing>,
    ) -> Pending<Vec<ExplainedAutomation>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Sets how runs are stored together with records, and how they are shared with other hosts, if they are. Once, in
    /// `apply`.
    #[inner]
    fn join_runs(
        &self,
        caller: &Caller,
        _transactions: Arc<dyn RunTransactions>,
        _shared: Option<Arc<dyn SharedRuns>>,
    ) -> Result<(), Thrown> {
        Err(Thrown::new(format_args!("plugin {}: this host shares no runs", caller.plugin)))
    }

    /// Returns whether records can be stored in the transaction of runs. Other hosts may write to such a store, now or later.
    #[inner]
    fn has_run_transactions(&self, _caller: &Caller) -> Result<bool, Thrown> {
        Ok(false)
    }

    /// Returns the host's list of what is wrong now, for a store that finds entries that it cannot read.
    #[inner]
    fn problems(&self, _caller: &Caller) -> Result<Problems, Thrown> {
        Ok(Problems::default())
    }

    /// Returns why nothing can be stored now, if that is the case: the disk is full, the state database was removed, or the
    /// host has no lease. New work is refused in the meantime.
    #[inner]
    fn lost_storage(&self, _caller: &Caller) -> Result<Option<String>, Thrown> {
        Ok(None)
    }

    /// Returns the run of this host in its cluster, which is new after each start. Nothing without a cluster.
    #[inner]
    fn incarnation(&self, _caller: &Caller) -> Result<Option<String>, Thrown> {
        Ok(None)
    }

    /// Returns whether this host continues the work about a session that a run of a host recorded: that run has ended, and this
    /// host has the session. Of a session that does not exist, one host of the cluster does.
    #[inner]
    fn takes_over(&self, _caller: &Caller, _from: Option<String>, _session: String) -> Pending<bool> {
        crate::live::ready(Ok(true))
    }

    /// Sets the store of the users file. Once, in `apply`.
    #[inner]
    fn join_users(&self, caller: &Caller, _store: Arc<dyn UsersStore>) -> Result<(), Thrown> {
        Err(Thrown::new(format_args!("plugin {}: this host shares no users", caller.plugin)))
    }

    /// Joins the host to a cluster of hosts that share its stores. Once, in `apply`.
    #[inner]
    fn join_cluster(&self, caller: &Caller, _cluster: Arc<dyn Cluster>) -> Result<(), Thrown> {
        Err(Thrown::new(format_args!("plugin {}: this host can join no cluster", caller.plugin)))
    }

    /// Checks that work may start in the name of an owner now: a user may have been removed, or have lost grants. Throws
    /// `-32009` with what the owner may not do.
    #[inner]
    fn may_work_for(&self, _caller: &Caller, _owner: String) -> Result<(), Thrown> {
        Ok(())
    }

    /// Returns the URL under which people open a run or a session of this host, by its URI: a page of the web console, or
    /// its address in the HTTP API. Nothing where neither is served.
    #[inner]
    fn link(&self, _caller: &Caller, _uri: String) -> Result<Option<String>, Thrown> {
        Ok(None)
    }

    /// Sends an HTTP request through the host's client and returns the response after its head. Redirects are returned,
    /// not followed. JavaScript plugins use `fetch` instead.
    #[inner]
    fn send(&self, caller: &Caller, _request: Request) -> Pending<Response> {
        crate::live::ready(Err(crate::problem::no_network(&caller.plugin)))
    }

    /// Publishes an action on a channel of this plugin; see [`crate::points::ChannelHandle`].
    #[inner]
    fn publish(
        &self,
        caller: &Caller,
        scheme: String,
        uri: String,
        action: JsonObject,
        options: Option<PublishOptions>,
    ) -> Result<(), Thrown>;

    /// Returns the subscribers of a URI of this plugin's channel.
    #[inner]
    fn subscribers(&self, caller: &Caller, scheme: String, uri: String) -> Result<Vec<Subscriber>, Thrown>;
}

/// A call of [`HostCalls`], for the JavaScript surface and the documentation.
#[derive(Debug)]
pub struct HostCall {
    /// Name in camelCase.
    pub name: &'static str,
    /// Description.
    pub docs: &'static str,
    /// Names of the parameters.
    pub params: &'static [&'static str],
    /// Its shape, a function.
    pub shape: fn() -> Shape,
    /// The function.
    pub live: fn(&PluginHost) -> Live,
}

/// The context of a listener: the facts and calls that `apply` received, read-only.
#[derive(Debug, Clone, Cross)]
pub struct PluginContext {
    /// The first directory the host serves.
    pub path: String,
    /// Every directory the host serves.
    pub paths: Vec<String>,
    /// The SDK version actually in use.
    pub version: String,
    /// The name of this host, which is the owner of work without a user.
    pub host_name: String,
    /// Folder holding the daemon's configuration; where a plugin keeps its own file.
    pub config_dir: String,
    /// Writes one line to the daemon's log.
    pub log: Func<fn(line: String)>,
    /// Adds one line to the daemon's announcement, while `listening` is handled.
    pub say: Func<fn(line: String)>,
    /// Parses YAML text.
    pub parse_yaml: Func<fn(text: String) -> Value>,
    /// Formats data as YAML text.
    pub stringify_yaml: Func<fn(value: Value) -> String>,
}

/// The host object of one plugin, during `apply` and afterwards.
#[derive(Clone)]
pub struct PluginHost(Arc<Inner>);

struct Inner {
    facts: Arc<HostFacts>,
    caller: Caller,
    calls: Arc<dyn HostCalls>,
    recorder: Mutex<Recorder>,
    options: OnceLock<JsonObject>,
}

impl PluginHost {
    /// Returns a host object for one plugin. Registrations are recorded until [`PluginHost::seal`].
    pub fn new(facts: Arc<HostFacts>, caller: Caller, calls: Arc<dyn HostCalls>) -> Self {
        let recorder = Mutex::new(Recorder::new(caller.plugin.clone()));
        Self(Arc::new(Inner { facts, caller, calls, recorder, options: OnceLock::new() }))
    }

    /// The plugin's id.
    pub fn id(&self) -> &Slug {
        &self.0.caller.plugin
    }

    /// Stores the options of the plugin, from which machine needs take values.
    pub fn set_options(&self, options: JsonObject) {
        let _ = self.0.options.set(options);
    }

    /// The options of the plugin.
    pub fn options(&self) -> &JsonObject {
        self.0.options.get_or_init(JsonObject::new)
    }

    /// Facts about the host.
    pub fn facts(&self) -> &HostFacts {
        &self.0.facts
    }

    /// The identity of the plugin.
    pub fn caller(&self) -> &Caller {
        &self.0.caller
    }

    pub(crate) fn calls(&self) -> &dyn HostCalls {
        &*self.0.calls
    }

    pub(crate) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.0.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the plugin registered the type with the event.
    fn may_fire(&self, r#type: &str, event: &str, _data: &JsonObject) -> Result<(), Thrown> {
        let recorder = self.recorder();
        let own = recorder.trigger_types().find(|own| *own.r#type == *r#type);
        crate::points::TriggerType::may_fire(own, self.id(), r#type, event)
    }

    /// Returns the registrations and rejects further ones.
    pub fn seal(&self) -> Recorder {
        self.recorder().seal()
    }

    /// Returns the context of listeners.
    pub fn context(&self) -> PluginContext {
        let facts = self.facts();
        let on_host = |host: &Self| host.clone();
        let named = |method, params| FunctionName { plugin: Some(self.id().clone()), method, params };
        let (log, say, parse, stringify) = (on_host(self), on_host(self), on_host(self), on_host(self));
        PluginContext {
            path: facts.paths.first().cloned().unwrap_or_default(),
            paths: facts.paths.clone(),
            version: facts.version.clone(),
            host_name: facts.host_name.clone(),
            config_dir: facts.config_dir.clone(),
            log: Func::new(move |(line,)| log.log(line)).named(named("log", &["line"])),
            say: Func::new(move |(line,)| say.say(line)).named(named("say", &["line"])),
            parse_yaml: Func::new(move |(text,)| parse.parse_yaml(text)).named(named("parseYaml", &["text"])),
            stringify_yaml: Func::new(move |(value,)| stringify.stringify_yaml(value))
                .named(named("stringifyYaml", &["value"])),
        }
    }

    /// Returns the object for a JavaScript `apply`: facts, calls and registration methods. Writing to it throws.
    pub fn into_live(self) -> Live {
        let mut fields = match self.context().into_live() {
            Live::Object(fields) => fields,
            _ => Vec::new(),
        };
        for call in HOST_CALLS {
            if !fields.iter().any(|(name, _)| name == call.name) {
                fields.push((call.name.into(), (call.live)(&self)));
            }
        }
        for point in POINTS {
            fields.push((point.method.into(), point.live(&self)));
        }
        Live::Frozen(Box::new(Live::Object(fields)))
    }
}

impl fmt::Debug for PluginHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PluginHost({})", self.id())
    }
}
