//! The plugin's options, and the agents they configure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_contract::id::SLUG_RULE;
use ostler_contract::protocol::nearest::did_you_mean;
use ostler_contract::{Options, Slug, Thrown, Value, json, secret};
use ostler_processes::ScopeChoice;
use serde::Deserialize;

use crate::machine::Needs;
use crate::masks::{self, Masks};
use crate::presets::{Preset, Presets};

/// The options as configured.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawOptions {
    presets: Vec<String>,
    agents: BTreeMap<String, WrittenAgent>,
    registry: Option<PathBuf>,
    start_timeout_seconds: Option<u64>,
    cancel_timeout_seconds: Option<u64>,
    idle_minutes: Option<f64>,
    memory_limit_mb: Option<u64>,
    turn_output_limit_mb: Option<usize>,
    scope: ScopeChoice,
    unstable: Vec<Unstable>,
}

/// An unstable part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unstable {
    /// `session/fork`.
    Fork,
    /// `subagent_update`.
    Subagents,
}

/// One entry of `agents`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenAgent {
    preset: Option<String>,
    name: Option<String>,
    description: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    models: Vec<Model>,
    host_tools: Option<bool>,
    authenticate: Option<String>,
    memory_limit_mb: Option<u64>,
    credentials: BTreeMap<String, String>,
    resources: BTreeMap<String, Resource>,
}

/// The description of a protected resource for clients.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resource {
    /// Display name. Default: the agent's name.
    pub name: Option<String>,
    /// Whether the agent requires a token.
    pub required: bool,
    /// The OAuth authorization servers that issue tokens.
    pub authorization_servers: Vec<String>,
    /// The scopes to request.
    pub scopes: Vec<String>,
    /// A page about it.
    pub documentation: Option<String>,
}

/// A model listed before the agent has reported its own.
#[derive(Debug, Clone, Deserialize)]
pub struct Model {
    /// The agent's id of it.
    pub id: String,
    /// Display name. Default: the id.
    pub name: Option<String>,
}

/// One agent to register.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    pub provider: String,
    /// Shown to users.
    pub name: String,
    /// One line.
    pub description: Option<String>,
    /// The program: a path, or a name that is looked up on `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables in addition to the daemon's environment. The values are credentials.
    pub env: BTreeMap<String, String>,
    /// The masks of repeated text of the agent.
    pub masks: Masks,
    /// Working directory of the process. Default: the session's first directory.
    pub cwd: Option<PathBuf>,
    /// Models listed before the agent has reported its own.
    pub models: Vec<Model>,
    /// Whether the session's tools are offered to the agent as an MCP server.
    pub host_tools: bool,
    /// The agent's id of the method that signs in before a session is opened.
    pub authenticate: Option<String>,
    /// How to install the program, as an imperative.
    pub install: Option<String>,
    /// The memory limit of it and its processes, in bytes.
    pub memory_limit: Option<u64>,
    /// The variables that receive clients' tokens, by protected resource.
    pub credentials: BTreeMap<String, String>,
    /// The descriptions of these resources for clients.
    pub resources: BTreeMap<String, Resource>,
    /// Its needs in a machine.
    pub needs: Needs,
    /// The path to the member of `_meta` for plugins, if the agent has one.
    pub plugins_at: Option<Vec<String>>,
    /// Harmless problems of its entry, one line each.
    pub warnings: Vec<String>,
}

impl AgentOptions {
    /// The command line that starts it.
    pub fn command_line(&self) -> String {
        self.masks.hide(&self.args.iter().fold(self.command.clone(), |line, arg| format!("{line} {arg}")))
    }
}

/// What all agents share.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// The limit from an agent's start to the answer to `initialize`, and of each session request.
    pub start_timeout: Duration,
    /// How long an agent can take to end a cancelled prompt before it is stopped.
    pub cancel_timeout: Duration,
    /// The time without a turn after which an agent's process is stopped. Default: never.
    pub idle: Option<Duration>,
    /// How processes are contained.
    pub scope: ScopeChoice,
    /// The maximum text of an agent in one turn, in bytes.
    pub turn_output: usize,
    /// The command that serves a tools endpoint on stdio, if there is one.
    pub bridge: Option<Vec<String>>,
    /// The command that supervises agents without a cgroup.
    pub supervisor: Option<Vec<String>>,
    /// The enabled unstable parts of the protocol.
    pub unstable: Vec<Unstable>,
}

