//! GitLab: the secret itself in `X-Gitlab-Token`, or, where the secret is a signing token (`whsec_…`), Standard
//! Webhooks. A token contains no time. <https://docs.gitlab.com/user/project/integrations/webhooks/>

use std::sync::Arc;

use super::standard::{self, SCHEME};
use super::{
    Claim, Delivery, EventName, MISSING, Outgoing, Pauses, Proof, Retries, Scheme, Sender, Shell, Signing,
    Unsigned, WRONG, fresh, one,
};
use crate::route::Head;
use crate::token::is_secret;

pub(super) static SENDER: Sender = Sender {
    name: "gitlab",
    example: "gitlab",
    headers: &["X-Gitlab-Token"],
    body_limit: crate::BODY_LIMIT,
    delivery: Delivery::Header("Idempotency-Key"),
    retries: Retries {
        waits: Some(10),
        pauses: Pauses::Unknown,
        failures: "disables the webhook for a while after 4 failures in a row, and for good after 40",
    },
    event: Some(EventName::Header("X-Gitlab-Event")),
    scheme: |_| Ok(Arc::new(Gitlab)),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

#[derive(Debug)]
struct Gitlab;

/// Returns whether a secret is a signing token. A call that only sends it as a token is rejected.
fn signs(secret: &str) -> bool {
    secret.starts_with(standard::PREFIX)
}

impl Scheme for Gitlab {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let token = one(&head.headers, "x-gitlab-token").map(|token| token.as_bytes().to_vec());
        match SCHEME.claim(head) {
            Some(claim) => Some(Claim { token, ..claim }),
            None => Some(Claim { token: Some(token?), ..Claim::default() }),
        }
    }

    fn admit(&self, claim: &Claim, secret: &str, now: u64) -> Result<Proof, Unsigned> {
        match (signs(secret), &claim.token) {
            (true, _) if !claim.signatures.is_empty() => fresh(claim.at, now).map(|()| Proof::Body),
            (false, Some(token)) if is_secret(token, secret) => Ok(Proof::Sender),
            (false, Some(_)) => Err(WRONG),
            _ => Err(MISSING),
        }
    }

    fn key(&self, secret: &str) -> Vec<u8> {
        SCHEME.key(secret)
    }

    fn unusable(&self, secret: &str) -> Option<&'static str> {
        SCHEME.unusable(secret)
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        if signs(signing.secret) {
            call.header("webhook-id", signing.id);
            return SCHEME.sign(signing, call);
        }
        call.header("X-Gitlab-Token", signing.secret);
        Ok(())
    }

    fn shell(&self, secret: &str) -> Option<Shell> {
        if signs(secret) {
            return SCHEME.shell(secret);
        }
        Some(Shell { headers: vec!["X-Gitlab-Token: $SECRET".to_owned()], ..Shell::default() })
    }
}

#[cfg(test)]
const VECTORS: &[super::Vector] = &[
    super::Vector {
        of: "a secret token",
        verify: r#""gitlab""#,
        headers: &[("X-Gitlab-Token", "a secret token")],
        secret: "a secret token",
        body: b"{}",
        proof: Proof::Sender,
        ..super::Vector::UNTIMED
    },
    super::Vector {
        of: "a signing token, with the vector Standard Webhooks publishes",
        verify: r#""gitlab""#,
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
];
