//! Conversion of requests and responses. In JavaScript they are the embedded `internal/http` classes. Bodies are
//! streamed and not read before they are requested.

mod client;

use std::rc::Rc;
use std::sync::OnceLock;

use bytes::Bytes;
use futures::stream;
use ostler_contract::http::{
    Body, BodyError, HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header,
};
use ostler_contract::live::{Callable, Live};
use ostler_contract::shape::{FunctionShape, Shape};
use ostler_contract::{Bodies, Charge};
use rquickjs::{Array, Ctx, Function, Object, Promise, Result, Value};
use tokio::sync::{Mutex, Notify};

pub(crate) use client::native;
pub use client::network;

use crate::engine::State;
use crate::errors::{plain_error, type_error};
use crate::functions::{JsFunction, hold};
use crate::modules::builtin;
use crate::values::{bytes_of, bytes_to_js};

/// Converts a request of the host to a `Request`.
pub(crate) fn request_to_js<'js>(ctx: &Ctx<'js>, request: Request) -> Result<Value<'js>> {
    let (head, body) = request.into_parts();
    let parts = Object::new(ctx.clone())?;
    parts.set("method", head.method.as_str())?;
    parts.set("url", absolute(&head.uri, &head.headers))?;
    parts.set("headers", headers_to_js(ctx, &head.headers)?)?;
    let body = match head.extensions.get::<Bodies>() {
        Some(bodies) if matches!(body, Body::Stream(_)) => charged_to_js(ctx, body, bodies)?,
        _ => body_to_js(ctx, body)?,
    };
    parts.set("body", body)?;
    module(ctx)?.get::<_, Function>("requestFrom")?.call((parts,))
}

/// Returns the absolute URL for a `Request`. Its host comes from the `Host` header, which was validated on arrival; the
/// request line may contain another host.
fn absolute(uri: &Uri, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_none() && uri.scheme().is_some() {
        return uri.to_string();
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    format!("http://{}{path}", host.unwrap_or("localhost"))
}

/// Converts a response of the host to a `Response`.
pub(crate) fn response_to_js<'js>(ctx: &Ctx<'js>, response: Response) -> Result<Value<'js>> {
    module(ctx)?.get::<_, Function>("responseFrom")?.call((response_parts(ctx, response)?,))
}

/// Returns the parts for `responseFrom`.
fn response_parts<'js>(ctx: &Ctx<'js>, response: Response) -> Result<Object<'js>> {
    let (head, body) = response.into_parts();
    let parts = Object::new(ctx.clone())?;
    parts.set("status", head.status.as_u16())?;
    parts.set("statusText", head.status.canonical_reason().unwrap_or_default())?;
    parts.set("headers", headers_to_js(ctx, &head.headers)?)?;
    parts.set("body", body_to_js(ctx, body)?)?;
    Ok(parts)
}

/// Converts a `Request` for the host; returns `None` if the value is not one.
pub(crate) fn request_from_js<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    value: &Value<'js>,
) -> Result<Option<Live>> {
    match parts(ctx, "Request", value)? {
        Some(parts) => Ok(Some(Live::Request(Box::new(read_request(ctx, state, &parts)?)))),
        None => Ok(None),
    }
}

fn read_request<'js>(ctx: &Ctx<'js>, state: &State, parts: &Object<'js>) -> Result<Request> {
    let mut request = Request::new(body_from_js(ctx, state, parts.get("body")?)?);
    let (method, url): (String, String) = (parts.get("method")?, parts.get("url")?);
    *request.method_mut() = method
        .parse()
        .map_err(|_| type_error(ctx, format_args!("'{method}' is not a valid HTTP method.")))?;
    *request.uri_mut() =
        url.parse().map_err(|_| type_error(ctx, format_args!("{url} cannot be requested")))?;
    *request.headers_mut() = headers_from_js(ctx, parts.get("headers")?)?;
    Ok(request)
}

/// Converts a `Response` for the host; returns `None` if the value is not one.
pub(crate) fn response_from_js<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    value: &Value<'js>,
) -> Result<Option<Live>> {
    let Some(parts) = parts(ctx, "Response", value)? else { return Ok(None) };
    let mut response = Response::new(body_from_js(ctx, state, parts.get("body")?)?);
    let status: u16 = parts.get("status")?;
    *response.status_mut() = StatusCode::from_u16(status)
        .map_err(|_| type_error(ctx, format_args!("{status} is not an HTTP status")))?;
    *response.headers_mut() = headers_from_js(ctx, parts.get("headers")?)?;
    Ok(Some(Live::Response(Box::new(response))))
}

/// Returns the parts of a `Request` or `Response` that the host needs; `None` if the value is not one.
fn parts<'js>(ctx: &Ctx<'js>, class: &str, value: &Value<'js>) -> Result<Option<Object<'js>>> {
    let module = module(ctx)?;
    module.get::<_, Function>("partsOf")?.call((module.get::<_, Value>(class)?, value.clone()))
}

fn module<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    builtin(ctx, "internal/http")
}

/// Returns pairs of names and values. Each byte of a value becomes one character, as in all web APIs.
fn headers_to_js<'js>(ctx: &Ctx<'js>, headers: &HeaderMap) -> Result<Array<'js>> {
    let pairs = Array::new(ctx.clone())?;
    for (at, (name, value)) in headers.iter().enumerate() {
        let text: String = value.as_bytes().iter().map(|byte| *byte as char).collect();
        let pair = Array::new(ctx.clone())?;
        pair.set(0, name.as_str())?;
        pair.set(1, text)?;
        pairs.set(at, pair)?;
    }
    Ok(pairs)
}

