//! The stream of an endpoint, which notifies an agent of changes of the tools.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use ostler_contract::http::{Body, Response};
use ostler_contract::tools_endpoint::CHANGED;
use ostler_engine::sessions::Brought;
use tokio::sync::watch;

use super::endpoint::Endpoint;
use crate::reply::{Reply, refuse};

/// An empty comment, which detects a closed connection.
const STILL_HERE: &[u8] = b": still here\n\n";
/// Its interval.
const EVERY: Duration = Duration::from_secs(25);

struct Stream {
    changes: watch::Receiver<Brought>,
    /// The latest change that the agent knows.
    told: u64,
    mine: u64,
    current: watch::Receiver<u64>,
}

/// Opens the stream of a backend that requested one. It ends with the session, the endpoint, or the next stream.
pub(super) fn open(endpoint: &Arc<Endpoint>) -> Response {
    if !endpoint.notifies() {
        return refuse(&Reply::NoStream);
    }
    let (mine, current) = endpoint.begin_stream();
    let stream = Stream { changes: endpoint.tools.changes(), told: endpoint.listed(), mine, current };
    let mut response = Response::new(Body::stream(futures::stream::unfold(stream, next)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn next(mut stream: Stream) -> Option<(Result<Bytes, ostler_contract::http::BodyError>, Stream)> {
    loop {
        let (moved, gone) = {
            let brought = stream.changes.borrow_and_update();
            (brought.moved, brought.gone)
        };
        if gone || *stream.current.borrow_and_update() != stream.mine {
            return None;
        }
        if moved != stream.told {
            stream.told = moved;
            return Some((Ok(Bytes::from_static(CHANGED.as_bytes())), stream));
        }
        tokio::select! {
            changed = stream.changes.changed() => if changed.is_err() { return None },
            changed = stream.current.changed() => if changed.is_err() { return None },
            () = tokio::time::sleep(EVERY) => return Some((Ok(Bytes::from_static(STILL_HERE)), stream)),
        }
    }
}
