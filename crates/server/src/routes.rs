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

/// The mount of every plugin's route. The full path, prefix included, reaches the handler; nothing but the
/// check of the `Host` stands in front of it. `bodies` goes with each request.
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

/// What stands under `/plugins` on a listener whose plugin routes are elsewhere: nothing.
pub fn no_plugin_routes() -> Mount {
    let refused = |request: Request| refuse(&Reply::NoRoute(request.uri().path().to_owned()));
    Mount::new(
        names::ROUTES,
        Guard::Own,
        Arc::new(move |request| Box::pin(std::future::ready(refused(request)))),
    )
}

/// What a path says below the place of routes.
fn below(path: &str) -> Option<&str> {
    path.strip_prefix(names::ROUTES)?.strip_prefix('/')
}

/// Whether a path leads out of a folder, as whoever parses it for a URL reads it: `..` in any spelling. What is below
/// a plugin's prefix by its text may then be another one's.
fn leads_out(path: &str) -> bool {
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
    // A route may wait for a turn; only its own request waits for it.
    match handler.unbounded((request,)).await {
        Ok(response) => {
            let failed = format!("plugin {id} failed at {path}");
            response.map(|body| reported(body, move |error| log.line(format_args!("{failed}: {error}"))))
        }
        Err(thrown) => match bodies.refused() {
            // The host refused the body, and the plugin did not catch that.
            Some(refused) => refuse(&refused.clone().into()),
            None => {
                log.line(format_args!("plugin {id} failed at {path}: {}", thrown.for_log()));
                refuse(&Reply::RouteFailed(id.to_owned()))
            }
        },
    }
}

/// A body whose failure half-way is told: by then the status is sent, and the client sees no more than a cut.
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
                        // What came before it, the status first, is written meanwhile.
                        tokio::task::yield_now().await;
                    }
                    chunk
                }
            }))
        }
        whole => whole,
    }
}
