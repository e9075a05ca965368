//! Twitch EventSub: `Twitch-Eventsub-Message-Signature: sha256=<hex>` over the id, the time and the body.
//! <https://dev.twitch.tv/docs/eventsub/handling-webhook-events/>

use std::sync::Arc;

use ostler_contract::protocol::surrogates::read_json;
use ring::hmac::HMAC_SHA256;
use serde::Deserialize;

use super::hmac::{Encoding, made, shell_made};
#[cfg(test)]
use super::{BODY, MADE};
use super::{
    Claim, Delivery, EventName, Greeting, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, TIME,
    from_hex, is_token, one, seconds_of,
};
use crate::route::Head;

const ID: &str = "Twitch-Eventsub-Message-Id";
const AT: &str = "Twitch-Eventsub-Message-Timestamp";
const SIGNATURE: &str = "Twitch-Eventsub-Message-Signature";

pub(super) static SENDER: Sender = Sender {
    name: "twitch",
    example: "twitch",
    headers: &[SIGNATURE, ID, AT],
    delivery: Delivery::Header(ID),
    // It repeats a call for some minutes with the time of the first one, and asks to refuse older ones.
    window: 600,
    retries: Retries { waits: None, pauses: Pauses::Unknown, failures: "revokes the subscription" },
    event: Some(EventName::Header("Twitch-Eventsub-Subscription-Type")),
    scheme: |_| Ok(Arc::new(Twitch)),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""twitch""#,
        headers: &[
            (SIGNATURE, "sha256=e5977716df0a91fb7bad8829d33cc393df5b34a038572c2574f0f02df0a0b991"),
            (ID, "msg-1"),
            (AT, "2023-11-14T22:13:20Z"),
        ],
        body: BODY,
        timed: true,
        ..MADE
    }],
    ..Sender::PLAIN
};

#[derive(Debug)]
struct Twitch;

impl Scheme for Twitch {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let headers = &head.headers;
        let (id, time) = (one(headers, ID)?, one(headers, AT)?);
        let signature = from_hex(one(headers, SIGNATURE)?.strip_prefix("sha256=")?, 32)?;
        Some(Claim {
            at: Some(seconds_of(time)?),
            prefix: format!("{id}{time}").into_bytes(),
            signatures: vec![signature],
            ..Claim::default()
        })
    }

    fn window(&self) -> u64 {
        SENDER.window
    }

    /// The challenge of a new subscription is sent back.
    fn greeting(&self, head: &Head, body: &[u8]) -> Option<Greeting> {
        #[derive(Deserialize)]
        struct Call {
            challenge: String,
        }
        let kind = head.headers.get("twitch-eventsub-message-type")?;
        if kind != "webhook_callback_verification" {
            return None;
        }
        let Call { challenge } = read_json(body).ok()?;
        is_token(&challenge).then_some(Greeting::Text(challenge))
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let time = signing.now.to_string();
        let parts = [signing.id.as_bytes(), time.as_bytes(), call.body.as_bytes()];
        let signature = hex::encode(made(HMAC_SHA256, &self.key(signing.secret), &parts));
        call.header(AT, time);
        call.header(SIGNATURE, format!("sha256={signature}"));
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let signature = shell_made("sha256", Encoding::Hex, "test${T}$B");
        Some(Shell {
            before: TIME.to_owned(),
            headers: vec![
                format!("{SIGNATURE}: sha256={signature}"),
                format!("{ID}: test"),
                format!("{AT}: $T"),
            ],
            ..Shell::default()
        })
    }
}
