//! Stripe: `Stripe-Signature: t=<time>,v1=<hex>,…` over `<time>.<body>`. Versions other than `v1` are ignored.
//! <https://docs.stripe.com/webhooks?verify=verify-manually>

use std::sync::Arc;

use ostler_contract::protocol::surrogates::{KeyText, read_json};
use ring::hmac::HMAC_SHA256;
use serde::Deserialize;

use super::hmac::{Encoding, MOST, made, shell_made};
use super::{Claim, Delivery, Outgoing, Scheme, Sender, Shell, Signing, TIME, from_hex, one, seconds};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "stripe",
    example: "stripe",
    headers: &["Stripe-Signature"],
    body_limit: 1 << 20,
    delivery: Delivery::Body(event_id),
    fields: &[],
    scheme: |_| Ok(Arc::new(Stripe)),
    #[cfg(test)]
    vectors: VECTORS,
};

#[derive(Debug)]
struct Stripe;

impl Scheme for Stripe {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let mut time = None;
        let mut signatures = Vec::new();
        for part in one(&head.headers, "stripe-signature")?.split(',') {
            match part.trim().split_once('=')? {
                ("t", value) if time.is_none() => time = Some(value),
                ("t", _) => return None,
                ("v1", value) if signatures.len() < MOST => signatures.extend(from_hex(value, 32)),
                _ => {}
            }
        }
        let time = time?;
        if signatures.is_empty() {
            return None;
        }
        Some(Claim {
            at: Some(seconds(time)?),
            prefix: format!("{time}.").into_bytes(),
            signatures,
            ..Claim::default()
        })
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let time = signing.now;
        let prefix = format!("{time}.");
        let parts = [prefix.as_bytes(), call.body.as_bytes()];
        let signature = hex::encode(made(HMAC_SHA256, &self.key(signing.secret), &parts));
        call.header("Stripe-Signature", format!("t={time},v1={signature}"));
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let header = format!("Stripe-Signature: t=$T,v1={}", shell_made("sha256", Encoding::Hex, "$T.$B"));
        Some(Shell { before: TIME.to_owned(), headers: vec![header], ..Shell::default() })
    }
}

fn event_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Event {
        id: KeyText,
    }
    read_json::<Event>(body).ok().map(|event| event.id.0)
}

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
