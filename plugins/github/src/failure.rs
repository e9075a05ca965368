//! Failures of requests to code hosts, with what to do.

use std::fmt;
use std::time::SystemTime;

use ostler_contract::{RpcError, Thrown, Value, json};

use crate::credential::{Credential, Source};
use crate::site::Site;

/// The maximum text of a code host in an error, in characters.
const MOST_SAID: usize = 300;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub kind: FailureKind,
    pub message: String,
    /// The resource that a client has to sign in to.
    resource: Option<Box<Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The token is missing or rejected.
    SignIn,
    /// The token has no permission for this.
    Forbidden,
    /// The object does not exist or is not visible to the token.
    Missing,
    /// The request conflicts or is invalid.
    Refused,
    /// Anything else.
    Other,
}

impl From<Failure> for Thrown {
    fn from(failure: Failure) -> Self {
        match failure.kind {
            FailureKind::SignIn => {
                let error = RpcError::auth_required(failure.message);
                match failure.resource {
                    Some(resource) => error.with_data(json!({ "resources": [*resource] })).into(),
                    None => error.into(),
                }
            }
            FailureKind::Forbidden => RpcError::permission_denied(failure.message).into(),
            FailureKind::Refused => RpcError::invalid_params(failure.message).into(),
            FailureKind::Missing | FailureKind::Other => Self::new(failure.message),
        }
    }
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), resource: None }
    }

    pub(crate) fn other(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Other, message)
    }

    /// Nobody is signed in, or the token has expired.
    fn sign_in(site: &Site, message: String) -> Self {
        let resource = site.lent.then(|| Box::new(json!(site.resource().0)));
        Self { kind: FailureKind::SignIn, message, resource }
    }

    /// Nothing is created without a token.
    pub(crate) fn no_token(site: &Site, credential: &Credential) -> Self {
        let what = site.kind.pull_request();
        Self::sign_in(
            site,
            format!("creating a {what} on {} needs a token: {}", site.name, ways(site, credential)),
        )
    }

    /// A response that is not a success; `about` is the repository.
    pub(crate) fn of(site: &Site, credential: &Credential, about: &str, status: u16, body: &[u8]) -> Self {
        let name = &site.name;
        let said = said(body, credential);
        let because = if said.is_empty() { String::new() } else { format!(" ({said})") };
        match status {
            401 => Self::sign_in(
                site,
                match &credential.source {
                    Source::None(_) => format!("{name} requires a token: {}", ways(site, credential)),
                    source => format!(
                        "{name} does not accept {}: it has expired or was revoked; {}",
                        source.named(site),
                        source.renewal(site)
                    ),
                },
            ),
            403 => match &credential.source {
                Source::None(_) => Self::sign_in(
                    site,
                    format!("{name} requires a token for {about}: {}", ways(site, credential)),
                ),
                source => Self::new(
                    FailureKind::Forbidden,
                    format_args!(
                        "{name} does not allow {} to use the {}s of {about}{because}; give it that right, or authorize it for the organization",
                        source.named(site),
                        site.kind.pull_request()
                    ),
                ),
            },
            404 | 410 => Self::new(
                FailureKind::Missing,
                match &credential.source {
                    Source::None(_) => format!(
                        "{name} has no public repository {about}; if it is private, {}",
                        ways(site, credential)
                    ),
                    source => {
                        format!("{name} has no repository {about} that {} may read", source.named(site))
                    }
                },
            ),
            400 | 409 | 422 => {
                let said = if said.is_empty() { format!("response {status}") } else { said };
                Self::new(FailureKind::Refused, said)
            }
            500.. => {
                Self::other(format_args!("{name} has a problem: response {status}{because}; try again later"))
            }
            _ => Self::other(format_args!("{name}: unexpected response {status}{because} for {about}")),
        }
    }

    /// No more requests until then.
    pub(crate) fn limited(site: &Site, credential: &Credential, until: SystemTime) -> Self {
        let epoch = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        // To the next minute, so that the message stays the same.
        let minutes = epoch.div_ceil(60);
        let more = match credential.source {
            Source::None(_) => format!("; with a token there are more: {}", ways(site, credential)),
            _ => String::new(),
        };
        Self::other(format_args!(
            "{} allows no more requests until {:02}:{:02} UTC{more}",
            site.name,
            minutes / 60 % 24,
            minutes % 60
        ))
    }
}

/// How to get a token for a site.
fn ways(site: &Site, credential: &Credential) -> String {
    let mut ways = Vec::new();
    if site.lent {
        ways.push("sign in with the client".to_owned());
    }
    ways.push(format!("set hosts.\"{}\".token in the options of {}", site.name, crate::NAME));
    if let Source::None(Some(gh)) = &credential.source {
        ways.push(gh.clone());
    }
    let last = ways.pop().unwrap_or_default();
    if ways.is_empty() { last } else { format!("{}, or {last}", ways.join(", ")) }
}

/// Returns a code host's message about a failure: one line, without the token.
fn said(body: &[u8], credential: &Credential) -> String {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let mut parts = Vec::new();
    for field in ["message", "error_description", "error", "errors"] {
        texts(&body[field], &mut parts);
    }
    parts.dedup();
    let text = parts.join(": ");
    let text = match &credential.token {
        Some(token) => text.replace(token.reveal().as_str(), ostler_contract::secret::SET),
        None => text,
    };
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MOST_SAID).collect()
}

fn texts(value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::String(text) => parts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, parts)),
        Value::Object(fields) => match (fields.get("message"), fields.get("field"), fields.get("code")) {
            (Some(message), ..) => texts(message, parts),
            (None, Some(Value::String(field)), Some(Value::String(code))) => {
                parts.push(format!("{field} is {code}"))
            }
            _ => fields.values().for_each(|value| texts(value, parts)),
        },
        _ => {}
    }
}
