//! The registration points of plugins.
//!
//! Each point has one file and one line in the table below. The method on [`PluginHost`], the JavaScript method, the
//! validation with its messages, and the TypeScript declaration are derived from them.

mod agent;
mod automations;
mod changes;
mod channel;
mod chat_preamble;
mod close;
mod computers;
mod containers;
mod diagnostics;
mod directories;
mod github;
mod listener;
mod method;
mod policies;
mod port;
mod records;
mod resource_provider;
mod resources;
mod route;
mod session_setting;
mod sessions;
mod terminals;
mod tool;
mod trigger_type;
mod usage;
mod vault;
mod worktrees;

use std::any::Any;
use std::sync::Arc;

pub use agent::*;
pub use automations::*;
pub use changes::*;
pub use channel::*;
pub use chat_preamble::*;
pub use close::*;
pub use computers::*;
pub use containers::*;
pub use diagnostics::*;
pub use directories::*;
pub use github::*;
pub use listener::*;
pub use method::*;
pub use policies::*;
pub use port::*;
pub use records::*;
pub use resource_provider::*;
pub use resources::*;
pub use route::*;
pub use session_setting::*;
pub use sessions::*;
pub use terminals::*;
pub use tool::*;
pub use trigger_type::*;
pub use usage::*;
pub use vault::*;
pub use worktrees::*;

use crate::call::Arguments;
use crate::cross::{Cross, Mismatch};
use crate::host::PluginHost;
use crate::live::{Callable, Function, Live, Pending, ready};
use crate::recorder::{Key, RecordedValue};
use crate::registry::{Fold, Registrant};
use crate::shape::{FunctionShape, Shape};
use crate::thrown::Thrown;

/// How contributions of one kind are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Appended to a list.
    Append,
    /// Provides a port.
    Port,
    /// Registered under a name.
    Keyed,
}

/// The table's entry of a point. Generated; see [`Contribution`] for what the point's file implements.
pub trait Point: Contribution {
    /// The JavaScript method.
    const METHOD: &'static str;
    /// The declaration.
    fn declaration() -> &'static PointDeclaration;
    /// Validates the values against their shapes.
    fn check_values(&self) -> Result<(), Mismatch>;
}

/// What the file of a point implements in addition to its struct.
pub trait Contribution: Any + Send + Sync {
    /// How contributions are merged.
    const SLOT: Slot;
    /// The name of the port, for a port.
    const PORT: &'static str = "";

    /// The name that this contribution takes, if any.
    fn key(&self) -> Option<Key> {
        None
    }

    /// Validation beyond the shapes.
    fn refuse(&self) -> Result<(), Mismatch> {
        Ok(())
    }

    /// Whether it takes over a port.
    fn replaces(&self) -> bool {
        false
    }

    /// Whether the name is reserved for the host.
    fn is_hosts(&self) -> bool {
        false
    }

    /// The message if another plugin has taken the name.
    fn clash(&self, key: &Key, owner: &Registrant, holder: &Registrant) -> String {
        key.clash(owner, holder, "registered")
    }
}

/// The result of a registration.
pub trait Answer<P: Point>: Cross {
    /// Creates the result after the value was recorded.
    fn answer(value: &Arc<P>, host: &PluginHost) -> Self;
}

impl<P: Point> Answer<P> for () {
    fn answer(_: &Arc<P>, _: &PluginHost) {}
}

/// One row of the table.
pub struct PointDeclaration {
    /// The JavaScript method.
    pub method: &'static str,
    /// Description.
    pub docs: &'static str,
    /// How contributions are merged.
    pub slot: Slot,
    /// Names of the parameters.
    pub params: &'static [&'static str],
    /// Shapes of the parameters and of the result.
    pub shape: fn() -> &'static FunctionShape,
    register: fn(&PluginHost, Vec<Live>) -> Result<Live, Thrown>,
    pub(crate) fold: fn(&mut Fold, Registrant, RecordedValue),
}

impl std::fmt::Debug for PointDeclaration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.method)
    }
}

impl PointDeclaration {
    /// Returns the registration method as a JavaScript function.
    pub(crate) fn live(&'static self, host: &PluginHost) -> Live {
        Live::Function(Function::new(Registration { point: self, host: host.clone() }))
    }
}

struct Registration {
    point: &'static PointDeclaration,
    host: PluginHost,
}

