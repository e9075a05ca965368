//! One running agent: started, initialized, and what it can do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::SessionComputer;
use ostler_contract::{Value, json};
use ostler_processes::{ChildKind, Owner, Process, Program, Unstarted};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::SCOPES;
use crate::agent_connection::{Failure, Incoming, Offer, PROTOCOL_VERSION, Wire};
use crate::errors::{AgentError, plain};
use crate::limits;
use crate::machine;
use crate::masks::Masks;
use crate::options::{AgentOptions, Runtime, Unstable};
use crate::protocol::member;
use crate::proxy;

/// How long to wait for the rest of an ended agent's stderr.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The capabilities of an agent from its answer to `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentFacts {
    pub name: Option<String>,
    pub version: Option<String>,
    /// `session/load`.
    pub load: bool,
    /// `session/resume`.
    pub resume: bool,
    /// `session/close`.
    pub close: bool,
    /// `session/delete`.
    pub delete: bool,
    /// `session/list`.
    pub list: bool,
    /// `session/fork`, an unstable part of the protocol.
    pub fork: bool,
    /// `logout`.
    pub logout: bool,
    /// Prompts with images.
    pub image: bool,
    /// Prompts with sound.
    pub audio: bool,
    /// Prompts with resources' contents.
    pub embedded: bool,
    /// MCP servers over HTTP.
    pub mcp_http: bool,
    /// MCP servers over server-sent events.
    pub mcp_sse: bool,
    /// More than one directory.
    pub directories: bool,
    /// How to sign in.
    pub auth: Vec<AuthMethod>,
}

/// One way to sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthMethod {
    /// The agent's id.
    pub id: String,
    /// Shown to users.
    pub name: String,
    /// More.
    pub description: Option<String>,
    /// The arguments of the command that signs in, if it runs in a terminal.
    pub terminal: Option<Vec<String>>,
    /// Variables of that command, over those of the agent.
    pub env: BTreeMap<String, String>,
}

impl AuthMethod {
    /// What to do, as an imperative.
    pub fn hint(&self, agent: &AgentOptions) -> String {
        let about = match &self.description {
            Some(description) => format!("{}: {description}", self.name),
            None => self.name.clone(),
        };
        format!("run `ostler agent login {} --method {}` ({about})", agent.provider, self.id)
    }

    /// Returns the command that signs in, if it runs in a terminal.
    pub fn command(&self, agent: &AgentOptions) -> Option<String> {
        let args = self.terminal.as_ref()?;
        let variables = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        let words = [&agent.command].into_iter().chain(&agent.args).chain(args).cloned();
        Some(variables.chain(words).collect::<Vec<_>>().join(" "))
    }
}

impl AgentFacts {
    /// Masks its displayed texts.
    fn masked(self, masks: &Masks) -> Self {
        let hide = |text: String| masks.hide(&text);
        let method = |method: AuthMethod| AuthMethod {
            name: hide(method.name),
            description: method.description.map(hide),
            ..method
        };
        Self {
            name: self.name.map(hide),
            version: self.version.map(hide),
            auth: self.auth.into_iter().map(method).collect(),
            ..self
        }
    }

    fn read(answer: &Value) -> Self {
        let at = |pointer: &str| answer.pointer(pointer);
        // A capability is a boolean in some places and an object in others.
        let has = |pointer: &str| match at(pointer) {
            Some(Value::Bool(on)) => *on,
            Some(Value::Object(_)) => true,
            _ => false,
        };
        let info = answer.get("agentInfo").unwrap_or(&Value::Null);
        Self {
            name: member(info, "title").or_else(|| member(info, "name")),
            version: member(info, "version"),
            load: has("/agentCapabilities/loadSession"),
            resume: has("/agentCapabilities/sessionCapabilities/resume"),
            close: has("/agentCapabilities/sessionCapabilities/close"),
            delete: has("/agentCapabilities/sessionCapabilities/delete"),
            list: has("/agentCapabilities/sessionCapabilities/list"),
            fork: has("/agentCapabilities/sessionCapabilities/fork"),
            logout: has("/agentCapabilities/auth/logout"),
            directories: has("/agentCapabilities/sessionCapabilities/additionalDirectories"),
            image: has("/agentCapabilities/promptCapabilities/image"),
            audio: has("/agentCapabilities/promptCapabilities/audio"),
            embedded: has("/agentCapabilities/promptCapabilities/embeddedContext"),
            mcp_http: has("/agentCapabilities/mcpCapabilities/http"),
            mcp_sse: has("/agentCapabilities/mcpCapabilities/sse"),
            auth: limits::SIGN_INS
                .of(answer)
                .into_iter()
                .flatten()
                .filter_map(|method| {
                    let id: String = member(method, "id")?;
                    let terminal = method.get("type").and_then(Value::as_str) == Some("terminal");
                    Some(AuthMethod {
                        name: trimmed(method, "name").unwrap_or_else(|| id.clone()),
                        description: trimmed(method, "description"),
                        terminal: terminal.then(|| member(method, "args").unwrap_or_default()),
                        env: member(method, "env").filter(|_| terminal).unwrap_or_default(),
                        id,
                    })
                })
                .collect(),
        }
    }
}

