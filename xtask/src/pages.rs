//! Checks the form of the pages in `docs/`: the width of prose, the length of table cells, the section about what a page's
//! subject does not do, quoted code, and the files and tests that the pages for developers name.

use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources};

const FOLDER: &str = "docs";
/// The pages that name files and tests of the repository.
const DEVELOP: &str = "docs/develop/";
/// The maximum number of characters of a line of prose.
const WIDTH: usize = 120;
/// The maximum number of words in a cell of a table: what is longer is a section with a heading.
const CELL: usize = 25;
/// Pages without the section: the summary, and the decisions, whose form has none.
const WITHOUT_SECTION: &[&str] = &["docs/SUMMARY.md", "docs/decisions.md"];
/// Pages whose cells are statements of the specification, lists of packages, or records of runs.
const LONG_CELLS: &[&str] = &["docs/conformance.md", "docs/packages.md", "docs/verification.md"];
/// The line above a block of code that stands in a file: `<!-- from path/to/file.rs -->`.
const FROM: &str = "<!-- from ";
/// The line in such a block for what is left out.
const LEFT_OUT: &str = "\n…\n";
/// The folders that paths in the pages for developers begin with.
const FOLDERS: &[&str] =
    &["crates/", "daemon/", "docs/", "examples/", "plugins/", "sdk/", "tools/", "xtask/"];

/// Adds a line for each deviation.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    let mut code = None;
    for page in sources(&root.join(FOLDER), &["md"]) {
        let name = relative(root, &page);
        let text = fs::read_to_string(&page).unwrap_or_default();
        form(&name, &text, problems);
        quotes(root, &name, &text, problems);
        if name.starts_with(DEVELOP) {
            let code = code.get_or_insert_with(|| all_code(root));
            named(root, &name, &text, code, problems);
        }
    }
}

fn all_code(root: &Path) -> String {
    let folders = ["crates", "daemon", "plugins", "xtask"];
    let files = folders.iter().flat_map(|folder| sources(&root.join(folder), &["rs"]));
    files.map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
}

/// Returns the lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((at + 1, line))
    })
}

/// Checks widths, cells and the section.
fn form(name: &str, text: &str, problems: &mut Vec<String>) {
    for (line, text) in prose(text) {
        let cells = text.strip_prefix('|').unwrap_or_default().split('|');
        let longest = cells.map(|cell| cell.split_whitespace().count()).max().unwrap_or_default();
        if longest > CELL && !LONG_CELLS.contains(&name) {
            problems.push(format!(
                "{name}:{line}: a cell has {longest} words, {CELL} are the most; write a section with a heading"
            ));
        }
        let is_free = text.starts_with(['|', '#', '<', '!']);
        let width = text.chars().count();
        // A word that is longer by itself cannot be wrapped.
        if width > WIDTH && !is_free && text.trim_start().contains(' ') {
            problems.push(format!("{name}:{line}: the line has {width} characters, {WIDTH} are the most"));
        }
    }
    let says_what_not = |line: &str| line.starts_with("## What ") && line.contains(" not ");
    if !WITHOUT_SECTION.contains(&name) && !prose(text).any(|(_, line)| says_what_not(line)) {
        problems.push(format!("{name}: add a section \"## What it does not do\""));
    }
}

/// Checks that the pieces of each quoted block stand in its file, in this order.
fn quotes(root: &Path, name: &str, text: &str, problems: &mut Vec<String>) {
    let blocks = text.split(FROM).skip(1).filter_map(|rest| rest.split_once(" -->\n```"));
    for (file, rest) in blocks {
        let block = rest.split_once('\n').and_then(|(_, rest)| rest.split_once("\n```"));
        let Some((block, _)) = block else { continue };
        let source = fs::read_to_string(root.join(file)).unwrap_or_default();
        let mut after = source.as_str();
        for piece in block.split(LEFT_OUT) {
            match after.split_once(piece) {
                Some((_, rest)) => after = rest,
                None => {
                    let first = piece.lines().next().unwrap_or_default().trim();
                    problems.push(format!("{name}: {file} does not contain the quoted code at {first:?}"));
                    break;
                }
            }
        }
    }
}

/// Checks that the files in inline code exist, and that names of functions, which have at least two underscores, stand in
/// the sources.
fn named(root: &Path, name: &str, text: &str, code: &str, problems: &mut Vec<String>) {
    for (line, text) in prose(text) {
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            if is_path && !root.join(word).exists() {
                problems.push(format!("{name}:{line}: there is no {word}"));
            }
            let is_name =
                word.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_');
            if is_name && word.matches('_').count() >= 2 && !code.contains(word) {
                problems.push(format!("{name}:{line}: no source contains {word}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_cells_and_the_section_are_checked() {
        let long = "word ".repeat(30);
        let page = format!(
            "# A\n\n{long}\n\n| {long} |\n\n```\n{long}\n```\n# {long}\nhttps://{}\n",
            "x".repeat(130)
        );
        let mut problems = Vec::new();
        form("docs/a.md", &page, &mut problems);
        assert_eq!(
            problems,
            [
                "docs/a.md:3: the line has 150 characters, 120 are the most",
                "docs/a.md:5: a cell has 30 words, 25 are the most; write a section with a heading",
                "docs/a.md: add a section \"## What it does not do\"",
            ]
        );
        problems.clear();
        form("docs/a.md", "# A\n\n## What A does not do\n", &mut problems);
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn quoted_code_files_and_names_have_to_exist() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("crates")).unwrap();
        fs::write(
            root.path().join("crates/a.rs"),
            "fn a_known_name() {\n    one();\n    two();\n    three();\n}\n",
        )
        .unwrap();
        let quote = |block: &str| format!("<!-- from crates/a.rs -->\n```rust\n{block}\n```\n");
        let mut problems = Vec::new();
        quotes(root.path(), "docs/a.md", &quote("    one();\n…\n    three();"), &mut problems);
        assert_eq!(problems, [""; 0]);
        quotes(root.path(), "docs/a.md", &quote("    two();\n…\n    one();"), &mut problems);
        let text = "`crates/a.rs` `crates/b.rs` `a_known_name` `an_unknown_name` `pool_size`";
        named(root.path(), "docs/develop/a.md", text, &all_code(root.path()), &mut problems);
        assert_eq!(
            problems,
            [
                "docs/a.md: crates/a.rs does not contain the quoted code at \"one();\"",
                "docs/develop/a.md:1: there is no crates/b.rs",
                "docs/develop/a.md:1: no source contains an_unknown_name",
            ]
        );
    }
}
