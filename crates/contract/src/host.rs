//! What a plugin is handed: facts, calls on the host, and one method per registration point.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use ostler_contract_derive::{Cross, host_calls};
use ostler_protocol::JsonObject;
use ostler_protocol::grants::Grant;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Call, Func, Named};
use crate::cross::Cross;
use crate::http::{Request, Response};
use crate::id::{PluginId, Slug};
use crate::live::{Live, Pending};
use crate::points::{Collection, CollectionOptions, POINTS, PublishOptions, Subscriber, UsageEntry, Vault};
use crate::recorder::Recorder;
use crate::shape::Shape;
use crate::thrown::Thrown;

/// Facts about the host that a plugin may read. Spec: *Read-only context on the plugin host*.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// Every directory the host serves.
    pub paths: Vec<String>,
    /// The SDK version actually in use.
    pub version: String,
    /// What this host is called, for work nobody started as themselves.
    pub host_name: String,
    /// Folder holding the daemon's configuration.
    pub config_dir: String,
}

/// Who calls the host.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The plugin.
    pub plugin: PluginId,
    /// The grants of its configuration entry.
    pub grants: Arc<[Grant]>,
    /// The vault as it stood when the plugin was applied: what its secrets are read from until the host is
    /// built.
    pub vault: Option<Vault>,
}

impl Caller {
    /// The principal a plugin's own connection is served as.
    pub fn principal(&self) -> String {
        format!("plugin:{}", self.plugin)
    }
}

/// A session asked for with `startSession`. Spec: *Session request*.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct SessionRequest {
    /// Whose it is: `user:<id>`, `team:<id>`, `project:<team>:<project>`, `root:<host>` or `plugin:<id>`.
    pub owner: String,
    /// A backend the host has; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Where the backend works; the host's first directory when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The session's own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<JsonObject>,
    /// Rides on the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<SessionModel>,
    /// Without it the session is named after its first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The first turn. Left out, the session opens with nobody speaking; blank, it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// A model by its id.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SessionModel {
    /// As the backend's models are called.
    pub id: String,
}

/// Whose work a secret is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SecretScope {
    /// The work is this team's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The work is this person's: `user:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A plugin's own connection: a client like any other, in memory.
#[derive(Debug, Clone, Cross)]
pub struct Peer {
    /// Sends a request; answers its result, or throws the `RpcError`.
    pub request: Call<fn(method: String, params: Option<JsonObject>) -> Value>,
    /// Sends a notification.
    pub notify: Func<fn(method: String, params: Option<JsonObject>)>,
    /// Hears every notification of the host: `{ method, params }`. One listener at a time.
    pub on_message: Func<fn(listener: Call<fn(message: Value)>)>,
    /// Ends the connection. More than once does nothing more.
    pub close: Func<fn()>,
}

/// What came of a fired event.
#[derive(Debug, Clone, Cross)]
pub struct Fired {
    /// Answers the URIs of the runs the event started, once each is kept so that a crash cannot lose it.
    /// Throws where one could not be kept.
    pub kept: Call<fn() -> Vec<String>>,
}

/// Calls a plugin makes on its host. Spec: *Plugin host calls*.
#[host_calls]
pub trait HostCalls: Send + Sync {
    /// Writes one line to the daemon's log.
    fn log(&self, caller: &Caller, line: String) -> Result<(), Thrown>;

    /// Adds one line to what the daemon announces about itself. A line said after the `listening` event was
    /// handled is dropped.
    fn say(&self, caller: &Caller, line: String) -> Result<(), Thrown>;

    /// Reads YAML text as data. Throws on YAML it cannot read.
    fn parse_yaml(&self, caller: &Caller, text: String) -> Result<Value, Thrown>;

    /// Writes data as YAML text that `parseYaml` reads back the same.
    fn stringify_yaml(&self, caller: &Caller, value: Value) -> Result<String, Thrown>;

    /// Opens a connection of the plugin's own, served as `plugin:<id>`. Throws until the host listens.
    fn connect(&self, caller: &Caller) -> Result<Peer, Thrown>;

    /// Starts a session for somebody; answers its URI, or throws and leaves nothing behind.
    fn start_session(&self, caller: &Caller, request: SessionRequest) -> Pending<String>;

    /// Answers whether this host keeps the session.
    fn session_kept(&self, caller: &Caller, uri: String) -> Pending<bool>;

    /// Answers the session's owner, or nothing.
    fn session_owner(&self, caller: &Caller, uri: String) -> Pending<Option<String>>;

    /// Keeps one entry of use. With no usage store nothing is kept and nothing fails; a store that refuses the entry
    /// throws here.
    fn record_usage(&self, caller: &Caller, entry: UsageEntry) -> Pending<()>;

    /// Answers the value behind a vault name: `host:<name>`, `team:<team>/<name>` or `user:<id>/<name>`.
    fn secret(&self, caller: &Caller, name: String, scope: Option<SecretScope>) -> Pending<String>;

    /// Opens a collection of the record store. Its calls wait until every plugin has applied.
    fn records(
        &self,
        caller: &Caller,
        name: String,
        options: Option<CollectionOptions>,
    ) -> Result<Collection, Thrown>;

