//! A client of one session, subscribed to it and its chat, that waits for the echo of each of its actions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::failure::{Failure, Result};
use super::frames;
use super::ws::Ws;

/// How long a host may take until it serves a session of another one.
const SERVED: Duration = Duration::from_secs(20);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(100);

/// The channel of an action.
#[derive(Debug, Clone, Copy)]
pub enum Channel {
    /// The session.
    Session,
    /// Its chat.
    Chat,
}

/// A client of one session.
#[derive(Debug)]
pub struct Talk {
    client: Ws,
    session: String,
    chat: String,
    seq: u64,
}

impl Talk {
    /// Creates a session of the echo backend and subscribes to it.
    ///
    /// # Errors
    /// The error of the server.
    pub fn create(address: SocketAddr, session: &str) -> Result<Self> {
        let mut client = Ws::introduced(address, "bench")?;
        client.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
        Self::of(client, session)
    }

    /// Subscribes to a session, as soon as the host serves it.
    ///
    /// # Errors
    /// The error of the server.
    pub fn follow(address: SocketAddr, session: &str, name: &str) -> Result<Self> {
        let mut client = Ws::introduced(address, name)?;
        let deadline = Instant::now() + SERVED;
        while let Err(why) = client.ask("subscribe", json!({ "channel": session })) {
            if Instant::now() > deadline {
                return Err(why);
            }
            std::thread::sleep(AGAIN);
        }
        Self::of(client, session)
    }

    fn of(mut client: Ws, session: &str) -> Result<Self> {
        let subscribed = client.ask("subscribe", json!({ "channel": session }))?;
        let chat = subscribed
            .pointer("/snapshot/state/defaultChat")
            .and_then(Value::as_str)
            .ok_or_else(|| Failure::new(format!("the session has no chat: {subscribed}")))?
            .to_owned();
        client.ask("subscribe", json!({ "channel": chat }))?;
        Ok(Self { client, session: session.to_owned(), chat, seq: 0 })
    }

    /// Returns the time from the dispatch of an action to a frame that contains `wanted`.
    ///
    /// # Errors
    /// No such frame is received.
    pub fn echo(&mut self, channel: Channel, action: &Value, wanted: &str) -> Result<Duration> {
        self.seq += 1;
        let channel = match channel {
            Channel::Session => &self.session,
            Channel::Chat => &self.chat,
        };
        let params = json!({ "channel": channel, "clientSeq": self.seq, "action": action });
        let dispatch = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        let frame = frames::text(&dispatch.to_string());
        let begun = Instant::now();
        self.client.write(&frame)?;
        self.client.until(wanted.as_bytes())?;
        Ok(begun.elapsed())
    }

    /// Changes the title; returns the time to the echo.
    ///
    /// # Errors
    /// As [`Self::echo`].
    pub fn title(&mut self, at: usize) -> Result<Duration> {
        let title = format!("title {at}");
        let action = json!({ "type": "session/titleChanged", "title": title });
        self.echo(Channel::Session, &action, &format!("\"{title}\""))
    }

    /// Sets or removes the read mark, which is not durable when its echo is sent; returns the time to the echo.
    ///
    /// # Errors
    /// As [`Self::echo`].
    pub fn mark(&mut self, at: usize) -> Result<Duration> {
        let is_read = at.is_multiple_of(2);
        let action = json!({ "type": "session/isReadChanged", "isRead": is_read });
        self.echo(Channel::Session, &action, &format!("\"isRead\":{is_read}"))
    }

    /// Reads messages until one contains `wanted`.
    ///
    /// # Errors
    /// No such message is received.
    pub fn until(&mut self, wanted: &[u8]) -> Result<()> {
        self.client.until(wanted)
    }

    /// Returns the connection and the chat.
    pub fn into_parts(self) -> (Ws, String) {
        (self.client, self.chat)
    }
}
