//! Titles of sessions, chats and terminals.

/// The longest title, in characters.
const TITLE_MAX: usize = 200;

/// Normalizes a title: single spaces, limited length; `None` if nothing is left.
pub fn tidy_title(title: &str) -> Option<String> {
    let mut after_space = false;
    // Lazy: of a long text only the beginning is read.
    let tidy = title.trim_start().chars().flat_map(|char| {
        let is_space = char.is_whitespace();
        let ends_gap = std::mem::replace(&mut after_space, is_space) && !is_space;
        ends_gap.then_some(' ').into_iter().chain((!is_space).then_some(char))
    });
    let short: String = tidy.take(TITLE_MAX).collect();
    (!short.is_empty()).then_some(short)
}

/// Normalizes a title from a request.
pub fn named(title: &str) -> Result<String, &'static str> {
    tidy_title(title).ok_or("a title needs at least one character")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_title_is_the_beginning_of_the_words(text in "[ \\t\\n\u{2003}aé]{0,500}") {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let short: String = words.chars().take(TITLE_MAX).collect();
            prop_assert_eq!(tidy_title(&text).unwrap_or_default(), short);
        }
    }
}
