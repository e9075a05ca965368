//! Saying that something takes long: on a terminal, and nowhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::answer::Common;

/// A line that moves while something is done; gone with it.
pub struct Progress(ProgressBar);

impl Progress {
    /// Says what is done. Nothing is drawn where stderr is no terminal, nor where only names or JSON are asked
    /// for.
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
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
