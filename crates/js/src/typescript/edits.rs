//! Edits of a source that preserve every line, and nearly every column.

/// A set of edits, in any order.
pub(super) struct Edits<'s> {
    source: &'s str,
    changes: Vec<(usize, usize, String)>,
}

impl<'s> Edits<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, changes: Vec::new() }
    }

    pub(super) fn text(&self, start: u32, end: u32) -> &'s str {
        self.source.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Replaces a range; the new text must have the line breaks of the old one.
    pub(super) fn replace(&mut self, start: u32, end: u32, text: String) {
        self.changes.push((start as usize, end as usize, text));
    }

    pub(super) fn insert(&mut self, at: u32, text: String) {
        self.replace(at, at, text);
    }

    /// Replaces everything in a range except line breaks with spaces.
    pub(super) fn blank(&mut self, start: u32, end: u32) {
        let text = blanks(self.text(start, end));
        self.replace(start, end, text);
    }

    /// Like [`Edits::blank`], with a character in the first position.
    pub(super) fn blank_after(&mut self, first: char, start: u32, end: u32) {
        let mut text = String::with_capacity((end - start) as usize);
        text.push(first);
        text.extend(blanks(self.text(start, end)).chars().skip(1));
        self.replace(start, end, text);
    }

    /// Returns the first position at or after `at` that is neither white space nor comment.
    pub(super) fn next(&self, at: u32) -> u32 {
        let mut rest = self.source.get(at as usize..).unwrap_or_default();
        loop {
            rest = rest.trim_start();
            let skipped = match rest.as_bytes() {
                [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
                [b'/', b'*', ..] => rest.find("*/").map_or(rest.len(), |end| end + 2),
                _ => break,
            };
            rest = &rest[skipped..];
        }
        u32::try_from(self.source.len() - rest.len()).unwrap_or(u32::MAX)
    }

    /// Returns the character at a position.
    pub(super) fn at(&self, at: u32) -> Option<char> {
        self.source.get(at as usize..)?.chars().next()
    }

    /// Returns the position after the following comma, or `end` if none follows.
    pub(super) fn with_comma(&self, end: u32) -> u32 {
        let next = self.next(end);
        if self.at(next) == Some(',') { next + 1 } else { end }
    }

    /// Returns the edited source. Of overlapping edits, the one that starts first is applied.
    pub(super) fn apply(self) -> String {
        self.edited(0, self.source.len())
    }

    /// Returns a range as the edits within it leave it, for code that is moved.
    pub(super) fn edited(&self, from: usize, to: usize) -> String {
        let within = |(start, end, _): &&(usize, usize, String)| *start >= from && *end <= to;
        let mut changes: Vec<_> = self.changes.iter().filter(within).collect();
        changes.sort_by(|(a, a_end, _), (b, b_end, _)| a.cmp(b).then(b_end.cmp(a_end)));
        let mut out = String::with_capacity(to - from + 64);
        let mut done = from;
        for (start, end, text) in changes {
            if *start < done {
                continue;
            }
            out.push_str(&self.source[done..*start]);
            out.push_str(text);
            done = *end;
        }
        out.push_str(&self.source[done..to]);
        out
    }
}

/// Replaces every character except line breaks with a space.
pub(super) fn blanks(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}') { c } else { ' ' }).collect()
}

/// Returns only the line breaks.
pub(super) fn breaks(text: &str) -> String {
    text.chars().filter(|c| *c == '\n').collect()
}
