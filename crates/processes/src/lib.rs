//! Processes that plugins start. Each runs in a scope that contains everything it starts, and ends with that scope.

#![forbid(unsafe_code)]

mod adopted;
mod below;
mod child;
mod memory;
mod scope;
pub mod shared_work;
#[cfg_attr(not(target_os = "linux"), path = "unsupervised.rs")]
pub mod supervisor;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use rustix::process::Pid;
pub use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::Instant;

pub use adopted::leave_children_to;
pub use below::end_descendants;
pub use child::ChildKind;
pub use memory::MemoryAccounting;
use scope::Scope;
pub use scope::{Owner, ScopeChoice, Scopes, Usage};

/// How long a scope may take to become empty after the program's stdin is closed, and again after SIGTERM. Twice this
/// and the time to kill fit into the host's limit for closing a session.
const GRACE: Duration = Duration::from_millis(1500);
/// How long the kernel can take to end killed processes.
const KILL_LIMIT: Duration = Duration::from_secs(1);
/// How often an ending scope is checked.
const POLL: Duration = Duration::from_millis(20);
/// How many of the last lines of stderr, or parts of long ones, are retained for an error.
const STDERR_LINES: usize = 12;
/// The retained size of each, in bytes.
const STDERR_LINE: u64 = 512;

/// A program to start.
#[derive(Debug, Clone)]
pub struct Program {
    /// What it is, which says what it inherits from the daemon's environment.
    pub kind: ChildKind,
    /// A path, or a name that is looked up on `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables in addition to what it inherits.
    pub env: BTreeMap<String, String>,
    /// Its working directory.
    pub cwd: PathBuf,
    pub owner: Owner,
    /// The command that runs [`supervisor::main`], which marks a program that no cgroup contains before it runs.
    pub supervisor: Option<Vec<String>>,
    /// Whether the program is also supervised.
    pub supervised: bool,
}

/// The children that were started here, until their exit statuses are collected.
static STARTED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Why a program could not be started.
#[derive(Debug)]
pub enum Unstarted {
    /// The program does not exist.
    NotFound,
    /// Its working directory is missing.
    NoFolder,
    /// It is not executable.
    NotExecutable,
    /// It is a directory.
    Directory,
    /// It is a script whose interpreter is missing.
    NoInterpreter(String),
    /// Another error.
    Failed(io::Error),
}

impl Unstarted {
    /// Returns the message for users.
    pub fn sentence(&self, program: &Program) -> String {
        let Program { command, cwd, .. } = program;
        match self {
            Self::NotFound => format!("{command} is not installed"),
            Self::NotExecutable => format!("{command} is not an executable program"),
            Self::Directory => format!("{command} is a directory, not a program"),
            Self::NoInterpreter(interpreter) => {
                format!("{command} is a script for {interpreter}, which is missing")
            }
            Self::NoFolder => format!("the directory {} is missing", cwd.display()),
            Self::Failed(why) => format!("{command}: {why}"),
        }
    }
}

/// A running program and everything it started.
#[derive(Debug)]
pub struct Process {
    scope: Scope,
    ended: watch::Receiver<Option<ExitStatus>>,
    stderr: Arc<Mutex<Tail>>,
    stderr_ended: watch::Receiver<bool>,
}

/// The end of an output: lines, and parts of long ones.
#[derive(Debug, Default)]
struct Tail(std::collections::VecDeque<Vec<u8>>);

impl Tail {
    fn add(&mut self, piece: &[u8]) {
        if self.0.len() == STDERR_LINES {
            self.0.pop_front();
        }
        self.0.push_back(piece.to_vec());
    }

