//! Many subscribers on one thread, each of which must receive every word of a turn as a separate action.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::super::failure::{During, Failure, Result};
use super::frames::{self, CLOSE, TEXT};
use super::ws::Ws;

/// The timeout of a turn.
const LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of a read from a socket.
const READ: usize = 256 * 1024;

const CONTENT: &[u8] = br#""content":"word "#;

/// The actions of a channel that carry words, and the one that ends a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnActions {
    delta: Vec<u8>,
    over: Vec<u8>,
}

impl TurnActions {
    /// Returns the actions `<scope>/delta` and `<scope>/turnComplete`.
    pub fn of(scope: &str) -> Self {
        let named = |name: &str| format!("\"type\":\"{scope}/{name}\"").into_bytes();
        Self { delta: named("delta"), over: named("turnComplete") }
    }
}

/// The part of the turn that one subscriber has received.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedTurn {
    /// The number of words received, each in a separate delta, in order.
    pub words: usize,
    /// Whether the turn is over.
    pub over: bool,
}

impl ReceivedTurn {
    /// Processes one frame.
    ///
    /// # Errors
    /// A delta that does not contain exactly the next word.
    pub fn take(&mut self, words: &TurnActions, payload: &[u8]) -> Result<()> {
        if memchr::memmem::find(payload, &words.delta).is_some() {
            let word = memchr::memmem::find(payload, CONTENT).map(|at| &payload[at + CONTENT.len()..]);
            // `word 12 "`: a delta coalesced from several ones continues after the space.
            let digits = word.and_then(|word| Some((word, memchr::memchr(b' ', word)?)));
            let number = digits
                .filter(|(word, end)| word.get(end + 1) == Some(&b'"'))
                .and_then(|(word, end)| std::str::from_utf8(&word[..end]).ok()?.parse().ok());
            if number != Some(self.words) {
                let payload = String::from_utf8_lossy(payload);
                return Err(Failure::new(format!(
                    "word {} alone should have come, not {payload}",
                    self.words
                )));
            }
            self.words += 1;
        } else if memchr::memmem::find(payload, &words.over).is_some() {
            self.over = true;
        }
        Ok(())
    }
}

struct Member {
    stream: TcpStream,
    /// The received beginning of a frame.
    rest: Vec<u8>,
    seen: ReceivedTurn,
}

/// Subscribers of one chat.
pub struct Crowd {
    poll: Poll,
    members: Vec<Member>,
    buffer: Vec<u8>,
    words: TurnActions,
}

