//! Checks where `unsafe` can appear: the lints of the workspace forbid it, and only the crates of a table have others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::tidy::{relative, sources};

/// The crates that can contain `unsafe`, with the only file that does, or none if every file can. A new row is a line
/// here and a crate in the invariant in ARCHITECTURE.md.
const CRATES: &[(&str, Option<&str>)] = &[
    ("crates/js", None),
    ("crates/memory", None),
    ("crates/net", Some("src/resolver.rs")),
    ("crates/simulation", Some("src/entropy.rs")),
];
/// The lints of a crate that are those of the workspace.
const INHERITED: &str = "[lints]\nworkspace = true\n";
/// The page with the invariant, and its beginning.
const PAGE: (&str, &str) = ("ARCHITECTURE.md", "- `unsafe` appears only in ");

/// Adds a problem for each crate that could contain `unsafe` and has no row, and each file beside the one of its row.
/// `packages` are those of `cargo metadata`.
pub fn check(root: &Path, packages: &[Value], problems: &mut Vec<String>) {
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    if !workspace.contains("[workspace.lints.rust]\nunsafe_code = \"forbid\"\n") {
        problems
            .push("Cargo.toml: [workspace.lints.rust] has to begin with unsafe_code = \"forbid\"".to_owned());
    }
    for package in packages {
        let Some(manifest) = package["manifest_path"].as_str().map(Path::new) else { continue };
        let folder = manifest.parent().unwrap_or(root);
        let name = relative(root, folder);
        let text = fs::read_to_string(manifest).unwrap_or_default();
        match CRATES.iter().find(|(listed, _)| *listed == name) {
            None if !text.contains(INHERITED) => problems.push(format!(
                "{name}/Cargo.toml: the lints of the workspace, which forbid unsafe code, are not inherited; inherit \
                 them, or add the crate to xtask/src/unsafety.rs"
            )),
            Some((_, Some(file))) => only_in(root, folder, (&name, file), &text, problems),
            _ => {}
        }
    }
    page(root, problems);
}

/// Checks a crate in which one file contains `unsafe`.
fn only_in(
    root: &Path,
    folder: &Path,
    (name, only): (&str, &str),
    manifest: &str,
    problems: &mut Vec<String>,
) {
    if !manifest.contains("unsafe_code = \"deny\"") {
        problems.push(format!("{name}/Cargo.toml: [lints.rust] has to contain unsafe_code = \"deny\""));
    }
    for file in sources(folder, &["rs"]).into_iter().filter(|file| *file != folder.join(only)) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let allows = |line: &str| line.contains("(unsafe_code)") && !line.contains("forbid");
        for (at, _) in text.lines().enumerate().filter(|(_, line)| allows(line)) {
            problems.push(format!(
                "{}:{}: only {only} of {name} may contain unsafe code",
                relative(root, &file),
                at + 1
            ));
        }
    }
}

/// Checks that the invariant names the crates of the table.
fn page(root: &Path, problems: &mut Vec<String>) {
    let (page, beginning) = PAGE;
    let text = fs::read_to_string(root.join(page)).unwrap_or_default();
    let Some((before, rest)) = text.split_once(beginning) else {
        return problems.push(format!("{page}: the invariant {beginning:?} is missing"));
    };
    let statement = rest.split_once(';').map_or(rest, |(statement, _)| statement);
    let named: BTreeSet<&str> = statement.split('`').filter(|part| part.starts_with("crates/")).collect();
    let listed: BTreeSet<&str> = CRATES.iter().map(|(name, _)| *name).collect();
    for name in named.symmetric_difference(&listed) {
        let line = before.matches('\n').count() + 1;
        problems.push(format!("{page}:{line}: {name} differs from the crates in xtask/src/unsafety.rs"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_place_where_unsafe_code_could_be_added_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n");
        write(
            "ARCHITECTURE.md",
            "# Code\n- `unsafe` appears only in `crates/js`,\n  `crates/memory`, one function of `crates/net` and \
             `crates/engine`; `unwrap` only in `crates/a`.\n",
        );
        write("crates/js/Cargo.toml", "[lints.rust]\n");
        write("crates/js/src/lib.rs", "#![allow(unsafe_code)]\n");
        write("crates/net/Cargo.toml", "[lints.rust]\nunsafe_code = \"deny\"\n");
        write("crates/net/src/resolver.rs", "#[allow(unsafe_code)]\n");
        write("crates/net/src/lib.rs", "//! Text.\n#![expect(unsafe_code)]\n");
        write("crates/simulation/Cargo.toml", "[lints.rust]\nunsafe_code = \"warn\"\n");
        write("crates/engine/Cargo.toml", "[lints]\nworkspace = true\n");
        write("plugins/git/Cargo.toml", "[lints.rust]\nunsafe_code = \"deny\"\n");
        let names = ["crates/js", "crates/net", "crates/simulation", "crates/engine", "plugins/git"];
        let packages =
            names.map(|name| json!({ "manifest_path": root.path().join(name).join("Cargo.toml") }));
        let mut problems = Vec::new();
        check(root.path(), &packages, &mut problems);
        assert_eq!(
            problems,
            [
                "crates/net/src/lib.rs:2: only src/resolver.rs of crates/net may contain unsafe code",
                "crates/simulation/Cargo.toml: [lints.rust] has to contain unsafe_code = \"deny\"",
                "plugins/git/Cargo.toml: the lints of the workspace, which forbid unsafe code, are not inherited; \
                 inherit them, or add the crate to xtask/src/unsafety.rs",
                "ARCHITECTURE.md:2: crates/engine differs from the crates in xtask/src/unsafety.rs",
                "ARCHITECTURE.md:2: crates/simulation differs from the crates in xtask/src/unsafety.rs",
            ]
        );
        write("Cargo.toml", "[workspace.lints.rust]\nunused_must_use = \"deny\"\n");
        let mut problems = Vec::new();
        check(root.path(), &[], &mut problems);
        assert_eq!(
            problems[0],
            "Cargo.toml: [workspace.lints.rust] has to begin with unsafe_code = \"forbid\""
        );
    }
}
