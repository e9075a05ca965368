//! Titles of sessions, chats and terminals.

/// The longest title, in characters.
const TITLE_MAX: usize = 200;

/// Normalizes a title: single spaces, limited length; `None` if nothing is left.
pub(crate) fn tidy_title(title: &str) -> Option<String> {
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = title.chars().take(TITLE_MAX).collect();
    (!short.is_empty()).then_some(short)
}

/// Normalizes a title from a request.
pub(crate) fn named(title: &str) -> Result<String, &'static str> {
    tidy_title(title).ok_or("a title needs at least one character")
}
