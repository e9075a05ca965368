//! A load of HTTP calls on one thread: several persistent connections, each with one call at a time.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::super::failure::{During, Failure, Result};

/// The timeout without any data.
const LIMIT: Duration = Duration::from_secs(10);
/// The maximum size of a read from a socket; a response is far smaller.
const READ: usize = 16 * 1024;

/// What one connection calls: its server, and its requests, which it sends in rotation.
#[derive(Debug, Clone)]
pub struct Calls {
    /// The address of the server.
    pub address: SocketAddr,
    /// The requests.
    pub requests: Vec<Vec<u8>>,
}

/// What a load achieved.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The number of responses.
    pub answered: u64,
    /// The time until the end.
    pub took: Duration,
}

impl Load {
    /// Returns the number of responses per second.
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64()
    }
}

struct Caller<'a> {
    stream: TcpStream,
    unread: Vec<u8>,
    requests: std::iter::Cycle<std::slice::Iter<'a, Vec<u8>>>,
}

/// The end of a load.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After this many responses.
    Answers(u64),
}

/// Sends calls until the given end; returns the number of responses per second. Every response must have this status.
///
/// # Errors
/// A response with another status, or no response.
pub fn calls_per_second(
    address: SocketAddr,
    connections: usize,
    request: &[u8],
    status: u16,
    until: Until,
) -> Result<f64> {
    let calls = vec![Calls { address, requests: vec![request.to_owned()] }; connections];
    Ok(load(&calls, status, until)?.per_second())
}

/// Sends calls over one connection each until the given end. Every response must have this status.
///
/// # Errors
/// A response with another status, or no response.
pub fn load(calls: &[Calls], status: u16, until: Until) -> Result<Load> {
    let connections = calls.len();
    let mut poll = Poll::new()?;
    let mut callers = Vec::with_capacity(connections);
    for (at, Calls { address, requests }) in calls.iter().enumerate() {
        let stream = std::net::TcpStream::connect_timeout(address, LIMIT).during(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(at), Interest::READABLE)?;
        callers.push(Caller { stream, unread: Vec::new(), requests: requests.iter().cycle() });
    }
    let mut events = Events::with_capacity(connections);
    let mut buffer = vec![0; READ];
    let begun = Instant::now();
    for caller in &mut callers {
        caller.send()?;
    }
    let mut answered = 0_u64;
    let mut sent = connections as u64;
    let most = match until {
        Until::Time(_) => u64::MAX,
        Until::Answers(answers) => answers,
    };
    loop {
        poll.poll(&mut events, Some(LIMIT))?;
        if events.is_empty() {
            return Err(Failure::new(format!("no answer within {} seconds", LIMIT.as_secs())));
        }
        for event in &events {
            let caller = &mut callers[event.token().0];
            for _ in 0..caller.read(&mut buffer, status)? {
                answered += 1;
                if sent < most {
                    sent += 1;
                    caller.send()?;
                }
            }
        }
        let elapsed = begun.elapsed();
        let over = match until {
            Until::Time(time) => elapsed >= time,
            Until::Answers(answers) => answered >= answers,
        };
        if over {
            return Ok(Load { answered, took: elapsed });
        }
    }
}

