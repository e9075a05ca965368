//! Terminals of the bundled plugin: real shells on pseudoterminals, and clients on sockets.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod shells;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ahp::reducers::apply_action_to_terminal;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{TerminalContentPart, TerminalState};
use serde_json::{Value, json};
use support::attack::Peak;
use support::{Client, Daemon, Folder, Signal};
use tokio::sync::watch;

/// How long the next action of a terminal may take.
const STEP: Duration = Duration::from_secs(60);

const ONE: &str = "ahp-terminal:/one";

/// How processes are contained.
const SCOPES: [&str; 2] = ["auto", "group"];

/// A configuration with terminals, and a home whose shells have a short prompt.
fn folder(options: Value) -> Folder {
    let folder = Folder::new(json!({ "plugins": [
        { "name": "@ostler/echo" }, { "name": "@ostler/terminal", "options": options }
    ] }));
    folder.write(".bashrc", "PS1='ready> '\nbind 'set enable-bracketed-paste off'\n");
    folder.write(".zshrc", "PS1='ready> '\nunsetopt zle\n");
    folder.write(
        ".config/fish/config.fish",
        "function fish_prompt; echo -n 'ready> '; end\nset -U fish_greeting\n",
    );
    folder
}

fn start(folder: &Folder) -> Daemon {
    start_with(folder, "/bin/bash")
}

fn start_with(folder: &Folder, shell: &str) -> Daemon {
    let mut command = folder.command(&[]);
    command
        .env("HOME", folder.path())
        .env("SHELL", shell)
        .env_remove("ZDOTDIR")
        .env_remove("XDG_CONFIG_HOME");
    folder.started(command)
}

/// A client that watches a terminal.
struct Watcher {
    client: Client,
    uri: String,
    seq: i64,
    /// What the terminal said.
    text: String,
    /// Its other actions.
    actions: Vec<Value>,
}

impl Watcher {
    /// Opens a terminal and watches it.
    async fn open(daemon: &Daemon, more: Value) -> Self {
        let mut client = daemon.initialized("one").await;
        let mut params = json!({ "channel": ONE });
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        client.request("createTerminal", params).await.unwrap();
        Self::of(client, ONE).await
    }

    /// Watches a terminal.
    async fn of(mut client: Client, uri: &str) -> Self {
        let state = client.subscribe(uri).await;
        Self { client, uri: uri.to_owned(), seq: 0, text: text_of(&state), actions: Vec::new() }
    }

    async fn dispatch(&mut self, action: Value) {
        self.seq += 1;
        self.client.dispatch(&self.uri, self.seq, action).await;
    }

    async fn type_in(&mut self, data: &str) {
        self.dispatch(json!({ "type": "terminal/input", "data": data })).await;
    }

    /// Applies what comes until the terminal has said this.
    async fn follow(&mut self, seen: &mut Seen, what: &str) {
        while !seen.end.ends_with(what) {
            let envelope = self.step().await;
            seen.take(&envelope["action"]);
            // What is kept here is checked against the host's state, not against the past.
            self.text.clear();
        }
    }

    /// The same for a client that reads few actions a second until all is printed: one that reads nothing at all is
    /// disconnected after a while.
    async fn crawl(&mut self, seen: &mut Seen, mut is_over: watch::Receiver<bool>, what: &str) {
        while !*is_over.borrow() {
            let envelope = self.step().await;
            seen.take(&envelope["action"]);
            self.text.clear();
            let _ = tokio::time::timeout(Duration::from_millis(200), is_over.changed()).await;
        }
        self.follow(seen, what).await;
    }

    /// Takes the next action of the terminal.
    async fn step(&mut self) -> Value {
        // The pings of the daemon are frames, too.
        let step = tokio::time::timeout(STEP, self.next()).await;
        step.unwrap_or_else(|_| panic!("nothing more came; unread: {:?}, {:?}", self.text, self.actions))
    }

