//! A running terminal.

use std::future::poll_fn;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{Terminal, TerminalEvents, TerminalRequest};
use ostler_contract::{Call, Thrown};
use ostler_processes::{Process, Program, Signal};
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::text::Decoder;
use crate::{Runtime, SCOPES, program};

/// The maximum size of reported output, in bytes.
const BATCH: usize = 64 << 10;
/// The size below which output is reported immediately, if none was just before, in bytes.
const SMALL: usize = 1 << 10;
/// How long output is collected.
const GATHER: Duration = Duration::from_millis(2);
/// How long the terminal must be silent after the end of its process before its output counts as complete.
const DRAINED: Duration = Duration::from_millis(200);
/// How long processes can take to end before they are killed.
const GRACE: Duration = Duration::from_millis(500);
/// The exit code of a shell that cannot start.
const NOT_STARTED: i64 = 127;

/// Opens a terminal. If it cannot start, its output contains the reason and it has ended.
pub fn open(runtime: &Runtime, request: &TerminalRequest, events: TerminalEvents) -> Terminal {
    let (program, title) = program::program(runtime, request);
    let size = Size::new(request.rows, request.cols);
    match start(runtime, &program, size) {
        Ok((process, read, write)) => {
            let process = Arc::new(process);
            let (data, exited) = (events.data.clone(), events.exited.clone());
            let ending = process.clone();
            tokio::spawn(async move {
                let status = pump(read, &ending, &events).await;
                // Its remaining processes no longer have a terminal.
                ending.kill().await;
                if let Some(signal) = status.signal() {
                    let _ = data.call((format!("{}\r\n", name_of(signal)),));
                }
                let _ = exited.call((status.code().map(i64::from),));
            });
            terminal(title, process, write)
        }
        Err(why) => {
            let _ = events.data.call((format!("{why}\r\n"),));
            let _ = events.exited.call((Some(NOT_STARTED),));
            Terminal {
                title: Some(title),
                is_pty: Some(true),
                input: Call::now(|(_data,)| Ok(())),
                dispose: Call::now(|()| Ok(())),
                ..Terminal::default()
            }
        }
    }
}

fn start(
    runtime: &Runtime,
    program: &Program,
    size: Size,
) -> Result<(Process, OwnedReadPty, OwnedWritePty), String> {
    let failed = |why: pty_process::Error| format!("no pseudoterminal could be opened: {why}");
    let (pty, pts) = pty_process::open().map_err(failed)?;
    pty.resize(size).map_err(failed)?;
    let process = Process::start(&SCOPES, program, runtime.scope, |command| {
        pty_process::Command::from(command).spawn(pts).map_err(|why| match why {
            pty_process::Error::Io(why) => why,
            why => std::io::Error::other(why),
        })
    });
    let process = process.map_err(|why| why.sentence(program))?;
    let (read, write) = pty.into_split();
    Ok((process, read, write))
}

/// The input of a terminal, in order, without a lock while the program does not read.
struct Typed {
    turn: Mutex<()>,
    write: parking_lot::Mutex<OwnedWritePty>,
}

