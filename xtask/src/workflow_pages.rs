//! Pages that compiled tests read: a change of one needs the jobs that run them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources};

const WORKFLOW: &str = ".github/workflows/ci.yml";
/// What the pages are named in. `xtask` reads most of them for `tidy`, which runs for every change.
const FOLDERS: [&str; 4] = ["crates", "daemon", "plugins", "tools"];

/// Adds a problem for each page of the documentation that code names as a file and that the workflow does not list.
pub(crate) fn check(root: &Path, problems: &mut Vec<String>) {
    let workflow = fs::read_to_string(root.join(WORKFLOW)).unwrap_or_default();
    let listed = listed(&workflow);
    for folder in FOLDERS {
        for file in sources(&root.join(folder), &["rs"]) {
            for page in named(&fs::read_to_string(&file).unwrap_or_default()) {
                if !listed.contains(page) && root.join(format!("docs/{page}.md")).is_file() {
                    let file = relative(root, &file);
                    problems
                        .push(format!("{file} reads docs/{page}.md: add it to read_by_tests in {WORKFLOW}"));
                }
            }
        }
    }
}

/// Returns the pages of `read_by_tests`.
fn listed(workflow: &str) -> BTreeSet<&str> {
    let pattern = workflow.split_once("read_by_tests='").and_then(|(_, rest)| rest.split_once('\''));
    let pages = pattern.and_then(|(pattern, _)| pattern.split_once("docs/(")?.1.split_once(')'));
    pages.map(|(pages, _)| pages.split('|').collect()).unwrap_or_default()
}

/// Returns the pages that texts in a source name: in the folder of the pages, or as an argument.
fn named(source: &str) -> BTreeSet<&str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let ends = code.flat_map(|line| line.match_indices(".md\"").map(move |(at, _)| &line[..at]));
    let texts = ends.filter_map(|before| before.rsplit_once('"'));
    let pages = texts.filter_map(|(before, text)| match text.rsplit_once('/') {
        Some((folder, page)) => (folder == "docs" || folder.ends_with("/docs")).then_some(page),
        None => before.strip_suffix('(')?.ends_with(|end: char| end.is_ascii_lowercase()).then_some(text),
    });
    pages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_a_test_reads_is_listed() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(WORKFLOW, "read_by_tests='^(README|docs/(a|b))\\.md$'\n");
        for page in ["a", "b", "c", "d", "e"] {
            write(&format!("docs/{page}.md"), "");
        }
        write(
            "daemon/tests/one.rs",
            "page(\"a.md\"); page(\"c.md\");\n// page(\"e.md\")\nwrite(\"x/e.md\", \"see docs/e.md for it\");\nlet files = [(\"e.md\", TEXT)];\nread(\"f.md\");\n",
        );
        write("crates/one/src/lib.rs", "const PAGE: &str = \"/../docs/d.md\";\n");
        let mut problems = Vec::new();
        check(root.path(), &mut problems);
        assert_eq!(
            problems,
            [
                "crates/one/src/lib.rs reads docs/d.md: add it to read_by_tests in .github/workflows/ci.yml",
                "daemon/tests/one.rs reads docs/c.md: add it to read_by_tests in .github/workflows/ci.yml",
            ]
        );
    }
}
