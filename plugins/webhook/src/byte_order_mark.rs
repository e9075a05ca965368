//! The byte order mark that some senders put before the text of a body. It is skipped where the text is read; signatures and
//! stored bodies have it.

use bytes::Bytes;

const MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns a body without its mark.
pub(crate) fn without_mark(body: &Bytes) -> Bytes {
    if body.starts_with(MARK) { body.slice(MARK.len()..) } else { body.clone() }
}

/// Returns the text of a body without its mark.
pub(crate) fn text_of(body: &[u8]) -> &[u8] {
    body.strip_prefix(MARK).unwrap_or(body)
}
