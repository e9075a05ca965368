//! `Stripe-Signature: t=<time>,v1=<hex>,…` over `<time>.<body>`. Versions other than `v1` say nothing here.

use ostler_contract::http::HeaderMap;

use super::{Read, hex, one, seconds};

/// How many signatures are looked at.
const MOST: usize = 8;

pub(super) fn read(headers: &HeaderMap) -> Option<Read> {
    let mut time = None;
    let mut signatures = Vec::new();
    for part in one(headers, "stripe-signature")?.split(',') {
        match part.trim().split_once('=')? {
            ("t", value) if time.is_none() => time = Some(value),
            ("t", _) => return None,
            ("v1", value) if signatures.len() < MOST => signatures.extend(hex(value)),
            _ => {}
        }
    }
    let time = time?;
    if signatures.is_empty() {
        return None;
    }
    Some((Some(seconds(time)?), format!("{time}.").into_bytes(), signatures))
}
