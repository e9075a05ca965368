//! GitHub: `X-Hub-Signature-256: sha256=<hex>` over the body. It signs no time.
//! <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>

use std::sync::Arc;

use super::hmac::Hmac;
use super::{Delivery, EventName, Greeting, Pauses, Retries, Sender};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "github",
    example: "github",
    headers: &["X-Hub-Signature-256"],
    body_limit: crate::BODY_LIMIT,
    delivery: Delivery::Header("X-GitHub-Delivery"),
    retries: Retries { waits: Some(10), pauses: Pauses::Never, failures: "" },
    event: Some(EventName::Header("X-GitHub-Event")),
    scheme: |_| Ok(Arc::new(Hmac { greeting: ping, ..Hmac::hex("X-Hub-Signature-256", "sha256=") })),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// A new webhook is announced with a ping.
fn ping(head: &Head, _: &[u8]) -> Option<Greeting> {
    (head.headers.get("x-github-event")? == "ping").then_some(Greeting::Accepted)
}

#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "the vector GitHub publishes",
    verify: r#""github""#,
    headers: &[(
        "X-Hub-Signature-256",
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    )],
    secret: "It's a Secret to Everybody",
    body: b"Hello, World!",
    ..super::Vector::UNTIMED
}];
