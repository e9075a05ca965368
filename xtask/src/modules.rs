//! Checks imports between the folders of a crate's sources: the engine's modules have allowed edges, as crates do.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy::{relative, sources};

/// The crate whose folders are checked.
const SOURCES: &str = "crates/engine/src";

/// The folders that each folder may import in addition to itself. A new edge is a line here and one in crates/engine/ARCHITECTURE.md.
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
    let files = sources(&root.join(SOURCES), &["rs"]);
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    let mut depths: HashMap<PathBuf, usize> = HashMap::new();
    for (file, text) in files.iter().zip(&texts) {
        let own = depth(&relative(&root.join(SOURCES), file));
        depths.entry(file.clone()).or_insert(own);
        let folder = file.parent().unwrap_or(root);
        depths.extend(elsewhere(text).map(|named| (folder.join(named), own + 1)));
    }
    for (file, text) in files.iter().zip(&texts) {
        let inside = relative(&root.join(SOURCES), file);
        let Some(folder) = inside.split(['/', '.']).next().filter(|_| inside != "lib.rs") else { continue };
        let Some((_, allowed)) = FOLDERS.iter().find(|(name, _)| *name == folder) else {
            problems.push(format!("{SOURCES}/{inside}: the folder {folder} has no row among the modules"));
            continue;
        };
        for (import, line) in imports(text, depths.get(file).copied().unwrap_or_default()) {
            if import != folder && !allowed.contains(&import) {
                problems.push(format!("{SOURCES}/{inside}:{line}: {folder} may not import {import}"));
            }
        }
    }
}

/// Returns how many modules a file is below the crate, by its path in the sources.
fn depth(inside: &str) -> usize {
    let path = inside.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path).split('/').count()
}

/// Returns the files that `#[path]` makes modules of a source.
fn elsewhere(text: &str) -> impl Iterator<Item = &str> {
    let attributes = text.lines().filter_map(|line| line.trim_start().strip_prefix("#[path = \""));
    attributes.filter_map(|rest| Some(rest.split_once('"')?.0))
}

/// Returns the name after each `crate::` and after each path of `super::` that leads to the crate, in code, with its
/// line. `depth` is the number of modules that the source is below the crate. A list of modules is returned as `{` and
/// reported: each module must be imported separately, so that this check sees it.
fn imports(text: &str, depth: usize) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    // The indentation of each module within the source, which is formatted.
    let mut modules: Vec<&str> = Vec::new();
    let mut is_use = false;
    for (at, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let indentation = &line[..line.len() - code.len()];
        if modules.last() == Some(&indentation) && code == "}" {
            modules.pop();
        }
        let item = without_visibility(code);
        if item.starts_with("mod ") && item.ends_with('{') {
            modules.push(indentation);
        }
        is_use |= item.starts_with("use ");
        found.extend(from_crate(line).map(|name| (name, at + 1)));
        found.extend(from_super(line, depth + modules.len(), is_use).map(|name| (name, at + 1)));
        is_use &= !line.contains(';');
    }
    found
}

/// Returns the name after each `crate::` of a line.
fn from_crate(line: &str) -> impl Iterator<Item = &str> {
    let paths = line.match_indices("crate::").filter(|(start, _)| {
        // Excludes `ostler_crate::` and `$crate::`.
        !line[..*start].ends_with(|before: char| before.is_alphanumeric() || "_$".contains(before))
    });
    paths.map(|(start, word)| first_name(&line[start + word.len()..]))
}

/// Returns the name after each path of `super::` in a line that leads to the crate. In a `use`, `super` inside of braces
/// is returned as `{`, because the path before them can be in another line.
fn from_super(line: &str, depth: usize, is_use: bool) -> impl Iterator<Item = &str> {
    let paths = line.match_indices("super").filter(|(start, word)| {
        let (before, after) = (&line[..*start], &line[start + word.len()..]);
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let is_first = !before.ends_with("super::") && !before.ends_with(is_word);
        is_first && (after.starts_with("::") || after.starts_with(" as "))
    });
    paths.filter_map(move |(start, _)| {
        let before = line[..start].trim_end();
        if is_use && !before.ends_with("use") && !before.ends_with("self::") {
            return Some("{");
        }
        let (mut count, mut rest) = (1, &line[start + "super".len()..]);
        while let Some(after) = rest.strip_prefix("::super") {
            (count, rest) = (count + 1, after);
        }
        let name = match rest.strip_prefix("::") {
            Some(rest) => first_name(rest),
            None if rest.starts_with(" as ") => "{",
            // The scope of a `pub(in …)`.
            None => return None,
        };
        (count >= depth).then_some(name)
    })
}

