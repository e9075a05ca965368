//! Ids of records that stand for texts which are no slugs themselves.

use sha2::{Digest, Sha256};

/// A slug that no other record has.
pub(crate) fn fresh(kind: char) -> String {
    format!("{kind}{}", uuid::Uuid::new_v4().simple())
}

/// A slug of its own for these texts.
pub(crate) fn of(kind: char, texts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    digest.finalize().iter().take(16).fold(kind.to_string(), |id, byte| format!("{id}{byte:02x}"))
}