impl Crowd {
    /// Creates a crowd of connections that are subscribed.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(connections: Vec<Ws>, words: &TurnActions) -> Result<Self> {
        let poll = Poll::new()?;
        let mut members = Vec::with_capacity(connections.len());
        for connection in connections {
            let (stream, rest) = connection.into_parts();
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(members.len()), Interest::READABLE)?;
            members.push(Member { stream, rest, seen: ReceivedTurn::default() });
        }
        Ok(Self { poll, members, buffer: vec![0; READ], words: words.clone() })
    }

    /// Sends a frame that begins a turn of `words` words from the first subscriber; returns the time until the last
    /// subscriber has received the last word. Returns once all have received the end of the turn.
    ///
    /// # Errors
    /// A missing word, or one in a coalesced delta.
    pub fn run_turn(&mut self, begin: &[u8], words: usize) -> Result<Duration> {
        for member in &mut self.members {
            member.seen = ReceivedTurn::default();
        }
        let Some(first) = self.members.first_mut() else { return Err(Failure::new("nobody subscribed")) };
        let begun = Instant::now();
        // A frame this small always fits into the socket's buffer.
        first.stream.write_all(begin)?;
        let (mut complete, mut over, mut took) = (0, 0, None);
        let mut events = Events::with_capacity(self.members.len());
        while over < self.members.len() {
            self.poll.poll(&mut events, Some(LIMIT.saturating_sub(begun.elapsed())))?;
            if events.is_empty() {
                return Err(Failure::new(format!("the turn did not end within {} seconds", LIMIT.as_secs())));
            }
            for event in &events {
                let member = &mut self.members[event.token().0];
                let before = member.seen;
                member.read(&self.words, &mut self.buffer)?;
                complete += usize::from(before.words < words && member.seen.words >= words);
                over += usize::from(!before.over && member.seen.over);
            }
            if complete == self.members.len() && took.is_none() {
                took = Some(begun.elapsed());
            }
        }
        if let Some(member) = self.members.iter().find(|member| member.seen.words != words) {
            return Err(Failure::new(format!(
                "a subscriber was sent {} words of {words}",
                member.seen.words
            )));
        }
        took.ok_or_else(|| Failure::new("the turn had no words"))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for member in &self.members {
            let _ = member.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Member {
    /// Reads until no more data is available.
    fn read(&mut self, words: &TurnActions, buffer: &mut [u8]) -> Result<()> {
        loop {
            let kept = self.rest.len();
            if kept >= buffer.len() {
                return Err(Failure::new("a frame larger than any expected here"));
            }
            buffer[..kept].copy_from_slice(&self.rest);
            let read = match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => return Err(Failure::new("the server ended the connection")),
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).during("a subscriber"),
            };
            let bytes = &buffer[..kept + read];
            let mut at = 0;
            while let Some((frame, taken)) = frames::take(&bytes[at..])? {
                at += taken;
                match frame.opcode {
                    TEXT => self.seen.take(words, frame.payload)?,
                    CLOSE => return Err(Failure::new("the server closed the connection")),
                    _ => {}
                }
            }
            self.rest.clear();
            self.rest.extend_from_slice(&bytes[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::frames::tests::of_server;
    use super::*;

    fn delta(content: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":"echo:/1/chat","action":{{"type":"chat/delta","turnId":"t","partId":"answer","content":"{content}"}},"serverSeq":9}}}}"#
        )
    }

    #[test]
    fn every_word_has_to_come_alone_and_in_order() {
        let (mut seen, chat) = (ReceivedTurn::default(), TurnActions::of("chat"));
        seen.take(&chat, br#"{"method":"action","params":{"action":{"type":"chat/turnStarted"}}}"#).unwrap();
        seen.take(&chat, delta("word 0 ").as_bytes()).unwrap();
        seen.take(&chat, delta("word 1 ").as_bytes()).unwrap();
        assert_eq!(seen, ReceivedTurn { words: 2, over: false });
        for wrong in ["word 1 ", "word 3 ", "word 2 word 3 ", "word 2", "2 "] {
            assert!(seen.clone().take(&chat, delta(wrong).as_bytes()).is_err(), "{wrong}");
        }
        seen.take(&chat, delta("word 2 ").as_bytes()).unwrap();
        seen.take(&chat, br#"{"params":{"action":{"type":"chat/turnComplete","turnId":"t"}}}"#).unwrap();
        assert_eq!(seen, ReceivedTurn { words: 3, over: true });
    }

    /// Starts a server that waits for data and then sends these bytes, in chunks of this size.
    fn crowd_before(bytes: Vec<u8>, piece: usize) -> (Crowd, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
            let _ = stream.read(&mut head).unwrap();
            stream.set_nodelay(true).unwrap();
            for piece in bytes.chunks(piece) {
                stream.write_all(piece).unwrap();
            }
            // The connection stays open until the crowd closes it.
            while stream.read(&mut head).is_ok_and(|read| read > 0) {}
        });
        (Crowd::new(vec![Ws::connect(address).unwrap()], &TurnActions::of("chat")).unwrap(), server)
    }

    fn turn(words: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..words).flat_map(|at| of_server(&delta(&format!("word {at} ")))).collect();
        bytes.extend(of_server(r#"{"params":{"action":{"type":"chat/turnComplete"}}}"#));
        bytes
    }

    #[test]
    fn frames_cut_by_the_network_are_counted_whole() {
        for piece in [1, 7, 100_000] {
            let (mut crowd, server) = crowd_before(turn(50), piece);
            crowd.run_turn(&frames::text("go"), 50).unwrap();
            drop(crowd);
            server.join().unwrap();
        }
    }

    #[test]
    fn a_turn_that_says_too_little_or_too_much_does_not_count() {
        for words in [49, 51] {
            let (mut crowd, server) = crowd_before(turn(words), 100_000);
            assert!(crowd.run_turn(&frames::text("go"), 50).is_err(), "{words}");
            drop(crowd);
            server.join().unwrap();
        }
    }
}
