//! `cargo benchmarks <task>`: measurements and runs that need the daemon, the JavaScript engine or the stores.
//!
//! `run` compares the daemon with a plain Node server that does the minimum of such a host, on one machine, in one run, in
//! alternation. `docs/benchmarks.md` explains each figure.

mod context;
mod failure;
mod figure;
mod figures;
mod floor;
mod net;
mod options;
mod ostler;
mod packages;
mod postgres;
mod process;
mod replay;
mod report;
mod rounds;
mod soak;
mod stats;
mod timing;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use context::Context;
use failure::Result;
use options::Options;

const USAGE: &str = "\
cargo benchmarks run [<name>…]        measure the daemon beside plain Node servers; --json, --rounds <n>
cargo benchmarks soak                 run the daemon under load; --seconds <n>, --profile <name>
cargo benchmarks packages [--subset] [<name>…]   run npm packages under Node and in a plugin; needs npm";

fn main() -> ExitCode {
    let root = xtask::tidy::root();
    let task = std::env::args().nth(1).unwrap_or_default();
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let result = match task.as_str() {
        "run" => run(&root, &arguments),
        "soak" => soak::run(&root, &arguments).map(progress),
        "packages" => packages::run(&root, &arguments).map(progress),
        // The benchmark `agents` starts this.
        "replay-agent" => replay::run().map_err(|failure| failure.to_string()),
        _ => {
            progress(USAGE);
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            progress(why);
            ExitCode::FAILURE
        }
    }
}

/// Runs the benchmarks that the arguments name, or all.
fn run(root: &Path, arguments: &[String]) -> std::result::Result<(), String> {
    let options = Options::read(arguments)?;
    measure(root, &options).map_err(|failure| failure.to_string())
}

fn measure(root: &Path, options: &Options) -> Result<()> {
    let context = Context::prepare(root, options)?;
    let mut measured = Vec::new();
    for group in figures::GROUPS.iter().filter(|group| options.wants(group.name)) {
        progress(format_args!("{}: {}", group.name, group.what));
        let figures = (group.measure)(&context)?;
        measured.push((group.name, figures));
    }
    let machine = report::Machine::here(context.node.as_ref().map(|node| node.version.as_str()));
    let text = match options.json {
        true => format!("{:#}\n", report::json(&machine, &measured)),
        false => report::table(&machine, &measured),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Prints progress to standard error, because standard output is for the results.
fn progress(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