    async fn next(&mut self) -> Value {
        loop {
            let frame = self.client.next_frame().await.expect("the connection is open");
            if frame["method"] != "action" || frame["params"]["channel"] != self.uri.as_str() {
                continue;
            }
            let envelope = frame["params"].clone();
            match envelope["action"]["type"].as_str() {
                Some("terminal/data") => self.text.push_str(envelope["action"]["data"].as_str().unwrap()),
                _ => self.actions.push(envelope["action"].clone()),
            }
            return envelope;
        }
    }

    /// Waits until the terminal has said this; answers what it said up to there, and forgets it.
    async fn said(&mut self, what: &str) -> String {
        // Where it cannot begin any more.
        let mut searched = 0;
        loop {
            if let Some(at) = self.text[searched..].find(what) {
                let rest = self.text.split_off(searched + at + what.len());
                return std::mem::replace(&mut self.text, rest);
            }
            searched = self.text.len() - last(&self.text, what.len()).len();
            self.step().await;
        }
    }

    /// The same where much comes before it, which is forgotten.
    async fn said_at_last(&mut self, what: &str) {
        while !self.text.contains(what) {
            self.text = last(&self.text, what.len()).to_owned();
            self.step().await;
        }
        self.text.clear();
    }

    /// Waits for an action of a type.
    async fn until(&mut self, kind: &str) -> Value {
        loop {
            if let Some(at) = self.actions.iter().position(|action| action["type"] == kind) {
                return self.actions.drain(..=at).next_back().unwrap();
            }
            self.step().await;
        }
    }

    /// Has the shell run a line; answers what it said before its next prompt.
    async fn run(&mut self, line: &str) -> String {
        self.type_in(&format!("{line}\r")).await;
        self.said("ready> ").await
    }

    /// Has the shell run a line that is to print this.
    async fn prints(&mut self, line: &str, expected: &str) {
        let said = self.run(line).await;
        assert!(said.contains(expected), "{line}: {said:?}, not {expected:?}");
    }

    async fn state(&mut self) -> Value {
        let uri = self.uri.clone();
        self.client.subscribe(&uri).await
    }
}

/// More than the host keeps of a terminal's output, in bytes.
const MORE_THAN_KEPT: usize = 1 << 20;

/// What a client has seen of a terminal. Of its state, not much more is retained than the host retains: it would grow to
/// all that was printed.
struct Seen {
    state: TerminalState,
    /// The end of what it shows.
    end: String,
    /// How many bytes came, and how often it began anew.
    bytes: usize,
    anew: usize,
}

impl Seen {
    fn new(state: Value) -> Self {
        let end = text_of(&state);
        Self { state: serde_json::from_value(state).unwrap(), end, bytes: 0, anew: 0 }
    }

    fn take(&mut self, action: &Value) {
        let applied: StateAction = serde_json::from_value(action.clone()).unwrap();
        apply_action_to_terminal(&mut self.state, &applied);
        match action["type"].as_str() {
            Some("terminal/data") => {
                let data = action["data"].as_str().unwrap();
                self.bytes += data.len();
                self.end.push_str(data);
            }
            Some("terminal/cleared") => {
                self.anew += 1;
                self.end.clear();
            }
            _ => {}
        }
        // Not with each action: that would copy everything each time.
        if self.end.len() > 2 * MORE_THAN_KEPT {
            self.end = last(&self.end, MORE_THAN_KEPT).to_owned();
            cut(&mut self.state);
        }
    }

    fn kept(&self) -> Value {
        kept(&serde_json::to_value(&self.state).unwrap())
    }
}

/// The end of a text, of at least that many bytes where it has them.
fn last(text: &str, bytes: usize) -> &str {
    let mut at = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[at..]
}

/// Forgets the beginning of what a state shows.
fn cut(state: &mut TerminalState) {
    let mut left = MORE_THAN_KEPT;
    for part in state.content.iter_mut().rev() {
        let text = match part {
            TerminalContentPart::Unclassified(part) => &mut part.value,
            TerminalContentPart::Command(part) => &mut part.output,
            TerminalContentPart::Unknown(_) => continue,
        };
        *text = last(text, left).to_owned();
        left = left.saturating_sub(text.len());
    }
}

