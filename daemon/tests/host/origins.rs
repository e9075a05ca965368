//! Origins: one text enters a real daemon by every way, and sets off what the table in `crates/protocol/src/origins.rs` lets
//! it set off and nothing else. A new way in does not compile here until it is driven, or names the test that drives it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::{Client, Daemon, Folder};
use ostler_protocol::origins::{Effect, Rule, WayIn, rule};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A backend that answers with the text that it was given, and runs command lines. `call <JSON>` opens a chat by the tool of
/// the host with that input; `name <text>` gives the session that title; `mcp <text>` shows a call of an MCP server's tool in which
/// everything is that text: the host itself connects to no MCP server.
const AGENT: &str = r"
export const name = 'agent';
export function apply(host) {
  host.registerAgent({
    provider: 'agent', displayName: 'Agent', chats: {},
    schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
    create(start) {
      const end = (turnId, content) => {
        start.emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content } });
        start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
      };
      let held;
      return {
        async begin(turnId, text) {
          if (text === 'hold') held = turnId;
          else if (text.startsWith('call ')) {
            await start.tools.find(({ definition }) => definition.name === 'createChat').run(JSON.parse(text.slice(5)));
            end(turnId, 'called');
          } else if (text.startsWith('name ')) {
            start.emit('session', { type: 'session/titleChanged', title: text.slice(5) });
            end(turnId, 'named');
          } else if (text.startsWith('mcp ')) {
            const said = text.slice(4);
            const call = { turnId, toolCallId: 'm' };
            const contributor = { kind: 'mcp', customizationId: said };
            start.emit('chat', { type: 'chat/toolCallStart', ...call, toolName: said, displayName: said, contributor });
            start.emit('chat', { type: 'chat/toolCallReady', ...call, invocationMessage: said, toolInput: said, confirmed: 'not-needed' });
            const result = { success: true, pastTenseMessage: said, content: [{ type: 'text', text: said }] };
            start.emit('chat', { type: 'chat/toolCallComplete', ...call, result });
            end(turnId, 'shown');
          } else end(turnId, `asked:${text}`);
        },
        async ran(turnId, command, run) {
          const terminal = await run('call');
          await terminal.wait();
          end(turnId, `ran:${command}`);
        },
        steer: () => false,
        cancel: (turnId) => end(turnId, 'held'),
        close() {},
      };
    },
  });
}
";

/// What has to be ordinary text in every place: each part would leave a file with the way's name behind, be filled in, be
/// read, be markup, or move a terminal's cursor. It begins with `!` for the command line.
fn probe(folder: &Folder, way: WayIn) -> String {
    let place = folder.path().join("set-off");
    let (place, way) = (place.display(), way.name());
    format!(
        "!touch {place}/line-{way}\n; touch {place}/semicolon-{way}; $(touch {place}/dollar-{way}) `touch {place}/tick-{way}` \
         /fail @file:///etc/passwd #secret {{{{event.secret}}}} {{{{ text }}}} --upload-pack=touch \
         \u{1b}]0;forged\u{7}\u{1b}[31mred <img src=x onerror=alert(1)> \n---\nid: evil\n---\n"
    )
}

fn folder() -> Folder {
    let folder = Folder::new(json!({}));
    let grants = ["bot:get", "bot:chat", "session:read", "session:create", "session:write"];
    let config = json!({
        "port": 0, "deltaWindowMs": 0, "plugins": [
            { "name": "./agent.mjs" },
            { "name": "@ostler/terminal", "options": { "shell": "/bin/sh" } },
            { "name": "@ostler/bot", "options": { "root": folder.path().join("bot-folders") } },
            { "name": "@ostler/webhook", "grants": grants },
        ]
    });
    folder.write("config.json", &config.to_string());
    folder.write("agent.mjs", AGENT);
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    folder.write("bots/desk.md", "---\nid: desk\nname: Desk\nharness: agent\nanswers: true\n---\n");
    folder.write("webhooks/desk.md", "---\nid: desk\nbot: bot://desk\nsecret: host:in\nreply: sync\n---\n");
    folder.write("webhooks/hook.md", "---\nid: hook\nautomation: true\nsecret: host:in\n---\n");
    folder.write(
        "automations/note.md",
        "---\ntitle: Hook\nenabled: true\nsession: { provider: agent }\ntriggers:\n  - id: called\n    kind: event\n    \
         type: webhook\n    title: Called\n    events: [{ id: call }]\n    config: { endpoint: hook }\n---\n{{event.text}}\n",
    );
    fs::create_dir(folder.path().join("set-off")).unwrap();
    folder
}

