//! Runs the `git` program: without prompts, hooks or helpers of a repository on reads, with bounded time and output.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use ostler_contract::{Budget, Charge, RpcError, Thrown};
use ostler_processes::ChildKind;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::lanes::Turn;

/// Settings of calls that run no hooks and no monitor of the file system, and whose results depend on no setting that is about
/// presentation, of the user or of the repository.
const SETTINGS: &[&str] = &[
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "color.ui=false",
    "color.status=false",
    "color.diff=false",
    "diff.orderFile=/dev/null",
    "diff.renames=true",
    "diff.renameLimit=1000",
    "status.renames=true",
    "status.renameLimit=1000",
    "log.showSignature=false",
    "i18n.logOutputEncoding=UTF-8",
];
const READ_LIMIT: Duration = Duration::from_secs(25);
/// The limit of a write, including hooks, signing and a push.
const WRITE_LIMIT: Duration = Duration::from_secs(290);
/// The maximum output of a read, in bytes.
const OUTPUT_LIMIT: u64 = 128 << 20;
/// How much of the output of a read is read before the rest is charged.
const SMALL_OUTPUT: usize = 1 << 20;
/// The budget of outputs: two large ones and small ones in addition.
const MEMORY: usize = 384 << 20;
/// The retained size of an error message, in bytes.
const MESSAGE_LIMIT: u64 = 16 << 10;

/// The variable with the value of a switch.
const OFF: &str = "OSTLER_GIT_OFF";

fn settings() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(|setting| ["-c", setting])
}

/// Returns the argument that switches off the hook of a key of a configuration, `hook.<name>.<variable>`, if it is one. It is
/// none of `-c`, because names can contain `=`.
fn hook_switch(key: &[u8]) -> Option<OsString> {
    let rest = key.get(..5).filter(|section| section.eq_ignore_ascii_case(b"hook.")).map(|_| &key[5..])?;
    let name = &rest[..rest.iter().rposition(|byte| *byte == b'.')?];
    let argument = [b"--config-env=hook.", name, b".enabled=", OFF.as_bytes()].concat();
    Some(OsString::from_vec(argument))
}

static OUTPUTS: LazyLock<Budget> = LazyLock::new(|| Budget::new(MEMORY));

/// One call of the program.
#[must_use]
pub(crate) struct Git {
    directory: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    input: Vec<u8>,
    kind: ChildKind,
    writes: bool,
}

/// The standard output of a call, charged to a budget until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    _charge: Option<Charge>,
}

impl Output {
    /// The bytes, without the charge: for what is passed on.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl std::ops::Deref for Output {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads an output. A larger one charges its maximum at once, so that calls that hold charges do not wait for each
/// other.
async fn read_output(mut from: impl AsyncRead + Unpin, budget: &Budget) -> std::io::Result<Output> {
    let mut charge = budget.take(SMALL_OUTPUT).await;
    let mut bytes = Vec::new();
    (&mut from).take(SMALL_OUTPUT as u64).read_to_end(&mut bytes).await?;
    if bytes.len() == SMALL_OUTPUT {
        if let Some(charge) = &mut charge {
            charge.grow(OUTPUT_LIMIT as usize).await;
        }
        from.take(OUTPUT_LIMIT + 1 - SMALL_OUTPUT as u64).read_to_end(&mut bytes).await?;
    }
    if let Some(charge) = &mut charge {
        charge.set(bytes.capacity());
    }
    Ok(Output { bytes, _charge: charge })
}

/// Why git failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The directory is in no repository.
    NoRepository,
    /// Another process holds a lock of the repository.
    Locked(String),
    /// Git did not do a write: a hook, a missing identity, an unknown branch, …
    Refused(String),
    /// Another error, with git's message.
    Other(String),
}

impl From<Failure> for Thrown {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoRepository => {
                RpcError::invalid_params("the directory is not in a git repository").into()
            }
            Failure::Locked(said) => Self::new(format_args!(
                "another git process holds a lock of the repository; wait for it, or remove the lock if none runs: {said}"
            )),
            Failure::Refused(said) => RpcError::invalid_params(said).into(),
            Failure::Other(said) => Self::new(said),
        }
    }
}

impl Git {
    fn new(directory: &Path, kind: ChildKind, writes: bool) -> Self {
        Self {
            directory: directory.to_owned(),
            arguments: vec!["--no-pager".into()],
            environment: Vec::new(),
            input: Vec::new(),
            kind,
            writes,
        }
    }

