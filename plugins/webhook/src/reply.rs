//! How a call is refused. Spec: *Webhook statuses*.

use ostler_contract::http::{self, HeaderValue, Response, StatusCode, header};

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no endpoint there.
    NoEndpoint,
    /// It is not a POST.
    NotPost,
    /// No bearer, or not the secret.
    NotAdmitted,
    /// The body is not what the endpoint takes.
    BadBody(String),
    /// The bot cannot be talked to.
    NoBot(String),
}

impl Refusal {
    /// The answer.
    pub fn response(&self) -> Response {
        match self {
            Self::NoEndpoint => http::message(StatusCode::NOT_FOUND, "There is no endpoint here"),
            Self::NotPost => {
                let mut response =
                    http::message(StatusCode::METHOD_NOT_ALLOWED, "An endpoint is called with POST");
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
                response
            }
            Self::NotAdmitted => {
                let mut response = http::message(
                    StatusCode::UNAUTHORIZED,
                    "The endpoint's secret is needed as bearer token",
                );
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
            Self::BadBody(why) => http::message(StatusCode::BAD_REQUEST, why),
            Self::NoBot(why) => http::message(StatusCode::CONFLICT, why),
        }
    }
}
