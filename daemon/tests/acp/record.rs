//! A recording pipe between the plugin and a real agent: everything the plugin sends is put into a file, each answer with
//! the method it answers, so that it can be compared with the protocol's schema.
//!
//! It runs in the test's own binary, as the test [`run`], with the protocol on file descriptor 3.

use std::collections::{BTreeSet, HashMap};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::frames;

/// The recorder itself, where it is asked for; otherwise a test that has nothing to do.
#[test]
fn run() {
    if let Ok(recorded) = std::env::var("RECORDED_AGENT") {
        exit(record(&serde_json::from_str(&recorded).unwrap()));
    }
}

/// The configuration of an agent whose frames are recorded in a file.
pub fn entry(mut entry: Value, log: &Path) -> Value {
    let recorded = json!({ "command": entry["command"], "args": entry["args"], "log": log });
    let binary = std::env::current_exe().unwrap();
    let line = format!("exec \"{}\" record::run --exact --nocapture 3>&1 1>/dev/null", binary.display());
    entry["command"] = "/bin/sh".into();
    entry["args"] = json!(["-c", line]);
    if entry["env"].is_null() {
        entry["env"] = json!({});
    }
    entry["env"]["RECORDED_AGENT"] = recorded.to_string().into();
    entry
}

fn record(recorded: &Value) -> i32 {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut child = Command::new(text(&recorded["command"]))
        .args(recorded["args"].as_array().into_iter().flatten().map(text))
        .env_remove("RECORDED_AGENT")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = Arc::<Mutex<HashMap<String, Value>>>::default();
    let (mut to_agent, from_agent) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut log = OpenOptions::new().create(true).append(true).open(text(&recorded["log"])).unwrap();
    let methods = asked.clone();
    thread::spawn(move || {
        for line in stdin().lines() {
            let Ok(line) = line else { return };
            let mut frame: Value = serde_json::from_str(&line).unwrap();
            if let Some(method) = methods.lock().unwrap().get(&frame["id"].to_string())
                && frame.get("method").is_none()
            {
                frame["answers"] = method.clone();
            }
            writeln!(log, "{frame}").unwrap();
            if writeln!(to_agent, "{line}").and_then(|()| to_agent.flush()).is_err() {
                return;
            }
        }
    });
    let mut out = OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    for line in BufReader::new(from_agent).lines() {
        let Ok(line) = line else { break };
        if let Ok(frame) = serde_json::from_str::<Value>(&line)
            && frame.get("id").is_some()
            && frame.get("method").is_some()
        {
            asked.lock().unwrap().insert(frame["id"].to_string(), frame["method"].clone());
        }
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    child.wait().unwrap().code().unwrap_or(1)
}

/// Checks every recorded frame; returns the methods among them.
pub fn checked(log: &Path) -> BTreeSet<String> {
    let recorded = std::fs::read_to_string(log).unwrap();
    let mut methods = BTreeSet::new();
    for line in recorded.lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        let (method, problems) = frames::check(&frame);
        assert!(problems.is_empty(), "{method}: {problems:?}\n{frame}");
        methods.insert(method);
    }
    methods
}
