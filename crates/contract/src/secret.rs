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

/// What stands where a credential would be shown. Spec: *Options and credentials*, 5.
pub const SET: &str = "<set>";
