//! Standard Webhooks: `webhook-signature: v1,<base64> …` over `<id>.<time>.<body>`, with `webhook-id` and
//! `webhook-timestamp`. The secret is `whsec_` and base64.
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ring::hmac::HMAC_SHA256;

use super::hmac::{MOST, made};
use super::{
    Claim, Delivery, EventName, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, TIME, one, seconds,
};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "standard",
    example: "standard",
    headers: &WEBHOOK,
    delivery: Delivery::FirstOf(&["webhook-id", "svix-id"]),
    event: Some(EventName::Field("type")),
    scheme: |_| Ok(Arc::new(Standard(&[WEBHOOK, SVIX_NAMES]))),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// The prefix of a secret.
pub(super) const PREFIX: &str = "whsec_";

/// The names of the headers with the id, the time and the signature.
type Names = [&'static str; 3];

const WEBHOOK: Names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
/// The names of Svix, from which the standard was made.
const SVIX_NAMES: Names = ["svix-id", "svix-timestamp", "svix-signature"];

/// Svix, and what services on it send that are not named here.
/// <https://docs.svix.com/receiving/verifying-payloads/how-manual>
pub(super) static SVIX: Sender = of_svix("svix", BY_SVIX);
/// Clerk. <https://clerk.com/docs/guides/development/webhooks/overview>
pub(super) static CLERK: Sender = of_svix("clerk", BY_SVIX);
/// Resend. <https://resend.com/docs/dashboard/webhooks/verify-webhooks-requests>
pub(super) static RESEND: Sender = of_svix("resend", Retries { waits: None, failures: "", ..BY_SVIX });

const BY_SVIX: Retries = Retries {
    waits: Some(15),
    pauses: Pauses::After(&[5, 300, 1800, 7200, 18_000, 36_000, 36_000]),
    failures: "disables the endpoint after 5 days of failures",
};

const fn of_svix(name: &'static str, retries: Retries) -> Sender {
    Sender {
        name,
        example: name,
        headers: &SVIX_NAMES,
        delivery: Delivery::Header("svix-id"),
        retries,
        event: Some(EventName::Field("type")),
        scheme: |_| Ok(Arc::new(Standard(&[SVIX_NAMES]))),
        #[cfg(test)]
        vectors: match name.as_bytes() {
            b"svix" => &[super::Vector { verify: r#""svix""#, ..OF_SVIX }],
            b"clerk" => &[super::Vector { verify: r#""clerk""#, ..OF_SVIX }],
            _ => &[super::Vector { verify: r#""resend""#, ..OF_SVIX }],
        },
        ..Sender::PLAIN
    }
}

/// The scheme with the headers of the standard.
pub(super) const SCHEME: Standard = Standard(&[WEBHOOK]);

/// The headers that a call may have. The first id that it has decides which of them count.
#[derive(Debug)]
pub(super) struct Standard(&'static [Names]);

impl Standard {
    /// The headers that calls of this program have.
    fn own(&self) -> &Names {
        self.0.first().unwrap_or(&WEBHOOK)
    }
}

impl Scheme for Standard {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let headers = &head.headers;
        let [id, time, signature] = self.0.iter().find(|[id, ..]| headers.contains_key(*id))?;
        let (id, time) = (one(headers, id)?, one(headers, time)?);
        let signatures: Vec<Vec<u8>> = one(headers, signature)?
            .split(' ')
            .filter_map(|signature| signature.strip_prefix("v1,"))
            .take(MOST)
            .filter_map(|signature| STANDARD.decode(signature).ok())
            .collect();
        if id.is_empty() || signatures.is_empty() {
            return None;
        }
        Some(Claim {
            at: Some(seconds(time)?),
            prefix: format!("{id}.{time}.").into_bytes(),
            signatures,
            ..Claim::default()
        })
    }

    fn key(&self, secret: &str) -> Vec<u8> {
        key(secret)
    }

    fn unusable(&self, secret: &str) -> Option<&'static str> {
        unusable(secret)
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        signature(signing, call, self.own());
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        // Not every `base64` decodes without padding, or with too much of it.
        let key = "S=$(printf %s \"${SECRET#whsec_}\" | tr -d = | tr _- /+); \
                   while [ $((${#S} % 4)) -ne 0 ]; do S=$S=; done; \
                   K=$(printf %s \"$S\" | base64 -d | od -An -vtx1 | tr -d ' \\n'); ";
        let [id, time, header] = self.own();
        let signature =
            "printf %s \"test.$T.$B\" | openssl dgst -sha256 -mac HMAC -macopt hexkey:$K -binary | base64";
        Some(Shell {
            before: TIME.to_owned() + key,
            headers: vec![
                format!("{id}: test"),
                format!("{time}: $T"),
                format!("{header}: v1,$({signature})"),
            ],
            ..Shell::default()
        })
    }
}

/// What follows the prefix, in either alphabet of base64, with its padding or without: senders show secrets in each form.
fn decoded(encoded: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let decode = |alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(encoded);
    decode(&alphabet::STANDARD).or_else(|_| decode(&alphabet::URL_SAFE)).ok().filter(|key| !key.is_empty())
}

/// A secret without the prefix that is not base64 is used as the key. An empty key would be public.
fn key(secret: &str) -> Vec<u8> {
    let key = match secret.strip_prefix(PREFIX) {
        Some(encoded) => decoded(encoded),
        None => STANDARD.decode(secret).ok().filter(|key| !key.is_empty()),
    };
    key.unwrap_or_else(|| secret.as_bytes().to_vec())
}

/// Returns why no sender signs with a secret.
pub(super) fn unusable(secret: &str) -> Option<&'static str> {
    let encoded = secret.strip_prefix(PREFIX)?;
    decoded(encoded).is_none().then_some("has no base64 after whsec_; copy it again from the sender")
}

/// Adds the headers of a message with this id.
pub(crate) fn sign(signing: &Signing<'_>, call: &mut Outgoing) {
    call.header("webhook-id", signing.id);
    signature(signing, call, &WEBHOOK);
}

/// Adds the time and the signature to a message that has its id.
fn signature(signing: &Signing<'_>, call: &mut Outgoing, names: &Names) {
    let [_, time, header] = *names;
    let prefix = format!("{}.{}.", signing.id, signing.now);
    let parts = [prefix.as_bytes(), call.body.as_bytes()];
    let signature = STANDARD.encode(made(HMAC_SHA256, &key(signing.secret), &parts));
    call.header(time, signing.now.to_string());
    call.header(header, format!("v1,{signature}"));
}

/// The vector of the standard under the names of Svix.
#[cfg(test)]
const OF_SVIX: super::Vector = super::Vector {
    of: "a call with the headers of Svix, signed by Python",
    headers: &[
        ("svix-id", "msg_1"),
        ("svix-timestamp", "1767225600"),
        ("svix-signature", "v1,MgWFne15WWJHTnUUqZMUc3f96hc4PhK14TVn9c7r06g="),
    ],
    secret: "whsec_dHdlbnR5LWZvdXIgYnl0ZXMgb2Yga2V5",
    body: br#"{"type":"user.created","data":{"id":"U-1"}}"#,
    timed: true,
    at: 1_767_225_600,
    ..super::Vector::UNTIMED
};

#[cfg(test)]
const VECTORS: &[super::Vector] = &[
    super::Vector {
        of: "the vector Standard Webhooks publishes",
        verify: r#""standard""#,
        headers: &[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ],
        secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        body: br#"{"test": 2432232314}"#,
        timed: true,
        at: 1_614_265_330,
        ..super::Vector::UNTIMED
    },
    super::Vector {
        of: "the same without the prefix of the secret, and with other signatures beside it",
        verify: r#""standard""#,
        headers: &[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1a,AAAA v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ],
        secret: "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        body: br#"{"test": 2432232314}"#,
        timed: true,
        at: 1_614_265_330,
        ..super::Vector::UNTIMED
    },
    super::Vector { verify: r#""standard""#, ..OF_SVIX },
];
