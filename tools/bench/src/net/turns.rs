//! Turns of several chats on one thread: each connection begins the next turn of its chat when the last one has ended.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::json;

use super::super::failure::{During, Failure, Result};
use super::frames::{self, CLOSE, TEXT};
use super::http_load::Load;
use super::ws::Ws;

/// The timeout without any data.
const LIMIT: Duration = Duration::from_secs(10);
/// The maximum size of a read from a socket.
const READ: usize = 64 * 1024;
const OVER: &[u8] = br#""type":"chat/turnComplete""#;
/// What ends a turn otherwise.
const FAILED: [&[u8]; 2] = [br#""type":"chat/error""#, br#""rejectionReason""#];

struct Speaker {
    stream: TcpStream,
    /// The received beginning of a frame.
    rest: Vec<u8>,
    chat: String,
    text: String,
    turns: u64,
}

/// Connections that are subscribed to a chat each.
pub struct Turns {
    poll: Poll,
    speakers: Vec<Speaker>,
    buffer: Vec<u8>,
}

impl Turns {
    /// Begins a turn with this text in each chat.
    ///
    /// # Errors
    /// The system's error.
    pub fn begin(connections: Vec<(Ws, String)>, text: &str) -> Result<Self> {
        let poll = Poll::new()?;
        let mut speakers = Vec::with_capacity(connections.len());
        for (connection, chat) in connections {
            let (stream, rest) = connection.into_parts();
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(speakers.len()), Interest::READABLE)?;
            let mut speaker = Speaker { stream, rest, chat, text: text.to_owned(), turns: 0 };
            speaker.speak()?;
            speakers.push(speaker);
        }
        Ok(Self { poll, speakers, buffer: vec![0; READ] })
    }

    /// Counts the turns that end within a time.
    ///
    /// # Errors
    /// A turn fails, or none ends for too long.
    pub fn run(&mut self, time: Duration) -> Result<Load> {
        let begun = Instant::now();
        let mut events = Events::with_capacity(self.speakers.len());
        let mut answered = 0;
        while begun.elapsed() < time {
            self.poll.poll(&mut events, Some(LIMIT))?;
            if events.is_empty() {
                return Err(Failure::new(format!("no turn continued within {} seconds", LIMIT.as_secs())));
            }
            for event in &events {
                answered += self.speakers[event.token().0].read(&mut self.buffer)?;
            }
        }
        Ok(Load { answered, took: begun.elapsed() })
    }
}

impl Speaker {
    /// Begins its next turn.
    fn speak(&mut self) -> Result<()> {
        self.turns += 1;
        let action = json!({ "type": "chat/turnStarted", "turnId": format!("turn-{}", self.turns),
            "message": { "text": self.text, "origin": { "kind": "user" } } });
        let params = json!({ "channel": self.chat, "clientSeq": self.turns, "action": action });
        let dispatch = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        // A frame this small always fits into the socket's buffer.
        Ok(self.stream.write_all(&frames::text(&dispatch.to_string()))?)
    }

    /// Reads until no more data is available; returns how many turns ended.
    fn read(&mut self, buffer: &mut [u8]) -> Result<u64> {
        let mut ended = 0;
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(Failure::new("the server ended the connection")),
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(ended),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).during("a turn"),
            };
            self.rest.extend_from_slice(&buffer[..read]);
            let (mut at, mut over) = (0, 0);
            while let Some((frame, taken)) = frames::take(&self.rest[at..])? {
                at += taken;
                let has = |wanted: &[u8]| memchr::memmem::find(frame.payload, wanted).is_some();
                match frame.opcode {
                    CLOSE => return Err(Failure::new("the server closed the connection")),
                    TEXT if has(OVER) => over += 1,
                    TEXT if FAILED.into_iter().any(has) => {
                        return Err(Failure::new(String::from_utf8_lossy(frame.payload)));
                    }
                    _ => {}
                }
            }
            self.rest.drain(..at);
            for _ in 0..over {
                self.speak()?;
            }
            ended += over;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::frames::tests::of_server;
    use super::*;

    /// A server that answers each frame with these messages.
    fn turns(answers: &'static [&'static str]) -> Turns {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
            while stream.read(&mut head).is_ok_and(|read| read > 0) {
                for answer in answers {
                    // The client may have what it waits for.
                    drop(stream.write_all(&of_server(answer)));
                }
            }
        });
        Turns::begin(vec![(Ws::connect(address).unwrap(), "echo:/1/chat".to_owned())], "a").unwrap()
    }

    #[test]
    fn each_end_of_a_turn_begins_the_next_one() {
        let mut turns = turns(&[r#"{"type":"chat/delta"}"#, r#"{"type":"chat/turnComplete"}"#]);
        while turns.speakers[0].turns < 5 {
            turns.run(Duration::from_millis(5)).unwrap();
        }
    }

    #[test]
    fn a_turn_that_fails_does_not_count() {
        let mut turns = turns(&[r#"{"type":"chat/error"}"#]);
        assert!(turns.run(LIMIT).is_err());
    }
}
