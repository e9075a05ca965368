//! Senders whose proof is in the body, and does not cover it: anyone who has seen a call can send another body with its proof.

use std::fmt;
use std::sync::Arc;

use ostler_contract::Value;
use ostler_contract::http::Method;
use ostler_contract::protocol::sent::SentObject;
use ostler_contract::protocol::surrogates::{KeyText, read_json};
use ring::hmac::HMAC_SHA256;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use url::form_urlencoded;

#[cfg(test)]
use super::MADE;
use super::hmac::{Encoding, made, shell_made};
use super::{
    Claim, Delivery, EventName, Greeting, MISSING, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing,
    Success, TIME, Unsigned, WRONG, from_hex, recent, seconds,
};
use crate::byte_order_mark::text_of;
use crate::route::Head;
use crate::token::is_secret;

/// Mailgun: an HMAC of a time and a token, all three in the body. The secret is the HTTP webhook signing key.
/// <https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks>
pub(super) static MAILGUN: Sender = Sender {
    name: "mailgun",
    example: "mailgun",
    delivery: Delivery::Body(signed_token),
    success: Success::Ok,
    // It repeats a failed delivery for eight hours, with the time and the signature of the first one.
    window: 9 * 3600,
    retries: Retries { waits: None, pauses: Pauses::After(&[300, 600, 900, 3600, 7200, 14400]), failures: "" },
    event: Some(EventName::Field("event-data.event")),
    scheme: |_| Ok(Arc::new(Mailgun)),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""mailgun""#,
        body: br#"{"signature":{"timestamp":"1700000000","token":"tok","signature":"98c1946c7ba927d01c73099d61e6aafabe3ea7852abedea9b2dd88cca7423466"},"event-data":{"id":"6"}}"#,
        timed: true,
        is_covered: false,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Microsoft Graph: `clientState` of each notification is the secret.
/// <https://learn.microsoft.com/en-us/graph/change-notifications-delivery-webhooks>
pub(super) static MICROSOFT_GRAPH: Sender = Sender {
    name: "microsoft-graph",
    example: "microsoft-graph",
    body_limit: 4 << 20,
    handshake: graph_check,
    retries: Retries {
        waits: Some(10),
        pauses: Pauses::Within(0, 14400),
        failures: "delays or drops notifications of a slow endpoint",
    },
    scheme: |_| Ok(Arc::new(MicrosoftGraph)),
    #[cfg(test)]
    vectors: &[super::Vector {
        of: "a notification as the documentation shows it",
        verify: r#""microsoft-graph""#,
        body: br#"{"value":[{"clientState":"it is a secret","changeType":"created"}]}"#,
        is_covered: false,
        ..MADE
    }],
    ..Sender::PLAIN
};

#[derive(Debug)]
struct Mailgun;

#[derive(Deserialize)]
struct SignedByMailgun {
    signature: MailgunSignature,
}

#[derive(Deserialize)]
struct MailgunSignature {
    timestamp: String,
    token: String,
    signature: String,
}

impl Scheme for Mailgun {
    fn claim(&self, _: &Head) -> Option<Claim> {
        Some(Claim::default())
    }

    fn check(&self, _: &Claim, secret: &str, body: &[u8], now: u64) -> Result<(), Unsigned> {
        let signed: SignedByMailgun = read_json(text_of(body)).map_err(|_| MISSING)?;
        let MailgunSignature { timestamp, token, signature } = signed.signature;
        let claim = Claim { signatures: vec![from_hex(&signature, 32).ok_or(MISSING)?], ..Claim::default() };
        let at = seconds(&timestamp).ok_or(MISSING)?;
        claim.is_one_of(&[made(
            HMAC_SHA256,
            secret.as_bytes(),
            &[timestamp.as_bytes(), token.as_bytes()],
        )])?;
        recent(at, now, MAILGUN.window)
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let mut fields = SentObject::read(call.body.as_bytes())
            .map_err(|_| "the body must be a JSON object".to_owned())?;
        let timestamp = signing.now.to_string();
        let (token, key) = (signing.id, signing.secret.as_bytes());
        let made = made(HMAC_SHA256, key, &[timestamp.as_bytes(), token.as_bytes()]);
        let signature = ostler_contract::json!({ "timestamp": timestamp, "token": token, "signature": hex::encode(made) });
        fields.insert("signature", signature);
        call.body = fields.as_sent().json();
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let made = shell_made("sha256", Encoding::Hex, "${T}t$T");
        let before = format!(
            "{TIME}S={made}; B=\"${{B%?}},\\\"signature\\\":{{\\\"timestamp\\\":\\\"$T\\\",\\\"token\\\":\\\"t$T\\\",\\\"signature\\\":\\\"$S\\\"}}}}\"; "
        );
        Some(Shell { before, ..Shell::default() })
    }
}

/// The token, and not the id of the event: only the token is signed.
fn signed_token(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Call {
        signature: Signature,
    }
    #[derive(Deserialize)]
    struct Signature {
        token: KeyText,
    }
    read_json::<Call>(body).ok().map(|call| call.signature.token.0)
}

#[derive(Debug)]
struct MicrosoftGraph;

/// Notifications that all have one state, which is kept once: anyone can send as many as a body holds.
#[derive(Deserialize)]
struct Notifications {
    value: OneState,
}

/// The state; `None` if one of them has none or another one.
struct OneState(Option<String>);

impl<'de> Deserialize<'de> for OneState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(StateVisitor)
    }
}

