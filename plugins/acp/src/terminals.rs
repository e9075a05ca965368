//! `terminal/*`: commands that the host runs for an agent. If the host has terminals, users can see them; otherwise
//! they run here, without one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_contract::points::{SessionTerminal, SessionTerminalRequest, SessionTerminals, Start};
use ostler_contract::{Value, json};
use ostler_processes::{ChildKind, Owner, Process, Program, ScopeChoice};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

use crate::SCOPES;
use crate::agent_connection::Failure;
use crate::protocol::member;
use crate::{files, session};

/// The default size of retained output, in bytes.
const RETAINED: usize = 1 << 20;
/// The maximum size of retained output, in bytes.
const RETAINED_AT_MOST: usize = 8 << 20;
/// The size of output in the result of a command, in bytes.
const PREVIEW: usize = 16 << 10;
/// The size of retained content of released terminals, in bytes, and their number.
const RELEASED: usize = 4 << 20;
const RELEASED_AT_MOST: usize = 256;
/// The maximum number of terminals of an agent.
const AT_MOST: usize = 64;

/// The terminals of one conversation.
#[derive(Debug, Clone, Default)]
pub struct Terminals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    host: Option<SessionTerminals>,
    cwd: PathBuf,
    /// The session's directories, in which commands start.
    directories: Vec<PathBuf>,
    env: BTreeMap<String, String>,
    scope: ScopeChoice,
    /// The command that marks programs before they run.
    supervisor: Option<Vec<String>>,
    owner: Owner,
    next: AtomicU64,
    open: Mutex<Open>,
    /// The output of released ones, for calls that refer to them.
    released: Mutex<Released>,
}

/// The terminals of the running agent.
#[derive(Debug, Default)]
struct Open {
    /// The number of agents whose terminals were closed.
    generation: u64,
    terminals: HashMap<String, Terminal>,
}

/// Contents of terminals that were released, the latest last.
#[derive(Debug, Default)]
struct Released {
    contents: VecDeque<(String, Value)>,
    bytes: usize,
}

impl Released {
    /// Retains another one, and drops the oldest beyond the limit.
    fn add(&mut self, id: String, content: Value) {
        self.bytes += size(&content);
        self.contents.push_back((id, content));
        while self.bytes > RELEASED || self.contents.len() > RELEASED_AT_MOST {
            let Some((_, content)) = self.contents.pop_front() else { return };
            self.bytes -= size(&content);
        }
    }

    fn get(&self, id: &str) -> Option<&Value> {
        self.contents.iter().find(|(known, _)| known == id).map(|(_, content)| content)
    }
}

fn size(content: &Value) -> usize {
    let texts = [content.get("text"), content.pointer("/result/preview")];
    texts.into_iter().flatten().filter_map(Value::as_str).map(str::len).sum()
}

#[derive(Debug, Clone)]
enum Terminal {
    /// A terminal of the host.
    Listed { terminal: SessionTerminal, title: String, limit: usize, exit: watch::Receiver<Option<Exit>> },
    /// A process without a terminal.
    Own { process: Arc<Process>, output: Arc<Mutex<Output>>, drained: watch::Receiver<u8> },
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
struct Exit {
    code: Option<i64>,
    signal: Option<i32>,
}

/// The end of a command's output.
#[derive(Debug)]
struct Output {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Terminals {
    /// Creates it without terminals.
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates it for a chat.
    pub fn of(start: &Start, cwd: &Path, directories: Vec<PathBuf>, shared: &session::Shared) -> Self {
        let (scope, provider) = (shared.runtime.scope, &shared.agent.provider);
        Self(Arc::new(Shared {
            directories,
            host: start.terminals.clone(),
            cwd: cwd.to_owned(),
            env: start.env.clone(),
            scope,
            supervisor: shared.runtime.supervisor.clone(),
            owner: Owner { provider: provider.clone(), session: start.uri.clone() },
            ..Shared::default()
        }))
    }

    /// Returns the current generation: a request of an ended agent opens no terminal.
    pub fn generation(&self) -> u64 {
        self.0.open.lock().generation
    }