/// Returns a text for users, unless it is empty.
fn trimmed(value: &Value, name: &str) -> Option<String> {
    let text: String = member(value, name)?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the end of an agent's stderr, masked.
fn said(process: &Process, masks: &Masks) -> String {
    masks.hide_in_part(&plain(&process.stderr()))
}

/// Where and for whom an agent runs.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The directory it works in.
    pub cwd: PathBuf,
    /// Variables of the session, under the agent's own.
    pub env: BTreeMap<String, String>,
    /// Variables with tokens that a client lent the session, over the agent's own.
    pub lent: BTreeMap<String, String>,
    /// Variables with the proxy of the session's editors, over the agent's own. In a machine they have no effect.
    pub proxy: BTreeMap<String, String>,
    /// Secrets of its MCP servers that the agent receives and can repeat: tokens, headers and variables.
    pub told: Vec<String>,
    /// The machine; `None` for this host.
    pub computer: Option<SessionComputer>,
}

impl Surroundings {
    /// On this host, for no session.
    pub fn alone(cwd: &Path) -> Self {
        let (env, lent, proxy) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { cwd: cwd.to_owned(), env, lent, proxy, told: Vec::new(), computer: None }
    }
}

/// The program of an agent on this host.
pub fn program(agent: &AgentOptions, at: &Surroundings) -> Program {
    let Surroundings { cwd, env, lent, proxy, .. } = at;
    let env = env.iter().chain(&agent.env).chain(proxy).chain(lent);
    Program {
        kind: ChildKind::Agent,
        owner: owner(agent, at),
        command: agent.command.clone(),
        args: agent.args.clone(),
        env: env.map(|(name, value)| (name.clone(), value.clone())).collect(),
        cwd: agent.cwd.clone().unwrap_or_else(|| cwd.clone()),
        supervisor: None,
        supervised: true,
    }
}

/// For whom an agent runs.
pub fn owner(agent: &AgentOptions, at: &Surroundings) -> Owner {
    let session = at.env.get("OSTLER_SESSION").cloned().unwrap_or_default();
    Owner { provider: agent.provider.clone(), session }
}

/// A running agent.
#[derive(Debug)]
pub struct Running {
    /// Its connection.
    pub wire: Wire,
    /// What it can do.
    pub facts: Arc<AgentFacts>,
    process: Process,
    masks: Masks,
    limit: Duration,
    memory_limit: Option<u64>,
}

impl Running {
    /// Starts an agent and initializes it.
    ///
    /// # Errors
    /// It is missing, ends, does not answer in time or uses another version of the protocol. None of its processes
    /// remains.
    pub async fn start(
        agent: &AgentOptions,
        runtime: &Runtime,
        at: &Surroundings,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), AgentError> {
        let (program, secrets) = match &at.computer {
            Some(computer) => machine::program(agent, at, computer).await?,
            None => (program(agent, at), Vec::new()),
        };
        // A program in a machine ends its processes there, which takes time.
        let supervisor = runtime.supervisor.clone().filter(|_| at.computer.is_none());
        let program = Program { supervisor, ..program };
        let spawned = Process::spawn(&SCOPES, &program, runtime.scope);
        let (process, stdin, stdout) = spawned.map_err(|why| match why {
            Unstarted::NotFound => AgentError::NotInstalled,
            Unstarted::NotExecutable => AgentError::NotExecutable,
            Unstarted::NoFolder => AgentError::NoFolder(program.cwd.display().to_string()),
            Unstarted::Directory => AgentError::Unfit("is a directory, not a program".to_owned()),
            Unstarted::NoInterpreter(interpreter) => AgentError::Unfit(format!(
                "exists, but {interpreter}, the interpreter in its first line, is missing"
            )),
            Unstarted::Failed(why) => AgentError::NotStarted(why.to_string()),
        })?;
        if let Some(bytes) = agent.memory_limit {
            process.limit_memory(bytes);
        }
        let masks = agent
            .masks
            .with(at.lent.values())
            .with(&secrets)
            .with(&proxy::secrets(&at.proxy))
            .with_values(&at.told);
        let offer = Offer::new(at.computer.is_none(), runtime.uses(Unstable::Subagents));
        let connected = Wire::connect(stdin, stdout, offer.clone(), masks.clone()).await;
        let Ok((wire, mut incoming)) = connected else {
            let stderr = said(&process, &masks);
            let why = AgentError::Ended { status: None, broken: None, stderr, noise: None };
            process.kill().await;
            return Err(why);
        };
        let mut running = Self {
            wire,
            facts: Arc::default(),
            process,
            masks,
            limit: runtime.start_timeout,
            memory_limit: agent.memory_limit,
        };
        match running.initialize(&offer, &mut incoming).await {
            Ok(facts) => {
                running.facts = Arc::new(facts);
                Ok((running, incoming))
            }
            Err(why) => {
                running.kill().await;
                Err(why)
            }
        }
    }

