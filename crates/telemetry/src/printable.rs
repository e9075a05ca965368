//! Text of clients, plugins and other programs as it may be printed: nothing in it looks like another line, moves a cursor or
//! hides what it is.

/// Escapes a line, so that text of clients and plugins in it cannot look like another line or move a terminal's cursor.
pub(crate) fn tame(line: &str) -> String {
    let mut tamed = String::with_capacity(line.len());
    for (at, part) in line.split('\n').enumerate() {
        match at {
            0 => {}
            _ if part.starts_with("    ") => tamed.push('\n'),
            _ => tamed.push_str("\n    "),
        }
        escape_into(&mut tamed, part.trim_end_matches('\r'));
    }
    tamed
}

/// Returns the lines of a text as they are in a log: escaped, and indented after the first one.
pub fn tamed_lines(text: &str) -> Vec<String> {
    tame(text).split('\n').map(str::to_owned).collect()
}

/// Escapes a text of several lines.
pub fn printable(text: &str) -> String {
    let mut tamed = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            tamed.push('\n');
        }
        escape_into(&mut tamed, line.trim_end_matches('\r'));
    }
    tamed
}

/// Escapes a text so that it stays one line.
pub fn one_line(line: &str) -> String {
    let mut tamed = String::with_capacity(line.len());
    for part in line.split(['\n', '\r']).map(str::trim_end).filter(|part| !part.is_empty()) {
        if !tamed.is_empty() {
            tamed.push(' ');
        }
        escape_into(&mut tamed, part);
    }
    tamed
}

fn escape_into(tamed: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\t' => tamed.push('\t'),
            hidden if is_hidden(hidden) => tamed.extend(hidden.escape_default()),
            plain => tamed.push(plain),
        }
    }
}

/// Whether a character is not displayed, but changes how others are: a control character, a separator of lines, or a change
/// of the direction of text, which makes it look different from what it is.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_line_is_one_and_moves_no_cursor() {
        assert_eq!(one_line("a \r\n  b\n\n\tc"), "a   b \tc");
        assert_eq!(one_line("b\u{1b}[32m\u{9b}2J\u{7f}Ü"), "b\\u{1b}[32m\\u{9b}2J\\u{7f}Ü");
        assert_eq!(one_line("rm \u{202e}fr-\u{2028}שלום"), "rm \\u{202e}fr-\\u{2028}שלום");
    }

    #[test]
    fn nothing_in_a_line_passes_for_another() {
        assert_eq!(tame("plugin a: Ümläut\tkept"), "plugin a: Ümläut\tkept");
        assert_eq!(tame("boom\n    at a.js:1:2\r\nb"), "boom\n    at a.js:1:2\n    b");
        assert_eq!(
            tame("client x\n2026-01-01T00:00:00.000Z forged\u{1b}[2J\u{9b}1m\rover"),
            "client x\n    2026-01-01T00:00:00.000Z forged\\u{1b}[2J\\u{9b}1m\\rover"
        );
    }
}
