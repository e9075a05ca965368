//! Agents of the Agent Client Protocol behind the daemon, compared with direct access to the same agent: the latency
//! that the daemon adds to the first words, the memory of a session, a tool call through the session's endpoint
//! compared with one in process, and 50 agents that stream to five clients each.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Pair, Target};
use super::super::net::crowd::{Crowd, TurnActions};
use super::super::net::frames;
use super::super::net::ws::Ws;
use super::super::ostler::Folder;
use super::super::process::Process;
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::stats::percentile;

/// Prompts for the warm-up, and timed prompts.
const PROMPTS: (usize, usize) = (5, 40);
/// Tool calls of one turn.
const CALLS: usize = 500;
/// Sessions, for the memory and the streams.
const SESSIONS: usize = 50;
/// Clients of each session.
const CLIENTS: usize = 5;
/// Words of each stream.
const WORDS: usize = 400;

const FIRST: &[Column] = &[("prompt to first words of an ACP agent: p50", "ms", None)];
const ADDED: Column = ("the same, what ostler adds", "ms", Some(Target::Under(2.0)));
const MEMORY: &[Column] =
    &[("memory of ostler per session of an ACP agent", "kB", Some(Target::Under(200.0)))];
const TOOL: &[Column] =
    &[("tool call through the session's endpoint, beside one in process: p50", "µs", None)];
const STREAM: &[Column] = &[("50 agents to 5 clients each", "k actions/s", None)];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let folder = folder(context)?;
    let beside = Bounds { floor: true, ..context.bounds(5, Duration::from_secs(60)) };
    let alone = Bounds { floor: false, ..beside };
    let mut figures = alternate(beside, FIRST, |side| {
        let took = match side {
            Side::Ostler => first_words(&context.ostler.start(&folder)?),
            Side::Floor => directly(),
        }?;
        Ok(vec![percentile(&took, 0.5).ok_or_else(|| Failure::new("nothing was timed"))?])
    })?;
    let added = figures[0].rounds.iter().map(|pair| {
        let added = pair.ostler - pair.floor.unwrap_or_default();
        Pair { ostler: added, floor: None }
    });
    let (label, unit, target) = ADDED;
    let rounds = added.collect();
    figures.push(Figure { label, unit, target, rounds });
    figures
        .extend(alternate(alone, MEMORY, |_| memory(&context.ostler.start(&folder)?).map(|one| vec![one]))?);
    figures.extend(alternate(beside, TOOL, |side| {
        let provider = if side == Side::Ostler { "replay" } else { "inside" };
        tool(&context.ostler.start(&folder)?, provider).map(|one| vec![one])
    })?);
    let bounds = Bounds { rounds: alone.rounds.min(3), ..alone };
    figures
        .extend(alternate(bounds, STREAM, |_| stream(&context.ostler.start(&folder)?).map(|one| vec![one]))?);
    Ok(figures)
}

fn folder(context: &Context) -> Result<Folder> {
    let agent = json!({ "command": std::env::current_exe()?, "args": ["replay-agent"] });
    let folder = Folder::new(
        &context.root,
        &[
            json!({ "name": "@ostler/acp", "options": { "agents": { "replay": agent } } }),
            json!({ "name": "./agent-tools.mjs" }),
        ],
    )?;
    folder.copy(&context.root.join("benches/agent-tools.mjs"), "agent-tools.mjs")?;
    Ok(folder)
}

type Daemon = (Process, SocketAddr);

/// A client with its own session.
struct Talk {
    client: Ws,
    chat: Value,
    turns: usize,
}

impl Talk {
    /// Creates a session with a new name, because the folder is reused between runs.
    fn begin(address: SocketAddr, provider: &str, name: &str) -> Result<Self> {
        let mut client = Ws::introduced(address, name)?;
        let session = format!("{provider}:/{name}-{}", address.port());
        client.ask("createSession", json!({ "channel": session, "provider": provider }))?;
        let subscribed = client.ask("subscribe", json!({ "channel": session }))?;
        let chat = subscribed.pointer("/snapshot/state/defaultChat").cloned();
        let chat = chat.ok_or_else(|| Failure::new(format!("the session has no chat: {subscribed}")))?;
        client.ask("subscribe", json!({ "channel": chat }))?;
        Ok(Self { client, chat, turns: 0 })
    }

    /// Returns the frame that begins the next turn.
    fn turn(&mut self, text: &str) -> Vec<u8> {
        self.turns += 1;
        let action = json!({ "type": "chat/turnStarted", "turnId": format!("turn-{}", self.turns),
            "message": { "text": text, "origin": { "kind": "user" } } });
        let params = json!({ "channel": self.chat, "clientSeq": self.turns, "action": action });
        frames::text(&json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params }).to_string())
    }
}

