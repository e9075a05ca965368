//! `ostler agent …`: the agents, and what they support. Uses the running daemon, or a host in this process.

use clap::Subcommand;
use ostler_contract::points::NamedMethod;
use ostler_contract::{JsonObject, Value, json};
use ostler_engine::Log;
use ostler_loader::Hidden;
use ostler_processes::ChildKind;
use ostler_protocol::uri;
use ostler_telemetry::printable::one_line;
use url::Url;

use crate::answer::Answer;
use crate::client::Connection;
use crate::client::automations::object;
use crate::compose::{Composed, compose};
use crate::config::{RunFlags, StorageLocation};
use crate::exit::Exit;
use crate::foreground::{self, Ended};
use crate::place::Place;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::signals;

/// The plugin of the agents.
const ACP: &str = "@ostler/acp";
/// The command that lists them with their programs.
pub(crate) const LIST: &str = "x-acp/list";
const CHECK: &str = "x-acp/check";
const LOGIN: &str = "x-acp/login";
const LOGOUT: &str = "x-acp/logout";
const SESSIONS: &str = "x-acp/sessions";

/// The `ostler agent` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum AgentVerb {
    /// List the configured agents and what they support, as far as it is known
    List,
    /// Start an ACP agent and report what it supports and what is missing
    Check {
        /// Provider of the agent
        provider: String,
        /// Also send this message and print the reply
        #[arg(long, value_name = "TEXT")]
        prompt: Option<String>,
    },
    /// Sign in to an ACP agent
    Login {
        /// Provider of the agent
        provider: String,
        /// Id of the agent's sign-in method [default: its only one]
        #[arg(long, value_name = "ID")]
        method: Option<String>,
    },
    /// Sign out of an ACP agent
    Logout {
        /// Provider of the agent
        provider: String,
    },
    /// List the sessions that an ACP agent stores itself
    Sessions {
        /// Provider of the agent
        provider: String,
        /// Only sessions of this directory
        #[arg(long, value_name = "PATH")]
        directory: Option<std::path::PathBuf>,
    },
    /// Continue one of an ACP agent's own sessions as a session of the daemon
    Import {
        /// Provider of the agent
        provider: String,
        /// Id of the agent's session
        session: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 if no host is available.
pub async fn agent(at: &Place, verb: AgentVerb) -> Result<Answer, Exit> {
    let asked = AskedHost::open(at).await?;
    // The host in this process has to end the agents that it started.
    let termination = async {
        match &asked {
            AskedHost::Daemon(_) => std::future::pending().await,
            AskedHost::Own(..) => signals::termination().await,
        }
    };
    let outcome = tokio::select! {
        outcome = run(at, &asked, verb) => outcome,
        code = termination => Ok(Outcome::Answer(ended(code))),
    };
    asked.close().await;
    match outcome? {
        Outcome::Answer(answer) => Ok(answer),
        Outcome::Terminal { provider, report } => in_terminal(at, &provider, report).await,
    }
}

/// The result of a command.
enum Outcome {
    /// The command is complete.
    Answer(Answer),
    /// A program has to run in this terminal, to sign in.
    Terminal { provider: String, report: Value },
}

/// The answer of a command that a signal ended.
fn ended(code: u8) -> Answer {
    Answer { code, printed: true, ..Answer::default() }
}

async fn run(at: &Place, asked: &AskedHost, verb: AgentVerb) -> Result<Outcome, Exit> {
    let answer = match verb {
        AgentVerb::List => list(asked).await,
        AgentVerb::Check { provider, prompt } => check(at, asked, &provider, prompt).await,
        AgentVerb::Login { provider, method } => return login(at, asked, provider, method).await,
        AgentVerb::Logout { provider } => logout(at, asked, &provider).await,
        AgentVerb::Sessions { provider, directory } => {
            let directory = directory.map(|directory| at.working_dir.join(directory).display().to_string());
            sessions(at, asked, &provider, directory).await
        }
        AgentVerb::Import { provider, session } => import(at, asked, &provider, &session).await,
    };
    answer.map(Outcome::Answer)
}

/// The host that answers.
enum AskedHost {
    /// The running daemon, whose agents have its environment.
    Daemon(Box<Connection>),
    /// A host in this process without clients, and the texts that its answers must not contain.
    Own(Box<Composed>, Hidden),
}

impl AskedHost {
    async fn open(at: &Place) -> Result<Self, Exit> {
        if let Some(daemon) = Connection::patient(at).await? {
            return Ok(Self::Daemon(Box::new(daemon)));
        }
        let _progress = Progress::begin(&at.common, "loading plugins");
        let settings = Settings::new(&RunFlags::default(), at.files()?, &at.working_dir)?;
        let settings = Settings {
            sessions: StorageLocation::Memory,
            automations: StorageLocation::Memory,
            wire: None,
            ..settings
        };
        let hidden = Hidden::default();
        let composed = compose(&settings, &Log::new(|_| {}), &hidden).await?;
        Ok(Self::Own(Box::new(composed), hidden))
    }

    /// The listed backends: provider and name.
    async fn agents(&self) -> Result<Vec<(String, String)>, Exit> {
        match self {
            Self::Daemon(daemon) => {
                let agents = daemon.agents().await?.into_iter();
                Ok(agents.map(|agent| (agent.provider, agent.display_name)).collect())
            }
            Self::Own(own, _) => {
                let agents = own.host.core.listed_agents();
                Ok(agents.map(|agent| (agent.provider.to_string(), agent.display_name.to_string())).collect())
            }
        }
    }

    /// Calls a command of the plugin; `None` if it is not loaded.
    async fn call(&self, method: &str, params: JsonObject) -> Result<Option<Value>, Exit> {
        match self {
            Self::Daemon(daemon) => of_daemon(daemon, method, params).await,
            Self::Own(own, hidden) => of_host(own, hidden, method, params).await,
        }
    }

    /// Calls a command of the plugin.
    ///
    /// # Errors
    /// Exit 2 also if the plugin is not loaded.
    async fn required(&self, at: &Place, method: &str, params: JsonObject) -> Result<Value, Exit> {
        let answer = self.call(method, params).await?;
        answer.ok_or_else(|| match is_configured(at) {
            true => Exit::usage(
                "the plugin @ostler/acp is configured and not loaded; see what is wrong with: ostler doctor",
            ),
            false => Exit::usage(
                "no ACP agent is configured; add one with: ostler plugin install @ostler/acp && ostler plugin config acp \
                 presets '[\"claude-acp\"]'",
            ),
        })
    }

    async fn close(self) {
        if let Self::Own(own, _) = self {
            own.host.close().await;
        }
    }
}

/// Returns whether the plugin is configured.
fn is_configured(at: &Place) -> bool {
    let settings = at.files().and_then(|files| Settings::new(&RunFlags::default(), files, &at.working_dir));
    settings.is_ok_and(|settings| settings.plugins.iter().any(|entry| entry.name == ACP))
}

/// Calls a command of the plugin in the running daemon; `None` if it is not loaded.
pub(crate) async fn of_daemon(
    daemon: &Connection,
    method: &str,
    params: JsonObject,
) -> Result<Option<Value>, Exit> {
    use ostler_protocol::error::code::METHOD_NOT_FOUND;
    match daemon.client().request::<_, Value>(method, Value::Object(params)).await {
        Err(ahp::ClientError::Rpc(error)) if error.code == METHOD_NOT_FOUND => Ok(None),
        answer => answer.map(Some).map_err(crate::client::exit),
    }
}

/// Calls a command of the plugin in a host of this process; `None` if it is not loaded.
pub(crate) async fn of_host(
    own: &Composed,
    hidden: &Hidden,
    method: &str,
    params: JsonObject,
) -> Result<Option<Value>, Exit> {
    let commands = own.host.core.registry().map(|registry| registry.all::<NamedMethod>());
    let command = commands.unwrap_or_default().iter().find(|command| *command.name == *method);
    let Some(command) = command else { return Ok(None) };
    let answer = command.method.handle.unbounded((params, None, "ostler-cli".to_owned(), None)).await;
    match answer {
        Ok(answer) => Ok(Some(hide(hidden, answer))),
        Err(why) => Err(Exit::usage(hidden.hide(&why.message).into_owned())),
    }
}

fn hide(hidden: &Hidden, value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(hidden.hide(&text).into_owned()),
        Value::Array(entries) => entries.into_iter().map(|entry| hide(hidden, entry)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, hide(hidden, value))).collect(),
        other => other,
    }
}

