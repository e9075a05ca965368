//! The command line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ostler_contract::json;
use ostler_engine::users::Kind;
use ostler_processes::supervisor::{self, SUPERVISE};
use ostler_protocol::names;
use ostler_telemetry::printable::printable;

use crate::answer::{Answer, Common};
use crate::config::RunFlags;
use crate::exit::Exit;
use crate::parts::{containers, editor};
use crate::place::Place;
use crate::service::{self, Notice, Passed};
use crate::settings::Settings;
use crate::webhook::WebhookVerb;
use crate::{demo, doctor, problems, remote, run, verbs};

/// What the program is, as its package says it.
const ABOUT: &str = env!("CARGO_PKG_DESCRIPTION");

/// Where the documentation is.
fn documentation() -> String {
    format!(
        "Documentation: {}. Packages have the same pages of their version: /usr/share/doc/ostler/docs (Debian), share/doc/ostler/docs \
         (archive, Homebrew), docs (npm package of the platform).",
        names::page("README")
    )
}

/// The command line of the program.
#[derive(Debug, Parser)]
#[command(
    name = names::HOST,
    version,
    about = ABOUT,
    long_about = format!("{ABOUT}\n\nWithout a command, serves in the foreground until stopped."),
    after_long_help = documentation(),
    disable_version_flag = true
)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    run: RunFlags,
    /// Print version
    #[arg(short = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    command: Option<Command>,
    /// The command as it is typed, without its arguments.
    #[arg(skip)]
    words: String,
}

/// The commands, one file each.
#[derive(Debug, Subcommand)]
enum Command {
    /// Write a first configuration
    Init(verbs::InitFlags),
    /// Check everything a start depends on and suggest fixes
    Doctor,
    /// Start the daemon in the background
    Start(RunFlags),
    /// Stop the running daemon
    Stop,
    /// Restart the running daemon with the flags it was started with
    Restart(verbs::RestartFlags),
    /// Show the address and state of the running daemon
    Status,
    /// Print the configuration: the files of this computer with their credentials
    Config,
    /// Manage plugins
    #[command(subcommand)]
    Plugin(verbs::PluginVerb),
    /// List and check agents
    #[command(subcommand)]
    Agent(verbs::AgentVerb),
    /// Serve the sessions of the daemon to an editor, as an ACP agent on stdin and stdout
    Acp(verbs::AcpFlags),
    /// Serve the tools of a session to an ACP agent on stdin and stdout
    #[command(hide = true)]
    McpBridge,
    /// Manage webhook endpoints
    #[command(subcommand)]
    Webhook(WebhookVerb),
    /// Check rules that notify users of requests for input
    #[command(subcommand)]
    Notify(verbs::NotifyVerb),
    /// List, show, run, enable, disable and remove automations
    #[command(subcommand)]
    Automation(verbs::AutomationVerb),
    /// List, show and follow sessions, send messages and answer requests
    #[command(subcommand)]
    Session(verbs::SessionVerb),
    /// Show and manage the hosts that share a database
    #[command(subcommand)]
    Cluster(verbs::ClusterVerb),
    /// Print the log of the background daemon
    Logs(verbs::LogsFlags),
    /// Manage secrets
    #[command(subcommand)]
    Vault(verbs::VaultVerb),
    /// Manage users and their tokens
    #[command(subcommand)]
    User(verbs::UserVerb),
    /// Manage teams
    #[command(subcommand)]
    Team(verbs::GroupVerb),
    /// Manage projects
    #[command(subcommand)]
    Project(verbs::GroupVerb),
    /// Show what a pool was charged
    Usage(verbs::UsageFlags),
    /// Back up configuration and state to one archive
    Backup(verbs::BackupFlags),
    /// Restore configuration and state from an archive
    Restore(verbs::RestoreFlags),
    /// Import and export files that users edit, with @ostler/postgres
    #[command(subcommand)]
    Files(verbs::FilesVerb),
    /// Move all data of a stopped host from files to PostgreSQL, or back
    Migrate(verbs::MigrateFlags),
    /// Generate a shell completion script
    Completion {
        /// Shell to generate the script for
        shell: clap_complete::Shell,
    },
    /// Write a man page of each command into a folder
    #[command(hide = true)]
    ManPages {
        /// Folder to write to
        folder: PathBuf,
    },
    /// Start a temporary host, call a webhook and show the resulting agent session
    #[command(args = Common::not_served())]
    Demo(demo::DemoFlags),
}

