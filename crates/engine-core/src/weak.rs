//! References that do not keep their target alive.

use std::sync::{Arc, Weak};

use ostler_contract::Thrown;

/// The target of a reference, or the error that the host has ended.
pub fn upgraded<T>(reference: &Weak<T>) -> Result<Arc<T>, Thrown> {
    reference.upgrade().ok_or_else(|| Thrown::new("the host has stopped"))
}