async fn list(asked: &AskedHost) -> Result<Answer, Exit> {
    let of_plugin = asked.call(LIST, JsonObject::new()).await?;
    let mut rows: Vec<Value> = Vec::new();
    let known = of_plugin.as_ref().and_then(|answer| answer["agents"].as_array());
    let is_lost = |row: &&Value| row["unavailable"].is_string();
    for (provider, name) in asked.agents().await? {
        let acp =
            known.into_iter().flatten().find(|row| row["provider"] == provider.as_str() && !is_lost(row));
        let mut row = acp.cloned().unwrap_or_else(|| json!({ "provider": provider, "name": name }));
        row["acp"] = acp.is_some().into();
        rows.push(row);
    }
    for lost in known.into_iter().flatten().filter(is_lost) {
        let mut row = lost.clone();
        row["acp"] = true.into();
        rows.push(row);
    }
    let mut lines: Vec<String> = rows.iter().map(listed).collect();
    if lines.is_empty() {
        lines.push(
            "no agents configured; add one with: ostler plugin install @ostler/acp && ostler plugin config acp \
             presets '[\"claude-acp\"]'"
                .to_owned(),
        );
    }
    let available = rows.iter().filter(|row| !is_lost(row));
    let names: Vec<String> = available.map(|row| text(row, "provider").to_owned()).collect();
    let presets = of_plugin.map(|mut answer| answer["presets"].take()).unwrap_or_else(|| json!([]));
    Ok(Answer::new(lines, json!({ "agents": rows, "presets": presets })).named(names))
}