    async fn initialize(
        &self,
        offer: &Offer,
        incoming: &mut mpsc::Receiver<Incoming>,
    ) -> Result<AgentFacts, AgentError> {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": offer.capabilities(),
            "clientInfo": { "name": "ostler", "title": "ostler", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = self.ask("initialize", params, incoming).await?;
        // The connection itself rejects another version of the protocol.
        Ok(AgentFacts::read(&answer).masked(&self.masks))
    }

    /// Sends a request with a limit. Earlier messages of the agent belong to no session.
    ///
    /// # Errors
    /// It was rejected, was not answered in time, or the agent ended.
    async fn ask(
        &self,
        method: &'static str,
        params: Value,
        incoming: &mut mpsc::Receiver<Incoming>,
    ) -> Result<Value, AgentError> {
        let asked = self.wire.request(method, params);
        let late = tokio::time::sleep(self.limit);
        tokio::pin!(asked, late);
        loop {
            tokio::select! {
                answer = &mut asked => return match answer {
                    Ok(answer) => Ok(answer),
                    Err(failure) => Err(self.error(method, failure).await),
                },
                Some(message) = incoming.recv() => {
                    if let Incoming::Request(request) = message {
                        request.decline("not available before a session is open");
                    }
                }
                () = &mut late => return Err(self.silent(method)),
            }
        }
    }

    /// Masks text of the agent.
    pub fn masked(&self, text: &str) -> String {
        self.masks.hide(text)
    }

    /// The masks of its texts.
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// The limit of its answers.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// It did not answer a request in time.
    pub fn silent(&self, method: &'static str) -> AgentError {
        let (stderr, noise) = (said(&self.process, &self.masks), self.wire.noise());
        AgentError::Silent { method, waited: self.limit, stderr, noise }
    }

    /// What a failed request means: an agent whose connection closed has ended, or is about to.
    pub async fn error(&self, method: &'static str, failure: Failure) -> AgentError {
        match failure {
            Failure::Closed => {
                let broken = self.wire.broken();
                let ended = tokio::time::timeout(Duration::from_secs(1), self.process.ended());
                let status = match broken {
                    None => ended.await.ok(),
                    Some(_) => None,
                };
                // Its last output may not be read yet. Its remaining processes can keep its stderr open for long.
                let _ = tokio::time::timeout(LAST_WORDS, self.process.stderr_ended()).await;
                if let Some(limit) = self.memory_limit.filter(|_| self.process.exceeded_memory()) {
                    return AgentError::Memory { limit };
                }
                let (stderr, noise) = (said(&self.process, &self.masks), self.wire.noise());
                AgentError::Ended { status, broken, stderr, noise }
            }
            failure if failure.is_auth_required() => {
                AgentError::sign_in(method, self.facts.auth.clone(), &failure)
            }
            failure => AgentError::Refused { method, failure },
        }
    }

    /// Waits until its process has ended.
    pub fn ended(&self) -> impl Future<Output = std::process::ExitStatus> + Send + use<> {
        self.process.ended()
    }

    /// Returns whether it and its processes exceed the memory limit.
    pub fn over_memory(&self) -> Option<AgentError> {
        let limit = self.memory_limit?;
        (self.process.usage().memory > limit).then_some(AgentError::Memory { limit })
    }

    /// Kills its remaining processes.
    pub fn kill_leftovers(&self) {
        self.process.kill_now();
    }

    /// Stops it: closes its stdin, and kills processes that do not end.
    pub async fn close(self) {
        let Self { wire, process, .. } = self;
        drop(wire);
        process.close().await;
    }

    pub async fn kill(self) {
        self.process.kill().await;
    }
}
