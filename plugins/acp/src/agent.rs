//! One running agent: started, initialized, and what it can do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{Value, json};
use tokio::sync::mpsc;

use crate::errors::AgentError;
use crate::options::{AgentOptions, Runtime};
use crate::process::{Process, Program, Unstarted};
use crate::protocol::member;
use crate::wire::{Failure, Incoming, PROTOCOL_VERSION, Wire, client_capabilities};

/// What an agent said of itself in the answer to `initialize`.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// `session/load`.
    pub load: bool,
    /// `session/resume`.
    pub resume: bool,
    /// `session/close`.
    pub close: bool,
    /// `session/delete`.
    pub delete: bool,
    /// Prompts with images.
    pub image: bool,
    /// Prompts with sound.
    pub audio: bool,
    /// Prompts with resources' contents.
    pub embedded: bool,
    /// MCP servers over HTTP.
    pub mcp_http: bool,
    /// More than one directory.
    pub directories: bool,
    /// How to sign in.
    pub auth: Vec<AuthMethod>,
}

/// One way to sign in.
#[derive(Debug, Clone)]
pub struct AuthMethod {
    /// The agent's id.
    pub id: String,
    /// Shown to users.
    pub name: String,
    /// More.
    pub description: Option<String>,
    /// The arguments of the command that signs in, where it runs in a terminal.
    pub terminal: Option<Vec<String>>,
}

impl AuthMethod {
    /// What to do, as an imperative.
    pub fn hint(&self, agent: &AgentOptions) -> String {
        let words = |args: &[String]| {
            std::iter::once(agent.command.as_str())
                .chain(args.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(" ")
        };
        match (&self.terminal, &self.description) {
            (Some(args), _) => {
                let whole: Vec<String> = agent.args.iter().chain(args).cloned().collect();
                format!("run `{}` in a terminal ({})", words(&whole), self.name)
            }
            (None, Some(description)) => format!("use {:?} ({}: {description})", self.id, self.name),
            (None, None) => format!("use {:?} ({})", self.id, self.name),
        }
    }
}

impl Facts {
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
            directories: has("/agentCapabilities/sessionCapabilities/additionalDirectories"),
            image: has("/agentCapabilities/promptCapabilities/image"),
            audio: has("/agentCapabilities/promptCapabilities/audio"),
            embedded: has("/agentCapabilities/promptCapabilities/embeddedContext"),
            mcp_http: has("/agentCapabilities/mcpCapabilities/http"),
            auth: answer
                .get("authMethods")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|method| {
                    let id: String = member(method, "id")?;
                    let terminal = method.get("type").and_then(Value::as_str) == Some("terminal");
                    Some(AuthMethod {
                        name: member(method, "name").unwrap_or_else(|| id.clone()),
                        description: member(method, "description"),
                        terminal: terminal.then(|| member(method, "args").unwrap_or_default()),
                        id,
                    })
                })
                .collect(),
        }
    }
}

/// A running agent.
#[derive(Debug)]
pub struct Running {
    /// Its connection.
    pub wire: Wire,
    /// What it can do.
    pub facts: Arc<Facts>,
    process: Process,
    limit: Duration,
}

impl Running {
    /// Starts an agent and initializes it. Its environment holds `env` under the agent's own variables.
    ///
    /// # Errors
    /// It is missing, ends, does not answer in time or speaks another version of the protocol. Nothing of it runs then.
    pub async fn start(
        agent: &AgentOptions,
        runtime: &Runtime,
        cwd: &Path,
        env: &BTreeMap<String, String>,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), AgentError> {
        let program = Program {
            command: agent.command.clone(),
            args: agent.args.clone(),
            env: env.iter().chain(&agent.env).map(|(name, value)| (name.clone(), value.clone())).collect(),
            cwd: agent.cwd.clone().unwrap_or_else(|| cwd.to_owned()),
        };
        let spawned = Process::spawn(&program, runtime.scope);
        let (process, stdin, stdout) = spawned.map_err(|why| match why {
            Unstarted::NotFound => AgentError::NotInstalled,
            Unstarted::NoFolder => AgentError::NoFolder(program.cwd.display().to_string()),
            Unstarted::Failed(why) => AgentError::NotStarted(why.to_string()),
        })?;
        let connected = Wire::connect(stdin, stdout).await;
        let Ok((wire, incoming)) = connected else {
            let why = AgentError::Ended { status: None, stderr: process.stderr(), noise: None };
            process.kill().await;
            return Err(why);
        };
        let mut running = Self { wire, facts: Arc::default(), process, limit: runtime.start_timeout };
        match running.initialize().await {
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

    async fn initialize(&self) -> Result<Facts, AgentError> {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": client_capabilities(),
            "clientInfo": { "name": "ostler", "title": "ostler", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = self.ask("initialize", params).await?;
        // The connection itself refuses another version of the protocol.
        Ok(Facts::read(&answer))
    }

    /// Sends a request that has to be answered in time.
    ///
    /// # Errors
    /// It was refused, was not answered in time, or the agent ended.
    pub async fn ask(&self, method: &'static str, params: Value) -> Result<Value, AgentError> {
        match tokio::time::timeout(self.limit, self.wire.request(method, params)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failure)) => Err(self.error(method, failure).await),
            Err(_) => Err(AgentError::Silent {
                method,
                waited: self.limit,
                stderr: self.process.stderr(),
                noise: self.wire.noise(),
            }),
        }
    }

    /// What a failed request means: an agent whose connection closed has ended, or is about to.
    pub async fn error(&self, method: &'static str, failure: Failure) -> AgentError {
        match failure {
            Failure::Closed => {
                let status = tokio::time::timeout(Duration::from_secs(1), self.process.ended()).await.ok();
                AgentError::Ended { status, stderr: self.process.stderr(), noise: self.wire.noise() }
            }
            failure if failure.is_auth_required() => AgentError::SignIn(self.facts.auth.clone()),
            failure => AgentError::Refused { method, failure },
        }
    }

    /// Waits until its process has ended.
    pub fn ended(&self) -> impl Future<Output = std::process::ExitStatus> + Send + use<> {
        self.process.ended()
    }

    /// Kills what its process left behind.
    pub fn kill_leftovers(&self) {
        self.process.kill_now();
    }

    /// Stops it: its stdin is closed, and what does not end is killed.
    pub async fn close(self) {
        let Self { wire, process, .. } = self;
        drop(wire);
        process.close().await;
    }

    /// Kills it.
    pub async fn kill(self) {
        self.process.kill().await;
    }
}
