//! The endpoint of a session's tools, which a network listener opens.

use std::sync::Arc;

use ostler_contract::Pending;
use ostler_contract::points::{ToolsServer, ToolsServerOptions};

use super::SessionTools;

/// A function that opens a session's tools endpoint; the code that listens on the network provides it.
#[derive(Clone)]
pub struct OpenToolsServer(Arc<OpenTools>);

type OpenTools = dyn Fn(SessionTools, ToolsServerOptions) -> Pending<Option<ToolsServer>> + Send + Sync;

impl OpenToolsServer {
    /// Wraps a function of the session's tools and the backend's options for its endpoint.
    pub fn new(
        open: impl Fn(SessionTools, ToolsServerOptions) -> Pending<Option<ToolsServer>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    pub fn open(&self, tools: SessionTools, options: ToolsServerOptions) -> Pending<Option<ToolsServer>> {
        (self.0)(tools, options)
    }
}

impl std::fmt::Debug for OpenToolsServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OpenToolsServer")
    }
}
