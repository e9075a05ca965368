//! Marks of shell integration in a pseudoterminal's output: start and end of commands, working directory, title. They
//! are parsed in the stream and removed from the displayed output.

use ostler_protocol::uri::is_scheme;
use percent_encoding::percent_decode_str;

/// The maximum length of a mark; a longer one is text.
const LONGEST: usize = 64 << 10;
const OPEN: &str = "\u{1b}]";

/// A part of a terminal's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Displayed text.
    Text(String),
    /// The shell shows a prompt, so it has integration.
    Prompt,
    /// The typed command begins.
    Typing,
    /// The command line from the shell.
    Line(String),
    /// The command runs, with its line if the mark contains it.
    Executed(Option<String>),
    /// The command has ended.
    Finished(Option<i64>),
    /// The working directory of the shell, a path.
    Cwd(String),
    /// The title of the terminal. The sequence stays in the text, for clients that render it.
    Title(String),
    /// Why a shell with integration does not report its commands.
    Off(String),
}

/// Parses output in parts; a mark can continue in the next write.
#[derive(Debug, Default)]
pub(super) struct Marks {
    held: String,
}

impl Marks {
    /// Parses more output.
    pub fn read(&mut self, data: &str) -> Vec<Piece> {
        let mut rest = std::mem::take(&mut self.held);
        rest.push_str(data);
        let mut pieces = Vec::new();
        let mut from = 0;
        while let Some(at) = rest[from..].find(OPEN).map(|at| from + at) {
            let body = at + OPEN.len();
            match end_of(&rest[body..]) {
                End::At { length, after } => {
                    let read = read_mark(&rest[body..body + length]);
                    let shown = if read.as_ref().is_none_or(|read| matches!(read, Some(Piece::Title(_)))) {
                        body + after
                    } else {
                        at
                    };
                    push_text(&mut pieces, &rest[from..shown]);
                    pieces.extend(read.flatten());
                    from = body + after;
                }
                End::Broken(length) => {
                    push_text(&mut pieces, &rest[from..body + length]);
                    from = body + length;
                }
                End::Open if rest.len() - at > LONGEST => {
                    push_text(&mut pieces, &rest[from..]);
                    from = rest.len();
                }
                End::Open => {
                    push_text(&mut pieces, &rest[from..at]);
                    self.held = rest[at..].to_owned();
                    return pieces;
                }
            }
        }
        // An escape at the end can be the beginning of a mark.
        let shown = if rest[from..].ends_with('\u{1b}') { rest.len() - 1 } else { rest.len() };
        push_text(&mut pieces, &rest[from..shown]);
        self.held = rest[shown..].to_owned();
        pieces
    }

    /// Returns an incomplete mark as text.
    pub fn rest(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.held)).filter(|held| !held.is_empty())
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if text.is_empty() {
        return;
    }
    match pieces.last_mut() {
        Some(Piece::Text(before)) => before.push_str(text),
        _ => pieces.push(Piece::Text(text.to_owned())),
    }
}

enum End {
    /// Ends after `length` bytes; what follows begins at `after`.
    At { length: usize, after: usize },
    /// This is not a mark.
    Broken(usize),
    /// It is incomplete.
    Open,
}

fn end_of(body: &str) -> End {
    match body.find(['\u{7}', '\u{1b}']) {
        None => End::Open,
        Some(at) if body[at..].starts_with('\u{7}') => End::At { length: at, after: at + 1 },
        Some(at) => match body[at + 1..].chars().next() {
            None => End::Open,
            Some('\\') => End::At { length: at, after: at + 2 },
            Some(_) => End::Broken(at),
        },
    }
}

/// Parses a sequence: `None` if it is not a mark and stays in the text, `Some(None)` if it is a mark without an effect.
fn read_mark(body: &str) -> Option<Option<Piece>> {
    let (code, rest) = body.split_once(';').unwrap_or((body, ""));
    let (word, said) = rest.split_once(';').unwrap_or((rest, ""));
    Some(match (code, word) {
        ("0" | "2", _) => Some(Piece::Title(rest.to_owned())),
        ("7", _) => path_of(rest).map(Piece::Cwd),
        ("133" | "633", "A") => Some(Piece::Prompt),
        ("133" | "633", "B") => Some(Piece::Typing),
        ("133" | "633", "C") => Some(Piece::Executed(line_in(said))),
        ("133" | "633", "D") => {
            Some(Piece::Finished(said.split(';').next().and_then(|code| code.parse().ok())))
        }
        ("633", "E") => Some(Piece::Line(unescaped(said.split(';').next().unwrap_or_default()))),
        ("633", "P") => match said.split_once('=') {
            Some(("Cwd", cwd)) => Some(Piece::Cwd(unescaped(cwd))),
            Some(("IntegrationOff", why)) => Some(Piece::Off(unescaped(why))),
            _ => None,
        },
        ("133" | "633", _) => None,
        _ => return None,
    })
}

/// Returns the path in `file://<host>/<path>`.
fn path_of(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once("://")?;
    if !is_scheme(scheme) {
        return None;
    }
    let path = decode(&rest[rest.find('/')?..]);
    (!path.contains('\0')).then_some(path)
}

