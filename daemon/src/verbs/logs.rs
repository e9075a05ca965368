//! `ostler logs`: the log of the daemon in the background.

use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
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
    let (mut log, last) = Reader::at_last(&path, flags.lines)?;
    let mut open = print(last.iter().map(String::as_str), at.common.json);
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

fn unreadable(path: &Path, error: &std::io::Error) -> Exit {
    Exit::machine(format!("{} cannot be read: {error}", path.display()))
}

/// Opens a file, if there is one, and returns which it is.
fn opened(path: &Path) -> Result<Option<(File, (u64, u64))>, Exit> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let about = file.metadata().map_err(|error| unreadable(path, &error))?;
    Ok(Some((file, (about.dev(), about.ino()))))
}

/// Reads whole lines as they are appended.
#[derive(Debug, Default)]
struct Reader {
    at: u64,
    begun: Vec<u8>,
}

impl Reader {
    /// Returns the last lines of a log, also of the rotated one if it has too few, and a reader of what follows.
    fn at_last(path: &Path, lines: usize) -> Result<(Self, Vec<String>), Exit> {
        loop {
            let before = opened(&rotated(path))?;
            let mut reader = Self::default();
            let text = reader.read(path)?;
            let mut all: Vec<&str> = text.lines().collect();
            let mut old = String::new();
            if all.len() < lines
                && let Some((mut file, id)) = before
            {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| unreadable(&rotated(path), &error))?;
                if opened(&rotated(path))?.is_none_or(|(_, now)| now != id) {
                    // Rotated meanwhile: what was read is not all that was between the two.
                    continue;
                }
                old = String::from_utf8_lossy(&bytes).into_owned();
                // Copied, but not emptied yet.
                if text.starts_with(&old) {
                    old.clear();
                }
            }
            let older: Vec<&str> = old.lines().collect();
            all.splice(..0, older);
            let last = all.iter().skip(all.len().saturating_sub(lines));
            return Ok((reader, last.map(|line| (*line).to_owned()).collect()));
        }
    }

    /// Returns the lines written since; of a log that was rotated, the rest of the old one and all of the new one.
    fn read(&mut self, path: &Path) -> Result<String, Exit> {
        let failed = |error: std::io::Error| unreadable(path, &error);
        let Some((file, _)) = opened(path)? else { return Ok(String::new()) };
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
    fn the_last_lines_go_back_into_the_rotated_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        let last = |lines: usize| Reader::at_last(&path, lines).unwrap().1.join(" ");
        std::fs::write(&path, "c\nd\n").unwrap();
        assert_eq!(last(3), "c d");
        std::fs::write(rotated(&path), "a\nb\ncut").unwrap();
        assert_eq!([0, 1, 2, 3, 4, 9].map(last), ["", "d", "c d", "cut c d", "b cut c d", "a b cut c d"]);
        // Emptied a moment ago.
        std::fs::write(&path, "").unwrap();
        assert_eq!(last(2), "b cut");
        // Copied, and not emptied yet.
        std::fs::write(rotated(&path), "c\nd\n").unwrap();
        std::fs::write(&path, "c\nd\ne\n").unwrap();
        assert_eq!(last(9), "c d e");
        // What is written later follows.
        let (mut reader, _) = Reader::at_last(&path, 9).unwrap();
        std::fs::write(&path, "c\nd\ne\nf\n").unwrap();
        assert_eq!(reader.read(&path).unwrap(), "f\n");
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
