//! `cargo xtask bench`: compares the daemon with a plain Node server that does the minimum of such a host, on one
//! machine, in one run, in alternation. `docs/benchmarks.md` explains each figure.

mod context;
mod failure;
mod figure;
mod figures;
mod floor;
mod net;
mod options;
mod ostler;
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

use context::Context;
use failure::Result;
use options::Options;
pub use soak::run as soak;

/// Runs the benchmarks that the arguments name, or all.
///
/// # Errors
/// The error message.
pub fn run(root: &Path, arguments: &[String]) -> std::result::Result<(), String> {
    let options = Options::read(arguments)?;
    bench(root, &options).map_err(|failure| failure.to_string())
}

/// Runs the agent of the benchmarks on standard input and output.
///
/// # Errors
/// The error message.
pub fn replay_agent() -> std::result::Result<(), String> {
    replay::run().map_err(|failure| failure.to_string())
}

fn bench(root: &Path, options: &Options) -> Result<()> {
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
