//! Bitbucket: `X-Hub-Signature: sha256=<hex>` over the body. It signs no time.
//! <https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/>

use std::sync::Arc;

use super::hmac::Hmac;
use super::{Delivery, EventName, Greeting, Pauses, Retries, Sender};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "bitbucket",
    example: "bitbucket",
    headers: &["X-Hub-Signature"],
    body_limit: crate::BODY_LIMIT,
    delivery: Delivery::Header("X-Request-UUID"),
    retries: Retries { waits: Some(10), pauses: Pauses::Unknown, failures: "" },
    event: Some(EventName::Header("X-Event-Key")),
    scheme: |_| Ok(Arc::new(Hmac { greeting: ping, ..Hmac::hex("X-Hub-Signature", "sha256=") })),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// Bitbucket Data Center tests a connection so.
fn ping(head: &Head, _: &[u8]) -> Option<Greeting> {
    (head.headers.get("x-event-key")? == "diagnostics:ping").then_some(Greeting::Accepted)
}

#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "the vector Atlassian publishes",
    verify: r#""bitbucket""#,
    headers: &[(
        "X-Hub-Signature",
        "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9",
    )],
    secret: "It's a Secret to Everybody",
    body: b"Hello World!",
    ..super::Vector::UNTIMED
}];