fn text<'a>(row: &'a Value, member: &str) -> &'a str {
    row[member].as_str().unwrap_or_default()
}

fn listed(row: &Value) -> String {
    let (provider, name) = (text(row, "provider"), one_line(text(row, "name")));
    if let Some(why) = row["unavailable"].as_str() {
        let (why, remedy) = (one_line(why), one_line(text(row, "remedy")));
        return format!("{provider}: {name}, not available: {why}; {remedy}");
    }
    let state = match (row["acp"] == true, row["installed"] == true, row["supports"].is_object()) {
        (false, _, _) => return format!("{provider}: {name}"),
        (true, false, _) => match row["install"].as_str() {
            Some(install) => format!("not installed; {install}"),
            None => format!("not installed: {}", text(row, "command")),
        },
        (true, true, false) => format!("not started yet; check it with: ostler agent check {provider}"),
        (true, true, true) => {
            [version(row), supported(row)].into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
    };
    match state.is_empty() {
        true => format!("{provider}: {name}"),
        false => format!("{provider}: {name}, {}", one_line(&state)),
    }
}

fn version(row: &Value) -> Option<String> {
    row["version"].as_str().map(|version| format!("version {version}"))
}

/// Describes what an agent supports.
fn supported(row: &Value) -> Option<String> {
    const WORDS: &[(&str, &str)] = &[
        ("resume", "resume"),
        ("load", "load"),
        ("list", "list"),
        ("close", "close"),
        ("delete", "delete"),
        ("fork", "fork"),
        ("directories", "several directories"),
        ("image", "images"),
        ("audio", "audio"),
        ("embedded", "embedded resources"),
        ("mcpHttp", "MCP over HTTP"),
        ("mcpSse", "MCP over SSE"),
        ("logout", "logout"),
    ];
    let words: Vec<&str> =
        WORDS.iter().filter(|(member, _)| row["supports"][*member] == true).map(|(_, word)| *word).collect();
    (!words.is_empty()).then(|| format!("supports {}", words.join(", ")))
}

async fn check(
    at: &Place,
    asked: &AskedHost,
    provider: &str,
    prompt: Option<String>,
) -> Result<Answer, Exit> {
    let progress = Progress::begin(&at.common, &format!("starting {provider}"));
    let mut params = JsonObject::new();
    params.insert("provider".to_owned(), provider.into());
    if let Some(prompt) = prompt {
        params.insert("prompt".to_owned(), prompt.into());
    }
    let report = asked.required(at, CHECK, params).await?;
    drop(progress);
    let lines = checked(&report);
    let ready = report["state"] == "ready";
    Ok(Answer { code: u8::from(!ready), ..Answer::new(lines, report).named([provider]) })
}

fn of(provider: &str) -> JsonObject {
    [("provider".to_owned(), Value::from(provider))].into_iter().collect()
}

async fn login(
    at: &Place,
    asked: &AskedHost,
    provider: String,
    method: Option<String>,
) -> Result<Outcome, Exit> {
    let mut params = of(&provider);
    if let Some(method) = method {
        params.insert("method".to_owned(), method.into());
    }
    let report = loop {
        let progress = Progress::begin(&at.common, &format!("signing in to {provider}"));
        let report = asked.required(at, LOGIN, params).await?;
        drop(progress);
        if report["state"] != "open" {
            break report;
        }
        tell(&format!("To sign in to {provider}, open {}", one_line(text(&report, "url"))));
        if let Some(message) = report["message"].as_str() {
            tell(&one_line(message));
        }
        params = of(&provider);
        params.insert("signIn".to_owned(), report["signIn"].clone());
    };
    if report["state"] == "terminal" {
        return Ok(Outcome::Terminal { provider, report });
    }
    let line = format!("{provider}: signed in");
    Ok(Outcome::Answer(Answer::new(vec![line], report).named([provider])))
}

/// Signs in with a method that needs a terminal: this program has one.
async fn in_terminal(at: &Place, provider: &str, report: Value) -> Result<Answer, Exit> {
    let arguments = report["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let of_method = report["env"].as_object().into_iter().flatten();
    let of_method = of_method.filter_map(|(name, value)| Some((name, value.as_str()?)));
    let (variables, secret) = variables(at, provider)?;
    if !secret.is_empty() {
        tell(&format!("{provider}: not set here, because a secret is stored for it: {}", secret.join(", ")));
    }
    let mut program = tokio::process::Command::from(ChildKind::Agent.command(text(&report, "program")));
    program.args(arguments).envs(variables).envs(of_method).current_dir(&at.working_dir);
    let run = foreground::run(&mut program).await;
    let run = run.map_err(|why| Exit::machine(format!("cannot run {}: {why}", text(&report, "command"))))?;
    let status = match run {
        Ended::Itself(status) => status,
        Ended::Signalled(code) => return Ok(ended(code)),
    };
    let how =
        status.code().map_or_else(|| "was killed".to_owned(), |code| format!("ended with exit code {code}"));
    let line = match status.success() {
        true => format!("{provider}: signed in"),
        false => format!("{provider}: not signed in: {} {how}", one_line(text(&report, "command"))),
    };
    Ok(Answer { code: u8::from(!status.success()), ..Answer::new(vec![line], report).named([provider]) })
}

/// Prints a note during a command, whose answer on stdout follows at its end.
fn tell(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), format!("{line}\n").as_bytes());
}

