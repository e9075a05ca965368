//! Tools endpoints, under `/ahp-mcp/<id>`: the tools of one session, served over MCP to the agent of its backend. Spec:
//! *Tools MCP endpoint*.

mod endpoint;
mod message;
mod stream;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ostler_contract::http::{Method, Request, Response};
use ostler_contract::points::{ToolsServer, ToolsServerOptions};
use ostler_contract::tools_endpoint::PREFIX;
use ostler_contract::{Bodies, Func, Pending};
use ostler_engine::sessions::OpenToolsServer;
use ostler_engine::sessions::SessionTools;
use parking_lot::Mutex;

use crate::guard::{HostNames, bearer};
use crate::mount::{Guard, Mount};
use crate::reply::{Reply, refuse};
use endpoint::{About, Endpoint};

/// The tools endpoints of a host: one per session, for the session's lifetime.
#[derive(Clone)]
pub struct ToolServers(Arc<Shared>);

struct Shared {
    origin: Box<dyn Fn() -> Option<String> + Send + Sync>,
    about: Arc<About>,
    /// By the last part of its path.
    endpoints: Mutex<HashMap<String, Arc<Endpoint>>>,
}

impl ToolServers {
    /// Creates the endpoints of a server with this name and version. `origin` is read when one is opened; without it
    /// none can be opened.
    pub fn new(
        origin: impl Fn() -> Option<String> + Send + Sync + 'static,
        name: &str,
        version: &str,
    ) -> Self {
        let about = Arc::new(About { name: name.to_owned(), version: version.to_owned() });
        Self(Arc::new(Shared { origin: Box::new(origin), about, endpoints: Mutex::default() }))
    }

    /// Returns the function that opens endpoints for backends.
    pub fn opener(&self) -> OpenToolsServer {
        let servers = self.clone();
        OpenToolsServer::new(move |tools, options| {
            let opened = servers.open(&tools, options);
            let answer: Pending<Option<ToolsServer>> = Box::pin(std::future::ready(Ok(opened)));
            answer
        })
    }

    fn open(&self, tools: &SessionTools, options: ToolsServerOptions) -> Option<ToolsServer> {
        let origin = (self.0.origin)()?;
        let endpoint = self.endpoint_of(tools);
        endpoint.open_for(tools.opener(), options);
        let (opener, held) = (tools.opener(), Arc::downgrade(&endpoint));
        let of_agents = held.clone();
        Some(ToolsServer {
            url: format!("{}{PREFIX}/{}", origin.trim_end_matches('/'), endpoint.id),
            token: endpoint.token().to_owned(),
            outdated: Func::new(move |(agent,): (String,)| {
                Ok(of_agents.upgrade().is_some_and(|endpoint| endpoint.is_outdated(&agent)))
            }),
            close: Func::new(move |()| {
                if let Some(endpoint) = held.upgrade() {
                    endpoint.close_for(opener);
                }
                Ok(())
            }),
        })
    }

    /// Returns the session's endpoint, created at its first opening and removed with the session.
    fn endpoint_of(&self, tools: &SessionTools) -> Arc<Endpoint> {
        let mut endpoints = self.0.endpoints.lock();
        if let Some(endpoint) = endpoints.values().find(|endpoint| endpoint.tools.is_of(tools)) {
            return endpoint.clone();
        }
        let endpoint = Arc::new(Endpoint::new(tools.clone(), self.0.about.clone()));
        endpoints.insert(endpoint.id.clone(), endpoint.clone());
        let (servers, id, mut changes) = (Arc::downgrade(&self.0), endpoint.id.clone(), tools.changes());
        tokio::spawn(async move {
            let _ = changes.wait_for(|brought| brought.gone).await;
            if let Some(servers) = servers.upgrade() {
                servers.endpoints.lock().remove(&id);
            }
        });
        endpoint
    }

    /// Answers a request under `/ahp-mcp`; `None` for other requests.
    pub async fn request(&self, request: Request) -> Option<Response> {
        let path = request.uri().path();
        let id = match path.strip_prefix(PREFIX)? {
            "" => "",
            rest => rest.strip_prefix('/')?,
        };
        let endpoint = self.0.endpoints.lock().get(id).filter(|endpoint| endpoint.is_open()).cloned();
        let Some(endpoint) = endpoint else { return Some(refuse(&Reply::NoTools(path.to_owned()))) };
        // Checked before the method and the body.
        if !bearer(request.headers()).is_some_and(|given| endpoint.admits(given)) {
            return Some(refuse(&Reply::NotItsToken));
        }
        // An agent's MCP client sends no origin. A page in a browser does, and is rejected even with a token.
        if !HostNames::default().admits_origin_with_token(request.headers()) {
            return Some(refuse(&Reply::ForeignOrigin));
        }
        Some(match *request.method() {
            Method::GET => stream::open(&endpoint),
            Method::POST => message::answer(&endpoint, request).await,
            ref other => refuse(&Reply::NoMethod(other.to_string())),
        })
    }

    /// Returns the mount of the endpoints. Each endpoint checks its token and charges messages to `bodies`.
    pub fn mount(&self, bodies: Bodies) -> Mount {
        let servers = self.clone();
        Mount::new(
            PREFIX,
            Guard::Own,
            Arc::new(move |mut request: Request| {
                request.extensions_mut().insert(bodies.clone());
                let servers = servers.clone();
                Box::pin(async move {
                    let path = request.uri().path().to_owned();
                    servers.request(request).await.unwrap_or_else(|| refuse(&Reply::NoTools(path)))
                })
            }),
        )
    }
}

impl fmt::Debug for ToolServers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ToolServers")
    }
}
