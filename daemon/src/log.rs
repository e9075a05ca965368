//! The daemon's log: one line per event on stderr, `<ISO time> <line>`.

use std::io::Write;

use ostler_engine::{Clock, Log};
use ostler_loader::Hidden;

/// A log that writes to stderr, without credentials. Lines that hold several are kept together.
pub fn stderr(hidden: Hidden) -> Log {
    Log::new(|line| {
        let stamped = format!("{} {}\n", clock().iso(), tame(line));
        // There is nowhere left to say that stderr is gone.
        let _ = std::io::stderr().lock().write_all(stamped.as_bytes());
    })
    .hiding(move |line| hidden.hide(line).into_owned())
}

/// A line as it may be shown: what clients and plugins put into one neither looks like a line of its own nor
/// moves a terminal's cursor.
fn tame(line: &str) -> String {
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

/// A line that stays one, whatever is in it.
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
            control if control.is_control() => tamed.extend(control.escape_default()),
            plain => tamed.push(plain),
        }
    }
}

/// The system's clock.
pub fn clock() -> Clock {
    Clock::new(jiff::Timestamp::now)
}

#[cfg(test)]
mod tests {
    use super::{one_line, tame};

    #[test]
    fn an_announced_line_is_one_and_moves_no_cursor() {
        assert_eq!(one_line("a \r\n  b\n\n\tc"), "a   b \tc");
        assert_eq!(one_line("b\u{1b}[32m\u{9b}2J\u{7f}Ü"), "b\\u{1b}[32m\\u{9b}2J\\u{7f}Ü");
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