/// Returns the name at the beginning of a text, or `{` if there is none.
fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if end == 0 { "{" } else { &text[..end] }
}

/// Returns an item without `pub` or `pub(…)`.
fn without_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else { return item };
    let rest = match rest.strip_prefix('(') {
        Some(limited) => limited.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.trim_start()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{SOURCES, check, depth, imports};

    #[test]
    fn an_import_is_found_wherever_it_stands() {
        let text = "use crate::core::log::Log;\n// crate::host\nfn f(host: &crate::host::Host) -> crate::users::A {}\n\
                    use crate::{sessions, usage};\n$crate::front::x!();";
        assert_eq!(imports(text, 2), [("core", 1), ("host", 3), ("users", 3), ("{", 4)]);
    }

    #[test]
    fn a_path_of_parents_is_found_where_it_leads_to_the_crate() {
        let text = "use super::other;\nuse super::super::automations;\npub(super) use super::super::front::{A, B};\n\
                    let x = super::super::host::x(super::y);\n// use super::super::channels;\n\
                    use super::super::{core, front};\nuse super::super::*;\nuse super::super as root;\n\
                    my_super::super_x();\npub(in super::super) struct X;";
        let found = [("automations", 2), ("front", 3), ("host", 4), ("{", 6), ("{", 7), ("{", 8)];
        assert_eq!(imports(text, 2), found);
        assert_eq!(imports("use super::users;", 1), [("users", 1)]);
        assert_eq!(imports("use super::super::order;\nuse super::super::super::users;", 3), [("users", 2)]);
    }

    #[test]
    fn a_module_within_a_source_is_one_level_deeper() {
        let text = "use super::super::front;\n#[cfg(test)]\npub(crate) mod tests {\n    use super::super::order;\n    \
                    mod more {\n        use super::super::super::super::host;\n    }\n    use \
                    super::super::super::channels;\n}\nuse super::super::users;";
        assert_eq!(imports(text, 2), [("front", 1), ("host", 6), ("channels", 8), ("users", 10)]);
    }

    #[test]
    fn parents_within_braces_are_reported() {
        let text =
            "use super::{super::front, x};\nuse super::{\n    super::users,\n    y,\n};\nf(a, super::z);";
        assert_eq!(imports(text, 2), [("{", 1), ("{", 3)]);
    }

    #[test]
    fn the_depth_of_a_source() {
        for (file, expected) in
            [("host.rs", 1), ("host/closing.rs", 2), ("front/mod.rs", 1), ("front/relay/mod.rs", 2)]
        {
            assert_eq!(depth(file), expected, "{file}");
        }
    }

    #[test]
    fn imports_against_the_layers_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(SOURCES).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("lib.rs", "mod sessions;\n");
        write("sessions/mod.rs", "use super::automations::Automations;\nuse super::core::Core;\n");
        write("sessions/x.rs", "use super::super::automations;\nuse super::y;\nuse crate::front::Front;\n");
        write("sessions/y.rs", "#[cfg(test)]\n#[path = \"y_tests.rs\"]\nmod tests;\n");
        write("sessions/y_tests.rs", "use super::super::z;\nuse super::super::super::host;\n");
        let mut problems = Vec::new();
        check(root.path(), &mut problems);
        assert_eq!(
            problems,
            [
                "crates/engine/src/sessions/mod.rs:1: sessions may not import automations",
                "crates/engine/src/sessions/x.rs:1: sessions may not import automations",
                "crates/engine/src/sessions/x.rs:3: sessions may not import front",
                "crates/engine/src/sessions/y_tests.rs:2: sessions may not import host",
            ]
        );
    }
}
