//! The program that enters a machine: it runs a process there and connects its own streams to it. The host starts it
//! for each process of a backend, so that the backend uses a machine like this host.
//!
//! A runtime keeps processes without a connection. So each has a marker in its environment, and when this program
//! receives a signal to end, or its parent has ended, every process with the marker ends too.

use std::collections::BTreeMap;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::runtime::{QUICK, connect};

/// The variable with the process to run. It is in the environment because arguments are visible to all users.
pub const VARIABLE: &str = "OSTLER_ENTRY";
/// The variable that marks a process and its descendants.
const MARKER: &str = "OSTLER_ENTERED";
/// How long to wait until processes have ended: less than the host waits for this program.
const GRACE: Duration = Duration::from_millis(1300);
/// The same if the host has ended and does not wait for this program.
const ORPHANED: Duration = Duration::from_secs(30);
/// How often to check that the parent of this program exists.
const POLL: Duration = Duration::from_millis(500);
/// The size of a read.
const PIECE: usize = 64 << 10;
/// The exit code if the process could not be started.
const NOT_STARTED: u8 = 126;

/// Ends the marked processes: those with a variable that matches `$1` but not `$2`. It completes even if its caller
/// does not wait.
///
/// A shell can start its next command if the one it waits for was killed before it, so this repeats until it finds
/// none.
const END: &str = r#"end() { found=; for p in /proc/[0-9]*; do
if { tr '\000' '\n' <"$p/environ" | grep -x "$2" | grep -qvx "$3"; } 2>/dev/null; then found=1; kill -"$1" "${p#/proc/}" 2>/dev/null; fi
done; [ "$found" ]; }
end TERM "$1" "$2" || exit 0; sleep 0.5 || sleep 1; for again in 1 2 3 4 5 6 7 8; do end KILL "$1" "$2" || exit 0; done"#;

/// The processes to end.
#[derive(Debug, Clone, Copy)]
pub enum Entered<'a> {
    /// Those of one `ostler enter`.
    ByOne { run: &'a str, id: &'a str },
    /// Those of a run of the host.
    InRun(&'a str),
    /// Those of all other runs.
    BeforeRun(&'a str),
}

impl Entered<'_> {
    /// Returns the command that ends them.
    pub fn end(self) -> [String; 6] {
        let any = ".*";
        let (marked, but) = match self {
            Self::ByOne { run, id } => (marker(run, id), String::new()),
            Self::InRun(run) => (marker(run, any), String::new()),
            Self::BeforeRun(run) => (marker(any, any), marker(run, any)),
        };
        let [sh, c, zero] = ["/bin/sh", "-c", "end"].map(str::to_owned);
        [sh, c, END.to_owned(), zero, marked, but]
    }
}

