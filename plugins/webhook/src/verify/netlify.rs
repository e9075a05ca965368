//! Netlify: `X-Webhook-Signature: <JWS>`, a JSON Web Signature (HS256) whose payload has the hash of the body.
//! <https://docs.netlify.com/deploy/deploy-notifications/#payload-signature>

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ostler_contract::json;
use ostler_contract::protocol::surrogates::read_json;
use ring::hmac::HMAC_SHA256;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::hmac::made;
#[cfg(test)]
use super::{BODY, MADE};
use super::{
    Claim, EventName, MISSING, Outgoing, Scheme, Sender, Shell, Signing, Unsigned, WRONG, from_hex, one,
};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "netlify",
    example: "netlify",
    headers: &["X-Webhook-Signature"],
    event: Some(EventName::Header("X-Netlify-Event")),
    scheme: |_| Ok(Arc::new(Netlify)),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""netlify""#,
        headers: &[(
            "X-Webhook-Signature",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJuZXRsaWZ5Iiwic2hhMjU2IjoiNjRhZmE2MjcwZDkzMGZkM2ZjYTQ1OTRjZTUwNGEzYWJjMGZlZmQ3YzQzOTMzYjhjZWFmNTg3MjZiYmFhYjZkMCJ9.iMRpRi9nmNDBfxtfHDsQrYZQIoTgBfC25KBBebSgub0",
        )],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// The only header that is accepted: the algorithm is not chosen by the caller.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

#[derive(Debug)]
struct Netlify;

#[derive(Deserialize)]
struct Header {
    alg: String,
}

#[derive(Deserialize)]
struct Payload {
    iss: String,
    sha256: String,
}

impl Scheme for Netlify {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let (signed, signature) = one(&head.headers, "x-webhook-signature")?.rsplit_once('.')?;
        let (header, _) = signed.split_once('.')?;
        let header: Header = read_json(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.alg != "HS256" {
            return None;
        }
        let signatures = vec![URL_SAFE_NO_PAD.decode(signature).ok()?];
        Some(Claim { prefix: signed.as_bytes().to_vec(), signatures, ..Claim::default() })
    }

    /// The hash is trusted only after the signature.
    fn check(&self, claim: &Claim, secret: &str, body: &[u8], _: u64) -> Result<(), Unsigned> {
        claim.is_one_of(&[made(HMAC_SHA256, secret.as_bytes(), &[&claim.prefix])])?;
        let payload = claim.prefix.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| MISSING)?;
        let payload: Payload = read_json(&payload).map_err(|_| MISSING)?;
        let hash = from_hex(&payload.sha256, 32).filter(|_| payload.iss == "netlify").ok_or(MISSING)?;
        let is_same: bool = hash.ct_eq(Sha256::digest(body).as_slice()).into();
        if is_same { Ok(()) } else { Err(WRONG) }
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let payload =
            json!({ "iss": "netlify", "sha256": hex::encode(Sha256::digest(call.body.as_bytes())) });
        let [header, payload] =
            [HEADER.to_owned(), payload.to_string()].map(|part| URL_SAFE_NO_PAD.encode(part));
        let signed = format!("{header}.{payload}");
        let signature = made(HMAC_SHA256, signing.secret.as_bytes(), &[signed.as_bytes()]);
        call.header("X-Webhook-Signature", format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)));
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let url_safe = "openssl base64 -A | tr '+/' '-_' | tr -d =";
        let before = format!(
            "P={}.$(printf '{{\"iss\":\"netlify\",\"sha256\":\"%s\"}}' \"$(printf %s \"$B\" | openssl dgst -sha256 -r | cut -d' ' -f1)\" | {url_safe}); ",
            URL_SAFE_NO_PAD.encode(HEADER)
        );
        let signature =
            format!("$(printf %s \"$P\" | openssl dgst -sha256 -hmac \"$SECRET\" -binary | {url_safe})");
        Some(Shell {
            before,
            headers: vec![format!("X-Webhook-Signature: $P.{signature}")],
            ..Shell::default()
        })
    }
}
