//! Reads the messages of an agent from its stdout.

use std::collections::VecDeque;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::Stream;
use ostler_contract::Budget;
use ostler_contract::budget::{SMALL, VALUE};
use ostler_contract::protocol::message::count_values;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::{mpsc, watch};

use crate::agent_connection::{Gate, Incoming, Noise};
use crate::answers::Answers;
use crate::limits;
use crate::lines::messages_in;
use crate::masks::Masks;
use crate::parsed::{Name, Parsed};

/// The longest message, in bytes. A longer one ends the connection.
const LONGEST: usize = 16 << 20;
/// The maximum number of messages that an agent has not read. More end the connection.
const UNREAD_MESSAGES: usize = 20_000;
/// The maximum number of successive lines that are not messages. More end the connection.
const NOISE: usize = 10_000;
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

/// Reads the agent's messages. What is not a message is skipped; the first of it is retained.
///
/// `reading` is dropped at their end.
pub fn incoming_lines(
    (stdout, reading): (ChildStdout, watch::Sender<()>),
    unread: Unread,
) -> impl Stream<Item = io::Result<String>> + Send {
    let ended = AtomicBool::new(false);
    let output = Output { stdout: BufReader::new(stdout), found: VecDeque::new() };
    futures::stream::unfold((output, ended, reading), move |(mut output, ended, reading)| {
        let unread = unread.clone();
        async move {
            if ended.load(Ordering::Relaxed) {
                return None;
            }
            let line = unread.next(&mut output).await.transpose()?;
            ended.store(line.is_err(), Ordering::Relaxed);
            Some((line, (output, ended, reading)))
        }
    })
}

/// The output of an agent, with the messages of its last line that are not read yet.
struct Output {
    stdout: BufReader<ChildStdout>,
    found: VecDeque<(String, Name)>,
}

impl Unread {
    /// Returns the next message; `None` at the end.
    async fn next(&self, output: &mut Output) -> io::Result<Option<String>> {
        drop(self.gate.lock().await);
        if self.answers.unwritten() > UNREAD_MESSAGES {
            return Err(io::Error::other(format!("it left more than {UNREAD_MESSAGES} messages unread")));
        }
        let mut wasted = 0;
        loop {
            while let Some((message, name)) = output.found.pop_front() {
                if self.charge(&message, name).await? {
                    return Ok(Some(message));
                }
                wasted += 1;
            }
            let Some(line) = next_line(&mut output.stdout).await? else { return Ok(None) };
            let found = messages_in(line, &self.masks);
            if let Some(noise) = found.noise {
                self.note(noise);
            }
            if found.is_too_long {
                return Err(io::Error::other("it sent a line of more messages than are read"));
            }
            output.found = found.messages.into();
            if output.found.is_empty() {
                wasted += 1;
            }
            if wasted > NOISE {
                return Err(io::Error::other(format!("more than {NOISE} lines in a row were not messages")));
            }
        }
    }

    /// Retains the first text that is not a message, and logs it.
    fn note(&self, noise: String) {
        let mut first = self.noise.first();
        if first.is_none() {
            let line = format!("its output has text that is not a message, which is left out: {noise}");
            let _ = self.tell.try_send(Incoming::LeftOut(line));
            *first = Some(noise);
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