/// All that a state shows.
fn text_of(state: &Value) -> String {
    let parts = state["content"].as_array().unwrap().iter();
    parts.map(|part| part["value"].as_str().or(part["output"].as_str()).unwrap()).collect()
}

/// A state with as much of its text as the host keeps.
fn kept(state: &Value) -> Value {
    let mut state = state.clone();
    let text = text_of(&state);
    let over = text.chars().count().saturating_sub(200_000);
    state["content"] = text.chars().skip(over).collect::<String>().into();
    state
}

/// The processes that terminals of a daemon started and that still run.
fn left(daemon: u32) -> Vec<String> {
    let marker = format!(".{daemon}.");
    let is_left = |process: &Path| {
        let environ = fs::read(process.join("environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| {
            let variable = String::from_utf8_lossy(variable);
            let scope = variable.strip_prefix("OSTLER_TERMINAL_SCOPE=ostler-terminal.");
            scope.is_some_and(|scope| scope.contains(&marker))
        })
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| is_left(&entry.path()))
        .map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " "))
        .collect()
}

async fn none_is_left(daemon: u32) {
    let end = Instant::now() + Duration::from_secs(20);
    while !left(daemon).is_empty() {
        assert!(Instant::now() < end, "{:?}", left(daemon));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_shell_is_typed_into_resized_and_ends() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({ "cols": 100, "rows": 30 })).await;
    terminal.said("ready> ").await;
    let state = terminal.state().await;
    assert_eq!(
        (&state["isPty"], &state["title"], &state["cols"]),
        (&json!(true), &json!("bash"), &json!(100))
    );
    terminal.prints("stty size; tty", "\r\n30 100\r\n/dev/pts/").await;
    terminal.dispatch(json!({ "type": "terminal/resized", "cols": 132, "rows": 50 })).await;
    terminal.until("terminal/resized").await;
    // The shell is told. It may draw its prompt again first, which it does only while it reads a line.
    terminal.type_in("stty size; echo $COLUMNS\r").await;
    terminal.said("\r\n50 132\r\n132\r\n").await;
    terminal.said("ready> ").await;
    // What interrupts a program passes through. One process from its first word on, because a shell that just forks can
    // miss an interrupt.
    terminal.type_in("sh -c 'echo up-$((1 + 1)); exec sleep 1000'\r").await;
    terminal.said("up-2\r\n").await;
    terminal.type_in("\u{3}").await;
    terminal.said("ready> ").await;
    terminal.prints("echo $?; printf '\\303\\251'; echo", "\r\n130\r\né\r\n").await;
    let pwd = fs::canonicalize(folder.path()).unwrap();
    terminal.prints("pwd", pwd.to_str().unwrap()).await;
    terminal.prints("env | grep -c ^OSTLER_TERMINAL_SCOPE= ; env | grep -c ^OSTLER_", "\r\n1\r\n1\r\n").await;
    terminal.type_in("exit 7\r").await;
    assert_eq!(terminal.until("terminal/exited").await, json!({ "type": "terminal/exited", "exitCode": 7 }));
    assert_eq!(terminal.state().await["lifecycle"], json!({ "status": "exited", "exitCode": 7 }));
    assert!(terminal.text.ends_with("exit 7\r\nexit\r\n"), "{:?}", terminal.text);
}

#[tokio::test]
async fn an_end_by_a_signal_has_no_exit_code_and_names_the_signal() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({})).await;
    terminal.said("ready> ").await;
    terminal.type_in("kill -KILL $$\r").await;
    assert_eq!(terminal.until("terminal/exited").await, json!({ "type": "terminal/exited" }));
    assert!(terminal.text.ends_with("SIGKILL\r\n"), "{:?}", terminal.text);
}