    /// Answers a `terminal/*` request of a generation.
    ///
    /// # Errors
    /// The terminal does not exist, or one cannot be opened.
    pub async fn serve(&self, method: &str, params: &Value, generation: u64) -> Result<Value, Failure> {
        if method == "terminal/create" {
            return self.create(params, generation).await;
        }
        let id: String =
            member(params, "terminalId").ok_or_else(|| Failure::bad_params("terminalId is missing"))?;
        let terminal = self.0.open.lock().terminals.get(&id).cloned();
        let terminal = terminal.ok_or_else(|| Failure::bad_params(format!("there is no terminal {id}")))?;
        match method {
            "terminal/output" => {
                let (output, truncated) = terminal.output().await;
                let mut answer = json!({ "output": output, "truncated": truncated });
                if let Some(exit) = terminal.exit() {
                    answer["exitStatus"] = exit.json();
                }
                Ok(answer)
            }
            "terminal/wait_for_exit" => Ok(terminal.wait().await.json()),
            "terminal/kill" => {
                terminal.kill().await;
                Ok(json!({}))
            }
            "terminal/release" => {
                let content = terminal.content().await;
                self.0.released.lock().add(id.clone(), content);
                self.0.open.lock().terminals.remove(&id);
                terminal.kill().await;
                Ok(json!({}))
            }
            other => Err(Failure::unknown_method(other)),
        }
    }

    /// Returns the terminal as content of a tool call.
    pub fn content(&self, id: &str) -> Value {
        if let Some(content) = self.0.released.lock().get(id) {
            return content.clone();
        }
        match self.0.open.lock().terminals.get(id) {
            Some(Terminal::Listed { terminal, title, exit, .. }) => {
                shown(&terminal.uri, title, exit.borrow().map(|exit| result(exit.code, None)))
            }
            Some(Terminal::Own { output, .. }) => json!({ "type": "text", "text": output.lock().text() }),
            None => json!({ "type": "text", "text": format!("[terminal {id}]") }),
        }
    }

    /// Closes the terminals of an agent that ends; the future ends their processes.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let terminals = {
            let mut open = self.0.open.lock();
            open.generation += 1;
            std::mem::take(&mut open.terminals)
        };
        *self.0.released.lock() = Released::default();
        async move {
            let killed = terminals.into_values().map(|terminal| async move { terminal.kill().await });
            futures::future::join_all(killed).await;
        }
    }

    async fn create(&self, params: &Value, generation: u64) -> Result<Value, Failure> {
        let command: String =
            member(params, "command").ok_or_else(|| Failure::bad_params("command is missing"))?;
        let args: Vec<String> = member(params, "args").unwrap_or_default();
        let cwd = match member::<PathBuf>(params, "cwd") {
            Some(cwd) => self.inside(&cwd).await?,
            None => self.0.cwd.clone(),
        };
        let limit = member::<u64>(params, "outputByteLimit").and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(RETAINED).min(RETAINED_AT_MOST);
        if self.0.open.lock().terminals.len() >= AT_MOST {
            return Err(Failure::internal(format!("{AT_MOST} terminals are open; release one first")));
        }
        let mut env = self.0.env.clone();
        for variable in params.get("env").and_then(Value::as_array).into_iter().flatten() {
            if let (Some(name), Some(value)) = (member(variable, "name"), member(variable, "value")) {
                env.insert(name, value);
            }
        }
        let terminal = match &self.0.host {
            Some(host) => listed(host, command, args, &cwd, env, limit).await?,
            None => own(
                {
                    let (owner, supervisor) = (self.0.owner.clone(), self.0.supervisor.clone());
                    // Background processes of a command can outlive it.
                    let kind = ChildKind::Terminal;
                    Program { kind, command, args, env, cwd, owner, supervisor, supervised: false }
                },
                self.0.scope,
                limit,
            )?,
        };
        let id = format!("terminal-{}", self.0.next.fetch_add(1, Ordering::Relaxed) + 1);
        let untaken = {
            let mut open = self.0.open.lock();
            match open.generation == generation {
                true => {
                    open.terminals.insert(id.clone(), terminal);
                    None
                }
                false => Some(terminal),
            }
        };
        if let Some(terminal) = untaken {
            terminal.kill().await;
            return Err(Failure::internal("the agent that asked for the terminal was stopped"));
        }
        Ok(json!({ "terminalId": id }))
    }
}

