//! Checks the documentation as a book: every page is in its summary, links have valid targets, and the index of errors
//! quotes messages that exist in the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources};

const FOLDER: &str = "docs";
const SUMMARY: &str = "SUMMARY.md";
const ERRORS: &str = "errors.md";
/// The placeholder for the variable parts of a message.
const GAP: char = '…';
/// The minimum length of a piece of a message; shorter ones match everywhere.
const SHORTEST_PIECE: usize = 4;

/// Adds a line for each page outside the summary, each broken link, and each quoted message that no source contains.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    let folder = root.join(FOLDER);
    let mut pages = sources(&folder, &["md"]);
    let summary = fs::read_to_string(folder.join(SUMMARY)).unwrap_or_default();
    let listed: BTreeSet<&str> = links(&summary).map(|(_, link)| link).collect();
    for page in &pages {
        let name = page.strip_prefix(&folder).unwrap_or(page).to_string_lossy();
        if name != SUMMARY && !listed.contains(name.as_ref()) {
            problems.push(format!("{FOLDER}/{name} is not in {FOLDER}/{SUMMARY}"));
        }
    }
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "changes/README.md",
        "crates/contract/ARCHITECTURE.md",
        "crates/engine/ARCHITECTURE.md",
    ] {
        pages.push(root.join(name));
    }
    for page in &pages {
        broken_links(root, page, problems);
    }
    let errors = fs::read_to_string(folder.join(ERRORS)).unwrap_or_default();
    let said = said(root);
    for (message, piece) in quoted(&errors).filter(|(_, piece)| !said.contains(piece)) {
        problems.push(format!("{FOLDER}/{ERRORS}: no source says {piece:?} of the message {message:?}"));
    }
}

fn broken_links(root: &Path, page: &Path, problems: &mut Vec<String>) {
    let text = fs::read_to_string(page).unwrap_or_default();
    let folder = page.parent().unwrap_or(root);
    for (line, link) in links(&text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { page.to_owned() } else { folder.join(file) };
        let found = match fs::metadata(&target) {
            Err(_) => false,
            Ok(_) if anchor.is_empty() || !file.ends_with(".md") && !file.is_empty() => true,
            Ok(_) => anchors(&fs::read_to_string(&target).unwrap_or_default()).any(|one| one == anchor),
        };
        if !found {
            problems.push(format!("{}:{line}: {link} leads nowhere", relative(root, page)));
        }
    }
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

/// Returns the targets of inline links, with their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, text)| {
        // Inline code contains no links.
        let plain = text.split('`').step_by(2);
        plain.flat_map(move |part| {
            part.split("](").skip(1).filter_map(move |rest| Some((line, rest.split_once(')')?.0)))
        })
    })
}

/// Returns the possible anchors of a page: its headings as Markdown renderers name them, and its explicit anchors.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'));
        kept.map(|one| if one == ' ' { '-' } else { one }).collect()
    });
    let own = text.split("<a id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    headings.chain(own)
}

/// Returns the messages that a page quotes in the first column of its tables, with the fixed pieces of each.
fn quoted(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let messages = text.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once("` |")?.0));
    messages.flat_map(|message| {
        let pieces = message.split(GAP).map(str::trim);
        pieces.filter(|piece| piece.len() >= SHORTEST_PIECE).map(move |piece| (message, piece))
    })
}

/// Sources whose texts describe messages and keys instead of being shown by the program.
const DESCRIPTIONS: &[&str] = &["daemon/src/api/openapi.rs", "daemon/src/config/keys.rs"];
/// Where the unit tests of a file begin.
const UNIT_TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Returns the text of all sources that can show a message: without tests, comments and descriptions, and with continued
/// string literals joined.
fn said(root: &Path) -> String {
    let mut all = String::new();
    for folder in ["crates", "daemon", "plugins"] {
        for file in sources(&root.join(folder), &["rs"]) {
            let name = relative(root, &file);
            if DESCRIPTIONS.contains(&&*name) || name.contains("/tests/") || name.ends_with("_tests.rs") {
                continue;
            }
            let text = fs::read_to_string(file).unwrap_or_default();
            let text = text.split(UNIT_TESTS).next().unwrap_or_default();
            let lines = text.split_inclusive('\n').filter(|line| !line.trim_start().starts_with("//"));
            let text: String = lines.collect();
            let mut parts = text.split("\\\n");
            all.extend(parts.next());
            all.extend(parts.map(str::trim_start));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A title, `code`\n\n[one](b.md#x) and `[no](c.md)`\n```\n[no](d.md)\n# no\n```\n<a id=\"own\"></a>\n";

    #[test]
    fn links_outside_of_code_are_found() {
        assert_eq!(links(PAGE).collect::<Vec<_>>(), [(3, "b.md#x")]);
    }

    #[test]
    fn headings_and_own_anchors_are_named_as_in_links() {
        assert_eq!(anchors(PAGE).collect::<Vec<_>>(), ["a-title-code", "own"]);
    }

    #[test]
    fn messages_are_quoted_in_pieces() {
        let page = "| message | meaning |\n|---|---|\n| `cannot … the file … so` | x |\n";
        let pieces: Vec<&str> = quoted(page).map(|(_, piece)| piece).collect();
        assert_eq!(pieces, ["cannot", "the file"]);
    }

    #[test]
    fn each_mistake_of_the_book_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("docs/SUMMARY.md", "[a](a.md)\n[errors](errors.md)\n");
        write(
            "docs/a.md",
            "# A\n[b](b.md#b) [gone](gone.md) [here](#a) [not here](#c) [web](https://example.org/x)\n",
        );
        write("docs/b.md", "# B\n");
        write(
            "docs/errors.md",
            "| `nobody says this` | x |\n| `… was said` | x |\n| `only described` | x |\n| `only tested` | x |\n",
        );
        write("daemon/src/api/openapi.rs", "\"only described\"");
        write("daemon/src/b.rs", "/// only described\n#[cfg(test)]\nmod tests {\n\"only tested\"\n}\n");
        write("daemon/tests/c.rs", "\"only tested\"");
        write("daemon/src/a.rs", "\"it was \\\n    said\"");
        let mut problems = Vec::new();
        check(root.path(), &mut problems);
        assert_eq!(
            problems,
            [
                "docs/b.md is not in docs/SUMMARY.md",
                "docs/a.md:2: gone.md leads nowhere",
                "docs/a.md:2: #c leads nowhere",
                "docs/errors.md: no source says \"nobody says this\" of the message \"nobody says this\"",
                "docs/errors.md: no source says \"only described\" of the message \"only described\"",
                "docs/errors.md: no source says \"only tested\" of the message \"only tested\"",
            ]
        );
    }
}
