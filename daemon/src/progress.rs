//! Progress of long operations, only on terminals.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::answer::Common;

/// An animated line during an operation, removed at its end.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows an operation. Draws nothing if stderr is not a terminal or the output is names or JSON.
    pub fn begin(common: &Common, what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(match common.json || common.quiet {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        });
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Shows the next step of the operation.
    pub fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Prints a line to stdout, above the animated line.
    pub fn print(&self, line: &str) {
        // The reader may have closed its end, which is not an error.
        self.0.suspend(|| {
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
