//! Requests and responses of plugin routes: the `http` crate's own, with a body that is read only when asked.
//! Spec: *Plugin routes on the host listener*.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http_body::Frame;

pub use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

/// What a route is called with. The URI is the whole one, prefix included.
pub type Request = http::Request<Body>;
/// What a route answers.
pub type Response = http::Response<Body>;

/// How many seconds the sender of a body that found no memory is asked to wait (`Retry-After`).
pub const RETRY_AFTER: &str = "5";

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than the reader takes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// The sender went away before its end.
    #[error("the body was cut short: {0}")]
    Cut(String),
    /// It did not end in time.
    #[error("the body did not arrive within {} seconds", .0.as_secs())]
    Slow(Duration),
    /// It holds more JSON values than there is memory for.
    #[error("the body contains {values} JSON values; the limit is {most}")]
    TooManyValues {
        /// How many it holds.
        values: usize,
        /// How many are taken.
        most: usize,
    },
    /// The memory for bodies is in use.
    #[error("the host has no memory for this body now; retry later")]
    NoMemory,
}

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// A body. Nothing of it is read before somebody asks.
#[derive(Default)]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// All of it.
    Full(Bytes),
    /// As it comes. Never locked: the lock only lets a request be shared while its body is not read.
    Stream(Mutex<Chunks>),
}

fn unlocked(chunks: &mut Mutex<Chunks>) -> &mut Chunks {
    chunks.get_mut().unwrap_or_else(PoisonError::into_inner)
}

impl Body {
    /// A body that comes bit by bit.
    pub fn stream(chunks: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Self {
        Self::Stream(Mutex::new(Box::pin(chunks)))
    }

    /// The next bit; `None` at the end.
    ///
    /// # Errors
    /// The body was cut short, or did not arrive in time.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self {
            Self::Empty => None,
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Some(Ok(bytes))
            }
            Self::Stream(chunks) => unlocked(chunks).next().await,
        }
    }

    /// All of it, up to `limit` bytes: a longer one is given up at the first byte too many.
    ///
    /// # Errors
    /// The body is too large, was cut short, or did not arrive in time.
    pub async fn read(mut self, limit: usize) -> Result<Bytes, BodyError> {
        let Some(first) = self.next().await else { return Ok(Bytes::new()) };
        let first = first?;
        if first.len() > limit {
            return Err(BodyError::TooLarge(limit));
        }
        let Some(second) = self.next().await else { return Ok(first) };
        let mut all = BytesMut::from(first);
        let mut next = Some(second);
        while let Some(chunk) = next {
            let chunk = chunk?;
            if all.len() + chunk.len() > limit {
                return Err(BodyError::TooLarge(limit));
            }
            all.extend_from_slice(&chunk);
            next = self.next().await;
        }
        Ok(all.freeze())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => formatter.write_str("no body"),
            Self::Full(bytes) => write!(formatter, "{} bytes", bytes.len()),
            Self::Stream(_) => formatter.write_str("a body not read yet"),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Full(bytes) }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Self::Stream(chunks) => {
                unlocked(chunks).poll_next_unpin(context).map(|chunk| chunk.map(|c| c.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Empty => http_body::SizeHint::with_exact(0),
            Self::Full(bytes) => http_body::SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => http_body::SizeHint::default(),
        }
    }
}

/// A response with a JSON body.
pub fn json(status: StatusCode, body: &serde_json::Value) -> Response {
    // A value always encodes.
    let text = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Bytes::from(text).into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response that says what is wrong, in the one shape errors have: `{ "message": … }`.
pub fn message(status: StatusCode, message: impl fmt::Display) -> Response {
    json(status, &serde_json::json!({ "message": message.to_string() }))
}
