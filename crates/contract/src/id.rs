//! Slugs: the names of plugins, records and collections.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a slug is, as every sentence says it. Spec: *Plugin id*.
pub const SLUG_RULE: &str =
    "lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter";

/// The longest slug, in characters.
const SLUG_MAX: usize = 40;

/// A name by the [`SLUG_RULE`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Slug(Arc<str>);

impl Slug {
    /// Reads a slug; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        let good = bytes.next().is_some_and(|first| first.is_ascii_lowercase())
            && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && text.len() <= SLUG_MAX;
        good.then(|| Self(text.into()))
    }
}

impl Deref for Slug {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Slug {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text} is not a slug")))
    }
}

/// The id of a plugin.
pub type PluginId = Slug;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_slug() {
        for good in ["a", "webhook", "a-b-c", "a1", &"a".repeat(40)] {
            assert!(Slug::parse(good).is_some(), "{good}");
        }
        for bad in ["", "1a", "-a", "A", "a_b", "a.b", "@a/b", "ä", "a b", &"a".repeat(41)] {
            assert!(Slug::parse(bad).is_none(), "{bad}");
        }
        assert!(SLUG_RULE.contains(&format!("1 to {SLUG_MAX} characters")));
    }
}
