//! Slack: `X-Slack-Signature: v0=<hex>` over `v0:<time>:<body>`, the time being `X-Slack-Request-Timestamp`.
//! <https://docs.slack.dev/authentication/verifying-requests-from-slack>

use std::borrow::Cow;
use std::sync::Arc;

use ostler_contract::json;
use ostler_contract::protocol::surrogates::read_json;
use serde::Deserialize;

use super::hmac::{Hmac, Timestamp};
use super::{Delivery, EventName, Greeting, Pauses, Retries, Sender, Success, body_event_id};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "slack",
    example: "slack",
    headers: &["X-Slack-Signature", "X-Slack-Request-Timestamp"],
    delivery: Delivery::Body(body_event_id),
    success: Success::Empty,
    retries: Retries {
        waits: Some(3),
        pauses: Pauses::After(&[0, 60, 300]),
        failures: "disables the events of an app that fails for most of an hour",
    },
    event: Some(EventName::Field("event.type")),
    scheme: |_| {
        Ok(Arc::new(Hmac {
            timestamp: Some(Timestamp {
                header: Cow::Borrowed("X-Slack-Request-Timestamp"),
                around: (Cow::Borrowed("v0:"), Cow::Borrowed(":")),
            }),
            greeting: url_verification,
            ..Hmac::hex("X-Slack-Signature", "v0=")
        }))
    },
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// Slack sends a challenge to a new endpoint. Nothing else of a body is parsed for it.
fn url_verification(_: &Head, body: &[u8]) -> Option<Greeting> {
    #[derive(Deserialize)]
    struct Request {
        r#type: String,
        challenge: Option<String>,
    }
    let request: Request = read_json(body).ok()?;
    let challenge = request.challenge.filter(|_| request.r#type == "url_verification")?;
    Some(Greeting::Json(json!({ "challenge": challenge })))
}

#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "the vector Slack publishes",
    verify: r#""slack""#,
    headers: &[
        ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
        ("X-Slack-Request-Timestamp", "1531420618"),
    ],
    secret: "8f742231b10e8888abcd99yyyzzz85a5",
    body: include_bytes!("../../tests/senders/slack-command.form"),
    timed: true,
    at: 1_531_420_618,
    ..super::Vector::UNTIMED
}];