impl Runtime {
    /// Returns whether an unstable part of the protocol is enabled.
    pub fn uses(&self, part: Unstable) -> bool {
        self.unstable.contains(&part)
    }
}

/// The parsed options.
#[derive(Debug)]
pub struct Configured {
    /// The agents, presets first.
    pub agents: Vec<AgentOptions>,
    /// Problems that do not concern an agent, one line each.
    pub problems: Vec<String>,
    /// The skipped agents.
    pub left_out: Vec<LeftOut>,
    /// The ids of all presets.
    pub presets: Vec<String>,
    /// What all agents share.
    pub runtime: Runtime,
}

/// A configured agent that cannot be used.
#[derive(Debug, Clone)]
pub struct LeftOut {
    pub provider: String,
    /// Where it is configured.
    pub place: String,
    /// What is wrong.
    pub why: String,
    /// Whether its name is the problem.
    pub misnamed: bool,
    /// What to do, if the host skipped and reported it.
    pub said: Option<String>,
}

impl LeftOut {
    /// Returns the line about it.
    pub fn line(&self) -> String {
        format!("{}: {}", self.place, self.why)
    }

    /// What to do.
    pub fn remedy(&self) -> String {
        if let Some(remedy) = &self.said {
            return remedy.clone();
        }
        match (self.place.strip_prefix("presets: "), self.misnamed) {
            (Some(id), true) => {
                format!("enable it under another name: agents.<name> = {{ \"preset\": {id:?} }}")
            }
            (Some(id), false) => format!("correct {id} in the option presets"),
            (None, true) => format!("rename {}", self.place),
            (None, false) => format!("correct {}", self.place),
        }
    }
}

/// The schema of the options.
pub fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "presets": {
                "type": "array", "items": { "type": "string" }, "uniqueItems": true,
                "description": "Ids of the presets to enable, as claude-acp or gemini."
            },
            "agents": {
                "type": "object",
                "description": "Agents by provider. An entry replaces a preset of the same name.",
                "additionalProperties": {
                    "type": "object",
                    "leftOutWithoutSecret": true, "leftOutUnlessValid": true,
                    "properties": {
                        "preset": { "type": "string", "description": "The preset whose members this entry starts from." },
                        "name": { "type": "string", "minLength": 1, "description": "Shown to users." },
                        "description": { "type": "string", "description": "One line for users." },
                        "command": { "type": "string", "minLength": 1, "description": "The program: a path, or a name on PATH." },
                        "args": { "type": "array", "items": { "type": "string" }, "description": "The program's arguments." },
                        "env": {
                            "type": "object", "description": "Environment variables of the agent.",
                            "additionalProperties": { "type": "string", "writeOnly": true }
                        },
                        "cwd": { "type": "string", "minLength": 1, "description": "Where the process starts [default: the session's directory]." },
                        "models": {
                            "type": "array", "description": "Models listed before the agent has reported its own.",
                            "items": {
                                "type": "object", "required": ["id"],
                                "properties": {
                                    "id": { "type": "string", "minLength": 1 },
                                    "name": { "type": "string", "minLength": 1 }
                                }
                            }
                        },
                        "hostTools": { "type": "boolean", "description": "Whether the agent is offered the session's tools [default: true]." },
                        "memoryLimitMb": {
                            "type": "integer", "minimum": 1,
                            "description": "Memory the agent and everything it starts may occupy, in MiB [default: that of the plugin]."
                        },
                        "credentials": {
                            "type": "object", "additionalProperties": { "type": "string", "minLength": 1 },
                            "description": "By protected resource (an https URL), the environment variable that receives the token a client pushes for it."
                        },
                        "resources": {
                            "type": "object",
                            "description": "What clients are told of the resources of credentials, by resource.",
                            "additionalProperties": {
                                "type": "object",
                                "properties": {
                                    "name": { "type": "string", "minLength": 1, "description": "Shown to users [default: the agent's name]." },
                                    "required": { "type": "boolean", "description": "Whether a client has to push a token before it creates a session [default: false]." },
                                    "authorizationServers": { "type": "array", "items": { "type": "string" }, "description": "OAuth authorization servers that give out tokens." },
                                    "scopes": { "type": "array", "items": { "type": "string" }, "description": "Scopes to ask for." },
                                    "documentation": { "type": "string", "minLength": 1, "description": "URL of a page for users." }
                                }
                            }
                        },
                        "authenticate": { "type": "string", "minLength": 1, "description": "Id of the agent's method that signs in without a user, before a session is opened." }
                    }
                }
            },
            "registry": {
                "type": "string", "minLength": 1,
                "description": "A file or folder in the ACP registry's format, whose entries replace bundled presets."
            },
            "startTimeoutSeconds": {
                "type": "integer", "minimum": 1,
                "description": "How long an agent may take to start and to open a session [default: 60]."
            },
            "cancelTimeoutSeconds": {
                "type": "integer", "minimum": 1,
                "description": "How long an agent may take to end a cancelled prompt before it is stopped [default: 15]."
            },
            "idleMinutes": {
                "type": "number", "minimum": 0,
                "description": "After how long without a turn an agent's process is stopped; 0 never [default: 30]."
            },
            "memoryLimitMb": {
                "type": "integer", "minimum": 1,
                "description": "Memory each agent and everything it starts may occupy, in MiB [default: no limit]."
            },
            "turnOutputLimitMb": {
                "type": "integer", "minimum": 1, "maximum": 4096,
                "description": "How much text an agent may send in one turn before it is stopped, in MiB [default: 64]."
            },
            "unstable": {
                "type": "array", "items": { "type": "string", "enum": ["fork", "subagents"] },
                "description": "Parts of the protocol that are not stable and are to be used [default: none]."
            },
            "scope": {
                "type": "string", "enum": ["auto", "group"],
                "description": "How an agent's processes are contained: in a cgroup where possible, or in a process group [default: auto]."
            }
        }
    })
}

