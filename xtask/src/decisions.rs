//! Checks the format of `docs/decisions.md`, and the citations of its entries.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources};

const FILE: &str = "docs/decisions.md";
/// The headings of the file besides those of entries.
const HEADINGS: &[&str] = &["# Decisions", "## Index", "## Entries"];
/// How the paragraphs of an entry begin, in this order.
const PARAGRAPHS: &[&str] = &["Context: ", "Decision: ", "Consequences: ", "Rejected: "];

/// Adds a line for each problem of the file and for each citation of an entry that does not exist.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    let Ok(text) = fs::read_to_string(root.join(FILE)) else {
        return problems.push(format!("{FILE} is missing"));
    };
    let numbers = entries(&text, problems);
    let mut files = Vec::new();
    for folder in ["benches", "crates", "daemon", "examples", "plugins", "tools", "xtask"] {
        files.extend(sources(&root.join(folder), &["rs", "js", "mjs", "ts", "toml", "md"]));
    }
    files.extend(sources(&root.join("docs"), &["md"]));
    files.push(root.join("ARCHITECTURE.md"));
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (at, line) in text.lines().enumerate() {
            for number in citations(line).filter(|number| !numbers.contains(number)) {
                let place = relative(root, &file);
                problems.push(format!("{place}:{}: D-{number:03} is not in {FILE}", at + 1));
            }
        }
    }
}

/// Returns the numbers of the entries. Each entry is a heading `### <a id="d-nnn"></a>D-nnn Title`, a line `*date,
/// area*` and the four paragraphs; the index before the entries has a line `- [D-nnn](#d-nnn) Title` for it.
fn entries(text: &str, problems: &mut Vec<String>) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let index = text.split("### <a id=").next().unwrap_or_default();
    let mut paragraphs =
        text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()).peekable();
    while let Some(paragraph) = paragraphs.next() {
        let first = paragraph.lines().next().unwrap_or_default();
        let mut wrong = |what: &str| problems.push(format!("{FILE}: {what}: {first}"));
        let entry = entry(first);
        if first.starts_with("**")
            || (first.starts_with('#') && entry.is_none() && !HEADINGS.contains(&first))
        {
            wrong("give the decision a number, as CONTRIBUTING.md describes");
        }
        let Some((number, title)) = entry else { continue };
        if numbers.last().is_some_and(|last| *last >= number) {
            wrong("the number is not greater than the one before");
        }
        numbers.insert(number);
        let line = format!("- [D-{number:03}](#d-{number:03}) {title}");
        if !index.lines().any(|indexed| indexed.trim() == line) {
            wrong("the index does not have the decision with this title");
        }
        if !paragraphs.next().is_some_and(|dated| is_dated(dated.trim())) {
            wrong("the heading is not followed by *<year>-<month>-<day>, <area>*");
        }
        for begin in PARAGRAPHS {
            if paragraphs.next_if(|paragraph| paragraph.starts_with(begin)).is_none() {
                wrong(&format!("the paragraph {begin:?} is missing"));
            }
        }
    }
    numbers
}

/// Returns the number and the title of a heading if its anchor has the same number.
fn entry(heading: &str) -> Option<(u32, &str)> {
    let (anchor, rest) = heading.strip_prefix("### <a id=\"d-")?.split_once("\"></a>D-")?;
    let (number, title) = rest.split_once(' ')?;
    let is_number = anchor == number && number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok()?;
    (is_number && !title.trim().is_empty()).then_some((number, title))
}

/// Returns whether a line is `*2026-01-31, area*`.
fn is_dated(line: &str) -> bool {
    let parts =
        line.strip_prefix('*').and_then(|line| line.strip_suffix('*')).and_then(|line| line.split_once(", "));
    let Some((date, area)) = parts else { return false };
    let date: Vec<Option<u32>> = date.split('-').map(|part| part.parse().ok()).collect();
    matches!(date[..], [Some(2000..), Some(1..=12), Some(1..=31)]) && !area.trim().is_empty()
}

/// Returns the numbers that a line cites as `D-nnn`.
fn citations(line: &str) -> impl Iterator<Item = u32> {
    line.match_indices("D-").filter_map(|(at, mark)| {
        let before = line[..at].chars().next_back();
        let rest = &line[at + mark.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = rest[digits..].chars().next();
        let is_word = |next: Option<char>| next.is_some_and(|next| next.is_alphanumeric() || next == '-');
        (digits >= 3 && !is_word(before) && !is_word(after)).then(|| rest[..digits].parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
# Decisions

About them.

## Index

- Area
  - [D-001](#d-001) One
  - [D-004](#d-004) Four

## Entries

### <a id=\"d-001\"></a>D-001 One

*2026-11-21, Area*

Context: D-001.

Decision: one.

Consequences: none.

Rejected: nothing.

### <a id=\"d-004\"></a>D-004 Four

*2026-11-22, Area*

Context: four.

Decision: four.

Consequences: none.

Rejected: nothing.
";

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        entries(text, &mut problems);
        problems
    }

    #[test]
    fn numbered_and_dated_entries_are_accepted() {
        assert_eq!(problems(TWO), Vec::<String>::new());
        assert_eq!(entries(TWO, &mut Vec::new()), BTreeSet::from([1, 4]));
    }

    #[test]
    fn each_mistake_of_an_entry_is_reported() {
        for (from, to, what) in [
            ("D-004 Four", "D-002 Four", "number"),
            ("<a id=\"d-004\"></a>D-004 Four", "<a id=\"d-001\"></a>D-001 Four", "not greater"),
            ("### <a id=\"d-004\"></a>D-004 Four", "**Four.** More.", "number"),
            ("### <a id=\"d-004\"></a>D-004 Four", "## Four", "number"),
            ("*2026-11-22, Area*", "Yesterday.", "not followed by"),
            ("*2026-11-22, Area*", "*2026-13-22, Area*", "not followed by"),
            ("Context: D-001.\n\n", "", "\"Context: \" is missing"),
            ("Decision: one.\n\nConsequences: none.", "Consequences: none.\n\nDecision: one.", "is missing"),
            (
                "Consequences: none.\n\nRejected: nothing.\n\n###",
                "Consequences: none.\n\n###",
                "\"Rejected: \"",
            ),
            ("  - [D-004](#d-004) Four\n", "", "index"),
            ("(#d-001) One", "(#d-001) Another", "index"),
        ] {
            let found = problems(&TWO.replace(from, to));
            assert!(found.iter().any(|problem| problem.contains(what)), "{from} -> {to}: {found:?}");
        }
    }

    #[test]
    fn cited_decisions_must_exist() {
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("crates/a/src/lib.rs");
        fs::create_dir_all(root.path().join("docs")).unwrap();
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        fs::write(root.path().join(FILE), TWO).unwrap();
        fs::write(source, "//! D-001.\n// See D-002.\n").unwrap();
        let mut problems = Vec::new();
        check(root.path(), &mut problems);
        assert_eq!(problems, ["crates/a/src/lib.rs:2: D-002 is not in docs/decisions.md"]);
    }

    #[test]
    fn citations_are_whole_words() {
        let cited = |line: &str| citations(line).collect::<Vec<_>>();
        assert_eq!(cited("// D-017: why; see D-203."), [17, 203]);
        assert_eq!(cited("ID-017 D-17 D-017x D-nnn"), Vec::<u32>::new());
    }
}
