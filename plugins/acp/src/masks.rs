//! What an agent's words may not contain where the plugin repeats them: an agent may print its own credentials. Everything that
//! reaches errors, notices, reports and the log passes [`Masks`] where it is read from the agent.

use std::sync::Arc;

use ostler_contract::secret::SET;
use ostler_contract::{Secret, Value};

/// A shorter value of a variable is a word; to mask it would hide what is said.
const SHORTEST: usize = 8;
/// The same for what is a secret: read from the vault, or lent by a client.
const SHORTEST_SECRET: usize = 4;
/// How much of a secret is recognized at the beginning of a text that was cut.
const CUT: usize = 8;

/// The texts that are masked.
#[derive(Debug, Clone, Default)]
pub struct Masks(Arc<Secret<Vec<String>>>);

impl Masks {
    /// Of values that may be secrets, and of those that are.
    pub fn new<'a>(
        values: impl IntoIterator<Item = &'a String>,
        secrets: impl IntoIterator<Item = &'a String>,
    ) -> Self {
        let values = values.into_iter().flat_map(|value| forms(value, SHORTEST));
        let secrets = secrets.into_iter().flat_map(|secret| forms(secret, SHORTEST_SECRET));
        Self::of(values.chain(secrets).collect())
    }

    /// With more secrets.
    pub fn with<'a>(&self, secrets: impl IntoIterator<Item = &'a String>) -> Self {
        let more = secrets.into_iter().flat_map(|secret| forms(secret, SHORTEST_SECRET));
        Self::of(self.0.reveal().iter().cloned().chain(more).collect())
    }

    /// With more values that may be secrets.
    pub fn with_values<'a>(&self, values: impl IntoIterator<Item = &'a String>) -> Self {
        let more = values.into_iter().flat_map(|value| forms(value, SHORTEST));
        Self::of(self.0.reveal().iter().cloned().chain(more).collect())
    }

    fn of(mut texts: Vec<String>) -> Self {
        // One that holds another goes first, or its rest would stay.
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        texts.dedup();
        Self(Arc::new(Secret::new(texts)))
    }

    /// The text without them.
    pub fn hide(&self, text: &str) -> String {
        self.0.reveal().iter().fold(text.to_owned(), |text, mask| match text.contains(mask.as_str()) {
            true => text.replace(mask.as_str(), SET),
            false => text,
        })
    }

    /// The same for the end of a text, at whose beginning may be the end of one.
    pub fn hide_in_end(&self, text: &str) -> String {
        let rest_of = |mask: &String| {
            let rests = mask.char_indices().map(|(at, _)| &mask[at..]).take_while(|rest| rest.len() >= CUT);
            rests.skip(1).find(|rest| text.starts_with(rest)).map(str::len)
        };
        match self.0.reveal().iter().filter_map(rest_of).max() {
            Some(cut) => self.hide(&format!("{SET}{}", &text[cut..])),
            None => self.hide(text),
        }
    }

    /// Every text of a value without them.
    pub fn hide_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.hide(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.hide_value(item)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (self.hide(&name), self.hide_value(value))).collect()
            }
            other => other,
        }
    }
}

/// What a value looks like in what a program prints.
fn forms(value: &str, shortest: usize) -> Vec<String> {
    // Of several lines, as a key in PEM has, each; a short one is none of a secret alone.
    let lines = value.lines().map(|line| (line, shortest.max(SHORTEST)));
    let texts =
        std::iter::once((value, shortest)).chain(lines).map(|(text, shortest)| (text.trim(), shortest));
    let long = texts.filter(|(text, shortest)| text.chars().count() >= *shortest);
    long.flat_map(|(text, _)| {
        // As it stands in a JSON text, or in what a program prints for debugging.
        let (quoted, json) = (format!("{text:?}"), Value::from(text).to_string());
        [text, &quoted[1..quoted.len() - 1], &json[1..json.len() - 1]].map(str::to_owned)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_secret_is_left() {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let values = own(&["sk-live-1", "sk-live-12", "trace", "-----BEGIN-----\nabcdefgh\n", "with\"quote"]);
        let secrets = own(&["pin4", "abc"]);
        let masks = Masks::new(&values, &secrets);
        assert_eq!(masks.hide("401 for sk-live-12 and sk-live-1, pin4"), "401 for <set> and <set>, <set>");
        assert_eq!(masks.hide("line: abcdefgh; trace abc"), "line: <set>; trace abc");
        assert_eq!(masks.hide(r#"{"key":"with\"quote"}"#), r#"{"key":"<set>"}"#);
        assert_eq!(masks.hide_in_end("-live-12 is wrong"), "<set> is wrong");
        assert_eq!(masks.hide_in_end("live is sk-live-1"), "live is <set>");
        let value = serde_json::json!({ "a": ["sk-live-1", 1], "pin4": null });
        assert_eq!(masks.hide_value(value), serde_json::json!({ "a": ["<set>", 1], "<set>": null }));
        let lent = masks.with(&own(&["tok7"]));
        assert_eq!(
            (lent.hide("tok7 pin4"), masks.hide("tok7")),
            ("<set> <set>".to_owned(), "tok7".to_owned())
        );
        assert!(!format!("{masks:?}").contains("live"));
    }
}
