//! The plugin's commands: `x-acp/list`, `x-acp/check` and `x-acp/processes`, which `ostler agent` and `ostler status` call.

use std::sync::{Arc, Weak};

use ostler_contract::events::{Event, EventName};
use ostler_contract::points::{Description, Method};
use ostler_contract::protocol::RpcError;
use ostler_contract::{Call, Frozen, JsonObject, PluginContext, PluginHost, Thrown, Value, json};
use ostler_processes::Usage;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::SCOPES;
use crate::account::Account;
use crate::buffers::Buffers;
use crate::check;
use crate::options::{AgentOptions, LeftOut, Runtime};
use crate::settings::Catalogue;
use crate::sign_in::SignIns;

/// Why an agent is not available if the host has dropped its backend.
const UNAVAILABLE: &str = "another plugin has an agent or a URI scheme of this name";

pub struct ConfiguredAgent {
    pub agent: Arc<AgentOptions>,
    /// Its known facts.
    pub catalogue: Arc<Catalogue>,
    /// Dropped if the host does not have its backend.
    pub held: Weak<()>,
}

pub struct Configuration {
    /// The registered agents.
    pub agents: Vec<ConfiguredAgent>,
    /// The others.
    pub left_out: Vec<LeftOut>,
    /// The ids of all presets.
    pub presets: Vec<String>,
}

type All = Arc<Configuration>;

/// The clients whose commands end when they disconnect.
#[derive(Clone, Default)]
struct Callers(Arc<Mutex<Vec<(String, oneshot::Sender<()>)>>>);

impl Callers {
    /// Resolves when the client has disconnected.
    fn wait(&self, client: String) -> impl Future<Output = ()> + Send + use<> {
        let (tell, left) = oneshot::channel();
        let mut waiting = self.0.lock();
        waiting.retain(|(_, tell)| !tell.is_closed());
        waiting.push((client, tell));
        async move {
            if left.await.is_err() {
                std::future::pending().await
            }
        }
    }

    fn left(&self, client: &str) {
        for (_, tell) in self.0.lock().extract_if(.., |(waits, _)| waits == client) {
            let _ = tell.send(());
        }
    }
}

/// Registers the commands.
pub fn register(
    host: &PluginHost,
    configuration: Configuration,
    runtime: Arc<Runtime>,
) -> Result<(), Thrown> {
    let listed = Arc::new(configuration);
    let checked = listed.clone();
    account(host, &listed, &runtime)?;
    let callers = Callers::default();
    let leaving = callers.clone();
    host.on(
        EventName::ClientDisconnect,
        Call::now(move |(event, _): (Frozen<Event>, Frozen<PluginContext>)| {
            if let Event::ClientDisconnect { client } = event.0 {
                leaving.left(&client);
            }
            Ok(())
        }),
    )?;
    host.register_method(
        "x-acp/list".into(),
        Method {
            grant: "config:settings".into(),
            handle: Call::new(move |(_params, _, _, _): (JsonObject, _, _, _)| {
                let all = listed.clone();
                async move {
                    let mut rows = Vec::new();
                    for known in &all.agents {
                        known.catalogue.load().await;
                        let mut row = row(&known.agent, &known.catalogue);
                        if let Some((why, remedy)) = known.unavailable() {
                            (row["unavailable"], row["remedy"]) = (why.into(), remedy.into());
                        }
                        rows.push(row);
                    }
                    rows.extend(all.left_out.iter().map(|left| {
                        json!({ "provider": left.provider, "name": left.provider, "unavailable": left.why,
                            "remedy": left.remedy() })
                    }));
                    Ok(json!({ "agents": rows, "presets": all.presets }))
                }
            }),
            describe: described("List agents", "The configured ACP agents and what is known of them."),
            ..Method::default()
        },
    )?;
    host.register_method(
        "x-acp/processes".into(),
        Method {
            grant: "config:settings".into(),
            handle: Call::new(|(_params, _, _, _): (JsonObject, _, _, _)| async {
                let usages = tokio::task::spawn_blocking(|| SCOPES.usages()).await.map_err(Thrown::new)?;
                Ok(json!({ "agents": usages.iter().map(usage).collect::<Vec<_>>() }))
            }),
            describe: described("List processes", "The ACP agents that run, and the memory they occupy."),
            ..Method::default()
        },
    )?;
    host.register_method(
        "x-acp/check".into(),
        Method {
            grant: "session:create".into(),
            handle: Call::new(move |(params, _, client, _): (JsonObject, _, String, _)| {
                let (all, runtime) = (checked.clone(), runtime.clone());
                let left = callers.wait(client);
                async move {
                    let text = |name: &str| params.get(name).and_then(Value::as_str);
                    let provider = text("provider").unwrap_or_default();
                    if let Some((why, remedy)) = all.unavailable(provider) {
                        return Ok(json!({ "provider": provider, "name": provider, "state": "unavailable",
                            "problem": format!("{why}; {remedy}") }));
                    }
                    let ConfiguredAgent { agent, catalogue, .. } = all.find(provider)?;
                    let prompt = text("prompt").map(str::to_owned);
                    Ok(check::check(agent, &runtime, catalogue, prompt, left).await)
                }
            }),
            describe: described("Check an agent", "Starts an ACP agent and reports what it supports."),
            ..Method::default()
        },
    )?;
    Ok(())
}

