//! Standard Webhooks: `webhook-signature: v1,<base64> …` over `<id>.<time>.<body>`, with `webhook-id` and
//! `webhook-timestamp`. The secret is `whsec_` and base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::http::HeaderMap;

use super::{Read, one, seconds};

/// How many signatures are looked at.
const MOST: usize = 8;

pub(super) fn read(headers: &HeaderMap) -> Option<Read> {
    let (id, time) = (one(headers, "webhook-id")?, one(headers, "webhook-timestamp")?);
    let signatures: Vec<Vec<u8>> = one(headers, "webhook-signature")?
        .split(' ')
        .filter_map(|signature| signature.strip_prefix("v1,"))
        .take(MOST)
        .filter_map(|signature| STANDARD.decode(signature).ok())
        .collect();
    if id.is_empty() || signatures.is_empty() {
        return None;
    }
    Some((Some(seconds(time)?), format!("{id}.{time}.").into_bytes(), signatures))
}

/// The key a secret stands for. One that is no base64 is taken as it is; an empty key would be anybody's.
pub(super) fn key(secret: &str) -> Vec<u8> {
    let bare = secret.strip_prefix("whsec_").unwrap_or(secret);
    match STANDARD.decode(bare) {
        Ok(key) if !key.is_empty() => key,
        _ => secret.as_bytes().to_vec(),
    }
}

/// A signature as a sender writes it.
pub(super) fn written(signature: &[u8]) -> String {
    format!("v1,{}", STANDARD.encode(signature))
}
