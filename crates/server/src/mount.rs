//! A part of the listener under one path, with its guard.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::header;
use ostler_contract::http::{Request, Response};
use ostler_engine::{Gate, Principal};

use crate::guard::{Decided, HostNames, Token, admit_known, caller, depends, sends_token};
use crate::reply::Reply;
use crate::sign_ins::{SignIns, is_same_origin};

/// The handler of a mount.
pub type Handler = Arc<dyn Fn(Request) -> BoxFuture<'static, Response> + Send + Sync>;

/// The check of a request before the handler receives it.
#[derive(Debug, Clone)]
pub enum Guard {
    /// One of these names as its `Host`. The handler authenticates its caller itself.
    Host {
        names: HostNames,
        /// The word for the mount in rejections: `API`, `route` or `page`.
        what: &'static str,
    },
    /// One of these names as its `Host`, no page of another origin as its `Origin`, and the connection token or a
    /// personal token. The request then contains its principal and its credential as extensions
    /// of the types [`Principal`] and [`ostler_engine::users::Credential`].
    Token {
        names: HostNames,
        /// The connection token, if there is one.
        token: Option<Token>,
        /// The users.
        gate: Gate,
        sign_ins: SignIns,
    },
    /// One of these names as its `Host`, and a page of this listener as the `Origin` of a POST: for signing in and out.
    /// The handler rejects other methods.
    SamePage { names: HostNames },
    /// The handler checks a credential itself before it reads anything. Declared explicitly, so that no mount is open
    /// by omission.
    Own,
}

impl Guard {
    /// Checks a request; the error is the rejection. Where the users of the host decide, they have to be known.
    pub(crate) async fn admits<B>(&self, request: &mut http::Request<B>) -> Result<(), Reply> {
        let Self::Token { gate, .. } = self else { return self.admits_now(request) };
        let attempt = || {
            self.admits_now(request)?;
            Ok(request.extensions().get::<Principal>().map_or(Decided::WithoutUsers, depends))
        };
        let decided = |found: &Result<Decided, Reply>| match found {
            Ok(decided) => *decided,
            Err(Reply::NoToken) => Decided::Unknown,
            Err(_) => Decided::WithoutUsers,
        };
        admit_known(gate, attempt, decided, Reply::UnreadUsers).await.map(drop)
    }

    /// As [`Self::admits`], by what is known of the users.
    fn admits_now<B>(&self, request: &mut http::Request<B>) -> Result<(), Reply> {
        let headers = request.headers();
        let named = |names: &HostNames, what: &'static str| {
            names.admits(headers).map_err(|host| Reply::ForeignHost { what, host })
        };
        match self {
            Self::Own => Ok(()),
            Self::Host { names, what } => named(names, what),
            Self::SamePage { names } => {
                named(names, "API")?;
                match *request.method() != http::Method::POST || is_same_origin(headers) {
                    true => Ok(()),
                    false => {
                        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
                        let origin = text(header::ORIGIN).map(str::to_owned);
                        Err(Reply::NotOwnPage {
                            origin,
                            host: text(header::HOST).unwrap_or("none").to_owned(),
                        })
                    }
                }
            }
            Self::Token { names, token, gate, sign_ins } => {
                named(names, "API")?;
                let is_accepted = match sends_token(request, token.as_ref(), gate) {
                    true => names.admits_origin_with_token(headers),
                    false => names.admits_origin(headers),
                };
                if !is_accepted {
                    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
                    return Err(Reply::ForeignPage(origin.unwrap_or("that origin").to_owned()));
                }
                let admitted = caller(request, token.as_ref(), gate, sign_ins).ok_or(Reply::NoToken)?;
                request.extensions_mut().insert(admitted.principal);
                request.extensions_mut().insert(admitted.by);
                Ok(())
            }
        }
    }
}

/// A part of the listener.
pub struct Mount {
    prefix: &'static str,
    /// Whether nothing below the path belongs to it.
    is_exact: bool,
    guard: Guard,
    handler: Handler,
}

impl Mount {
    /// Creates the mount of `prefix` (`/plugins`) and everything below it, by whole segments.
    pub fn new(prefix: &'static str, guard: Guard, handler: Handler) -> Self {
        Self { prefix, is_exact: false, guard, handler }
    }

    /// Creates the mount of a path without what is below it.
    pub fn exact(path: &'static str, guard: Guard, handler: Handler) -> Self {
        Self { is_exact: true, ..Self::new(path, guard, handler) }
    }

    /// Returns whether a path belongs to this mount.
    pub fn takes(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.prefix);
        rest.is_some_and(|rest| rest.is_empty() || (!self.is_exact && rest.starts_with('/')))
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn handler(&self) -> &Handler {
        &self.handler
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} behind {:?}", self.prefix, self.guard)
    }
}
