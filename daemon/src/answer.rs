//! The answer of a command and its output formats: text lines, one JSON value, or names only.

use std::io::Write;

use clap::{Arg, Args, Command};
use ostler_contract::{Value, json};
use ostler_loader::options::without_password;
use ostler_protocol::names;
use ostler_telemetry::printable::{is_hidden, one_line, printable};
use serde::Serialize;

use crate::config_redaction::without_userinfo;
use crate::exit::Exit;

/// The heading of the global flags.
const EVERY: &str = "Global options";
/// The heading of the flags of commands that can use another computer's daemon.
const REMOTE: &str = "Remote options";

/// The flags that every command accepts.
#[derive(Debug, Clone, Default, Args)]
pub struct Common {
    /// Print one JSON value
    #[arg(long, global = true, help_heading = EVERY)]
    pub json: bool,
    /// Print only names
    #[arg(long, global = true, help_heading = EVERY)]
    pub quiet: bool,
    /// Print progress to stderr
    #[arg(long, global = true, help_heading = EVERY)]
    pub verbose: bool,
    /// Disable colors
    #[arg(long, global = true, help_heading = EVERY)]
    pub no_color: bool,
    /// Read only this configuration file
    #[arg(long, value_name = "FILE", global = true, help_heading = EVERY)]
    pub config_file: Option<std::path::PathBuf>,
    /// Ask the daemon at this URL, with the token of OSTLER_TOKEN or --token-file
    #[arg(long, value_name = "URL", global = true, help_heading = REMOTE)]
    pub remote: Option<String>,
    /// File with the token for --remote
    #[arg(long, value_name = "FILE", global = true, help_heading = REMOTE)]
    pub token_file: Option<std::path::PathBuf>,
    /// Allow --remote to send the token to another computer unencrypted
    #[arg(long, global = true, help_heading = REMOTE)]
    pub allow_http: bool,
}

impl Common {
    /// The program as a user types it for the same configuration.
    pub fn program(&self) -> String {
        match &self.config_file {
            Some(file) => format!("{} --config-file {}", names::HOST, file.display()),
            None => names::HOST.to_owned(),
        }
    }

    /// The flags for the output and the configuration, hidden, for a command that has neither and rejects them.
    pub fn not_served() -> Vec<Arg> {
        let all = Self::augment_args(Command::new("")).get_arguments().cloned().collect::<Vec<_>>();
        let refused = |arg: &Arg| matches!(arg.get_id().as_str(), "json" | "quiet" | "config_file");
        all.into_iter().filter(refused).map(|arg| arg.hide(true)).collect()
    }

    /// The flags of `--remote`, hidden: for a command that works only on this computer and rejects them.
    pub fn not_remote() -> Vec<Arg> {
        let all = Self::augment_args(Command::new("")).get_arguments().cloned().collect::<Vec<_>>();
        let refused = |arg: &Arg| matches!(arg.get_id().as_str(), "remote" | "token_file" | "allow_http");
        all.into_iter().filter(refused).map(|arg| arg.hide(true)).collect()
    }

    /// Rejects conflicting flags.
    ///
    /// # Errors
    /// Exit 2.
    pub fn check(&self) -> Result<(), Exit> {
        match self.json && self.quiet {
            true => Err(Exit::usage("--json and --quiet cannot be used together")),
            false => Ok(()),
        }
    }
}

/// The answer of a command.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Text for users, on stdout.
    pub text: String,
    /// With `--json`.
    pub json: Value,
    /// With `--quiet`, one per line.
    pub names: Vec<String>,
    /// Text for users, on stderr.
    pub notes: Vec<String>,
    /// The exit code.
    pub code: u8,
    /// Whether the command has printed everything itself.
    pub printed: bool,
}

impl Answer {
    /// Creates an answer from lines and their form as JSON. Texts of records in a line neither end it nor reach the terminal
    /// as control characters.
    pub fn new(lines: impl IntoIterator<Item = impl Into<String>>, json: Value) -> Self {
        let text = lines.into_iter().map(|line| one_line(&line.into()) + "\n").collect();
        Self { text, json, ..Self::default() }
    }

    /// Creates an answer from text of several lines and its form as JSON.
    pub fn of_text(text: &str, json: Value) -> Self {
        Self { text: printable(text) + "\n", json, ..Self::default() }
    }

    /// Sets the output of `--quiet`.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a line on stderr.
    #[must_use]
    pub fn note(mut self, line: impl Into<String>) -> Self {
        self.notes.push(line.into());
        self
    }

    /// Hides the name and password of each URL in the answer.
    #[must_use]
    pub fn without_passwords(self) -> Self {
        let hidden = |text: &str| without_password(text).into_owned();
        Self {
            text: self.text.split_inclusive('\n').map(hidden).collect(),
            json: without_userinfo(self.json),
            names: self.names.iter().map(|name| hidden(name)).collect(),
            notes: self.notes.iter().map(|note| hidden(note)).collect(),
            ..self
        }
    }

    /// The answer if the target does not exist: `{ "<what>": false }`, exit code 1.
    pub fn none(line: &str, what: &str) -> Self {
        Self { code: 1, ..Self::new([line], json!({ what: false })) }
    }

    /// The answer if no daemon runs.
    pub fn none_running(what: &str) -> Self {
        Self::none("None running.", what)
    }

    /// Prints it.
    pub fn print(&self, common: &Common) {
        let mut out = std::io::stdout().lock();
        // The reader may have closed its end, which is not an error.
        let _ = match (common.json, common.quiet) {
            _ if self.printed => Ok(()),
            (true, _) => writeln!(out, "{}", json_line(&self.json)),
            (_, true) => self.names.iter().try_for_each(|name| writeln!(out, "{}", one_line(name))),
            _ => out.write_all(self.text.as_bytes()),
        };
        let _ = out.flush();
        if !common.quiet {
            let mut err = std::io::stderr().lock();
            let _ = self.notes.iter().try_for_each(|line| writeln!(err, "{}", printable(line)));
        }
    }
}

/// Returns JSON on one line, in which characters that a terminal interprets are escaped.
pub fn json_line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    if !text.contains(is_hidden) {
        return text;
    }
    // They are in strings only, and none is beyond the 16 bits of an escape.
    let escaped = |character: char| match is_hidden(character) {
        true => format!("\\u{:04x}", u32::from(character)),
        false => character.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_records_control_no_terminal() {
        let title = "S\u{1b}]0;PWN\u{7}\u{1b}[31m\u{9b}2J\r\nFORGED\u{202e}";
        let answer = Answer::new([format!("a: {title}"), "b".to_owned()], json!({ "title": title }));
        assert_eq!(answer.text.lines().count(), 2);
        assert!(
            !answer.text.contains(|character: char| is_hidden(character) && character != '\n'),
            "{}",
            answer.text
        );
        let line = json_line(&answer.json);
        assert!(!line.contains(is_hidden), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), answer.json);
        let text = Answer::of_text("a\n\tb\u{1b}", Value::Null).text;
        assert_eq!(text, "a\n\tb\\u{1b}\n");
    }
}