/// Parses the options.
///
/// # Errors
/// The options do not fit.
pub fn read(options: &Options) -> Result<Configured, Thrown> {
    let written: RawOptions = serde_json::from_value(Value::Object((**options).clone()))
        .map_err(|why| Thrown::new(format_args!("options: {why}")))?;
    let (mut problems, mut left_out) = (Vec::new(), Vec::new());
    let presets = Presets::read(written.registry.as_deref(), &mut problems);
    let mut agents = Vec::new();
    for id in &written.presets {
        if written.agents.contains_key(id) || agents.iter().any(|agent: &AgentOptions| agent.provider == *id)
        {
            continue;
        }
        let made = match presets.get(id) {
            Some(preset) => of_preset(id, preset),
            None => {
                let ids = presets.ids().collect::<Vec<_>>().join(", ");
                Err(format!("there is no such preset; the presets are {ids}"))
            }
        };
        take(&mut agents, &mut left_out, id, format!("presets: {id}"), made);
    }
    for (provider, entry) in written.agents {
        let made = entry.into_options(&provider, &presets, options.secrets());
        let warnings = unknown_members(options, &provider);
        let made = made.map(|agent| AgentOptions { warnings, ..agent });
        take(&mut agents, &mut left_out, &provider, format!("agents.{provider}"), made);
    }
    for node in options.left_out() {
        if let [list, provider] = &node.at[..]
            && list == "agents"
        {
            // The preset of this name is not intended.
            agents.retain(|agent: &AgentOptions| agent.provider != *provider);
            let (place, why) = (format!("agents.{provider}"), node.why.clone());
            let (provider, said) = (provider.clone(), Some(node.remedy.clone()));
            left_out.push(LeftOut { provider, place, why, misnamed: false, said });
        }
    }
    let inherited = inherited_secrets();
    for agent in &mut agents {
        let key = agent.needs.key.as_ref().and_then(|name| std::env::var(name).ok());
        agent.masks = agent.masks.with(options.secrets()).with(&key).with(&inherited);
        agent.memory_limit = agent.memory_limit.or(written.memory_limit_mb.map(|megabytes| megabytes << 20));
    }
    let seconds = |given: Option<u64>, default| Duration::from_secs(given.unwrap_or(default));
    let idle = Duration::try_from_secs_f64(written.idle_minutes.unwrap_or(30.0) * 60.0).unwrap_or_default();
    let runtime = Runtime {
        start_timeout: seconds(written.start_timeout_seconds, 60),
        cancel_timeout: seconds(written.cancel_timeout_seconds, 15),
        idle: (!idle.is_zero()).then_some(idle),
        scope: written.scope,
        turn_output: written.turn_output_limit_mb.unwrap_or(64) << 20,
        bridge: None,
        supervisor: None,
        unstable: written.unstable,
    };
    let presets = presets.ids().map(str::to_owned).collect();
    Ok(Configured { agents, problems, left_out, presets, runtime })
}

