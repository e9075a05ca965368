//! The words of runs, for the search.

use ostler_contract::protocol::wire::state::{
    AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState,
};
use ostler_contract::{JsonObject, Value};

/// How much of a run is indexed, in bytes of words.
const MOST: usize = 4096;
/// How many words of a search are used.
const MOST_WORDS: usize = 8;
/// How many levels of an event are indexed.
const DEPTH: u32 = 8;

/// Returns the words of a run, separated by spaces. `title` is its automation's title. No single text of the run uses
/// more than half of [`MOST`], so that a long one leaves room for others.
pub(super) fn of(run: &AutomationRunState, title: Option<&str>) -> String {
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

/// A search expression of the index.
pub(super) struct Expression {
    /// The text of the expression.
    pub text: String,
    /// Whether it contains a prefix of many terms.
    pub is_broad: bool,
}

/// A search for words of runs.
pub(super) struct Search {
    words: Vec<Word>,
}

struct Word {
    text: String,
    /// Whether it matches every word with this prefix.
    begins: bool,
}

impl Search {
    /// Parses the words of a search; returns `None` if there are none. `dep*` is a prefix.
    pub fn new(text: &str) -> Option<Self> {
        let mut words = Vec::new();
        for part in text.split_whitespace() {
            words.extend(split(part).map(|word| Word { text: word.to_lowercase(), begins: false }));
            if let Some(last) = words.last_mut().filter(|_| part.ends_with('*')) {
                last.begins = true;
            }
        }
        words.truncate(MOST_WORDS);
        (!words.is_empty()).then_some(Self { words })
    }

    /// Returns the search as an expression of the index. `terms` returns the terms of the index with a prefix, or
    /// `None` if there are many.
    ///
    /// The index returns a term's runs one by one, newest first, but collects all runs of a prefix first. Therefore a
    /// prefix of few terms is replaced by these terms.
    pub fn expression<E>(
        &self,
        mut terms: impl FnMut(&str) -> Result<Option<Vec<String>>, E>,
    ) -> Result<Expression, E> {
        let (mut parts, mut is_broad) = (Vec::new(), false);
        for Word { text, begins } in &self.words {
            let found = if *begins { terms(text)? } else { None };
            parts.push(match found {
                Some(terms) if !terms.is_empty() => {
                    let terms: Vec<String> = terms.iter().map(|term| format!("\"{term}\"")).collect();
                    format!("({})", terms.join(" OR "))
                }
                found => {
                    is_broad |= *begins && found.is_none();
                    format!("\"{text}\"{}", if *begins { " *" } else { "" })
                }
            });
        }
        Ok(Expression { text: parts.join(" AND "), is_broad })
    }

    /// Whether the search matches the words of a run that is not in the index.
    pub fn finds(&self, words: &str) -> bool {
        let words = words.to_lowercase();
        let all: Vec<&str> = words.split(' ').collect();
        let has = |word: &Word| match word.begins {
            true => all.iter().any(|one| one.starts_with(&word.text)),
            false => all.contains(&word.text.as_str()),
        };
        self.words.iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_of_few_terms_is_replaced_by_these() {
        let search = Search::new("Exit dep* x* z*").unwrap();
        let expression = search
            .expression::<()>(|begin| {
                Ok(match begin {
                    "dep" => Some(vec!["depend".to_owned(), "deploy".to_owned()]),
                    "z" => Some(Vec::new()),
                    _ => None,
                })
            })
            .unwrap();
        assert_eq!(expression.text, r#""exit" AND ("depend" OR "deploy") AND "x" * AND "z" *"#);
        assert!(expression.is_broad, "x begins many terms");
        let few = Search::new("dep*").unwrap().expression::<()>(|_| Ok(Some(vec!["deploy".to_owned()])));
        assert!(few.is_ok_and(|few| !few.is_broad && few.text == "(\"deploy\")"));
    }
}