/// What the probes have set off so far: names of files.
fn set_off(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path().join("set-off")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A client in a new session, subscribed to its chat.
struct Talk {
    client: Client,
    chat: String,
    seq: i64,
}

impl Talk {
    async fn new(daemon: &Daemon, session: &str) -> Self {
        let mut client = daemon.initialized(session).await;
        client.request("createSession", json!({ "channel": session, "provider": "agent" })).await.unwrap();
        let chat = ostler_protocol::uri::default_chat(session);
        client.subscribe(&chat).await;
        Self { client, chat, seq: 0 }
    }

    async fn dispatch(&mut self, action: Value) {
        self.seq += 1;
        self.client.dispatch(&self.chat, self.seq, action).await;
    }

    /// Sends a message as a turn and waits for its end.
    async fn say(&mut self, text: &str) {
        let turn = format!("t{}", self.seq);
        self.dispatch(json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } }))
            .await;
        self.client.actions_until("chat/turnComplete").await;
    }

    /// Starts a turn that lasts until it is cancelled.
    async fn hold(&mut self) {
        self.dispatch(json!({ "type": "chat/turnStarted", "turnId": "held", "message": { "text": "hold" } }))
            .await;
        self.client.actions_until("chat/turnStarted").await;
    }

    async fn pending(&mut self, kind: &str, text: &str) {
        let message = json!({ "text": text });
        self.dispatch(
            json!({ "type": "chat/pendingMessageSet", "kind": kind, "id": "q", "message": message }),
        )
        .await;
        self.client.actions_until("chat/pendingMessageSet").await;
    }

    /// Ends the held turn, and waits for the one that waited.
    async fn release(&mut self) {
        self.dispatch(json!({ "type": "chat/turnCancelled", "turnId": "held" })).await;
        self.client.actions_until("chat/turnStarted").await;
        self.client.actions_until("chat/turnComplete").await;
    }
}