#[tokio::test]
async fn a_shell_that_cannot_start_says_why_and_ends_with_127() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({ "cwd": "file:///not/there" })).await;
    assert_eq!(terminal.text, "the directory /not/there is missing\r\n");
    assert_eq!(terminal.state().await["lifecycle"], json!({ "status": "exited", "exitCode": 127 }));
    drop(daemon);
    let daemon = start_with(&folder, "/not/a/shell");
    let mut terminal = Watcher::open(&daemon, json!({})).await;
    assert_eq!(terminal.text, "/not/a/shell is not installed\r\n");
    assert_eq!(terminal.state().await["lifecycle"], json!({ "status": "exited", "exitCode": 127 }));
}

#[tokio::test]
async fn two_clients_share_a_shell_and_its_holder_hands_it_over() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut one = Watcher::open(&daemon, json!({})).await;
    one.said("ready> ").await;
    let mut two = Watcher::of(daemon.initialized("two").await, ONE).await;
    assert!(two.text.ends_with("ready> "), "the scrollback is in the snapshot: {:?}", two.text);
    two.said("ready> ").await;
    two.type_in("echo from-$((1 + 1))\r").await;
    one.said("from-2\r\n").await;
    two.said("from-2\r\n").await;
    let claim = |client: &str| json!({ "type": "terminal/claimed", "claim": { "kind": "client", "clientId": client } });
    two.dispatch(claim("two")).await;
    loop {
        let seen = two.step().await;
        if let Some(why) = seen["rejectionReason"].as_str() {
            assert_eq!(why, "one has claimed this terminal; only it can hand it over");
            break;
        }
    }
    one.dispatch(claim("two")).await;
    assert_eq!(two.until("terminal/claimed").await["claim"]["clientId"], "two");
}

#[tokio::test]
async fn the_last_output_is_kept_for_who_comes_late() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({})).await;
    terminal.said("ready> ").await;
    let said = terminal.run("seq 1 100000").await;
    let numbers: Vec<&str> = said.lines().filter(|line| line.parse::<u32>().is_ok()).collect();
    assert_eq!((numbers.len(), numbers.last()), (100_000, Some(&"100000")));
    let late = Watcher::of(daemon.initialized("two").await, ONE).await;
    // Behind what the lines before it left on the screen.
    let (before, stored) = late.text.split_at(late.text.len() - last(&late.text, 200_000).len());
    assert!(before.starts_with("\u{1b}c") && before.len() < 10_000, "{before:?}");
    assert!(stored.chars().all(|character| "0123456789\r\nready> ".contains(character)));
    assert!(late.text.ends_with("99999\r\n100000\r\nready> "), "{:?}", &late.text[late.text.len() - 40..]);
}

/// Starts processes that would like to stay: in the background, without a terminal, and in a session of their own.
async fn stay(terminal: &mut Watcher) {
    terminal.said("ready> ").await;
    terminal.run("sleep 1001 & nohup sleep 1002 >/dev/null 2>&1 & setsid sh -c 'trap \"\" HUP TERM; sleep 1003; sleep 1003' &").await;
    terminal.type_in("trap '' HUP TERM; sleep 1004\r").await;
    terminal.said("sleep 1004\r\n").await;
}

async fn they_stay(daemon: &Daemon) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let left = left(daemon.child.id());
        if ["1001", "1002", "1003", "1004"].iter().all(|which| left.iter().any(|line| line.contains(which))) {
            return;
        }
        assert!(Instant::now() < end, "{left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A terminal whose processes would like to stay, contained this way.
async fn with_processes(scope: &str) -> (Folder, Daemon, Watcher) {
    let folder = folder(json!({ "scope": scope }));
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({})).await;
    stay(&mut terminal).await;
    they_stay(&daemon).await;
    (folder, daemon, terminal)
}

