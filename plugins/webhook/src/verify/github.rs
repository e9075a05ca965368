//! `X-Hub-Signature-256: sha256=<hex>` over the body. It says no time.

use ostler_contract::http::HeaderMap;

use super::{Read, hex, one};

pub(super) fn read(headers: &HeaderMap) -> Option<Read> {
    let signature = one(headers, "x-hub-signature-256")?.strip_prefix("sha256=")?;
    Some((None, Vec::new(), vec![hex(signature)?]))
}
