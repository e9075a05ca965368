//! Sessions that wait for input: what they wait for is shown, and answered by commands and by requests of the HTTP API.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use crate::support::{Daemon, Ended, Folder, Signal, ended, program, tell, wait_for};
use serde_json::{Value, json};

const TOKEN: &str = "the-token";

/// A tool that a prompt of the echo backend calls.
const SHOUT: &str = "\
export function apply(host) {
  host.registerTool({
    definition: { name: 'shout', description: 'Shouts', inputSchema: { type: 'object' } },
    effects: {},
    run: (input) => String(input.text).toUpperCase(),
  });
}
";

/// A backend whose worker asks twice for approval, both times with the same id.
const BOSS: &str = "\
class Boss {
  constructor(start) {
    this.start = start;
  }
  emit(type, more) {
    this.start.emit('chat', { type, turnId: this.turn, ...more });
  }
  inWorker(type, more) {
    this.worker.emit({ type, turnId: this.worker.turnId, ...more });
  }
  async begin(turn) {
    this.turn = turn;
    this.emit('chat/toolCallStart', { toolCallId: 'dig', toolName: 'dig', displayName: 'Dig' });
    this.emit('chat/toolCallReady', { toolCallId: 'dig', invocationMessage: 'Digs', confirmed: 'not-needed' });
    this.worker = await this.start.subagent('dig', { title: 'Digger' });
    this.ask('first');
  }
  ask(toolCallId) {
    const about = { toolCallId, toolName: 'rm', displayName: 'Remove' };
    const invocationMessage = `Removes the ${toolCallId}`;
    this.inWorker('chat/toolCallStart', about);
    this.inWorker('chat/toolCallReady', { toolCallId, invocationMessage });
    this.start.emit('session', { type: 'session/inputNeededSet', request: {
      kind: 'toolConfirmation', id: 'ask', chat: this.worker.uri, turnId: this.worker.turnId,
      toolCall: { status: 'pending-confirmation', ...about, invocationMessage },
    } });
  }
  confirm(toolCallId) {
    const result = { success: true, pastTenseMessage: 'Removed' };
    this.inWorker('chat/toolCallComplete', { toolCallId, result });
    if (toolCallId === 'first') return this.ask('second');
    this.worker.end('complete');
    this.emit('chat/toolCallComplete', { toolCallId: 'dig', result });
    this.emit('chat/turnComplete', { duration: 0 });
  }
  cancel() {}
  close() {}
}
export function apply(host) {
  host.registerAgent({
    provider: 'boss', displayName: 'Boss', schema: () => ({ properties: {} }), defaults: () => ({}),
    create: (start) => new Boss(start),
  });
}
";

/// A folder and its daemon.
struct House {
    folder: Folder,
    daemon: Daemon,
}

impl House {
    fn new() -> Self {
        let folder = Folder::new(json!({
            "http": true, "connectionToken": TOKEN,
            "plugins": [{ "name": "@ostler/echo" }, { "name": "./shout.js" }, { "name": "./boss.js" }],
        }));
        folder.write("shout.js", SHOUT);
        folder.write("boss.js", BOSS);
        let daemon = folder.start();
        let house = Self { folder, daemon };
        // It records where it listens after it has told.
        wait_for(|| (house.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
        house
    }

    fn run(&self, line: &[&str]) -> Ended {
        self.folder.run(line)
    }

    #[track_caller]
    fn ok(&self, line: &[&str]) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line:?}: {ended:?}");
        ended.out
    }

    /// The same command, which asks the daemon at a URL.
    fn remote(&self, line: &[&str]) -> Ended {
        let url = format!("http://{}", self.daemon.address());
        let mut command = program();
        command.args(line).args(["--remote", &url]).current_dir(self.folder.path());
        command.env("XDG_STATE_HOME", self.folder.state_home()).env("OSTLER_TOKEN", TOKEN);
        ended(&mut command)
    }

