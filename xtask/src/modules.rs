//! Checks imports between the folders of a crate's sources: the engine's modules have allowed edges, as crates do.

use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources};

/// The crate whose folders are checked.
const SOURCES: &str = "crates/engine/src";

/// The folders that each folder may import in addition to itself. A new edge is a line here and one in ARCHITECTURE.md.
const FOLDERS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("users", &["core"]),
    ("usage", &["core", "users"]),
    ("resources", &["core", "users", "usage"]),
    ("workspace", &["core", "users", "usage", "resources"]),
    ("sessions", &["core", "users", "usage", "resources", "workspace"]),
    ("automations", &["core", "users", "usage", "resources", "workspace", "sessions"]),
    ("channels", &["core", "users", "usage", "resources", "workspace", "sessions", "automations"]),
    ("front", &["core", "users", "usage", "resources", "workspace", "sessions", "automations", "channels"]),
    (
        "host",
        &["core", "users", "usage", "resources", "workspace", "sessions", "automations", "channels", "front"],
    ),
];

/// Adds a problem for each import that is not allowed.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    for file in sources(&root.join(SOURCES), &["rs"]) {
        let inside = relative(&root.join(SOURCES), &file);
        let Some(folder) = inside.split(['/', '.']).next().filter(|_| inside != "lib.rs") else { continue };
        let Some((_, allowed)) = FOLDERS.iter().find(|(name, _)| *name == folder) else {
            problems.push(format!("{SOURCES}/{inside}: the folder {folder} has no row among the modules"));
            continue;
        };
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (import, line) in imports(&text) {
            if import != folder && !allowed.contains(&import) {
                problems.push(format!("{SOURCES}/{inside}:{line}: {folder} may not import {import}"));
            }
        }
    }
}

/// Returns the name after each `crate::` in code, with its line. A list of modules is returned as `{` and reported:
/// each module must be imported separately, so that this check sees it.
fn imports(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")).flat_map(
        |(at, line)| {
            let names = line.match_indices("crate::").filter(|(start, _)| {
                // Excludes `ostler_crate::` and `$crate::`.
                !line[..*start].ends_with(|before: char| before.is_alphanumeric() || "_$".contains(before))
            });
            names.map(move |(start, word)| {
                let rest = &line[start + word.len()..];
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                (if end == 0 { "{" } else { &rest[..end] }, at + 1)
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::imports;

    #[test]
    fn an_import_is_found_wherever_it_stands() {
        let text = "use crate::core::log::Log;\n// crate::host\nfn f(host: &crate::host::Host) -> crate::users::A {}\n\
                    use crate::{sessions, usage};\n$crate::front::x!();";
        let found: Vec<_> = imports(text).collect();
        assert_eq!(found, [("core", 1), ("host", 3), ("users", 3), ("{", 4)]);
    }
}
