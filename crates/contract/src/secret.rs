//! Values that are never shown.

use std::fmt;

/// A value that `Debug` prints as [`SET`], and so do logs and panics.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps it.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value. The caller is responsible for where it goes.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(SET)
    }
}

/// The words in the names of environment variables that hold secrets.
const SECRET_WORDS: [&str; 9] =
    ["KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PAT"];

/// Returns whether an environment variable of this name contains a secret, such as `ANTHROPIC_API_KEY`.
pub fn is_secret_name(name: &str) -> bool {
    name.split('_').any(|word| SECRET_WORDS.iter().any(|secret| word.eq_ignore_ascii_case(secret)))
}

/// The text that replaces a credential. Spec: *Options and credentials*, 5.
pub const SET: &str = "<set>";
