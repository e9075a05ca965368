//! The host's log: lines for users, passed to a writer.

use std::fmt;
use std::sync::Arc;

use ostler_contract::problems::{Finding, ProblemKind, Problems};
use tracing::Level;

/// The writer of lines.
#[derive(Clone)]
pub struct Log {
    write: Arc<dyn Fn(Level, &str) + Send + Sync>,
    hide: Option<Arc<dyn Fn(&str) -> String + Send + Sync>>,
    uncaught: Option<Arc<dyn Fn(&str) + Send + Sync>>,
    problems: Problems,
}

impl Log {
    /// Creates a log that passes each line to `write`.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::with_levels(move |_, line| write(line))
    }

    /// Creates a log that passes each line with its level to `write`.
    pub fn with_levels(write: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write), hide: None, uncaught: None, problems: Problems::default() }
    }

    /// Removes secrets from each line before it is written.
    #[must_use]
    pub fn hiding(self, hide: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { hide: Some(Arc::new(hide)), ..self }
    }

    /// Passes the lines about uncaught errors of plugins to `write` instead.
    #[must_use]
    pub fn with_uncaught(self, write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { uncaught: Some(Arc::new(write)), ..self }
    }

    /// Returns a log with another writer, which receives this log's redacted lines.
    #[must_use]
    pub fn through(&self, write: impl Fn(&Self, Level, &str) + Send + Sync + 'static) -> Self {
        let written = Self { hide: None, ..self.clone() };
        Self { write: Arc::new(move |level, line| write(&written, level, line)), ..self.clone() }
    }

    /// Writes one line about something that failed, or that a user should look at.
    pub fn warn(&self, line: impl fmt::Display) {
        self.write(Level::WARN, line);
    }

    /// Writes one line about something that works as intended.
    pub fn info(&self, line: impl fmt::Display) {
        self.write(Level::INFO, line);
    }

    /// Writes one line with this level.
    pub fn write(&self, level: Level, line: impl fmt::Display) {
        (self.write)(level, &self.without_secrets(line.to_string()));
    }

    /// Replaces what is wrong with a place, nothing if it was repaired, and writes a line for each finding that is new.
    pub fn set_problems(&self, kind: ProblemKind, place: &str, findings: Vec<Finding>) {
        for finding in self.problems.set(kind, place, findings) {
            self.warn(finding.found);
        }
    }

    /// Returns the list of what is wrong now, for who adds to it without a line.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Writes one line about an uncaught error of a plugin.
    pub fn uncaught(&self, line: impl fmt::Display) {
        match &self.uncaught {
            Some(write) => write(&self.without_secrets(line.to_string())),
            None => self.warn(line),
        }
    }

    /// Returns a text without secrets.
    pub fn without_secrets(&self, text: String) -> String {
        match &self.hide {
            Some(hide) => hide(&text),
            None => text,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::with_levels(|level, line| match level {
            Level::WARN => tracing::warn!("{line}"),
            _ => tracing::info!("{line}"),
        })
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Log")
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn what_is_hidden_is_hidden_from_whoever_hears_and_whoever_writes() {
        let (heard, written) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (hears, writes) = (heard.clone(), written.clone());
        let log = Log::new(move |line| writes.lock().push(line.to_owned()))
            .hiding(|line| line.replace("secret", "<set>"));
        let log = log.through(move |log, level, line| {
            hears.lock().push(line.to_owned());
            log.write(level, line);
        });
        log.warn("a secret");
        assert_eq!(
            (heard.lock().clone(), written.lock().clone()),
            (vec!["a <set>".to_owned()], vec!["a <set>".to_owned()])
        );
    }
}
