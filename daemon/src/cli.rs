//! The command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Environment, Keep, Unowned};
use crate::exit::Exit;
use crate::settings::Settings;
use crate::{config, demo, run};

/// Serves AI-agent sessions to many clients over the Agent Host Protocol.
#[derive(Debug, Parser)]
#[command(
    name = "ostler",
    version,
    about,
    disable_version_flag = true,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(flatten)]
    run: RunFlags,
    /// Print the version and end.
    #[arg(short = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a host of its own, calls a webhook and shows the agent session that comes of it.
    Demo(demo::DemoFlags),
}

/// How to run in the foreground. A flag beats the configuration file.
#[derive(Debug, Clone, Default, Args)]
pub struct RunFlags {
    /// The port to listen on; 0 takes any free one [default: 9187]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// The address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<String>,
    /// A directory to serve; the first is the default for new work [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub path: Vec<PathBuf>,
    /// Serve only directories that are named
    #[arg(long)]
    pub no_cwd: bool,
    /// The token a connection has to show
    #[arg(long, value_name = "TOKEN")]
    pub connection_token: Option<String>,
    /// The file that holds the token; made with a fresh one when it is missing
    #[arg(long, value_name = "FILE")]
    pub connection_token_file: Option<PathBuf>,
    /// Let connections in without a token, wherever they come from
    #[arg(long)]
    pub without_connection_token: bool,
    /// Serve one connection on stdin and stdout, one message per line
    #[arg(long)]
    pub stdio: bool,
    /// Read this configuration file and no other
    #[arg(long, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Where automations are kept [default: file]
    #[arg(long, value_enum)]
    pub automations: Option<Keep>,
    /// Which automations without an owner events may run [default: every]
    #[arg(long, value_enum)]
    pub unowned_automations: Option<Unowned>,
    /// Where sessions are kept [default: file]
    #[arg(long, value_enum)]
    pub sessions: Option<Keep>,
    /// How long a client's tool may take; 0 = forever [default: 600000]
    #[arg(long, value_name = "MS")]
    pub client_tool_timeout_ms: Option<u64>,
    /// Offer sessions the tools that ask for the operator's leave
    #[arg(long)]
    pub advanced_tools: bool,
    /// A plugin for this run; takes the place of the configured ones
    #[arg(long, value_name = "SPEC", conflicts_with = "no_plugins")]
    pub plugin: Vec<String>,
    /// Load no plugins
    #[arg(long)]
    pub no_plugins: bool,
}

/// Flags a fuller host has and this one does not: refused, not silently taken.
const FLAGS_NOT_SERVED: &[&str] = &[
    "--worktrees-root",
    "--users",
    "--resource",
    "--issuer",
    "--trust-token",
    "--wire",
    "--plugin-option",
    "--update-check",
    "--no-update-check",
];

/// Runs the command line of the process.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => {
            let _ = writeln!(std::io::stderr(), "{exit}");
            ExitCode::from(exit.code())
        }
    }
}

fn start(arguments: &[String]) -> Result<(), Exit> {
    let is = |argument: &String, flag: &str| argument == flag || argument.starts_with(&format!("{flag}="));
    if let Some(flag) = FLAGS_NOT_SERVED.iter().find(|flag| arguments.iter().skip(1).any(|a| is(a, flag))) {
        return Err(Exit::usage(format!("{flag} is not served by this host yet")));
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::machine(format!("no threads could be started: {error}")))?;
    let outcome = match cli.command {
        Some(Command::Demo(flags)) => runtime.block_on(demo::demo(&flags)),
        None => {
            let files = config::read(cli.run.config_file.as_deref(), &Environment::of_process())?;
            let working_dir = std::env::current_dir()
                .map_err(|error| Exit::machine(format!("the working directory is gone: {error}")))?;
            let settings = Settings::new(&cli.run, files, &working_dir)?;
            runtime.block_on(run::run(settings, working_dir))
        }
    };
    // What still runs by then has had its time.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    outcome
}