/// Returns the configured variables of an agent, so that it stores its login where the daemon's agents read it, and the
/// names of those that are references to secrets.
fn variables(at: &Place, provider: &str) -> Result<(Vec<(String, String)>, Vec<String>), Exit> {
    let settings = Settings::new(&RunFlags::default(), at.files()?, &at.working_dir)?;
    let (mut plain, mut secret) = (Vec::new(), Vec::new());
    let entries = settings.plugins.iter().filter(|entry| entry.name == ACP);
    let agents =
        entries.filter_map(|entry| entry.options.get("agents")?.get(provider)?.get("env")?.as_object());
    for (name, value) in agents.flatten() {
        match value.as_str() {
            Some(value) => plain.push((name.clone(), value.to_owned())),
            None => secret.push(name.clone()),
        }
    }
    Ok((plain, secret))
}

async fn logout(at: &Place, asked: &AskedHost, provider: &str) -> Result<Answer, Exit> {
    let report = asked.required(at, LOGOUT, of(provider)).await?;
    Ok(Answer::new(vec![format!("{provider}: signed out")], report).named([provider]))
}

async fn sessions(
    at: &Place,
    asked: &AskedHost,
    provider: &str,
    directory: Option<String>,
) -> Result<Answer, Exit> {
    let progress = Progress::begin(&at.common, &format!("starting {provider}"));
    let report = stored(at, asked, provider, directory).await?;
    drop(progress);
    let rows = report["sessions"].as_array().cloned().unwrap_or_default();
    let line = |row: &Value| {
        let details = [text(row, "updatedAt"), text(row, "directory"), text(row, "title")];
        let details: Vec<String> =
            details.into_iter().filter(|detail| !detail.is_empty()).map(one_line).collect();
        format!("{} {}", one_line(text(row, "id")), details.join(", ")).trim_end().to_owned()
    };
    let lines = match rows.is_empty() {
        true => vec![format!("{provider} has no sessions")],
        false => rows.iter().map(line).collect(),
    };
    let names: Vec<String> = rows.iter().map(|row| text(row, "id").to_owned()).collect();
    Ok(Answer::new(lines, report).named(names))
}

