//! Texts of records in the output of commands: whoever wrote them controls no terminal, and begins no line.

use serde_json::json;

use crate::support::{Folder, wait_for};

/// The title of a window, a colour, a line of its own and a change of direction, as YAML and as JSON.
const YAML: &str = r#""S\x1b]0;PWN\x07\x1b[31m\x9b2J\r\nFORGED\u202e""#;
const TEXT: &str = "S\u{1b}]0;PWN\u{7}\u{1b}[31m\u{9b}2J\r\nFORGED\u{202e}";

fn is_hidden(character: char) -> bool {
    character != '\n' && (character.is_control() || matches!(character, '\u{202a}'..='\u{202e}'))
}

/// Runs a command in each format of its output.
#[track_caller]
fn checked(folder: &Folder, line: &[&str]) {
    for format in [&[][..], &["--json"], &["--quiet"]] {
        let ended = folder.run(&[line, format].concat());
        assert_eq!(ended.code, Some(0), "{line:?}: {ended:?}");
        for output in [&ended.out, &ended.err] {
            assert!(!output.contains(is_hidden), "{line:?} {format:?}: {output:?}");
            assert!(
                output.lines().all(|line| !line.starts_with("FORGED")),
                "{line:?} {format:?}: {output:?}"
            );
        }
        if format.is_empty() {
            assert!(ended.out.contains("PWN"), "{line:?} prints the text: {ended:?}");
        }
    }
}

#[test]
fn texts_of_records_stay_in_their_line() {
    let folder =
        Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }] }));
    let automation = format!(
        "---\ntitle: {YAML}\nenabled: true\nsession: {{ provider: echo }}\ntriggers:\n  - id: called\n    kind: event\n    \
         type: webhook\n    title: {YAML}\n    events: [{{ id: call, title: {YAML} }}]\n    config: {{ endpoint: in }}\n---\n\
         Look at {TEXT}\n"
    );
    folder.write("automations/odd.md", &automation);
    let _daemon = folder.start();
    wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
    checked(&folder, &["automation", "list"]);
    checked(&folder, &["automation", "show", "odd"]);
    let run = folder.run(&["automation", "run", "odd", "--follow"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.out.contains(is_hidden) && run.out.contains("FORGED"), "{run:?}");
    let runs = folder.run(&["automation", "runs", "odd"]);
    assert!(runs.code == Some(0) && !runs.out.contains(is_hidden), "{runs:?}");
    checked(&folder, &["session", "list"]);
    let sessions = folder.run(&["session", "list", "--quiet"]).out;
    checked(&folder, &["session", "show", sessions.trim()]);
}

#[test]
fn titles_of_teams_and_projects_stay_in_their_line() {
    let folder = Folder::new(json!({ "users": "users.json", "plugins": [{ "name": "@ostler/echo" }] }));
    let group = json!({ "odd": { "title": TEXT } });
    folder.write("users.json", &json!({ "teams": group, "projects": group, "users": [] }).to_string());
    checked(&folder, &["team", "list"]);
    checked(&folder, &["project", "list"]);
}
