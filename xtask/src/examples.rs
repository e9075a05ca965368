//! Checks the examples and the declarations of `@ostler/sdk` with TypeScript.

use std::path::Path;
use std::process::Command;

/// Type-checks `sdk/index.d.ts` and every example with the TypeScript version that `sdk/package.json` pins.
///
/// # Errors
/// npm is missing or a check fails; TypeScript's own output precedes the message.
pub fn check(root: &Path) -> Result<(), String> {
    let sdk = root.join("sdk");
    npm(&sdk, &["ci", "--no-audit", "--no-fund", "--silent"])?;
    npm(&sdk, &["run", "--silent", "check"])?;
    new_plugin(root, &sdk)
}

/// Type-checks the output of `ostler plugin new` as its author receives it: in a folder without installed packages.
fn new_plugin(root: &Path, sdk: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("a new plugin could not be written: {error}");
    let folder = tempfile::tempdir().map_err(failed)?;
    let template = root.join("daemon/src/plugin_new");
    let types = folder.path().join("types");
    std::fs::create_dir(&types).map_err(failed)?;
    for (from, to) in [(template.clone(), folder.path()), (template.join("types"), types.as_path())] {
        for file in std::fs::read_dir(from).map_err(failed)?.flatten().filter(|file| file.path().is_file()) {
            std::fs::copy(file.path(), to.join(file.file_name())).map_err(failed)?;
        }
    }
    std::fs::copy(sdk.join("index.d.ts"), types.join("ostler-sdk.d.ts")).map_err(failed)?;
    let compiler = sdk.join("node_modules/.bin/tsc");
    let status = Command::new(&compiler)
        .args(["--strict", "--project"])
        .arg(folder.path())
        .status()
        .map_err(|error| format!("{} could not be run: {error}", compiler.display()))?;
    match status.success() {
        true => Ok(()),
        false => Err("what `ostler plugin new` writes does not pass tsc --strict".to_owned()),
    }
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
