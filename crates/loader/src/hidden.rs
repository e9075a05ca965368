//! Texts that no log line contains: a credential in an exception of a plugin must not reach the log.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use ostler_contract::secret::SET;

/// Shorter texts are usually words. Removing them from every line would make lines unreadable and protect no secret.
const SHORTEST: usize = 6;

/// Credentials that plugins received.
#[derive(Clone, Default)]
pub struct Hidden(Arc<RwLock<Vec<String>>>);

impl Hidden {
    /// Removes a text from every line from now on; each line of a text with several lines is also removed.
    pub fn add(&self, text: &str) {
        // A secret is read repeatedly.
        let known = |texts: &[String]| texts.iter().any(|known| known == text.trim());
        if known(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut texts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for text in std::iter::once(text).chain(text.lines()).map(str::trim) {
            if text.chars().count() < SHORTEST {
                continue;
            }
            // Its form in JSON text or in debug output.
            let (quoted, json) = (format!("{text:?}"), serde_json::Value::from(text).to_string());
            for form in [text, &quoted[1..quoted.len() - 1], &json[1..json.len() - 1]] {
                if !texts.iter().any(|known| known == form) {
                    texts.push(form.to_owned());
                }
            }
        }
        // A text that contains another one is removed first, or its rest would remain.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    }

    /// Returns the line without these texts.
    pub fn hide<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let texts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        texts
            .iter()
            .filter(|text| line.contains(text.as_str()))
            .fold(Cow::Borrowed(line), |line, text| Cow::Owned(line.replace(text.as_str(), SET)))
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hidden")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_credential_is_left_in_a_line() {
        let hidden = Hidden::default();
        hidden.add("sk-live-1");
        hidden.add("sk-live-12");
        hidden.add("-----BEGIN-----\nabcdefgh\n");
        hidden.add("short");
        assert_eq!(hidden.hide("401 for sk-live-12 and sk-live-1"), "401 for <set> and <set>");
        assert_eq!(hidden.hide("second line: abcdefgh"), "second line: <set>");
        assert_eq!(hidden.hide("a short line"), "a short line");
        assert_eq!(format!("{hidden:?}"), "Hidden");
    }
}