    /// A read. It takes no locks, fetches nothing and runs nothing that the repository configures, as long as it does not
    /// look into files; [`Guard::git`](crate::guard::Guard::git) is for those that do.
    pub(crate) fn read(directory: &Path) -> Self {
        Self::new(directory, ChildKind::Git, false).args(settings())
    }

    /// A write that the host makes of its own accord: as a read, it runs nothing that the repository configures. Later
    /// versions of git run hooks that a configuration names one by one; they are switched off one by one.
    pub(crate) async fn housekeeping(directory: &Path) -> Result<Self, Failure> {
        let listed = Self::read(directory).args(["config", "--list", "--includes", "--name-only", "-z"]);
        let listed = listed.run().await?;
        let mut hooks: Vec<OsString> = listed.split(|byte| *byte == 0).filter_map(hook_switch).collect();
        hooks.sort();
        hooks.dedup();
        let git = Self::new(directory, ChildKind::Git, true).args(settings());
        Ok(git.args(hooks).env(OFF, "false"))
    }

    /// A write, with the hooks, the signing and the credentials of the user who runs the daemon.
    pub(crate) fn write(directory: &Path) -> Self {
        // A commit, too, fails without its file.
        Self::new(directory, ChildKind::Hook, true).args(["-c", "diff.orderFile=/dev/null"])
    }

    pub(crate) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    pub(crate) fn input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// Paths on standard input, each ended by a zero byte.
    pub(crate) fn paths<'a>(self, paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut input = Vec::new();
        for path in paths {
            input.extend_from_slice(path.as_os_str().as_bytes());
            input.push(0);
        }
        self.input(input)
    }

    pub(crate) async fn run(self) -> Result<Output, Failure> {
        let (name, writes) = (self.name(), self.writes);
        let (status, out, said) = self.outcome().await?;
        match (status.success(), failure(&name, status, &said)) {
            (true, _) => Ok(out),
            (false, Failure::Other(said)) if writes && status.code().is_some() => Err(Failure::Refused(said)),
            (false, why) => Err(why),
        }
    }

    /// Runs it and returns its output as trimmed text.
    pub(crate) async fn text(self) -> Result<String, Failure> {
        self.run().await.map(|out| String::from_utf8_lossy(&out).trim_end_matches('\n').to_owned())
    }

    /// Runs it; `None` if it fails with exit code 1, which several commands use for "no".
    pub(crate) async fn maybe(self) -> Result<Option<String>, Failure> {
        let name = self.name();
        let (status, out, said) = self.outcome().await?;
        match status.code() {
            Some(0) => Ok(Some(String::from_utf8_lossy(&out).trim_end_matches('\n').to_owned())),
            Some(1) => Ok(None),
            _ => Err(failure(&name, status, &said)),
        }
    }

    /// The command, for messages.
    fn name(&self) -> String {
        let mut words = self.arguments.iter();
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("-c") => drop(words.next()),
                Some(word) if !word.starts_with('-') => return format!("git {word}"),
                _ => {}
            }
        }
        "git".to_owned()
    }

    /// Runs it to its end, within its time; returns its exit status, its output and its messages.
    pub(crate) async fn outcome(self) -> Result<(ExitStatus, Output, String), Failure> {
        let limit = if self.writes { WRITE_LIMIT } else { READ_LIMIT };
        let name = self.name();
        match tokio::time::timeout(limit, self.finish()).await {
            Ok(outcome) => outcome,
            Err(_) => {
                Err(Failure::Other(format!("{name} did not finish within {} seconds", limit.as_secs())))
            }
        }
    }

    async fn finish(self) -> Result<(ExitStatus, Output, String), Failure> {
        let name = self.name();
        let failed = |why: std::io::Error| match why.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::Other("the program git is not installed, or not in PATH".to_owned())
            }
            _ => Failure::Other(format!("{name}: {why}")),
        };
        let mut turn = Turn::of(&self.directory).await;
        let mut command = Command::from(self.kind.command("git"));
        command
            .env("LC_ALL", "C")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("SSH_ASKPASS", "")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("GCM_INTERACTIVE", "never")
            .env("GIT_EDITOR", ":")
            .env("GIT_SEQUENCE_EDITOR", ":")
            .envs(self.environment)
            .arg("-C")
            .arg(&self.directory)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        // Hooks and helpers end with it if the caller no longer waits.
        let mut group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin.take() {
                // A program that does not read its input reports the reason itself.
                let _ = stdin.write_all(&self.input).await;
            }
        };
        let read = async {
            match stdout {
                Some(stdout) => read_output(stdout, &OUTPUTS).await,
                None => Ok(Output::default()),
            }
        };
        let listen = async {
            let mut said = Vec::new();
            if let Some(stderr) = stderr {
                let mut stderr = stderr.take(MESSAGE_LIMIT);
                stderr.read_to_end(&mut said).await?;
                tokio::io::copy(&mut stderr.into_inner(), &mut tokio::io::sink()).await?;
            }
            Ok::<_, std::io::Error>(said)
        };
        let listening = async {
            let ((), out, said) = futures::join!(feed, read, listen);
            Ok::<_, std::io::Error>((out?, said?))
        };
        let release = async {
            turn.yield_after_first_second().await;
            std::future::pending::<Infallible>().await
        };
        let listened = tokio::select! {
            biased;
            listened = listening => listened,
            never = release => match never {},
        };
        let (out, said) = listened.map_err(failed)?;
        if out.len() as u64 > OUTPUT_LIMIT {
            return Err(Failure::Other(format!("{name} returned more than {} MiB", OUTPUT_LIMIT >> 20)));
        }
        let status = child.wait().await.map_err(failed)?;
        group.0 = None;
        Ok((status, out, String::from_utf8_lossy(&said).trim().to_owned()))
    }
}

