//! `ostler`: the composition root and the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    ostler::cli::main()
}
