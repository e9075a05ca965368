//! Access to the network, passed in by the builder of the host.

use std::sync::Arc;

use ostler_contract::Pending;
use ostler_contract::http::{Request, Response};

/// Sends the HTTP requests of plugins.
#[derive(Clone)]
pub struct Outbound(Arc<SendOut>);

type SendOut = dyn Fn(Request) -> Pending<Response> + Send + Sync;

impl Outbound {
    /// Creates it from a function that sends one request.
    pub fn new(send: impl Fn(Request) -> Pending<Response> + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    pub fn send(&self, request: Request) -> Pending<Response> {
        (self.0)(request)
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Outbound")
    }
}
