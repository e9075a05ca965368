//! Checks that every process is started with a command of `ostler_processes::ChildKind`, which says what it inherits from
//! the environment.

use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources, without_tests};

/// The sources that are checked. Tests, and programs for development, start processes as they like.
const SOURCES: [&str; 3] = ["crates", "daemon", "plugins"];
/// The only file that makes a command, and crates that only tests use.
const EXCEPT: [&str; 3] = ["crates/processes/src/child.rs", "crates/testkit/", "crates/simulation/"];
/// Other ways to start a process or to make a command.
const OTHER: [&str; 8] = [
    "posix_spawn",
    "execve",
    "execvp",
    "libc::fork",
    "libc::vfork",
    "nix::unistd::fork",
    "pty_process::Command::new",
    "process::*",
];

/// Adds a problem for each line that makes a command elsewhere.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    for file in SOURCES.iter().flat_map(|folder| sources(&root.join(folder), &["rs"])) {
        let name = relative(root, &file);
        if !name.contains("/src/") || EXCEPT.iter().any(|except| name.starts_with(except)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        for line in made_by_hand(without_tests(&text)) {
            problems.push(format!(
                "{name}:{line}: a process is started with its own command; use ostler_processes::ChildKind::command, which \
                 selects what it inherits"
            ));
        }
    }
}

/// Returns the numbers of the lines that make a command of a process.
fn made_by_hand(text: &str) -> Vec<usize> {
    // `Command` also names the commands of clap.
    let imports = imports_command(text);
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let made = (imports && code.contains("Command::new")) || code.contains("process::Command::new");
        if made || code.contains("Command as ") || OTHER.iter().any(|other| code.contains(other)) {
            found.push(at + 1);
        }
    }
    found
}

/// Returns whether a text imports a command of the standard library or of tokio.
fn imports_command(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find("process::") {
        rest = &rest[at + "process::".len()..];
        let named = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default(),
        };
        if named.split(',').any(|name| name.split_whitespace().next() == Some("Command")) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_make_a_command_is_found() {
        for text in [
            "use std::process::Command;\nfn f() { Command::new(\"a\"); }",
            "use std::process::{\n    Child, Command,\n};\nlet c = Command::new(\"a\");",
            "use tokio::process::{Child, Command};\nlet of = Command::new;",
            "let c = std::process::Command::new(\"a\");",
            "use std::process::{Command as Other, Stdio};",
            "use tokio::process::*;",
            "let c = pty_process::Command::new(\"a\");",
            "unsafe { libc::execve(a, b, c) };",
        ] {
            assert_eq!(made_by_hand(text).len(), 1, "{text}");
        }
        for text in [
            "use clap::Command;\nlet c = Command::new(\"a\");",
            "use tokio::process::Command;\nlet c = Command::from(ChildKind::Git.command(\"git\"));",
            "use std::process::ExitStatus;\n// Command::new is elsewhere",
        ] {
            assert_eq!(made_by_hand(text), [0_usize; 0], "{text}");
        }
    }
}