/// The processes of a call, ended where the call is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn failure(name: &str, status: ExitStatus, said: &str) -> Failure {
    if said.contains("not a git repository") || said.contains("cannot change to") {
        return Failure::NoRepository;
    }
    let said = said.strip_prefix("fatal: ").or_else(|| said.strip_prefix("error: ")).unwrap_or(said);
    if said.contains(".lock': File exists") {
        return Failure::Locked(said.lines().next().unwrap_or_default().to_owned());
    }
    match said.is_empty() {
        true => Failure::Other(format!("{name} failed ({status})")),
        false => Failure::Other(format!("{name}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_hosts_own_writes_switch_off_each_hook_of_a_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let init = Git::write(folder.path()).args(["init", "--quiet"]).run().await;
        assert!(init.is_ok(), "{init:?}");
        let names = ["plain", "with.dot", "with=sign", "With Spaces"];
        for name in names {
            for (key, value) in [("command", "touch ran"), ("event", "reference-transaction")] {
                let set = Git::write(folder.path()).args(["config", &format!("hook.{name}.{key}"), value]);
                assert!(set.run().await.is_ok(), "{name}");
            }
        }
        for name in names {
            let git = Git::housekeeping(folder.path()).await.expect("git");
            let enabled = git.args(["config", "--get", &format!("hook.{name}.enabled")]).text().await;
            assert_eq!(enabled.as_deref(), Ok("false"), "{name}");
        }
    }

    #[tokio::test]
    async fn failures_are_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = Git::read(folder.path()).args(["rev-parse", "--git-dir"]).run().await;
        assert_eq!(outside.map(Output::into_bytes), Err(Failure::NoRepository));
        let gone = Git::read(&folder.path().join("gone")).args(["rev-parse", "--git-dir"]).run().await;
        assert_eq!(gone.map(Output::into_bytes), Err(Failure::NoRepository));
        let wrong = Git::read(folder.path()).args(["no-such-command"]).run().await;
        assert!(matches!(wrong, Err(Failure::Other(said)) if said.contains("no-such-command")));
    }

    #[tokio::test]
    async fn outputs_are_charged_while_they_are_held() {
        let budget = Budget::new(MEMORY);
        let small = read_output(&b"small"[..], &budget).await.expect("it is read");
        assert_eq!(&*small, b"small");
        let large = vec![7_u8; 3 * SMALL_OUTPUT];
        let held = read_output(&large[..], &budget).await.expect("it is read");
        assert_eq!(held.len(), large.len());
        assert!(budget.used() >= large.len());
        assert!(budget.used() < OUTPUT_LIMIT as usize, "only what it came to");
        // More than fits at a time wait for each other and all pass.
        let many = (0..8).map(|_| async { read_output(&large[..], &budget).await.map(|out| out.len()) });
        let read = futures::future::join_all(many).await;
        assert!(read.into_iter().all(|len| matches!(len, Ok(len) if len == large.len())));
        drop((small, held));
        assert_eq!(budget.used(), 0);
    }
}
