//! `cargo xtask <task>`.

use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask tidy                      check what the compiler does not: edges, files, the ledger
cargo xtask generate                  write the files made from the code: sdk/index.d.ts and pages in docs/
cargo xtask lines                     count the lines of each crate of the product, without tests
cargo xtask examples                  check the examples with TypeScript; needs npm
cargo xtask agents [--check] FOLDER|--download   ask the installed ACP agents, or all by npx and uvx, what they support, for docs/agents.md; needs target/debug/ostler
cargo xtask dist [--target T] [--binary FILE]   build the packages of a release into target/packages
cargo xtask history REPORT            add the main figures of cargo benchmarks run --json to benches/history.jsonl and draw them
cargo xtask vscode [--screenshots FOLDER]  drive VS Code's web UI against the daemon; needs npm and chromium
cargo xtask verify --long [<name>…]   run the checks that take long and record them in docs/verification.md";

fn main() -> ExitCode {
    let root = xtask::tidy::root();
    let task = std::env::args().nth(1).unwrap_or_default();
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let result = match task.as_str() {
        "tidy" => match xtask::tidy::check(&root).as_slice() {
            [] => Ok(()),
            problems => Err(problems.join("\n")),
        },
        "generate" => xtask::generate::write(&root).and_then(|()| xtask::verify::write_page(&root)),
        "lines" => xtask::lines::run(&root).and_then(|table| print_result(&table)),
        "examples" => xtask::examples::check(&root),
        "agents" => xtask::agents::run(&root, &arguments).map(|what| print(&what)),
        "vscode" => xtask::vscode::run(&root, &arguments).map(|what| print(&what)),
        "dist" => xtask::dist::run(&root, &arguments).map(|what| print(&what)),
        "history" => match arguments.as_slice() {
            [report] => xtask::verify::add_figures(&root, report.as_ref()).map(|what| print(&what)),
            _ => Err("use cargo xtask history REPORT; cargo benchmarks run --json writes it".to_owned()),
        },
        "verify" => xtask::verify::run(&root, &arguments),
        _ => {
            print(USAGE);
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print(&why);
            ExitCode::FAILURE
        }
    }
}

/// Prints a result to standard output.
fn print_result(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
}

/// Prints to standard error, because standard output is for results that programs read.
fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
