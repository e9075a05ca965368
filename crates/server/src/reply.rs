//! How a request is refused: one shape, `{ "message": … }`.

use ostler_contract::http::{self, Response, StatusCode};

/// A refusal, with the status it is answered under.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reply {
    /// The path cannot be decoded, or the `Host` is no host.
    #[error("The request path or Host is not valid")]
    Malformed,
    /// The `Host` is not one of this host's names.
    #[error("This {what} does not answer to {host}")]
    ForeignHost {
        /// `API` or `route`
        what: &'static str,
        /// What was asked for, or `a request with no Host`.
        host: String,
    },
    /// A page of another site asks to connect.
    #[error(
        "This host does not let pages of other sites connect; name yours under origins, or use a connection token"
    )]
    ForeignOrigin,
    /// No plugin has a route there.
    #[error("No plugin route at {0}")]
    NoRoute(String),
    /// A plugin's route threw.
    #[error("The route plugin {0} registered failed; its reason is in the daemon log")]
    RouteFailed(String),
    /// A page of another site asks the API.
    #[error("This API does not answer to pages of {0}; name it under origins")]
    ForeignPage(String),
    /// No connection token, or a wrong one.
    #[error("A connection token is required")]
    NoToken,
    /// Nothing of the API is there.
    #[error("No API at {0}")]
    NoApi(String),
}

impl Reply {
    fn status(&self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::ForeignHost { .. } | Self::ForeignOrigin | Self::ForeignPage(_) => StatusCode::FORBIDDEN,
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::NoRoute(_) | Self::NoApi(_) => StatusCode::NOT_FOUND,
            Self::RouteFailed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// The answer to a request that is refused.
pub fn refuse(reply: &Reply) -> Response {
    http::message(reply.status(), reply)
}
