//! Bodies of requests, read on demand and within a time limit.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use ostler_contract::http::{Body, BodyError};
use tokio::time::Instant;

/// The limit of a body, from the first read to its end.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// A request's body as plugins read it.
pub(crate) fn incoming(body: Incoming) -> Body {
    if body.is_end_stream() {
        return Body::Empty;
    }
    Body::stream(futures::stream::unfold(State { body, deadline: None, over: false }, next))
}

struct State {
    body: Incoming,
    deadline: Option<Instant>,
    over: bool,
}

async fn next(mut state: State) -> Option<(Result<Bytes, BodyError>, State)> {
    if state.over {
        return None;
    }
    let deadline = *state.deadline.get_or_insert_with(|| Instant::now() + BODY_LIMIT);
    loop {
        let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut state.body).poll_frame(context));
        let read = match tokio::time::timeout_at(deadline, frame).await {
            Err(_) => Err(BodyError::Slow(BODY_LIMIT)),
            Ok(None) => return None,
            Ok(Some(Err(error))) => Err(BodyError::Cut(error.to_string())),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(data),
                // Trailers are ignored.
                Err(_) => continue,
            },
        };
        state.over = read.is_err();
        return Some((read, state));
    }
}
