//! What a command prints while it follows a run or a turn: lines for a person, or nothing where the answer is JSON.

use std::io::Write;

use ostler_telemetry::printable::{is_hidden, one_line};

use super::follow::Seen;
use crate::answer::Common;
use crate::pending::prefixed;

/// How much of a message is printed on one line.
const LINE: usize = 100;

/// Prints what is seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Screen {
    shown: bool,
    /// Whether the cursor stands behind streamed text.
    in_text: bool,
}

impl Screen {
    /// Prints for a person; nothing with `--json` or `--quiet`.
    pub fn of(common: &Common) -> Self {
        Self { shown: !common.json && !common.quiet, in_text: false }
    }

    /// Prints a line.
    pub fn line(&mut self, line: impl std::fmt::Display) {
        if self.shown {
            self.end_text();
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{}", one_line(&line.to_string()));
            let _ = out.flush();
        }
    }

    /// Prints what is seen of a run or a turn.
    pub fn see(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Session(session) => self.line(format_args!("session {session}")),
            Seen::Asked(text) => prefixed("> ", text).iter().for_each(|line| self.line(line)),
            Seen::Called(tool) => self.line(format_args!("[tool {}]", one_line(tool))),
            Seen::Answered(text) => {
                for line in text.lines() {
                    self.line(format_args!("    {}", one_line(line)));
                }
            }
            Seen::Text(text) => self.text(text),
            Seen::Waits(session, request) => request.lines(session).iter().for_each(|line| self.line(line)),
            Seen::Over => self.end_text(),
        }
    }

    fn text(&mut self, text: &str) {
        if !self.shown || text.is_empty() {
            return;
        }
        let mut out = std::io::stdout().lock();
        let start = if self.in_text { "" } else { "  " };
        let lines: Vec<String> = text.split('\n').map(one_line_of).collect();
        let _ = write!(out, "{start}{}", lines.join("\n  "));
        let _ = out.flush();
        self.in_text = true;
    }

    fn end_text(&mut self) {
        if std::mem::take(&mut self.in_text) && self.shown {
            let _ = writeln!(std::io::stdout().lock());
        }
    }
}

/// A piece of streamed text: control characters do not reach the terminal, spaces at its ends stay.
fn one_line_of(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// The first line of a message, shortened.
pub fn first_line(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(LINE).collect();
    let line = one_line(&line);
    if line.len() < text.trim_end().len() { format!("{line} …") } else { line }
}

#[cfg(test)]
mod tests {
    use super::first_line;

    #[test]
    fn a_message_is_shown_by_its_first_line() {
        assert_eq!(first_line("Hello.\n"), "Hello.");
        assert_eq!(first_line("Hello.\nAgain."), "Hello. …");
        assert_eq!(first_line("\u{1b}[2J"), "\\u{1b}[2J");
    }
}
