//! Calls cargo from a program that cargo itself runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The variables that `cargo run` sets for the program that it runs. Build scripts watch some of them, so a nested
/// cargo with these variables would consider every build script changed.
const TOLD: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];

/// Returns the command of this build's cargo, without the variables of the calling program.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    without_own(&mut command);
    command
}

/// Removes the variables of the calling program from a command that runs cargo.
pub fn without_own(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| TOLD.iter().any(|told| name.starts_with(told))) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns cargo's target folder.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Returns the packages of the workspace, as `cargo metadata` describes them.
///
/// # Errors
/// cargo cannot read the workspace.
pub fn packages(root: &Path) -> Result<Vec<Value>, String> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(metadata["packages"].as_array().cloned().unwrap_or_default())
}
