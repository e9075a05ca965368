//! Operating a daemon from the command line: what came of a call, its automations, sessions and log.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{Daemon, Ended, Folder, wait_for};
use serde_json::{Value, json};

/// A folder whose daemon is running, and found by the commands.
struct Inn {
    folder: Folder,
    _daemon: Daemon,
}

impl Inn {
    fn new(folder: Folder) -> Self {
        let daemon = folder.start();
        let inn = Self { folder, _daemon: daemon };
        wait_for(|| (inn.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
        inn
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

    #[track_caller]
    fn json(&self, line: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[line, &["--json"]].concat())).unwrap()
    }

    #[track_caller]
    fn refused(&self, line: &[&str], code: i32, says: &str) {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(code), "{line:?}: {ended:?}");
        assert!(ended.err.contains(says), "{line:?}: {says:?} is not in {:?}", ended.err);
        assert_eq!(ended.out, "", "{line:?}");
    }
}

fn plain() -> Folder {
    Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }] }))
}

#[test]
fn an_endpoint_gets_an_automation_and_its_run_is_printed() {
    let inn = Inn::new(plain());
    let added = inn.json(&["webhook", "add", "ci", "--automation"]);
    assert_eq!(added["listeners"], json!([{ "id": "ci", "title": "Calls of ci", "enabled": true }]));
    assert!(added["automation"].as_str().unwrap().ends_with("automations/ci.md"), "{added}");
    assert!(inn.folder.read("automations/ci.md").contains("{{event.hello}}"));

    let listed = || inn.json(&["automation", "list"]);
    assert_eq!(listed()[0]["id"], "ci", "the daemon has read it by then: a call starts a run");
    let followed = inn.ok(&["webhook", "test", "ci", "--follow"]);
    for part in [
        " returned 202\n",
        "\nrun ahp-automation-run:/",
        "\nsession echo:/",
        "\n> The webhook ci was called and says hello to \"world\".",
        "\n  The webhook ci was called and says hello to \"world\".",
        " completed\n",
    ] {
        assert!(followed.contains(part), "{part:?} is not in {followed}");
    }
    let followed = inn.json(&["webhook", "test", "ci", "-f"]);
    let run = &followed["runs"][0];
    assert_eq!((&run["status"], &run["error"]), (&json!("completed"), &Value::Null), "{followed}");
    assert!(run["text"].as_str().unwrap().starts_with("The webhook ci was called"), "{followed}");

    // A second endpoint gets an automation of its own; one that is listened to already gets none.
    inn.folder.write(
        "automations/mine.md",
        &inn.folder.read("automations/ci.md").replace("endpoint: ci", "endpoint: hub"),
    );
    wait_for(|| (listed().as_array().unwrap().len() == 2).then_some(())).expect("the daemon reads the file");
    let hub = inn.ok(&["webhook", "add", "hub", "--automation"]);
    assert!(hub.contains("starts automation mine (Calls of ci)"), "{hub}");
    assert_eq!(inn.folder.read("automations/hub.md"), "");
    // What is there is never overwritten.
    inn.folder.write("automations/own.md", "---\ntitle: Mine\ntriggers: []\n---\nMine.\n");
    let own = inn.ok(&["webhook", "add", "own", "--automation", "--prompt", "Look at {{event.ref}}."]);
    assert!(own.contains("own.md already exists; save this as an automation:\n---\n"), "{own}");
    assert!(own.contains("\nLook at {{event.ref}}.\n"), "{own}");
    assert!(inn.folder.read("automations/own.md").ends_with("Mine.\n"));
}

