//! How a call is answered. Spec: *Webhook statuses*.

use std::time::Duration;

use bytes::Bytes;
use ostler_contract::http::{self, Body, HeaderValue, Response, StatusCode, header};
use ostler_contract::{PluginHost, Value, json};

use crate::verify::Success;

/// An answer to a caller, also for repeated deliveries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub body: Value,
    /// The headers of a rejection.
    header: Option<(header::HeaderName, HeaderValue)>,
    /// The runs of the call, or its session, whose URLs are headers of the answer.
    pub about: About,
    /// Whether it is stored for repeated deliveries.
    pub is_recorded: bool,
    /// The delivery that got it first, in the answer to a repeated one.
    pub delivery: Option<String>,
    /// Whether the body is sent as text, not as JSON.
    is_text: bool,
}

/// The subjects of an answer, by their URIs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub runs: Vec<String>,
    pub session: Option<String>,
}

impl About {
    /// Returns its headers: `Location` for exactly one run, a `Link` for each of several, and one for a session.
    /// Without a URL there is no header.
    pub fn headers(&self, link: impl Fn(&str) -> Option<String>) -> Vec<(header::HeaderName, HeaderValue)> {
        let headers = match self.runs.as_slice() {
            [run] => vec![(header::LOCATION, link(run))],
            runs => {
                runs.iter().take(MOST_LINKS).map(|run| (header::LINK, target(link(run), "item"))).collect()
            }
        };
        let session = self.session.as_deref().map(|session| (header::LINK, target(link(session), "about")));
        let all = headers.into_iter().chain(session);
        all.filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value?).ok()?))).collect()
    }
}

/// The maximum number of runs in an answer.
const MOST_LINKS: usize = 50;

/// A link of RFC 8288.
fn target(url: Option<String>, rel: &str) -> Option<String> {
    url.map(|url| format!("<{url}>; rel=\"{rel}\""))
}

impl Answer {
    /// An answer with a JSON body.
    pub fn new(status: StatusCode, body: Value) -> Self {
        Self {
            status,
            body,
            header: None,
            about: About::default(),
            is_recorded: false,
            delivery: None,
            is_text: false,
        }
    }

    /// 200 with a text, by which a sender checks an endpoint. No other endpoint repeats it.
    pub fn text(text: String) -> Self {
        Self { is_text: true, ..Self::new(StatusCode::OK, text.into()) }
    }

    /// Returns the form in which the endpoint's sender takes an accepted call for one.
    pub fn of_sender(self, success: Success) -> Self {
        match success {
            Success::Ok if self.status == StatusCode::ACCEPTED => Self { status: StatusCode::OK, ..self },
            Success::Empty if self.status == StatusCode::ACCEPTED => {
                Self { status: StatusCode::OK, body: Value::Null, ..self }
            }
            _ => self,
        }
    }

    /// Returns whether it is the answer to a later delivery with the same id.
    pub fn is_of_delivery(&self) -> bool {
        self.status.is_success() && !self.is_text
    }

