//! Checks that the engine and the daemon parse owners with `Owner::parse` alone, which rejects texts that only begin like
//! an owner.

use std::fs;
use std::path::Path;

use ostler_contract::owner::Owner;

use crate::tidy::{ENGINE, relative, sources, without_tests};

/// The calls that split a text at its colon.
const SPLITS: [&str; 3] = ["split(':')", "split_once(':')", "splitn(2, ':')"];
/// The words in the name of a value that is an owner, or a membership, which `Owner::from_membership` parses.
const OWNERS: [&str; 4] = ["owner", "pool", "membership", "scope"];

/// Adds a problem for each line of these sources that parses an owner by hand.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    for file in ENGINE.iter().chain(&["daemon/src"]).flat_map(|folder| sources(&root.join(folder), &["rs"])) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for line in parsed_by_hand(without_tests(&text)) {
            problems.push(format!(
                "{}:{line}: an owner or a membership is parsed by hand; match on Owner::parse or Owner::from_membership",
                relative(root, &file)
            ));
        }
    }
}

/// Returns the numbers of the lines that parse an owner by hand: they test for the beginning of one of its forms, or
/// split a value that is an owner by its name.
fn parsed_by_hand(text: &str) -> Vec<usize> {
    let kinds = Owner::FORMS.split_whitespace().filter_map(|form| Some(form.split_once(':')?.0));
    let beginnings: Vec<String> = kinds
        .flat_map(|kind| {
            [
                format!("strip_prefix(\"{kind}:"),
                format!("starts_with(\"{kind}:"),
                format!("Some((\"{kind}\","),
            ]
        })
        .collect();
    let mut found = Vec::new();
    // The lines of one chain of calls.
    let mut chain = String::new();
    for (at, line) in text.lines().enumerate() {
        if !line.trim_start().starts_with('.') {
            chain.clear();
        }
        chain.push_str(line);
        let is_beginning = beginnings.iter().any(|beginning| line.contains(beginning));
        let is_split = SPLITS.iter().any(|split| line.contains(split));
        if is_beginning || is_split && OWNERS.iter().any(|owner| chain.contains(owner)) {
            found.push(at + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_is_parsed_by_hand_is_found() {
        for line in [
            "let id = owner.strip_prefix(\"user:\")?;",
            "let id = id.strip_prefix(\"project:web:\")?;",
            "if text.starts_with(\"root:\") {",
            "Some((\"team\", team)) => team,",
            "let (kind, rest) = self.owner.as_deref()?.split_once(':')?;",
            "match pool.split(':').next() {",
            "let (team, project) = scope.split_once(':')?;",
            "memberships.iter().any(|held| held.split_once(':') == Some(scope))",
        ] {
            assert_eq!(parsed_by_hand(line), [1], "{line}");
        }
        let chain = "let parts = self\n    .owner\n    .as_deref()?\n    .rsplit_once(':')?;";
        assert_eq!(parsed_by_hand(chain), [4]);
    }

    #[test]
    fn other_texts_are_no_owners() {
        for line in [
            "let owner = format!(\"user:{id}\");",
            "let (kind, name) = inside.split_once(':')?;",
            "if uri.starts_with(\"session:\") {",
            "\"users:read\" => Some(\"user:read\"),",
            "match Owner::parse(owner) {",
        ] {
            assert_eq!(parsed_by_hand(line), [0; 0], "{line}");
        }
        let lines = "let owner = &entry.owner;\nlet scheme = uri.split_once(':')?.0;";
        assert_eq!(parsed_by_hand(lines), [0; 0]);
    }

    #[test]
    fn tests_of_the_engine_are_not_checked() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("crates/engine-users/src/usage/read.rs");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "owner.split(':');\n#[cfg(test)]\nmod tests { fn f() { owner.split(':'); } }\n")
            .unwrap();
        let mut problems = Vec::new();
        check(root.path(), &mut problems);
        assert_eq!(
            problems,
            [
                "crates/engine-users/src/usage/read.rs:1: an owner or a membership is parsed by hand; match on Owner::parse \
              or Owner::from_membership"
            ]
        );
    }
}
