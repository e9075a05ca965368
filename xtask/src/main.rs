//! `cargo xtask <task>`.

use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "cargo xtask tidy      check what the compiler does not: edges, files, the ledger";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let mut out = std::io::stderr().lock();
    match task.as_str() {
        "tidy" => {
            let problems = xtask::tidy::check(&xtask::tidy::root());
            for problem in &problems {
                let _ = writeln!(out, "{problem}");
            }
            if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => {
            let _ = writeln!(out, "{USAGE}");
            ExitCode::from(2)
        }
    }
}
