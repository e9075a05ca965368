//! Senders whose signature is an HMAC of the body, with a time before it or without, as [`Hmac`] describes it.

use std::borrow::Cow;
use std::sync::Arc;

use ostler_contract::http::Method;
use ostler_contract::protocol::surrogates::read_json;
use serde::Deserialize;

use super::hmac::{Encoding, Hmac, SHA1, Timestamp};
#[cfg(test)]
use super::{BODY, MADE};
use super::{
    Delivery, EventName, Greeting, Keyed, Pauses, Retries, Sender, Success, body_event_id, body_id, is_token,
    token_of,
};
use crate::route::Head;

/// Gitea, with the content type JSON: of a form it signs the JSON in it.
/// <https://docs.gitea.com/usage/webhooks>
pub(super) static GITEA: Sender = Sender {
    name: "gitea",
    example: "gitea",
    headers: &["X-Gitea-Signature"],
    delivery: Delivery::Header("X-Gitea-Delivery"),
    retries: Retries { waits: Some(5), pauses: Pauses::Never, failures: "" },
    event: Some(EventName::Header("X-Gitea-Event")),
    scheme: |_| Ok(Arc::new(Hmac::hex("X-Gitea-Signature", ""))),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""gitea""#,
        headers: &[("X-Gitea-Signature", "eb790d1a256ba34d8ec01ce731f2e8ababf3c0debdea672fd4ddb088f65491e2")],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Forgejo and Codeberg, with the content type JSON.
/// <https://forgejo.org/docs/latest/user/webhooks/>
pub(super) static FORGEJO: Sender = Sender {
    name: "forgejo",
    example: "forgejo",
    headers: &["X-Forgejo-Signature"],
    delivery: Delivery::Header("X-Forgejo-Delivery"),
    retries: Retries { waits: Some(5), pauses: Pauses::Never, failures: "" },
    event: Some(EventName::Header("X-Forgejo-Event")),
    scheme: |_| Ok(Arc::new(Hmac::hex("X-Forgejo-Signature", ""))),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""forgejo""#,
        headers: &[(
            "X-Forgejo-Signature",
            "eb790d1a256ba34d8ec01ce731f2e8ababf3c0debdea672fd4ddb088f65491e2",
        )],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Jira Cloud.
/// <https://developer.atlassian.com/cloud/jira/platform/webhooks/>
pub(super) static JIRA: Sender = Sender {
    name: "jira",
    example: "jira",
    headers: &["X-Hub-Signature"],
    delivery: Delivery::Header("X-Atlassian-Webhook-Identifier"),
    retries: Retries { waits: None, pauses: Pauses::Within(5, 4500), failures: "" },
    event: Some(EventName::Field("webhookEvent")),
    scheme: |_| Ok(Arc::new(Hmac::hex("X-Hub-Signature", "sha256="))),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""jira""#,
        headers: &[(
            "X-Hub-Signature",
            "sha256=eb790d1a256ba34d8ec01ce731f2e8ababf3c0debdea672fd4ddb088f65491e2",
        )],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// WhatsApp, Messenger and Instagram. The check of an address has the verify token that was chosen for it; any passes, because each
/// call is signed.
/// <https://developers.facebook.com/docs/graph-api/webhooks/getting-started>
pub(super) static META: Sender = Sender {
    name: "meta",
    example: "meta",
    headers: &["X-Hub-Signature-256"],
    success: Success::Ok,
    handshake: meta_check,
    retries: Retries { waits: None, pauses: Pauses::Within(0, 604800), failures: "" },
    event: Some(EventName::Field("object")),
    scheme: |_| Ok(Arc::new(Hmac::hex("X-Hub-Signature-256", "sha256="))),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""meta""#,
        headers: &[(
            "X-Hub-Signature-256",
            "sha256=eb790d1a256ba34d8ec01ce731f2e8ababf3c0debdea672fd4ddb088f65491e2",
        )],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Intercom, with the client secret of the app.
/// <https://developers.intercom.com/docs/webhooks/webhook-notifications>
pub(super) static INTERCOM: Sender = Sender {
    name: "intercom",
    example: "intercom",
    headers: &["X-Hub-Signature"],
    delivery: Delivery::Body(body_id),
    handshake: intercom_check,
    retries: Retries {
        waits: Some(5),
        pauses: Pauses::After(&[60]),
        failures: "pauses the webhook for 15 minutes, and ends it after 7 days",
    },
    event: Some(EventName::Field("topic")),
    scheme: |_| {
        Ok(Arc::new(Hmac {
            algorithm: SHA1,
            greeting: intercom_ping,
            ..Hmac::hex("X-Hub-Signature", "sha1=")
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""intercom""#,
        headers: &[("X-Hub-Signature", "sha1=73bcccc2b5764d511271c6aace64849879471592")],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Typeform.
/// <https://www.typeform.com/developers/webhooks/secure-your-webhooks/>
pub(super) static TYPEFORM: Sender = Sender {
    name: "typeform",
    example: "typeform",
    headers: &["Typeform-Signature"],
    delivery: Delivery::Body(body_event_id),
    retries: Retries { waits: Some(30), pauses: Pauses::Within(0, 36000), failures: "disables the webhook" },
    event: Some(EventName::Field("event_type")),
    scheme: |_| {
        Ok(Arc::new(Hmac { encoding: Encoding::Base64, ..Hmac::hex("Typeform-Signature", "sha256=") }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""typeform""#,
        headers: &[("Typeform-Signature", "sha256=63kNGiVro02OwBznMfLoq6vzwN696mcv1N2wiPZUkeI=")],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Vercel.
/// <https://vercel.com/docs/webhooks/webhooks-api#securing-webhooks>
pub(super) static VERCEL: Sender = Sender {
    name: "vercel",
    example: "vercel",
    headers: &["x-vercel-signature"],
    delivery: Delivery::Body(body_id),
    retries: Retries { waits: None, pauses: Pauses::Within(0, 86400), failures: "" },
    event: Some(EventName::Field("type")),
    scheme: |_| Ok(Arc::new(Hmac { algorithm: SHA1, ..Hmac::hex("x-vercel-signature", "") })),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""vercel""#,
        headers: &[("x-vercel-signature", "73bcccc2b5764d511271c6aace64849879471592")],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Dropbox, which says only whose files changed.
/// <https://www.dropbox.com/developers/reference/webhooks>
pub(super) static DROPBOX: Sender = Sender {
    name: "dropbox",
    example: "dropbox",
    headers: &["X-Dropbox-Signature"],
    success: Success::Ok,
    handshake: dropbox_check,
    retries: Retries { waits: Some(10), pauses: Pauses::Unknown, failures: "disables the webhook" },
    scheme: |_| Ok(Arc::new(Hmac::hex("X-Dropbox-Signature", ""))),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""dropbox""#,
        headers: &[(
            "X-Dropbox-Signature",
            "eb790d1a256ba34d8ec01ce731f2e8ababf3c0debdea672fd4ddb088f65491e2",
        )],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// X, whose checks of an address come once an hour.
/// <https://docs.x.com/x-api/webhooks/introduction>
pub(super) static X: Sender = Sender {
    name: "x",
    example: "x",
    headers: &["x-twitter-webhooks-signature"],
    success: Success::Ok,
    handshake: x_check,
    retries: Retries { waits: Some(3), pauses: Pauses::Within(3, 300), failures: "" },
    scheme: |_| {
        Ok(Arc::new(Hmac {
            encoding: Encoding::Base64,
            // Its checks have a token signed that anyone can choose.
            is_of_objects: true,
            ..Hmac::hex("x-twitter-webhooks-signature", "sha256=")
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""x""#,
        headers: &[("x-twitter-webhooks-signature", "sha256=63kNGiVro02OwBznMfLoq6vzwN696mcv1N2wiPZUkeI=")],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Zoom, with the secret token of the app.
/// <https://developers.zoom.us/docs/api/webhooks/#verify-webhook-events>
pub(super) static ZOOM: Sender = Sender {
    name: "zoom",
    example: "zoom",
    headers: &["x-zm-signature", "x-zm-request-timestamp"],
    success: Success::Ok,
    retries: Retries { waits: Some(3), pauses: Pauses::After(&[300, 1200, 3600]), failures: "" },
    event: Some(EventName::Field("event")),
    scheme: |_| {
        Ok(Arc::new(Hmac {
            timestamp: Some(Timestamp {
                header: Cow::Borrowed("x-zm-request-timestamp"),
                around: (Cow::Borrowed("v0:"), Cow::Borrowed(":")),
            }),
            greeting: zoom_check,
            ..Hmac::hex("x-zm-signature", "v0=")
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""zoom""#,
        headers: &[
            ("x-zm-signature", "v0=f9a4ff4c6ea93736bf38f6b0a65ad1a8fc428271d8151efa0f4dbf478188e2eb"),
            ("x-zm-request-timestamp", "1700000000"),
        ],
        body: BODY,
        timed: true,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Zendesk.
/// <https://developer.zendesk.com/documentation/webhooks/verifying/>
pub(super) static ZENDESK: Sender = Sender {
    name: "zendesk",
    example: "zendesk",
    headers: &["X-Zendesk-Webhook-Signature", "X-Zendesk-Webhook-Signature-Timestamp"],
    delivery: Delivery::Header("X-Zendesk-Webhook-Invocation-Id"),
    retries: Retries { waits: Some(12), pauses: Pauses::Unknown, failures: "stops for a while" },
    event: Some(EventName::Field("type")),
    scheme: |_| {
        Ok(Arc::new(Hmac {
            encoding: Encoding::Base64,
            timestamp: Some(Timestamp {
                header: Cow::Borrowed("X-Zendesk-Webhook-Signature-Timestamp"),
                around: (Cow::Borrowed(""), Cow::Borrowed("")),
            }),
            ..Hmac::hex("X-Zendesk-Webhook-Signature", "")
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""zendesk""#,
        headers: &[
            ("X-Zendesk-Webhook-Signature", "Ph8AuB9EMjJKA1kUqJ9fSbX9OfhG6AD1jKLNTsjBO4Y="),
            ("X-Zendesk-Webhook-Signature-Timestamp", "2023-11-14T22:13:20Z"),
        ],
        body: BODY,
        timed: true,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// Grafana, in its default settings of the signature: without a header for the time.
/// <https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/>
pub(super) static GRAFANA: Sender = Sender {
    name: "grafana",
    example: "grafana",
    headers: &["X-Grafana-Alerting-Signature"],
    event: Some(EventName::Field("status")),
    scheme: |_| Ok(Arc::new(Hmac::hex("X-Grafana-Alerting-Signature", ""))),
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""grafana""#,
        headers: &[(
            "X-Grafana-Alerting-Signature",
            "eb790d1a256ba34d8ec01ce731f2e8ababf3c0debdea672fd4ddb088f65491e2",
        )],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// CircleCI.
/// <https://circleci.com/docs/guides/integration/outbound-webhooks/>
pub(super) static CIRCLECI: Sender = Sender {
    name: "circleci",
    example: "circleci",
    headers: &["circleci-signature"],
    delivery: Delivery::Body(body_id),
    retries: Retries { waits: Some(5), pauses: Pauses::Unknown, failures: "" },
    event: Some(EventName::Header("Circleci-Event-Type")),
    scheme: |_| {
        Ok(Arc::new(Hmac {
            several: true,
            greeting: circleci_ping,
            ..Hmac::hex("circleci-signature", "v1=")
        }))
    },
    #[cfg(test)]
    vectors: &[super::Vector {
        verify: r#""circleci""#,
        headers: &[(
            "circleci-signature",
            "v1=eb790d1a256ba34d8ec01ce731f2e8ababf3c0debdea672fd4ddb088f65491e2",
        )],
        body: BODY,
        ..MADE
    }],
    ..Sender::PLAIN
};

/// `hub.challenge` of a subscription is sent back.
fn meta_check(method: &Method, head: &Head) -> Option<Greeting> {
    (method == Method::GET).then(|| token_of(head, "hub.challenge")).flatten().map(Greeting::Text)
}

/// `challenge` is sent back.
fn dropbox_check(method: &Method, head: &Head) -> Option<Greeting> {
    (method == Method::GET).then(|| token_of(head, "challenge")).flatten().map(Greeting::Text)
}

/// The challenge-response check.
fn x_check(method: &Method, head: &Head) -> Option<Greeting> {
    let token = (method == Method::GET).then(|| token_of(head, "crc_token")).flatten()?;
    Some(Greeting::Keyed(Keyed::X, token))
}

/// The validation of a URL. It is signed as every other call is.
fn zoom_check(_: &Head, body: &[u8]) -> Option<Greeting> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Payload {
        plain_token: String,
    }
    #[derive(Deserialize)]
    struct Call {
        event: String,
        payload: Payload,
    }
    let Call { event, payload: Payload { plain_token } } = read_json(body).ok()?;
    (event == "endpoint.url_validation" && is_token(&plain_token))
        .then_some(Greeting::Keyed(Keyed::Zoom, plain_token))
}

/// Intercom asks with `HEAD` before it adds an address.
fn intercom_check(method: &Method, _: &Head) -> Option<Greeting> {
    (method == Method::HEAD).then(|| Greeting::Text(String::new()))
}

fn intercom_ping(_: &Head, body: &[u8]) -> Option<Greeting> {
    #[derive(Deserialize)]
    struct Call {
        topic: String,
    }
    (read_json::<Call>(body).ok()?.topic == "ping").then_some(Greeting::Accepted)
}

/// The test ping of a webhook.
fn circleci_ping(_: &Head, body: &[u8]) -> Option<Greeting> {
    #[derive(Deserialize)]
    struct Call {
        r#type: String,
    }
    (read_json::<Call>(body).ok()?.r#type == "ping").then_some(Greeting::Accepted)
}
