//! Senders with the time and the signature in one header: `Stripe-Signature: t=<time>,v1=<hex>,…`. Parts with other names are
//! ignored.

use std::sync::Arc;

use ring::hmac::HMAC_SHA256;

use super::hmac::{Encoding, MOST, made, shell_made};
#[cfg(test)]
use super::{BODY, MADE};
use super::{
    Claim, Delivery, EventName, Greeting, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, Success,
    TIME, body_event_id, from_hex, one, seconds,
};
use crate::route::Head;

/// HMAC-SHA256 in hex of a time and the body, in one header.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedHeader {
    pub header: &'static str,
    /// What separates its parts.
    pub separator: char,
    /// The name of the part with the time, in seconds since 1970.
    pub time: &'static str,
    /// The name of the parts with a signature: several while the secret changes.
    pub signature: &'static str,
    /// What is signed between the time and the body.
    pub between: &'static str,
    /// The answer to a verified call that only asks whether the endpoint is there.
    pub greeting: fn(&Head, &[u8]) -> Option<Greeting>,
}

impl TimedHeader {
    pub(super) const STRIPE: Self = Self {
        header: "Stripe-Signature",
        separator: ',',
        time: "t",
        signature: "v1",
        between: ".",
        greeting: |_, _| None,
    };
}

impl Scheme for TimedHeader {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let mut time = None;
        let mut signatures = Vec::new();
        for part in one(&head.headers, self.header)?.split(self.separator) {
            match part.trim().split_once('=')? {
                (name, value) if name == self.time && time.is_none() => time = Some(value),
                (name, _) if name == self.time => return None,
                (name, value) if name == self.signature && signatures.len() < MOST => {
                    signatures.extend(from_hex(value, 32));
                }
                _ => {}
            }
        }
        let time = time?;
        if signatures.is_empty() {
            return None;
        }
        Some(Claim {
            at: Some(seconds(time)?),
            prefix: format!("{time}{}", self.between).into_bytes(),
            signatures,
            ..Claim::default()
        })
    }

    fn greeting(&self, head: &Head, body: &[u8]) -> Option<Greeting> {
        (self.greeting)(head, body)
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let Self { header, separator, time, signature, between, .. } = self;
        let at = signing.now;
        let prefix = format!("{at}{between}");
        let parts = [prefix.as_bytes(), call.body.as_bytes()];
        let made = hex::encode(made(HMAC_SHA256, &self.key(signing.secret), &parts));
        call.header(header, format!("{time}={at}{separator}{signature}={made}"));
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let Self { header, separator, time, signature, between, .. } = self;
        let made = shell_made("sha256", Encoding::Hex, &format!("${{T}}{between}$B"));
        let header = format!("{header}: {time}=$T{separator}{signature}={made}");
        Some(Shell { before: TIME.to_owned(), headers: vec![header], ..Shell::default() })
    }
}

/// Calendly.
/// <https://developer.calendly.com/api-docs/ZG9jOjM2MzE2MDM4-webhook-signatures>
pub(super) static CALENDLY: Sender = Sender {
    name: "calendly",
    example: "calendly",
    headers: &["Calendly-Webhook-Signature"],
    retries: Retries {
        waits: Some(15),
        pauses: Pauses::Within(0, 86400),
        failures: "disables the subscription after a day",
    },
    event: Some(EventName::Field("event")),
    scheme: |_| {
        Ok(Arc::new(TimedHeader {
            header: "Calendly-Webhook-Signature",
            separator: ',',
            time: "t",
            signature: "v1",
            between: ".",
            ..TimedHeader::STRIPE
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""calendly""#,
        headers: &[(
            "Calendly-Webhook-Signature",
            "t=1700000000,v1=b54d365991702c75900ff232cfeafc44dee1012b9a87372fe14c96e936d3ac59",
        )],
        body: BODY,
        timed: true,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Paddle Billing.
/// <https://developer.paddle.com/webhooks/signature-verification>
pub(super) static PADDLE: Sender = Sender {
    name: "paddle",
    example: "paddle",
    headers: &["Paddle-Signature"],
    delivery: Delivery::Body(body_event_id),
    success: Success::Ok,
    retries: Retries { waits: Some(5), pauses: Pauses::Within(60, 259200), failures: "" },
    event: Some(EventName::Field("event_type")),
    scheme: |_| {
        Ok(Arc::new(TimedHeader {
            header: "Paddle-Signature",
            separator: ';',
            time: "ts",
            signature: "h1",
            between: ":",
            ..TimedHeader::STRIPE
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""paddle""#,
        headers: &[(
            "Paddle-Signature",
            "ts=1700000000;h1=d732535b088fcf1490ac4a9c9953700d4d11a17e2ebe1aa61b0ce73a2182d88f",
        )],
        body: BODY,
        timed: true,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Buildkite, with the setting that signs calls.
/// <https://buildkite.com/docs/apis/webhooks/pipelines>
pub(super) static BUILDKITE: Sender = Sender {
    name: "buildkite",
    example: "buildkite",
    headers: &["X-Buildkite-Signature"],
    delivery: Delivery::Header("X-Buildkite-Request"),
    event: Some(EventName::Header("X-Buildkite-Event")),
    scheme: |_| {
        Ok(Arc::new(TimedHeader {
            header: "X-Buildkite-Signature",
            separator: ',',
            time: "timestamp",
            signature: "signature",
            between: ".",
            greeting: buildkite_ping,
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""buildkite""#,
        headers: &[(
            "X-Buildkite-Signature",
            "timestamp=1700000000,signature=b54d365991702c75900ff232cfeafc44dee1012b9a87372fe14c96e936d3ac59",
        )],
        body: BODY,
        timed: true,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// The call after a webhook was added.
fn buildkite_ping(head: &Head, _: &[u8]) -> Option<Greeting> {
    (head.headers.get("x-buildkite-event")? == "ping").then_some(Greeting::Accepted)
}
