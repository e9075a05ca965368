//! The methods of requests.

use ostler_contract::http::Method;

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Get,
    /// Changes.
    Post,
}

impl Verb {
    /// Whether a request has this method. `HEAD` is `GET` without the body, which the server leaves out.
    pub fn is_of(self, method: &Method) -> bool {
        method.as_str() == self.name() || self == Self::Get && *method == Method::HEAD
    }

    /// The methods of such requests, for `Allow`.
    pub const fn allowed(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
        }
    }

    /// As HTTP writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}
