//! `ostler doctor`: checks everything that a start depends on, and suggests a fix for each problem.

mod database;
mod disk;
mod load;
mod notify;
mod vault;

use ostler_contract::problems::{ProblemKind, STATE};
use ostler_contract::{Value, json};
use ostler_engine::LocalSystem;
use ostler_protocol::names;
use ostler_protocol::wire::SUPPORTED_PROTOCOL_VERSIONS;
use ostler_telemetry::printable::one_line;

use crate::answer::{Answer, Common};
use crate::api::problem_shapes::Problem;
use crate::client::Connection;
use crate::config::ConfigFiles;
use crate::config::RunFlags;
use crate::daemon_file::{self, Record};
use crate::exit::Exit;
use crate::local_system::OnDisk;
use crate::parts;
use crate::place::Place;
use crate::problems;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::users_file::UsersOnDisk;
use crate::verbs::restart;

/// The status of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No problem.
    Ok,
    /// It works, but may not be intended.
    Warning,
    /// It prevents something from working.
    Error,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its subject: `configuration`, `directories`, `state`, `database`, `token`, `users`, `policies`, `port`, `plugins`,
    /// `agents`, `automations`, `records`, `vault`, `notify`, `clock`, `cluster` or `versions`.
    pub what: &'static str,
    /// Its status.
    pub state: State,
    /// The finding.
    pub found: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Check {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: State::Ok, found: found.into(), fix: None }
    }

    fn warning(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, state: State::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    fn error(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { state: State::Error, ..Self::warning(what, found, fix) }
    }

    fn lines(&self) -> Vec<String> {
        let (state, what, found) = (self.state.word(), self.what, one_line(&self.found));
        let mut lines = vec![format!("{state:<8} {what:<14} {found}")];
        lines.extend(self.fix.as_ref().map(|fix| format!("{:<8} {:<14} fix: {}", "", "", one_line(fix))));
        lines
    }

    fn json(&self) -> Value {
        json!({ "check": self.what, "state": self.state.word(), "found": self.found, "fix": self.fix })
    }
}

/// Checks everything; exit code 1 if something prevents a start or a plugin from working.
///
/// # Errors
/// Exit 2 if no configuration path can be determined.
pub async fn doctor(at: &Place) -> Result<Answer, Exit> {
    let progress = Progress::begin(&at.common, "checking");
    let folders = at.folders()?;
    let running = daemon_file::running(&folders);
    // What a daemon of an earlier version was started with is not known.
    let started = running.as_ref().filter(|record| record.argv.is_some());
    let (place, flags, unknown) = match started.map(|record| restart::started_as(at, record)) {
        Some(Ok((place, flags))) => {
            let config_file = place.common.config_file.or_else(|| at.common.config_file.clone());
            let common = Common { config_file, ..at.common.clone() };
            (Place { common, ..place }, flags, None)
        }
        Some(Err(why)) => (at.clone(), RunFlags::default(), Some(why)),
        None => (at.clone(), RunFlags::default(), None),
    };
    let at = &place;
    let (files, settings, mut checks) = configuration(at, &flags, running.as_ref());
    checks.extend(unknown.map(|why| {
        let found = format!("the command line of the running daemon is not known to this program: {why}");
        Check::warning("configuration", found, "use the program that started it, or run ostler restart")
    }));
    checks.extend(disk::directories(&folders, settings.as_ref()));
    if let Some(settings) = &settings {
        // A running daemon has it open.
        let state = running.is_none().then(|| disk::state(&folders, settings)).flatten();
        checks.extend(state);
        checks.extend(disk::token(&settings.token));
    }
    let mut database = None;
    let mut users = None;
    if let Some(options) = files.as_ref().and_then(database::options) {
        let dir = files.as_ref().map(|files| files.dir.clone()).unwrap_or_default();
        let (found, about) = database::check(&options, &dir, running.is_some()).await;
        checks.extend(about);
        if let Some(direct) = &found {
            let (read, about) = database::users(direct, settings.as_ref()).await;
            checks.extend(about);
            users = read;
        }
        database = found;
    } else if let Some(file) = settings.as_ref().and_then(|settings| settings.users.as_ref()) {
        checks.extend(disk::users(file));
        users = Some(UsersOnDisk::new(file.clone()).read());
    }
    let daemon = match &running {
        Some(record) => Some(Connection::open(&record.connect_url, "ostler-doctor").await),
        None => None,
    };
    checks.extend(disk::port(settings.as_ref(), running.as_ref(), daemon.as_ref()).await);
    let daemon = daemon.and_then(Result::ok);
    if let Some(record) = running.as_ref().filter(|_| daemon.is_some()) {
        checks.extend(disk::ready(record).await);
        checks.extend(disk::cluster(record).await);
    }
    let known = match running.as_ref().filter(|_| daemon.is_some()) {
        Some(record) => problems::here(record).await,
        None => Vec::new(),
    };
    let mut plugins = match &files {
        Some(files) => load::plugins(at, files).await,
        None => Vec::new(),
    };
    if let Some(files) = &files {
        load::mark(files, &mut plugins, &known);
    }
    let agents = match &settings {
        Some(settings) => load::agents(settings, running.is_some(), daemon.as_ref(), &mut plugins).await,
        None => Vec::new(),
    };
    checks.extend(plugins.into_iter().chain(agents));
    if let Some(files) = &files {
        checks.extend(vault::names(files, running.as_ref(), database.as_ref()).await);
    }
    // Its readiness says whether it can store.
    let is_readiness =
        |problem: &Problem| problem.is_about(&[ProblemKind::Storage]) && problem.place == STATE;
    let others =
        known.iter().filter(|problem| !problem.is_about(&[ProblemKind::Plugins]) && !is_readiness(problem));
    let others = load::of_problems(&checks, others);
    checks.extend(others);
    checks.extend(settings.iter().flat_map(|settings| notify::rules(settings, users.as_ref())));
    checks.push(disk::clock(files.as_ref()));
    checks.extend(versions(&folders.config, daemon.as_ref()));
    drop(progress);
    Ok(answer(&checks, running.as_ref()))
}

