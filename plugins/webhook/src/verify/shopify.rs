//! Shopify: `X-Shopify-Hmac-Sha256: <base64>` over the body. It signs no time.
//! <https://shopify.dev/docs/apps/build/webhooks/verify-deliveries>

use std::sync::Arc;

use super::hmac::{Encoding, Hmac};
use super::{Delivery, EventName, Pauses, Retries, Sender};

pub(super) static SENDER: Sender = Sender {
    name: "shopify",
    example: "shopify",
    headers: &["X-Shopify-Hmac-Sha256"],
    body_limit: crate::BODY_LIMIT,
    delivery: Delivery::Header("X-Shopify-Webhook-Id"),
    retries: Retries {
        waits: Some(5),
        pauses: Pauses::Within(8, 14400),
        failures: "removes a subscription that was made by its API",
    },
    event: Some(EventName::Header("X-Shopify-Topic")),
    scheme: |_| Ok(Arc::new(Hmac { encoding: Encoding::Base64, ..Hmac::hex("X-Shopify-Hmac-Sha256", "") })),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// Shopify publishes no vector.
#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "a call as Shopify describes it, signed by OpenSSL",
    verify: r#""shopify""#,
    headers: &[("X-Shopify-Hmac-Sha256", "Iz7g3/kJMjUM2/Dk2zlrcLoNaLrTQc8ORuGnsMyX038=")],
    secret: "hush",
    body: include_bytes!("../../tests/senders/shopify-order.json"),
    ..super::Vector::UNTIMED
}];