/// Sends the probe by a way. `None` if another test drives it, whose file and name the text says.
async fn drive(folder: &Folder, daemon: &Daemon, way: WayIn) -> Result<(), (&'static str, &'static str)> {
    let text = probe(folder, way);
    let session = format!("agent:/{}", way.name());
    match way {
        WayIn::Client => Talk::new(daemon, &session).await.say(&text).await,
        WayIn::Queue => {
            let mut talk = Talk::new(daemon, &session).await;
            talk.hold().await;
            talk.pending("queued", &text).await;
            talk.release().await;
        }
        WayIn::Steering => {
            let mut talk = Talk::new(daemon, &session).await;
            talk.hold().await;
            talk.pending("steering", &text).await;
            talk.release().await;
        }
        WayIn::Edited => {
            let mut talk = Talk::new(daemon, &session).await;
            talk.hold().await;
            talk.pending("queued", "Something else.").await;
            talk.pending("queued", &text).await;
            talk.release().await;
        }
        WayIn::Draft => {
            let mut talk = Talk::new(daemon, &session).await;
            talk.dispatch(json!({ "type": "chat/draftChanged", "draft": { "text": text } })).await;
            let drafted = talk.client.actions_until("chat/draftChanged").await.pop().unwrap();
            talk.say(drafted["action"]["draft"]["text"].as_str().unwrap()).await;
        }
        WayIn::Attachment => {
            let mut talk = Talk::new(daemon, &session).await;
            let attached = json!([{ "type": "embeddedResource", "label": text, "data": STANDARD.encode(&text), "contentType": "text/plain" }]);
            let message = json!({ "text": "Look.", "attachments": attached });
            talk.dispatch(json!({ "type": "chat/turnStarted", "turnId": "t", "message": message })).await;
            talk.client.actions_until("chat/turnComplete").await;
        }
        WayIn::CommandLine => {
            let sent = folder.run(&["session", "send", "--new", "--provider", "agent", &text]);
            assert_eq!(sent.code, Some(0), "{}", sent.err);
        }
        WayIn::Editor => edit(folder, &text),
        WayIn::BotCall => {
            let body = json!({ "thread": text, "text": text }).to_string();
            let (code, answer) = daemon.post("/plugins/webhook/desk", Some("right"), &body).await;
            assert_eq!(code, 200, "{answer}");
        }
        WayIn::AutomationEvent => {
            let mut client = daemon.initialized("runs").await;
            client.subscribe("ahp-automations://").await;
            let body = json!({ "text": text, "secret": "filled in" }).to_string();
            let (code, answer) = daemon.post("/plugins/webhook/hook", Some("right"), &body).await;
            assert_eq!(code, 202, "{answer}");
            client.ended_runs(1).await;
        }
        WayIn::Agent => {
            let mut talk = Talk::new(daemon, &session).await;
            talk.say(&format!("name {text}")).await;
            talk.client.subscribe(&session).await;
            talk.say(&format!("call {}", json!({ "prompt": text, "title": text }))).await;
            let state = talk.client.subscribe(&session).await;
            let chat = state["chats"][1]["resource"].as_str().unwrap().to_owned();
            while talk.client.subscribe(&chat).await["turns"][0].is_null() {
                tokio::task::yield_now().await;
            }
        }
        WayIn::CallbackAnswer => call_back(folder, daemon, &text).await,
        WayIn::HttpApi => call_api(way).await,
        WayIn::Plugin | WayIn::Console => {
            return Err((
                "crates/engine/tests/people/command_lines.rs",
                "a_way_in_that_is_offered_command_lines_may_send_them_on_every_road",
            ));
        }
        WayIn::NotificationLink => {
            return Err(("daemon/src/notify/page.rs", "nothing_of_a_session_is_markup_or_hides_what_it_is"));
        }
        WayIn::McpServer => {
            let mut talk = Talk::new(daemon, &session).await;
            talk.say(&format!("mcp {text}")).await;
            let state = talk.client.subscribe(&talk.chat).await.to_string();
            assert!(state.contains("line-mcp-server"), "{state}");
        }
        WayIn::Repository => {
            return Err((
                "daemon/tests/host/git_programs.rs",
                "no_read_runs_a_program_that_a_repository_names",
            ));
        }
    }
    Ok(())
}

/// The HTTP API, which a host has only with a token. It sends no messages; what it takes is a name, a value or the body of a
/// call.
async fn call_api(way: WayIn) {
    let folder = folder();
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["http"] = json!(true);
    config["connectionToken"] = json!("let me in");
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let text = probe(&folder, way);
    let ask = async |head: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = "Authorization: Bearer let me in\r\nContent-Type: application/json\r\n";
        daemon.ask(head, headers, &body).await
    };
    for (path, body) in [
        ("plugin/config", json!({ "name": text, "options": { "shell": text } })),
        ("plugin/install", json!({ "name": text })),
        ("webhook/test", json!({ "id": text })),
    ] {
        let (code, answer) = ask(&format!("POST /api/{path}"), &body).await;
        assert!((400..500).contains(&code) && code != 404, "{path}: {code} {answer}");
    }
    // Answers are texts, too; here nothing waits for one.
    for (verb, body) in [
        ("approve", json!({ "request": text, "option": text })),
        ("reject", json!({ "reason": text })),
        ("answer", json!({ "answers": [text] })),
    ] {
        let (code, answer) = ask(&format!("POST /api/session/{verb}/none"), &body).await;
        assert_eq!(code, 404, "{verb}: {answer}");
    }
    let event = json!({ "text": text, "secret": "filled in" });
    let (code, answer) =
        ask("POST /api/webhook/test", &json!({ "id": "hook", "body": event.to_string() })).await;
    assert!(code == 200 && answer["status"] == 202, "{code} {answer}");
    loop {
        let (code, answer) = ask("GET /api/runs", &Value::Null).await;
        assert_eq!(code, 200, "{answer}");
        if answer["runs"][0]["endedAt"].is_string() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(set_off(&folder).is_empty(), "{:?}", set_off(&folder));
    assert!(daemon.stop() == Some(0));
}