    /// Adds the runs or the session.
    pub fn about(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// Sets whether it is stored for repeated deliveries.
    pub fn recorded(self, is_recorded: bool) -> Self {
        Self { is_recorded, ..self }
    }

    /// Sets the delivery that got it first.
    pub fn first_to(self, delivery: Option<String>) -> Self {
        Self { delivery, ..self }
    }

    /// Returns the response with the URLs of runs and sessions.
    pub fn linked(&self, host: &PluginHost) -> Response {
        let mut response = self.response();
        let link = |uri: &str| host.link(uri.to_owned()).ok().flatten();
        for (name, value) in self.about.headers(link) {
            response.headers_mut().append(name, value);
        }
        response
    }

    pub fn response(&self) -> Response {
        let mut response = http::json(self.status, &self.body);
        match &self.body {
            Value::Null => {
                *response.body_mut() = Body::Empty;
                response.headers_mut().remove(header::CONTENT_TYPE);
            }
            Value::String(text) if self.is_text => {
                *response.body_mut() = Bytes::from(text.clone()).into();
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
                headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            }
            _ => {}
        }
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

/// A rejection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The endpoint does not exist.
    NoEndpoint,
    /// It is not a POST.
    NotPost,
    /// The bearer token is missing or wrong.
    NotAdmitted,
    /// The sender's signature is missing, wrong or too old.
    NotSigned(&'static str),
    /// The body is invalid for the endpoint.
    Bad(String),
    /// The media type is not supported by the endpoint.
    NotUnderstood(String),
    /// The bot cannot be talked to.
    NoBot(String),
    /// The rate limit is exceeded.
    TooMany {
        /// When the next call is allowed.
        wait: Duration,
        /// Whether the status is that of an unavailable host.
        is_unavailable: bool,
    },
    /// The record of the endpoint or its secret cannot be read.
    Unread,
    /// The memory for bodies is in use.
    NoMemory,
    /// The endpoint's `when` cannot be evaluated.
    NoFilter,
    /// Too many ordered runs wait.
    NoRoom,
    /// What the call starts cannot be stored.
    NotStored,
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
            Self::TooMany { is_unavailable: false, .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::TooMany { is_unavailable: true, .. }
            | Self::Unread
            | Self::NoMemory
            | Self::NoRoom
            | Self::NotStored => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoFilter => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the message for the caller.
    pub fn message(&self) -> String {
        match self {
            Self::NoEndpoint => "Unknown endpoint".to_owned(),
            Self::NotPost => "The method must be POST".to_owned(),
            Self::NotAdmitted => "The endpoint's secret is required as bearer token".to_owned(),
            Self::NotSigned(why) => (*why).to_owned(),
            Self::Bad(why) | Self::NotUnderstood(why) | Self::NoBot(why) => why.clone(),
            Self::Unread => "The host cannot read this endpoint now; retry later".to_owned(),
            Self::NoMemory => "The host has no memory for this body now; retry later".to_owned(),
            Self::NoFilter => "The endpoint's filter failed; see the host's log".to_owned(),
            Self::NoRoom => "Too many calls wait for earlier ones; retry later".to_owned(),
            Self::NotStored => "The host cannot store this call now; retry later".to_owned(),
            Self::TooMany { wait, .. } => {
                format!("The rate limit is exceeded; retry in {} seconds", seconds(*wait))
            }
        }
    }

    fn header(&self) -> Option<(header::HeaderName, HeaderValue)> {
        match self {
            Self::NotPost => Some((header::ALLOW, HeaderValue::from_static("POST"))),
            Self::NotAdmitted => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::Unread | Self::NoMemory | Self::NoRoom | Self::NotStored => {
                Some((header::RETRY_AFTER, HeaderValue::from_static(http::RETRY_AFTER)))
            }
            Self::TooMany { wait, .. } => Some((header::RETRY_AFTER, HeaderValue::from(seconds(*wait)))),
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
            about: About::default(),
            is_recorded: false,
            delivery: None,
            is_text: false,
        }
    }
}

/// Rounds up to whole seconds, so that a caller that waits so long is not too early.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(about: &About) -> Vec<String> {
        let link = |uri: &str| uri.strip_prefix("uri:").map(|id| format!("https://a.example/{id}"));
        let named =
            |(name, value): (header::HeaderName, HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        about.headers(link).into_iter().map(named).collect()
    }

    #[test]
    fn one_run_is_a_location_and_several_are_links() {
        let runs =
            |count: usize| About { runs: (0..count).map(|at| format!("uri:{at}")).collect(), session: None };
        assert_eq!(headers(&runs(0)), [""; 0]);
        assert_eq!(headers(&runs(1)), ["location: https://a.example/0"]);
        assert_eq!(
            headers(&runs(2)),
            [r#"link: <https://a.example/0>; rel="item""#, r#"link: <https://a.example/1>; rel="item""#]
        );
        assert_eq!(headers(&runs(1000)).len(), MOST_LINKS);
        let session = |uri: &str| About { runs: Vec::new(), session: Some(uri.to_owned()) };
        assert_eq!(headers(&session("uri:s")), [r#"link: <https://a.example/s>; rel="about""#]);
        assert_eq!(headers(&session("none")), [""; 0]);
    }

    #[test]
    fn each_rejection_has_a_status_and_its_header() {
        let too_many = |millis: u64, is_unavailable| Refusal::TooMany {
            wait: Duration::from_millis(millis),
            is_unavailable,
        };
        let wait = |millis: u64| too_many(millis, false);
        let text = || "why".to_owned();
        for (refusal, status, header) in [
            (Refusal::NoEndpoint, 404, None),
            (Refusal::NotPost, 405, Some("allow: POST")),
            (Refusal::NotAdmitted, 401, Some("www-authenticate: Bearer")),
            (Refusal::NotSigned("why"), 401, None),
            (Refusal::Bad(text()), 400, None),
            (Refusal::NotUnderstood(text()), 415, None),
            (Refusal::NoBot(text()), 409, None),
            (wait(0), 429, Some("retry-after: 0")),
            (wait(2000), 429, Some("retry-after: 2")),
            (wait(2001), 429, Some("retry-after: 3")),
            (too_many(2001, true), 503, Some("retry-after: 3")),
            (Refusal::Unread, 503, Some("retry-after: 5")),
            (Refusal::NoMemory, 503, Some("retry-after: 5")),
            (Refusal::NoRoom, 503, Some("retry-after: 5")),
            (Refusal::NotStored, 503, Some("retry-after: 5")),
            (Refusal::NoFilter, 500, None),
        ] {
            let response = Answer::from(refusal.clone()).response();
            assert_eq!(response.status().as_u16(), status, "{refusal:?}");
            let headers = response.headers().iter().filter(|(name, _)| *name != header::CONTENT_TYPE);
            let headers: Vec<_> =
                headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            assert_eq!(headers, header.into_iter().collect::<Vec<_>>(), "{refusal:?}");
            assert!(!refusal.message().is_empty());
        }
    }

    #[test]
    fn an_answer_without_content_has_no_body() {
        let empty = |body| {
            let response = Answer::new(StatusCode::OK, body).response();
            matches!(response.body(), Body::Empty)
        };
        assert!(empty(Value::Null) && !empty(json!({})));
    }
}