    /// Says that an event of a trigger type this plugin registered has happened. Every enabled automation
    /// whose trigger matches `data` starts a run; the call does not wait for them. `data` is stored with the
    /// run and must carry nothing secret. One fired before the host is built starts its runs once it is.
    #[checked(may_fire)]
    fn fire_trigger(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        data: JsonObject,
    ) -> Result<Fired, Thrown>;

    /// The same as `fireTrigger` for data that is long JSON text: of it only what automations read is made into
    /// values. `over` goes over its fields. Answers the runs' URIs once each is kept; text that is no JSON object is
    /// refused with an `RpcError`.
    #[inner]
    fn fire_text(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        text: Bytes,
        over: JsonObject,
    ) -> Pending<Vec<String>> {
        let data = serde_json::from_slice::<JsonObject>(&text).map_err(Thrown::new);
        let fired = data.and_then(|mut data| {
            data.extend(over);
            self.fire_trigger(caller, r#type, event, data)
        });
        Box::pin(async move { fired?.kept.call(()).await })
    }

    /// Sends one HTTP request through the host's one outbound client; answers its response, of which nothing
    /// but the head is read. A redirect is answered as it is. A JavaScript plugin has `fetch` for that.
    #[inner]
    fn send(&self, caller: &Caller, _request: Request) -> Pending<Response> {
        crate::live::ready(Err(crate::problem::no_network(&caller.plugin)))
    }

    /// Publishes an action on a channel of this plugin's; see [`crate::points::ChannelHandle`].
    #[inner]
    fn publish(
        &self,
        caller: &Caller,
        scheme: String,
        uri: String,
        action: JsonObject,
        options: Option<PublishOptions>,
    ) -> Result<(), Thrown>;

    /// Who watches a URI of a channel of this plugin's.
    #[inner]
    fn subscribers(&self, caller: &Caller, scheme: String, uri: String) -> Result<Vec<Subscriber>, Thrown>;
}

/// One call of [`HostCalls`], for the JavaScript surface and the docs.
#[derive(Debug)]
pub struct HostCall {
    /// camelCase.
    pub name: &'static str,
    /// Its docs.
    pub docs: &'static str,
    /// The parameters' names.
    pub params: &'static [&'static str],
    /// Its shape: a function.
    pub shape: fn() -> Shape,
    /// The live function.
    pub live: fn(&PluginHost) -> Live,
}

/// What a listener is handed: the facts and calls `apply` received, to read.
#[derive(Debug, Clone, Cross)]
pub struct PluginContext {
    /// The first directory the host serves.
    pub path: String,
    /// Every directory the host serves.
    pub paths: Vec<String>,
    /// The SDK version actually in use.
    pub version: String,
    /// What this host is called, for work nobody started as themselves.
    pub host_name: String,
    /// Folder holding the daemon's configuration; where a plugin keeps its own file.
    pub config_dir: String,
    /// Writes one line to the daemon's log.
    pub log: Func<fn(line: String)>,
    /// Adds one line to what the daemon announces about itself, while `listening` is handled.
    pub say: Func<fn(line: String)>,
    /// Reads YAML text as data.
    pub parse_yaml: Func<fn(text: String) -> Value>,
    /// Writes data as YAML text.
    pub stringify_yaml: Func<fn(value: Value) -> String>,
}

/// The host as one plugin sees it, in `apply` and after.
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
    /// A host for one plugin. What it registers is recorded until [`PluginHost::seal`].
    pub fn new(facts: Arc<HostFacts>, caller: Caller, calls: Arc<dyn HostCalls>) -> Self {
        let recorder = Mutex::new(Recorder::new(caller.plugin.clone()));
        Self(Arc::new(Inner { facts, caller, calls, recorder, options: OnceLock::new() }))
    }

    /// The plugin's id.
    pub fn id(&self) -> &Slug {
        &self.0.caller.plugin
    }

    /// Keeps the options the plugin is applied with: machine needs take values from them.
    pub fn set_options(&self, options: JsonObject) {
        let _ = self.0.options.set(options);
    }

    /// The options the plugin was applied with.
    pub fn options(&self) -> &JsonObject {
        self.0.options.get_or_init(JsonObject::new)
    }

    /// Facts about the host.
    pub fn facts(&self) -> &HostFacts {
        &self.0.facts
    }

    /// Who the plugin is to the host.
    pub fn caller(&self) -> &Caller {
        &self.0.caller
    }

    pub(crate) fn calls(&self) -> &dyn HostCalls {
        &*self.0.calls
    }

    pub(crate) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.0.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the plugin registered the type and it offers the event.
    fn may_fire(&self, r#type: &str, event: &str, _data: &JsonObject) -> Result<(), Thrown> {
        let recorder = self.recorder();
        let own = recorder.trigger_types().find(|own| *own.r#type == *r#type);
        crate::points::TriggerType::may_fire(own, self.id(), r#type, event)
    }

    /// Takes what was registered. Nothing may be registered from now on.
    pub fn seal(&self) -> Recorder {
        self.recorder().seal()
    }

    /// What a listener is handed.
    pub fn context(&self) -> PluginContext {
        let facts = self.facts();
        let on_host = |host: &Self| host.clone();
        let named = |method, params| Named { plugin: Some(self.id().clone()), method, params };
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

    /// The object a JavaScript `apply` is handed: facts, calls and registration methods. Writing to it
    /// throws.
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
