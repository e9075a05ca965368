//! A blocking WebSocket connection, to set up a measurement.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::failure::{During, Failure, Result};
use super::frames::{self, CLOSE, TEXT};

/// The timeout of a response.
const LIMIT: Duration = Duration::from_secs(20);

/// A connection after its handshake.
#[derive(Debug)]
pub struct Ws {
    stream: TcpStream,
    unread: Vec<u8>,
    last_id: u64,
}

impl Ws {
    /// Connects and performs the handshake.
    ///
    /// # Errors
    /// The server's response instead of the upgrade.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT).during(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut ws = Self { stream, unread: Vec::new(), last_id: 0 };
        // The key is the example of RFC 6455; a fresh key is not needed here.
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        ws.stream.write_all(request.as_bytes())?;
        let head = loop {
            if let Some(end) = memchr::memmem::find(&ws.unread, b"\r\n\r\n") {
                break ws.unread.drain(..end + 4).collect::<Vec<u8>>();
            }
            ws.read_more()?;
        };
        match head.starts_with(b"HTTP/1.1 101 ") {
            true => Ok(ws),
            false => Err(Failure::new(format!("no handshake: {}", String::from_utf8_lossy(&head).trim()))),
        }
    }

    /// Connects and initializes under a name.
    ///
    /// # Errors
    /// The server's response instead.
    pub fn introduced(address: SocketAddr, name: &str) -> Result<Self> {
        let mut ws = Self::connect(address)?;
        let versions = ["1.0.0"];
        ws.ask(
            "initialize",
            json!({ "channel": "ahp-root://", "clientId": name, "protocolVersions": versions }),
        )?;
        Ok(ws)
    }

    /// Sends a request and waits for its result; discards the messages before it.
    ///
    /// # Errors
    /// The error of the response.
    pub fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        let (id, frame) = self.request(method, params);
        self.stream.write_all(&frame)?;
        let answer = self.answer_to(id)?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        match answer.get("error") {
            Some(error) => Err(Failure::new(format!("{method}: {error}"))),
            None => Ok(answer["result"].take()),
        }
    }

    /// Returns a request that is ready to be written, and its id.
    pub fn request(&mut self, method: &str, params: Value) -> (u64, Vec<u8>) {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        (self.last_id, frames::text(&request.to_string()))
    }

    /// Writes a prepared request and waits for its response, which must be a result.
    ///
    /// # Errors
    /// The error of the response.
    pub fn exchange(&mut self, id: u64, frame: &[u8]) -> Result<()> {
        self.stream.write_all(frame)?;
        let answer = self.answer_to(id)?;
        match memchr::memmem::find(&answer, b"\"result\":") {
            Some(_) => Ok(()),
            None => Err(Failure::new(String::from_utf8_lossy(&answer).into_owned())),
        }
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&mut self, frame: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(frame)?)
    }

    /// Reads messages until one contains `wanted`.
    ///
    /// # Errors
    /// The connection ended, or the timeout expired.
    pub fn until(&mut self, wanted: &[u8]) -> Result<()> {
        self.find(wanted).map(drop)
    }

    /// Reads messages until one contains `wanted`; returns that message.
    ///
    /// # Errors
    /// The connection ended, or the timeout expired.
    pub fn find(&mut self, wanted: &[u8]) -> Result<Vec<u8>> {
        loop {
            let message = self.next_text()?;
            if memchr::memmem::find(&message, wanted).is_some() {
                return Ok(message);
            }
        }
    }

    fn answer_to(&mut self, id: u64) -> Result<Vec<u8>> {
        let wanted = format!("\"id\":{id},");
        loop {
            let payload = self.next_text()?;
            // Both servers write the id before the result.
            if memchr::memmem::find(&payload[..payload.len().min(64)], wanted.as_bytes()).is_some() {
                return Ok(payload);
            }
        }
    }

    fn next_text(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some((frame, taken)) = frames::take(&self.unread)? {
                let (opcode, payload) = (frame.opcode, frame.payload.to_vec());
                self.unread.drain(..taken);
                match opcode {
                    TEXT => return Ok(payload),
                    CLOSE => return Err(Failure::new("the server closed the connection")),
                    _ => continue,
                }
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> Result<()> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(Failure::new("the server ended the connection")),
            read => {
                self.unread.extend_from_slice(&chunk[..read]);
                Ok(())
            }
        }
    }

    /// Returns the socket, and the bytes that were read from it but not processed.
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.unread)
    }
}