    /// Sends a message to a new session and returns once it waits, or has begun.
    fn send(&self, text: &str, until: &str) -> Sending {
        Sending::start(self, &["session", "send", "--new", text], until)
    }

    /// The state of a session.
    fn state(&self, session: &str) -> String {
        let shown: Value = serde_json::from_str(&self.ok(&["session", "show", session, "--json"])).unwrap();
        shown["state"].as_str().unwrap().to_owned()
    }
}

/// `session send`, which follows its turn, or `session follow`.
struct Sending {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
    seen: String,
    id: String,
}

impl Sending {
    fn start(house: &House, line: &[&str], until: &str) -> Self {
        let mut sending = Self::spawn(house, line);
        sending.until(until);
        let first = sending.seen.lines().next().unwrap();
        sending.id =
            first.strip_prefix("session ").and_then(|uri| uri.split_once(":/")).unwrap().1.to_owned();
        sending
    }

    fn spawn(house: &House, line: &[&str]) -> Self {
        let mut command = house.folder.heeding(line);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self {
            child,
            out: BufReader::new(out),
            err: BufReader::new(err),
            seen: String::new(),
            id: String::new(),
        }
    }

    fn until(&mut self, what: &str) {
        while !self.seen.contains(what) {
            let read = self.out.read_line(&mut self.seen).unwrap();
            assert!(read > 0, "{what:?} is not in {}", self.seen);
        }
    }