/// Flags this host does not support: rejected rather than ignored.
const FLAGS_NOT_SERVED: &[&str] = &["--worktrees-root", "--update-check", "--no-update-check"];

/// The internal last argument of a process created by `ostler start`. Not part of the public command line.
pub const DETACHED: &str = "--detached";

/// The internal first argument of a process that runs another one in a machine.
pub const ENTER: &str = "enter";

/// The internal last argument of a daemon that restarts in place: the ports to reuse.
const KEPT: &str = "--kept-ports=";

/// The ports of a daemon that restarts in place, for listeners configured with port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReusedPorts {
    /// The protocol listener's port.
    pub main: u16,
    /// The plugin routes listener's port, if there is one.
    pub routes: u16,
    /// The HTTP API listener's port, if there is one.
    pub http: u16,
}

impl ReusedPorts {
    fn word(self) -> String {
        let Self { main, routes, http } = self;
        format!("{KEPT}{main},{routes},{http}")
    }

    fn parse(word: &str) -> Option<Self> {
        let mut ports = word.strip_prefix(KEPT)?.split(',').map(str::parse);
        let mut port = || ports.next()?.ok();
        Some(Self { main: port()?, routes: port()?, http: port()? })
    }
}

/// Runs the command line of the process.
pub fn main() -> ExitCode {
    ostler_net::use_own_resolver();
    // Read before an update replaces the executable.
    let program = std::env::current_exe();
    let arguments: Vec<String> = match std::env::args_os().map(std::ffi::OsString::into_string).collect() {
        Ok(arguments) => arguments,
        Err(_) => return failed(&Exit::usage("an argument is not valid UTF-8")),
    };
    if arguments.get(1).is_some_and(|first| first == ENTER) {
        return ExitCode::from(containers::container_process::main());
    }
    if arguments.get(1).is_some_and(|first| first == SUPERVISE) {
        return ExitCode::from(supervisor::main(&arguments[2..]));
    }
    match start(&arguments) {
        Ok(Ending::Code(code)) => ExitCode::from(code),
        Ok(Ending::Again(kept, passed)) => failed(&again(program, arguments, kept, &passed)),
        Err(exit) => failed(&exit),
    }
}

fn failed(exit: &Exit) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{}", printable(&exit.to_string()));
    ExitCode::from(exit.code())
}

/// How a successful command ended.
enum Ending {
    Code(u8),
    /// The daemon restarts in this process, on these ports or with these listeners.
    Again(Option<ReusedPorts>, Passed),
}

/// Replaces the running program with itself: the same process, environment, directory and log.
#[cfg(unix)]
fn again(
    program: std::io::Result<PathBuf>,
    mut arguments: Vec<String>,
    kept: Option<ReusedPorts>,
    passed: &Passed,
) -> Exit {
    use std::os::unix::process::CommandExt;
    arguments.retain(|argument| ReusedPorts::parse(argument).is_none());
    arguments.extend(kept.map(ReusedPorts::word));
    match program {
        Ok(program) => {
            let mut command = ostler_processes::ChildKind::Host.command(program);
            passed.pass_on(&mut command);
            let error = command.args(arguments.iter().skip(1)).exec();
            Exit::machine(format!("cannot restart: {error}"))
        }
        Err(error) => Exit::machine(format!("cannot restart: {error}")),
    }
}

