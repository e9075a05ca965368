//! The keyboard protocol of kitty: how keys are encoded, on each of the two screens.

use std::fmt::Write as _;

/// How many values each screen saves at most. The oldest one leaves if there are more, as terminals do.
const MOST: usize = 32;

/// The memory of both screens at most, in bytes.
pub const MEMORY: usize = 2 * MOST;

/// How keys are encoded on one screen.
#[derive(Debug, Default, PartialEq, Eq)]
struct Encoding {
    flags: u8,
    saved: Vec<u8>,
}

impl Encoding {
    fn is_usual(&self) -> bool {
        self.flags == 0 && self.saved.is_empty()
    }

    fn dump(&self, to: &mut String) {
        let mut values = self.saved.iter().copied().chain([self.flags]);
        // Writing to a string does not fail.
        if let Some(first) = values.next().filter(|first| *first != 0) {
            let _ = write!(to, "\u{1b}[={first};1u");
        }
        for pushed in values {
            let _ = write!(to, "\u{1b}[>{pushed}u");
        }
    }
}

/// How keys are encoded on both screens.
#[derive(Debug, Default)]
pub struct Keyboard {
    main: Encoding,
    alternate: Encoding,
    is_alternate: bool,
}

impl Keyboard {
    /// Takes the parameters of a sequence that ends in `u`.
    pub fn control(&mut self, body: &str) {
        let Some((kind, parameters)) = body.split_at_checked(1) else { return };
        let (first, second) = parameters.split_once(';').unwrap_or((parameters, ""));
        let number = |text: &str, otherwise: u8| match text {
            "" => Some(otherwise),
            text => text.parse::<u8>().ok(),
        };
        let encoding = if self.is_alternate { &mut self.alternate } else { &mut self.main };
        match (kind, number(first, 0), number(second, 1)) {
            ("=", Some(flags), Some(how)) => match how {
                1 => encoding.flags = flags,
                2 => encoding.flags |= flags,
                3 => encoding.flags &= !flags,
                _ => {}
            },
            (">", Some(flags), _) => {
                if encoding.saved.len() >= MOST {
                    encoding.saved.remove(0);
                }
                encoding.saved.push(std::mem::replace(&mut encoding.flags, flags));
            }
            ("<", _, _) => {
                for _ in 0..number(first, 1).unwrap_or(u8::MAX) {
                    let Some(flags) = encoding.saved.pop() else {
                        encoding.flags = 0;
                        break;
                    };
                    encoding.flags = flags;
                }
            }
            _ => {}
        }
    }

    /// Another screen is shown. The alternate one begins as in a new terminal.
    pub fn show(&mut self, is_alternate: bool) {
        if is_alternate != self.is_alternate {
            self.alternate = Encoding::default();
            self.is_alternate = is_alternate;
        }
    }

    /// Returns whether keys are encoded as in a new terminal.
    pub fn is_usual(&self) -> bool {
        self.main.is_usual() && self.alternate.is_usual()
    }

    /// Writes the sequences for the main screen, which is shown.
    pub fn dump_main(&self, to: &mut String) {
        self.main.dump(to);
    }

    /// Writes the sequences for the alternate screen, if it is shown.
    pub fn dump_alternate(&self, to: &mut String) {
        if self.is_alternate {
            self.alternate.dump(to);
        }
    }
}
