//! No agent's process outlives its session, however it behaves.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent;
use crate::support::{Folder, Signal, tell, wait_for};
use crate::talk::{Stage, Talk};

/// The processes that agents of a daemon started and that still run.
fn left(daemon: u32) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| is_of(daemon, &entry.path()))
        .map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " "))
        .collect()
}

/// Kills every process of the agents of a daemon.
pub fn kill_agents(daemon: u32) {
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if is_of(daemon, &entry.path()) {
            tell(pid, Signal::KILL);
        }
    }
}

/// Whether a process was started by an agent of a daemon.
fn is_of(daemon: u32, process: &std::path::Path) -> bool {
    let marker = format!(".{daemon}.");
    let environ = fs::read(process.join("environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| {
        let variable = String::from_utf8_lossy(variable);
        variable.strip_prefix("OSTLER_AGENT_SCOPE=ostler-agent.").is_some_and(|of| of.contains(&marker))
    })
}

async fn none_is_left(daemon: u32) {
    let end = Instant::now() + Duration::from_secs(20);
    while !left(daemon).is_empty() {
        assert!(Instant::now() < end, "{:?}", left(daemon));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The children of a daemon that have ended and whose ends were not collected.
fn zombies(daemon: u32) -> usize {
    let ended = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        (fields.next()? == "Z" && fields.next()? == daemon.to_string()).then_some(())
    });
    ended.count()
}

/// An agent that ignores the end of its input and leaves a process in a session of its own.
fn stubborn() -> Value {
    json!({ "ignoreEof": true, "daemon": true })
}

const SCOPES: [&str; 2] = ["auto", "group"];

async fn dispose(talk: &mut Talk) {
    let params = json!({ "channel": talk.session });
    talk.client.request("disposeSession", params).await.unwrap();
}

#[tokio::test]
async fn closing_a_session_ends_everything_its_agent_started() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        let running = left(daemon);
        assert!(running.iter().any(|line| line.contains("sleep 300")), "{scope}: {running:?}");
        dispose(&mut talk).await;
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn what_an_agent_left_behind_when_it_ended_is_ended_too() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.fail("!exit 1").await;
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn a_daemon_that_stops_leaves_nothing() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        stage.daemon.stop();
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn the_next_start_removes_what_a_killed_daemon_left() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        stage.daemon.signal(Signal::KILL);
        let stage = stage.restarted(true);
        none_is_left(daemon).await;
        drop(stage);
    }
}

#[tokio::test]
async fn a_killed_daemon_leaves_nothing_without_another_start() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        let running = left(daemon);
        assert!(running.iter().any(|line| line.contains("sleep 300")), "{scope}: {running:?}");
        // Starting daemons of other tests could also end what this one leaves.
        assert_eq!(supervisors(daemon), 1, "{scope}");
        stage.daemon.signal(Signal::KILL);
        none_is_left(daemon).await;
        assert!(wait_for(|| (supervisors(daemon) == 0).then_some(())).is_some(), "{scope}");
    }
}

#[tokio::test]
async fn no_agent_starts_before_the_first_turn() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    talk.client.request("resolveSessionConfig", json!({ "provider": "fake", "config": {} })).await.unwrap();
    assert_eq!(fs::read_to_string(log.path()).unwrap(), "");
    talk.say("hello").await;
    assert!(
        fs::read_to_string(log.path()).unwrap().contains("initialize"),
        "the log has what an agent hears"
    );
}

#[tokio::test]
async fn an_idle_agent_sleeps_and_the_next_turn_wakes_it() {
    let stage = Stage::with(json!({}), json!({ "idleMinutes": 0.005 }));
    let daemon = stage.daemon.child.id();
    let mut talk = stage.talk().await;
    talk.say("remember seven").await;
    assert!(!left(daemon).is_empty());
    none_is_left(daemon).await;
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven"), "{said}");
}