fn answer(checks: &[Check], running: Option<&Record>) -> Answer {
    let count = |state: State| checks.iter().filter(|check| check.state == state).count();
    let (errors, warnings) = (count(State::Error), count(State::Warning));
    let mut lines: Vec<String> = checks.iter().flat_map(Check::lines).collect();
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    lines.push(match (errors, warnings, running) {
        (0, 0, Some(record)) => {
            let public = record.public_url.as_ref().map(|url| format!(", public URL {url}"));
            let Record { url, pid, .. } = record;
            format!("No problems found. Running: {url} (pid {pid}){}.", public.unwrap_or_default())
        }
        (0, 0, None) => "No problems found. Start the daemon with: ostler start".to_owned(),
        _ => format!("{}, {}.", plural(errors, "error"), plural(warnings, "warning")),
    });
    let rows: Vec<Value> = checks.iter().map(Check::json).collect();
    let wrong = checks.iter().filter(|check| check.state == State::Error).map(|check| check.what);
    let json = json!({ "ok": errors == 0, "errors": errors, "warnings": warnings, "checks": rows });
    Answer { code: u8::from(errors > 0), ..Answer::new(lines, json).named(wrong) }
}

/// Checks the configuration files and their merged content, with the flags of a running daemon over it.
fn configuration(
    at: &Place,
    flags: &RunFlags,
    running: Option<&Record>,
) -> (Option<ConfigFiles>, Option<Settings>, Vec<Check>) {
    const WHAT: &str = "configuration";
    let files = match at.files() {
        Ok(files) => files,
        Err(why) => {
            let fix = format!("correct the file; every key: {}", names::page("configuration"));
            return (None, None, vec![Check::error(WHAT, why.to_string(), fix)]);
        }
    };
    let mut checks = Vec::new();
    match files.files.is_empty() {
        true => checks.push(Check::error(
            WHAT,
            format!("no configuration file in {}", files.dir.display()),
            "create one with: ostler init",
        )),
        false => {
            let shown: Vec<String> = files.files.iter().map(|file| file.display().to_string()).collect();
            let has_flags =
                *flags != RunFlags { detached: flags.detached, kept: flags.kept, ..RunFlags::default() };
            let with =
                running.filter(|_| has_flags).map(|record| format!(", with the flags of pid {}", record.pid));
            checks.push(Check::ok(WHAT, format!("{}{}", shown.join(", "), with.unwrap_or_default())));
        }
    }
    let fix = "correct or remove the key";
    match Settings::new(flags, files.clone(), &at.working_dir) {
        Ok(settings) => {
            checks.extend(settings.warnings.iter().map(|line| Check::warning(WHAT, line.as_str(), fix)));
            (Some(files), Some(settings), checks)
        }
        Err(why) => {
            checks.extend(files.warnings.iter().map(|line| Check::warning(WHAT, line.as_str(), fix)));
            checks.push(Check::error(WHAT, why.to_string(), fix));
            (Some(files), None, checks)
        }
    }
}

/// Checks the versions of this program, the protocol, the running daemon, and the pinned parts.
fn versions(dir: &std::path::Path, daemon: Option<&Connection>) -> Vec<Check> {
    const WHAT: &str = "versions";
    let own = env!("CARGO_PKG_VERSION");
    let (protocol, parts) = (SUPPORTED_PROTOCOL_VERSIONS.join(", "), parts::listed());
    let mut checks = vec![Check::ok(WHAT, format!("ostler {own}, protocol {protocol}, {parts}"))];
    if let Some((_, running)) = daemon.and_then(|daemon| daemon.host.as_ref())
        && running != own
    {
        checks.push(Check::warning(
            WHAT,
            format!("the running daemon is ostler {running}"),
            "start this version with: ostler restart",
        ));
    }
    if let Err(why) = OnDisk::new(dir).parts() {
        checks.push(Check::error(WHAT, why, "correct or remove the file"));
    }
    checks
}
