//! HTTP routes. Spec: *Plugin routes on the host listener*.

use super::port::single;
use super::{Checked, Contribution, Slot};
use crate::call::Call;
use crate::cross::{Cross, Mismatch};
use crate::http::{Request, Response};
use crate::recorder::Key;

/// Handles a `Request` and returns a `Response`. It receives the full path, with its prefix, and authenticates the
/// caller before it reads the body.
///
/// ```
/// use ostler_contract::{Call, http::{self, StatusCode}, points::RouteHandler};
///
/// let handler: RouteHandler = Call::new(|(request,): (http::Request,)| async move {
///     Ok(http::message(StatusCode::OK, request.uri().path()))
/// });
/// # assert!(ostler_contract::Cross::check(&handler).is_ok());
/// ```
pub type RouteHandler = Call<fn(request: Request) -> Response>;

/// A registered route.
#[derive(Debug)]
pub struct Route {
    /// The function.
    pub handler: RouteHandler,
}

impl Contribution for Route {
    const SLOT: Slot = Slot::Keyed;

    fn key(&self) -> Option<Key> {
        Some(single("route"))
    }
}

impl Checked for Route {
    fn holds(&self) -> Result<(), Mismatch> {
        self.handler.check().map_err(|wrong| wrong.within("handler"))
    }
}