/// Returns the line in a mark: `cmdline_url=<percent encoded>`.
fn line_in(said: &str) -> Option<String> {
    said.split(';').find_map(|field| field.strip_prefix("cmdline_url=")).map(decode)
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Unescapes `\\` and `\x3b` of a mark.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = (byte == b'\\' && after.first() == Some(&b'x')).then(|| after.get(1..3)).flatten();
        match (hex.and_then(hex_byte), byte, after.first()) {
            (Some(decoded), ..) => {
                bytes.push(decoded);
                rest = &after[3..];
            }
            (None, b'\\', Some(b'\\')) => {
                bytes.push(b'\\');
                rest = &after[1..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits =
        std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

/// Returns the line that was typed after a prompt, if nothing but its characters was shown: whether a line editor has
/// replaced some of them can be seen, but not by what.
pub(super) fn typed_line(shown: &str) -> Option<String> {
    const PASTE: [&str; 2] = ["\u{1b}[?2004h", "\u{1b}[?2004l"];
    let [begins, ends] = PASTE;
    let line = shown.strip_prefix(begins).unwrap_or(shown).trim_end_matches(['\r', '\n']);
    let line = line.strip_suffix(ends).unwrap_or(line).trim_end_matches(['\r', '\n']);
    (!line.chars().any(char::is_control)).then(|| line.trim().to_owned())
}

/// Returns text without escape sequences and control characters.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' if characters.peek() == Some(&'[') => {
                characters.next();
                for sequence in characters.by_ref() {
                    if ('\u{40}'..='\u{7e}').contains(&sequence) {
                        break;
                    }
                }
            }
            '\u{1b}' => drop(characters.next()),
            '\u{8}' => drop(shown.pop()),
            character if character.is_control() => {}
            character => shown.push(character),
        }
    }
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    #[test]
    fn a_command_is_seen_from_its_prompt_to_its_end() {
        let said = "\u{1b}]7;file://box/srv/my%20work\u{7}\u{1b}]133;A\u{7}$ \u{1b}]133;B\u{1b}\\ls\r\n\
                    \u{1b}]133;C\u{7}a.txt\r\n\u{1b}]133;D;2\u{7}";
        let expected = [
            Piece::Cwd("/srv/my work".to_owned()),
            Piece::Prompt,
            text("$ "),
            Piece::Typing,
            text("ls\r\n"),
            Piece::Executed(None),
            text("a.txt\r\n"),
            Piece::Finished(Some(2)),
        ];
        assert_eq!(Marks::default().read(said), expected);
    }

    #[test]
    fn the_line_may_be_in_a_mark_and_a_title_stays_in_the_text() {
        let said = "\u{1b}]633;E;echo \\x3b \\\\;nonce\u{7}\u{1b}]133;C;cmdline_url=echo%20hi\u{7}\u{1b}]0;top\u{7}\
                    \u{1b}]633;P;Cwd=/srv\u{7}\u{1b}]8;;http://a\u{7}";
        let expected = [
            Piece::Line("echo ; \\".to_owned()),
            Piece::Executed(Some("echo hi".to_owned())),
            text("\u{1b}]0;top\u{7}"),
            Piece::Title("top".to_owned()),
            Piece::Cwd("/srv".to_owned()),
            text("\u{1b}]8;;http://a\u{7}"),
        ];
        assert_eq!(Marks::default().read(said), expected);
    }

    #[test]
    fn a_typed_line_is_known_unless_an_editor_changed_it() {
        let rows = [
            ("ls -l\r\n", Some("ls -l")),
            ("\u{1b}[?2004hls\r\n\u{1b}[?2004l\r", Some("ls")),
            ("é 日本\r\n", Some("é 日本")),
            ("", Some("")),
            // Ctrl-U, a corrected character, colours, a second line, a tab.
            ("garbage\u{8}\u{8}\u{8}\u{1b}[Kecho hi\r\n", None),
            ("lx\u{8}s\r\n", None),
            ("\u{1b}[1mls\u{1b}[0m\r\n", None),
            ("echo \"a\r\n> b\"\r\n", None),
            ("a\tb\r\n", None),
        ];
        for (shown, line) in rows {
            assert_eq!(typed_line(shown).as_deref(), line, "{shown:?}");
        }
    }

    #[test]
    fn a_shell_can_say_why_it_reports_nothing() {
        let said = "\u{1b}]633;P;IntegrationOff=PS0 is read-only\u{7}\u{1b}]633;P;Other=1\u{7}";
        assert_eq!(Marks::default().read(said), [Piece::Off("PS0 is read-only".to_owned())]);
    }

    proptest! {
        #[test]
        fn it_is_the_same_however_it_is_cut(parts in prop::collection::vec("[a\u{1b}\u{7};\\]\\\\0-9ABCDEPé/:%]{0,12}", 0..12)) {
            let whole = parts.concat();
            let joined = |chunks: &[&str]| {
                let mut marks = Marks::default();
                let mut pieces = Vec::new();
                for piece in chunks.iter().flat_map(|chunk| marks.read(chunk)) {
                    match piece {
                        Piece::Text(text) => push_text(&mut pieces, &text),
                        other => pieces.push(other),
                    }
                }
                if let Some(rest) = marks.rest() {
                    push_text(&mut pieces, &rest);
                }
                pieces
            };
            let cut: Vec<&str> = parts.iter().map(String::as_str).collect();
            prop_assert_eq!(joined(&cut), joined(&[&whole]));
        }

        #[test]
        fn text_without_marks_is_left_as_it_is(said in "[^\u{1b}]{0,200}") {
            let mut marks = Marks::default();
            let read: String = marks.read(&said).into_iter().map(|piece| match piece {
                Piece::Text(text) => text,
                other => panic!("{other:?}"),
            }).collect();
            prop_assert_eq!(read, said);
        }
    }
}