fn headers_from_js<'js>(ctx: &Ctx<'js>, pairs: Array<'js>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in pairs.iter::<Array>() {
        let pair = pair?;
        let (name, value): (String, String) = (pair.get(0)?, pair.get(1)?);
        let bytes: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let (name, value) = match (
            name.parse::<ostler_contract::http::header::HeaderName>(),
            bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok()),
        ) {
            (Ok(name), Some(value)) => (name, value),
            _ => return Err(type_error(ctx, format_args!("the header {name} cannot be sent"))),
        };
        headers.append(name, value);
    }
    Ok(headers)
}

/// Converts a request's body that is charged to its budget. Like [`body_to_js`], but each chunk is `{ bytes, charge }`,
/// where the bytes are charged until `charge` is freed, and the function has a member `all` that reads the rest.
fn charged_to_js<'js>(ctx: &Ctx<'js>, body: Body, bodies: &Bodies) -> Result<Value<'js>> {
    let pieces = Rc::new(Mutex::new(bodies.pieces(body)));
    let rest = pieces.clone();
    let next = Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
        let (pieces, inside) = (pieces.clone(), ctx.clone());
        Promise::wrap_future(&ctx, async move {
            match pieces.lock().await.next().await {
                Some(read) => charged(&inside, read),
                None => Ok(Value::new_null(inside)),
            }
        })
    })?;
    let all = Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
        let (pieces, inside) = (rest.clone(), ctx.clone());
        Promise::wrap_future(&ctx, async move { charged(&inside, pieces.lock().await.all().await) })
    })?;
    next.set("all", all)?;
    Ok(next.into_value())
}

fn charged<'js>(ctx: &Ctx<'js>, read: std::result::Result<(Bytes, Charge), BodyError>) -> Result<Value<'js>> {
    let (bytes, charge) = read.map_err(|error| plain_error(ctx, error))?;
    let charged = Object::new(ctx.clone())?;
    charged.set("bytes", bytes_to_js(ctx, bytes)?)?;
    charged.set("charge", Function::new(ctx.clone(), move || charge.bytes())?)?;
    Ok(charged.into_value())
}

/// Converts a body: null, bytes, or a function that returns the next chunk. Its member `cancel` drops the rest and with
/// it the connection.
fn body_to_js<'js>(ctx: &Ctx<'js>, body: Body) -> Result<Value<'js>> {
    match body {
        Body::Empty => Ok(Value::new_null(ctx.clone())),
        Body::Full(bytes) => bytes_to_js(ctx, bytes),
        Body::Stream(_) => {
            let body = Rc::new(Mutex::new(body));
            let cancelled = Rc::new(Notify::new());
            let (rest, cancels) = (body.clone(), cancelled.clone());
            let next = Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
                let (body, cancelled, inside) = (body.clone(), cancelled.clone(), ctx.clone());
                Promise::wrap_future(&ctx, async move {
                    let mut body = body.lock().await;
                    let read = tokio::select! {
                        biased;
                        () = cancelled.notified() => {
                            *body = Body::Empty;
                            None
                        }
                        read = body.next() => read,
                    };
                    match read {
                        Some(Ok(bytes)) => bytes_to_js(&inside, bytes),
                        Some(Err(error)) => Err(plain_error(&inside, error)),
                        None => Ok(Value::new_null(inside)),
                    }
                })
            })?;
            let cancel = Function::new(ctx.clone(), move || match rest.try_lock() {
                Ok(mut body) => *body = Body::Empty,
                // The reader drops it.
                Err(_) => cancels.notify_one(),
            })?;
            next.set("cancel", cancel)?;
            Ok(next.into_value())
        }
    }
}

/// Converts a body from null, bytes, or `{ next, cancel }`.
fn body_from_js<'js>(ctx: &Ctx<'js>, state: &State, body: Value<'js>) -> Result<Body> {
    if body.is_null() || body.is_undefined() {
        return Ok(Body::Empty);
    }
    if let Some(bytes) = bytes_of(&body) {
        return Ok(bytes.into());
    }
    let source: Object<'js> = body.get()?;
    let held = |name: &str, shape| -> Result<_> {
        let function: Function<'js> = source.get(name)?;
        hold(ctx, state, &function, None, shape)
            .ok_or_else(|| plain_error(ctx, "the plugin is being stopped"))
    };
    let pull =
        Pull { next: held("next", next_shape())?, cancel: held("cancel", cancel_shape())?, done: false };
    Ok(Body::stream(stream::unfold(pull, |mut pull| async {
        let chunk = pull.pull().await?;
        Some((chunk, pull))
    })))
}

/// A JavaScript stream that the host pulls. If it is dropped before its end, it is cancelled.
struct Pull {
    next: JsFunction,
    cancel: JsFunction,
    done: bool,
}

impl Pull {
    async fn pull(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        if self.done {
            return None;
        }
        match self.next.call(Vec::new()).await {
            Ok(Live::Bytes(bytes)) => Some(Ok(bytes)),
            Ok(_) => {
                self.done = true;
                None
            }
            Err(thrown) => {
                self.done = true;
                Some(Err(BodyError::Cut(thrown.message)))
            }
        }
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        if !self.done {
            // The call is queued now; its result is not needed.
            drop(self.cancel.call(Vec::new()));
        }
    }
}

fn next_shape() -> &'static FunctionShape {
    static SHAPE: OnceLock<FunctionShape> = OnceLock::new();
    SHAPE.get_or_init(|| FunctionShape {
        params: Vec::new(),
        returns: Shape::Optional(Box::new(Shape::Bytes)),
        now: false,
    })
}

fn cancel_shape() -> &'static FunctionShape {
    static SHAPE: OnceLock<FunctionShape> = OnceLock::new();
    SHAPE.get_or_init(|| FunctionShape { params: Vec::new(), returns: Shape::Nothing, now: false })
}