struct StateVisitor;

impl<'de> Visitor<'de> for StateVisitor {
    type Value = OneState;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of notifications")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut notifications: A) -> Result<OneState, A::Error> {
        let mut state: Option<String> = None;
        let mut is_one = true;
        while let Some(Notification { client_state }) = notifications.next_element()? {
            is_one &= client_state.is_some() && (state.is_none() || state == client_state);
            state = state.or(client_state);
        }
        Ok(OneState(state.filter(|_| is_one)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notification {
    client_state: Option<String>,
}

impl Scheme for MicrosoftGraph {
    fn claim(&self, _: &Head) -> Option<Claim> {
        Some(Claim::default())
    }

    fn check(&self, _: &Claim, secret: &str, body: &[u8], _: u64) -> Result<(), Unsigned> {
        let Notifications { value: OneState(state) } = read_json(text_of(body)).map_err(|_| MISSING)?;
        let state = state.ok_or(MISSING)?;
        if is_secret(state.as_bytes(), secret) { Ok(()) } else { Err(WRONG) }
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let mut fields = SentObject::read(call.body.as_bytes())
            .map_err(|_| "the body must be a JSON object".to_owned())?;
        if !fields.fields.contains_key("value") {
            fields.insert("value", ostler_contract::json!([{ "clientState": signing.secret }]));
        } else if let Some(notifications) = fields.fields.get("value").and_then(Value::as_array) {
            let mut notifications = notifications.clone();
            for one in notifications.iter_mut().filter_map(Value::as_object_mut) {
                one.insert("clientState".to_owned(), signing.secret.into());
            }
            fields.insert("value", notifications.into());
        }
        call.body = fields.as_sent().json();
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let before = "B=\"${B%?},\\\"value\\\":[{\\\"clientState\\\":\\\"$SECRET\\\"}]}\"; ".to_owned();
        Some(Shell { before, ..Shell::default() })
    }
}

/// The validation of an address: the decoded token is sent back as text.
fn graph_check(method: &Method, head: &Head) -> Option<Greeting> {
    let query = head.uri.query().filter(|_| method == Method::POST)?;
    let (_, token) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "validationToken")?;
    // Such as `Validation: Testing client application reachability for subscription Request-Id: 1`.
    let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_alphanumeric() || b"-_.~=+/:,".contains(&byte);
    let good = (1..=1024).contains(&token.len()) && token.bytes().all(is_plain);
    good.then(|| Greeting::Text(token.into_owned()))
}