#[cfg(not(unix))]
fn again(_: std::io::Result<PathBuf>, _: Vec<String>, _: Option<ReusedPorts>, _: &Passed) -> Exit {
    Exit::machine("restarting in place is not supported on this system")
}

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// Flags this host does not support: exit 2.
    pub fn read(arguments: &[String]) -> Result<Result<Self, clap::Error>, Exit> {
        let is =
            |argument: &String, flag: &str| argument == flag || argument.starts_with(&format!("{flag}="));
        if let Some(flag) = FLAGS_NOT_SERVED.iter().find(|flag| arguments.iter().skip(1).any(|a| is(a, flag)))
        {
            return Err(Exit::usage(format!("{flag} is not supported by this host")));
        }
        let (kept, line) = match arguments.split_last() {
            Some((last, line)) if let Some(kept) = ReusedPorts::parse(last) => (Some(kept), line),
            _ => (None, arguments),
        };
        let (detached, line) = match line.split_last() {
            Some((last, line)) if last == DETACHED => (true, line),
            _ => (false, line),
        };
        let parsed = Self::declared().try_get_matches_from(line).and_then(|matches| {
            let words = words_of(&matches);
            Self::from_arg_matches(&matches).map(|cli| Self { words, ..cli })
        });
        Ok(parsed.map(|mut cli| {
            cli.run.detached = detached;
            cli.run.kept = kept;
            cli
        }))
    }

    /// The command line, with the flags of `--remote` hidden where they are refused.
    pub fn declared() -> clap::Command {
        fn hidden(command: clap::Command, words: &str) -> clap::Command {
            let below: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
            if below.is_empty() {
                return if remote::reaches(words) { command } else { command.args(Common::not_remote()) };
            }
            below.into_iter().fold(command, |command, name| {
                let words = format!("{words} {name}").trim_start().to_owned();
                command.mut_subcommand(name, |sub| hidden(sub, &words))
            })
        }
        hidden(Self::command(), "")
    }

    /// Rejects `--remote` on commands that work at this computer only.
    fn check_remote(&self) -> Result<(), Exit> {
        if self.common.remote.is_none() || remote::reaches(&self.words) {
            return Ok(());
        }
        let command = format!("{} {}", names::HOST, self.words);
        Err(Exit::usage(format!(
            "--remote is not supported by {}: it works at this computer only",
            command.trim_end()
        )))
    }

    /// Rejects output flags on commands without an answer.
    fn check_answer(&self) -> Result<(), Exit> {
        let Common { json, quiet, config_file, .. } = &self.common;
        let demo = matches!(self.command, Some(Command::Demo(_)));
        if !demo && self.command.is_some() {
            return Ok(());
        }
        let said = [("--json", *json), ("--quiet", *quiet), ("--config-file", demo && config_file.is_some())];
        match said.iter().find(|(_, said)| *said) {
            None => Ok(()),
            Some((flag, _)) if demo => {
                Err(Exit::usage(format!("{flag} is not supported by ostler demo; leave it out")))
            }
            Some((flag, _)) => Err(Exit::usage(format!(
                "{flag} is not supported in the foreground; use ostler start {flag}"
            ))),
        }
    }

    /// The flags of a run, of a line that runs the daemon.
    pub fn into_run(self) -> (Common, RunFlags) {
        match self.command {
            Some(Command::Start(flags)) => (self.common, flags),
            _ => (self.common, self.run),
        }
    }
}

