//! A model of a terminal's screen: what output that is no longer stored has drawn and switched on. It can be written as
//! sequences that do the same, which stand before the stored output.
//!
//! `avt` models both screens, the cursor and the modes of drawing. [`modes`] has what it leaves to others: the modes of
//! input, the title and the colours, and where one sequence ends and the next begins.

#![forbid(unsafe_code)]

mod keyboard;
mod modes;

use avt::parser::Function;
use avt::{Parser, ScreenKind, Terminal};

use modes::Sequences;

/// The largest screen of a model. Of a larger terminal only this part is modelled.
const MOST_COLS: u16 = 512;
const MOST_ROWS: u16 = 160;
/// The memory of a cell and of a row, in bytes.
const CELL: usize = size_of::<avt::Cell>();
const ROW: usize = size_of::<avt::Line>();

/// Resets a terminal.
pub const RESET: &str = "\u{1b}c";
/// Erases the active screen with default attributes.
const ERASE: &str = "\u{1b}[m\u{1b}[2J";

/// A model of a terminal's screen.
pub struct Model {
    terminal: Terminal,
    sequences: Sequences,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("size", &self.terminal.size()).finish_non_exhaustive()
    }
}

impl Model {
    /// Returns the model of a new terminal. A size of 0 counts as 1.
    pub fn new(cols: u16, rows: u16) -> Option<Self> {
        let (cols, rows) = modelled(cols, rows);
        let terminal = Terminal::new(cols, rows).ok()?;
        Some(Self { terminal, sequences: Sequences::default() })
    }

    /// Returns the memory of a model of this size, in bytes.
    pub fn memory(cols: u16, rows: u16) -> usize {
        let (cols, rows) = modelled(cols, rows);
        2 * rows * (cols * CELL + ROW) + modes::MEMORY
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, cols: u16, rows: u16) {
        let (cols, rows) = modelled(cols, rows);
        self.terminal.resize(cols, rows);
    }

    /// Takes output from the beginning of a text: at least this number of characters, and on to the end of the sequence
    /// that they end in. Returns how many bytes and how many characters it took.
    pub fn take(&mut self, text: &str, least: usize) -> (usize, usize) {
        let (scrolls_all, wraps) = (self.sequences.scrolls_all(), self.sequences.wraps());
        let (bytes, characters) = self.sequences.take(text, least);
        let (cols, rows) = self.terminal.size();
        let taken = &text[..bytes];
        let past = || scrolls_all.then(|| scrolled_past(taken, rows)).flatten();
        let wrapped = || wraps.then(|| wrapped_past(taken, cols, rows)).flatten();
        match past().or_else(wrapped) {
            Some((first, last)) => {
                self.terminal.feed(first);
                self.terminal.feed(last);
            }
            None => self.terminal.feed(taken),
        }
        (bytes, characters)
    }

    /// Returns whether the output so far ends between two sequences.
    pub fn is_between(&self) -> bool {
        self.sequences.is_between()
    }

    /// Erases what is drawn. Modes and attributes stay.
    pub fn erase(&mut self) {
        self.run("\u{1b}7");
        self.run(ERASE);
        if self.terminal.active_screen_kind() == ScreenKind::Alternate {
            // The other one, below it. Entering the alternate screen erases it.
            self.run("\u{1b}[?1049l");
            self.run(ERASE);
            self.run(SAVE_AND_ENTER);
        }
        self.run("\u{1b}8\u{1b}[H\u{1b}7");
    }

    /// Has the effect of sequences also where the output ends within one.
    fn run(&mut self, sequences: &str) {
        let mut parser = Parser::new();
        let functions: Vec<Function> =
            sequences.chars().filter_map(|character| parser.feed(character)).collect();
        self.terminal.execute(functions);
    }

    /// Returns whether it is as a new terminal.
    pub fn is_new(&self) -> bool {
        let (cols, rows) = self.terminal.size();
        let new = Terminal::new(cols, rows);
        self.sequences.sets_nothing() && new.is_ok_and(|new| new.dump() == self.terminal.dump())
    }

    /// Returns the sequences that bring a terminal of this size from any state to this one.
    pub fn dump(&self) -> String {
        let mut dump = RESET.to_owned();
        self.sequences.dump(&mut dump);
        // Last, because it ends as the output ends, perhaps within a sequence.
        let is_alternate = self.terminal.active_screen_kind() == ScreenKind::Alternate;
        let mut of_alternate = String::new();
        self.sequences.dump_alternate(&mut of_alternate);
        dump.push_str(&common(&self.terminal.dump(), is_alternate, &of_alternate));
        dump
    }
}

