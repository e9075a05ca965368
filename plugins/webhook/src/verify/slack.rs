//! `X-Slack-Signature: v0=<hex>` over `v0:<time>:<body>`, the time being `X-Slack-Request-Timestamp`.

use ostler_contract::http::HeaderMap;

use super::{Read, hex, one, seconds};

pub(super) fn read(headers: &HeaderMap) -> Option<Read> {
    let time = one(headers, "x-slack-request-timestamp")?;
    let signature = one(headers, "x-slack-signature")?.strip_prefix("v0=")?;
    Some((Some(seconds(time)?), format!("v0:{time}:").into_bytes(), vec![hex(signature)?]))
}