impl Terminals {
    /// Returns the real path of a directory, if it is inside one of the session's.
    async fn inside(&self, cwd: &Path) -> Result<PathBuf, Failure> {
        if !cwd.is_absolute() {
            return Err(Failure::bad_params(format!("cwd: {} is not an absolute path", cwd.display())));
        }
        let real = tokio::fs::canonicalize(cwd).await;
        let real = real.map_err(|why| Failure::bad_params(format!("cwd: {}: {why}", cwd.display())))?;
        match files::contains(&self.0.directories, &real).await {
            true => Ok(real),
            false => Err(Failure::bad_params(format!(
                "cwd: {} is outside the session's directories",
                cwd.display()
            ))),
        }
    }
}

async fn listed(
    host: &SessionTerminals,
    command: String,
    args: Vec<String>,
    cwd: &Path,
    env: BTreeMap<String, String>,
    limit: usize,
) -> Result<Terminal, Failure> {
    let title = std::iter::once(&command).chain(&args).cloned().collect::<Vec<_>>().join(" ");
    let request = SessionTerminalRequest {
        command: Some(command),
        args: (!args.is_empty()).then_some(args),
        cwd: Some(cwd.display().to_string()),
        env: Some(env),
        name: Some(title.clone()),
        ..SessionTerminalRequest::default()
    };
    let opened = host.open.call((request,)).await.map_err(|why| Failure::internal(why.message))?;
    let (tell, exit) = watch::channel(None);
    let wait = opened.wait.clone();
    tokio::spawn(async move {
        let code = wait.call(()).await.unwrap_or_default();
        tell.send_replace(Some(Exit { code, signal: None }));
    });
    Ok(Terminal::Listed { terminal: opened, title, limit, exit })
}

fn own(mut program: Program, scope: ScopeChoice, limit: usize) -> Result<Terminal, Failure> {
    // Agents send a program with arguments, or a whole line for a shell.
    if program.args.is_empty() && program.command.contains(char::is_whitespace) {
        let line = std::mem::replace(&mut program.command, "/bin/sh".to_owned());
        program.args = vec!["-c".to_owned(), line];
    }
    let (process, stdout, stderr) =
        Process::run(&SCOPES, &program, scope).map_err(|why| Failure::internal(why.sentence(&program)))?;
    let output = Arc::new(Mutex::new(Output { bytes: Vec::new(), limit, truncated: false }));
    let (tell, drained) = watch::channel(0);
    let tell = Arc::new(tell);
    tokio::spawn(collect(stdout, output.clone(), tell.clone()));
    tokio::spawn(collect(stderr, output.clone(), tell));
    Ok(Terminal::Own { process: Arc::new(process), output, drained })
}

async fn collect(mut from: impl AsyncRead + Unpin, output: Arc<Mutex<Output>>, done: Arc<watch::Sender<u8>>) {
    let mut piece = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        output.lock().add(&piece[..count]);
    }
    done.send_modify(|done| *done += 1);
}

impl Terminal {
    async fn output(&self) -> (String, bool) {
        match self {
            Self::Listed { terminal, limit, .. } => {
                let whole = terminal.output.call(()).await.unwrap_or_default();
                let from = whole.ceil_char_boundary(whole.len().saturating_sub(*limit));
                (whole[from..].to_owned(), from > 0)
            }
            Self::Own { output, .. } => {
                let output = output.lock();
                (output.text(), output.truncated)
            }
        }
    }

    fn exit(&self) -> Option<Exit> {
        match self {
            Self::Listed { exit, .. } => *exit.borrow(),
            Self::Own { process, .. } => process.status().map(Exit::of),
        }
    }

