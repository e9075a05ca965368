//! Plays a transcript: sends the client's lines and compares the host's messages with the expected ones.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::future::BoxFuture;
use ostler_contract::{Value, json};

use super::pattern::Bindings;
use super::record::{self, OPEN, recording};
use super::{End, Line, Transcript};

/// The time limit of the host for one line.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the host must be silent before its messages are recorded.
const QUIET: Duration = Duration::from_millis(400);
/// The id of the request that marks the end of a transcript.
const LAST: &str = "the end of the transcript";

/// A client's end, and the frames that it received early.
struct ClientEnd {
    end: End,
    before: VecDeque<Value>,
    seq: u64,
}

/// Plays a transcript; each connection is opened at its first use.
///
/// # Errors
/// The first difference between the host's messages and the transcript, as text for the test's output.
pub async fn play(transcript: &Transcript, open: impl Fn() -> BoxFuture<'static, End>) -> Result<(), String> {
    let mut player = Player { transcript, ends: BTreeMap::new(), bound: Bindings::default() };
    let recording = recording();
    let mut filled = Vec::new();
    for (number, line) in &transcript.lines {
        if let Line::Client(on, _) | Line::Text(on, _) | Line::Ends(on) = line
            && !player.ends.contains_key(on)
        {
            let client = ClientEnd { end: open().await, before: VecDeque::new(), seq: 0 };
            player.ends.insert(on.clone(), client);
        }
        match line {
            Line::Host(_, open) if recording && open == OPEN => filled.push((*number, player.record().await)),
            line => {
                let outcome = player.line(line).await;
                outcome.map_err(|why| format!("{}:{number}: {why}", transcript.path.display()))?;
            }
        }
    }
    if !filled.is_empty() {
        record::write(&transcript.path, &filled);
    }
    player.finish().await
}

struct Player<'a> {
    transcript: &'a Transcript,
    ends: BTreeMap<String, ClientEnd>,
    bound: Bindings,
}

impl Player<'_> {
    async fn line(&mut self, line: &Line) -> Result<(), String> {
        match line {
            Line::Client(on, message) => {
                let mut message = self.bound.fill(message);
                message["jsonrpc"] = json!("2.0");
                self.say(on, message.to_string())
            }
            Line::Text(on, text) => self.say(on, text.clone()),
            Line::Host(on, expected) => self.hear(on, expected).await,
            Line::Ends(on) => match self.next(on, None).await? {
                None => Ok(()),
                Some(frame) => Err(format!("the host goes on with {frame}")),
            },
            Line::Drop(on) => {
                self.ends.remove(on);
                Ok(())
            }
        }
    }

    fn say(&self, on: &str, text: String) -> Result<(), String> {
        let client = self.ends.get(on).ok_or("no such connection")?;
        client.end.say.send(text).map_err(|_| "the host has closed".to_owned())
    }

    async fn hear(&mut self, on: &str, expected: &Value) -> Result<(), String> {
        let answer = expected.get("id");
        let frame = match self.next(on, Some(answer)).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(format!("expected {expected}\n  the host has closed")),
            Err(why) => return Err(format!("expected {expected}\n  {why}")),
        };
        let mut lines = Vec::new();
        let mut whole = expected.clone();
        whole["jsonrpc"] = json!("2.0");
        self.bound.differences(&whole, &frame, "", &mut lines);
        if !lines.is_empty() {
            let shown = serde_json::to_string_pretty(&frame).unwrap_or_default();
            return Err(format!("\n  {}\nthe host said\n{shown}", lines.join("\n  ")));
        }
        let params = &frame["params"];
        if let Some(client) = self.ends.get_mut(on)
            && frame["method"] == "action"
            && params.get("rejectionReason").is_none()
        {
            let seq = params["serverSeq"].as_u64().unwrap_or_default();
            if seq <= client.seq {
                return Err(format!("serverSeq {seq} comes after {}", client.seq));
            }
            client.seq = seq;
        }
        Ok(())
    }

    /// Returns the next frame. On a connection without order, that is the next answer with this id or the next
    /// notification.
    async fn next(&mut self, on: &str, wanted: Option<Option<&Value>>) -> Result<Option<Value>, String> {
        let client = self.ends.get_mut(on).ok_or("no such connection")?;
        let ordered = client.end.ordered;
        let fits = |frame: &Value| match wanted {
            Some(id) if !ordered => frame.get("id") == id,
            _ => true,
        };
        if let Some(at) = client.before.iter().position(&fits) {
            return Ok(client.before.remove(at));
        }
        loop {
            match tokio::time::timeout(LIMIT, client.end.hear.recv()).await {
                Err(_) => {
                    let before: Vec<String> = client.before.iter().map(Value::to_string).collect();
                    return Err(format!("the host said nothing more; unread: [{}]", before.join(", ")));
                }
                Ok(None) => return Ok(None),
                Ok(Some(frame)) if fits(&frame) => return Ok(Some(frame)),
                Ok(Some(frame)) => client.before.push_back(frame),
            }
        }
    }

    async fn record(&mut self) -> Vec<(String, Value)> {
        let mut seen = Vec::new();
        for (name, client) in &mut self.ends {
            while let Ok(Some(frame)) = tokio::time::timeout(QUIET, client.end.hear.recv()).await {
                seen.push((name.clone(), frame));
            }
        }
        seen
    }

    /// Checks that the host sends no message that the transcript does not contain.
    async fn finish(mut self) -> Result<(), String> {
        let path = self.transcript.path.display();
        for name in self.ends.keys().cloned().collect::<Vec<_>>() {
            let ping = json!({ "jsonrpc": "2.0", "id": LAST, "method": "ping", "params": { "channel": "ahp-root://" } });
            if self.say(&name, ping.to_string()).is_err() {
                continue;
            }
            match self.next(&name, None).await {
                Ok(Some(frame)) if frame["id"] != LAST => {
                    return Err(format!("{path}: at the end the host says to {name}: {frame}"));
                }
                Ok(_) => {}
                Err(why) => return Err(format!("{path}: at the end of {name}: {why}")),
            }
        }
        Ok(())
    }
}
