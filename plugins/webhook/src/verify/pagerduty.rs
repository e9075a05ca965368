//! PagerDuty: `X-PagerDuty-Signature: v1=<hex>,v1=<hex>` over the body, with one signature for each secret. It signs no
//! time.
//! <https://developer.pagerduty.com/docs/webhooks-overview#verifying-signatures>

use std::sync::Arc;

use ostler_contract::protocol::surrogates::{KeyText, read_json};
use serde::Deserialize;

use super::hmac::Hmac;
use super::{Delivery, EventName, Greeting, Pauses, Retries, Sender};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "pagerduty",
    example: "pagerduty",
    headers: &["X-PagerDuty-Signature"],
    delivery: Delivery::Body(event_id),
    retries: Retries { waits: None, pauses: Pauses::Unknown, failures: "disables the webhook for a while" },
    event: Some(EventName::Field("event.event_type")),
    scheme: |_| {
        Ok(Arc::new(Hmac { several: true, greeting: ping, ..Hmac::hex("X-PagerDuty-Signature", "v1=") }))
    },
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

#[derive(Deserialize)]
struct Call {
    event: Event,
}

#[derive(Deserialize)]
struct Event {
    id: Option<KeyText>,
    event_type: Option<String>,
}

/// The test event of a subscription.
fn ping(_: &Head, body: &[u8]) -> Option<Greeting> {
    let event = read_json::<Call>(body).ok()?.event;
    (event.event_type? == "pagey.ping").then_some(Greeting::Accepted)
}

fn event_id(body: &[u8]) -> Option<String> {
    read_json::<Call>(body).ok()?.event.id.map(|KeyText(id)| id)
}

#[cfg(test)]
const VECTORS: &[super::Vector] = &[
    super::Vector {
        // https://github.com/PagerDuty/go-pagerduty/blob/main/webhookv3/webhookv3_test.go
        of: "the vector of PagerDuty's own library",
        verify: r#""pagerduty""#,
        headers: &[(
            "X-PagerDuty-Signature",
            "v1=0c0b9495b893a39e70d1fea2fe11fbe0a825f88b9f67846f6cc07dd2bc5476cd",
        )],
        secret: "lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itBAYzwU0TARw8lJqRnkKl2iB1anSb0Z+IK",
        body: include_bytes!("../../tests/senders/pagerduty-incident.json"),
        ..super::Vector::UNTIMED
    },
    super::Vector {
        of: "the same while the secret is rolled",
        verify: r#""pagerduty""#,
        headers: &[(
            "X-PagerDuty-Signature",
            "v1=7020c8a7ec668a9b7012bc3dd82e483394b038f4230acc6785efbf2a7d8bcaf5, v2=abc,\
             v1=0c0b9495b893a39e70d1fea2fe11fbe0a825f88b9f67846f6cc07dd2bc5476cd",
        )],
        secret: "lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itBAYzwU0TARw8lJqRnkKl2iB1anSb0Z+IK",
        body: include_bytes!("../../tests/senders/pagerduty-incident.json"),
        ..super::Vector::UNTIMED
    },
];
