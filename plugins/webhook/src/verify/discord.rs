//! Discord: `X-Signature-Ed25519: <hex>` over `<time><body>`, the time being `X-Signature-Timestamp`. The secret is the
//! application's public key in hex.
//! <https://docs.discord.com/developers/interactions/overview#validating-security-request-headers>

use std::sync::Arc;

use ostler_contract::json;
use ostler_contract::protocol::surrogates::{KeyText, read_json};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{
    Claim, Delivery, Greeting, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, Unsigned, WRONG,
    from_hex, one, seconds,
};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "discord",
    example: "discord",
    headers: &["X-Signature-Ed25519", "X-Signature-Timestamp"],
    delivery: Delivery::Body(interaction_id),
    retries: Retries { waits: Some(3), pauses: Pauses::Unknown, failures: "" },
    scheme: |_| Ok(Arc::new(Discord)),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

#[derive(Debug)]
struct Discord;

impl Scheme for Discord {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let time = one(&head.headers, "x-signature-timestamp")?;
        let signature = from_hex(one(&head.headers, "x-signature-ed25519")?, 64)?;
        Some(Claim {
            at: Some(seconds(time)?),
            prefix: time.as_bytes().to_vec(),
            signatures: vec![signature],
            ..Claim::default()
        })
    }

    fn unusable(&self, secret: &str) -> Option<&'static str> {
        let good = from_hex(secret, 32).is_some();
        (!good).then_some("is not the public key of a Discord application, 64 hexadecimal digits")
    }

    fn check(&self, claim: &Claim, secret: &str, body: &[u8], _: u64) -> Result<(), Unsigned> {
        let key = UnparsedPublicKey::new(&ED25519, from_hex(secret, 32).ok_or(WRONG)?);
        let signed = [&claim.prefix, body].concat();
        let signature = claim.signatures.first().ok_or(WRONG)?;
        key.verify(&signed, signature).map_err(|_| WRONG)
    }

    /// Discord sends a ping of either kind to a new URL: one for interactions, one for events.
    fn greeting(&self, _: &Head, body: &[u8]) -> Option<Greeting> {
        #[derive(Deserialize)]
        struct Call {
            r#type: u8,
            event: Option<IgnoredAny>,
        }
        let call: Call = read_json(body).ok()?;
        match call.r#type {
            0 => Some(Greeting::Empty),
            1 if call.event.is_none() => Some(Greeting::Json(json!({ "type": 1 }))),
            _ => None,
        }
    }

    fn sign(&self, _: &Signing<'_>, _: &mut Outgoing) -> Result<(), String> {
        Err("only Discord can sign a call: the secret is the public half of its key".to_owned())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        None
    }
}

fn interaction_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Interaction {
        id: KeyText,
    }
    read_json::<Interaction>(body).ok().map(|interaction| interaction.id.0)
}

/// Discord publishes no vector.
#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "a call as Discord describes it, signed by OpenSSL",
    verify: r#""discord""#,
    headers: &[
        (
            "X-Signature-Ed25519",
            "09c344ada5d528c4547d066a4849b218ce19715d504df223d12f63c997d945df\
             92bd99afb96b0b924ac16389c9efca443626328015570c796a7c1aca4fa8af0d",
        ),
        ("X-Signature-Timestamp", "1700000000"),
    ],
    secret: "b0caec79cb5f39098803706ec81d863ae76a974fce4f6e33226c9ddfdbb406fc",
    body: br#"{"id":"1","application_id":"2","type":2,"token":"t","version":1,"data":{"id":"3","name":"deploy","type":1}}"#,
    timed: true,
    at: 1_700_000_000,
    ..super::Vector::UNTIMED
}];
