//! `ostler logs`: the log of the daemon in the background.

use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use ostler_contract::{Value, json};
use ostler_telemetry::log_rotation::rotated;
use ostler_telemetry::printable::printable;

use crate::answer::{Answer, json_line};
use crate::api::page_shapes::LogLine;
use crate::daemon_file;
use crate::exit::Exit;
use crate::place::Place;
use crate::remote::Remote;

/// How often a followed log is read.
const EVERY: Duration = Duration::from_millis(200);
/// How often the log of another computer is requested.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The path of the request for its last lines.
const LOG: &str = "/api/log";

/// Which lines of the log to print.
#[derive(Debug, Clone, Args)]
pub struct LogsFlags {
    /// Keep printing new lines
    #[arg(short, long)]
    pub follow: bool,
    /// Number of lines to print from the end
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub lines: usize,
}

/// Prints the log; with `--json` one object per line.
///
/// # Errors
/// Exit 1 if there is no log.
pub async fn logs(at: &Place, flags: &LogsFlags) -> Result<Answer, Exit> {
    if let Some(remote) = at.remote()? {
        return elsewhere(at, &remote, flags).await;
    }
    let folders = at.folders()?;
    let running = daemon_file::running(&folders);
    let path = running
        .as_ref()
        .map_or_else(|| daemon_file::log_file(&folders.state), |record| record.log_file(&folders));
    let shown = path.display();
    if !path.exists() && !flags.follow {
        return Err(Exit::machine(format!(
            "no log at {shown}; only a daemon started with ostler start writes it, one in the foreground logs to its terminal"
        )));
    }
    if running.is_some_and(|record| !record.is_detached()) {
        let note =
            format!("the running daemon is in the foreground and logs to its terminal; printing {shown}\n");
        let _ = std::io::stderr().lock().write_all(note.as_bytes());
    }
    let mut log = Reader::default();
    let text = log.read(&path)?;
    let all: Vec<&str> = text.lines().collect();
    let last = all.iter().skip(all.len().saturating_sub(flags.lines));
    let mut open = print(last.copied(), at.common.json);
    while flags.follow && open {
        tokio::time::sleep(EVERY).await;
        open = print(log.read(&path)?.lines(), at.common.json);
    }
    Ok(Answer { printed: true, ..Answer::default() })
}

/// Prints the last lines that the daemon at a URL has in memory.
async fn elsewhere(at: &Place, remote: &Remote, flags: &LogsFlags) -> Result<Answer, Exit> {
    let mut all: Vec<LogLine> = remote.get(LOG).await?;
    let from = all.len().saturating_sub(flags.lines);
    let mut open = print(whole(&all[from..]).iter().map(String::as_str), at.common.json);
    while flags.follow && open {
        tokio::time::sleep(ASK_EVERY).await;
        let now: Vec<LogLine> = remote.get(LOG).await?;
        open = print(whole(later(&all, &now)).iter().map(String::as_str), at.common.json);
        all = now;
    }
    Ok(Answer { printed: true, ..Answer::default() })
}

/// Returns the lines in the form of a log file.
fn whole(lines: &[LogLine]) -> Vec<String> {
    lines.iter().map(|LogLine { at, text }| format!("{at} {text}")).collect()
}

/// Returns the lines after those of the previous request.
fn later<'a>(before: &[LogLine], now: &'a [LogLine]) -> &'a [LogLine] {
    let Some(last) = before.last() else { return now };
    let from = now.iter().rposition(|line| line == last).map_or(0, |at| at + 1);
    &now[from..]
}

/// Prints lines; returns `false` if the output is closed.
fn print<'a>(lines: impl Iterator<Item = &'a str>, json: bool) -> bool {
    let mut out = std::io::stdout().lock();
    for line in lines {
        let written = match json {
            true => writeln!(out, "{}", json_line(&row(line))),
            // Another daemon's lines, and what a crash wrote into the file, are not escaped.
            false => writeln!(out, "{}", printable(line)),
        };
        if written.is_err() {
            return false;
        }
    }
    out.flush().is_ok()
}

/// Returns a line as `{ at, line }`; `at` is null for a line without a time.
fn row(line: &str) -> Value {
    match line.split_once(' ') {
        Some((at, rest)) if at.parse::<jiff::Timestamp>().is_ok() => json!({ "at": at, "line": rest }),
        _ => json!({ "at": null, "line": line }),
    }
}

/// Reads whole lines as they are appended.
#[derive(Debug, Default)]
struct Reader {
    at: u64,
    begun: Vec<u8>,
}

impl Reader {
    /// Returns the lines written since; of a log that was rotated, the rest of the old one and all of the new one.
    fn read(&mut self, path: &Path) -> Result<String, Exit> {
        let failed =
            |error: std::io::Error| Exit::machine(format!("{} cannot be read: {error}", path.display()));
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(failed(error)),
        };
        if file.metadata().map_err(failed)?.len() < self.at {
            match File::open(rotated(path)) {
                Ok(old) if old.metadata().is_ok_and(|old| old.len() >= self.at) => {
                    self.append(old).map_err(failed)?
                }
                // Of a file that was replaced, its beginning is no line of this one.
                _ => self.begun.clear(),
            }
            if !self.begun.is_empty() && !self.begun.ends_with(b"\n") {
                self.begun.push(b'\n');
            }
            self.at = 0;
        }
        self.append(file).map_err(failed)?;
        let end = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.begun.drain(..end).collect();
        Ok(String::from_utf8_lossy(&whole).into_owned())
    }

    /// Adds what follows in a file.
    fn append(&mut self, mut file: File) -> std::io::Result<()> {
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read_to_end(&mut self.begun)?;
        self.at += u64::try_from(read).unwrap_or_default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whole_and_a_new_file_from_its_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut reader = Reader::default();
        assert_eq!(reader.read(&path).unwrap(), "");
        std::fs::write(&path, "a\nb").unwrap();
        assert_eq!(reader.read(&path).unwrap(), "a\n");
        std::fs::write(&path, "a\nb c\n").unwrap();
        assert_eq!(reader.read(&path).unwrap(), "b c\n");
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(reader.read(&path).unwrap(), "new\n");
        // Rotated after more was written to it.
        let old = path.with_extension("log.1");
        std::fs::write(&old, "new\nlast\ncut").unwrap();
        std::fs::write(&path, "a\n").unwrap();
        assert_eq!(reader.read(&path).unwrap(), "last\ncut\na\n");
        std::fs::write(&path, "a\nmore\n").unwrap();
        assert_eq!(reader.read(&path).unwrap(), "more\n");
    }

    #[test]
    fn lines_that_were_printed_are_not_printed_again() {
        let lines = |texts: &[&str]| -> Vec<LogLine> {
            texts.iter().map(|text| LogLine { at: "now".to_owned(), text: (*text).to_owned() }).collect()
        };
        let before = lines(&["a", "b", "a"]);
        assert_eq!(later(&before, &lines(&["b", "a", "c", "d"])), lines(&["c", "d"]));
        assert_eq!(later(&before, &before), []);
        assert_eq!(later(&before, &lines(&["c"])), lines(&["c"]), "of a daemon that started since");
        assert_eq!(later(&[], &before), before);
    }

    #[test]
    fn a_line_is_its_time_and_its_text() {
        assert_eq!(
            row("2026-01-01T00:00:00.000Z plugin a: b"),
            json!({ "at": "2026-01-01T00:00:00.000Z", "line": "plugin a: b" })
        );
        assert_eq!(row("pid 7"), json!({ "at": null, "line": "pid 7" }));
    }
}
