//! Linear: `Linear-Signature: <hex>` over the body, which has the time of the call in `webhookTimestamp`.
//! <https://linear.app/developers/webhooks#securing-webhooks>

use std::sync::Arc;

use ostler_contract::protocol::sent::SentObject;
use ostler_contract::protocol::surrogates::read_json;
use ring::hmac::HMAC_SHA256;
use serde::Deserialize;

use super::hmac::{Hmac, made};
use super::{
    Claim, Delivery, EventName, MISSING, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, Success,
    Unsigned, recent,
};
use crate::byte_order_mark::text_of;
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "linear",
    example: "linear",
    headers: &["Linear-Signature"],
    delivery: Delivery::Header("Linear-Delivery"),
    // It repeats a failed delivery after a minute, an hour and six hours, with the time and the signature of the first one.
    window: 8 * 3600,
    success: Success::Ok,
    retries: Retries {
        waits: Some(5),
        pauses: Pauses::After(&[60, 3600, 21600]),
        failures: "may disable the webhook",
    },
    event: Some(EventName::Header("Linear-Event")),
    scheme: |_| Ok(Arc::new(Linear(Hmac::hex("Linear-Signature", "")))),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

#[derive(Debug)]
struct Linear(Hmac);

/// Nothing else of a body is parsed for its time.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timed {
    /// In milliseconds since 1970.
    webhook_timestamp: u64,
}

impl Scheme for Linear {
    fn claim(&self, head: &Head) -> Option<Claim> {
        self.0.claim(head)
    }

    /// The time is trusted only after the signature.
    fn check(&self, claim: &Claim, secret: &str, body: &[u8], now: u64) -> Result<(), Unsigned> {
        claim.is_one_of(&[made(HMAC_SHA256, secret.as_bytes(), &[body])])?;
        let timed: Timed = read_json(text_of(body)).map_err(|_| MISSING)?;
        recent(timed.webhook_timestamp / 1000, now, SENDER.window)
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        if let Ok(mut fields) = SentObject::read(call.body.as_bytes())
            && !fields.fields.contains_key("webhookTimestamp")
        {
            fields.insert("webhookTimestamp", (signing.now * 1000).into());
            call.body = fields.as_sent().json();
        }
        self.0.sign(signing, call)
    }

    fn shell(&self, secret: &str) -> Option<Shell> {
        let mut shell = self.0.shell(secret)?;
        shell.before = r#"B="${B%?},\"webhookTimestamp\":$(date +%s)000}"; "#.to_owned();
        Some(shell)
    }
}

/// Linear publishes no vector: the body is the one of the tests of its SDK.
/// <https://github.com/linear/linear/blob/master/packages/sdk/src/_tests/LinearWebhooks.test.ts>
#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "the call of Linear's own library, signed by OpenSSL",
    verify: r#""linear""#,
    headers: &[("Linear-Signature", "8790fcbbea809950be9198408593c2a13f7591bba6c61adb589f709b5e1b186a")],
    secret: "SECRET",
    body: include_bytes!("../../tests/senders/linear-comment.json"),
    timed: true,
    at: 1_677_611_643,
    ..super::Vector::UNTIMED
}];