#[test]
fn a_call_that_starts_nothing_and_a_run_that_fails_say_why() {
    let folder = plain();
    folder.write("webhooks/in.md", "---\nid: in\nautomation: true\nsecret: host:in\n---\n");
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    let inn = Inn::new(folder);
    let nothing = inn.run(&["webhook", "test", "in", "--follow"]);
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    let says = "the call started no run\nno automation has a trigger for in; calls to it start nothing\n";
    assert!(nothing.out.ends_with(says), "{}", nothing.out);

    let automation = "---\ntitle: Bad\nsession: { provider: echo }\ntriggers:\n  - { id: a, kind: event, type: webhook, \
                      events: [{ id: call }], config: { endpoint: in } }\n---\n/fail the hay is wet\n";
    inn.folder.write("automations/bad.md", automation);
    wait_for(|| (inn.ok(&["automation", "list", "--quiet"]) == "bad\n").then_some(())).unwrap();
    let failed = inn.run(&["webhook", "test", "in", "--follow"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.out.contains(" failed: its turn failed: the hay is wet"), "{}", failed.out);
    let log = inn.ok(&["webhook", "log", "in"]);
    assert!(log.contains(" 202 ") && log.contains(" failed in echo:/"), "{log}");
    assert!(log.contains(": its turn failed: the hay is wet"), "{log}");
    let rows = inn.json(&["webhook", "log", "in"]);
    let outcome = &rows["calls"].as_array().unwrap().last().unwrap()["outcomes"][0];
    assert_eq!(outcome["status"], "failed", "{rows}");

    // One whose backend is not there fails before it has a session.
    inn.folder.write("automations/bad.md", &automation.replace("provider: echo", "provider: ecko"));
    let run = wait_for(|| {
        let run = inn.run(&["automation", "run", "bad", "--follow", "--json"]);
        run.out.contains("ecko").then_some(run)
    });
    let run: Value = serde_json::from_str(&run.unwrap().out).unwrap();
    assert_eq!(run["status"], "failed", "{run}");
    let why = run["error"].as_str().unwrap();
    assert!(why.starts_with("No provider called ecko") && why.ends_with("; did you mean echo?"), "{why}");
    assert!(inn.ok(&["automation", "runs", "bad"]).lines().next().unwrap().ends_with(why));

    inn.ok(&["automation", "disable", "bad"]);
    let disabled = inn.run(&["webhook", "test", "in", "--follow"]);
    let says = "automation bad: it is disabled; enable it with: ostler automation enable bad\n";
    assert!(disabled.out.ends_with(says), "{}", disabled.out);
    let log = inn.ok(&["webhook", "log", "in"]);
    assert!(log.ends_with(&format!(", started no run: {says}")), "{log}");
}

#[test]
fn an_endpoint_whose_file_cannot_be_read_has_its_log_and_its_problem() {
    let folder = plain();
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    let record = "---\nid: in\nautomation: true\nsecret: host:in\n---\n";
    folder.write("webhooks/in.md", record);
    let inn = Inn::new(folder);
    inn.ok(&["webhook", "test", "in"]);
    inn.folder.write("webhooks/in.md", &record.replace("automation: true", "automation: [true"));
    let log = wait_for(|| {
        let log = inn.ok(&["webhook", "log", "in"]);
        log.contains("webhooks/in.md cannot be read: ").then_some(log)
    })
    .expect("the file is broken");
    assert!(
        log.contains(" 202 ") && log.contains("answers with the last version that it could read"),
        "{log}"
    );
    assert!(inn.json(&["webhook", "log", "in"])["problem"].is_string());
    let listed = inn.ok(&["webhook", "list"]);
    assert!(listed.starts_with("in: webhooks/in.md cannot be read: "), "{listed}");
    inn.refused(&["webhook", "test", "in"], 2, "webhooks/in.md cannot be read: ");
    inn.refused(&["webhook", "log", "other"], 2, "unknown endpoint other");
}

#[test]
fn the_next_times_of_schedules_are_shown() {
    let folder = plain();
    let automation = "---\ntitle: Both\nsession: { provider: echo }\ntriggers:\n  - { id: days, kind: schedule, schedule: \
                      { expression: 0 9 1-7 * MON, timeZone: Europe/Berlin } }\n---\nSay hello.\n";
    folder.write("automations/both.md", automation);
    let inn = Inn::new(folder);
    let shown = inn.ok(&["automation", "show", "both"]);
    let words = "0 9 1-7 * MON is at 09:00, on day 1-7 or Monday";
    assert!(shown.lines().any(|line| line == words), "{shown}");
    let next: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("next ")).collect();
    assert!(next.len() == 5 && next.is_sorted(), "{shown}");
    for time in &next {
        let (time, zone) = time.split_once(' ').unwrap();
        let is_local = time.ends_with("T09:00:00+01:00") || time.ends_with("T09:00:00+02:00");
        assert!(is_local && zone == "Europe/Berlin", "{shown}");
    }
    let json = inn.json(&["automation", "show", "both"]);
    let times = json["nextRuns"].as_array().unwrap();
    assert_eq!((times.len(), &times[0]["at"]), (5, &json["nextRunAt"]));
    assert_eq!(times[0]["timeZone"], "Europe/Berlin");
    assert_eq!(json["schedules"][0]["expression"], "0 9 1-7 * MON");
}