fn start(arguments: &[String]) -> Result<Ending, Exit> {
    let cli = match Cli::read(arguments)? {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    cli.common.check()?;
    cli.check_answer()?;
    cli.check_remote()?;
    if cli.command.is_some() && cli.run != RunFlags::default() {
        return Err(Exit::usage("flags of a run are accepted after `ostler start` or without a command"));
    }
    // Only a daemon takes them: a command that it runs has the same environment.
    let passed = if cli.command.is_none() { Passed::take()? } else { Passed::default() };
    ostler_memory::map_large();
    ostler_processes::leave_children_to(ostler_js::awaits_child);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers()?)
        .enable_all()
        .build()
        .map_err(|error| Exit::machine(format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(dispatch(cli, arguments, passed));
    // What still runs by then has had its time.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    // The engines end with the process, so nothing of theirs is dropped.
    ostler_js::end_children();
    outcome
}

/// The variable with the number of worker threads.
const WORKERS: &str = "TOKIO_WORKER_THREADS";

/// Returns the number of worker threads. One processor is left to the threads of stores, engines and agents, which the
/// tasks wait for. See D-541.
fn workers() -> Result<usize, Exit> {
    let Some(given) = std::env::var_os(WORKERS) else {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        return Ok(processors.saturating_sub(1).max(1));
    };
    let number = given.to_str().and_then(|given| given.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| Exit::usage(format!("{WORKERS}: must be a number of threads, at least 1")))
}

/// The words of the command that was typed.
fn words_of(matches: &clap::ArgMatches) -> String {
    match matches.subcommand() {
        Some((name, below)) => format!("{name} {}", words_of(below)).trim_end().to_owned(),
        None => String::new(),
    }
}

async fn dispatch(cli: Cli, arguments: &[String], passed: Passed) -> Result<Ending, Exit> {
    let Some(command) = cli.command else {
        let served = serve(&cli.common, &cli.run, arguments, passed).await;
        if let Err(exit) = &served {
            let _ = service::notify(&Notice::Status(exit.to_string()));
        }
        return served;
    };
    let place = Place::of_process(&cli.common)?;
    let concern = problems::concerning(&cli.words);
    let answer = match command {
        Command::Init(flags) => verbs::init(&place, flags).await?,
        Command::Doctor => doctor::doctor(&place).await?,
        Command::Start(flags) => verbs::start(&place, &flags, arguments).await?,
        Command::Stop => verbs::stop(&place).await?,
        Command::Restart(flags) => verbs::restart::restart(&place, &flags).await?,
        Command::Status => verbs::status::status(&place).await?,
        Command::Config => verbs::config(&place).await?,
        Command::Plugin(verb) => verbs::plugin(&place, verb).await?,
        Command::Agent(verb) => verbs::agent(&place, verb).await?,
        Command::McpBridge => editor::tools_bridge::bridge().await?,
        Command::Acp(flags) => editor::acp(&place, flags).await?,
        Command::Webhook(verb) => verbs::webhook(&place, verb).await?,
        Command::Notify(verb) => verbs::notify(&place, verb).await?,
        Command::Automation(verb) => verbs::automation(&place, verb).await?,
        Command::Session(verb) => verbs::session(&place, verb).await?,
        Command::Cluster(verb) => verbs::cluster(&place, verb).await?,
        Command::Logs(flags) => verbs::logs(&place, &flags).await?,
        Command::Vault(verb) => verbs::vault::vault(&place, verb).await?,
        Command::User(verb) => verbs::users::user(&place, verb).await?,
        Command::Team(verb) => verbs::users::group(&place, Kind::Team, verb).await?,
        Command::Project(verb) => verbs::users::group(&place, Kind::Project, verb).await?,
        Command::Usage(flags) => verbs::usage(&place, flags).await?,
        Command::Backup(flags) => verbs::backup(&place, flags).await?,
        Command::Restore(flags) => verbs::restore(&place, flags).await?,
        Command::Files(verb) => verbs::files(&place, verb).await?,
        Command::Migrate(flags) => verbs::migrate(&place, flags).await?,
        Command::Completion { shell } => completion(shell),
        Command::ManPages { folder } => man_pages(&folder)?,
        Command::Demo(flags) => return demo::demo(&flags).await.map(|()| Ending::Code(0)),
    };
    let answer = problems::added(&place, answer, concern).await;
    answer.print(&cli.common);
    Ok(Ending::Code(answer.code))
}

async fn serve(
    common: &Common,
    flags: &RunFlags,
    arguments: &[String],
    passed: Passed,
) -> Result<Ending, Exit> {
    let place = Place::of_process(common)?;
    let settings = Settings::new(flags, place.files()?, &place.working_dir)?;
    match run::run(settings, place, arguments, &passed).await? {
        run::Ended::Done => Ok(Ending::Code(0)),
        run::Ended::Again(kept) => Ok(Ending::Again(kept, passed)),
    }
}

fn man_pages(folder: &Path) -> Result<Answer, Exit> {
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::declared(), folder))
        .map_err(|error| Exit::machine(format!("cannot write man pages to {}: {error}", folder.display())))?;
    Ok(Answer::default())
}

