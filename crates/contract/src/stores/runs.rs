//! The search of runs: their words, and the times of a query.

use jiff::Timestamp;
use ostler_protocol::wire::state::{AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState};
use ostler_protocol::{JsonObject, RpcError, Value};

use crate::thrown::Thrown;

/// How much of a run is indexed, in bytes of words.
const MOST: usize = 4096;
/// How many words of a search are used.
const MOST_WORDS: usize = 8;
/// How many levels of an event are indexed.
const DEPTH: u32 = 8;

/// Returns the words of a run, separated by spaces. `title` is its automation's title. No single text of the run uses
/// more than half of the space of the index (2 kB), so that a long one leaves room for others.
pub fn words(run: &AutomationRunState, title: Option<&str>) -> String {
    let mut words = Words::default();
    if let AutomationRunLifecycle::Failed(failed) = &run.lifecycle {
        words.add(&failed.error.message);
    }
    words.add(title.unwrap_or_default());
    words.add(&run.automation);
    words.add(&run.resource);
    run.sessions.iter().take(4).for_each(|session| words.add(session));
    words.add_fields(run.meta.as_ref(), DEPTH);
    if let AutomationRunOrigin::Trigger(origin) = &run.origin {
        words.add(&origin.trigger_id);
        words.add_fields(origin.event.as_ref(), DEPTH);
    }
    words.text
}

#[derive(Default)]
struct Words {
    text: String,
}

impl Words {
    fn add(&mut self, text: &str) {
        // A long text leaves room for others.
        let end = self.text.len().saturating_add(MOST / 2).min(MOST);
        for word in split(text) {
            if self.text.len() + word.len() >= end {
                return;
            }
            self.text.push_str(word);
            self.text.push(' ');
        }
    }

    fn add_fields(&mut self, fields: Option<&JsonObject>, depth: u32) {
        fields.into_iter().flatten().for_each(|(_, value)| self.add_value(value, depth));
    }

    fn add_value(&mut self, value: &Value, depth: u32) {
        if self.text.len() >= MOST - 1 || depth == 0 {
            return;
        }
        match value {
            Value::String(text) => self.add(text),
            Value::Number(number) => self.add(&number.to_string()),
            Value::Array(values) => {
                values.iter().take(MOST).for_each(|value| self.add_value(value, depth - 1))
            }
            Value::Object(fields) => self.add_fields(Some(fields), depth - 1),
            Value::Bool(_) | Value::Null => {}
        }
    }
}

/// Splits a text into words as the index does: letters, digits and marks, without circled letters, which are symbols.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |char: char| {
        char.is_alphanumeric() && !matches!(char, '\u{2460}'..='\u{24ff}' | '\u{1f100}'..='\u{1f1ff}')
    };
    text.split(move |char| !is_part(char)).filter(|word| !word.is_empty())
}

/// A search for words of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// The words, which all have to occur: at least one.
    pub words: Vec<SearchWord>,
}

/// A word of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchWord {
    /// Letters, digits and marks, in lowercase.
    pub text: String,
    /// Whether it matches every word with this prefix.
    pub begins: bool,
}

impl Search {
    /// Parses the words of a search; returns `None` if there are none. `dep*` is a prefix.
    pub fn new(text: &str) -> Option<Self> {
        let mut words = Vec::new();
        for part in text.split_whitespace() {
            words.extend(split(part).map(|word| SearchWord { text: word.to_lowercase(), begins: false }));
            if let Some(last) = words.last_mut().filter(|_| part.ends_with('*')) {
                last.begins = true;
            }
        }
        words.truncate(MOST_WORDS);
        (!words.is_empty()).then_some(Self { words })
    }

    /// Whether the search matches the words of a run that is not in the index.
    pub fn finds(&self, words: &str) -> bool {
        let words = words.to_lowercase();
        let all: Vec<&str> = words.split(' ').collect();
        let has = |word: &SearchWord| match word.begins {
            true => all.iter().any(|one| one.starts_with(&word.text)),
            false => all.contains(&word.text.as_str()),
        };
        self.words.iter().all(has)
    }
}

/// Reads a time of a query.
///
/// # Errors
/// `InvalidParams`, with the name of the field.
pub fn query_time(field: &str, text: Option<&str>) -> Result<Option<Timestamp>, Thrown> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            Thrown::from(RpcError::invalid_params(format!(
                "{field} must be a time such as 2027-01-01T00:00:00Z"
            )))
        })
    };
    text.map(read).transpose()
}

/// Formats a time of a query as the host writes those of runs, so that texts compare in the order of their times.
pub fn run_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Returns the owner of the work of a run: that of its automation when it was accepted.
pub fn owner_of(run: &AutomationRunState) -> Option<&str> {
    run.meta.as_ref()?.get("ostler.owner")?.as_str()
}

/// Returns the state of a run, and when it was accepted.
pub fn state_of(run: &AutomationRunState) -> (&'static str, &str) {
    match &run.lifecycle {
        AutomationRunLifecycle::Pending(at) => ("pending", &at.created_at),
        AutomationRunLifecycle::Running(at) => ("running", &at.created_at),
        AutomationRunLifecycle::Completed(at) => ("completed", &at.created_at),
        AutomationRunLifecycle::Failed(at) => ("failed", &at.created_at),
        AutomationRunLifecycle::Cancelled(at) => ("cancelled", &at.created_at),
    }
}
