//! Files generated from code: written by `cargo xtask generate`, checked by `cargo xtask tidy`, or by the tests that write
//! them.

mod agents;
mod protocol;
mod sdk;
mod test_host;
mod wire;

use std::fs;
use std::path::Path;

use crate::cargo::cargo;
use crate::{history, packages};

/// A file and its content.
struct Generated {
    path: &'static str,
    text: String,
}

fn all(root: &Path) -> Result<Vec<Generated>, String> {
    Ok(vec![
        Generated { path: "sdk/index.d.ts", text: sdk::declarations(root)? },
        Generated { path: agents::PAGE, text: agents::page(root)? },
        Generated { path: packages::PAGE, text: packages::page(root)? },
        Generated { path: protocol::PAGE, text: protocol::page(root)? },
        Generated { path: test_host::MODULE, text: test_host::module(root)? },
        Generated { path: history::DRAWING, text: history::drawing(root)? },
    ])
}

/// Writes every generated file.
///
/// # Errors
/// A file that cannot be generated or written.
pub fn write(root: &Path) -> Result<(), String> {
    for Generated { path, text } in all(root)? {
        let file = root.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        fs::write(&file, text).map_err(|error| format!("{path}: {error}"))?;
    }
    by_tests(root)
}

/// Writes the files whose data only the daemon and the JavaScript engine have: the tests that compare them write them.
/// The configuration keys, the commands and flags, the page of the HTTP API and its document, the page of the Node APIs, and
/// the tables of the threat model.
fn by_tests(root: &Path) -> Result<(), String> {
    let ended = cargo()
        .current_dir(root)
        .args([
            "test",
            "--quiet",
            "--package",
            "ostler",
            "--package",
            "ostler-js",
            "--package",
            "ostler-engine",
        ])
        .args(["--lib", "--test", "people", "--"])
        .args(["config::page", "api::page", "cli_page::", "surface::page", "pages::"])
        .env("OSTLER_WRITE_PAGES", "1")
        .status()
        .map_err(|error| format!("cargo test could not be started: {error}"))?;
    match ended.success() {
        true => Ok(()),
        false => Err("docs/configuration.md, docs/command-reference.md, docs/http.md, docs/openapi.json, docs/javascript.md or docs/threat-model.md could not be written"
            .to_owned()),
    }
}

/// Adds a problem for each outdated file.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    let generated = match all(root) {
        Ok(generated) => generated,
        Err(why) => return problems.push(why),
    };
    for Generated { path, text } in generated {
        if fs::read_to_string(root.join(path)).ok().as_deref() != Some(&text) {
            problems.push(format!("{path} is not what the code says now; run cargo xtask generate"));
        }
    }
}