/// Sends calls in sequence on one connection; returns the latencies of `timed` calls after the first `first` ones, in
/// milliseconds. Every response must have this status.
///
/// # Errors
/// A response with another status, or no response.
pub fn latencies(
    address: SocketAddr,
    request: &[u8],
    status: u16,
    first: usize,
    timed: usize,
) -> Result<Vec<f64>> {
    let mut stream = std::net::TcpStream::connect_timeout(&address, LIMIT).during(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut buffer = vec![0; READ];
    let mut took = Vec::with_capacity(timed);
    for at in 0..first + timed {
        let begun = Instant::now();
        stream.write_all(request)?;
        let (mut held, mut answered) = (0, 0);
        while answered == 0 {
            let read = stream.read(&mut buffer[held..]).during("a call")?;
            if read == 0 {
                return Err(Failure::new("the server ended a connection that was to be kept"));
            }
            held += read;
            take_all(&buffer[..held], status, &mut answered)?;
        }
        if at >= first {
            took.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Ok(took)
}

impl Caller<'_> {
    /// Sends its next request.
    fn send(&mut self) -> Result<()> {
        let request = self.requests.next().ok_or_else(|| Failure::new("a connection without a request"))?;
        // A request this small always fits into the socket's buffer.
        Ok(self.stream.write_all(request)?)
    }

    /// Reads the available data; returns the number of completed responses.
    fn read(&mut self, buffer: &mut [u8], status: u16) -> Result<usize> {
        let mut answered = 0;
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(Failure::new("the server ended a connection that was to be kept")),
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(answered),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).during("a call"),
            };
            // A response nearly always arrives complete, and nothing is copied.
            if self.unread.is_empty() {
                let taken = take_all(&buffer[..read], status, &mut answered)?;
                self.unread.extend_from_slice(&buffer[taken..read]);
            } else {
                self.unread.extend_from_slice(&buffer[..read]);
                let taken = take_all(&self.unread, status, &mut answered)?;
                self.unread.drain(..taken);
            }
            if read < buffer.len() {
                return Ok(answered);
            }
        }
    }
}

/// Parses all complete responses; returns their length in bytes.
fn take_all(bytes: &[u8], status: u16, answered: &mut usize) -> Result<usize> {
    let mut at = 0;
    while let Some((got, taken)) = take(&bytes[at..])? {
        if got != status {
            let answer = String::from_utf8_lossy(&bytes[at..at + taken]);
            return Err(Failure::new(format!("{status} should have been answered, not {answer}")));
        }
        *answered += 1;
        at += taken;
    }
    Ok(at)
}

/// Returns the status of the first response and its length, once it is complete.
fn take(bytes: &[u8]) -> Result<Option<(u16, usize)>> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let wrong = || Failure::new(format!("no answer: {}", String::from_utf8_lossy(&bytes[..end])));
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix(b"HTTP/1.1 "))
        .and_then(|line| number(line.get(..3)?))
        .and_then(|status| u16::try_from(status).ok())
        .ok_or_else(wrong)?;
    let length = lines
        .find_map(|line| {
            let (name, value) = line.split_at_checked(15)?;
            name.eq_ignore_ascii_case(b"content-length:").then(|| number(value.trim_ascii()))?
        })
        .ok_or_else(wrong)?;
    let whole = end + 4 + length;
    Ok((bytes.len() >= whole).then_some((status, whole)))
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\nDate: now\r\n\r\nhello";

    #[test]
    fn an_answer_is_taken_once_it_is_whole() {
        for cut in 0..ANSWER.len() {
            assert_eq!(take(&ANSWER[..cut]).unwrap(), None, "{cut}");
        }
        let two = [ANSWER, ANSWER, b"HTTP/1.1 2"].concat();
        assert_eq!(take(&two).unwrap(), Some((202, ANSWER.len())));
        let mut answered = 0;
        assert_eq!(take_all(&two, 202, &mut answered).unwrap(), 2 * ANSWER.len());
        assert_eq!(answered, 2);
    }

    #[test]
    fn another_status_is_no_answer_that_counts() {
        assert!(take_all(ANSWER, 401, &mut 0).is_err());
        assert!(take(b"HTTP/1.1 200 OK\r\n\r\n").is_err(), "no length");
        assert!(take(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[test]
    fn calls_are_counted_over_kept_connections() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut head = [0; 1024];
                    while stream.read(&mut head).is_ok_and(|read| read > 0) {
                        stream.write_all(ANSWER).unwrap();
                    }
                });
            }
        });
        let request = b"POST / HTTP/1.1\r\n\r\n";
        for until in [Until::Time(Duration::from_millis(50)), Until::Answers(20)] {
            assert!(calls_per_second(address, 3, request, 202, until).unwrap() > 0.0);
        }
    }
}
