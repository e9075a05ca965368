//! The supervisor of a program: a process between the daemon and the program, which is the parent of every descendant whose
//! own parent has ended. When the program or the daemon ends, it kills all of them, whatever they did to their group,
//! session and environment. It is not in the cgroup of the program, if that has one.
//!
//! It runs in two steps. The first starts the program with its own stdin, stdout and stderr. The second is the same
//! process, executed again without these, so that only the program has them open. Both block all signals. The second
//! step inherits this, and the process of the program undoes it before it becomes the program. The program would
//! inherit ignored signals.
//!
//! The last step also starts unsupervised programs that have to be marked before they run.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, SigSet};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getppid, getrlimit,
    kill_process, pidfd_open, set_child_subreaper, setrlimit, wait,
};

use super::child::ChildKind;
use super::table;

/// The first argument of a supervisor.
pub const SUPERVISE: &str = "supervise";
/// The first argument of its second step.
const WATCH: &str = "--watch";
/// The first argument of the step that becomes the program.
const BECOME: &str = "--become";
/// The mark of a program without one.
const NO_MARK: &str = "-";
/// The message for a user who runs it manually.
const USAGE: &str = "ostler supervise is run by the daemon: ostler supervise <daemon's process id> <VARIABLE=value> <mark> \
                     <program> [argument …]";

/// The exit codes of a shell for a program that cannot be run, and for a missing one.
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// How long the remaining processes of the program can take to end, if the daemon waits for it.
const LIMIT: Duration = Duration::from_secs(2);
/// How often they are killed.
const POLL: Duration = Duration::from_millis(5);
/// How often the supervisor checks that the daemon runs, if the kernel does not notify it.
const LOOK: Duration = Duration::from_millis(500);
/// The stack of the thread that waits for the daemon's end.
const STACK: usize = 64 << 10;

/// Returns the arguments of the first step before the program's: the daemon, and the variable and mark of the program.
pub(crate) fn arguments(marker: (&str, &str), mark: Option<u64>) -> Vec<String> {
    vec![getpid().as_raw_nonzero().to_string(), format!("{}={}", marker.0, marker.1), written(mark)]
}

/// Returns the arguments for a marked, unsupervised program, before the program's.
pub(crate) fn marking(mark: Option<u64>) -> Vec<String> {
    vec![BECOME.to_owned(), written(mark)]
}

fn written(mark: Option<u64>) -> String {
    mark.map_or_else(|| NO_MARK.to_owned(), |mark| mark.to_string())
}

/// Runs a supervisor with the arguments after [`SUPERVISE`] until its program ends. Returns the exit code; if a signal
/// ended the program, the same signal ends this process.
pub fn main(arguments: &[String]) -> u8 {
    match arguments {
        [step, daemon, program] if step == WATCH => match (pid(daemon), pid(program)) {
            (Some(daemon), Some(program)) => watch(daemon, program),
            _ => NOT_RUN,
        },
        [step, mark, program, arguments @ ..] if step == BECOME => become_program(mark, program, arguments),
        [daemon, marker, mark, program, arguments @ ..] => begin(daemon, marker, mark, program, arguments),
        _ => {
            let _ = writeln!(std::io::stderr(), "{USAGE}");
            NOT_RUN
        }
    }
}

/// Becomes the program, marked, and otherwise as if the daemon had started it.
fn become_program(mark: &str, program: &str, arguments: &[String]) -> u8 {
    set_mark(mark);
    let _ = SigSet::empty().thread_set_mask();
    fail(program, &ChildKind::Host.command(program).args(arguments).exec())
}

/// Lowers the limit that marks a process and what it starts.
fn set_mark(mark: &str) {
    if let Ok(mark) = mark.parse() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Msgqueue);
        let _ = setrlimit(Resource::Msgqueue, Rlimit { current: Some(mark), maximum });
    }
}

fn fail(program: &str, why: &std::io::Error) -> u8 {
    let _ = writeln!(std::io::stderr(), "cannot run {program}: {why}");
    if why.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN }
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[allow(clippy::zombie_processes, reason = "the second step waits for it")]
fn begin(daemon: &str, marker: &str, mark: &str, program: &str, arguments: &[String]) -> u8 {
    let _ = SigSet::all().thread_block();
    if let Err(why) = set_child_subreaper(Some(getpid())) {
        return fail(program, &why.into());
    }
    set_mark(mark);
    let (name, value) = marker.split_once('=').unwrap_or((marker, ""));
    let mut step = ChildKind::Host.command("/proc/self/exe");
    step.arg0("ostler").args([SUPERVISE, BECOME, NO_MARK, program]).args(arguments).env(name, value);
    // Signals of the program to its group must not reach the supervisor.
    let child = match step.process_group(0).spawn() {
        Ok(child) => child.id(),
        Err(why) => return fail(program, &why),
    };
    let mut second = ChildKind::Host.command("/proc/self/exe");
    second.arg0("ostler").args([SUPERVISE, WATCH, daemon, &child.to_string()]);
    second.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = second.exec();
    if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        let _ = kill_process(child, Signal::KILL);
    }
    fail(program, &why)
}

fn watch(daemon: Pid, program: Pid) -> u8 {
    let _ = SigSet::all().thread_block();
    let ended = thread::Builder::new().stack_size(STACK).spawn(move || {
        wait_for_end(daemon);
        loop {
            kill_descendants();
            thread::sleep(POLL);
        }
    });
    if ended.is_err() {
        // Without it, the end of the daemon would not be noticed.
        kill_descendants();
    }
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == program => break Some(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break None,
        }
    };
    end_all(daemon);
    status.map_or(NOT_RUN, repeat)
}

/// Waits until the daemon, the parent of this process, has ended.
fn wait_for_end(daemon: Pid) {
    let file = pidfd_open(daemon, PidfdFlags::empty());
    while getppid() == Some(daemon) {
        match &file {
            Ok(file) => {
                let _ = poll(&mut [PollFd::new(file, PollFlags::IN)], None);
            }
            Err(_) => thread::sleep(LOOK),
        }
    }
}

fn kill_descendants() {
    for pid in table::descendants(getpid()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills all descendants of this process until it has no child: every descendant has an ancestor among the children.
fn end_all(daemon: Pid) {
    let begun = Instant::now();
    loop {
        kill_descendants();
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if begun.elapsed() >= LIMIT && getppid() == Some(daemon) {
            // The daemon notices the program's end and kills the rest itself.
            return;
        }
        thread::sleep(POLL);
    }
}

/// Ends as the program has ended.
fn repeat(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal();
    if let Some(signal) = signal {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        end_by(signal);
    }
    let code = status.exit_status().or(signal.map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUN)
}

/// Ends by a signal, if possible.
fn end_by(number: i32) {
    let named = signal::Signal::try_from(number).ok();
    let _ = match named {
        Some(signal) => SigSet::from(signal).thread_unblock(),
        // Real-time signals have no name.
        None => {
            let mut others = SigSet::all();
            signal::Signal::iterator().for_each(|signal| others.remove(signal));
            others.thread_unblock()
        }
    };
    match Signal::from_named_raw(number) {
        // Rust's runtime handles or ignores these; a shell does not.
        Some(Signal::SEGV | Signal::BUS | Signal::PIPE) | None => {
            let kill = format!("kill -{number} $$; exit {}", 128 + number);
            let _ = ChildKind::Host.command("/bin/sh").args(["-c", &kill]).exec();
        }
        Some(signal) => drop(kill_process(getpid(), signal)),
    }
}