/// Returns the values of the daemon's variables that are secrets by their names, because agents inherit them.
fn inherited_secrets() -> Vec<String> {
    let named = std::env::vars_os().filter(|(name, _)| secret::is_secret_name(&name.to_string_lossy()));
    let values = named.filter_map(|(_, value)| value.into_string().ok());
    values.filter(|value| value.len() >= masks::SHORTEST && !Path::new(value).exists()).collect()
}

/// Returns the unknown members of an entry, one line each.
fn unknown_members(options: &Options, provider: &str) -> Vec<String> {
    let entry = options.get("agents").and_then(|agents| agents.get(provider)).and_then(Value::as_object);
    let schema = schema();
    let known =
        schema.pointer("/properties/agents/additionalProperties/properties").and_then(Value::as_object);
    let (Some(entry), Some(known)) = (entry, known) else { return Vec::new() };
    let unknown = entry.keys().filter(|name| !known.contains_key(*name));
    unknown
        .map(|name| {
            let mut meant = did_you_mean(name, known.keys().map(String::as_str));
            // Short names with swapped letters do not count as similar.
            if let Some(same) = known.keys().find(|known| meant.is_empty() && letters(known) == letters(name))
            {
                meant = format!("; did you mean {same}?");
            }
            format!("agents.{provider}.{name} is not a member of an agent and is ignored{meant}")
        })
        .collect()
}

fn letters(name: &str) -> Vec<char> {
    let mut letters: Vec<char> = name.to_lowercase().chars().collect();
    letters.sort_unstable();
    letters
}

fn take(
    agents: &mut Vec<AgentOptions>,
    left_out: &mut Vec<LeftOut>,
    provider: &str,
    place: String,
    made: Result<AgentOptions, String>,
) {
    let (why, misnamed) = match made {
        // Its stored data is a record of this id.
        Ok(agent) if Slug::parse(&agent.provider).is_none() => {
            (format!("the name of a provider must be {SLUG_RULE}"), true)
        }
        Ok(agent) => return agents.push(agent),
        Err(why) => (why, false),
    };
    left_out.push(LeftOut { provider: provider.to_owned(), place, why, misnamed, said: None });
}

fn of_preset(provider: &str, preset: &Preset) -> Result<AgentOptions, String> {
    let launch = preset.launch()?;
    Ok(AgentOptions {
        provider: provider.to_owned(),
        name: preset.name.clone(),
        description: preset.description.clone(),
        command: launch.command,
        args: launch.args,
        env: launch.env,
        masks: Masks::default(),
        cwd: None,
        models: Vec::new(),
        host_tools: true,
        authenticate: None,
        install: Some(launch.install),
        memory_limit: None,
        credentials: BTreeMap::new(),
        resources: BTreeMap::new(),
        needs: preset.needs(),
        plugins_at: preset.plugins_at(),
        warnings: Vec::new(),
    })
}