#[test]
fn automations_are_listed_shown_run_and_switched() {
    let inn = Inn::new(Folder::with_webhook("Say hello."));
    let row = &inn.json(&["automation", "list"])[0];
    assert_eq!((&row["id"], &row["enabled"], &row["lastRun"]), (&json!("note"), &json!(true), &Value::Null));
    assert_eq!(inn.ok(&["automation", "list"]), "note: Note, on webhook in\n");
    let run = inn.json(&["automation", "run", "note", "--follow"]);
    assert_eq!((&run["status"], &run["text"]), (&json!("completed"), &json!("Say hello.")));
    let started = inn.ok(&["automation", "run", "ahp-automation:/note", "--quiet"]);
    let runs = inn.json(&["automation", "runs", "note"]);
    let named: Vec<&str> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["uri"].as_str().unwrap()).collect();
    assert_eq!(named, [started.trim(), run["run"].as_str().unwrap()], "newest first");
    // The same filters as the API has, over the protocol: page by page, by state, of all automations.
    let first = inn.run(&["automation", "runs", "-n", "1"]);
    assert!(first.out.starts_with(&format!("{} ", named[0])) && first.out.contains("automation note"));
    let cursor = first.err.trim().rsplit(' ').next().unwrap();
    let second = inn.ok(&["automation", "runs", "--cursor", cursor, "--quiet"]);
    assert_eq!(second, format!("{}\n", named[1]));
    assert_eq!(inn.ok(&["automation", "runs", "--state", "failed"]), "no matching runs\n");
    inn.refused(&["automation", "runs", "nite"], 2, "; did you mean note?");
    inn.refused(&["automation", "runs", "--cursor", "nonsense"], 2, "Unrecognised cursor");

    let shown = inn.ok(&["automation", "show", "note"]);
    assert!(shown.starts_with("note: Note, enabled\nbackend echo\non webhook in\n> Say hello.\n"), "{shown}");
    assert_eq!(inn.json(&["automation", "show", "note"])["definition"]["title"], "Note");
    assert_eq!(inn.ok(&["automation", "disable", "note"]), "Disabled note.\n");
    assert!(inn.folder.read("automations/note.md").contains("enabled: false"));
    assert_eq!(inn.json(&["automation", "list"])[0]["enabled"], json!(false));
    assert_eq!(inn.json(&["automation", "enable", "note"])["enabled"], json!(true));
    inn.refused(&["automation", "show", "nite"], 2, "unknown automation nite");
    inn.refused(&["automation", "show", "nite"], 2, "; did you mean note?");
}