#[tokio::test]
async fn no_process_outlives_its_terminal() {
    for scope in SCOPES {
        let (_folder, daemon, mut terminal) = with_processes(scope).await;
        terminal.client.request("disposeTerminal", json!({ "channel": ONE })).await.unwrap();
        none_is_left(daemon.child.id()).await;
        // What a shell leaves when it exits goes, too.
        let mut terminal = Watcher::open(&daemon, json!({})).await;
        terminal.said("ready> ").await;
        terminal.run("setsid nohup sleep 1005 >/dev/null 2>&1 &").await;
        terminal.type_in("exit\r").await;
        terminal.until("terminal/exited").await;
        none_is_left(daemon.child.id()).await;
    }
}

#[tokio::test]
async fn no_process_outlives_the_daemon() {
    for scope in SCOPES {
        let (_folder, daemon, _terminal) = with_processes(scope).await;
        let id = daemon.child.id();
        assert_eq!(daemon.stop(), Some(0));
        none_is_left(id).await;
    }
}

#[tokio::test]
async fn the_next_start_removes_what_a_killed_daemon_left() {
    for scope in SCOPES {
        let (folder, daemon, _terminal) = with_processes(scope).await;
        let id = daemon.child.id();
        daemon.signal(Signal::KILL);
        drop(daemon);
        let again = start(&folder);
        none_is_left(id).await;
        drop(again);
    }
}

/// The path of a shell, if it is installed.
fn shell(name: &str) -> Option<String> {
    let found = ["/bin", "/usr/bin", "/usr/local/bin"].map(|folder| format!("{folder}/{name}"));
    let found = found.into_iter().find(|path| Path::new(path).is_file());
    if found.is_none() {
        ostler_testkit::not_run(&format!("{name} is not installed"));
    }
    found
}

#[tokio::test]
async fn shells_report_their_commands_where_that_is_asked_for() {
    for shell in ["bash", "zsh", "fish"].into_iter().filter_map(shell) {
        let folder = folder(json!({ "shellIntegration": true }));
        folder.write("a b;c/empty", "");
        let daemon = start_with(&folder, &shell);
        let mut terminal = Watcher::open(&daemon, json!({})).await;
        // Unless the shell was there before its client.
        if terminal.state().await["supportsCommandDetection"] != true {
            terminal.until("terminal/commandDetectionAvailable").await;
        }
        terminal.said("ready> ").await;
        let line = "sh -c 'echo one;echo two; exit 3'";
        terminal.type_in(&format!("{line}\r")).await;
        let executed = terminal.until("terminal/commandExecuted").await;
        assert_eq!(executed["commandLine"], line, "{shell}");
        let finished = terminal.until("terminal/commandFinished").await;
        assert_eq!(
            (&finished["commandId"], &finished["exitCode"]),
            (&executed["commandId"], &json!(3)),
            "{shell}"
        );
        assert!(finished["durationMs"].is_i64());
        terminal.said("ready> ").await;
        terminal.type_in("cd 'a b;c'\r").await;
        let moved = terminal.until("terminal/cwdChanged").await["cwd"].as_str().unwrap().to_owned();
        assert!(moved.ends_with("/a%20b;c") || moved.ends_with("/a%20b%3Bc"), "{shell}: {moved}");
        let state = terminal.state().await;
        assert_eq!(state["supportsCommandDetection"], true, "{shell}");
        let commands: Vec<&Value> =
            state["content"].as_array().unwrap().iter().filter(|part| part["type"] == "command").collect();
        assert_eq!(commands[0]["commandLine"], line, "{shell}");
        assert!(
            commands[0]["output"].as_str().unwrap().contains("one\r\ntwo\r\n"),
            "{shell}: {:?}",
            commands[0]
        );
        for mark in ["\u{1b}]133", "\u{1b}]633", "\u{1b}]7;"] {
            assert!(!text_of(&state).contains(mark), "{shell}: {mark:?} is left in the output");
        }
    }
}