fn marker(run: &str, id: &str) -> String {
    format!("{MARKER}={run}/{id}")
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerProcess {
    /// Address of the runtime.
    pub address: String,
    pub container: String,
    /// The run of the host.
    pub run: String,
    /// Working directory.
    pub cwd: Option<String>,
    /// User. Default: the user of the container.
    pub user: Option<String>,
    /// Environment variables in addition to the container's.
    pub env: BTreeMap<String, String>,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// Runs the process that the environment describes, and returns its exit code.
pub fn main() -> u8 {
    let entry = std::env::var(VARIABLE)
        .map_err(|_| format!("{VARIABLE} is not set: this program is started by the host"));
    let entry = entry
        .and_then(|text| serde_json::from_str::<ContainerProcess>(&text).map_err(|error| error.to_string()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match (entry, runtime) {
        (Ok(entry), Ok(runtime)) => {
            let outcome = runtime.block_on(enter(entry));
            // A read of stdin cannot be ended.
            runtime.shutdown_background();
            outcome
        }
        (Err(why), _) => Err(why),
        (_, Err(error)) => Err(error.to_string()),
    };
    outcome.unwrap_or_else(|why| {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "ostler: {why}");
        NOT_STARTED
    })
}

async fn enter(entry: ContainerProcess) -> Result<u8, String> {
    // If it ended with its parent, the process would remain. It detects the end of its parent below.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(None).map_err(|error| error.to_string())?;
    let parent = rustix::process::getppid();
    let mut ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let docker = connect(&entry.address).map_err(|why| why.message)?;
    let docker = limited(docker.negotiate_version()).await?;
    let started = uuid::Uuid::new_v4().simple().to_string();
    let entered = Entered::ByOne { run: &entry.run, id: &started };
    let mut env: Vec<String> = entry.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    env.push(marker(&entry.run, &started));
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        env: Some(env),
        cmd: Some(entry.command.clone()),
        user: entry.user.clone(),
        working_dir: entry.cwd.clone(),
        ..CreateExecOptions::default()
    };
    let id = limited(docker.create_exec(&entry.container, options)).await?.id;
    let start = StartExecOptions { output_capacity: Some(PIECE), ..StartExecOptions::default() };
    let StartExecResults::Attached { mut output, mut input } =
        limited(docker.start_exec(&id, Some(start))).await?
    else {
        return Err("the runtime did not connect to the process".to_owned());
    };
    let sent = tokio::spawn(async move {
        let mut stdin = tokio::io::stdin();
        let mut piece = vec![0; PIECE];
        loop {
            match stdin.read(&mut piece).await {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    if input.write_all(&piece[..read]).await.is_err() || input.flush().await.is_err() {
                        break;
                    }
                }
            }
        }
        let _ = input.shutdown().await;
        // The connection stays open for the output.
        input
    });
    let received = async {
        let [terminate, interrupt, hangup] = &mut ends;
        tokio::select! {
            () = arrives(terminate) => 15,
            () = arrives(interrupt) => 2,
            () = arrives(hangup) => 1,
        }
    };
    let orphaned = async {
        while rustix::process::getppid() == parent {
            sleep(POLL).await;
        }
    };
    let shown = show(&mut output);
    tokio::pin!(shown);
    let signal = tokio::select! {
        shown = &mut shown => match shown {
            Ok(()) => None,
            Err(_) => {
                // Its output is closed.
                end(&docker, &entry.container, entered, GRACE).await;
                return Ok(128 + 13);
            }
        },
        signal = received => Some((signal, GRACE)),
        () = orphaned => Some((1, ORPHANED)),
    };
    if let Some((signal, limit)) = signal {
        end(&docker, &entry.container, entered, limit).await;
        return Ok(128 + signal);
    }
    drop(sent);
    let state = limited(docker.inspect_exec(&id)).await?;
    // A runtime can close the connection of a running process, for example if its stdin was closed because the host has
    // ended.
    if state.running == Some(true) {
        end(&docker, &entry.container, entered, ORPHANED).await;
        return Err("the connection to the process was lost".to_owned());
    }
    match state.exit_code {
        Some(code) => Ok(u8::try_from(code).unwrap_or(1)),
        None => Err("the connection to the process was lost".to_owned()),
    }
}

/// Waits for a signal; forever if that is not possible.
async fn arrives(signal: &mut std::io::Result<Signal>) {
    match signal {
        Ok(signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// Passes the output on until it ends.
async fn show(
    output: &mut (impl futures::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Unpin),
) -> std::io::Result<()> {
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(piece) = output.next().await {
        match piece.map_err(std::io::Error::other)? {
            LogOutput::StdErr { message } => {
                stderr.write_all(&message).await?;
                stderr.flush().await?;
            }
            LogOutput::StdOut { message } | LogOutput::Console { message } | LogOutput::StdIn { message } => {
                stdout.write_all(&message).await?;
                stdout.flush().await?;
            }
        }
    }
    Ok(())
}

async fn end(docker: &Docker, container: &str, entered: Entered<'_>, limit: Duration) {
    let options = CreateExecOptions {
        cmd: Some(entered.end().to_vec()),
        // The processes may be those of another user than the container's.
        user: Some("0".to_owned()),
        attach_stdout: Some(true),
        ..CreateExecOptions::default()
    };
    let ended = async {
        let id = docker.create_exec(container, options).await?.id;
        if let StartExecResults::Attached { mut output, .. } = docker.start_exec(&id, None).await? {
            while output.next().await.is_some() {}
        }
        Ok::<_, bollard::errors::Error>(())
    };
    let _ = timeout(limit, ended).await;
}

async fn limited<T>(call: impl Future<Output = Result<T, bollard::errors::Error>>) -> Result<T, String> {
    match timeout(QUICK, call).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the container runtime did not answer within {} seconds", QUICK.as_secs())),
    }
}