    /// Returns the lines as they were written.
    fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flatten().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

impl Process {
    /// Starts a program with pipes for stdin and stdout. Retains the end of its stderr.
    ///
    /// # Errors
    /// See [`Unstarted`].
    pub fn spawn(
        scopes: &'static Scopes,
        program: &Program,
        choice: ScopeChoice,
    ) -> Result<(Self, ChildStdin, ChildStdout), Unstarted> {
        let (mut process, mut child) =
            start(scopes, program, choice, |mut command| piped(&mut command, Stdio::piped()))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Unstarted::Failed(io::Error::other("the process has no pipes")));
        };
        if let Some(read) = child.stderr.take() {
            let (tell, ended) = watch::channel(false);
            tokio::spawn(retain(read, process.stderr.clone()).map(move |()| tell.send_replace(true)));
            process.stderr_ended = ended;
        }
        Ok((process.watching(child), stdin, stdout))
    }

    /// Starts a program without input, with pipes for stdout and stderr.
    ///
    /// # Errors
    /// See [`Unstarted`].
    pub fn run(
        scopes: &'static Scopes,
        program: &Program,
        choice: ScopeChoice,
    ) -> Result<(Self, ChildStdout, ChildStderr), Unstarted> {
        let (process, mut child) =
            start(scopes, program, choice, |mut command| piped(&mut command, Stdio::null()))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Unstarted::Failed(io::Error::other("the process has no pipes")));
        };
        Ok((process.watching(child), stdout, stderr))
    }

    /// Starts a program with `spawn`, which receives its command with arguments, directory and environment. The program
    /// must become the leader of a process group.
    ///
    /// # Errors
    /// See [`Unstarted`].
    pub fn start(
        scopes: &'static Scopes,
        program: &Program,
        choice: ScopeChoice,
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> Result<Self, Unstarted> {
        let (process, child) = start(scopes, program, choice, spawn)?;
        Ok(process.watching(child))
    }

    fn watching(mut self, mut child: Child) -> Self {
        let (tell, ended) = watch::channel(None);
        self.ended = ended;
        let (leader, life) = self.scope.led();
        tokio::spawn(async move {
            let id = child.id().and_then(|id| i32::try_from(id).ok());
            let mut wait = std::pin::pin!(child.wait());
            let collected =
                poll_fn(|context| Scope::leader_collected(leader, &life, || wait.as_mut().poll(context)));
            let status = collected.await.unwrap_or_else(|_| ExitStatus::from_raw(0));
            if let Some(id) = id {
                STARTED.lock().remove(&id);
            }
            tell.send_replace(Some(status));
        });
        self
    }

    /// Waits until the program's own process has ended.
    pub fn ended(&self) -> impl Future<Output = ExitStatus> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| *status);
            status.unwrap_or_else(|| ExitStatus::from_raw(0))
        }
    }

    /// Returns the exit status of the program's process; `None` while it runs.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Returns the memory of the program and everything it started.
    pub fn usage(&self) -> Usage {
        self.scope.usage()
    }

    /// Makes the kernel limit its memory, if possible.
    pub fn limit_memory(&self, bytes: u64) {
        self.scope.limit_memory(bytes);
    }

    /// Returns whether the kernel killed one of its processes at the limit.
    pub fn exceeded_memory(&self) -> bool {
        self.scope.exceeded_memory()
    }

    /// Sends SIGKILL to everything in the scope.
    pub fn kill_now(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits until stderr is read completely, after all processes that have it open have ended.
    pub fn stderr_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.stderr_ended.clone();
        async move { drop(ended.wait_for(|ended| *ended).await) }
    }

    /// Returns the last lines of stderr.
    pub fn stderr(&self) -> String {
        self.stderr.lock().text()
    }

    /// Sends a signal to everything in the scope.
    pub fn signal(&self, signal: Signal) {
        self.scope.signal(signal);
    }

    /// Ends everything in the scope. The caller has closed the program's stdin; processes that do not end then receive
    /// SIGTERM, and remaining ones SIGKILL.
    pub async fn close(&self) {
        let mut seen = Vec::new();
        if !self.empty_within(GRACE, &mut seen).await {
            self.scope.signal(Signal::TERM);
            if !self.empty_within(GRACE, &mut seen).await {
                self.kill_all(&mut seen).await;
            }
        }
        reap(&seen);
    }

    /// Ends everything in the scope with a signal, and after `grace` with SIGKILL.
    pub async fn end(&self, signal: Signal, grace: Duration) {
        let mut seen = self.scope.members();
        self.scope.signal(signal);
        if !self.empty_within(grace, &mut seen).await {
            self.kill_all(&mut seen).await;
        }
        reap(&seen);
    }

    /// Ends everything in the scope immediately.
    pub async fn kill(&self) {
        let mut seen = Vec::new();
        self.kill_all(&mut seen).await;
        reap(&seen);
    }

    async fn kill_all(&self, seen: &mut Vec<Pid>) {
        let (now, half) = (Instant::now(), KILL_LIMIT / 2);
        // The next check includes a process that forks during the signal.
        while now.elapsed() < KILL_LIMIT {
            match now.elapsed() < half {
                true => self.scope.signal(Signal::KILL),
                false => self.scope.kill_with_supervisor(),
            }
            if self.empty_within(POLL, seen).await {
                return;
            }
        }
    }

    async fn empty_within(&self, limit: Duration, seen: &mut Vec<Pid>) -> bool {
        let end = Instant::now() + limit;
        loop {
            let members = self.scope.members();
            if members.is_empty() {
                // The task of the child collects its status.
                return tokio::time::timeout(limit.max(POLL), self.ended()).await.is_ok();
            }
            seen.extend(members.iter().filter(|pid| !seen.contains(pid)).copied().collect::<Vec<_>>());
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Collects the exit statuses of adopted processes.
fn reap(seen: &[Pid]) {
    let started = STARTED.lock();
    table::reap(seen, &|pid| started.contains(&pid));
}

fn start(
    scopes: &'static Scopes,
    program: &Program,
    choice: ScopeChoice,
    spawn: impl FnOnce(Command) -> io::Result<Child>,
) -> Result<(Process, Child), Unstarted> {
    let is_directory = || program.command.contains('/') && program.cwd.join(&program.command).is_dir();
    let file = find(&program.command, &program.path(), &program.cwd);
    let file = file.ok_or_else(|| if is_directory() { Unstarted::Directory } else { Unstarted::NotFound })?;
    if !is_executable(&file) {
        return Err(Unstarted::NotExecutable);
    }
    if !program.cwd.is_dir() {
        return Err(Unstarted::NoFolder);
    }
    if let Some(interpreter) = missing_interpreter(&file, &program.cwd) {
        return Err(Unstarted::NoInterpreter(interpreter));
    }
    // A supervisor receives its program as text, and requires `/proc`.
    let supervisor = program.supervisor.as_deref().filter(|command| {
        file.to_str().is_some() && command.first().is_some_and(|own| Path::new(own).exists())
    });
    let prepared = scopes.prepare(choice, supervisor.is_some(), program.supervised);
    let mut command = prepared.command(program.kind, &file, supervisor);
    command.args(&program.args).current_dir(&program.cwd);
    let (marker, scope) = prepared.marker();
    command.envs(&program.env);
    if prepared.is_supervised() {
        // The next start of the daemon does not interrupt a supervisor.
        command.env_remove(marker);
    } else {
        command.env(marker, scope);
    }
    adopted::reap_adopted(&STARTED);
    let started = {
        let mut all = STARTED.lock();
        spawn(command).and_then(|child| {
            let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
            all.insert(pid.as_raw_nonzero().get());
            Ok((pid, child))
        })
    };
    match started {
        Ok((pid, child)) => {
            let ((_, ended), (_, stderr_ended)) = (watch::channel(None), watch::channel(true));
            let stderr = Arc::new(Mutex::new(Tail::default()));
            let scope = prepared.around(pid, program.owner.clone());
            Ok((Process { scope, ended, stderr, stderr_ended }, child))
        }
        Err(why) => {
            prepared.discard();
            Err(match why.kind() {
                io::ErrorKind::NotFound => Unstarted::NotFound,
                _ => Unstarted::Failed(why),
            })
        }
    }
}

fn piped(command: &mut Command, stdin: Stdio) -> io::Result<Child> {
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()
}

/// Returns whether a program exists, as a path or on `PATH`.
pub fn is_installed(program: &Program) -> bool {
    find(&program.command, &program.path(), &program.cwd).is_some()
}

impl Program {
    /// Returns the `PATH` for the lookup.
    fn path(&self) -> String {
        self.env.get("PATH").cloned().or_else(|| std::env::var("PATH").ok()).unwrap_or_default()
    }
}

/// Returns the file of a program: a path unchanged, a name from `PATH`.
fn find(command: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if command.contains('/') {
        let file = cwd.join(command);
        return file.is_file().then_some(file);
    }
    let files =
        || std::env::split_paths(path).map(|folder| folder.join(command)).filter(|file| file.is_file());
    files().find(|file| is_executable(file)).or_else(|| files().next())
}

/// Returns the interpreter of a script, if it is missing.
fn missing_interpreter(file: &Path, cwd: &Path) -> Option<String> {
    let mut first = Vec::new();
    std::fs::File::open(file).ok()?.take(256).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let interpreter = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    (!cwd.join(interpreter).exists()).then(|| interpreter.to_owned())
}

/// Returns whether a file is executable.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|there| there.permissions().mode() & 0o111 != 0)
}

async fn retain(stderr: ChildStderr, tail: Arc<Mutex<Tail>>) {
    let mut read = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A long line is read in parts.
        match (&mut read).take(STDERR_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !line.trim_ascii().is_empty() {
            tail.lock().add(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_retained_as_one() {
        let mut tail = Tail::default();
        for piece in [&b"one \xc3"[..], b"\xa9 line\r\n", b"two\n"] {
            tail.add(piece);
        }
        assert_eq!(tail.text(), "one \u{e9} line\ntwo");
        (0..STDERR_LINES).for_each(|_| tail.add(b"last\n"));
        assert!(!tail.text().contains("two"));
    }
}
