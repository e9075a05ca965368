//! Stripe: `Stripe-Signature: t=<time>,v1=<hex>,…` over `<time>.<body>`. Versions other than `v1` are ignored.
//! <https://docs.stripe.com/webhooks?verify=verify-manually>

use std::sync::Arc;

use super::timed_header::TimedHeader;
use super::{Delivery, EventName, Pauses, Retries, Sender, body_id};

pub(super) static SENDER: Sender = Sender {
    name: "stripe",
    example: "stripe",
    headers: &["Stripe-Signature"],
    delivery: Delivery::Body(body_id),
    retries: Retries { waits: None, pauses: Pauses::Within(0, 259200), failures: "" },
    event: Some(EventName::Field("type")),
    scheme: |_| Ok(Arc::new(TimedHeader::STRIPE)),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

#[cfg(test)]
const VECTORS: &[super::Vector] = &[
    super::Vector {
        of: "the vector of Stripe's own library",
        verify: r#""stripe""#,
        headers: &[(
            "Stripe-Signature",
            "t=1533204620,v1=f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613,\
             v0=63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef",
        )],
        secret: "webhook_secret",
        body: include_bytes!("../../tests/senders/stripe-invoice-item.json"),
        timed: true,
        at: 1_533_204_620,
        ..super::Vector::UNTIMED
    },
    super::Vector {
        of: "the same while the secret is rolled",
        verify: r#""stripe""#,
        headers: &[(
            "Stripe-Signature",
            "t=1533204620,v1=0000000000000000000000000000000000000000000000000000000000000000,\
             v1=f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613",
        )],
        secret: "webhook_secret",
        body: include_bytes!("../../tests/senders/stripe-invoice-item.json"),
        timed: true,
        at: 1_533_204_620,
        ..super::Vector::UNTIMED
    },
];