/// Returns lines of plain text without those in their middle that scroll through the screen and leave nothing on it.
fn scrolled_past(text: &str, rows: usize) -> Option<(&str, &str)> {
    let most = rows + 2;
    let bytes = text.as_bytes();
    // A line feed alone continues in the same column, and `c2` begins a control character or other text.
    let is_plain = |at: usize| match bytes[at] {
        b'\n' => at > 0 && bytes[at - 1] == b'\r',
        byte => byte == b'\r' || byte == b'\t' || (byte >= b' ' && byte != 0x7f && byte != 0xc2),
    };
    if !(0..bytes.len()).all(is_plain) {
        return None;
    }
    let first = text.match_indices('\n').nth(most).map(|(at, _)| at + 1)?;
    let last = text.rmatch_indices('\n').nth(most).map(|(at, _)| at + 1)?;
    (first < last).then(|| (&text[..first], &text[last..]))
}

/// Returns a line of plain characters without those in its middle that leave nothing on the screen. Whole rows of them are
/// left out, so that the others are in the same columns.
fn wrapped_past(text: &str, cols: usize, rows: usize) -> Option<(&str, &str)> {
    let screen = cols * (rows + 2);
    let past = text.len().checked_sub(2 * screen)? / cols * cols;
    let is_plain = text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    (is_plain && past > 0).then(|| (&text[..screen], &text[screen + past..]))
}

/// Writes sequences that only some terminals know as those that every terminal knows.
/// `of_alternate` are sequences for the alternate screen.
fn common(dump: &str, is_alternate: bool, of_alternate: &str) -> String {
    let mut common = String::with_capacity(dump.len());
    let mut parts = dump.split(CONTROL);
    common.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let parameters =
            part.len() - part.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let number = part[..parameters].parse().unwrap_or(1);
        let rest = &part[parameters..];
        match rest
            .trim_start_matches(|character: char| ":;".contains(character) || character.is_ascii_digit())
        {
            // Attributes, with colours in one parameter.
            end if end.starts_with('m') => {
                common.push_str(CONTROL);
                common.push_str(&part[..part.len() - end.len()].replace(':', ";"));
                common.push_str(end);
                continue;
            }
            _ => {}
        }
        match rest.chars().next() {
            // Repeats a character.
            Some('b') => {
                let repeated = common.chars().next_back().unwrap_or(' ');
                common.extend(std::iter::repeat_n(repeated, number));
                common.push_str(&rest[1..]);
            }
            // Sets a tab stop, or removes all.
            Some('W') => {
                common.push_str(if number == 5 { "\u{1b}[3g" } else { "\u{1b}H" });
                common.push_str(&rest[1..]);
            }
            _ => {
                common.push_str(CONTROL);
                common.push_str(part);
            }
        }
    }
    if let Some(at) = common.rfind(ENTER).filter(|_| is_alternate) {
        common.insert_str(at + ENTER.len(), of_alternate);
        if saves_the_same(&common[..at]) {
            common.replace_range(at..at + ENTER.len(), SAVE_AND_ENTER);
        }
    }
    common
}

/// Begins most sequences.
const CONTROL: &str = "\u{1b}[";
/// Shows the alternate screen.
const ENTER: &str = "\u{1b}[?1047h";
/// Saves the cursor, then shows the alternate screen: all that some terminals know.
const SAVE_AND_ENTER: &str = "\u{1b}[?1049h";

/// Returns whether the cursor that these sequences saved is the one that they end with.
fn saves_the_same(sequences: &str) -> bool {
    const DEFAULT: &str = "\u{1b}[0m";
    let Some(rest) = sequences.strip_suffix(DEFAULT) else { return false };
    let Some(at) = rest.rfind(CONTROL).filter(|at| rest[*at..].ends_with('H')) else { return false };
    let (before, place) = rest.split_at(at);
    match before.strip_suffix("\u{1b}7") {
        Some(saved) => saved.ends_with(&format!("{place}{DEFAULT}")),
        // None but the one of a new terminal.
        None => place == "\u{1b}[1;1H" && !before.contains("\u{1b}7"),
    }
}

