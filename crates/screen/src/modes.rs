//! Where sequences end, and the modes that they set beside what they draw.

use std::fmt::Write as _;

use crate::keyboard::{self, Keyboard};

/// The maximum size of the stored part of a sequence, in bytes. Longer ones set nothing here.
const LONGEST: usize = 4 << 10;
/// The maximum number of modes and of colours.
const MOST: usize = 300;

/// The memory of what sequences set at most, in bytes.
pub const MEMORY: usize = keyboard::MEMORY
    + 3 * LONGEST
    + MOST * (size_of::<(u16, bool)>() + size_of::<(String, String)>() + 2 * LONGEST_COLOUR);
/// The maximum length of a colour's value, in bytes.
const LONGEST_COLOUR: usize = 64;

/// Private modes that have another writer (the model of the screen) or that no terminal should be sent: 2 and 3 switch to
/// another kind of terminal and to another width, and 2026 holds back what is drawn until the end of a frame.
const EXCLUDED: [u16; 11] = [1, 2, 3, 6, 7, 25, 47, 1047, 1048, 1049, 2026];

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Between,
    Escape,
    Intermediate,
    Control,
    Command,
    Text,
}

/// What sequences have set.
#[derive(Debug, Default)]
struct Modes {
    /// Private modes in the order of their last change, because some exclude each other.
    private: Vec<(u16, bool)>,
    keypad: bool,
    /// Whether only a part of the screen scrolls. The model of the screen knows which.
    has_margins: bool,
    /// Whether a character may not go to the next line after the last column, or may move others. Until a reset, because
    /// a cursor that is restored brings such modes back.
    may_not_wrap: bool,
    /// Parameters of the cursor's style.
    style: Option<String>,
    /// Parameters of `modifyOtherKeys`.
    keys: Option<String>,
    keyboard: Keyboard,
    title: Option<String>,
    /// The command of each colour, and its value.
    colours: Vec<(String, String)>,
}

/// Parses output for the ends of sequences and for modes.
#[derive(Debug, Default)]
pub struct Sequences {
    state: State,
    /// The current sequence, after what begins it.
    body: String,
    modes: Modes,
}

impl Sequences {
    /// Takes at least this number of characters, and on to the end of a sequence. Returns how many bytes and characters.
    pub fn take(&mut self, text: &str, least: usize) -> (usize, usize) {
        let mut taken = 0;
        for (at, character) in text.char_indices() {
            if taken >= least && self.is_between() {
                return (at, taken);
            }
            self.read(character);
            taken += 1;
        }
        (text.len(), taken)
    }

    /// Returns whether the output so far ends between two sequences.
    pub fn is_between(&self) -> bool {
        self.state == State::Between
    }

    /// Returns whether lines scroll through the whole screen.
    pub fn scrolls_all(&self) -> bool {
        self.is_between() && !self.modes.has_margins
    }

    /// Returns whether characters fill one line after the other.
    pub fn wraps(&self) -> bool {
        self.scrolls_all() && !self.modes.may_not_wrap
    }

    /// Returns whether a new terminal has the same modes. The title is known otherwise.
    pub fn sets_nothing(&self) -> bool {
        let Modes {
            private,
            keypad,
            has_margins: _,
            may_not_wrap: _,
            style,
            keys,
            keyboard,
            title: _,
            colours,
        } = &self.modes;
        // Modes are off in a new terminal, but for a few that nobody switches off.
        let is_off = private.iter().all(|(_, is_set)| !is_set);
        let is_usual = !keypad && keys.is_none() && keyboard.is_usual();
        self.is_between() && is_off && is_usual && style.is_none() && colours.is_empty()
    }

    fn read(&mut self, character: char) {
        if self.state == State::Between && (' '..'\u{80}').contains(&character) {
            return;
        }
        match character {
            '\u{1b}' => self.begin(State::Escape),
            '\u{9b}' => self.begin(State::Control),
            '\u{9d}' => self.begin(State::Command),
            '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => self.begin(State::Text),
            // These end a sequence; the first two do so without its effect.
            '\u{18}' | '\u{1a}' => self.state = State::Between,
            '\u{80}'..='\u{9f}' => self.begin(State::Between),
            _ => self.within(character),
        }
    }

    /// Ends the current sequence and begins another one.
    fn begin(&mut self, state: State) {
        if self.state == State::Command {
            self.command();
        }
        self.state = state;
        self.body.clear();
    }

