use std::fmt;
use std::sync::Arc;

use crate::problems::{Finding, ProblemKind, Problems};

/// Receives what a store has to say to the operator: the lines of its log, and what is wrong now.
#[derive(Clone)]
pub struct Report {
    write: Arc<dyn Fn(String) + Send + Sync>,
    problems: Problems,
}

impl Report {
    /// Passes each line to `write`.
    pub fn new(write: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write), problems: Problems::default() }
    }

    /// Drops each line.
    pub fn quiet() -> Self {
        Self::new(drop)
    }

    /// Lists what is wrong in `problems`.
    #[must_use]
    pub fn keeping(self, problems: Problems) -> Self {
        Self { problems, ..self }
    }

    /// Writes a line to the log.
    pub fn say(&self, line: impl Into<String>) {
        (self.write)(line.into());
    }

    /// Replaces what is wrong with a place, as [`Problems::set`], without a line.
    pub fn set(&self, kind: ProblemKind, place: &str, findings: Vec<Finding>) {
        self.problems.set(kind, place, findings);
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Report")
    }
}