    /// Waits for its end; returns its code, what it printed, and its errors.
    fn end(mut self) -> Ended {
        let _ = self.out.read_to_string(&mut self.seen);
        let mut err = String::new();
        let _ = self.err.read_to_string(&mut err);
        let code = wait_for(|| self.child.try_wait().unwrap()).expect("it ends").code();
        Ended { code, out: std::mem::take(&mut self.seen), err }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_a_session_waits_for_is_shown_and_answered() {
    let house = House::new();
    let confirm = "/confirm shout {\"text\":\"a\"}";
    for (verb, over_http, says, code) in [
        ("approve", false, "\n    A\n", 0),
        ("approve", true, "\n    A\n", 0),
        ("reject", false, "", 0),
        ("reject", true, "", 0),
    ] {
        let sending = house.send(confirm, "answer with: ");
        let (id, seen) = (sending.id.clone(), sending.seen.clone());
        assert!(seen.contains("[waiting: Call shout: "), "{seen}");
        assert!(seen.contains("\n    \"text\": \"a\"") || seen.contains("input {"), "{seen}");
        assert!(seen.contains("option "), "{seen}");
        let how = format!("answer with: ostler session approve {id} --shown ");
        let digest =
            seen.split_once(&how).expect("how it is answered").1.split(',').next().unwrap().to_owned();
        let shown = house.ok(&["session", "show", &id]);
        assert!(shown.contains("[waiting: Call shout: ") && shown.contains(&how), "{shown}");
        let there = house.remote(&["session", "show", &id, "--json"]);
        let here: Value = serde_json::from_str(&house.ok(&["session", "show", &id, "--json"])).unwrap();
        assert_eq!(here["requests"][0]["digest"], digest.as_str());
        let request = here["requests"][0]["id"].as_str().unwrap();
        assert_eq!(here["requests"][0]["kind"], "approval");
        assert_eq!(serde_json::from_str::<Value>(&there.out).unwrap()["requests"], here["requests"]);
        assert_eq!(house.ok(&["session", "list", "--waiting", "--quiet"]), format!("echo:/{id}\n"));
        let answer = |line: &[&str]| if over_http { house.remote(line) } else { house.run(line) };
        // What is not the answer to this.
        for (line, says) in [
            (&["session", "answer", &id, "x"][..], "is a tool call; approve or reject it"),
            (&["session", verb, &id, "--option", "none"], "is not an option of this call; use one of "),
        ] {
            let refused = answer(line);
            assert!(refused.code == Some(2) && refused.err.contains(says), "{line:?}: {refused:?}");
        }
        let other = answer(&["session", verb, &id, "--request", "other"]);
        assert!(other.code == Some(1) && other.err.contains("has no pending request other"), "{other:?}");
        let answered = answer(&["session", verb, &id[..12]]);
        assert_eq!(answered.code, Some(0), "{answered:?}");
        assert!(
            answered.out.contains(&format!("ed {request} of echo:/{id}: Call shout: Calling shout")),
            "{answered:?}"
        );
        let ended = sending.end();
        assert!(ended.code == Some(code) && ended.out.contains(says), "{verb}: {ended:?}");
        let none = answer(&["session", verb, &id]);
        assert!(none.code == Some(1) && none.err.contains("waits for no input"), "{none:?}");
    }
    assert_eq!(house.ok(&["session", "list", "--waiting"]), "no matching sessions\n");
}

#[test]
fn requests_of_workers_are_shown_and_an_answer_reaches_only_what_was_shown() {
    let house = House::new();
    let digest_in = |seen: &str| {
        seen.rsplit_once("session approve ").unwrap().1.split_once("--shown ").unwrap().1[..32].to_owned()
    };
    for over_http in [false, true] {
        let run = |line: &[&str]| if over_http { house.remote(line) } else { house.run(line) };
        let line = ["session", "send", "--new", "--provider", "boss", "Dig"];
        let mut sending = Sending::start(&house, &line, "answer with: ");
        let id = sending.id.clone();
        assert!(
            sending
                .seen
                .contains("[waiting: Remove: Removes the first]\n    request ask\n    chat ahp-chat:/")
        );
        // A client that comes later sees the same.
        let mut follow = Sending::spawn(&house, &["session", "follow", &id, "--until-idle"]);
        follow.until("answer with: ");
        let first = digest_in(&sending.seen);
        assert_eq!(digest_in(&follow.seen), first);
        let approved = run(&["session", "approve", &id, "--shown", &first]);
        assert!(approved.code == Some(0) && approved.out.contains("Removes the first"), "{approved:?}");
        sending.until("Removes the second");
        sending.until("answer with: ");
        follow.until("Removes the second");
        // The same id, but something else.
        for line in [
            &["session", "approve", &id, "--shown", &first][..],
            &["session", "reject", &id, "--request", "ask", "--shown", &first],
        ] {
            let late = run(line);
            let says = ": something else waits now: ask (Removes the second)";
            assert!(late.code == Some(1) && late.err.contains(says), "{late:?}");
        }
        if over_http {
            let path = format!("/api/session/approve/{id}");
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let body =
                |body: Value| runtime.block_on(house.daemon.post(&path, Some(TOKEN), &body.to_string()));
            let (status, why) = body(json!({}));
            assert!(
                status == 400 && why.contains("has 1 pending request; name one with request or shown: ask")
            );
            let (status, why) = body(json!({ "shown": first }));
            assert!(status == 409 && why.contains("something else waits now"), "{status} {why}");
        }
        let approved = run(&["session", "approve", &id]);
        assert!(approved.code == Some(0) && approved.out.contains("Removes the second"), "{approved:?}");
        let ended = sending.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        follow.end();
    }
}

#[test]
fn a_question_is_answered_or_declined() {
    let house = House::new();
    for (line, over_http, says) in [
        (&["answer", "ID", "blue"][..], false, "You said: blue"),
        (&["answer", "ID", "answer=a=b"], true, "You said: a=b"),
        (&["reject", "ID"], false, "You did not say."),
        (&["reject", "ID"], true, "You did not say."),
    ] {
        let sending = house.send("/ask Which colour?", "answer with: ");
        assert!(sending.seen.contains("[waiting: Which colour?]"), "{}", sending.seen);
        assert!(sending.seen.contains("question answer (text): Which colour?"), "{}", sending.seen);
        let id = sending.id.clone();
        let line: Vec<&str> = std::iter::once("session")
            .chain(line.iter().map(|word| if *word == "ID" { &*id } else { word }))
            .collect();
        let approved = house.run(&["session", "approve", &id]);
        assert!(
            approved.code == Some(2) && approved.err.contains("is a question; answer it"),
            "{approved:?}"
        );
        let empty = house.run(&["session", "answer", &id]);
        assert!(empty.code == Some(2) && empty.err.contains("an answer is needed"), "{empty:?}");
        let answered = if over_http { house.remote(&line) } else { house.run(&line) };
        assert_eq!(answered.code, Some(0), "{line:?}: {answered:?}");
        let ended = sending.end();
        assert!(ended.code == Some(0) && ended.out.contains(says), "{ended:?}");
    }
}

#[test]
fn a_turn_is_cancelled_by_a_command() {
    let house = House::new();
    for over_http in [false, true] {
        let sending = house.send("/hang", "> /hang");
        let id = sending.id.clone();
        let run = |line: &[&str]| if over_http { house.remote(line) } else { house.run(line) };
        let other = run(&["session", "cancel", &id, "--turn", "other"]);
        assert!(other.code == Some(1) && other.err.contains("the turn other does not run"), "{other:?}");
        assert_eq!(house.state(&id), "running");
        let cancelled = run(&["session", "cancel", &id[..12]]);
        assert!(cancelled.out.starts_with("Cancelled turn ") && cancelled.code == Some(0), "{cancelled:?}");
        let ended = sending.end();
        assert_eq!((ended.code, ended.out.lines().last()), (Some(1), Some("turn cancelled")), "{ended:?}");
        let none = run(&["session", "cancel", &id]);
        assert!(none.code == Some(1) && none.err.contains("no turn runs in "), "{none:?}");
        let unknown = run(&["session", "cancel", "zz"]);
        assert_eq!(unknown.code, Some(2), "{unknown:?}");
    }
}

#[test]
fn an_interrupted_message_goes_on_and_a_second_interrupt_cancels_it() {
    let house = House::new();
    let sending = house.send("/hang", "> /hang");
    let id = sending.id.clone();
    tell(sending.child.id(), Signal::INT);
    let ended = sending.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let says = format!("cancel it later with: ostler session cancel {id}\n");
    assert!(ended.err.contains("The turn continues.") && ended.err.contains(&says), "{ended:?}");
    assert_eq!(house.state(&id), "running");
    house.ok(&["session", "cancel", &id]);

    let mut sending = house.send("/hang", "> /hang");
    let id = sending.id.clone();
    tell(sending.child.id(), Signal::INT);
    let mut err = String::new();
    while !err.contains("The turn continues.") {
        assert!(sending.err.read_line(&mut err).unwrap() > 0, "{err}");
    }
    tell(sending.child.id(), Signal::INT);
    let ended = sending.end();
    assert_eq!((ended.code, ended.out.lines().last()), (Some(130), Some("turn cancelled")), "{ended:?}");
    assert_eq!(house.state(&id), "idle");
}

#[test]
fn every_line_of_a_message_is_shown() {
    let house = House::new();
    let sent = house.ok(&["session", "send", "--new", "First\nSecond\n\nThird"]);
    let id = sent.lines().next().unwrap().strip_prefix("session echo:/").unwrap();
    let lines = "> First\n> Second\n>\n> Third\n";
    assert!(sent.contains(lines), "{sent}");
    let shown = house.ok(&["session", "show", id]);
    assert!(shown.contains(lines), "{shown}");
    let followed = house.ok(&["session", "follow", id, "--until-idle"]);
    assert!(followed.contains(lines), "{followed}");
    let long: Vec<String> = (0..250).map(|at| format!("line {at}")).collect();
    let sent = house.ok(&["session", "send", "--new", &long.join("\n")]);
    assert!(sent.contains("> line 199\n> … 50 more lines; --json has all\n"), "{sent}");
}

#[test]
fn a_run_whose_session_waits_needs_input_and_an_automation_is_removed_with_its_runs() {
    let house = House::new();
    house.folder.write(
        "automations/note.md",
        "---\ntitle: Note\nenabled: true\nsession: { provider: echo }\ntriggers: []\n---\n/ask Which colour?\n",
    );
    wait_for(|| house.ok(&["automation", "list"]).contains("note: Note").then_some(())).expect("it is read");
    let run = house.ok(&["automation", "run", "note", "--quiet"]);
    let run = run.trim();
    let waits = || house.ok(&["session", "list", "--waiting", "--quiet"]).trim().to_owned();
    let session = wait_for(|| Some(waits()).filter(|uri| !uri.is_empty())).expect("it waits");
    let line = format!("{run} input needed, ");
    for listed in [
        house.ok(&["automation", "runs"]),
        house.ok(&["automation", "runs", "note"]),
        house.ok(&["automation", "show", "note"]),
        house.remote(&["automation", "runs"]).out,
    ] {
        assert!(listed.contains(&line), "{listed}");
    }
    let listed = house.ok(&["automation", "list"]);
    assert!(listed.contains("last run input needed "), "{listed}");
    let rows: Value = serde_json::from_str(&house.ok(&["automation", "runs", "--json"])).unwrap();
    assert_eq!((&rows["runs"][0]["state"], &rows["runs"][0]["waiting"]), (&json!("running"), &json!(true)));
    house.ok(&["session", "answer", &session, "blue"]);
    let ended = || house.ok(&["automation", "runs"]).contains(&format!("{run} completed, ")).then_some(());
    wait_for(ended).expect("it ends");

    // One whose run is running: its session continues.
    let other = house.folder.read("automations/note.md").replace("/ask Which colour?", "/hang");
    house.folder.write("automations/other.md", &other);
    wait_for(|| house.ok(&["automation", "list"]).contains("other: Note").then_some(())).expect("it is read");
    house.ok(&["automation", "run", "other"]);
    let session = wait_for(|| {
        let runs: Value =
            serde_json::from_str(&house.ok(&["automation", "runs", "other", "--json"])).unwrap();
        runs["runs"][0]["session"].as_str().map(str::to_owned)
    })
    .expect("it has a session");
    let id = session.strip_prefix("echo:/").unwrap();
    assert_eq!(
        house.ok(&["automation", "rm", "other", "--yes"]),
        format!(
            "Removed other with its runs.\nSession {session} of a run continues; cancel its turn with: ostler session cancel {id}\n"
        )
    );
    assert_eq!(house.state(id), "running");
    house.ok(&["session", "cancel", id]);

    let asked = house.run(&["automation", "rm", "note"]);
    assert!(asked.code == Some(2) && asked.err.contains("Remove automation note (Note)?"), "{asked:?}");
    assert_eq!(house.ok(&["automation", "rm", "note", "--yes"]), "Removed note with its runs.\n");
    assert!(!house.folder.path().join("automations/note.md").exists());
    assert_eq!(house.ok(&["automation", "runs"]), "no matching runs\n");
    let unknown = house.run(&["automation", "rm", "note", "--yes"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("unknown automation note"), "{unknown:?}");
}

#[test]
fn advice_works_as_it_is_printed() {
    let folder =
        Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }] }));
    let listed = folder.run(&["webhook", "list"]).out;
    let advice = listed.split_once("ostler ").unwrap().1.trim().replace("<id>", "x");
    let added = folder.run(&advice.split(' ').collect::<Vec<_>>());
    assert_eq!(added.code, Some(0), "{advice}: {added:?}");
    let usage = folder.run(&["session", "send"]).err;
    assert!(usage.contains("session send [OPTIONS] --new [TEXT]"), "{usage}");
}