#[test]
fn sessions_are_talked_to_shown_followed_and_disposed_of() {
    let inn = Inn::new(plain());
    assert!(inn.ok(&["session", "list"]).starts_with("no sessions"));
    let sent = inn.json(&["session", "send", "--new", "Hello."]);
    assert_eq!((&sent["status"], &sent["text"]), (&json!("complete"), &json!("Hello.")));
    let session = sent["session"].as_str().unwrap();
    let id = session.strip_prefix("echo:/").unwrap();
    assert_eq!(inn.ok(&["session", "list", "--quiet"]), format!("{session}\n"));
    assert_eq!(inn.ok(&["session", "send", &id[..8], "Again."]), "> Again.\n  Again.\n");
    let failed = inn.run(&["session", "send", id, "/fail no hay"]);
    assert_eq!((failed.code, failed.out.as_str()), (Some(1), "> /fail no hay\nturn failed: no hay\n"));
    let shown = inn.ok(&["session", "show", id]);
    assert!(shown.starts_with(&format!("{session}: ")), "{shown}");
    assert!(shown.contains("\n> Hello.\n  Hello.\n> Again.\n  Again.\n> /fail no hay\n"), "{shown}");
    let other =
        inn.json(&["session", "send", "--new", "Nightly report."])["session"].as_str().unwrap().to_owned();
    let listed = |flags: &[&str]| inn.ok(&[&["session", "list", "--quiet"], flags].concat());
    assert_eq!(listed(&[]), format!("{other}\n{session}\n"));
    assert_eq!(listed(&["--text", "NIGHTLY report"]), format!("{other}\n"));
    assert_eq!(listed(&["--waiting", "true"]), "");
    assert_eq!(listed(&["--archived", "false", "--provider", "echo"]), format!("{other}\n{session}\n"));
    assert_eq!(inn.ok(&["session", "list", "--provider", "oats"]), "no matching sessions\n");
    let page = inn.run(&["session", "list", "--limit", "1"]);
    assert!(page.out.starts_with(&format!("{other}: ")) && !page.out.contains(session), "{}", page.out);
    let cursor = page.err.split('\'').nth(1).unwrap();
    assert_eq!(listed(&["--limit", "1", "--cursor", cursor]), format!("{session}\n"));
    inn.refused(&["session", "list", "--cursor", "x"], 2, "cursor is not one of this list");
    assert!(shown.contains("[failed: no hay]"), "{shown}");
    let shown = inn.json(&["session", "show", session, "-n", "1"]);
    assert_eq!(shown["turns"].as_array().unwrap().len(), 1);

    let mut follow = inn.folder.command(&["session", "follow", session]);
    let mut follow = follow.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("> /fail no hay"), "the last turn is shown first");
    let started = inn.json(&["session", "send", session, "Seen?", "--no-wait"]);
    assert!(started["turn"].is_string(), "{started}");
    assert_eq!(lines.next().as_deref(), Some("> Seen?"));
    assert_eq!(lines.next().as_deref(), Some("  Seen?"));
    follow.kill().unwrap();
    follow.wait().unwrap();
    let idle = inn.ok(&["session", "follow", session, "--until-idle"]);
    assert_eq!(idle, "> Seen?\n  Seen?\n");

    inn.refused(&["session", "send", session, " "], 2, "the message is empty");
    inn.refused(&["session", "send", "--new", "--provider", "ecko", "x"], 2, "; did you mean echo?");
    inn.refused(&["session", "show", "zz"], 2, "unknown session zz");
    inn.refused(&["session", "dispose", session], 2, "Confirm with --yes");
    assert_eq!(inn.json(&["session", "dispose", session, "--yes"])["disposed"], json!(true));
    inn.refused(&["session", "show", session], 2, "No agent for session");
}

#[test]
fn an_endpoint_is_removed_with_its_secret_and_its_log() {
    let inn = Inn::new(Folder::with_webhook("x"));
    inn.ok(&["webhook", "add", "twin", "--automation", "--secret", "host:in"]);
    inn.ok(&["webhook", "test", "in", "--follow"]);
    // What recognizes repeated deliveries and threads of each.
    let of_callers = ["webhook-repeats", "webhook-threads"];
    for folder in of_callers {
        for endpoint in ["in", "twin"] {
            inn.folder
                .write(&format!("{folder}/of-{endpoint}.md"), &format!("---\nendpoint: {endpoint}\n---\n"));
        }
    }
    inn.refused(&["webhook", "rm", "in"], 2, "Confirm with --yes");
    inn.refused(&["webhook", "rm", "nobody"], 2, "unknown endpoint nobody;");
    let kept = inn.ok(&["webhook", "rm", "in", "--yes"]);
    assert!(kept.contains("Kept host:in in the vault: another endpoint uses it."), "{kept}");
    assert!(kept.contains("automation note (Note) still has a trigger for it"), "{kept}");
    assert_eq!(inn.folder.read("webhooks/in.md"), "");
    for folder in of_callers {
        assert_eq!(inn.folder.read(&format!("{folder}/of-in.md")), "", "{folder}");
        assert_ne!(inn.folder.read(&format!("{folder}/of-twin.md")), "", "{folder}");
    }
    let removed = inn.json(&["webhook", "rm", "twin", "--yes"]);
    assert_eq!(removed["secretRemoved"], json!(true), "{removed}");
    assert!(!inn.folder.read("vault.json").contains("right"));
    assert_eq!(inn.ok(&["webhook", "list", "--quiet"]), "");
    inn.refused(&["webhook", "rm", "in", "--yes"], 2, "unknown endpoint in;");
}