#[tokio::test]
async fn terminals_end_with_their_session() {
    for scope in SCOPES {
        let stage = Stage::with(json!({}), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say(r#"!request terminal/create { "command": "sleep", "args": ["300"] }"#).await;
        let runs = || left(daemon).iter().any(|line| line.contains("sleep 300")).then_some(());
        assert!(wait_for(runs).is_some(), "{scope}: {:?}", left(daemon));
        dispose(&mut talk).await;
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn terminals_end_with_the_agent_that_opened_them() {
    let options = json!({ "cancelTimeoutSeconds": 1 });
    for (line, hangs) in [("sleep 30154", true), ("sleep 30155", false)] {
        let stage = Stage::with(json!({}), options.clone());
        let mut talk = stage.talk().await;
        let seconds = line.split_once(' ').unwrap().1;
        let create = format!("!request terminal/create {}", json!({ "command": "sleep", "args": [seconds] }));
        let daemon = stage.daemon.child.id();
        let runs = || left(daemon).iter().any(|found| found.contains(line)).then_some(());
        if hangs {
            let turn = talk.begin(&format!("{create}\n!say begun\n!sleep 30000")).await;
            talk.until(&["chat/responsePart"]).await;
            assert!(wait_for(runs).is_some(), "{line} does not run");
            talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
        } else {
            let ends = "!shell (sleep 1; kill -KILL $PPID) </dev/null >/dev/null 2>&1 &";
            talk.say(&format!("{create}\n{ends}")).await;
            assert!(wait_for(runs).is_some(), "{line} does not run");
        }
        let ended = tokio::time::timeout(Duration::from_secs(20), async {
            while runs().is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(ended.await.is_ok(), "{line} runs");
    }
}

#[tokio::test]
async fn many_sessions_of_a_stubborn_agent_leave_nothing() {
    const SESSIONS: usize = 200;
    const AT_ONCE: usize = 20;
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        for batch in 0..SESSIONS / SCOPES.len() / AT_ONCE {
            let sessions = (0..AT_ONCE).map(|at| {
                let stage = &stage;
                async move {
                    let mut talk = stage.talk_in(&format!("fake:/{batch}-{at}"), json!({})).await;
                    talk.say("hello").await;
                    dispose(&mut talk).await;
                }
            });
            futures::future::join_all(sessions).await;
        }
        none_is_left(daemon).await;
        let collected = wait_for(|| (zombies(daemon) == 0).then_some(()));
        assert!(collected.is_some(), "{scope}: processes whose end was not collected");
        assert_eq!(supervisors(daemon), 0, "{scope}");
    }
}

#[tokio::test]
async fn the_memory_of_agents_is_reported() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    for scope in SCOPES {
        let options =
            json!({ "scope": scope, "agents": { "fake": crate::agent::entry(json!({ "daemon": true })) } });
        let folder = Folder::new(json!({ "http": true, "connectionToken": TOKEN,
            "plugins": [{ "name": "@ostler/acp", "options": options }] }));
        let daemon = folder.start();
        let status = || {
            let ended = folder.run(&["status", "--json"]);
            serde_json::from_str::<Value>(&ended.out).unwrap_or_else(|why| panic!("{why}: {ended:?}"))
        };
        // Its record is written after it has announced itself.
        let agents = wait_for(|| Some(status()["agents"].clone()).filter(Value::is_array));
        assert_eq!(agents, Some(json!([])), "{scope}");
        let sent = folder.run(&["session", "send", "--new", "hello", "--json"]);
        let sent: Value = serde_json::from_str(&sent.out).unwrap_or_else(|why| panic!("{why}: {sent:?}"));
        let header = format!("Authorization: Bearer {TOKEN}\r\n");
        let (_, api) = daemon.ask("GET /api/status", &header, "").await;
        for report in [status(), api] {
            let row = &report["agents"][0];
            assert_eq!((&row["provider"], &row["session"]), (&json!("fake"), &sent["session"]), "{report}");
            assert!(row["processes"].as_u64().unwrap() >= 2, "the agent and what it left: {report}");
            let memory = row["memoryBytes"].as_u64().unwrap();
            assert!((1 << 18..1 << 31).contains(&memory), "{report}");
            assert!(scope == "auto" || row["countedBy"] == "pss", "{report}");
        }
        let (_, metrics) = daemon.ask("GET /api/metrics", &header, "").await;
        let says = "\nostler_agent_processes{provider=\"fake\"} 1\n";
        assert!(metrics.as_str().unwrap().contains(says), "{metrics}");
        let text = folder.run(&["status"]).out;
        assert!(text.contains("agent fake: 1 session, "), "{text}");
        let session = sent["session"].as_str().unwrap();
        assert_eq!(folder.run(&["session", "dispose", session, "--yes"]).code, Some(0));
        none_is_left(daemon.child.id()).await;
        assert_eq!(status()["agents"], json!([]), "{scope}");
    }
}

#[tokio::test]
async fn an_agent_over_its_memory_is_stopped_and_the_next_turn_starts_it() {
    for scope in SCOPES {
        let stage = Stage::with(json!({}), json!({ "scope": scope, "memoryLimitMb": 200 }));
        let mut talk = stage.talk().await;
        let error = talk.fail("!say begun\n!fill 400\n!sleep 30000").await;
        assert_eq!(error["errorType"], "agentMemory", "{scope}: {error}");
        assert_eq!(
            error["message"],
            "fake used more than 200 MB of memory and was stopped; raise memoryLimitMb, or send the message again to \
             restart it"
        );
        assert_eq!(talk.say("!say again").await, "again");
    }
}

/// Leaves a process in a session of its own, whose parent has ended, with the marker of its scope or without.
fn daemonize(environment: &str) -> String {
    format!(
        "!shell (setsid {environment} sh -c 'sleep 301 & sleep 302' </dev/null >/dev/null 2>&1 &) ; exit 0"
    )
}

/// The processes with such a command line.
fn running(line: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|found| found.trim_end_matches('\0').replace('\0', " ") == line).count()
}

#[tokio::test]
async fn a_process_whose_parent_ended_ends_with_its_scope() {
    for scope in SCOPES {
        let stage = Stage::with(json!({}), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say(&daemonize("")).await;
        assert!(
            wait_for(|| left(daemon).iter().any(|line| line.contains("sleep 301")).then_some(())).is_some()
        );
        dispose(&mut talk).await;
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn a_process_without_its_environment_ends_with_its_scope() {
    // Its command line names this test, as nothing else does.
    for (scope, seconds) in [("auto", "30151"), ("group", "30152")] {
        let stage = Stage::with(json!({}), json!({ "scope": scope }));
        let mut talk = stage.talk().await;
        let (path, line) = (std::env::var("PATH").unwrap(), format!("sleep {seconds}"));
        let start = format!("setsid env -i PATH={path} sh -c 'exec {line}' </dev/null >/dev/null 2>&1 &");
        talk.say(&format!("!shell ({start}) ; exit 0")).await;
        assert!(wait_for(|| (running(&line) == 1).then_some(())).is_some(), "{scope}");
        dispose(&mut talk).await;
        let ended = tokio::time::timeout(Duration::from_secs(20), async {
            while running(&line) > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(ended.await.is_ok(), "{scope}: {line} runs");
    }
}

/// A plugin that leaves a process without a marker to the daemon, and then is busy for longer than it takes to see that
/// nobody waits for a process.
const ORPHANS: &str = "
import { execFileSync, spawn } from 'node:child_process';
export const name = 'orphans';
export function apply(host) {
  host.registerMethod('x-orphans/leave', { grant: 'session:create', async handle() {
    const child = spawn('sh', ['-c', 'setsid sleep 0.3 & setsid sleep 0.3 & exit 7'], { stdio: 'ignore' });
    const ended = new Promise((resolve) => child.on('exit', resolve));
    execFileSync('sleep', ['4']);
    return { code: await ended };
  } });
}
";

#[tokio::test]
async fn what_plugins_leave_to_the_daemon_does_not_stay_as_zombies() {
    let stage =
        Stage::configured(agent::entry(json!({})), json!({ "scope": "group" }), json!({}), Some(ORPHANS));
    let daemon = stage.daemon.child.id();
    let mut talk = stage.talk().await;
    // From the first agent on the daemon adopts orphans.
    talk.say("hello").await;
    let answer = talk.client.request("x-orphans/leave", json!({})).await.unwrap();
    assert_eq!(answer["code"], 7, "the plugin is told of the end of its own child: {answer}");
    let collected = wait_for(|| (zombies(daemon) == 0).then_some(()));
    assert!(collected.is_some(), "{} processes whose end was not collected", zombies(daemon));
    talk.say("hello").await;
}

/// The processes that supervise agents of a daemon.
fn supervisors(daemon: u32) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(&format!("\0supervise\0--watch\0{daemon}\0"))).count()
}

#[tokio::test]
async fn a_process_without_its_environment_ends_with_a_daemon_that_is_killed() {
    for (scope, seconds) in [("auto", "30156"), ("group", "30157")] {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        let (path, line) = (std::env::var("PATH").unwrap(), format!("sleep {seconds}"));
        // Its parent ends, and so does that one's.
        let start =
            format!("setsid env -i PATH={path} setsid sh -c '{line} & exit 0' </dev/null >/dev/null 2>&1 &");
        talk.say(&format!("!shell ({start}) ; exit 0")).await;
        assert!(wait_for(|| (running(&line) == 1).then_some(())).is_some(), "{scope}");
        stage.daemon.signal(Signal::KILL);
        let stage = stage.restarted(true);
        assert!(wait_for(|| (running(&line) == 0).then_some(())).is_some(), "{scope}: {line} runs");
        none_is_left(daemon).await;
        assert!(wait_for(|| (supervisors(daemon) == 0).then_some(())).is_some(), "{scope}");
        drop(stage);
    }
}

#[tokio::test]
async fn an_agent_without_a_cgroup_is_supervised_and_ends_as_it_would_alone() {
    let stage = Stage::with(json!({}), json!({ "scope": "group" }));
    let daemon = stage.daemon.child.id();
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    assert_eq!(supervisors(daemon), 1);
    let error = talk.fail("!exit 9").await;
    assert!(error["message"].as_str().unwrap().starts_with("fake ended with exit code 9"), "{error}");
    let error = talk.fail("!abort").await;
    assert!(error["message"].as_str().unwrap().starts_with("fake ended by signal 9"), "{error}");
    // A signal to its group, as some agents send it at their end, does not reach the supervisor.
    let error = talk.fail("!shell kill -TERM 0\n!sleep 1000\n!exit 3").await;
    assert!(error["message"].as_str().unwrap().starts_with("fake ended by signal 15"), "{error}");
    talk.say("hello").await;
    dispose(&mut talk).await;
    none_is_left(daemon).await;
    assert!(wait_for(|| (supervisors(daemon) == 0).then_some(())).is_some());
}

#[test]
fn a_supervised_agent_that_a_signal_ended_is_said_to_have_ended_by_it() {
    // Rust's own start handles 7 and 11 and ignores 13; 34 has no name; 6 would leave a core.
    let signals = [1, 6, 7, 11, 13, 14, 15, 34, 64];
    let entry = |signal: &i32| {
        let script = format!("kill -{signal} $$");
        (format!("by-{signal}"), json!({ "command": "/bin/sh", "args": ["-c", script] }))
    };
    let agents: serde_json::Map<String, Value> = signals.iter().map(entry).collect();
    let options = json!({ "scope": "group", "agents": agents });
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
    for signal in signals {
        let check = format!("by-{signal}");
        let ended = crate::support::ended(&mut folder.heeding(&["agent", "check", &check, "--json"]));
        let report: Value = serde_json::from_str(&ended.out).unwrap_or_else(|why| panic!("{why}: {ended:?}"));
        let rest = report["problem"]
            .as_str()
            .unwrap()
            .strip_prefix(&format!("by-{signal} ended by signal {signal}"));
        assert!(rest.is_some_and(|rest| !rest.starts_with(|char: char| char.is_ascii_digit())), "{report}");
    }
}

/// A line of a process's status.
fn status(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
}

#[tokio::test]
async fn no_signal_ends_a_supervisor_and_the_agent_has_its_own() {
    let stage = Stage::with(json!({}), json!({ "scope": "group" }));
    let daemon = stage.daemon.child.id();
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let pids = || {
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let supervisor = pids()
        .find(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains(&format!("\0supervise\0--watch\0{daemon}\0"))
        })
        .unwrap();
    for signal in 1..32 {
        if let Some(signal) =
            Signal::from_named_raw(signal).filter(|s| ![Signal::KILL, Signal::STOP].contains(s))
        {
            tell(supervisor, signal);
        }
    }
    let agent = pids().find(|pid| status(*pid, "PPid") == supervisor.to_string()).unwrap();
    for mask in ["SigBlk", "SigIgn"] {
        let mine = if mask == "SigBlk" { "0000000000000000".to_owned() } else { status(daemon, mask) };
        // Rust programs ignore SIGPIPE, and do not have theirs inherit that.
        let ignored =
            u64::from_str_radix(&status(agent, mask), 16).unwrap() & !u64::from_str_radix(&mine, 16).unwrap();
        assert_eq!(ignored & !(1 << 12), 0, "{mask}");
    }
    assert_eq!(talk.say("hello").await, "You said: hello");
    assert_eq!(supervisors(daemon), 1);
    dispose(&mut talk).await;
    none_is_left(daemon).await;
    assert!(wait_for(|| (supervisors(daemon) == 0).then_some(())).is_some());
}

#[tokio::test]
async fn what_ends_by_a_signal_leaves_no_zombie() {
    let stage = Stage::with(stubborn(), json!({ "scope": "group" }));
    let daemon = stage.daemon.child.id();
    let mut talk = stage.talk().await;
    for line in ["!abort", "!shell kill -KILL $(sed -n 's/^PPid:.//p' /proc/$PPID/status)\n!sleep 3000"] {
        talk.fail(line).await;
        none_is_left(daemon).await;
        assert!(wait_for(|| (zombies(daemon) == 0).then_some(())).is_some(), "{line}: {}", zombies(daemon));
    }
}

#[test]
fn a_program_is_marked_before_it_runs() {
    let script = "grep msgqueue /proc/self/limits; printf %s \"$1$HAY\"; cat; exit 7";
    let mut command = crate::support::program();
    command.args(["supervise", "--become", "4321", "/bin/sh", "-c", script, "sh", "one"]).env("HAY", "two");
    let ended = crate::support::ended(&mut command);
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(ended.out.contains(" 4321 ") && ended.out.ends_with("onetwo"), "{ended:?}");
    let mut bare = crate::support::program();
    let ended = crate::support::ended(bare.arg("supervise"));
    assert!(ended.code == Some(126) && ended.err.contains("is run by the daemon"), "{ended:?}");
}

#[tokio::test]
async fn a_command_of_a_terminal_is_marked_before_it_runs() {
    let stage = Stage::with(json!({}), json!({ "scope": "group" }));
    let mut talk = stage.talk().await;
    let start = json!({ "command": "grep", "args": ["msgqueue", "/proc/self/limits"] });
    talk.say(&format!("!request terminal/create {start}")).await;
    talk.say(r#"!request terminal/wait_for_exit { "terminalId": "terminal-1" }"#).await;
    let said = talk.say(r#"!request terminal/output { "terminalId": "terminal-1" }"#).await;
    let own = fs::read_to_string("/proc/self/limits").unwrap();
    let own = own.lines().find(|line| line.contains("msgqueue")).unwrap().to_owned();
    assert!(said.contains("Max msgqueue size") && !said.contains(own.trim()), "{said}");
}

/// The cgroups of agents of a daemon.
fn groups(daemon: u32) -> Vec<std::path::PathBuf> {
    let marker = format!(".{daemon}.");
    let (mut found, mut open) = (Vec::new(), vec![std::path::PathBuf::from("/sys/fs/cgroup")]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true if name.starts_with("ostler-agent.") && name.contains(&marker) => {
                    found.push(entry.path())
                }
                true => open.push(entry.path()),
                false => {}
            }
        }
    }
    found
}

#[test]
fn an_interrupted_check_leaves_nothing() {
    for scope in SCOPES {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let entry =
                crate::agent::entry(json!({ "hangOn": "initialize", "ignoreEof": true, "daemon": true }));
            let options = json!({ "scope": scope, "agents": { "fake": entry } });
            let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
            let mut check = folder.heeding(&["agent", "check", "fake"]).spawn().unwrap();
            let runs = || left(check.id()).iter().any(|line| line.contains("sleep 300")).then_some(());
            assert!(wait_for(runs).is_some(), "{scope}: {:?}", left(check.id()));
            tell(check.id(), signal);
            assert_eq!(check.wait().unwrap().code(), Some(code), "{scope}");
            assert_eq!(left(check.id()), Vec::<String>::new(), "{scope}");
            assert_eq!(groups(check.id()), Vec::<std::path::PathBuf>::new(), "{scope}");
        }
    }
}

#[test]
fn a_check_ignores_the_signals_it_was_started_to_ignore() {
    let entry = agent::entry(json!({ "hangOn": "initialize" }));
    let options = json!({ "scope": "group", "agents": { "fake": entry } });
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
    for (trapped, told, code) in [("HUP INT", Signal::TERM, 143), ("INT", Signal::HUP, 129)] {
        let mut nohup = std::process::Command::new("env");
        nohup
            .args([crate::support::HEEDING, "sh", "-c"])
            .arg(format!("trap '' {trapped}; exec \"$0\" \"$@\""));
        let mut check = folder.told(nohup, &["agent", "check", "fake"]).spawn().unwrap();
        assert!(wait_for(|| (!left(check.id()).is_empty()).then_some(())).is_some());
        for signal in [Signal::HUP, Signal::INT] {
            if trapped.contains(if signal == Signal::HUP { "HUP" } else { "INT" }) {
                tell(check.id(), signal);
            }
        }
        // Signals that wait are handled in any order: the next one cannot show that these were ignored.
        std::thread::sleep(Duration::from_millis(100));
        assert!(check.try_wait().unwrap().is_none(), "{trapped}");
        tell(check.id(), told);
        assert_eq!(check.wait().unwrap().code(), Some(code), "{trapped}");
    }
}

#[tokio::test]
async fn a_check_in_the_daemon_ends_with_the_command_that_asked_for_it() {
    let heard = tempfile::NamedTempFile::new().unwrap();
    let config = json!({ "log": heard.path(), "ignoreEof": true });
    let options = json!({ "agents": { "fake": agent::entry(config), "other": agent::entry(json!({})) } });
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
    let daemon = folder.start();
    let arguments = ["agent", "check", "fake", "--prompt", "!sleep 60000"];
    let mut check = folder.command(&arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    let prompted = || fs::read_to_string(heard.path()).unwrap().contains("session/prompt").then_some(());
    assert!(wait_for(prompted).is_some());
    // Another command that ends does not end it.
    assert_eq!(folder.run(&["agent", "check", "other"]).code, Some(0));
    assert!(!left(daemon.child.id()).is_empty());
    tell(check.id(), Signal::KILL);
    check.wait().unwrap();
    none_is_left(daemon.child.id()).await;
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_start_in_another_cgroup_removes_what_a_killed_daemon_left() {
    let Some(groups) = Groups::new() else {
        return ostler_testkit::not_run("no cgroup can be made");
    };
    let line = "sleep 30153";
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options":
        { "agents": { "fake": crate::agent::entry(json!({})) } } }] }));
    let mut client = groups.start(&folder, "one");
    let mut talk = {
        let mut first = client.initialized("one").await;
        first.request("createSession", json!({ "channel": "fake:/one", "provider": "fake" })).await.unwrap();
        Talk::join(first, "fake:/one").await
    };
    let path = std::env::var("PATH").unwrap();
    talk.say(&format!(
        "!shell (setsid env -i PATH={path} sh -c 'exec {line}' </dev/null >/dev/null 2>&1 &) ; exit 0"
    ))
    .await;
    assert!(wait_for(|| (running(line) == 1).then_some(())).is_some());
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let other = groups.start(&folder, "two");
    let ended = wait_for(|| (running(line) == 0).then_some(()));
    assert!(ended.is_some(), "{line} runs");
    drop(other);
}

/// Two cgroups that daemons are started in; removed with this.
struct Groups(std::path::PathBuf);

impl Groups {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find_map(|line| {
            let (place, filesystem) = line.split_once(" - ")?;
            filesystem.starts_with("cgroup2 ").then(|| place.split(' ').nth(4))?
        })?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
        let base = std::path::Path::new(mount).join(own).join(format!("ostler-test-{}", std::process::id()));
        for name in ["one", "two"] {
            fs::create_dir_all(base.join(name)).ok()?;
        }
        base.join("one/cgroup.kill").exists().then_some(Self(base))
    }

    fn start(&self, folder: &Folder, name: &str) -> crate::support::Daemon {
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg("echo 0 > \"$0\" && exec \"$@\"").arg(self.0.join(name).join("cgroup.procs"));
        folder.started(folder.told(command, &[]))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        fn remove(dir: &std::path::Path) {
            let _ = fs::write(dir.join("cgroup.kill"), "1");
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove(&entry.path());
                }
            }
            let _ = fs::remove_dir(dir);
        }
        for _ in 0..50 {
            remove(&self.0);
            if !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