async fn stored(
    at: &Place,
    asked: &AskedHost,
    provider: &str,
    directory: Option<String>,
) -> Result<Value, Exit> {
    let mut params = of(provider);
    if let Some(directory) = directory {
        params.insert("directory".to_owned(), directory.into());
    }
    asked.required(at, SESSIONS, params).await
}

async fn import(at: &Place, asked: &AskedHost, provider: &str, session: &str) -> Result<Answer, Exit> {
    let AskedHost::Daemon(daemon) = asked else {
        return Err(Exit::machine("no daemon is running; start it with: ostler start"));
    };
    let progress = Progress::begin(&at.common, &format!("starting {provider}"));
    let report = stored(at, asked, provider, None).await?;
    drop(progress);
    let rows = report["sessions"].as_array().into_iter().flatten();
    let row = rows.into_iter().find(|row| row["id"] == session).ok_or_else(|| {
        Exit::usage(format!(
            "{provider} has no session {session}; list them with: ostler agent sessions {provider}"
        ))
    })?;
    if report["continues"] != true {
        return Err(Exit::usage(format!("{provider} lists its sessions and cannot continue one")));
    }
    let channel = uri::session(provider, &uuid::Uuid::new_v4().to_string());
    let mut params =
        json!({ "channel": channel, "provider": provider, "config": { "agentSession": session } });
    if let Some(directory) = row["directory"].as_str().and_then(|path| Url::from_file_path(path).ok()) {
        params["workingDirectories"] = json!([directory.as_str()]);
    }
    daemon.request("createSession", params).await?;
    let title = text(row, "title");
    if !title.is_empty() {
        let action = json!({ "type": "session/titleChanged", "title": title });
        let subscribed = daemon.client().subscribe(channel.clone()).await.map_err(crate::client::exit)?;
        daemon.dispatch(&channel, object(action)).await?;
        drop(subscribed);
    }
    let line = format!("{channel} continues it; send a message with: ostler session send {channel} TEXT");
    Ok(Answer::new(vec![line], json!({ "session": channel })).named([channel]))
}

