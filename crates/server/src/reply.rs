//! Rejections of requests, in one form: `{ "message": … }`.

use ostler_contract::budget::SMALL;
use ostler_contract::http::{self, Body, BodyError, HeaderValue, Response, StatusCode, header};
use ostler_contract::{Bodies, tools_endpoint};

/// A rejection with its status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reply {
    /// The path cannot be decoded, or the `Host` is invalid.
    #[error("The request path or Host is not valid")]
    Malformed,
    /// The `Host` is not one of this host's names.
    #[error("This {what} does not answer to {host}")]
    ForeignHost {
        /// `API`, `route`, `page` or `host`
        what: &'static str,
        /// The requested name, or `a request with no Host`.
        host: String,
    },
    /// A page of another site connects.
    #[error(
        "This host does not let pages of other sites connect; name yours under origins, or use a connection token"
    )]
    ForeignOrigin,
    /// No plugin has a route at this path.
    #[error("No plugin route at {0}")]
    NoRoute(String),
    /// A plugin's route threw.
    #[error("The route plugin {0} registered failed; its reason is in the daemon log")]
    RouteFailed(String),
    /// A page of another site calls the API.
    #[error("This API does not answer to pages of {0}; name it under origins")]
    ForeignPage(String),
    /// A sign-in or sign-out that does not come from a page of this host.
    #[error("{}", not_own_page(.origin.as_deref(), .host))]
    NotOwnPage {
        /// The `Origin` of the request.
        origin: Option<String>,
        /// The `Host` of the request.
        host: String,
    },
    /// The connection token is missing or wrong.
    #[error("A connection token is required")]
    NoToken,
    /// The users cannot be read at the moment.
    #[error("{0}")]
    UnreadUsers(String),
    /// No tools endpoint is open at this path.
    #[error("{}", tools_endpoint::no_endpoint(.0))]
    NoTools(String),
    /// A request to a tools endpoint without its token.
    #[error("{}", tools_endpoint::NOT_ITS_TOKEN)]
    NotItsToken,
    /// A tools endpoint has no such method.
    #[error("{}", tools_endpoint::no_method(.0))]
    NoMethod(String),
    /// A backend that lists its tools anew has no stream of changes.
    #[error("{}", tools_endpoint::NO_STREAM)]
    NoStream,
    /// The body for a tools endpoint is not a message.
    #[error("{}{}", tools_endpoint::NOT_ONE_MESSAGE, .0)]
    NotOneMessage(String),
    /// The body is too large.
    #[error("{0}")]
    TooMuch(String),
    /// The memory for bodies is in use.
    #[error("The host has no memory for this body now; retry later")]
    NoMemory,
    /// The API has nothing at this path.
    #[error("No API at {0}")]
    NoApi(String),
}

/// A browser sends its own address as both, so that other values are those of a proxy or another program.
fn not_own_page(origin: Option<&str>, host: &str) -> String {
    const ONLY: &str = "Only the console of this host signs in and out here";
    match origin.map(|origin| (origin, origin.split_once("://").map_or(origin, |(_, host)| host))) {
        None => format!("{ONLY}; send the token with each request instead"),
        Some((origin, wanted)) => format!(
            "{ONLY}: the page is of {origin}, but the request has Host: {host}. If a proxy is between them, have it send \
             Host: {wanted} (nginx: proxy_set_header Host $http_host); otherwise send the token with each request instead"
        ),
    }
}

impl Reply {
    fn status(&self) -> StatusCode {
        match self {
            Self::Malformed | Self::NotOneMessage(_) => StatusCode::BAD_REQUEST,
            Self::ForeignHost { .. }
            | Self::ForeignOrigin
            | Self::ForeignPage(_)
            | Self::NotOwnPage { .. } => StatusCode::FORBIDDEN,
            Self::NoToken | Self::NotItsToken => StatusCode::UNAUTHORIZED,
            Self::NoRoute(_) | Self::NoApi(_) | Self::NoTools(_) => StatusCode::NOT_FOUND,
            Self::NoMethod(_) | Self::NoStream => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooMuch(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoMemory | Self::UnreadUsers(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::RouteFailed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<BodyError> for Reply {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::NoMemory => Self::NoMemory,
            other => Self::TooMuch(other.to_string()),
        }
    }
}

/// Returns the answer to a rejected request.
pub fn refuse(reply: &Reply) -> Response {
    let mut response = http::message(reply.status(), reply);
    let (name, value) = match reply {
        Reply::NoMethod(_) => (header::ALLOW, "GET, POST"),
        Reply::NoStream => (header::ALLOW, "POST"),
        Reply::NoMemory | Reply::UnreadUsers(_) => (header::RETRY_AFTER, http::RETRY_AFTER),
        _ => return response,
    };
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

/// The number of bytes of a response for which there is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong(pub usize);

/// Charges the body of a long response until it is sent.
///
/// # Errors
/// There is no memory for it.
pub async fn charged(bodies: &Bodies, mut response: Response) -> Result<Response, TooLong> {
    if let Body::Full(bytes) = response.body_mut()
        && bytes.len() > SMALL
    {
        let charge = bodies.charge(bytes.len()).await.map_err(|_| TooLong(bytes.len()))?;
        *bytes = charge.around(std::mem::take(bytes));
    }
    Ok(response)
}
