//! Values that are never shown.

use std::fmt;

/// A value that prints as [`SET`]: in `Debug`, so in logs and panics too.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps it.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value. Whoever asks answers for where it goes.
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

/// Whether an environment variable of this name holds a secret, as `ANTHROPIC_API_KEY` does.
pub fn is_secret_name(name: &str) -> bool {
    name.split('_').any(|word| SECRET_WORDS.iter().any(|secret| word.eq_ignore_ascii_case(secret)))
}

/// What stands where a credential would be shown. Spec: *Options and credentials*, 5.
pub const SET: &str = "<set>";