impl Typed {
    async fn write(&self, mut bytes: &[u8]) -> std::io::Result<()> {
        let _turn = self.turn.lock().await;
        while !bytes.is_empty() {
            let written = poll_fn(|context| Pin::new(&mut *self.write.lock()).poll_write(context, bytes));
            match written.await? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }
}

fn terminal(title: String, process: Arc<Process>, write: OwnedWritePty) -> Terminal {
    let typed = Arc::new(Typed { turn: Mutex::new(()), write: parking_lot::Mutex::new(write) });
    let resized = typed.clone();
    let killed = process.clone();
    Terminal {
        title: Some(title),
        is_pty: Some(true),
        input: Call::new(move |(data,): (String,)| {
            let typed = typed.clone();
            async move { typed.write(data.as_bytes()).await.map_err(|why| Thrown::new(format_args!("{why}"))) }
        }),
        resize: Some(Call::now(move |(cols, rows): (u16, u16)| {
            let resized = resized.write.lock().resize(Size::new(rows, cols));
            resized.map_err(|why| Thrown::new(format_args!("{why}")))
        })),
        kill: Some(Call::new(move |(signal,): (Option<String>,)| {
            let process = killed.clone();
            async move {
                match signal {
                    Some(name) => process.signal(signal_of(&name)?),
                    None => end(&process, Signal::TERM).await,
                }
                Ok(())
            }
        })),
        dispose: Call::new(move |()| {
            let process = process.clone();
            async move {
                end(&process, Signal::HUP).await;
                Ok(())
            }
        }),
        ..Terminal::default()
    }
}

/// Ends its processes with a signal, then kills the remaining ones.
async fn end(process: &Process, signal: Signal) {
    process.signal(signal);
    // A stopped process receives the signal when it continues.
    process.end(Signal::CONT, GRACE).await;
}

/// Reports output until its process has ended and all output was read; returns how it ended.
async fn pump(mut read: OwnedReadPty, process: &Process, events: &TerminalEvents) -> ExitStatus {
    let report = |text: String| drop(events.data.call((text,)));
    let mut decoder = Decoder::default();
    let mut quiet_since = None;
    let mut batch = Vec::with_capacity(BATCH);
    let ended = process.ended();
    tokio::pin!(ended);
    let mut status = None;
    loop {
        let open = match status {
            None => tokio::select! {
                biased;
                open = gather(&mut read, &mut batch, quiet_since) => open,
                how = &mut ended => {
                    status = Some(how);
                    continue;
                }
            },
            // The last output of a process is available when it has ended; another process keeps the terminal open.
            Some(_) => tokio::time::timeout(DRAINED, gather(&mut read, &mut batch, quiet_since))
                .await
                .unwrap_or(false),
        };
        let text = decoder.read(&batch);
        let much = batch.len() >= SMALL;
        batch.clear();
        if !text.is_empty() {
            report(text);
            quiet_since = Some(Instant::now());
        }
        if much {
            // Subscribers may need a moment.
            let _ = events.ready.call(()).await;
        }
        if !open {
            break;
        }
    }
    let rest = decoder.rest();
    if !rest.is_empty() {
        report(rest);
    }
    match status {
        Some(status) => status,
        None => ended.await,
    }
}

/// Reads the available output, and more for a moment if much arrives or some was just reported. Returns whether there
/// may be more. Output is also in `batch` if this is dropped.
async fn gather(read: &mut OwnedReadPty, batch: &mut Vec<u8>, quiet_since: Option<Instant>) -> bool {
    let mut until: Option<Instant> = None;
    let quiet = || quiet_since.is_none_or(|since| since.elapsed() >= GATHER);
    loop {
        let some = read.read_buf(batch);
        let count = match until {
            None => some.await,
            Some(until) => match tokio::time::timeout_at(until, some).await {
                Ok(count) => count,
                Err(_) => return true,
            },
        };
        match count {
            // Reading a terminal that no process has open fails instead of returning the end.
            Ok(0) | Err(_) => return false,
            Ok(count) if until.is_none() && count < SMALL && quiet() => return true,
            Ok(_) if batch.len() >= BATCH => return true,
            Ok(_) => drop(until.get_or_insert_with(|| Instant::now() + GATHER)),
        }
    }
}

/// The signals that a client can name, which are also reported for processes that they ended.
const SIGNALS: &[(&str, Signal)] = &[
    ("SIGHUP", Signal::HUP),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGILL", Signal::ILL),
    ("SIGTRAP", Signal::TRAP),
    ("SIGABRT", Signal::ABORT),
    ("SIGBUS", Signal::BUS),
    ("SIGFPE", Signal::FPE),
    ("SIGKILL", Signal::KILL),
    ("SIGUSR1", Signal::USR1),
    ("SIGSEGV", Signal::SEGV),
    ("SIGUSR2", Signal::USR2),
    ("SIGPIPE", Signal::PIPE),
    ("SIGALRM", Signal::ALARM),
    ("SIGTERM", Signal::TERM),
    ("SIGCONT", Signal::CONT),
    ("SIGSTOP", Signal::STOP),
    ("SIGXCPU", Signal::XCPU),
    ("SIGXFSZ", Signal::XFSZ),
];

fn signal_of(name: &str) -> Result<Signal, Thrown> {
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    found.map(|(_, signal)| *signal).ok_or_else(|| {
        let known: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
        Thrown::new(format_args!("{name} is not a signal; the signals are {}", known.join(", ")))
    })
}

fn name_of(signal: i32) -> String {
    let found = SIGNALS.iter().find(|(_, known)| known.as_raw() == signal);
    found.map_or_else(|| format!("signal {signal}"), |(name, _)| (*name).to_owned())
}
