//! Telegram: the secret itself in `X-Telegram-Bot-Api-Secret-Token`, as `setWebhook` set it.
//! <https://core.telegram.org/bots/api#setwebhook>

use std::sync::Arc;

use ostler_contract::protocol::surrogates::read_json;
use serde::Deserialize;

#[cfg(test)]
use super::{BODY, MADE};
use super::{
    Claim, Delivery, MISSING, Outgoing, Pauses, Proof, Retries, Scheme, Sender, Shell, Signing, Success,
    Unsigned, WRONG, one,
};
use crate::route::Head;
use crate::token::is_secret;

const HEADER: &str = "X-Telegram-Bot-Api-Secret-Token";

pub(super) static SENDER: Sender = Sender {
    name: "telegram",
    example: "telegram",
    headers: &[HEADER],
    delivery: Delivery::Body(update_id),
    // It reads the body of an answer as a call of its API.
    success: Success::Empty,
    retries: Retries { waits: None, pauses: Pauses::Within(0, 86400), failures: "" },
    scheme: |_| Ok(Arc::new(Telegram)),
    #[cfg(test)]
    vectors: &[super::Vector {
        of: "a secret token",
        verify: r#""telegram""#,
        headers: &[(HEADER, "it-is_a_secret")],
        secret: "it-is_a_secret",
        body: BODY,
        is_covered: false,
        ..MADE
    }],
    ..Sender::PLAIN
};

#[derive(Debug)]
struct Telegram;

impl Scheme for Telegram {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let token = one(&head.headers, HEADER)?.as_bytes().to_vec();
        Some(Claim { token: Some(token), ..Claim::default() })
    }

    fn admit(&self, claim: &Claim, secret: &str, _: u64) -> Result<Proof, Unsigned> {
        let token = claim.token.as_ref().ok_or(MISSING)?;
        // The id of a delivery is in the body.
        if is_secret(token, secret) { Ok(Proof::Body) } else { Err(WRONG) }
    }

    fn check(&self, _: &Claim, _: &str, _: &[u8], _: u64) -> Result<(), Unsigned> {
        Ok(())
    }

    fn unusable(&self, secret: &str) -> Option<&'static str> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let good = (1..=256).contains(&secret.len()) && secret.bytes().all(is_token);
        (!good).then_some("is not what Telegram takes as a secret token: 1 to 256 letters, digits, - and _")
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        call.header(HEADER, signing.secret);
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        Some(Shell { headers: vec![format!("{HEADER}: $SECRET")], ..Shell::default() })
    }
}

fn update_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Update {
        update_id: u64,
    }
    read_json::<Update>(body).ok().map(|update| update.update_id.to_string())
}
