//! An ACP agent that does what it is told: by its configuration in `FAKE_AGENT`, and line by line by each prompt.
//!
//! It runs in the test's own binary, as the test [`run`]. Its protocol is on file descriptor 3, as the test harness
//! writes to stdout.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Read, Stdin, Write, stdin};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::frames;

/// The agent itself, where it is asked for; otherwise a test that has nothing to do.
#[test]
fn run() {
    if let Ok(config) = std::env::var("FAKE_AGENT") {
        let config = serde_json::from_str(&config).unwrap();
        Agent::new(config).serve();
        exit(0);
    }
}

/// The configuration of the plugin that starts it.
pub fn entry(config: Value) -> Value {
    let binary = std::env::current_exe().unwrap();
    let line = format!("exec \"{}\" agent::run --exact --nocapture 3>&1 1>/dev/null", binary.display());
    json!({ "command": "/bin/sh", "args": ["-c", line], "env": { "FAKE_AGENT": config.to_string() } })
}

/// The same for an agent that has another configuration once this file is there.
pub fn changing(before: Value, flag: &Path, after: &Value) -> Value {
    let mut entry = entry(before);
    let line = entry["args"][1].as_str().unwrap().to_owned();
    entry["env"]["CHANGED_AGENT"] = after.to_string().into();
    entry["args"][1] =
        format!("if [ -e {} ]; then FAKE_AGENT=\"$CHANGED_AGENT\"; fi; {line}", flag.display()).into();
    entry
}

/// Adds a frame to a log that tests read meanwhile: with one write, so that they see whole lines.
fn log_frame(log: &mut File, frame: &Value) {
    log.write_all(format!("{frame}\n").as_bytes()).unwrap();
}

struct Agent {
    config: Value,
    out: File,
    lines: Lines<BufReader<Stdin>>,
    /// What arrived while an answer was waited for.
    parked: VecDeque<Value>,
    session: String,
    /// The MCP servers of the session.
    servers: Value,
    next: u64,
    /// The methods of its own requests, by id.
    asked: HashMap<String, String>,
    cancelled: bool,
    /// The error that the prompt is answered with.
    refusal: Option<Value>,
    /// The answers to what it asked before its session was open.
    answers: Vec<Value>,
    /// What it says after the answer to its prompt: each after so many milliseconds.
    late: Vec<(u64, String)>,
}

impl Agent {
    fn new(config: Value) -> Self {
        Self {
            config,
            out: OpenOptions::new().write(true).open("/dev/fd/3").unwrap(),
            lines: BufReader::new(stdin()).lines(),
            parked: VecDeque::new(),
            session: "session-1".to_owned(),
            servers: Value::Null,
            next: 0,
            asked: HashMap::new(),
            cancelled: false,
            refusal: None,
            answers: Vec::new(),
            late: Vec::new(),
        }
    }

    fn line(&mut self, line: &str) {
        let _ = self.out.write_all(format!("{line}\n").as_bytes());
    }

    fn send(&mut self, message: Value) {
        if let (Some(log), true) = (self.config["sent"].as_str(), message["method"].is_string()) {
            let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
            log_frame(&mut log, &message);
        }
        let (before, after) = (&self.config["before"], &self.config["after"]);
        let [before, after] = [before, after].map(|text| text.as_str().unwrap_or_default());
        self.line(&format!("{before}{message}{after}"));
    }

    fn update(&mut self, update: Value) {
        let params = json!({ "sessionId": self.session, "update": update });
        self.send(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    fn say(&mut self, text: &str) {
        self.update(chunk(text));
    }

    /// Says what is left to say after a turn, while it hears the next prompt.
    fn say_late(&mut self) {
        let late = std::mem::take(&mut self.late);
        let (mut out, session) = (self.out.try_clone().unwrap(), self.session.clone());
        std::thread::spawn(move || {
            for (millis, text) in late {
                // As long as the script says.
                sleep(Duration::from_millis(millis));
                let params = json!({ "sessionId": session, "update": chunk(&text) });
                let message = match text.starts_with('{') {
                    true => serde_json::from_str(&text).unwrap(),
                    false => json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }),
                };
                let _ = out.write_all(format!("{message}\n").as_bytes());
            }
        });
    }

