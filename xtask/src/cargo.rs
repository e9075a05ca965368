//! Cargo, called by a program that cargo itself runs.

use std::process::Command;

/// What `cargo run` tells the program it runs about that program. Build scripts watch some of it, so another cargo
/// that is told the same takes every one of them for changed.
const TOLD: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];

/// The cargo of this build, told nothing about the program that calls it.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| TOLD.iter().any(|told| name.starts_with(told))) {
            command.env_remove(name);
        }
    }
    command
}
