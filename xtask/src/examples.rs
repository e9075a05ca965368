//! The examples and the declarations of `@ostler/sdk`, checked by TypeScript.

use std::path::Path;
use std::process::Command;

/// Type-checks `sdk/index.d.ts` and every example with the TypeScript `sdk/package.json` pins.
///
/// # Errors
/// A sentence where npm is missing or something does not check; TypeScript's own lines stand above it.
pub fn check(root: &Path) -> Result<(), String> {
    let sdk = root.join("sdk");
    npm(&sdk, &["ci", "--no-audit", "--no-fund", "--silent"])?;
    npm(&sdk, &["run", "--silent", "check"])
}

fn npm(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new("npm").args(arguments).current_dir(folder).status().map_err(|error| {
        format!("npm could not be run ({error}): checking the examples needs Node and npm, which nothing else here does")
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("npm {} in {} failed", arguments[0], folder.display())),
    }
}
