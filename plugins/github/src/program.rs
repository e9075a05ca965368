//! Runs `git` and `gh` for reads: without prompts, hooks or helpers, with bounded time and output.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_processes::ChildKind;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Semaphore;

use ostler_processes::shared_work::SharedByKey;

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The largest output, in bytes.
const OUTPUT_LIMIT: u64 = 1 << 20;

/// How a program ended.
pub(crate) struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub said: String,
}

/// Why a program did not end.
pub(crate) enum NotRun {
    /// It is not installed.
    Missing,
    Other(String),
}

/// A call of git: its directory and its arguments.
type GitCall = (PathBuf, Vec<String>);

static CALLS: LazyLock<SharedByKey<GitCall, Result<Option<String>, Thrown>>> =
    LazyLock::new(SharedByKey::default);

/// Reads something of a repository; `None` where git answers "no" with exit code 1. Equal calls that wait at the same time
/// are one.
pub(crate) async fn git(directory: &Path, arguments: &[&str]) -> Result<Option<String>, Thrown> {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let (directory, call) = (directory.to_owned(), (directory.to_owned(), arguments.clone()));
    CALLS.run(call, move || async move { run_git(&directory, &arguments).await }).await
}

/// How many calls of git run at a time, whatever number of directories ask for one.
static RUNNING: Semaphore = Semaphore::const_new(8);

async fn run_git(directory: &Path, arguments: &[String]) -> Result<Option<String>, Thrown> {
    let _turn = RUNNING.acquire().await.map_err(Thrown::new)?;
    let mut command = Command::from(ChildKind::Git.command("git"));
    command
        .env("LC_ALL", "C")
        .args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C"])
        .arg(directory)
        .args(arguments);
    let ended = run(command, "git").await.map_err(|why| match why {
        NotRun::Missing => Thrown::new("the program git is not installed, or not in PATH"),
        NotRun::Other(why) => Thrown::new(why),
    })?;
    match ended.code {
        Some(0) => Ok(Some(ended.out)),
        Some(1) => Ok(None),
        // Outside a repository there is no answer.
        _ if ended.said.contains("not a git repository") || ended.said.contains("cannot change to") => {
            Ok(None)
        }
        _ => {
            let said = ended.said.strip_prefix("fatal: ").unwrap_or(&ended.said);
            Err(Thrown::new(format_args!("{}: git {}: {said}", directory.display(), arguments[0])))
        }
    }
}

/// Runs `gh`, which asks nothing.
pub(crate) async fn gh(arguments: &[&str]) -> Result<Ended, NotRun> {
    let mut command = Command::from(ChildKind::Helper.command("gh"));
    command
        .env("GH_PROMPT_DISABLED", "1")
        .env("GH_NO_UPDATE_NOTIFIER", "1")
        .env("NO_COLOR", "1")
        .args(arguments);
    run(command, "gh").await
}

async fn run(mut command: Command, name: &str) -> Result<Ended, NotRun> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let failed = |why: std::io::Error| match why.kind() {
        std::io::ErrorKind::NotFound => NotRun::Missing,
        _ => NotRun::Other(format!("{name}: {why}")),
    };
    let finish = async {
        let mut child = command.spawn().map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (out, said) = futures::join!(text(stdout), text(stderr));
        let status = child.wait().await.map_err(failed)?;
        Ok(Ended { code: status.code(), out: out.map_err(failed)?, said: said.map_err(failed)? })
    };
    match tokio::time::timeout(LIMIT, finish).await {
        Ok(ended) => ended,
        Err(_) => Err(NotRun::Other(format!("{name} did not finish within {} seconds", LIMIT.as_secs()))),
    }
}

/// Reads a pipe up to the limit; a program that writes more ends when the pipe closes.
async fn text(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut all = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_LIMIT).read_to_end(&mut all).await?;
    }
    Ok(String::from_utf8_lossy(&all).trim_end().to_owned())
}
