//! The endpoint of a session's tools, opened by whoever listens.

use std::sync::Arc;

use ostler_contract::Pending;
use ostler_contract::points::{ToolsServer, ToolsServerOptions};

use super::SessionTools;

/// Opens a session's tools endpoint; given by whoever listens.
#[derive(Clone)]
pub struct OpenToolsServer(Arc<OpenTools>);

type OpenTools = dyn Fn(SessionTools, ToolsServerOptions) -> Pending<Option<ToolsServer>> + Send + Sync;

impl OpenToolsServer {
    /// From a function of the session's tools and what the backend wants of its endpoint.
    pub fn new(
        open: impl Fn(SessionTools, ToolsServerOptions) -> Pending<Option<ToolsServer>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(
        &self,
        tools: SessionTools,
        options: ToolsServerOptions,
    ) -> Pending<Option<ToolsServer>> {
        (self.0)(tools, options)
    }
}

impl std::fmt::Debug for OpenToolsServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OpenToolsServer")
    }
}
