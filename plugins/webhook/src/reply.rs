//! How a call is answered. Spec: *Webhook statuses*.

use std::time::Duration;

use ostler_contract::http::{self, Body, HeaderValue, Response, StatusCode, header};
use ostler_contract::{Value, json};

/// A whole answer: what a caller is told, and what a repeated delivery is told again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub body: Value,
    /// What goes with a refusal.
    header: Option<(header::HeaderName, HeaderValue)>,
}

impl Answer {
    /// An answer with a JSON body.
    pub fn new(status: StatusCode, body: Value) -> Self {
        Self { status, body, header: None }
    }

    /// As it is sent.
    pub fn response(&self) -> Response {
        let mut response = http::json(self.status, &self.body);
        if self.status == StatusCode::NO_CONTENT {
            *response.body_mut() = Body::Empty;
        }
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no endpoint there.
    NoEndpoint,
    /// It is not a POST.
    NotPost,
    /// No bearer, or not the secret.
    NotAdmitted,
    /// The sender's signature is missing, wrong or too old.
    NotSigned(&'static str),
    /// What was sent is not what the endpoint takes.
    Bad(String),
    /// What was sent is of a kind the endpoint does not read.
    NotUnderstood(String),
    /// The bot cannot be talked to.
    NoBot(String),
    /// More calls than the endpoint takes; when the next one may come.
    TooMany(Duration),
    /// The memory for bodies is in use.
    NoMemory,
    /// The endpoint's `when` cannot be evaluated.
    NoFilter,
    /// As many runs wait for others as may.
    NoRoom,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoEndpoint => StatusCode::NOT_FOUND,
            Self::NotPost => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAdmitted | Self::NotSigned(_) => StatusCode::UNAUTHORIZED,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::NotUnderstood(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoBot(_) => StatusCode::CONFLICT,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NoMemory | Self::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoFilter => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What the caller is told.
    pub fn message(&self) -> String {
        match self {
            Self::NoEndpoint => "Unknown endpoint".to_owned(),
            Self::NotPost => "The method must be POST".to_owned(),
            Self::NotAdmitted => "The endpoint's secret is required as bearer token".to_owned(),
            Self::NotSigned(why) => (*why).to_owned(),
            Self::Bad(why) | Self::NotUnderstood(why) | Self::NoBot(why) => why.clone(),
            Self::NoMemory => "The host has no memory for this body now; retry later".to_owned(),
            Self::NoFilter => "The endpoint's filter failed; see the host's log".to_owned(),
            Self::NoRoom => "Too many calls wait for earlier ones; retry later".to_owned(),
            Self::TooMany(wait) => {
                format!("The rate limit is exceeded; retry in {} seconds", seconds(*wait))
            }
        }
    }

    fn header(&self) -> Option<(header::HeaderName, HeaderValue)> {
        match self {
            Self::NotPost => Some((header::ALLOW, HeaderValue::from_static("POST"))),
            Self::NotAdmitted => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::NoMemory | Self::NoRoom => {
                Some((header::RETRY_AFTER, HeaderValue::from_static(http::RETRY_AFTER)))
            }
            Self::TooMany(wait) => Some((header::RETRY_AFTER, HeaderValue::from(seconds(*wait)))),
            _ => None,
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self {
            status: refusal.status(),
            body: json!({ "message": refusal.message() }),
            header: refusal.header(),
        }
    }
}

/// Whole seconds, rounded up: a caller that waits so long is not too early.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