    fn within(&mut self, character: char) {
        // Other characters end a sequence as a letter does.
        let kind = if character >= '\u{a0}' { 'A' } else { character };
        match (self.state, kind) {
            (State::Escape, '[') => self.state = State::Control,
            (State::Escape, ']') => self.state = State::Command,
            (State::Escape, 'P' | 'X' | '^' | '_') => self.state = State::Text,
            (State::Escape | State::Intermediate, ' '..='/') => self.state = State::Intermediate,
            (State::Escape, '0'..='~') => {
                self.state = State::Between;
                self.escape(character);
            }
            (State::Intermediate, '0'..='~') => self.state = State::Between,
            (State::Control, '@'..='~') => {
                self.state = State::Between;
                self.control(character);
            }
            (State::Command, '\u{7}') => self.begin(State::Between),
            (State::Control, ' '..='?') | (State::Command, ' '..) if self.body.len() <= LONGEST => {
                self.body.push(character);
            }
            _ => {}
        }
    }

    fn escape(&mut self, last: char) {
        match last {
            '=' => self.modes.keypad = true,
            '>' => self.modes.keypad = false,
            // A reset leaves the title.
            'c' => self.modes = Modes { title: self.modes.title.take(), ..Modes::default() },
            _ => {}
        }
    }

    fn control(&mut self, last: char) {
        if self.body.len() > LONGEST {
            return;
        }
        let modes = &mut self.modes;
        match (self.body.as_str(), last) {
            (body, 'h' | 'l') if body.starts_with('?') => {
                for mode in body[1..].split(';').filter_map(|mode| mode.parse().ok()) {
                    modes.may_not_wrap |= (mode, last) == (7, 'l');
                    if [47, 1047, 1049].contains(&mode) {
                        modes.keyboard.show(last == 'h');
                    }
                    if !EXCLUDED.contains(&mode) {
                        put(&mut modes.private, mode, last == 'h');
                    }
                }
            }
            (body, 'h') => modes.may_not_wrap |= body.split(';').any(|mode| mode == "4"),
            ("!", 'p') => (modes.keypad, modes.has_margins) = (false, false),
            ("", 'r') => modes.has_margins = false,
            (body, 'r') if !body.starts_with('?') => modes.has_margins = true,
            (body, 'q') if body.ends_with(' ') && is_number(body.trim_end()) => {
                modes.style = Some(body.to_owned())
            }
            (body, 'u') => modes.keyboard.control(body),
            (">4", 'm') => modes.keys = None,
            (body, 'm') if body.strip_prefix(">4;").is_some_and(is_number) => {
                modes.keys = Some(body.to_owned())
            }
            _ => {}
        }
    }

    fn command(&mut self) {
        if self.body.len() > LONGEST {
            return;
        }
        let modes = &mut self.modes;
        let (code, rest) = self.body.split_once(';').unwrap_or((&self.body, ""));
        match code {
            "0" | "2" => modes.title = Some(rest.to_owned()),
            "4" => {
                let mut fields = rest.split(';');
                while let (Some(which), Some(value)) = (fields.next(), fields.next()) {
                    if is_number(which) && is_colour(value) {
                        put(&mut modes.colours, format!("4;{which}"), value.to_owned());
                    }
                }
            }
            "10" | "11" | "12" if is_colour(rest) => {
                put(&mut modes.colours, code.to_owned(), rest.to_owned())
            }
            "104" if rest.is_empty() => modes.colours.retain(|(which, _)| !which.starts_with("4;")),
            "104" => modes
                .colours
                .retain(|(which, _)| !rest.split(';').any(|one| which.strip_prefix("4;") == Some(one))),
            "110" | "111" | "112" => modes.colours.retain(|(which, _)| *which != code[1..]),
            _ => {}
        }
    }

    /// Writes the sequences that set the modes.
    pub fn dump(&self, to: &mut String) {
        let modes = &self.modes;
        // Writing to a string does not fail.
        if let Some(title) = &modes.title {
            let _ = write!(to, "\u{1b}]2;{title}\u{7}");
        }
        for (which, value) in &modes.colours {
            let _ = write!(to, "\u{1b}]{which};{value}\u{7}");
        }
        for (mode, is_set) in &modes.private {
            let _ = write!(to, "\u{1b}[?{mode}{}", if *is_set { 'h' } else { 'l' });
        }
        if modes.keypad {
            to.push_str("\u{1b}=");
        }
        if let Some(style) = &modes.style {
            let _ = write!(to, "\u{1b}[{style}q");
        }
        if let Some(keys) = &modes.keys {
            let _ = write!(to, "\u{1b}[{keys}m");
        }
        modes.keyboard.dump_main(to);
    }

    /// Writes the sequences that set modes of the alternate screen, if it is shown.
    pub fn dump_alternate(&self, to: &mut String) {
        self.modes.keyboard.dump_alternate(to);
    }
}

fn is_colour(value: &str) -> bool {
    value != "?" && value.len() <= LONGEST_COLOUR
}

fn is_number(text: &str) -> bool {
    text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Sets a value, as the latest one. The oldest one leaves if there are too many.
fn put<K: PartialEq, V>(values: &mut Vec<(K, V)>, key: K, value: V) {
    values.retain(|(other, _)| *other != key);
    if values.len() >= MOST {
        values.remove(0);
    }
    values.push((key, value));
}