impl Callable for Registration {
    fn shape(&self) -> &'static FunctionShape {
        (self.point.shape)()
    }

    fn call(&self, arguments: Vec<Live>) -> Pending<Live> {
        ready(self.call_now(arguments))
    }

    fn call_now(&self, arguments: Vec<Live>) -> Result<Live, Thrown> {
        match self.refuses() {
            Some(sealed) => Err(sealed),
            None => (self.point.register)(&self.host, arguments),
        }
    }

    fn refuses(&self) -> Option<Thrown> {
        self.host.recorder().check_open().err()
    }
}

macro_rules! points {
    ($(
        $(#[doc = $docs:literal])+
        $point:ty: $method:literal $function:ident($($param:ident: $param_name:literal $ty:ty),+)
            $(-> $answer:ty)? = $build:expr;
    )+) => {
        /// All registration methods, in the order of the contract's table.
        pub const POINTS: &[PointDeclaration] = &[$(PointDeclaration {
            method: $method,
            docs: concat!($($docs, "\n"),+),
            slot: <$point as Contribution>::SLOT,
            params: &[$($param_name),+],
            shape: || {
                static SHAPE: std::sync::OnceLock<FunctionShape> = std::sync::OnceLock::new();
                SHAPE.get_or_init(|| FunctionShape {
                    params: vec![$(<$ty as Cross>::shape()),+],
                    returns: points!(@answer $($answer)?),
                    now: true,
                })
            },
            register: |host, arguments| {
                let names: &[&str] = &[$($param_name),+];
                let ($($param,)+) = <($($ty,)+) as Arguments>::from_live(arguments).map_err(|(at, wrong)| {
                    // A point with one object speaks of its members; one with several of its parameters.
                    let wrong = if names.len() > 1 || wrong.path.is_empty() { wrong.within(names[at]) } else { wrong };
                    crate::problem::needs(host.id(), $method, wrong)
                })?;
                host.$function($($param),+).map(Cross::into_live)
            },
            fold: crate::registry::fold::<$point>,
        }),+];

        $(
            impl Point for $point {
                const METHOD: &'static str = $method;

                fn declaration() -> &'static PointDeclaration {
                    static AT: std::sync::OnceLock<&'static PointDeclaration> = std::sync::OnceLock::new();
                    AT.get_or_init(|| {
                        let at = POINTS.iter().position(|point| point.method == $method);
                        &POINTS[at.unwrap_or_default()]
                    })
                }

                fn check_values(&self) -> Result<(), Mismatch> {
                    // A port holds what its first parameter was, and is spoken of by that name.
                    Checked::holds(self).map_err(|wrong| match <$point as Contribution>::SLOT {
                        Slot::Port => wrong.within([$($param_name),+][0]),
                        Slot::Append | Slot::Keyed => wrong,
                    })
                }
            }
        )+

        impl PluginHost {
            $(
                $(#[doc = $docs])+
                pub fn $function(&self, $($param: $ty),+) -> Result<points!(@type $($answer)?), Thrown> {
                    $(let mut $param = $param; Cross::made_by(&mut $param, self.id(), $method);)+
                    #[allow(clippy::redundant_closure_call)]
                    let value: $point = ($build)($($param),+);
                    let value = self.recorder().record(value)?;
                    Ok(Answer::<$point>::answer(&value, self))
                }
            )+
        }
    };
    (@answer) => { Shape::Nothing };
    (@answer $answer:ty) => { <$answer as Cross>::shape() };
    (@type) => { () };
    (@type $answer:ty) => { $answer };
}

/// Validation of the values in a contribution.
pub(crate) trait Checked {
    fn holds(&self) -> Result<(), Mismatch>;
}

/// A contribution that is a single value is validated when it crosses the boundary.
impl<T: Cross> Checked for T {
    fn holds(&self) -> Result<(), Mismatch> {
        Cross::check(self)
    }
}

points! {
    /// A backend a client names in `createSession`.
    Agent: "registerAgent" register_agent(agent: "agent" Agent) = |agent| agent;
    /// A server tool offered to every session's model.
    Tool: "registerTool" register_tool(tool: "tool" Tool) = |tool| tool;
    /// A setting a client draws on every session, merged into the backend's own schema. With a third argument it
    /// becomes a picker.
    SessionSetting: "registerSessionConfig"
        register_session_config(
            key: "key" crate::Text, schema: "schema" ostler_protocol::JsonObject,
            completions: "completions" Option<SettingAnswerer>
        )
        = |key, schema, completions| SessionSetting { key, schema, completions };
    /// The store behind `file:`: files that clients read, list and, with a write half, write.
    Port<ResourceStore>: "registerResources"
        register_resources(store: "store" ResourceStore, when: "when" Option<When>) = Port::new;
    /// One host-owned URI scheme, routed beside the `file:` store.
    SchemeProvider: "registerResourceProvider"
        register_resource_provider(scheme: "scheme" crate::Text, provider: "provider" ResourceProvider)
        = |scheme, provider| SchemeProvider { scheme, provider };
    /// One channel a client subscribes to, under an `x-` scheme. Returns a handle to publish on.
    SchemeChannel: "registerChannel"
        register_channel(scheme: "scheme" crate::Text, channel: "channel" Channel) -> ChannelHandle
        = |scheme, channel| SchemeChannel { scheme, channel };
    /// One command a client sends by name, under an `x-` name.
    NamedMethod: "registerMethod" register_method(name: "name" crate::Text, method: "method" Method)
        = |name, method| NamedMethod { name, method };
    /// Opens terminals.
    Port<TerminalStore>: "registerTerminals"
        register_terminals(store: "store" TerminalStore, when: "when" Option<When>) = Port::new;
    /// How a backend runs its process in a named machine, and how machines are created.
    Port<Computers>: "registerComputers"
        register_computers(computers: "computers" Computers, when: "when" Option<When>) = Port::new;
    /// Whether a dev container can be made, made, written to, stopped and removed.
    Port<Containers>: "registerContainers"
        register_containers(containers: "containers" Containers, when: "when" Option<When>) = Port::new;
    /// The changes of sessions: their changesets and operations.
    Port<Changes>: "registerChanges" register_changes(source: "source" Changes, when: "when" Option<When>) = Port::new;
    /// Facts about the directories of sessions.
    Port<Directories>: "registerDirectories"
        register_directories(facts: "facts" Directories, when: "when" Option<When>) = Port::new;
    /// Working trees for sessions.
    Port<Worktrees>: "registerWorktrees"
        register_worktrees(worktrees: "worktrees" Worktrees, when: "when" Option<When>) = Port::new;
    /// Pull requests of a code host.
    Port<PullRequests>: "registerGithub"
        register_github(pull_requests: "pullRequests" PullRequests, when: "when" Option<When>) = Port::new;
    /// The automation store.
    Port<AutomationStore>: "registerAutomations"
        register_automations(store: "store" AutomationStore, when: "when" Option<When>) = Port::new;
    /// The session store: flags, config, artifacts, pull requests, chat titles, a session's chats, the
    /// sessions it holds.
    Port<SessionStore>: "registerSessions"
        register_sessions(store: "store" SessionStore, when: "when" Option<When>) = Port::new;
    /// The store of secrets.
    Port<Vault>: "registerVault" register_vault(vault: "vault" Vault, when: "when" Option<When>) = Port::new;
    /// The store of policies, which restrict agents, models and machines.
    Port<Policies>: "registerPolicies"
        register_policies(policies: "policies" Policies, when: "when" Option<When>) = Port::new;
    /// Diagnostics of the host for its operators.
    Port<Diagnostics>: "registerDiagnostics"
        register_diagnostics(diagnostics: "diagnostics" Diagnostics, when: "when" Option<When>) = Port::new;
    /// The store of usage: the costs of models and machines.
    Port<Usage>: "registerUsage" register_usage(usage: "usage" Usage, when: "when" Option<When>) = Port::new;
    /// The store of records.
    Port<RecordStore>: "registerRecords"
        register_records(store: "store" RecordStore, when: "when" Option<When>) = Port::new;
    /// One HTTP route on the host's own listener, under `/plugins/<id>/`.
    Route: "registerRoute" register_route(handler: "handler" RouteHandler) = |handler| Route { handler };
    /// One event trigger type an automation may be saved with.
    TriggerType: "registerTriggerType" register_trigger_type(definition: "definition" TriggerType) = |definition| definition;
    /// Text put before the first turn of each chat a person or tool opens.
    ChatPreamble: "registerChatPreamble"
        register_chat_preamble(preamble: "preamble" Preamble) = |preamble| ChatPreamble { preamble };
    /// A function run when the host closes, after its sessions and before its stores.
    Close: "registerClose" register_close(close: "close" Closer) = |close| Close { close };
    /// A listener to one kind of event. It contributes nothing to the host.
    Listener: "on"
        on(event: "event" crate::events::EventName, handler: "handler" crate::events::Handler)
        = |event, handler| Listener { event, handler };
    /// One item the plugin dropped, printed at the start as `skipped: <line>`. Costs the item, not the plugin.
    ProblemLine: "problem" problem(line: "line" String) = |line| ProblemLine { line };
}
