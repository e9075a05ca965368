//! A real daemon in a process of its own, and a client that reads its frames.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

pub mod attack;
pub mod collector;
pub mod disk;
mod stdio;
pub mod tls;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use ostler::config::{self, Environment};
use rustix::process::Pid;
pub use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// How long anything may take before a test gives up.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The argument of `env` for the signals that shells and `nohup` have a program ignore.
pub const HEEDING: &str = "--default-signal=HUP,INT,QUIT";

/// A configuration folder.
pub struct Folder {
    pub dir: TempDir,
}

impl Folder {
    /// A folder whose configuration holds these keys, a free port, and no gathering of deltas.
    pub fn new(mut config: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        config["port"] = json!(0);
        config["deltaWindowMs"] = json!(0);
        let folder = Self { dir };
        folder.write("config.json", &config.to_string());
        folder
    }

    /// With the echo backend and the webhook plugin, an endpoint `in` whose token is `right`, and an automation
    /// that sends `message` to the echo backend, once a call however many there are.
    pub fn with_webhook(message: &str) -> Self {
        let folder =
            Self::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }] }));
        folder.write("webhooks/in.md", "---\nid: in\nautomation: true\nsecret: host:in\n---\n");
        folder.write("vault.json", r#"{ "host:in": "right" }"#);
        folder.write(
            "automations/note.md",
            &format!(
                "---\ntitle: Note\nenabled: true\nsession: {{ provider: echo }}\ntriggers:\n  - id: called\n    \
                 kind: event\n    type: webhook\n    title: Called\n    events: [{{ id: call }}]\n    config: {{ endpoint: in }}\n\
                 _meta: {{ ostler: {{ overlap: parallel, hourlyCap: 1000000 }} }}\n---\n{message}\n"
            ),
        );
        folder
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path().join(file)).unwrap_or_default()
    }

    /// `$XDG_STATE_HOME` of what runs in this folder.
    pub fn state_home(&self) -> PathBuf {
        self.path().join(".state")
    }

    /// The home of what runs in this folder: nobody's.
    fn home(&self) -> PathBuf {
        let home = self.state_home().join("home");
        fs::create_dir_all(&home).unwrap();
        home
    }

    /// A file of the state folder.
    pub fn state_file(&self, file: &str) -> PathBuf {
        let environment = Environment { state_home: Some(self.state_home()), ..Environment::default() };
        let folders = config::folders(Some(&self.path().join("config.json")), &environment).unwrap();
        folders.state.join(file)
    }

    pub fn read_state(&self, file: &str) -> String {
        fs::read_to_string(self.state_file(file)).unwrap_or_default()
    }

    /// The program, about to run in this folder on its configuration.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command
            .arg("--config-file")
            .arg(self.path().join("config.json"))
            .args(arguments)
            .env("XDG_STATE_HOME", self.state_home())
            .env("HOME", self.home())
            .current_dir(self.path());
        command
    }

    /// The program, which heeds the signals that the test itself may have been started to ignore.
    pub fn heeding(&self, arguments: &[&str]) -> Command {
        let mut env = Command::new("env");
        env.arg(HEEDING);
        self.told(env, arguments)
    }

    /// A command that is told the program with these arguments, to become it.
    pub fn told(&self, mut command: Command, arguments: &[&str]) -> Command {
        let own = self.command(arguments);
        command.arg(own.get_program()).args(own.get_args()).current_dir(self.path());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Runs the program until it ends by itself.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(arguments))
    }

    pub fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    pub fn start_with(&self, arguments: &[&str]) -> Daemon {
        self.started(self.command(arguments))
    }

    /// Starts a command of this folder's and waits until it is up.
    pub fn started(&self, mut command: Command) -> Daemon {
        command.stdin(Stdio::null());
        self.started_as_is(command)
    }

    /// As [`Folder::started`], with the input that the command has.
    pub fn started_as_is(&self, mut command: Command) -> Daemon {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path().join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::from(log)).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut block = Vec::new();
        loop {
            let mut line = String::new();
            if out.read_line(&mut line).unwrap() == 0 {
                let _ = child.wait();
                panic!("the daemon ended before it was up: {}", self.read("log"));
            }
            let last = line.contains("connection token");
            block.push(line.trim_end().to_owned());
            if last {
                break;
            }
        }
        let url = block[0].split_whitespace().find(|word| word.starts_with("ws://")).unwrap().to_owned();
        Daemon { child, out, block, url }
    }

    /// Waits until a call with the endpoint's token is answered with this status.
    pub async fn wait_for_status(&self, daemon: &Daemon, path: &str, expected: u16) {
        let end = Instant::now() + LIMIT;
        loop {
            let (seen, _) = daemon.post(path, Some("right"), "{}").await;
            if seen == expected {
                return;
            }
            assert!(Instant::now() < end, "{path} answers {seen}, not {expected}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the log says this.
    pub fn wait_for_log(&self, what: &str) -> String {
        wait_for(|| self.read("log").lines().find(|line| line.contains(what)).map(str::to_owned))
            .unwrap_or_else(|| panic!("the log never says {what:?}: {}", self.read("log")))
    }
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The program, with nothing of this machine's own configuration and the home of no user: the one of these tests, or another
/// build of it that `OSTLER_TEST_PROGRAM` names, for measurements.
pub fn program() -> Command {
    let other = std::env::var_os("OSTLER_TEST_PROGRAM");
    let mut command = Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_ostler").into()));
    command.env_remove("XDG_CONFIG_HOME").env_remove("OSTLER_CONFIG").env("NO_COLOR", "1");
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    let home = concat!(env!("CARGO_TARGET_TMPDIR"), "/home");
    fs::create_dir_all(home).unwrap();
    command.env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1").env_remove("XDG_RUNTIME_DIR");
    for name in ostler_contract::proxy::variables() {
        command.env_remove(name);
    }
    command
}

/// Sends a signal to a process; one that has ended does not mind.
pub fn tell(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Runs a program that ends by itself.
pub fn ended(command: &mut Command) -> Ended {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (done, waits) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if waits.recv_timeout(LIMIT).is_err() {
            tell(pid, Signal::KILL);
        }
    });
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let _ = done.send(());
    Ended {
        code: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// Asks until there is an answer or the time is over.
pub fn wait_for<T>(ask: impl FnMut() -> Option<T>) -> Option<T> {
    wait_within(LIMIT, ask)
}

/// The same for what takes its time.
pub fn wait_within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A daemon that runs; ended with the test.
pub struct Daemon {
    pub child: Child,
    pub out: BufReader<ChildStdout>,
    /// What it announced, up to its token's line.
    pub block: Vec<String>,
    /// `ws://127.0.0.1:<port>`
    pub url: String,
}

impl Daemon {
    pub fn address(&self) -> &str {
        self.url.strip_prefix("ws://").unwrap()
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.url).await
    }

    /// One that is let in.
    pub async fn initialized(&self, name: &str) -> Client {
        let mut client = self.client().await;
        client.initialize(name).await;
        client
    }

    /// Sends it a signal. One that is told to stop has stopped when this returns: it reads nothing of what comes later.
    pub fn signal(&self, signal: Signal) {
        tell(self.child.id(), signal);
        if signal == Signal::STOP {
            let tasks = format!("/proc/{}/task", self.child.id());
            let has_stopped = |task: std::io::Result<fs::DirEntry>| {
                let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
            };
            let stopped = || fs::read_dir(&tasks).unwrap().all(has_stopped).then_some(());
            wait_for(stopped).expect("it stops");
        }
    }

    /// Ends it at once, without a chance to do anything more.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Tells it to end; answers its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        wait_for(|| self.child.try_wait().unwrap()).expect("it ends when told to").code()
    }

    /// Posts to a path of this daemon; answers status and body.
    pub async fn post(&self, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        post(self.address(), path, token, body).await.expect("an answer")
    }

    /// One request with these lines of headers (`Name: value\r\n`): its status, and its body as JSON where it is some.
    pub async fn ask(&self, head: &str, headers: &str, body: &str) -> (u16, Value) {
        let (address, length) = (self.address(), body.len());
        let answer = self
            .exchange(
                format!(
                    "{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
                )
                .as_bytes(),
            )
            .await;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Sends bytes, no more after them, and reads until the daemon closes.
    pub async fn exchange_half(&self, bytes: &[u8]) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(LIMIT, read).await.expect("an answer in time");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends bytes and reads until the daemon closes.
    pub async fn exchange(&self, bytes: &[u8]) -> String {
        exchange(self.address(), bytes).await
    }
}

/// Posts JSON; answers status and body, or nothing where nobody answers any more.
pub async fn post(address: &str, path: &str, token: Option<&str>, body: &str) -> Option<(u16, String)> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(token) = token {
        head.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    let whole =
        format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = exchange(address, whole.as_bytes()).await;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

pub async fn exchange(address: &str, bytes: &[u8]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = TcpStream::connect(address).await else { return String::new() };
    // A daemon that has answered early may have closed.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("an answer in time");
    String::from_utf8_lossy(&answer).into_owned()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client over a real socket that sees every frame as JSON.
pub struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    before: std::collections::VecDeque<Value>,
    next: u64,
}

impl Client {
    pub async fn connect(url: &str) -> Self {
        let mut config = tokio_tungstenite::tungstenite::protocol::WebSocketConfig::default();
        config.max_frame_size = None;
        let connected = tokio_tungstenite::connect_async_with_config(url, Some(config), false).await;
        let (socket, _) = connected.unwrap();
        Self::of(socket)
    }

    /// One on a socket that is open.
    pub fn of(socket: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self { socket, before: Default::default(), next: 1 }
    }

    pub async fn send(&mut self, frame: &str) {
        self.socket.send(Message::text(frame)).await.unwrap();
    }

    /// As [`Client::send`]; `false` if the connection has ended.
    pub async fn try_send(&mut self, frame: &str) -> bool {
        self.socket.send(Message::text(frame)).await.is_ok()
    }

    pub async fn send_message(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    /// Sends bytes that are no whole frame.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        tokio::io::AsyncWriteExt::write_all(self.socket.get_mut(), bytes).await.unwrap();
    }

    /// The next frame; `None` once the daemon has closed.
    pub async fn next_frame(&mut self) -> Option<Value> {
        if let Some(frame) = self.before.pop_front() {
            return Some(frame);
        }
        loop {
            let message = tokio::time::timeout(LIMIT, self.socket.next()).await.expect("a frame in time");
            match message {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The text of the next frame, which may be no JSON that a reader takes.
    pub async fn next_text(&mut self) -> String {
        loop {
            let message = tokio::time::timeout(LIMIT, self.socket.next()).await.expect("a frame in time");
            match message {
                Some(Ok(Message::Text(text))) => return text.to_string(),
                Some(Ok(Message::Close(_)) | Err(_)) | None => panic!("the connection ended"),
                Some(Ok(_)) => {}
            }
        }
    }

    /// The code and reason the daemon closes with.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            let message = tokio::time::timeout(LIMIT, self.socket.next()).await.expect("a close in time");
            match message {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("no close frame: {other:?}"),
            }
        }
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.try_request(method, params).await.unwrap_or_else(|| panic!("{method}: the connection ended"))
    }

    /// As [`Client::request`]; `None` where the connection ends before the answer.
    pub async fn try_request(&mut self, method: &str, params: Value) -> Option<Result<Value, Value>> {
        let id = self.next;
        self.next += 1;
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.socket.send(Message::text(frame.to_string())).await.ok()?;
        let mut before = std::mem::take(&mut self.before);
        loop {
            let frame = self.next_frame().await?;
            if frame["id"] == json!(id) {
                self.before = before;
                return Some(match frame.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(frame["result"].clone()),
                });
            }
            before.push_back(frame);
        }
    }

    pub async fn initialize(&mut self, name: &str) -> Value {
        let params =
            json!({ "channel": "ahp-root://", "clientId": name, "protocolVersions": ["1.0.0", "0.9.0"] });
        self.request("initialize", params).await.unwrap()
    }

    /// The snapshot's state of a channel, subscribed to from now on.
    pub async fn subscribe(&mut self, channel: &str) -> Value {
        let subscribed = self.request("subscribe", json!({ "channel": channel })).await;
        subscribed.unwrap_or_else(|error| panic!("{channel}: {error}"))["snapshot"]["state"].clone()
    }

    pub async fn dispatch(&mut self, channel: &str, seq: i64, action: Value) {
        assert!(self.try_dispatch(channel, seq, action).await, "the connection ended");
    }

    /// As [`Client::dispatch`]; `false` where the connection has ended.
    pub async fn try_dispatch(&mut self, channel: &str, seq: i64, action: Value) -> bool {
        let params = json!({ "channel": channel, "clientSeq": seq, "action": action });
        let frame = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        self.socket.send(Message::text(frame.to_string())).await.is_ok()
    }

    /// Reads actions until one has this type; answers all of them, that one last.
    pub async fn actions_until(&mut self, name: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let frame = self.next_frame().await.expect("the connection is open");
            if frame["method"] == "action" {
                seen.push(frame["params"].clone());
                if frame["params"]["action"]["type"] == name {
                    return seen;
                }
            }
        }
    }

    /// The automation `note` once it has this many runs that have ended.
    pub async fn ended_runs(&mut self, count: usize) -> Vec<Value> {
        let end = Instant::now() + LIMIT;
        loop {
            let catalogue =
                self.request("subscribe", json!({ "channel": "ahp-automations://" })).await.unwrap();
            let runs = runs_of(&catalogue["snapshot"]["state"], "note");
            let over =
                |run: &&Value| !matches!(run["lifecycle"]["status"].as_str(), Some("pending" | "running"));
            if runs.iter().filter(over).count() >= count {
                return runs;
            }
            assert!(Instant::now() < end, "{runs:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The runs of the automation with this title or id in a catalogue.
pub fn runs_of(catalogue: &Value, id: &str) -> Vec<Value> {
    let automations = catalogue["entries"].as_array().cloned().unwrap_or_default();
    let named = automations.into_iter().find(|a| a["resource"].as_str().is_some_and(|uri| uri.ends_with(id)));
    named.and_then(|automation| automation["runs"].as_array().cloned()).unwrap_or_default()
}

/// The calls of bots that a chat holds as turns or as messages that wait for one: the turn and the text of each.
pub fn calls_in(chat: &Value) -> impl Iterator<Item = (String, String)> {
    let lists = [&chat["turns"], &chat["queuedMessages"]];
    let all = lists.into_iter().filter_map(Value::as_array).flatten().chain([&chat["activeTurn"]]);
    all.filter_map(|entry| {
        let turn = entry["message"]["_meta"]["ostler.webhook"]["turn"].as_str()?;
        Some((turn.to_owned(), entry["message"]["text"].as_str()?.to_owned()))
    })
}
