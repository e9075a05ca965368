//! The list of unreliable tests, which `.ci/test` extends: each line is fixed, or says why it cannot be fixed yet.

use std::fs;
use std::path::Path;

const LIST: &str = ".ci/unreliable";

/// Adds a problem for each test of the list without a reason.
pub(crate) fn check(root: &Path, problems: &mut Vec<String>) {
    match fs::read_to_string(root.join(LIST)) {
        Ok(list) => problems.extend(waiting(&list)),
        Err(error) => problems.push(format!("{LIST}: {error}")),
    }
}

fn waiting(list: &str) -> Vec<String> {
    let tests = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let waiting =
        tests.filter(|line| line.split_once(": ").is_none_or(|(_, reason)| reason.trim().is_empty()));
    waiting
        .map(|test| {
            format!("{LIST}: {test} is unreliable; fix it and remove the line, or add `: ` and the reason")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_needs_a_reason() {
        assert_eq!(
            waiting("# a comment\n\ncalls::first: the disk of the runner stalls\n"),
            Vec::<String>::new()
        );
        assert_eq!(waiting("calls::first\ncalls::second: \n").len(), 2);
    }
}
