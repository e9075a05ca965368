//! Ids of records for texts that are not slugs.

use sha2::{Digest, Sha256};

/// Returns a unique slug.
pub(crate) fn fresh(kind: char) -> String {
    let mut number = uuid::Uuid::encode_buffer();
    let number = uuid::Uuid::new_v4().simple().encode_lower(&mut number);
    let mut id = String::with_capacity(1 + number.len());
    id.push(kind);
    id.push_str(number);
    id
}

/// Returns a slug that is unique for these texts.
pub(crate) fn of(kind: char, texts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    format!("{kind}{}", hex::encode(&digest.finalize()[..16]))
}
