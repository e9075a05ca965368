//! The numbers of added and removed lines of a file.

use imara_diff::{Algorithm, Diff, InternedInput};

/// The maximum size of content whose lines are compared, in bytes.
pub(crate) const LARGEST: u64 = 1 << 20;

/// Returns the numbers of added and removed lines; `None` for content that is not text.
pub(crate) fn count(before: &[u8], after: &[u8]) -> Option<(i64, i64)> {
    if is_binary(before) || is_binary(after) {
        return None;
    }
    let input = InternedInput::new(before, after);
    // The one that git uses by default.
    let diff = Diff::compute(Algorithm::Myers, &input);
    Some((i64::from(diff.count_additions()), i64::from(diff.count_removals())))
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
        assert_eq!(count(b"a\nb\n", b"a\r\nb\r\n"), Some((2, 2)));
    }
}
