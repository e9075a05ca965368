//! SendGrid: an ECDSA signature over the time and the body. The secret is the verification key that SendGrid shows, a public
//! key in base64. A body is a list of events.
//! <https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features>

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

use super::{
    Claim, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, Unsigned, WRONG, one, seconds,
};
use crate::route::Head;

const SIGNATURE: &str = "X-Twilio-Email-Event-Webhook-Signature";
const AT: &str = "X-Twilio-Email-Event-Webhook-Timestamp";

pub(super) static SENDER: Sender = Sender {
    name: "sendgrid",
    example: "sendgrid",
    headers: &[SIGNATURE, AT],
    retries: Retries { waits: None, pauses: Pauses::Within(0, 86400), failures: "" },
    scheme: |_| Ok(Arc::new(SendGrid)),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// What a key of P-256 begins with in DER, before its point.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The length of a point that is not compressed.
const POINT: usize = 65;

fn point(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret).ok()?;
    let point = key.strip_prefix(&P256)?;
    (point.len() == POINT && point.first() == Some(&4)).then(|| point.to_vec())
}

#[derive(Debug)]
struct SendGrid;

impl Scheme for SendGrid {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let time = one(&head.headers, AT)?;
        let signature = STANDARD.decode(one(&head.headers, SIGNATURE)?).ok()?;
        Some(Claim {
            at: Some(seconds(time)?),
            prefix: time.as_bytes().to_vec(),
            signatures: vec![signature],
            ..Claim::default()
        })
    }

    fn unusable(&self, secret: &str) -> Option<&'static str> {
        point(secret)
            .is_none()
            .then_some("is not the verification key that SendGrid shows, a public key in base64")
    }

    fn check(&self, claim: &Claim, secret: &str, body: &[u8], _: u64) -> Result<(), Unsigned> {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point(secret).ok_or(WRONG)?);
        let signed = [&claim.prefix, body].concat();
        let signature = claim.signatures.first().ok_or(WRONG)?;
        key.verify(&signed, signature).map_err(|_| WRONG)
    }

    fn sign(&self, _: &Signing<'_>, _: &mut Outgoing) -> Result<(), String> {
        Err("only SendGrid can sign a call; send one from its settings".to_owned())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        None
    }
}

/// <https://github.com/sendgrid/sendgrid-nodejs/blob/main/packages/eventwebhook/src/eventwebhook.spec.js>
#[cfg(test)]
const VECTORS: &[super::Vector] = &[super::Vector {
    of: "the vector of SendGrid's own library",
    verify: r#""sendgrid""#,
    headers: &[
        (
            SIGNATURE,
            "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=",
        ),
        (AT, "1600112502"),
    ],
    secret: "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==",
    body: include_bytes!("../../tests/senders/sendgrid-dropped.json"),
    timed: true,
    at: 1_600_112_502,
    ..super::Vector::UNTIMED
}];