    /// The next message; at the end of its input the agent ends, unless it is configured not to.
    fn read(&mut self) -> Value {
        loop {
            match self.lines.next() {
                Some(Ok(line)) => {
                    let message: Value = serde_json::from_str(&line).unwrap();
                    let mut logged = message.clone();
                    let answers = self
                        .asked
                        .get(&message["id"].to_string())
                        .filter(|_| message.get("method").is_none());
                    if let Some(method) = answers {
                        logged["answers"] = method.as_str().into();
                    }
                    if let Some(log) = self.config["log"].as_str() {
                        let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
                        log_frame(&mut log, &logged);
                    }
                    self.insist(&logged);
                    return message;
                }
                // Until it is killed.
                _ if self.config["ignoreEof"] == true => sleep(Duration::from_secs(600)),
                _ => exit(0),
            }
        }
    }

    /// Ends with an error where a frame does not fit the protocol's schema, which fails the test. Of hundreds of agents at
    /// once none checks.
    fn insist(&self, frame: &Value) {
        if self.config["ignoreEof"] == true {
            return;
        }
        let (method, problems) = frames::check(frame);
        if !problems.is_empty() {
            eprintln!("{method} does not fit the schema: {problems:?}");
            exit(70);
        }
    }

    fn serve(&mut self) {
        if let Some(text) = self.config["stderr"].as_str() {
            eprintln!("{text}");
        }
        if self.config["daemon"] == true {
            // In a session of its own, as some agents leave one.
            let mut command = Command::new("setsid");
            command.args(["sleep", "300"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap();
        }
        if let Some(garbage) = self.config["garbage"].as_u64() {
            for at in 0..garbage {
                self.line(&format!("Welcome to the agent, line {at}"));
            }
        }
        loop {
            let message = match self.parked.pop_front() {
                Some(message) => message,
                None => self.read(),
            };
            self.handle(&message);
        }
    }

    fn handle(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if method == "session/cancel" {
            self.cancelled = true;
        }
        let Some(id) = message.get("id").filter(|_| !method.is_empty()).cloned() else { return };
        if message["params"].get("mcpServers").is_some() {
            self.servers = message["params"]["mcpServers"].clone();
        }
        if self.config["hangOn"] == method.as_str() {
            return;
        }
        if self.config["exitOn"] == method.as_str()
            || self.config["exitOn"].as_array().is_some_and(|all| all.contains(&json!(method)))
        {
            eprintln!("fatal: told to end");
            exit(9);
        }
        if let Some(mut question) = self.config["ask"].get(&method).cloned() {
            question["requestId"] = id.clone();
            let answer = self.request("elicitation/create", question);
            if answer["action"] != "accept" {
                let error = json!({ "code": -32603, "message": format!("answered {answer}") });
                return self.send(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        }
        for asked in self.config["requests"][&method].as_array().cloned().unwrap_or_default() {
            let answer = self.request(asked[0].as_str().unwrap(), asked[1].clone());
            self.answers.push(answer);
        }
        for asked in self.config["unanswered"][&method].as_array().cloned().unwrap_or_default() {
            self.ask(asked[0].as_str().unwrap(), asked[1].clone());
        }
        if let Some(error) = self.config["refuse"].get(&method).cloned()
            && self.config["refusesUntil"].as_str().is_none_or(|flag| !Path::new(flag).exists())
        {
            if let Some(flag) = self.config["refusesUntil"].as_str() {
                fs::write(flag, "").unwrap();
            }
            return self.send(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
        if let Some(members) = self.config["answers"].get(&method).cloned() {
            let mut answer = json!({ "jsonrpc": "2.0", "id": id });
            overlay(&mut answer, &members);
            return self.send(answer);
        }
        if self.config["announces"] == true {
            self.announce_change(&method, &message["params"]);
        }
        let answer = match method.as_str() {
            "initialize" => {
                let mut answer = json!({ "protocolVersion": 1, "agentInfo": { "name": "fake", "version": "1.0.0" },
                    "agentCapabilities": { "mcpCapabilities": { "http": true } } });
                overlay(&mut answer, &self.config["initialize"]);
                answer
            }
            "session/new" => {
                for update in self.config["early"].as_array().cloned().unwrap_or_default() {
                    self.update(update);
                }
                if let Some((count, size)) =
                    self.config["earlyBulk"].as_str().and_then(|bulk| bulk.split_once(' '))
                {
                    let text = "x".repeat(size.parse().unwrap());
                    for _ in 0..count.parse().unwrap() {
                        self.say(&text);
                    }
                }
                let mut answer = json!({ "sessionId": self.session });
                overlay(&mut answer, &self.config["new"]);
                self.session = answer["sessionId"].as_str().unwrap().to_owned();
                answer
            }
            "session/load" | "session/resume" => {
                self.session = message["params"]["sessionId"].as_str().unwrap().to_owned();
                for update in self.config["replay"].as_array().cloned().unwrap_or_default() {
                    self.update(update);
                }
                let mut answer = json!({});
                overlay(&mut answer, &self.config["new"]);
                answer
            }
            "session/fork" => {
                self.session = format!("forked-{}", message["params"]["sessionId"].as_str().unwrap());
                json!({ "sessionId": self.session })
            }
            "session/prompt" => {
                self.cancelled = false;
                let Some(reason) = self.prompt(&message["params"]["prompt"]) else {
                    if let Some(error) = self.refusal.take() {
                        self.send(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
                    }
                    return;
                };
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "stopReason": reason } });
                self.send(answer);
                self.say_late();
                if let Some(late) = self.config["late"].as_str().map(str::to_owned) {
                    sleep(Duration::from_millis(15));
                    self.say(&late);
                }
                return;
            }
            "session/set_config_option" => {
                let mut options = self.config["new"]["configOptions"].clone();
                for option in options.as_array_mut().into_iter().flatten() {
                    if option["id"] == message["params"]["configId"] {
                        option["currentValue"] = message["params"]["value"].clone();
                    }
                }
                self.config["new"]["configOptions"] = options.clone();
                json!({ "configOptions": options })
            }
            "session/list" => {
                // Two a page.
                let from: usize =
                    message["params"]["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
                let all = self.config["sessions"].as_array().cloned().unwrap_or_default();
                if self.config["endless"] == true {
                    let page = json!({ "sessions": [], "nextCursor": (from + 1).to_string() });
                    return self.send(json!({ "jsonrpc": "2.0", "id": id, "result": page }));
                }
                let mut page = json!({ "sessions": all.iter().skip(from).take(2).collect::<Vec<_>>() });
                if all.len() > from + 2 {
                    page["nextCursor"] = (from + 2).to_string().into();
                }
                page
            }
            "authenticate" if self.config["opens"].is_object() => {
                let mut page = self.config["opens"].clone();
                page["requestId"] = id.clone();
                let answer = self.request("elicitation/create", page);
                assert_eq!(answer["action"], "accept", "{answer}");
                json!({})
            }
            "logout" | "authenticate" | "session/set_mode" | "session/set_model" | "session/close"
            | "session/delete" => json!({}),
            _ => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                return self.send(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        };
        self.send(json!({ "jsonrpc": "2.0", "id": id, "result": answer }));
    }

    /// Announces a changed setting before it answers the request.
    fn announce_change(&mut self, method: &str, params: &Value) {
        match method {
            "session/set_mode" => self
                .update(json!({ "sessionUpdate": "current_mode_update", "currentModeId": params["modeId"] })),
            "session/set_config_option" => {
                let mut options = self.config["new"]["configOptions"].clone();
                let mut all = options.as_array_mut().unwrap().iter_mut();
                all.find(|option| option["id"] == params["configId"]).unwrap()["currentValue"] =
                    params["value"].clone();
                self.update(json!({ "sessionUpdate": "config_option_update", "configOptions": options }));
            }
            _ => {}
        }
    }

    /// Does what the prompt's lines say. Answers why it stopped, or nothing where no answer is to be sent.
    fn prompt(&mut self, blocks: &Value) -> Option<&'static str> {
        let texts: Vec<String> = blocks.as_array().unwrap().iter().map(text_of).collect();
        // Hidden context comes before the text of the message.
        let script = texts.iter().find(|text| text.starts_with('!')).cloned();
        let Some(script) = script else {
            self.say(&format!("You said: {}", texts.join(" | ")));
            return Some("end_turn");
        };
        for line in script.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let json = || serde_json::from_str::<Value>(rest).unwrap_or_else(|why| panic!("{rest}: {why}"));
            match word {
                "!say" => self.say(rest),
                "!heard" => self.say(&texts.join(" | ")),
                "!blocks" => self.say(&blocks.to_string()),
                "!update" => self.update(json()),
                "!commands" => {
                    let command = |at| json!({ "name": format!("c{at}"), "description": "x".repeat(200) });
                    let commands: Vec<Value> = (0..rest.parse::<u64>().unwrap()).map(command).collect();
                    self.update(json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }));
                }
                "!calls" => {
                    for at in 0..rest.parse::<u64>().unwrap() {
                        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": format!("c{at}"), "title": "Call",
                            "status": "completed" });
                        self.update(call);
                    }
                }
                "!notify" => {
                    let (method, params) = rest.split_once(' ').unwrap();
                    let params: Value = serde_json::from_str(params).unwrap();
                    self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
                }
                "!raw" => {
                    let message: Value = serde_json::from_str(rest).unwrap_or_default();
                    if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
                        self.asked.insert(id.to_string(), method.to_owned());
                    }
                    self.line(rest);
                }
                "!flood" => {
                    for at in 0..rest.parse().unwrap() {
                        self.say(&format!("{at} "));
                    }
                }
                "!bulk" => {
                    let (count, size) = rest.split_once(' ').unwrap();
                    let text = "x".repeat(size.parse().unwrap());
                    for _ in 0..count.parse().unwrap() {
                        self.say(&text);
                    }
                }
                "!request" => {
                    let (method, params) = rest.split_once(' ').unwrap();
                    let answer = self.request(method, serde_json::from_str(params).unwrap());
                    self.say(&answer.to_string());
                }
                "!requests" => {
                    // None of the answers is waited for.
                    let (count, request) = rest.split_once(' ').unwrap();
                    let (method, params) = request.split_once(' ').unwrap();
                    for _ in 0..count.parse().unwrap() {
                        self.ask(method, serde_json::from_str(params).unwrap());
                    }
                }
                "!answers" => self.say(&Value::from(self.answers.clone()).to_string()),
                "!after" => {
                    let (millis, text) = rest.split_once(' ').unwrap();
                    self.late.push((millis.parse().unwrap(), text.to_owned()));
                }
                "!later" => {
                    // A request, right after what is said late.
                    let message = json();
                    let method = message["method"].as_str().unwrap().to_owned();
                    self.asked.insert(message["id"].to_string(), method);
                    self.late.push((0, rest.to_owned()));
                }
                "!trickle" => {
                    let (count, millis) = rest.split_once(' ').unwrap();
                    let dot = (millis.parse().unwrap(), ".".to_owned());
                    self.late.extend(vec![dot; count.parse().unwrap()]);
                }
                "!pid" => self.say(&std::process::id().to_string()),
                "!shell" => drop(Command::new("sh").args(["-c", rest]).stdout(Stdio::null()).status()),
                "!output" => {
                    let output = Command::new("sh").args(["-c", rest]).output().unwrap();
                    self.say(&String::from_utf8_lossy(&output.stdout));
                }
                "!withdraw" => self.ask_and_withdraw(&json()),
                "!env" => self.say(&std::env::var(rest).unwrap_or_else(|_| "nothing".to_owned())),
                // As long as the script says.
                "!sleep" => sleep(Duration::from_millis(rest.parse().unwrap())),
                "!fill" => {
                    // Written to, so that it is occupied; never freed.
                    let megabytes: usize = rest.parse().unwrap();
                    std::mem::forget(vec![1_u8; megabytes << 20]);
                }
                "!touch" => fs::write(rest, "").unwrap(),
                "!stderr" => eprintln!("{rest}"),
                "!exit" => exit(rest.parse().unwrap()),
                "!abort" => {
                    let _ = Command::new("sh")
                        .args(["-c", "kill -KILL $0", &std::process::id().to_string()])
                        .status();
                    // Until the signal arrives.
                    sleep(Duration::from_secs(10));
                }
                "!hang" => return None,
                "!refuse" => {
                    self.refusal = Some(json());
                    return None;
                }
                "!stop" => return Some(String::from(rest).leak()),
                "!wait" => {
                    // Until the turn is cancelled.
                    while !self.cancelled {
                        let message = self.read();
                        self.handle(&message);
                    }
                    if !rest.is_empty() {
                        // The host begins the next turn before it is said, if it does not wait for this one.
                        sleep(Duration::from_millis(100));
                        self.say(rest);
                    }
                    return Some("cancelled");
                }
                "!mcp-changes" => {
                    let change = self.mcp_change();
                    self.say(&change);
                }
                "!mcp" => {
                    let answer = self.mcp(rest);
                    self.say(&answer);
                }
                other => panic!("no directive {other}"),
            }
        }
        Some("end_turn")
    }

    /// Sends a request and waits for its answer.
    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer_of(&id)
    }

    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.next += 1;
        let id = json!(format!("fake-{}", self.next));
        self.asked.insert(id.to_string(), method.to_owned());
        // A question about another request is about no session.
        if params.get("requestId").is_none() && params.get("sessionId").is_none() {
            params["sessionId"] = self.session.as_str().into();
        }
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    fn answer_of(&mut self, id: &Value) -> Value {
        loop {
            let message = self.read();
            if message["id"] == *id && message.get("method").is_none() {
                return message.get("result").cloned().unwrap_or_else(|| message["error"].clone());
            }
            if message["method"] == "session/cancel" {
                self.cancelled = true;
            }
            self.parked.push_back(message);
        }
    }

    fn ask_and_withdraw(&mut self, params: &Value) {
        let id = self.ask("session/request_permission", params.clone());
        // The question may be asked by then, or not.
        sleep(Duration::from_millis(20));
        self.send(json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } }));
        let answer = self.answer_of(&id);
        self.say(&answer.to_string());
    }

    /// Opens the stream of the MCP server `ostler`, says so, and waits for its first message.
    fn mcp_change(&mut self) -> String {
        let server =
            self.servers.as_array().unwrap().iter().find(|server| server["name"] == "ostler").unwrap();
        if server.get("url").is_none() {
            let mut bridge = Bridge::start(server);
            self.say("listening ");
            return bridge.line();
        }
        let (url, token) = (server["url"].as_str().unwrap(), server["headers"][0]["value"].as_str().unwrap());
        let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET /{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {token}\r\nAccept: text/event-stream\r\n\r\n"
        )
        .unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert!(lines.next().unwrap().unwrap().contains("200"));
        self.say("listening ");
        loop {
            let line = lines.next().expect("a message").unwrap();
            if let Some(message) = line.strip_prefix("data:") {
                return message.trim().to_owned();
            }
        }
    }

    /// Asks the MCP server `ostler`, over HTTP or stdio: `<method> <parameters>`.
    fn mcp(&mut self, call: &str) -> String {
        let (method, params) = call.split_once(' ').unwrap_or((call, "{}"));
        let server =
            self.servers.as_array().and_then(|all| all.iter().find(|server| server["name"] == "ostler"));
        let Some(server) = server else { return "no server".to_owned() };
        if server.get("url").is_none() {
            return mcp_over_stdio(server, method, params);
        }
        let (url, header) = (server["url"].as_str().unwrap(), &server["headers"][0]);
        let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let params: Value = serde_json::from_str(params).unwrap();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let (name, value) = (header["name"].as_str().unwrap(), header["value"].as_str().unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{name}: {value}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

/// An MCP server on stdio, after its handshake.
struct Bridge {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    input: ChildStdin,
}

impl Bridge {
    fn start(server: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let env = server["env"].as_array().unwrap();
        let mut child = Command::new(text(&server["command"]))
            .args(server["args"].as_array().unwrap().iter().map(text))
            .envs(env.iter().map(|pair| (text(&pair["name"]), text(&pair["value"]))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let input = child.stdin.take().unwrap();
        let mut bridge = Self { child, lines, input };
        let about = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "fake", "version": "1" } });
        let greeted = bridge.ask(1, "initialize", about);
        assert!(greeted.contains("\"result\""), "{greeted}");
        bridge
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a message").unwrap()
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) -> String {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{message}").unwrap();
        loop {
            let line = self.line();
            if serde_json::from_str::<Value>(&line).unwrap()["id"] == id {
                return line;
            }
        }
    }

    /// Closes its input, and waits for its end.
    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Starts an MCP server, asks it one thing after the handshake, and closes its input.
fn mcp_over_stdio(server: &Value, method: &str, params: &str) -> String {
    let mut bridge = Bridge::start(server);
    let answer = bridge.ask(2, method, serde_json::from_str(params).unwrap());
    bridge.end();
    answer
}

fn chunk(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

fn text_of(block: &Value) -> String {
    block["text"].as_str().or_else(|| block["uri"].as_str()).unwrap_or_default().to_owned()
}

/// Puts the members of one object over those of another, at every depth.
fn overlay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                overlay(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (under, over) => *under = over.clone(),
    }
}
