//! Checks that each crate that is published can be packaged: its package contains the files that its sources include,
//! it has the metadata of a registry, and no cycle of dependencies remains between the packages.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::tidy::{relative, sources};

/// The fields of a manifest that each published crate has.
const FIELDS: [&str; 4] = ["description", "license", "readme", "repository"];
/// The file with the licence.
const LICENSE: &str = "LICENSE";
/// The macros and the attribute that name a file at compile time.
const INCLUDES: [&str; 4] = ["include!(", "include_str!(", "include_bytes!(", "#[path = "];

/// Adds a problem for each mistake of a published crate. `packages` are those of `cargo metadata`.
pub fn check(root: &Path, packages: &[Value], problems: &mut Vec<String>) {
    let own: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    // A list of registries limits publication; an empty list forbids it.
    let is_published = |package: &&Value| package["publish"].as_array().is_none_or(|to| !to.is_empty());
    for package in packages.iter().filter(is_published) {
        let name = package["name"].as_str().unwrap_or_default();
        for field in FIELDS.iter().filter(|field| package[**field].as_str().is_none_or(str::is_empty)) {
            problems.push(format!("{name} is published and has no {field}"));
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let has_version = dependency["req"] != "*";
            match dependency["kind"] == "dev" {
                _ if !own.contains(&on) => {}
                // cargo omits a development dependency without a version from the package. With one, two crates whose
                // tests use each other could not be published at all.
                true if has_version => problems.push(format!(
                    "{name} depends on {on} for its tests, with a version; name its path alone, so that the package omits it"
                )),
                false if !has_version => {
                    problems.push(format!("{name} depends on {on} without a version; a package needs one"));
                }
                _ => {}
            }
        }
        if let Some(folder) = package["manifest_path"].as_str().and_then(|file| Path::new(file).parent()) {
            // The licence has to be in each copy.
            if !folder.join(LICENSE).is_file() {
                problems
                    .push(format!("{name} is published without {LICENSE}; link to that of the repository"));
            }
            included(root, folder, problems);
        }
    }
}

/// Adds a problem for each file that a source of the crate includes and its package does not contain. cargo packages a
/// symbolic link as the file that it leads to, so a file from elsewhere is included through a link in the crate.
fn included(root: &Path, folder: &Path, problems: &mut Vec<String>) {
    for file in sources(folder, &["rs"]) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for Included { line, path, of_crate, is_whole } in includes(&text) {
            let base = if of_crate { folder } else { file.parent().unwrap_or(folder) };
            let named = without_parents(&base.join(path.trim_start_matches('/')));
            let place = format!("{}:{line}", relative(root, &file));
            if !named.starts_with(folder) {
                problems.push(format!(
                    "{place}: {path} is outside of the crate, so its package would not compile; include it through a \
                     symbolic link in {}",
                    relative(root, folder)
                ));
            } else if is_whole && !named.is_file() {
                problems.push(format!("{place}: {path} is no file"));
            }
        }
    }
}

/// A path that a source includes.
#[derive(Debug, PartialEq)]
struct Included<'a> {
    line: usize,
    path: &'a str,
    /// Whether the path begins at the folder of the crate instead of that of the source.
    of_crate: bool,
    /// Whether the path has no parts of which only the compiler knows the value.
    is_whole: bool,
}

/// Returns the paths that a source includes, in code. Of a path in several parts, the fixed beginning is returned.
fn includes(text: &str) -> Vec<Included<'_>> {
    let mut found = Vec::new();
    for word in INCLUDES {
        for (at, _) in text.match_indices(word) {
            let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
            let before = &text[start..at];
            if before.trim_start().starts_with("//") || before.ends_with('"') {
                continue;
            }
            let rest = text[at + word.len()..].trim_start();
            let (rest, is_whole) = match rest.strip_prefix("concat!(") {
                Some(parts) => (parts.trim_start(), false),
                None => (rest, true),
            };
            let (rest, of_crate) = match rest.strip_prefix("env!(\"CARGO_MANIFEST_DIR\")") {
                Some(rest) => (rest.trim_start_matches([',', ' ', '\n']), true),
                None => (rest, false),
            };
            let Some((path, _)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) else {
                continue;
            };
            found.push(Included { line: text[..at].matches('\n').count() + 1, path, of_crate, is_whole });
        }
    }
    found.sort_by_key(|included| included.line);
    found
}

/// Resolves `..` by name alone: a package has no symbolic links.
fn without_parents(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_included_path_is_found_in_each_form() {
        let text = "const A: &str = include_str!(\"../a\");\n// include_str!(\"no\")\n#[path = \"b.rs\"]\nmod b;\n\
                    x(include_bytes!(\n    concat!(\"c/\", $name)));\n\
                    include!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../d\"));\ninclude!($macro);\n";
        let found: Vec<_> =
            includes(text).into_iter().map(|one| (one.line, one.path, one.of_crate, one.is_whole)).collect();
        assert_eq!(
            found,
            [
                (1, "../a", false, true),
                (3, "b.rs", false, true),
                (5, "c/", false, false),
                (7, "/../d", true, false)
            ]
        );
    }

    #[test]
    fn each_mistake_of_a_published_crate_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("docs/page.md", "a page");
        write("two/LICENSE", "the licence");
        write("one/src/own.txt", "text");
        write(
            "one/src/lib.rs",
            "include_str!(\"own.txt\");\ninclude_str!(\"linked.md\");\ninclude_str!(\"../../docs/page.md\");\n\
             include_str!(\"gone.txt\");\ninclude_str!(concat!(\"../../two/\", $name));\n",
        );
        write("private/src/lib.rs", "include_str!(\"../../docs/page.md\")");
        std::os::unix::fs::symlink("../../docs/page.md", root.path().join("one/src/linked.md")).unwrap();
        let manifest = |name: &str| root.path().join(name).join("Cargo.toml");
        let packages = [
            json!({
                "name": "one", "publish": null, "manifest_path": manifest("one"),
                "description": "", "license": "MIT", "readme": "README.md", "repository": "https://example.org",
                "dependencies": [
                    { "name": "two", "req": "*", "kind": null },
                    { "name": "private", "req": "*", "kind": "dev" },
                    { "name": "two", "req": "^1", "kind": "dev" },
                    { "name": "other", "req": "*", "kind": null },
                ],
            }),
            json!({ "name": "private", "publish": [], "manifest_path": manifest("private"), "dependencies": [] }),
            json!({
                "name": "two", "publish": null, "manifest_path": manifest("two"),
                "description": "text", "license": "MIT", "readme": "README.md", "repository": "https://example.org",
                "dependencies": [{ "name": "one", "req": "^1", "kind": null }],
            }),
        ];
        let mut problems = Vec::new();
        check(root.path(), &packages, &mut problems);
        assert_eq!(
            problems,
            [
                "one is published and has no description",
                "one depends on two without a version; a package needs one",
                "one depends on two for its tests, with a version; name its path alone, so that the package omits it",
                "one is published without LICENSE; link to that of the repository",
                "one/src/lib.rs:3: ../../docs/page.md is outside of the crate, so its package would not compile; \
                 include it through a symbolic link in one",
                "one/src/lib.rs:4: gone.txt is no file",
                "one/src/lib.rs:5: ../../two/ is outside of the crate, so its package would not compile; include it \
                 through a symbolic link in one",
            ]
        );
    }
}
