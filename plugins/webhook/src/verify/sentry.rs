//! Sentry: `Sentry-Hook-Signature: <hex>` over the body. `Sentry-Hook-Timestamp` is not signed.
//! <https://docs.sentry.io/organization/integrations/integration-platform/webhooks/>

use std::sync::Arc;

use super::hmac::Hmac;
use super::{Delivery, EventName, Pauses, Retries, Sender};

pub(super) static SENDER: Sender = Sender {
    name: "sentry",
    example: "sentry",
    headers: &["Sentry-Hook-Signature"],
    body_limit: crate::BODY_LIMIT,
    delivery: Delivery::Header("Request-ID"),
    retries: Retries {
        waits: Some(1),
        pauses: Pauses::Unknown,
        failures: "ends the webhook after 1,000 late answers in a day",
    },
    event: Some(EventName::Header("Sentry-Hook-Resource")),
    scheme: |_| Ok(Arc::new(Hmac::hex("Sentry-Hook-Signature", ""))),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// Sentry publishes no vector.
#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "a call as Sentry describes it, signed by OpenSSL",
    verify: r#""sentry""#,
    headers: &[("Sentry-Hook-Signature", "66486a5a94a9803b29ef6f05d0b083a6c862542db17616e205c6a1e34d216b67")],
    secret: "it is a client secret",
    body: include_bytes!("../../tests/senders/sentry-issue.json"),
    ..super::Vector::UNTIMED
}];
