//! Values that cross the plugin boundary: JSON, and the live things JSON cannot hold.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::http::{Request, Response};
use crate::shape::FunctionShape;
use crate::thrown::Thrown;

/// An answer that is on its way.
pub type Pending<T> = BoxFuture<'static, Result<T, Thrown>>;

/// An answer that is there.
pub fn ready<T: Send + 'static>(outcome: Result<T, Thrown>) -> Pending<T> {
    Box::pin(std::future::ready(outcome))
}

/// The members of an object that crosses with its functions.
pub type LiveFields = Vec<(Cow<'static, str>, Live)>;

/// A value on its way across the boundary.
#[derive(Default)]
pub enum Live {
    /// Left out.
    #[default]
    Undefined,
    /// Plain data.
    Data(Value),
    /// A `Uint8Array`.
    Bytes(Bytes),
    /// Something to call.
    Function(Function),
    /// An object, of which some member is live.
    Object(LiveFields),
    /// A list, of which some entry is live.
    List(Vec<Live>),
    /// A fetch `Request`.
    Request(Box<Request>),
    /// A fetch `Response`.
    Response(Box<Response>),
    /// The receiver may not write to it, at any depth.
    Frozen(Box<Live>),
}

impl Live {
    /// Whether it was left out.
    pub fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined)
    }

    /// Whether it was left out or is `null`.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Undefined | Self::Data(Value::Null))
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Data(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The value as plain data. Functions have none, as in `JSON.stringify`.
    pub fn into_data(self) -> Option<Value> {
        match self {
            Self::Data(value) => Some(value),
            Self::Frozen(inner) => inner.into_data(),
            Self::List(entries) => {
                Some(entries.into_iter().map(|entry| entry.into_data().unwrap_or_default()).collect())
            }
            Self::Object(fields) => Some(Value::Object(
                fields
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.into_owned(), value.into_data()?)))
                    .collect(),
            )),
            Self::Undefined | Self::Bytes(_) | Self::Function(_) | Self::Request(_) | Self::Response(_) => {
                None
            }
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined => formatter.write_str("undefined"),
            Self::Data(value) => write!(formatter, "{value}"),
            Self::Bytes(bytes) => write!(formatter, "{} bytes", bytes.len()),
            Self::Function(_) => formatter.write_str("function"),
            Self::Object(fields) => {
                formatter.debug_map().entries(fields.iter().map(|(key, value)| (key, value))).finish()
            }
            Self::List(entries) => formatter.debug_list().entries(entries).finish(),
            Self::Request(_) => formatter.write_str("Request"),
            Self::Response(_) => formatter.write_str("Response"),
            Self::Frozen(inner) => inner.fmt(formatter),
        }
    }
}

/// Something on one side of the boundary that the other side may call. Dropping the last clone releases what
/// it stands for.
#[derive(Clone)]
pub struct Function(Arc<dyn Callable>);

/// What stands behind a [`Function`].
pub trait Callable: Send + Sync + 'static {
    /// Parameters and answer, by which the values are converted.
    fn shape(&self) -> &'static FunctionShape;

    /// Calls it. The call takes its place in order when this is called, not when the answer is first awaited.
    fn call(&self, arguments: Vec<Live>) -> Pending<Live>;

    /// Calls a function that answers at once; only one whose shape says `now` can.
    fn call_now(&self, arguments: Vec<Live>) -> Result<Live, Thrown>;

    /// Why it cannot be called at all, whatever it is handed: asked before its arguments are looked at.
    fn refuses(&self) -> Option<Thrown> {
        None
    }

    /// Calls it once per row. One that crosses to another thread does so once for all.
    fn call_each(&self, rows: Vec<Vec<Live>>) -> BoxFuture<'static, Vec<Result<Live, Thrown>>> {
        let calls: Vec<_> = rows.into_iter().map(|row| self.call(row)).collect();
        Box::pin(futures::future::join_all(calls))
    }
}

impl Function {
    /// Wraps what stands behind it.
    pub fn new(callable: impl Callable) -> Self {
        Self(Arc::new(callable))
    }

    /// Parameters and answer.
    pub fn shape(&self) -> &'static FunctionShape {
        self.0.shape()
    }

    /// Calls it; the answer comes later.
    pub fn call(&self, arguments: Vec<Live>) -> Pending<Live> {
        self.0.call(arguments)
    }

    /// Why it cannot be called at all, whatever it is handed.
    pub fn refuses(&self) -> Option<Thrown> {
        self.0.refuses()
    }

    /// Calls it; the answer is there.
    ///
    /// # Errors
    /// What the function throws, or the argument that does not fit.
    pub fn call_now(&self, arguments: Vec<Live>) -> Result<Live, Thrown> {
        self.0.call_now(arguments)
    }

    /// Calls it once per row.
    pub fn call_each(&self, rows: Vec<Vec<Live>>) -> BoxFuture<'static, Vec<Result<Live, Thrown>>> {
        self.0.call_each(rows)
    }
}
