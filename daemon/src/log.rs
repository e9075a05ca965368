//! The daemon's log: one line per event on stderr, `<ISO time> <line>`.

use std::io::Write;

use ostler_engine::{Clock, Log};
use ostler_loader::Hidden;

/// A log that writes to stderr, without credentials. Lines that hold several are kept together.
pub fn stderr(hidden: Hidden) -> Log {
    Log::new(|line| {
        let stamped = format!("{} {line}\n", clock().iso());
        // There is nowhere left to say that stderr is gone.
        let _ = std::io::stderr().lock().write_all(stamped.as_bytes());
    })
    .hiding(move |line| hidden.hide(line).into_owned())
}

/// The system's clock.
pub fn clock() -> Clock {
    Clock::new(jiff::Timestamp::now)
}