/// How much a program prints where there is much, in MiB. `cargo xtask verify --long` sets it to 1024.
fn much() -> usize {
    std::env::var("OSTLER_TERMINAL_MEBIBYTES").map_or(24, |number| number.parse().unwrap())
}

/// How long much output may take to reach who reads it: two MiB a second, on a computer with other work.
async fn in_time<T>(reads: impl Future<Output = T>) -> T {
    let limit = STEP + Duration::from_millis(500) * u32::try_from(much()).unwrap();
    tokio::time::timeout(limit, reads).await.unwrap_or_else(|_| panic!("the output took more than {limit:?}"))
}

/// Prints that much, then a line.
fn print_much() -> String {
    format!("head -c {} /dev/zero | tr '\\0' x; echo; echo done-$((1 + 1))\r", much() << 20)
}

const END: &str = "\r\ndone-2\r\nready> ";

#[tokio::test(flavor = "multi_thread")]
async fn much_output_costs_its_scrollback_and_a_slow_client_delays_nobody() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut typist = Watcher::open(&daemon, json!({})).await;
    typist.said("ready> ").await;
    // Ones who hardly read until all is over, one who reads, and one who watches something else.
    let (printed, is_printed) = watch::channel(false);
    let mut slow = Vec::new();
    for client in ["slow-1", "slow-2"] {
        let (mut watcher, mut seen) = watching(&daemon, client).await;
        let is_printed = is_printed.clone();
        slow.push(tokio::spawn(async move {
            watcher.crawl(&mut seen, is_printed, END).await;
            seen
        }));
    }
    let mut other = daemon.initialized("other").await;
    let (mut reads, mut read) = watching(&daemon, "reads").await;
    drop(typist);
    let mut typist = daemon.initialized("typist").await;
    let memory = Peak::watch(&daemon);
    typist.dispatch(ONE, 1, json!({ "type": "terminal/input", "data": print_much() })).await;
    let (over, is_over) = tokio::sync::oneshot::channel();
    let asks = tokio::spawn(async move {
        let mut is_over = is_over;
        let mut longest = Duration::ZERO;
        while is_over.try_recv().is_err() {
            let asked = Instant::now();
            other.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
            longest = longest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        longest
    });
    in_time(reads.follow(&mut read, END)).await;
    over.send(()).unwrap();
    let longest = asks.await.unwrap();
    assert!(longest < Duration::from_secs(5), "another client waited for {longest:?}");
    let state = kept(&reads.state().await);
    assert!(read.bytes >= 200_000, "{}", read.bytes);
    assert_eq!(read.kept(), state);
    printed.send(true).unwrap();
    // One who crawls gets the scrollback again from time to time, so it reads more of an output that takes longer.
    let most = (16 << 20) + (much() << 20) / 16;
    for slow in slow {
        let seen = in_time(slow).await.unwrap();
        assert!(seen.anew > 0 && seen.bytes < most, "{}, {}", seen.anew, seen.bytes);
        assert_eq!(seen.kept(), state);
    }
    let peak = memory.bytes() >> 20;
    println!("peak {peak} MiB, {} bytes were read, another client waited for {longest:?}", read.bytes);
    assert!(peak > 0 && peak < 96, "the daemon takes {peak} MiB");
}

/// A client that watches the terminal, and what it saw of it so far.
async fn watching(daemon: &Daemon, name: &str) -> (Watcher, Seen) {
    let mut client = daemon.initialized(name).await;
    let seen = Seen::new(client.subscribe(ONE).await);
    (Watcher { client, uri: ONE.to_owned(), seq: 0, text: String::new(), actions: Vec::new() }, seen)
}

