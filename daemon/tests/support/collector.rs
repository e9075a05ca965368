//! A collector of traces and metrics, which answers every request and retains it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// A request that a collector received.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    /// The lines of the head, in lower case.
    pub head: String,
    pub body: Value,
}

/// A collector on a free port of this machine.
#[derive(Clone)]
pub struct Collector {
    pub address: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    /// Starts one that answers with a status line such as `200 OK`.
    pub fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let into = received.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let into = into.clone();
                thread::spawn(move || while serve(&stream, status, &into).is_some() {});
            }
        });
        Self { address, received }
    }

    /// What it has received.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The elements of the lists at `within` in the requests to a path that ends with `path`: spans or metrics.
    pub fn items(&self, path: &str, within: [&str; 3]) -> Vec<Value> {
        let of = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let requests = self.received().into_iter().filter(|request| request.path.ends_with(path));
        let resources = requests.flat_map(|request| of(&request.body, within[0]));
        let scopes = resources.flat_map(|resource| of(&resource, within[1]));
        scopes.flat_map(|scope| of(&scope, within[2])).collect()
    }
}

/// Answers one request; nothing once the connection has ended.
fn serve(stream: &TcpStream, status: &str, into: &Mutex<Vec<Received>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut head = String::new();
    while !head.ends_with("\n\r\n") && head != "\r\n" {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    into.lock().unwrap().push(Received { path, head, body });
    let mut writer = stream;
    write!(writer, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").ok()
}