fn completion(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    let mut command = Cli::declared();
    clap_complete::generate(shell, &mut command, names::HOST, &mut script);
    let text = String::from_utf8_lossy(&script).into_owned();
    Answer {
        json: json!({ "script": text }),
        names: vec![text.trim_end().to_owned()],
        text,
        ..Answer::default()
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use ostler_contract::Cross;
    use ostler_contract::shape::Shape;
    use ostler_engine::HostOptions;
    use ostler_js::JsOptions;

    use super::*;
    use crate::config::{Config, StorageLocation, Unowned};
    use crate::settings::{DEFAULT_HOST, DEFAULT_PORT};

    fn name(choice: impl ValueEnum) -> String {
        choice.to_possible_value().unwrap().get_name().to_owned()
    }

    #[test]
    fn the_help_tells_the_defaults_there_are() {
        let cli = Cli::command();
        for (flag, default) in [
            ("port", DEFAULT_PORT.to_string()),
            ("host", DEFAULT_HOST.to_owned()),
            ("client-tool-timeout-ms", HostOptions::CLIENT_TOOL_TIMEOUT_MS.to_string()),
            ("automations", name(StorageLocation::default())),
            ("sessions", name(StorageLocation::default())),
            ("unowned-automations", name(Unowned::default())),
        ] {
            let arg = cli.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(help.ends_with(&format!(" [default: {default}]")), "--{flag}: {help}");
        }
    }

    #[test]
    fn the_docs_of_the_configuration_tell_the_defaults_there_are() {
        let javascript = JsOptions::default();
        let megabytes = javascript.memory_limit.unwrap() >> 20;
        for (key, told) in [
            ("port", format!(" Default: {DEFAULT_PORT}.")),
            ("host", format!(" Default: `{DEFAULT_HOST}`.")),
            ("routes.host", format!(" Default: `{DEFAULT_HOST}`.")),
            ("http.host", format!(" Default: `{DEFAULT_HOST}`.")),
            ("clientToolTimeoutMs", format!(" Default: {}.", HostOptions::CLIENT_TOOL_TIMEOUT_MS)),
            ("deltaWindowMs", format!(" Default: {}.", HostOptions::DELTA_WINDOW_MS)),
            ("sessions", format!(" Default: `{}`.", name(StorageLocation::default()))),
            ("automations", format!(" Default: `{}`.", name(StorageLocation::default()))),
            ("unownedAutomations", format!(" Default: `{}`.", name(Unowned::default()))),
            ("javascript.busyLimitMs", format!(" Default: {}.", javascript.busy_limit.as_millis())),
            ("javascript.memoryLimitMb", format!(" in MiB. Default: {megabytes}.")),
        ] {
            let (mut shape, mut docs) = (Config::shape(), "");
            for part in key.split('.') {
                let Shape::Object(object) = shape.core() else { panic!("{key}") };
                let field = object().fields.iter().find(|field| field.name == part).unwrap();
                (docs, shape) = (field.docs, field.shape.clone());
            }
            assert!(docs.contains(&told), "{key}: {docs}");
        }
    }

    #[test]
    fn help_texts_have_no_full_stop() {
        fn check(command: &clap::Command) {
            let own = command.get_about().map(|about| (command.get_name().to_owned(), about.to_string()));
            let arguments = command.get_arguments().filter_map(|argument| {
                let help = argument.get_help()?.to_string();
                Some((format!("{} {}", command.get_name(), argument.get_id()), help))
            });
            for (of, help) in own.into_iter().chain(arguments) {
                assert!(
                    !help.ends_with('.') && help.starts_with(|first: char| !first.is_lowercase()),
                    "{of}: {help}"
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn short_help_and_long_help_say_the_same_of_the_program() {
        let mut cli = Cli::command();
        for help in [cli.render_help().to_string(), cli.render_long_help().to_string()] {
            assert!(help.starts_with(ABOUT), "{help}");
        }
    }
}