#[test]
fn commands_of_a_daemon_say_that_none_runs() {
    let folder = plain();
    for line in [
        &["automation", "list"][..],
        &["automation", "run", "x"],
        &["session", "list"],
        &["session", "send", "--new", "x"],
    ] {
        let ended = folder.run(line);
        assert_eq!(ended.code, Some(1), "{line:?}: {ended:?}");
        assert_eq!(ended.err, "no daemon is running; start it with: ostler start\n", "{line:?}");
    }
    let none = folder.run(&["logs"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.starts_with("no log at "), "{}", none.err);
    // An automation is written, and what listens is told, without a daemon too.
    let added = folder.run(&["webhook", "add", "ci", "--automation"]);
    assert!(added.out.contains("\nstarts automation ci (Calls of ci)\n"), "{added:?}");
    let memory = Folder::new(json!({ "automations": "memory" }));
    let added = memory.run(&["webhook", "add", "ci", "--automation"]);
    assert!(
        added.out.contains("automations are stored in memory; save this as an automation:\n---\n"),
        "{added:?}"
    );
    assert_eq!(memory.read("automations/ci.md"), "");
}

#[test]
fn the_log_is_printed_and_followed() {
    let folder = plain();
    assert_eq!(folder.run(&["start"]).code, Some(0));
    let log = folder.run(&["logs", "-n", "1000"]);
    assert!(log.out.contains("\nplugins ") && log.out.contains("ostler on ws://"), "{log:?}");
    assert_eq!(folder.run(&["logs", "-n", "1"]).out.lines().count(), 1);
    let rows = folder.run(&["logs", "--json"]).out;
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().any(|row| row["at"].is_string()), "{rows:?}");

    let mut follow = folder.command(&["logs", "-f", "-n", "1"]);
    let mut follow = follow.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Lines that are written after the last one was printed are followed.
    lines.next().unwrap();
    assert_eq!(folder.run(&["stop"]).code, Some(0));
    assert!(lines.any(|line| line.ends_with(" stopping")));
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn a_mistyped_name_is_answered_with_the_one_that_was_meant() {
    let folder = Folder::new(json!({
        "plugin": [], "plugins": [{ "name": "@ostler/ecko" }, { "name": "webhook" }, { "name": "@ostler/echo", "option": {} }],
    }));
    let up = folder.run(&["start"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    assert!(up.err.contains("unknown key plugin; ignored; did you mean plugins?"), "{up:?}");
    assert!(up.err.contains("unknown key plugins[2].option; ignored; did you mean options?"));
    assert!(up.out.contains("run npm install there, or name a path. Did you mean @ostler/echo?\n"), "{up:?}");
    assert!(up.out.contains("or name a path. Did you mean @ostler/webhook?\n"), "{up:?}");
    assert_eq!(folder.run(&["stop"]).code, Some(0));
    let named = folder.run(&["plugin", "disable", "ehco"]);
    assert_eq!(named.code, Some(2));
    assert!(named.err.trim_end().ends_with("; did you mean echo?"), "{named:?}");
}

#[test]
fn a_run_knows_itself_in_its_prompt_and_its_environment() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./envoy.ts" }] }));
    folder.write(
        "envoy.ts",
        "export function apply(host) {
            host.registerAgent({
                provider: 'envoy', displayName: 'Envoy',
                schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
                create: (start) => ({
                    begin(turnId) {
                        const part = { kind: 'markdown', id: 'p', content: JSON.stringify(start.env) };
                        start.emit('chat', { type: 'chat/responsePart', turnId, part });
                        start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
                    },
                    cancel() {}, close() {},
                }),
            });
        }",
    );
    let automation = |provider: &str, session: &str| {
        format!(
            "---\ntitle: Known\nsession: {{ provider: {provider} }}\ntriggers: []\n_meta: {{ ostler: {{ session: {session} }} }}\n---\n\
             {{{{run.uri}}}} {{{{run.session}}}} [{{{{session}}}}{{{{sessionTitle}}}}]\n"
        )
    };
    folder.write("automations/said.md", &automation("echo", "new"));
    folder.write("automations/pinned.md", &automation("echo", "pinned"));
    folder.write("automations/given.md", &automation("envoy", "new"));
    let inn = Inn::new(folder);
    for id in ["said", "pinned", "pinned"] {
        let run = inn.json(&["automation", "run", id, "--follow"]);
        let (uri, session) = (run["run"].as_str().unwrap(), run["session"].as_str().unwrap());
        assert_eq!(run["text"].as_str().unwrap(), format!("{uri} {session} []"), "{id}");
    }
    let run = inn.json(&["automation", "run", "given", "--follow"]);
    let given: Value = serde_json::from_str(run["text"].as_str().unwrap()).unwrap();
    assert_eq!(given, json!({ "OSTLER_SESSION": run["session"], "OSTLER_RUN": run["run"] }));
    let sent = inn.json(&["session", "send", "--new", "--provider", "envoy", "x"]);
    let given: Value = serde_json::from_str(sent["text"].as_str().unwrap()).unwrap();
    assert_eq!(given, json!({ "OSTLER_SESSION": sent["session"] }), "a session that no run started");
}

#[test]
fn on_a_host_that_knows_people_the_commands_come_with_its_token() {
    let users = r#"{ "roles": { "guest": { "grants": [] } }, "users": [] }"#;
    let config = |token: Value| {
        let mut config = json!({ "users": "users.json", "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }] });
        config.as_object_mut().unwrap().extend(token.as_object().unwrap().clone());
        let folder = Folder::new(config);
        folder.write("users.json", users);
        folder
    };
    let inn = Inn::new(config(json!({ "connectionToken": "inn-keeper" })));
    assert_eq!(inn.json(&["session", "send", "--new", "Hello."])["text"], "Hello.");
    assert_eq!(inn.run(&["doctor"]).code, Some(0));

    let inn = Inn::new(config(json!({})));
    inn.refused(&["session", "list"], 1, "start it with --connection-token-file");
    // What needs nobody's leave goes on.
    let added = inn.ok(&["webhook", "add", "ci", "--automation"]);
    assert!(added.contains("\nstarts automation ci (Calls of ci)\n"), "{added}");
    inn.ok(&["webhook", "log", "ci"]);
    inn.ok(&["webhook", "rm", "ci", "--yes"]);
}

#[test]
fn doctor_checks_with_the_flags_of_the_running_daemon() {
    let folder = Folder::new(json!({ "http": true, "plugins": [{ "name": "@ostler/echo" }] }));
    let alone = folder.run(&["doctor"]);
    assert!(alone.code == Some(1) && alone.out.contains("http needs a credential"), "{alone:?}");
    let flags = ["--connection-token-file", "t"];
    // In the foreground, in another directory than that of the command.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = folder.command(&flags);
    command.current_dir(elsewhere.path());
    let daemon = folder.started(command);
    wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
    let found = folder.run(&["doctor"]);
    let pid = daemon.child.id();
    assert_eq!(found.code, Some(0), "{found:?}");
    assert!(found.out.contains(&format!("with the flags of pid {pid}")), "{found:?}");
    assert!(elsewhere.path().join("t").exists() && !folder.path().join("t").exists());
    let restarted = folder.run(&["restart"]);
    assert!(restarted.code == Some(1) && restarted.err.contains("runs in the foreground"), "{restarted:?}");
    assert_eq!(daemon.stop(), Some(0));

    let started = folder.run(&[&["start"], &flags[..]].concat());
    assert_eq!(started.code, Some(0), "{started:?}");
    let found = folder.run(&["doctor"]);
    let stopped = folder.run(&["stop"]);
    assert_eq!((found.code, stopped.code), (Some(0), Some(0)), "{found:?} {stopped:?}");
}