#[tokio::test]
async fn output_takes_no_place_from_what_a_client_missed_elsewhere() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut typist = Watcher::open(&daemon, json!({})).await;
    typist.said("ready> ").await;
    let mut client = daemon.initialized("back").await;
    client.request("createSession", json!({ "channel": "echo:/1" })).await.unwrap();
    // A session without a turn would end some time after its client has gone.
    let chat = ostler_protocol::uri::default_chat("echo:/1");
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Hello" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await;
    client.subscribe("echo:/1").await;
    let snapshot = client.request("subscribe", json!({ "channel": ONE })).await.unwrap()["snapshot"].clone();
    let mut seen = Seen::new(snapshot["state"].clone());
    drop(client);
    typist.dispatch(json!({ "type": "terminal/resized", "cols": 132, "rows": 50 })).await;
    typist.type_in(&print_much()).await;
    typist.until("terminal/resized").await;
    in_time(typist.said_at_last(END)).await;
    typist.client.dispatch("echo:/1", 1, json!({ "type": "session/titleChanged", "title": "Missed" })).await;
    typist.client.subscribe("echo:/1").await;
    let mut client = daemon.client().await;
    let params = json!({ "channel": "ahp-root://", "clientId": "back", "lastSeenServerSeq": snapshot["fromSeq"],
        "subscriptions": ["echo:/1", ONE] });
    let back = client.request("reconnect", params).await.unwrap();
    assert_eq!((&back["type"], &back["missing"]), (&json!("replay"), &json!([])), "{back}");
    let missed: Vec<&Value> =
        back["actions"].as_array().unwrap().iter().map(|one| &one["action"]["type"]).collect();
    assert!(missed.contains(&&json!("session/titleChanged")), "{missed:?}");
    // The terminal's state follows as actions.
    let mut watcher =
        Watcher { client, uri: ONE.to_owned(), seq: 0, text: String::new(), actions: Vec::new() };
    watcher.follow(&mut seen, END).await;
    watcher.until("terminal/claimed").await;
    seen.state.cols = Some(132);
    seen.state.rows = Some(50);
    assert_eq!(seen.kept(), kept(&typist.state().await));
}

#[tokio::test]
async fn a_program_that_sets_its_title_without_pause_is_listed_now_and_then() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({})).await;
    terminal.said("ready> ").await;
    let mut root = daemon.initialized("root").await;
    root.subscribe("ahp-root://").await;
    let begun = Instant::now();
    terminal.type_in("for i in $(seq 1 20000); do printf '\\033]2;title %d\\007' $i; done\r").await;
    let mut lists = 0;
    loop {
        let list = root.actions_until("root/terminalsChanged").await.pop().unwrap();
        lists += 1;
        if list["action"]["terminals"][0]["title"] == "title 20000" {
            break;
        }
    }
    let most = 2 + begun.elapsed().as_millis() / 150;
    assert!(lists <= most, "{lists} lists in {:?}", begun.elapsed());
    while terminal.until("terminal/titleChanged").await["title"] != "title 20000" {}
    // Once for everything that is printed together.
    assert_eq!(terminal.state().await["title"], "title 20000");
}

#[tokio::test]
async fn a_resize_does_not_wait_for_what_is_typed_and_not_read() {
    let folder = folder(json!({}));
    // In one process group with what it starts, so that it hears of the size.
    let script =
        "stty raw -echo; trap 'echo size: $(stty size)' WINCH; echo up-2; while :; do sleep 0.05; done";
    folder.write("wait.sh", script);
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({})).await;
    terminal.said("ready> ").await;
    terminal.type_in("bash wait.sh\r").await;
    terminal.said("up-2").await;
    for _ in 0..100 {
        terminal.type_in(&"x".repeat(4000)).await;
    }
    terminal.dispatch(json!({ "type": "terminal/resized", "cols": 132, "rows": 50 })).await;
    terminal.said("size: 50 132").await;
}

#[tokio::test]
async fn shells_are_left_alone_where_nobody_asks() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut terminal = Watcher::open(&daemon, json!({})).await;
    terminal.said("ready> ").await;
    terminal.prints("echo \"[$PROMPT_COMMAND]$PS0\"", "\r\n[]\r\n").await;
    assert_eq!(terminal.state().await["supportsCommandDetection"], false);
}
