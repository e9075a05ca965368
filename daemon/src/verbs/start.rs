//! `ostler start`: starts the daemon in a separate process.

use std::fs::{self, File};
use std::io::{Read as _, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ostler_contract::{Value, json};
use ostler_ports::atomic;
use ostler_processes::ChildKind;
use ostler_telemetry::log_rotation::{self, ROTATES_AT, rotated};

use crate::announce;
use crate::answer::Answer;
use crate::cli::DETACHED;
use crate::config::Folders;
use crate::config::RunFlags;
use crate::daemon_file::{self, Record};
use crate::exit::Exit;
use crate::place::Place;
use crate::problems;
use crate::process::poll;
use crate::progress::Progress;
use crate::settings::Settings;

/// The limit until a daemon announces its address.
const LIMIT: Duration = Duration::from_secs(20);
/// Flags about the output of a command, not about the daemon.
const ANSWERS: &[&str] = &["--json", "--quiet", "--verbose", "--no-color"];

/// Starts a daemon and waits until it has announced its address.
///
/// # Errors
/// Exit 2 for conflicting flags, exit 1 if it does not start.
pub async fn start(place: &Place, flags: &RunFlags, arguments: &[String]) -> Result<Answer, Exit> {
    if flags.stdio {
        return Err(Exit::usage("--stdio cannot be detached: it serves the process that started it."));
    }
    let settings = Settings::new(flags, place.files()?, &place.working_dir)?;
    settings.token.token()?;
    let folders = &settings.folders();
    let could_not = |why: String| Exit::machine(format!("Could not start it: {why}"));
    if daemon_file::running(folders).is_some() || daemon_file::starting(folders).is_some() {
        return Err(could_not(daemon_file::already(folders)));
    }
    let mut log = Tail::open(folders)?;
    let failed = |error: std::io::Error| could_not(error.to_string());
    let out = log_rotation::open(&log.path)
        .map_err(|error| could_not(format!("{} could not be opened: {error}", log.path.display())))?;
    let mut command = ChildKind::Host.command(std::env::current_exe().map_err(failed)?);
    // Signals to the group of this command, for example from an editor, must not reach the daemon.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command
        .args(of_the_run(arguments))
        .arg(DETACHED)
        .stdin(Stdio::null())
        .stderr(Stdio::from(out.try_clone().map_err(failed)?))
        .stdout(Stdio::from(out))
        .spawn()
        .map_err(failed)?;
    let pid = child.id();
    let progress = Progress::begin(&place.common, "starting");
    let up = poll(LIMIT, || {
        if let Ok(Some(status)) = child.try_wait() {
            let code = status.code().map_or_else(|| "a signal".to_owned(), |code| code.to_string());
            return Some(Err(format!("it exited with {code}")));
        }
        daemon_file::running(folders).map(Ok)
    })
    .await;
    drop(progress);
    let shown = log.path.display().to_string();
    match up {
        None => Err(could_not(format!(
            "it started but did not report its address. See {shown}{}",
            log.last_words()
        ))),
        Some(Err(why)) => Err(could_not(format!("{why}. See {shown}{}", log.last_words()))),
        Some(Ok(record)) if record.pid != pid => Err(could_not(format!(
            "another daemon, pid {}, was started in its place while it started",
            record.pid
        ))),
        Some(Ok(record)) => {
            let warnings = settings.warnings.iter();
            let answer =
                warnings.fold(started(&record, &log.skipped(pid)).await, |answer, line| answer.note(line));
            Ok(answer)
        }
    }
}

/// Returns the command line of a run: the typed one, without `start` and the flags about output.
fn of_the_run(arguments: &[String]) -> Vec<String> {
    let mut run: Vec<String> = Vec::new();
    let mut word = false;
    for argument in arguments.iter().skip(1) {
        let value = run.last().is_some_and(|before| before == "--config-file");
        if !word && !value && argument == "start" {
            word = true;
        } else if value || !ANSWERS.contains(&argument.as_str()) {
            run.push(argument.clone());
        }
    }
    run
}

/// Returns the output of `start` and `restart` for a daemon that is up.
pub(super) async fn started(record: &Record, skipped: &[String]) -> Answer {
    let Record { pid, url, public_url, paths, automations, .. } = record;
    let mut lines: Vec<String> = skipped.iter().map(|line| announce::skipped(line)).collect();
    lines.push(format!("ostler on {url} (pid {pid}), serving {}", paths.join(", ")));
    lines.extend(public_url.as_ref().map(|url| format!("public URL {url}")));
    lines.extend(automations.clone());
    let mut json = json!({ "url": url, "pid": pid, "paths": paths, "skipped": skipped });
    if let Some(automations) = automations {
        json["automations"] = Value::from(automations.clone());
    }
    let problems = problems::here(record).await;
    json["problems"] = json!(problems);
    let notes = problems::lines(problems.iter().filter(|problem| !skipped.contains(&problem.found)));
    notes.into_iter().fold(Answer::new(lines, json).named([url]), Answer::note)
}

/// The end of a daemon's log: the lines written since it was opened.
pub(super) struct Tail {
    pub(super) path: PathBuf,
    from: u64,
}

impl Tail {
    /// Opens the log; a large one is rotated to `daemon.log.1`.
    pub(super) fn open(folders: &Folders) -> Result<Self, Exit> {
        let path = daemon_file::log_file(&folders.state);
        let failed =
            |error: std::io::Error| Exit::machine(format!("{} could not be opened: {error}", path.display()));
        atomic::make_private_folder(&folders.state).map_err(failed)?;
        daemon_file::move_log(folders);
        if fs::metadata(&path).is_ok_and(|found| found.len() >= ROTATES_AT) {
            fs::rename(&path, rotated(&path)).map_err(failed)?;
        }
        Ok(Self::at_end(path))
    }

    /// Opens the log without rotation, at its end.
    pub(super) fn at_end(path: PathBuf) -> Self {
        let from = fs::metadata(&path).map_or(0, |found| found.len());
        Self { path, from }
    }

    /// Returns what was written since.
    pub(super) fn text(&self) -> String {
        let mut text = Vec::new();
        let read = File::open(&self.path).and_then(|mut log| {
            // The daemon may have rotated it.
            let from = if log.metadata()?.len() < self.from { 0 } else { self.from };
            log.seek(SeekFrom::Start(from))?;
            log.read_to_end(&mut text)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&text).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// Returns the skipped items in a daemon's announcement.
    pub(super) fn skipped(&mut self, pid: u32) -> Vec<String> {
        let text = self.text();
        let mut lines = text.lines().skip_while(|line| *line != format!("pid {pid}"));
        lines.by_ref().filter_map(announce::skipped_of).map(str::to_owned).collect()
    }

    /// Returns why it ended, as lines.
    pub(super) fn last_words(&self) -> String {
        decisive(&self.text()).iter().map(|line| format!("\n{line}")).collect()
    }
}

/// Returns the lines of a log with the reason of the daemon's end: its last lines without a time, the form of the exit
/// reason, otherwise its last line.
fn decisive(log: &str) -> Vec<&str> {
    let stamped = |line: &&str| {
        line.split(' ').next().is_some_and(|first| first.parse::<jiff::Timestamp>().is_ok())
            // The rest of a line of the log.
            || line.starts_with("    ")
    };
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.iter().rposition(stamped);
    let reason = last.map_or(0, |last| last + 1);
    let from = if reason == lines.len() { reason.saturating_sub(1) } else { reason };
    lines[from..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_exit_is_told_from_the_log_before_it() {
        let log =
            "2026-01-01T00:00:00.000Z plugin a loading\n2026-01-01T00:00:01.000Z boom\n    at a.js:1:2\n";
        assert_eq!(decisive(&format!("{log}skipped: a\nNo backend.\n")), ["skipped: a", "No backend."]);
        assert_eq!(decisive("Could not listen.\n"), ["Could not listen."]);
        assert_eq!(decisive("2026-01-01T00:00:00.000Z stopping\n"), ["2026-01-01T00:00:00.000Z stopping"]);
        assert!(decisive("\n").is_empty());
    }

    #[test]
    fn a_run_is_started_with_what_was_typed() {
        let run = |line: &str| of_the_run(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ");
        assert_eq!(run("ostler start --port 0 --json"), "--port 0");
        assert_eq!(run("ostler --config-file start start --quiet"), "--config-file start");
        assert_eq!(
            run("ostler --json --config-file=c start --plugin start"),
            "--config-file=c --plugin start"
        );
    }
}