/// The command with which a client announces that it has files of a session open.
pub fn buffers(host: &PluginHost, buffers: Buffers) -> Result<(), Thrown> {
    let owners = host.clone();
    let handle = Call::new(move |(params, _, client, owner): (JsonObject, _, String, Option<String>)| {
        let (buffers, owners) = (buffers.clone(), owners.clone());
        async move {
            let session = params.get("session").and_then(Value::as_str).unwrap_or_default().to_owned();
            // Its answer is read as a file of the session.
            if owners.session_owner(session.clone()).await? != owner {
                return Err(RpcError::permission_denied(format!("{session} belongs to another user")).into());
            }
            buffers.announce(&session, &client);
            Ok(json!({}))
        }
    });
    let description = "Announces that the client answers resourceRead for ostler-buffer: with unsaved text.";
    let method = Method {
        grant: "session:attach".into(),
        handle,
        describe: described("Announce unsaved text", description),
        ..Method::default()
    };
    host.register_method("x-acp/buffers".into(), method)
}

/// The commands that start an agent and open no session.
fn account(host: &PluginHost, agents: &All, runtime: &Arc<Runtime>) -> Result<(), Thrown> {
    let commands = [
        (Of::SignIn, "x-acp/login", "Sign in", "Signs in to an ACP agent with one of its methods."),
        (Of::SignOut, "x-acp/logout", "Sign out", "Signs out of an ACP agent."),
        (
            Of::Sessions,
            "x-acp/sessions",
            "List an agent's sessions",
            "The sessions that an ACP agent stores itself.",
        ),
    ];
    let sign_ins = Arc::new(SignIns::default());
    for (of, name, title, description) in commands {
        let (agents, runtime, sign_ins) = (agents.clone(), runtime.clone(), sign_ins.clone());
        let handle = Call::new(move |(params, _, _, _): (JsonObject, _, _, _)| {
            let (agents, runtime, sign_ins) = (agents.clone(), runtime.clone(), sign_ins.clone());
            async move {
                let text = |name: &str| params.get(name).and_then(Value::as_str);
                let provider = text("provider").unwrap_or_default();
                let ConfiguredAgent { agent, catalogue, .. } = agents.find(provider)?;
                let account = Account { agent, runtime: &runtime, catalogue };
                let pending = params.get("signIn").and_then(Value::as_u64);
                let answer = match of {
                    Of::SignIn => match pending {
                        Some(pending) => sign_ins.resume(pending).await,
                        None => account.sign_in(text("method"), &sign_ins).await,
                    },
                    Of::SignOut => account.sign_out().await,
                    Of::Sessions => account.sessions(text("directory")).await,
                };
                answer.map_err(|why| RpcError::invalid_params(why).into())
            }
        });
        let method = Method {
            grant: "config:settings".into(),
            handle,
            describe: described(title, description),
            ..Method::default()
        };
        host.register_method(name.into(), method)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Of {
    SignIn,
    SignOut,
    Sessions,
}

fn usage(usage: &Usage) -> Value {
    let mut row = json!({ "provider": usage.owner.provider, "processes": usage.processes,
        "memoryBytes": usage.memory, "countedBy": usage.counted.name() });
    if !usage.owner.session.is_empty() {
        row["session"] = usage.owner.session.as_str().into();
    }
    row
}

fn described(title: &str, description: &str) -> Option<Call<fn() -> Description>> {
    let description =
        Description { title: Some(title.to_owned()), description: Some(description.to_owned()) };
    Some(Call::now(move |()| Ok(description.clone())))
}

impl ConfiguredAgent {
    /// Returns why sessions cannot use it, and what to do, if that is so.
    fn unavailable(&self) -> Option<(String, String)> {
        let remedy = || format!("rename agents.{}, or remove that plugin", self.agent.provider);
        (self.held.strong_count() == 0).then(|| (UNAVAILABLE.to_owned(), remedy()))
    }
}

impl Configuration {
    /// The agent of a provider.
    fn find(&self, provider: &str) -> Result<&ConfiguredAgent, Thrown> {
        self.agents.iter().find(|known| known.agent.provider == provider).ok_or_else(|| {
            let why = match self.unavailable(provider) {
                Some((why, remedy)) => format!("{provider} is not available: {why}; {remedy}"),
                None => {
                    let names: Vec<&str> =
                        self.agents.iter().map(|known| known.agent.provider.as_str()).collect();
                    format!("unknown ACP agent {provider:?}; the configured ones are: {}", names.join(", "))
                }
            };
            RpcError::invalid_params(why).into()
        })
    }

    /// Returns why sessions cannot use the configured agent of a provider, and what to do.
    fn unavailable(&self, provider: &str) -> Option<(String, String)> {
        let known = self.agents.iter().find(|known| known.agent.provider == provider);
        let left_out = || self.left_out.iter().find(|left| left.provider == provider);
        match known {
            Some(known) => known.unavailable(),
            None => left_out().map(|left| (left.why.clone(), left.remedy())),
        }
    }
}

fn row(agent: &AgentOptions, catalogue: &Catalogue) -> Value {
    let mut row = json!({
        "provider": agent.provider, "name": agent.name, "command": agent.command_line(),
        "installed": check::is_installed(agent),
    });
    if let Some(description) = &agent.description {
        row["description"] = description.as_str().into();
    }
    if let Some(install) = agent.install.as_ref().filter(|_| row["installed"] == false) {
        row["install"] = install.as_str().into();
    }
    if let Some(facts) = catalogue.facts(agent) {
        check::describe(&mut row, &facts, agent);
        check::describe_settings(&mut row, &catalogue.settings());
    }
    agent.masks.secrets().hide_value(row)
}
