//! `cargo xtask <task>`.

use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask tidy              check what the compiler does not: edges, files, the ledger
cargo xtask generate          write the files that are made from the code: sdk/index.d.ts, docs/javascript.md
cargo xtask examples          check the examples with TypeScript; needs npm
cargo xtask bench [<name>…]   measure the daemon beside plain Node servers; --json, --rounds <n>";

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
        "generate" => match xtask::generate::write(&xtask::tidy::root()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                let _ = writeln!(out, "{why}");
                ExitCode::FAILURE
            }
        },
        "examples" => match xtask::examples::check(&xtask::tidy::root()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                let _ = writeln!(out, "{why}");
                ExitCode::FAILURE
            }
        },
        "bench" => {
            drop(out);
            let arguments: Vec<String> = std::env::args().skip(2).collect();
            match xtask::bench::run(&xtask::tidy::root(), &arguments) {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => {
                    let _ = writeln!(std::io::stderr(), "{why}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => {
            let _ = writeln!(out, "{USAGE}");
            ExitCode::from(2)
        }
    }
}
