//! Checks the examples, those of the documentation too, and the declarations of `@ostler/sdk` with TypeScript.

use std::path::Path;
use std::process::Command;

use crate::node::node;

/// Type-checks `sdk/index.d.ts` and every example with the TypeScript version that `sdk/package.json` pins.
///
/// # Errors
/// npm is missing or a check fails; TypeScript's own output precedes the message.
pub fn check(root: &Path) -> Result<(), String> {
    let sdk = root.join("sdk");
    npm(&sdk, &["ci", "--no-audit", "--no-fund", "--silent"])?;
    npm(&sdk, &["run", "--silent", "check"])?;
    new_plugin(root, &sdk)?;
    package(root, &sdk)
}

/// Runs the tests of the SDK in Node as its users have it: from its package, installed in another folder.
fn package(root: &Path, sdk: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the package of the SDK could not be tried: {error}");
    let folder = tempfile::tempdir().map_err(failed)?;
    let into = folder.path().to_string_lossy().into_owned();
    npm(sdk, &["pack", "--silent", "--pack-destination", &into])?;
    let packed = std::fs::read_dir(folder.path()).map_err(failed)?.flatten().map(|file| file.file_name());
    let archive = packed.map(|name| format!("./{}", name.to_string_lossy())).next().unwrap_or_default();
    std::fs::write(folder.path().join("package.json"), r#"{ "private": true, "type": "module" }"#)
        .map_err(failed)?;
    npm(folder.path(), &["install", "--offline", "--no-audit", "--no-fund", "--silent", &archive])?;
    for file in std::fs::read_dir(sdk.join("tests")).map_err(failed)?.flatten() {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).map_err(failed)?;
    }
    let status =
        Command::new(node(root)).arg("--test").current_dir(folder.path()).status().map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err("the tests of the SDK fail in Node".to_owned()),
    }
}

/// Type-checks the output of `ostler plugin new` as its author receives it, in a folder without installed packages, and the
/// examples of the documentation there.
fn new_plugin(root: &Path, sdk: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("a new plugin could not be written: {error}");
    let folder = tempfile::tempdir().map_err(failed)?;
    let template = root.join("daemon/src/plugin_new");
    for name in ["", "types", "sdk"] {
        let (from, to) = (template.join(name), folder.path().join(name));
        std::fs::create_dir_all(&to).map_err(failed)?;
        for file in std::fs::read_dir(from).map_err(failed)?.flatten().filter(|file| file.path().is_file()) {
            std::fs::copy(file.path(), to.join(file.file_name())).map_err(failed)?;
        }
    }
    for (name, text) in of_docs(root).map_err(failed)? {
        std::fs::write(folder.path().join(name), text).map_err(failed)?;
    }
    let compiler = sdk.join("node_modules/.bin/tsc");
    let status = Command::new(&compiler)
        .args(["--strict", "--project"])
        .arg(folder.path())
        .status()
        .map_err(|error| format!("{} could not be run: {error}", compiler.display()))?;
    match status.success() {
        true => Ok(()),
        false => Err(
            "what `ostler plugin new` writes, or an example of the documentation, does not pass tsc --strict"
                .to_owned(),
        ),
    }
}

/// Returns the TypeScript of the README and the pages in `docs/`: a file for each block, named by page and line.
fn of_docs(root: &Path) -> std::io::Result<Vec<(String, String)>> {
    let mut pages = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs"))? {
        pages.push(entry?.path());
    }
    let mut found = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let blocks = blocks(&std::fs::read_to_string(page)?);
        found.extend(blocks.into_iter().map(|(line, text)| (format!("{name}-{line}.ts"), text)));
    }
    Ok(found)
}

/// Returns the blocks of TypeScript in a page, with the lines at which they begin. Each is a module.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut block: Option<(usize, String)> = None;
    let mut before = "";
    for (at, line) in page.lines().enumerate() {
        match &mut block {
            // Quoted code is checked in its file.
            None if before.starts_with("<!-- from ") => {}
            None if matches!(line.trim(), "```ts" | "```typescript") => block = Some((at + 2, String::new())),
            None => {}
            Some(_) if line.trim() == "```" => found.extend(block.take()),
            Some((_, text)) => {
                text.push_str(line);
                text.push('\n');
            }
        }
        before = line;
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_documentation_are_found() {
        let page = "a\n```ts\nlet a = 1;\n\nlet b;\n```\n```sh\nls\n```\n- x\n  ```ts\n  let c;\n  ```\n\
                    <!-- from a.ts -->\n```ts\nlet d = {\n```\n";
        let expected = [(3, "let a = 1;\n\nlet b;\n"), (12, "  let c;\n")];
        assert_eq!(blocks(page), expected.map(|(line, text)| (line, text.to_owned())));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let names: Vec<String> = of_docs(&root).unwrap().into_iter().map(|(name, _)| name).collect();
        for page in ["README", "plugins", "webhooks"] {
            assert!(names.iter().any(|name| name.starts_with(&format!("{page}-"))), "{page}: {names:?}");
        }
    }
}
