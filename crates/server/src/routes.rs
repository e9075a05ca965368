//! Plugin routes, under `/plugins/<id>/`. Spec: *Plugin routes on the host listener*.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use futures::StreamExt;
use ostler_contract::Bodies;
use ostler_contract::http::{Body, BodyError, Request, Response};
use ostler_contract::points::{Route, RouteHandler};
use ostler_contract::registry::{Registrant, Registry};
use ostler_engine::Log;
use ostler_protocol::names;

use crate::guard::HostNames;
use crate::mount::{Guard, Mount};
use crate::reply::{Reply, refuse};

/// Returns the mount of all plugin routes. The handler receives the full path, with its prefix, and only the `Host` is
/// checked before it. `bodies` is attached to each request.
pub fn plugin_routes(registry: &Registry, names: HostNames, log: Log, bodies: Bodies) -> Mount {
    let routes: HashMap<String, RouteHandler> = registry
        .all::<Route>()
        .iter()
        .filter_map(|route| match &route.owner {
            Registrant::Plugin(id) => Some((id.to_string(), route.handler.clone())),
            Registrant::Host => None,
        })
        .collect();
    let routes = Arc::new(routes);
    let guard = Guard::Host { names, what: "route" };
    Mount::new(
        names::ROUTES,
        guard,
        Arc::new(move |mut request: Request| {
            let bodies = bodies.of_request();
            request.extensions_mut().insert(bodies.clone());
            Box::pin(serve(routes.clone(), log.clone(), request, bodies))
        }),
    )
}

/// Returns the empty mount of `/plugins` for a listener whose plugin routes are on another one.
pub fn no_plugin_routes() -> Mount {
    let refused = |request: Request| refuse(&Reply::NoRoute(request.uri().path().to_owned()));
    Mount::new(
        names::ROUTES,
        Guard::Own,
        Arc::new(move |request| Box::pin(std::future::ready(refused(request)))),
    )
}

/// The parts of a path below the prefix of routes.
fn below(path: &str) -> Option<&str> {
    path.strip_prefix(names::ROUTES)?.strip_prefix('/')
}

/// Returns whether a URL parser would leave a folder with a path: `..` in any spelling. A path below a plugin's prefix
/// could then belong to another plugin.
fn leads_out(path: &str) -> bool {
    if !path.contains('%') && !path.contains("..") {
        return false;
    }
    path.split(['/', '\\']).any(|part| {
        let dots = part.to_ascii_lowercase().replace("%2e", ".");
        dots == ".."
    })
}

async fn serve(
    routes: Arc<HashMap<String, RouteHandler>>,
    log: Log,
    request: Request,
    bodies: Bodies,
) -> Response {
    let path = request.uri().path().to_owned();
    let id = below(&path).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let Some(handler) = routes.get(id).filter(|_| !leads_out(&path)) else {
        return refuse(&Reply::NoRoute(path));
    };
    // A route can wait for a turn; only its request waits.
    match handler.unbounded((request,)).await {
        Ok(response) if matches!(response.body(), Body::Stream(_)) => {
            let failed = format!("plugin {id} failed at {path}");
            response.map(|body| reported(body, move |error| log.warn(format_args!("{failed}: {error}"))))
        }
        Ok(response) => response,
        Err(thrown) => match bodies.refused() {
            // The host rejected the body, and the plugin did not catch the error.
            Some(refused) => refuse(&refused.clone().into()),
            None => {
                log.warn(format_args!("plugin {id} failed at {path}: {}", thrown.for_log()));
                refuse(&Reply::RouteFailed(id.to_owned()))
            }
        },
    }
}

/// A body that logs a failure in the middle, because the status is already sent and the client sees only a truncated
/// body.
fn reported(body: Body, tell: impl Fn(&BodyError) + Send + 'static) -> Body {
    match body {
        Body::Stream(chunks) => {
            let chunks = chunks.into_inner().unwrap_or_else(PoisonError::into_inner);
            Body::stream(chunks.then(move |chunk| {
                if let Err(error) = &chunk {
                    tell(error);
                }
                async move {
                    if chunk.is_err() {
                        // The earlier output, beginning with the status, is written in the meantime.
                        tokio::task::yield_now().await;
                    }
                    chunk
                }
            }))
        }
        whole => whole,
    }
}
