//! A daemon under mixed load for a while: every request must be answered, and the daemon's private memory must not
//! grow.
//!
//! Each round calls a webhook endpoint over several connections, connects new clients, and takes a session from
//! `createSession` over two turns with several subscribers to `disposeSession`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::failure::{During, Failure, Result};
use super::net::crowd::{Crowd, TurnActions};
use super::net::frames;
use super::net::http_load::{Until, calls_per_second};
use super::net::ws::Ws;
use super::ostler::{ENDPOINT, Folder, Ostler, SECRET, call};

/// Subscribers of each session.
const SUBSCRIBERS: usize = 8;
/// Words of each turn.
const WORDS: usize = 200;
/// Webhook calls of each round, and their connections.
const CALLS: (u64, usize) = (200, 8);
/// The divisor of the total time after which memory is expected to be stable.
const SETTLES: u32 = 2;
/// The rounds after which the replay log is full: memory grows until then, regardless of the computer's speed. At least
/// as many follow.
const FILLS: usize = 150;
/// The allowed growth of memory after that, in kB: measuring noise and one arena of the allocator.
const GROWTH: f64 = 4096.0;

/// The options of the command.
struct Options {
    lasts: Duration,
    profile: String,
    /// The program of the daemon, which is not built then.
    program: Option<PathBuf>,
}

impl Options {
    fn read(arguments: &[String]) -> std::result::Result<Self, String> {
        let mut options = Self { lasts: Duration::from_secs(600), profile: "dist".to_owned(), program: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match (argument.as_str(), arguments.next()) {
                ("--seconds", Some(seconds)) => {
                    let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0);
                    options.lasts = Duration::from_secs(seconds.ok_or("--seconds takes a number from 1 on")?);
                }
                ("--profile", Some(profile)) => options.profile.clone_from(profile),
                ("--program", Some(program)) => options.program = Some(program.into()),
                (other, _) => {
                    return Err(format!(
                        "unknown argument {other}; use --seconds <n>, --profile <name> and --program <file>"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Runs the daemon under load; returns the number of operations and the daemon's memory.
///
/// # Errors
/// A request without a response, or memory that grew.
pub fn run(root: &Path, arguments: &[String]) -> std::result::Result<String, String> {
    let options = Options::read(arguments)?;
    soak(root, &options).map_err(|failure| failure.to_string())
}

fn soak(root: &Path, options: &Options) -> Result<String> {
    let ostler = match &options.program {
        Some(program) => Ostler::at(&std::path::absolute(program).during(program.display())?)?,
        None => Ostler::build_with(root, &options.profile)?,
    };
    let folder = Folder::usual(root)?;
    let (process, address) = ostler.start(&folder)?;
    let (begun, mut rounds) = (Instant::now(), 0_usize);
    let mut settled: Option<f64> = None;
    while begun.elapsed() < options.lasts || rounds < 2 * FILLS {
        round(address, rounds)?;
        rounds += 1;
        if settled.is_none() && rounds >= FILLS && begun.elapsed() > options.lasts / SETTLES {
            settled = Some(process.memory_when_idle()?.written);
        }
    }
    let last = process.memory_when_idle()?.written;
    let first = settled.ok_or_else(|| Failure::new("no round was over before memory was to settle"))?;
    let (first_mb, last_mb) = (first * 1.024 / 1000.0, last * 1.024 / 1000.0);
    let what = format!("{rounds} rounds, {first_mb:.1} MB dirty once settled, {last_mb:.1} MB at the end");
    match last - first > GROWTH {
        true => Err(Failure::new(format!("memory grew: {what}"))),
        false => Ok(what),
    }
}

fn round(address: SocketAddr, at: usize) -> Result<()> {
    let request = call(address, ENDPOINT, SECRET, "{}");
    calls_per_second(address, CALLS.1, request.as_bytes(), 202, Until::Answers(CALLS.0))?;

    let session = format!("echo:/{at:032x}");
    let mut first = Ws::introduced(address, "soak-0")?;
    first.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
    let subscribed = first.ask("subscribe", json!({ "channel": session }))?;
    let chat = subscribed
        .pointer("/snapshot/state/defaultChat")
        .and_then(|chat| chat.as_str())
        .ok_or_else(|| Failure::new(format!("the session has no chat: {subscribed}")))?
        .to_owned();
    let mut connections = vec![first];
    for at in 1..SUBSCRIBERS {
        connections.push(Ws::introduced(address, &format!("soak-{at}"))?);
    }
    for connection in &mut connections {
        connection.ask("subscribe", json!({ "channel": chat }))?;
    }
    let mut crowd = Crowd::new(connections, &TurnActions::of("chat"))?;
    for turn in 0..2 {
        let begin = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": {
            "channel": chat, "clientSeq": turn + 1,
            "action": { "type": "chat/turnStarted", "turnId": format!("turn-{turn}"),
                "message": { "text": format!("/words {WORDS}"), "origin": { "kind": "user" } } } } });
        crowd.run_turn(&frames::text(&begin.to_string()), WORDS)?;
    }
    drop(crowd);
    Ws::introduced(address, "soak-end")?.ask("disposeSession", json!({ "channel": session }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> std::result::Result<Options, String> {
        Options::read(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_time_and_the_program_are_read() {
        let some = read(&["--seconds", "15", "--profile", "release"]).unwrap();
        assert_eq!((some.lasts, some.profile.as_str()), (Duration::from_secs(15), "release"));
        assert_eq!(
            read(&["--program", "target/debug/ostler"]).unwrap().program,
            Some("target/debug/ostler".into())
        );
        let usual = read(&[]).unwrap();
        assert_eq!((usual.profile.as_str(), usual.program), ("dist", None));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--minutes", "1"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