    async fn wait(&self) -> Exit {
        match self {
            Self::Listed { exit, .. } => {
                let mut exit = exit.clone();
                let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
                ended.unwrap_or(Exit { code: None, signal: None })
            }
            Self::Own { process, drained, .. } => {
                let status = process.ended().await;
                // Its last output is read before its end is reported, unless a descendant keeps the pipes open.
                let mut drained = drained.clone();
                let _ = tokio::time::timeout(
                    std::time::Duration::from_millis(500),
                    drained.wait_for(|done| *done >= 2),
                )
                .await;
                Exit::of(status)
            }
        }
    }

    async fn kill(&self) {
        match self {
            Self::Listed { terminal, .. } => drop(terminal.kill.call(()).await),
            Self::Own { process, .. } => process.kill().await,
        }
    }

    async fn content(&self) -> Value {
        match self {
            Self::Listed { terminal, title, exit, .. } => {
                let ended = *exit.borrow();
                let result = match ended {
                    Some(ended) => Some(result(ended.code, Some(&self.output().await.0))),
                    None => None,
                };
                shown(&terminal.uri, title, result)
            }
            Self::Own { .. } => json!({ "type": "text", "text": self.output().await.0 }),
        }
    }
}

/// Returns a terminal of the host as content of a tool call, with the result of an ended command.
pub fn shown(uri: &str, title: &str, result: Option<Value>) -> Value {
    let mut content = json!({ "type": "terminal", "resource": uri, "title": title, "isPty": true });
    if let Some(result) = result {
        content["result"] = result;
    }
    content
}

/// Returns the result of an ended command, with the end of its output for clients that do not show the terminal.
pub fn result(code: Option<i64>, output: Option<&str>) -> Value {
    let mut result = json!({});
    if let Some(code) = code {
        result["exitCode"] = code.into();
    }
    if let Some(output) = output {
        let from = output.ceil_char_boundary(output.len().saturating_sub(PREVIEW));
        result["preview"] = output[from..].into();
        result["truncated"] = (from > 0).into();
    }
    result
}

impl Exit {
    fn of(status: std::process::ExitStatus) -> Self {
        Self { code: status.code().map(i64::from), signal: status.signal() }
    }

    fn json(self) -> Value {
        json!({ "exitCode": self.code, "signal": self.signal.map(|signal| signal.to_string()) })
    }
}

impl Output {
    fn add(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        let surplus = self.bytes.len().saturating_sub(self.limit);
        // Moved only once the output has doubled.
        if surplus > self.limit.max(4096) {
            self.bytes.drain(..surplus);
        }
        self.truncated |= surplus > 0;
    }

    /// Returns the end of a text, truncated at a character boundary.
    fn text(&self) -> String {
        let mut from = self.bytes.len().saturating_sub(self.limit);
        while from > 0 && from < self.bytes.len() && self.bytes[from] & 0xC0 == 0x80 {
            from += 1;
        }
        String::from_utf8_lossy(&self.bytes[from..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_does_not_outlive_the_agent_that_ended_while_it_started() {
        let terminals = Terminals(Arc::new(Shared { cwd: "/".into(), ..Shared::default() }));
        let line = "sleep 30161";
        let params = json!({ "command": "sleep", "args": ["30161"] });
        let of = terminals.generation();
        terminals.close().await;
        let outcome = terminals.serve("terminal/create", &params, of).await;
        assert!(outcome.is_err(), "{outcome:?}");
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        // The program's name may be a path.
        assert!(
            !lines.into_iter().any(|found| found.trim_end_matches('\0').replace('\0', " ").ends_with(line))
        );
        let opened = terminals.serve("terminal/create", &params, terminals.generation()).await;
        assert_eq!(opened, Ok(json!({ "terminalId": "terminal-2" })));
        terminals.close().await;
    }

    #[test]
    fn output_is_cut_at_its_beginning_between_characters() {
        let mut output = Output { bytes: Vec::new(), limit: 4, truncated: false };
        output.add("ab".as_bytes());
        assert_eq!((output.text().as_str(), output.truncated), ("ab", false));
        output.add("éü".as_bytes());
        assert_eq!((output.text().as_str(), output.truncated), ("éü", true));
        output.add("x".as_bytes());
        assert_eq!(output.text(), "üx");
    }
}
