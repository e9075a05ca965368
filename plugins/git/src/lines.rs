//! The numbers of added and removed lines of a file.

use imara_diff::{Algorithm, Diff, InternedInput};

/// The maximum size of content whose lines are compared, in bytes.
pub(crate) const LARGEST: u64 = 1 << 20;

/// Returns the numbers of added and removed lines; `None` for content that is not text.
pub(crate) fn count(before: &[u8], after: &[u8]) -> Option<(i64, i64)> {
    if is_binary(before) || is_binary(after) {
        return None;
    }
    // Git converts line endings between the commit and the tree if configured.
    let counted = match before.contains(&b'\r') == after.contains(&b'\r') {
        true => (0, 0),
        false => compare(&unix(before), &unix(after)),
    };
    match counted {
        (0, 0) => Some(compare(before, after)),
        counted => Some(counted),
    }
}

fn compare(before: &[u8], after: &[u8]) -> (i64, i64) {
    let input = InternedInput::new(before, after);
    let diff = Diff::compute(Algorithm::Histogram, &input);
    (i64::from(diff.count_additions()), i64::from(diff.count_removals()))
}

fn unix(content: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(content.len());
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => text.extend(line.iter().chain(b"\n")),
            None => text.extend(line),
        }
    }
    text
}

/// Whether content is binary, as git decides it.
fn is_binary(content: &[u8]) -> bool {
    content.iter().take(8000).any(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted() {
        assert_eq!(count(b"", b"a\nb\n"), Some((2, 0)));
        assert_eq!(count(b"a\nb\nc\n", b"a\nx\nc\nd\n"), Some((2, 1)));
        assert_eq!(count(b"a\n", b""), Some((0, 1)));
        assert_eq!(count(b"a\0", b"b"), None);
        // With converted line endings only what else changed counts; the endings alone are a change.
        assert_eq!(count(b"a\nb\n", b"a\r\nc\r\n"), Some((1, 1)));
        assert_eq!(count(b"a\nb\n", b"a\r\nb\r\n"), Some((2, 2)));
    }
}