impl WrittenAgent {
    fn into_options(
        self,
        provider: &str,
        presets: &Presets,
        secrets: &[String],
    ) -> Result<AgentOptions, String> {
        let base = match (&self.preset, &self.command) {
            (Some(id), _) => {
                let preset = presets.get(id).ok_or_else(|| format!("there is no preset {id:?}"))?;
                Some(of_preset(provider, preset)?)
            }
            // A preset that is configured under its own name does not have to be named again.
            (None, None) => presets.get(provider).map(|preset| of_preset(provider, preset)).transpose()?,
            (None, Some(_)) => None,
        };
        let mut agent = match (base, &self.command) {
            (Some(base), _) => base,
            (None, Some(command)) => AgentOptions {
                provider: provider.to_owned(),
                name: provider.to_owned(),
                description: None,
                command: command.clone(),
                args: Vec::new(),
                env: BTreeMap::new(),
                masks: Masks::default(),
                cwd: None,
                models: Vec::new(),
                host_tools: true,
                authenticate: None,
                install: None,
                memory_limit: None,
                credentials: BTreeMap::new(),
                resources: BTreeMap::new(),
                needs: Needs::default(),
                plugins_at: None,
                warnings: Vec::new(),
            },
            (None, None) => return Err("needs a command or a preset".to_owned()),
        };
        if let Some(command) = self.command {
            agent.command = command;
            agent.args.clear();
            agent.install = None;
        }
        if let Some(args) = self.args {
            agent.args = args;
        }
        // Values of a preset are not secrets.
        agent.masks = Masks::new(self.env.values(), secrets);
        agent.env.extend(self.env);
        agent.name = self.name.unwrap_or(agent.name);
        agent.description = self.description.or(agent.description);
        agent.cwd = self.cwd.map(home);
        agent.models = self.models;
        agent.host_tools = self.host_tools.unwrap_or(true);
        agent.authenticate = self.authenticate;
        if let Some(other) = self.resources.keys().find(|other| !self.credentials.contains_key(*other)) {
            return Err(format!("resources: {other} has no variable in credentials"));
        }
        agent.credentials = self.credentials;
        agent.resources = self.resources;
        agent.memory_limit = self.memory_limit_mb.map(|megabytes| megabytes << 20);
        Ok(agent)
    }
}

/// Expands a leading `~` of a path to the user's home.
fn home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(options: Value) -> Configured {
        let Value::Object(options) = options else { panic!("no object") };
        read(&options.into()).unwrap()
    }

    #[test]
    fn nothing_is_enabled_unless_it_is_named() {
        let configured = configured(json!({}));
        assert!(configured.agents.is_empty() && configured.left_out.is_empty());
    }

    #[test]
    fn an_entry_replaces_a_preset_of_its_name() {
        let configured = configured(json!({
            "presets": ["gemini", "codex-acp"],
            "agents": { "gemini": { "command": "/opt/mine", "args": ["--acp"] } }
        }));
        let gemini = configured.agents.iter().find(|agent| agent.provider == "gemini").unwrap();
        assert_eq!((gemini.command.as_str(), gemini.args.len()), ("/opt/mine", 1));
        assert_eq!(configured.agents.len(), 2);
    }

    #[test]
    fn an_entry_starts_from_a_preset() {
        let configured = configured(json!({ "agents": {
            "mine": { "preset": "gemini", "env": { "GEMINI_API_KEY": "k" } },
            "gemini": { "env": { "GEMINI_API_KEY": "other" } }
        } }));
        let [gemini, mine] = &configured.agents[..] else { panic!("{configured:?}") };
        assert_eq!(mine.command, gemini.command);
        assert_eq!(
            (mine.env["GEMINI_API_KEY"].as_str(), gemini.env["GEMINI_API_KEY"].as_str()),
            ("k", "other")
        );
    }

    #[test]
    fn a_misspelt_member_is_told() {
        let configured =
            configured(json!({ "agents": { "mine": { "command": "mine", "evn": {}, "zzz": 1 } } }));
        assert_eq!(
            configured.agents[0].warnings,
            [
                "agents.mine.evn is not a member of an agent and is ignored; did you mean env?",
                "agents.mine.zzz is not a member of an agent and is ignored"
            ]
        );
    }

    #[test]
    fn what_cannot_be_made_is_a_problem_of_its_own() {
        let configured = configured(json!({
            "presets": ["nothing", "gemini"], "agents": { "broken": {}, "whole": { "command": "whole" } }
        }));
        assert_eq!(configured.agents.len(), 2);
        let lines: Vec<String> = configured.left_out.iter().map(LeftOut::line).collect();
        assert!(
            lines[0].starts_with("presets: nothing: there is no such preset; the presets are "),
            "{lines:?}"
        );
        assert_eq!(lines[1], "agents.broken: needs a command or a preset");
    }
}
