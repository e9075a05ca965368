//! Senders that sign the URL that they call together with the body. The record names it, because what stands in front of the
//! host may change it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::JsonObject;
use ostler_contract::http::Method;
use ostler_contract::protocol::surrogates::{KeyText, read_json};
use ring::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256};
use serde::Deserialize;
use url::Url;

use super::hmac::{Encoding, made, shell_made};
#[cfg(test)]
use super::{BODY, MADE};
use super::{
    Claim, Delivery, EventName, Greeting, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, Success,
    TIME, Unsigned, body_event_id, one, seconds,
};
use crate::route::Head;

/// Trello. The secret is that of the application.
/// <https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks/>
pub(super) static TRELLO: Sender = Sender {
    name: "trello",
    example: "{ scheme: trello, url: https://hooks.example/plugins/webhook/board }",
    headers: &["X-Trello-Webhook"],
    delivery: Delivery::Body(action_id),
    fields: &["url"],
    success: Success::Ok,
    handshake: trello_check,
    retries: Retries { waits: None, pauses: Pauses::After(&[30, 60, 120]), failures: "" },
    event: Some(EventName::Field("action.type")),
    scheme: |fields| Ok(Arc::new(SignedUrl::read(fields, "trello", "Trello", Form::Trello)?)),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#"{ "scheme": "trello", "url": "https://hooks.example/plugins/webhook/in" }"#,
        headers: &[("X-Trello-Webhook", "NgK0fWAqN4XKnKU/BprWHJAp4ds=")],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Square.
/// <https://developer.squareup.com/docs/webhooks/step3validate>
pub(super) static SQUARE: Sender = Sender {
    name: "square",
    example: "{ scheme: square, url: https://hooks.example/plugins/webhook/shop }",
    headers: &["x-square-hmacsha256-signature"],
    delivery: Delivery::Body(body_event_id),
    fields: &["url"],
    retries: Retries { waits: Some(10), pauses: Pauses::Within(11, 86400), failures: "" },
    event: Some(EventName::Field("type")),
    scheme: |fields| Ok(Arc::new(SignedUrl::read(fields, "square", "Square", Form::Square)?)),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#"{ "scheme": "square", "url": "https://hooks.example/plugins/webhook/in" }"#,
        headers: &[("x-square-hmacsha256-signature", "Qc8Iu89uheu56QIfle5L8hMHNSDEQMWN+L1eLCy9KK4=")],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// HubSpot, in version 3 of its signature. The secret is that of the app. A body is a list of events.
/// <https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests>
pub(super) static HUBSPOT: Sender = Sender {
    name: "hubspot",
    example: "{ scheme: hubspot, url: https://hooks.example/plugins/webhook/crm }",
    headers: &["X-HubSpot-Signature-v3", "X-HubSpot-Request-Timestamp"],
    fields: &["url"],
    retries: Retries { waits: Some(5), pauses: Pauses::Within(10, 86400), failures: "" },
    scheme: |fields| Ok(Arc::new(SignedUrl::read(fields, "hubspot", "HubSpot", Form::HubSpot)?)),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#"{ "scheme": "hubspot", "url": "https://hooks.example/plugins/webhook/in" }"#,
        headers: &[
            ("X-HubSpot-Signature-v3", "MN8V0mb8p+tspv8z6jP14tLwvWvUJ+3qUXYS+keDKy8="),
            ("X-HubSpot-Request-Timestamp", "1700000000000"),
        ],
        body: BODY,
        timed: true,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// What is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Body and URL, with SHA-1.
    Trello,
    /// URL and body.
    Square,
    /// Method, URL, body and time.
    HubSpot,
}

/// An HMAC in base64 over the URL and the body.
#[derive(Debug)]
struct SignedUrl {
    url: String,
    form: Form,
}

impl SignedUrl {
    fn read(fields: &JsonObject, name: &str, service: &str, form: Form) -> Result<Self, String> {
        let url = fields.get("url").and_then(|url| url.as_str()).unwrap_or_default();
        // It is also used in a command line.
        let is_plain = !url.contains(['"', '$', '`', '\\']);
        let good =
            Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        match good && is_plain {
            true => Ok(Self { url: url.to_owned(), form }),
            false => Err(format!(
                "verify {name} must have the url that {service} calls, https://…: {{ scheme: {name}, url: … }}"
            )),
        }
    }

    fn header(&self) -> &'static str {
        match self.form {
            Form::Trello => TRELLO.headers[0],
            Form::Square => SQUARE.headers[0],
            Form::HubSpot => HUBSPOT.headers[0],
        }
    }

    /// The signature of a body and, where it is signed, a time.
    fn made(&self, secret: &str, body: &[u8], time: &[u8]) -> Vec<u8> {
        let (secret, url) = (secret.as_bytes(), self.url.as_bytes());
        match self.form {
            Form::Trello => made(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret, &[body, url]),
            Form::Square => made(HMAC_SHA256, secret, &[url, body]),
            Form::HubSpot => made(HMAC_SHA256, secret, &[b"POST", url, body, time]),
        }
    }
}

impl Scheme for SignedUrl {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let signature = STANDARD.decode(one(&head.headers, self.header())?).ok()?;
        let signatures = vec![signature];
        if self.form != Form::HubSpot {
            return Some(Claim { signatures, ..Claim::default() });
        }
        let time = one(&head.headers, HUBSPOT.headers[1])?;
        Some(Claim {
            // In milliseconds.
            at: Some(seconds(time)? / 1000),
            prefix: time.as_bytes().to_vec(),
            signatures,
            ..Claim::default()
        })
    }

    fn check(&self, claim: &Claim, secret: &str, body: &[u8], _: u64) -> Result<(), Unsigned> {
        claim.is_one_of(&[self.made(secret, body, &claim.prefix)])
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let time = format!("{}000", signing.now);
        let signature = self.made(signing.secret, call.body.as_bytes(), time.as_bytes());
        call.header(self.header(), STANDARD.encode(signature));
        if self.form == Form::HubSpot {
            call.header(HUBSPOT.headers[1], time);
        }
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let url = &self.url;
        let (algorithm, over) = match self.form {
            Form::Trello => ("sha1", format!("${{B}}{url}")),
            Form::Square => ("sha256", format!("{url}$B")),
            Form::HubSpot => ("sha256", format!("POST{url}${{B}}${{T}}000")),
        };
        let signature = shell_made(algorithm, Encoding::Base64, &over);
        let mut shell =
            Shell { headers: vec![format!("{}: {signature}", self.header())], ..Shell::default() };
        if self.form == Form::HubSpot {
            shell.before = TIME.to_owned();
            shell.headers.push(format!("{}: ${{T}}000", HUBSPOT.headers[1]));
        }
        Some(shell)
    }
}

/// Trello asks with `HEAD` before it adds a webhook.
fn trello_check(method: &Method, _: &Head) -> Option<Greeting> {
    (method == Method::HEAD).then(|| Greeting::Text(String::new()))
}

fn action_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Call {
        action: Action,
    }
    #[derive(Deserialize)]
    struct Action {
        id: KeyText,
    }
    read_json::<Call>(body).ok().map(|call| call.action.id.0)
}