/// Returns the milliseconds from each prompt to the first words of the running agent.
fn first_words((_process, address): &Daemon) -> Result<Vec<f64>> {
    let mut talk = Talk::begin(*address, "replay", "first")?;
    let mut took = Vec::with_capacity(PROMPTS.1);
    for at in 0..PROMPTS.0 + PROMPTS.1 {
        let frame = talk.turn("/word 1");
        let begun = Instant::now();
        talk.client.write(&frame)?;
        talk.client.until(b"\"chat/responsePart\"")?;
        if at >= PROMPTS.0 {
            took.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        talk.client.until(b"\"chat/turnComplete\"")?;
    }
    Ok(took)
}

/// Like [`first_words`], with an agent on pipes.
fn directly() -> Result<Vec<f64>> {
    let mut agent = Agent::start()?;
    agent.ask("initialize", json!({ "protocolVersion": 1 }))?;
    agent.ask("session/new", json!({ "cwd": "/", "mcpServers": [] }))?;
    let mut took = Vec::with_capacity(PROMPTS.1);
    for at in 0..PROMPTS.0 + PROMPTS.1 {
        let prompt = json!({ "sessionId": "replayed", "prompt": [{ "type": "text", "text": "/word 1" }] });
        let begun = Instant::now();
        agent.send("session/prompt", prompt)?;
        agent.until("session/update")?;
        if at >= PROMPTS.0 {
            took.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        agent.until("\"result\"")?;
    }
    Ok(took)
}

/// An agent on pipes.
struct Agent {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Agent {
    fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("replay-agent").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or_else(|| Failure::new("the agent has no output"))?;
        Ok(Self { child, out: BufReader::new(out) })
    }

    fn send(&mut self, method: &str, params: Value) -> Result<()> {
        let line = format!("{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        let input = self.child.stdin.as_mut().ok_or_else(|| Failure::new("the agent has no input"))?;
        Ok(input.write_all(line.as_bytes())?)
    }

    fn until(&mut self, wanted: &str) -> Result<()> {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            if self.out.read_line(&mut line)? == 0 {
                return Err(Failure::new("the agent ended"));
            }
        }
        Ok(())
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<()> {
        self.send(method, params)?;
        self.until("\"result\"")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the kilobytes that the daemon needs for each session with a running agent.
fn memory((process, address): &Daemon) -> Result<f64> {
    let mut talks = vec![opened(*address, 0)?];
    let before = process.memory_when_idle()?.written;
    for at in 1..=SESSIONS {
        talks.push(opened(*address, at)?);
    }
    let after = process.memory_when_idle()?.written;
    Ok((after - before) / SESSIONS as f64)
}

/// Returns a session that has completed a turn.
fn opened(address: SocketAddr, at: usize) -> Result<Talk> {
    let mut talk = Talk::begin(address, "replay", &format!("memory-{at}"))?;
    let frame = talk.turn("/words 10");
    talk.client.write(&frame)?;
    talk.client.until(b"\"chat/turnComplete\"")?;
    Ok(talk)
}

/// Returns the median time of a tool call in microseconds, as the backend reports it.
fn tool((_process, address): &Daemon, provider: &str) -> Result<f64> {
    let mut talk = Talk::begin(*address, provider, "tools")?;
    let frame = talk.turn(&format!("/tools {CALLS}"));
    talk.client.write(&frame)?;
    let said = talk.client.find(b"took ")?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let took = said.split_once("took ").and_then(|(_, rest)| rest.split_once(" end")?.0.parse().ok());
    took.ok_or_else(|| Failure::new(format!("no time was said: {said}")))
}

/// Returns the thousands of words delivered per second, where every client must receive all of them in order.
fn stream((_process, address): &Daemon) -> Result<f64> {
    let mut crowds = Vec::with_capacity(SESSIONS);
    for at in 0..SESSIONS {
        let mut talk = Talk::begin(*address, "replay", &format!("stream-{at}"))?;
        let frame = talk.turn("/words 1");
        talk.client.write(&frame)?;
        talk.client.until(b"\"chat/turnComplete\"")?;
        let begin = talk.turn(&format!("/words {WORDS}"));
        let mut connections = vec![talk.client];
        for client in 1..CLIENTS {
            let mut connection = Ws::introduced(*address, &format!("stream-{at}-{client}"))?;
            connection.ask("subscribe", json!({ "channel": talk.chat }))?;
            connections.push(connection);
        }
        crowds.push((Crowd::new(connections, &TurnActions::of("chat"))?, begin));
    }
    let begun = Instant::now();
    let outcomes: Vec<Result<Duration>> = std::thread::scope(|scope| {
        let running: Vec<_> = crowds
            .iter_mut()
            .map(|(crowd, begin)| scope.spawn(move || crowd.run_turn(begin, WORDS)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure::new("a client panicked"))))
            .collect()
    });
    let took = begun.elapsed();
    outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    Ok((SESSIONS * CLIENTS * WORDS) as f64 / took.as_secs_f64() / 1000.0)
}