/// Returns the report of a check as lines.
fn checked(report: &Value) -> Vec<String> {
    let provider = text(report, "provider");
    let state = match text(report, "state") {
        "ready" => "ready",
        "notInstalled" => "not installed",
        "notSignedIn" => "not signed in",
        "unavailable" => "not available",
        _ => "failed",
    };
    let mut lines = vec![format!("{provider}: {}, {state}", one_line(text(report, "name")))];
    let mut add = |label: &str, value: Option<String>| {
        lines.extend(value.filter(|value| !value.is_empty()).map(|value| format!("  {label:<10} {value}")));
    };
    add("command", Some(one_line(text(report, "command"))));
    add("problem", report["problem"].as_str().map(one_line));
    for warning in report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        add("warning", Some(one_line(warning)));
    }
    let name = report["agentName"].as_str().map(one_line).unwrap_or_default();
    let version = report["version"].as_str().map(one_line).unwrap_or_default();
    add("agent", Some(format!("{name} {version}").trim().to_owned()));
    add("supports", supported(report).and_then(|words| words.strip_prefix("supports ").map(str::to_owned)));
    for (member, label) in [("models", "models"), ("modes", "modes")] {
        let all: Vec<&str> =
            report[member].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let more = all.len().saturating_sub(8);
        let mut shown = all[..all.len() - more].join(", ");
        if more > 0 {
            shown.push_str(&format!(" and {more} more"));
        }
        add(label, Some(one_line(&shown)));
    }
    for missing in report["missing"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        add("missing", Some(missing.to_owned()));
    }
    for method in report["authMethods"].as_array().into_iter().flatten() {
        let (id, name) = (one_line(text(method, "id")), one_line(text(method, "name")));
        let about = match method["description"].as_str() {
            Some(description) => format!("{name}: {}", one_line(description)),
            None => name,
        };
        let how = format!("ostler agent login {provider} --method {id} ({about})");
        add("sign in", Some(how));
    }
    let seconds = |member: &str| {
        report["millis"][member]
            .as_u64()
            .map(|millis| format!("{member} {}.{:02} s", millis / 1000, millis % 1000 / 10))
    };
    let times: Vec<String> = ["initialize", "session", "prompt"].into_iter().filter_map(seconds).collect();
    add("time", Some(times.join(", ")));
    add("reply", report["answer"]["text"].as_str().map(one_line));
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;

    use super::*;
    use crate::answer::Common;

    /// Answers one client: the check after 31 seconds.
    async fn serve(listener: tokio::net::TcpListener) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(Message::Text(asked))) = socket.next().await {
            let asked: Value = serde_json::from_str(&asked).unwrap();
            let result = match asked["method"].as_str() {
                Some(CHECK) => {
                    // Time is paused.
                    tokio::time::sleep(Duration::from_secs(31)).await;
                    json!({ "reply": "hay" })
                }
                _ => json!({ "protocolVersion": "1.0.0", "serverSeq": 0, "snapshots": [] }),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
            socket.send(Message::text(answer.to_string())).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_check_may_take_longer_than_the_30_seconds_of_other_requests() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener));
        let at = Place::of_process(&Common { remote: Some(remote), ..Common::default() }).unwrap();
        let asked = AskedHost::open(&at).await.unwrap();
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        let answer = asked.required(&at, CHECK, JsonObject::new()).await.unwrap();
        assert_eq!(answer, json!({ "reply": "hay" }));
        assert!(begun.elapsed() >= Duration::from_secs(31), "{:?}", begun.elapsed());
    }

    #[test]
    fn an_agent_that_reported_nothing_is_listed_by_its_name() {
        let mut row =
            json!({ "provider": "envy", "name": "Envy", "acp": true, "installed": true, "supports": {} });
        assert_eq!(listed(&row), "envy: Envy");
        row["version"] = "1".into();
        assert_eq!(listed(&row), "envy: Envy, version 1");
    }
}