fn modelled(cols: u16, rows: u16) -> (usize, usize) {
    (usize::from(cols.clamp(1, MOST_COLS)), usize::from(rows.clamp(1, MOST_ROWS)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What another emulator shows.
    fn shown(text: &str) -> vt100::Parser {
        let mut parser = vt100::Parser::new(6.try_into().unwrap(), 12.try_into().unwrap(), 0);
        parser.process(text.as_bytes());
        parser
    }

    /// Output in two parts: the sequences for the first one, then the second one.
    fn cut(text: &str, least: usize) -> (Model, String) {
        let mut model = Model::new(12, 6).unwrap();
        let (bytes, characters) = model.take(text, least);
        assert_eq!(characters, text[..bytes].chars().count());
        let rest = format!("{}{}", model.dump(), &text[bytes..]);
        (model, rest)
    }

    /// Both emulators show the same.
    fn same(whole: &str, rest: &str) {
        let (one, other) = (shown(whole), shown(rest));
        let (one, other) = (one.screen(), other.screen());
        for (row, col) in (0..6).flat_map(|row| (0..12).map(move |col| (row, col))) {
            let look = |screen: &vt100::Screen| {
                let cell = screen.cell(row, col).unwrap().clone();
                let looks = (cell.contents().trim().to_owned(), cell.bgcolor(), cell.inverse());
                // Nothing shows the colour of a space.
                (!looks.0.is_empty())
                    .then(|| (cell.fgcolor(), cell.bold(), cell.underline()))
                    .map(|ink| (looks, ink))
            };
            assert_eq!(look(one), look(other), "{row}, {col}: {rest:?}");
        }
        assert_eq!(one.cursor_position(), other.cursor_position(), "{rest:?}");
        assert_eq!(one.hide_cursor(), other.hide_cursor(), "{rest:?}");
        assert_eq!(one.attributes_formatted(), other.attributes_formatted(), "{rest:?}");
        assert_eq!(one.input_mode_formatted(), other.input_mode_formatted(), "{rest:?}");
        assert_eq!(one.alternate_screen(), other.alternate_screen(), "{rest:?}");
        let mut all = Model::new(12, 6).unwrap();
        all.take(whole, usize::MAX);
        let mut again = Model::new(12, 6).unwrap();
        again.take(rest, usize::MAX);
        assert_eq!(all.dump(), again.dump(), "{rest:?}");
    }

    const PROGRAM: &str = "$ vi\r\n\u{1b}[?1049h\u{1b}[H\u{1b}[?2004h\u{1b}[?1000h\u{1b}[?1006h\u{1b}[?25l\u{1b}[2J\u{1b}=\
        \u{1b}[38;5;135mrow 1\u{1b}[2;1H日本\u{1b}[1;41mbold\u{1b}[3;5r\u{1b}[5;1Ha\r\nb\r\nc\
        \u{1b}]2;title\u{7}\u{1b}]11;#123456\u{1b}\\\u{1b}P1$r0m\u{1b}\\\u{1b}[4 q";

    #[test]
    fn output_may_be_cut_after_every_sequence() {
        for least in 0..=PROGRAM.chars().count() {
            let (model, rest) = cut(PROGRAM, least);
            assert!(model.is_between());
            same(PROGRAM, &rest);
            // What the program ends with shows the main screen again.
            let end = "\u{1b}[r\u{1b}[?25h\u{1b}[?1000l\u{1b}[?2004l\u{1b}[?1049l$ ";
            same(&format!("{PROGRAM}{end}"), &format!("{rest}{end}"));
        }
    }

    #[test]
    fn a_cut_is_never_within_a_sequence() {
        let rows = [
            ("a\u{1b}[31mb", 2, "a\u{1b}[31m"),
            ("a\u{1b}[31mb", 6, "a\u{1b}[31m"),
            ("日本\u{1b}]0;x\u{1b}\\y", 3, "日本\u{1b}]0;x\u{1b}\\"),
            ("\u{1b}]0;x\u{7}y", 1, "\u{1b}]0;x\u{7}"),
            ("\u{1b}(0q", 1, "\u{1b}(0"),
            ("\u{1b}Pq#1\u{7}~\u{1b}\\z", 2, "\u{1b}Pq#1\u{7}~\u{1b}\\"),
            ("\u{9b}31mz", 1, "\u{9b}31m"),
            ("\u{1b}[3\u{18}z", 1, "\u{1b}[3\u{18}"),
            ("\u{1b}]0;never", 1, "\u{1b}]0;never"),
        ];
        for (text, least, taken) in rows {
            let mut model = Model::new(12, 6).unwrap();
            let (bytes, _) = model.take(text, least);
            assert_eq!(&text[..bytes], taken);
        }
    }

    #[test]
    fn a_sequence_that_is_not_over_continues_after_the_dump() {
        let mut model = Model::new(12, 6).unwrap();
        model.take("a", 1);
        model.take("\u{1b}[3", 1);
        assert!(!model.is_between());
        let mut again = Model::new(12, 6).unwrap();
        again.take(&format!("{}1mred", model.dump()), usize::MAX);
        model.take("1mred", usize::MAX);
        assert_eq!(again.dump(), model.dump());
    }

    #[test]
    fn modes_outlive_what_is_drawn() {
        let mut model = Model::new(12, 6).unwrap();
        model.take("$ \u{1b}[?2004hls\r\n", usize::MAX);
        model.erase();
        assert!(!model.is_new());
        model.take("\u{1b}[?2004l", usize::MAX);
        assert!(model.is_new());
        model.take(PROGRAM, usize::MAX);
        model.erase();
        let dump = model.dump();
        let parser = shown(&dump);
        let screen = parser.screen();
        assert!(screen.alternate_screen() && screen.bracketed_paste() && screen.hide_cursor(), "{dump:?}");
        assert!(screen.bold() && screen.bgcolor() == vt100::Color::Idx(1));
        assert_eq!(screen.contents().trim(), "");
        assert_eq!(shown(&format!("{dump}\u{1b}[?1049l")).screen().contents().trim(), "");
        assert!(dump.contains("\u{1b}]2;title\u{7}"));
    }

    #[test]
    fn each_screen_has_its_encoding_of_keys() {
        // Pushed and changed on both screens, and popped below the beginning.
        let rows = [
            ("\u{1b}[>1u\u{1b}[=4;2u", "\u{1b}[>5u"),
            ("\u{1b}[=9u\u{1b}[>3u\u{1b}[=1;3u", "\u{1b}[=9;1u\u{1b}[>2u"),
            ("\u{1b}[>1u\u{1b}[>2u\u{1b}[<u", "\u{1b}[>1u"),
            ("\u{1b}[>1u\u{1b}[<9u", ""),
            ("\u{1b}[>1u\u{1b}[?1049h\u{1b}[>5u", "\u{1b}[>1u|\u{1b}[>5u"),
            ("\u{1b}[?1049h\u{1b}[>5u\u{1b}[?1049l", ""),
            ("\u{1b}[>1u\u{1b}c", ""),
        ];
        for (text, told) in rows {
            let (model, rest) = cut(&format!("{text}x"), text.chars().count());
            let dump = model.dump();
            let (main, alternate) = told.split_once('|').unwrap_or((told, ""));
            let (before, after) = dump.split_once(SAVE_AND_ENTER).unwrap_or((&dump, ""));
            assert!(before.contains(main) && after.starts_with(alternate), "{text:?}: {dump:?}");
            assert_eq!(dump.matches('u').count(), told.matches('u').count(), "{text:?}: {dump:?}");
            same(&format!("{text}x"), &rest);
        }
        let mut model = Model::new(12, 6).unwrap();
        model.take("\u{1b}[>1u", usize::MAX);
        assert!(!model.is_new());
        model.take("\u{1b}[<u", usize::MAX);
        assert!(model.is_new());
    }

    #[test]
    fn a_cut_within_a_frame_shows_what_is_drawn() {
        let mut model = Model::new(12, 6).unwrap();
        model.take("\u{1b}[?2026;2004htop", usize::MAX);
        let dump = model.dump();
        assert!(dump.contains("top") && dump.contains("?2004h") && !dump.contains("2026"), "{dump:?}");
    }

    #[test]
    fn other_terminals_know_the_sequences() {
        let mut model = Model::new(12, 6).unwrap();
        model.take(
            "$ vi\r\n\u{1b}[3g\u{1b}[5G\u{1b}H\r\u{1b}[?1049h\u{1b}[2J\u{1b}[1;1Hxxxxxxxxxx",
            usize::MAX,
        );
        let dump = model.dump();
        assert!(dump.contains("\u{1b}[?1049h") && dump.contains("xxxxxxxxxx"), "{dump:?}");
        assert!(dump.contains("\u{1b}[3g") && dump.contains("\u{1b}[5G\u{1b}H"), "{dump:?}");
        // Another cursor was saved than that which the program would save.
        model.take("\u{1b}[?1049l\u{1b}[3;3H\u{1b}7\u{1b}[H\u{1b}[?1047h", usize::MAX);
        assert!(model.dump().contains("\u{1b}[?1047h"), "{:?}", model.dump());
    }

    #[test]
    fn characters_of_another_set_are_drawn() {
        let mut model = Model::new(12, 6).unwrap();
        model.take("\u{1b}(0lqk\u{1b}[38;2;1;2;3mx", usize::MAX);
        let dump = model.dump();
        assert!(dump.contains("┌─┐\u{1b}[38;2;1;2;3m│") && dump.ends_with("\u{1b}(0"), "{dump:?}");
    }

    #[test]
    fn a_line_below_what_scrolls_stays() {
        let short = "b\r\n".repeat(20);
        let lines = format!("\u{1b}[1;3r\u{1b}[6;1H{short}long line\r\n{short}");
        let mut model = Model::new(12, 6).unwrap();
        let (begin, _) = model.take(&lines, 12);
        model.take(&lines[begin..], usize::MAX);
        assert_eq!(shown(&model.dump()).screen().contents().trim(), "bong line");
        assert!(model.sequences.is_between() && !model.sequences.scrolls_all());
    }

    #[test]
    fn a_line_that_never_ends_is_drawn_as_if_it_were_read() {
        let line: String = ('a'..='z').cycle().take(3 * 12 * 8 + 5).collect();
        let starts = [
            "",
            "$ ",
            "\u{1b}[41m",
            "\u{1b}[?1049h",
            "\u{1b}[2;4r",
            "\u{1b}[?7l",
            "\u{1b}[?7l\u{1b}7\u{1b}[?7h\u{1b}8",
            "\u{1b}[4h",
            "\u{1b}(0",
            "日本\r",
        ];
        for start in starts {
            let mut at_once = Model::new(12, 6).unwrap();
            at_once.take(start, usize::MAX);
            at_once.take(&line, usize::MAX);
            let mut in_parts = Model::new(12, 6).unwrap();
            in_parts.take(start, usize::MAX);
            for character in line.chars() {
                in_parts.take(character.encode_utf8(&mut [0; 4]), 1);
            }
            assert_eq!(at_once.dump(), in_parts.dump(), "{start:?}");
        }
        assert!(wrapped_past(&line, 12, 6).is_some());
    }

    #[test]
    fn a_large_terminal_has_a_small_model() {
        let mut model = Model::new(4096, 4096).unwrap();
        model.take("\u{1b}[4000;4000Hx", usize::MAX);
        model.resize(0, 0);
        model.resize(4096, 4096);
        assert!(Model::memory(4096, 4096) < 3 << 20);
        assert!(model.dump().len() < 1 << 10);
    }

    proptest! {
        #[test]
        fn the_rest_of_any_output_shows_the_same(
            parts in prop::collection::vec(
                prop_oneof![
                    "[ a-zé日\r\n\t]{1,8}",
                    "\u{1b}\\[[0-9;]{0,4}[ABCDHJKLMPXdmrG@]",
                    "\u{1b}\\[\\?(25|1|6|7|47|1000|1002|1003|1006|1047|1049|2004)[hl]",
                    "\u{1b}[78MDE=>]",
                    "\u{1b}\\[[>=<][0-9]?(;[123])?u",
                    "\u{1b}\\][0-2];[a-z]{0,4}(\u{7}|\u{1b}\\\\)",
                ],
                0..40,
            ),
            least in 0_usize..200,
        ) {
            let whole = parts.concat();
            let (_, rest) = cut(&whole, least);
            let mut all = Model::new(12, 6).unwrap();
            all.take(&whole, usize::MAX);
            let mut again = Model::new(12, 6).unwrap();
            again.take(&rest, usize::MAX);
            prop_assert_eq!(all.dump(), again.dump());
        }

        #[test]
        fn lines_that_scroll_past_leave_nothing(
            before in "(\u{1b}\\[4[0-7]m|\u{1b}\\[\\?7[hl]|\u{1b}\\[4[hl]|\u{1b}\\[[1-6];[1-9]H|\u{1b}\\[[1-3];[3-6]r|[a-z]{1,14}){0,6}",
            lines in prop::collection::vec("[a-zé日\t]{0,30}(\r\n|\r\n|\r\n|\n)", 0..40),
            after in "[a-z]{0,14}",
        ) {
            let lines = lines.concat() + &after;
            let mut model = Model::new(12, 6).unwrap();
            model.take(&before, usize::MAX);
            model.take(&lines, usize::MAX);
            let mut one_by_one = Model::new(12, 6).unwrap();
            for character in (before + &lines).chars() {
                one_by_one.take(&character.to_string(), 1);
            }
            prop_assert_eq!(model.dump(), one_by_one.dump());
        }

        #[test]
        fn any_text_is_taken(text in any::<String>(), least in 0_usize..50) {
            let (_, rest) = cut(&text, least);
            prop_assert!(rest.starts_with(RESET));
        }
    }
}