/// An editor's prompt through `ostler acp`.
fn edit(folder: &Folder, text: &str) {
    let mut command: Command = folder.command(&["acp", "--provider", "agent"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut lines = output.lines();
    let mut ask = |id: u64, method: &str, params: Value| {
        writeln!(input, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .unwrap();
        loop {
            let frame: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if frame["id"] == id && frame.get("method").is_none() {
                assert!(frame.get("error").is_none(), "{frame}");
                return frame["result"].clone();
            }
        }
    };
    ask(1, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let opened = ask(2, "session/new", json!({ "cwd": folder.path(), "mcpServers": [] }));
    let prompt = json!({ "sessionId": opened["sessionId"], "prompt": [{ "type": "text", "text": text }] });
    ask(3, "session/prompt", prompt);
    let _ = child.kill();
    let _ = child.wait();
}

/// A callback whose server answers with the probe.
async fn call_back(folder: &Folder, daemon: &Daemon, text: &str) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let record = format!("---\nid: back\nbot: bot://desk\nsecret: host:in\ncallbackPrefix: {url}/\n---\n");
    folder.write("webhooks/back.md", &record);
    folder.wait_for_status(daemon, "/plugins/webhook/back", 400).await;
    let body = json!({ "thread": "t", "text": "Hello", "callback": format!("{url}/in") }).to_string();
    assert_eq!(daemon.post("/plugins/webhook/back", Some("right"), &body).await.0, 202);
    let (mut stream, _) = server.accept().await.unwrap();
    let mut head = [0; 4096];
    assert!(stream.read(&mut head).await.unwrap() > 0);
    let answer =
        format!("HTTP/1.1 500 {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", "No", text.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
    drop(stream);
    folder.wait_for_log("back");
}

/// What shows that a way in has set something off.
#[derive(Default)]
struct Evidence {
    /// The folder of the files.
    place: String,
    /// The files that the probe left behind.
    files: Vec<String>,
    /// The snapshots of the chats.
    chats: String,
    /// What the lists of the command line print.
    printed: String,
    /// How many records there are.
    records: usize,
}

impl Evidence {
    /// The effects that it shows of a way in; what it does not show is tested elsewhere.
    fn shows(&self, way: WayIn, effect: Effect) -> Result<bool, (&'static str, &'static str)> {
        let left = |kinds: &[&str]| {
            let name = |kind: &&str| self.files.contains(&format!("{kind}-{}", way.name()));
            kinds.iter().any(name)
        };
        Ok(match effect {
            Effect::CommandLine => left(&["line"]),
            // What follows the first line of a command line is not for the shell.
            Effect::Shell => left(&["semicolon", "dollar", "tick"]),
            Effect::GitProgram => {
                return Err((
                    "daemon/tests/host/git_programs.rs",
                    "no_read_runs_a_program_that_a_repository_names",
                ));
            }
            // The agent has been given the text with the word.
            Effect::SlashCommand => {
                let given = format!("touch {}/line-{}", self.place, way.name());
                ["asked:!", "ran:"].iter().any(|how| self.chats.contains(&format!("{how}{given}")))
            }
            Effect::Mention | Effect::LookUp => self.chats.contains("root:x:0:0"),
            Effect::Template => self.chats.contains("filled in"),
            Effect::RecordFile => self.records != RECORDS,
            Effect::TerminalOutput => self.printed.contains(['\u{1b}', '\u{7}']),
            Effect::When => {
                return Err((
                    "plugins/webhook/tests/calls/filters.rs",
                    "a_call_that_when_leaves_out_is_accepted_and_fires_nothing",
                ));
            }
            Effect::Html => {
                return Err((
                    "daemon/src/notify/page.rs",
                    "nothing_of_a_session_is_markup_or_hides_what_it_is",
                ));
            }
        })
    }
}

/// The rule of a cell for a text that entered by a way, possibly some time ago.
fn rule_of(way: WayIn, effect: Effect) -> Rule {
    match (rule(way, effect), way) {
        // The test has a client send them.
        (Rule::AsEntered, _) | (_, WayIn::Draft) => rule(WayIn::Client, effect),
        (rule, _) => rule,
    }
}

/// The records that the test writes: an automation, a bot, and three endpoints with that of the callback.
const RECORDS: usize = 5;

/// Whether a way has written or removed records beyond those that the test writes.
fn records(folder: &Folder) -> usize {
    let count = |records: &&str| fs::read_dir(folder.path().join(records)).unwrap().count();
    let back = folder.path().join("webhooks/back.md").exists();
    ["automations", "bots", "webhooks"].iter().map(count).sum::<usize>() + usize::from(!back)
}

/// Everything that the lists of the command line print.
fn printed(folder: &Folder) -> String {
    let lists = [
        &["session", "list"][..],
        &["automation", "list"],
        &["automation", "show", "note"],
        &["run", "list"],
        &["bot", "list"],
        &["webhook", "list"],
        &["webhook", "log"],
        &["status"],
        &["doctor"],
        &["usage"],
    ];
    let shown = lists.iter().map(|words| folder.run(words));
    shown.map(|shown| format!("{}{}", shown.out, shown.err)).collect()
}

/// The chats of all sessions.
async fn chats(client: &mut Client) -> String {
    let listed = client.request("listSessions", json!({})).await.unwrap();
    let sessions = listed["items"].as_array().unwrap().iter();
    let mut all = String::new();
    for session in sessions.filter_map(|session| session["resource"].as_str()) {
        let state = client.subscribe(session).await;
        for chat in state["chats"].as_array().unwrap() {
            all += &client.subscribe(chat["resource"].as_str().unwrap()).await.to_string();
        }
    }
    all
}

fn require_test((file, test): (&str, &str)) {
    let text = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).unwrap();
    assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
}

#[tokio::test]
async fn what_enters_sets_off_what_the_table_says() {
    let folder = folder();
    let daemon = folder.start();
    let mut watcher = daemon.initialized("watcher").await;
    let place = folder.path().join("set-off").display().to_string();
    let mut evidence = Evidence { place, ..Evidence::default() };
    // Editors enter by `ostler acp`.
    let exists = |way: &&WayIn| cfg!(feature = "acp") || **way != WayIn::Editor;
    for way in WayIn::ALL.iter().filter(exists) {
        if let Err(elsewhere) = drive(&folder, &daemon, *way).await {
            require_test(elsewhere);
            continue;
        }
        evidence.files = set_off(&folder);
        evidence.chats = chats(&mut watcher).await;
        evidence.records = records(&folder);
        for effect in Effect::ALL {
            let shown = match evidence.shows(*way, *effect) {
                Ok(shown) => shown,
                Err(elsewhere) => {
                    require_test(elsewhere);
                    continue;
                }
            };
            let cell = format!("{} by {}", effect.name(), way.name());
            match rule_of(*way, *effect) {
                Rule::Never(_) => assert!(!shown, "{cell}: {:?}", evidence.files),
                // Nobody signs in on this host, so that nothing is refused.
                Rule::Granted(..) if *effect == Effect::CommandLine => assert!(shown, "{cell}"),
                Rule::Always(_) if *effect == Effect::SlashCommand => assert!(shown, "{cell}"),
                // What may be set off by a command of its own is not set off by a text.
                Rule::Granted(..) | Rule::GrantedOnScheme(..) | Rule::Always(_) => {
                    assert!(!shown, "{cell}: {:?}", evidence.files);
                }
                Rule::AsEntered => unreachable!("{cell} has the rule of a client"),
            }
        }
    }
    // Every list of the command line shows what entered, and none passes a control character to the terminal.
    evidence.printed = printed(&folder);
    assert!(
        evidence.printed.contains("line-") && !evidence.printed.contains("filled in"),
        "{}",
        evidence.printed
    );
    for way in WayIn::ALL {
        assert!(matches!(rule(*way, Effect::TerminalOutput), Rule::Never(_)), "{}", way.name());
        assert_eq!(evidence.shows(*way, Effect::TerminalOutput), Ok(false), "{:?}", evidence.printed);
    }
    assert!(daemon.stop() == Some(0));
}
