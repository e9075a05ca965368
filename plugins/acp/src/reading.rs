//! Reads the messages of an agent from its stdout.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::Stream;
use ostler_contract::Budget;
use ostler_contract::budget::{SMALL, VALUE};
use ostler_contract::protocol::message::count_values;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::{mpsc, watch};

use crate::agent_connection::{Gate, Incoming, Noise};
use crate::answers::Answers;
use crate::errors::plain;
use crate::limits;
use crate::masks::Masks;
use crate::parsed::{Name, Parsed};

/// The longest message, in bytes. A longer one ends the connection.
const LONGEST: usize = 16 << 20;
/// The maximum number of messages that an agent has not read. More end the connection.
const UNREAD_MESSAGES: usize = 20_000;
/// The maximum number of successive lines that are not messages. More end the connection.
const NOISE: usize = 10_000;
/// The retained length of a line that is not a message, for an error.
const NOISE_SHOWN: usize = 200;
/// The memory of the parsed values of long messages of all agents, in bytes; a larger message is parsed alone.
const PARSED: usize = 64 << 20;
/// The share of one agent, so that others do not wait for it.
const PARSED_OF_AN_AGENT: usize = PARSED / 4;

/// The budget of the values of long messages, which are charged before they are parsed.
static VALUES_OF_MESSAGES: LazyLock<Budget> = LazyLock::new(|| Budget::new(PARSED));

/// Returns the budget of the values of one agent's long messages.
pub fn values_of_an_agent() -> Budget {
    VALUES_OF_MESSAGES.part(PARSED_OF_AN_AGENT)
}

/// What the reader of an agent's messages needs.
#[derive(Clone)]
pub struct Unread {
    /// Receives the first line that is not a message.
    pub noise: Noise,
    /// The masks of that line.
    pub masks: Masks,
    /// Locked while nothing is read.
    pub gate: Gate,
    /// The answers that the agent has not read.
    pub answers: Answers,
    /// Receives what is left out.
    pub tell: mpsc::Sender<Incoming>,
    /// The budget of the values of its long messages.
    pub values: Budget,
    /// Its messages that are not taken yet.
    pub parsed: Parsed,
}

/// Reads the agent's messages, one per line. Lines that are not JSON objects are skipped; the first one is retained.
///
/// `reading` is dropped at their end.
pub fn incoming_lines(
    (stdout, reading): (ChildStdout, watch::Sender<()>),
    unread: Unread,
) -> impl Stream<Item = io::Result<String>> + Send {
    let ended = AtomicBool::new(false);
    futures::stream::unfold((BufReader::new(stdout), ended, reading), move |(mut stdout, ended, reading)| {
        let unread = unread.clone();
        async move {
            if ended.load(Ordering::Relaxed) {
                return None;
            }
            let line = unread.next(&mut stdout).await.transpose()?;
            ended.store(line.is_err(), Ordering::Relaxed);
            Some((line, (stdout, ended, reading)))
        }
    })
}

impl Unread {
    /// Returns the next message; `None` at the end.
    async fn next(&self, stdout: &mut BufReader<ChildStdout>) -> io::Result<Option<String>> {
        drop(self.gate.lock().await);
        if self.answers.unwritten() > UNREAD_MESSAGES {
            return Err(io::Error::other(format!("it left more than {UNREAD_MESSAGES} messages unread")));
        }
        let mut wasted = 0;
        loop {
            let Some(line) = next_line(stdout).await? else { return Ok(None) };
            match name_of(&line) {
                Some(name) => {
                    if self.charge(&line, name).await? {
                        return Ok(Some(line));
                    }
                }
                None if line.trim().is_empty() => {}
                None => {
                    let mut first = self.noise.first();
                    first.get_or_insert_with(|| {
                        // It can have ended in the middle of a line.
                        self.masks.hide_in_beginning(&plain(line.trim())).chars().take(NOISE_SHOWN).collect()
                    });
                }
            }
            wasted += 1;
            if wasted > NOISE {
                return Err(io::Error::other(format!("more than {NOISE} lines in a row were no messages")));
            }
        }
    }

    /// Charges the values of a message before it is parsed. Returns `false` for a notification with too many.
    async fn charge(&self, line: &str, name: Name) -> io::Result<bool> {
        if line.len() <= SMALL {
            self.parsed.read(name, None);
            return Ok(true);
        }
        let values = count_values(line.as_bytes());
        if values > limits::VALUES {
            let most = limits::VALUES;
            return match name {
                Name::Notification(_) => {
                    let left_out = format!("a message of more than {most} values is left out");
                    let _ = self.tell.try_send(Incoming::LeftOut(left_out));
                    Ok(false)
                }
                Name::RequestOrAnswer(_) => Err(io::Error::other(format!(
                    "it sent a request or an answer of more than {most} values"
                ))),
            };
        }
        let charge = self.values.take(line.len() + values * VALUE).await;
        self.parsed.read(name, charge);
        Ok(true)
    }
}

/// Returns the name of a message; `None` if the line is none.
fn name_of(line: &str) -> Option<Name> {
    #[derive(serde::Deserialize)]
    struct Members<'a> {
        #[serde(borrow)]
        method: Option<&'a RawValue>,
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let members = serde_json::from_str::<Members<'_>>(line).ok()?;
    Name::of(members.id, members.method)
}

async fn next_line(stdout: &mut BufReader<ChildStdout>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let limit = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
    if stdout.take(limit).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.len() > LONGEST {
        return Err(io::Error::other(format!("it sent a message of more than {} MiB", LONGEST >> 20)));
    }
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    let line = String::from_utf8(line);
    Ok(Some(line.unwrap_or_else(|invalid| String::from_utf8_lossy(invalid.as_bytes()).into_owned())))
}
