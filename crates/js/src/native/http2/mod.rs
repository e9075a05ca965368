//! HTTP/2 sessions: the `h2` crate on a connection whose bytes JavaScript transfers.

mod scan;
mod server;
mod stream;
mod wire;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::FutureExt as _;
use h2::Reason;
use h2::client::{Builder, Connection, SendRequest};
use h2::ext::Protocol;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri};
use rquickjs::{Array, Ctx, Function, IntoJs, Object, Promise, Result, Value};

use super::natives;
use crate::errors::{plain_error, type_error};
use crate::values::{bytes_of, bytes_to_js};
use scan::Frame;
use server::Accepted;
use wire::{End, Wire};

/// The maximum window of a connection, because unread data uses the host's memory.
const LARGEST_WINDOW: u32 = 16 << 20;
/// The minimum window of a connection.
const WINDOW: u32 = 4 << 20;
/// The number of full streams beside which another stream can still be read.
const FULL_STREAMS: u32 = 16;
/// The default maximum size of headers, in bytes.
const LONGEST_HEADERS: u32 = 65535;
/// The maximum value of that setting.
const MOST_HEADERS: u32 = 1 << 20;

/// Returns the native functions for `internal/http2/session`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "session": session, "serverSession": server::session }
}

/// How a session ended.
enum Ended {
    Not,
    Well,
    With(h2::Error),
}

struct Session {
    /// Only for a client, until the session ends.
    requests: Option<SendRequest<Bytes>>,
    /// Only for a server: the streams that JavaScript has not accepted yet.
    accepted: VecDeque<Accepted>,
    acceptor: Option<Waker>,
    window: Option<u32>,
    stream_window: Option<u32>,
    closing: Option<u32>,
    ended: Ended,
    driver: Option<Waker>,
    watcher: Option<Waker>,
}

impl Session {
    fn new(requests: Option<SendRequest<Bytes>>) -> Self {
        Self {
            requests,
            accepted: VecDeque::new(),
            acceptor: None,
            window: None,
            stream_window: None,
            closing: None,
            ended: Ended::Not,
            driver: None,
            watcher: None,
        }
    }

    fn wake(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

type Shared = Rc<RefCell<Session>>;

/// Throws the error of a session or a stream. `reason` is the code with which a stream was closed; without it, the
/// whole session failed.
fn failed(ctx: &Ctx<'_>, error: &h2::Error) -> rquickjs::Error {
    let reason = if error.is_reset() {
        error.reason()
    } else {
        // The server has closed the session without processing this stream.
        (error.is_go_away() && error.is_remote()).then_some(Reason::REFUSED_STREAM)
    };
    let thrown = plain_error(ctx, error);
    let value = ctx.catch();
    if let Some(object) = value.as_object() {
        // Best effort: the message contains the same.
        let _ = object.set("reason", reason.map(u32::from));
    }
    drop(thrown);
    ctx.throw(value)
}

/// Applies the settings to a builder of either side; returns the window of the connection.
macro_rules! configure {
    ($builder:ident, $settings:ident) => {{
        let given = |name: &str| $settings.get::<_, Option<u32>>(name);
        let headers = given("maxHeaderListSize")?.unwrap_or(crate::native::http2::LONGEST_HEADERS);
        $builder.max_header_list_size(headers.min(crate::native::http2::MOST_HEADERS));
        if let Some(size) = given("headerTableSize")? {
            $builder.header_table_size(size.min(crate::native::http2::MOST_HEADERS));
        }
        let mut window = crate::native::http2::WINDOW;
        if let Some(size) = given("initialWindowSize")? {
            $builder.initial_window_size(size);
            window = crate::native::http2::window_of(size);
        }
        $builder.initial_connection_window_size(window);
        if let Some(size) = given("maxFrameSize")? {
            $builder.max_frame_size(size);
        }
        if let Some(many) = given("maxConcurrentStreams")? {
            $builder.max_concurrent_streams(many);
        }
        window
    }};
}
use configure;

/// Returns the window of a connection whose streams have windows of this size.
fn window_of(size: u32) -> u32 {
    size.saturating_mul(FULL_STREAMS).clamp(WINDOW, LARGEST_WINDOW)
}

/// Creates a client session with its settings, before there is a connection.
fn session<'js>(ctx: Ctx<'js>, settings: Object<'js>) -> Result<Object<'js>> {
    let mut builder = Builder::new();
    builder.enable_push(false);
    let window = configure!(builder, settings);
    let wire = Rc::new(RefCell::new(Wire::new(false)));
    // The wire accepts the preface immediately.
    let begun = builder.handshake::<_, Bytes>(End(wire.clone())).now_or_never();
    let (requests, connection) = match begun {
        Some(Ok(begun)) => begun,
        Some(Err(error)) => return Err(failed(&ctx, &error)),
        None => return Err(plain_error(&ctx, "the session could not begin")),
    };
    let session = Rc::new(RefCell::new(Session::new(Some(requests))));
    ctx.spawn(drive(session.clone(), wire.clone(), connection));
    let handle = Object::new(ctx.clone())?;
    handle.set("windowSize", window)?;
    carry(&ctx, &handle, &wire)?;
    ask(&ctx, &handle, &session)?;
    control(&ctx, &handle, &session, &wire)?;
    Ok(handle)
}

/// Drives the session until it ends.
async fn drive(session: Shared, wire: Rc<RefCell<Wire>>, mut connection: Connection<End, Bytes>) {
    let ended = poll_fn(|waker| poll_session(&session, &mut connection, waker)).await;
    conclude(&session, ended);
    // Dropping the connection wakes the waiters of its streams.
    drop(connection);
    close(&session, &wire);
}

/// Records the end of the session and notifies the waiters.
fn conclude(session: &Shared, ended: std::result::Result<(), h2::Error>) {
    let mut session = session.borrow_mut();
    session.requests = None;
    session.ended = match ended {
        Ok(()) => Ended::Well,
        Err(error) => Ended::With(error),
    };
    for waker in [session.watcher.take(), session.acceptor.take()].into_iter().flatten() {
        waker.wake();
    }
}

/// Closes the output after the session's last frame.
fn close(session: &Shared, wire: &RefCell<Wire>) {
    let mut wire = wire.borrow_mut();
    if let Some(code) = session.borrow().closing {
        wire.insert(scan::go_away(code, 0, &[]));
    }
    wire.close();
}

fn poll_session(
    session: &Shared,
    connection: &mut Connection<End, Bytes>,
    waker: &mut Context<'_>,
) -> Poll<std::result::Result<(), h2::Error>> {
    {
        let mut session = session.borrow_mut();
        session.driver = Some(waker.waker().clone());
        if let Some(size) = session.window.take() {
            connection.set_target_window_size(size);
        }
        if let Some(size) = session.stream_window {
            // Retried until the previous settings are acknowledged.
            if connection.set_initial_window_size(size).is_ok() {
                session.stream_window = None;
            }
        }
    }
    let polled = Pin::new(connection).poll(waker);
    // The last frames of the streams have been sent.
    if polled.is_pending() && session.borrow().closing.is_some() { Poll::Ready(Ok(())) } else { polled }
}

/// Sets `push(bytes)`, which returns `[is full, frames…]`; `drained()`, which waits for room; `end()`, which ends the
/// input; and `take()`, which returns the next output, or null at its end.
fn carry<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, wire: &Rc<RefCell<Wire>>) -> Result<()> {
    let shared = wire.clone();
    handle.set(
        "push",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, bytes: Value<'js>| {
            let bytes = bytes_of(&bytes).unwrap_or_default();
            let (found, full) = {
                let mut wire = shared.borrow_mut();
                (wire.receive(&bytes), wire.is_full())
            };
            let rows = Array::new(ctx.clone())?;
            rows.set(0, full)?;
            for (at, frame) in found.into_iter().enumerate() {
                rows.set(at + 1, row(&ctx, frame)?)?;
            }
            Ok::<_, rquickjs::Error>(rows)
        }),
    )?;
    let shared = wire.clone();
    handle.set(
        "drained",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let shared = shared.clone();
            Promise::wrap_future(&ctx, async move {
                poll_fn(|waker| shared.borrow_mut().poll_drained(waker)).await;
                Ok::<_, rquickjs::Error>(())
            })
        }),
    )?;
    let shared = wire.clone();
    handle.set("end", Function::new(ctx.clone(), move || shared.borrow_mut().end()))?;
    let shared = wire.clone();
    handle.set(
        "take",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (shared, inside) = (shared.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                match poll_fn(|waker| shared.borrow_mut().poll_take(waker)).await {
                    Some(bytes) => bytes_to_js(&inside, bytes),
                    None => Ok(Value::new_null(inside)),
                }
            })
        }),
    )
}

/// Converts a frame to `[name, …]`.
fn row<'js>(ctx: &Ctx<'js>, frame: Frame) -> Result<Value<'js>> {
    let row = Array::new(ctx.clone())?;
    match frame {
        Frame::Settings(settings) => {
            row.set(0, "settings")?;
            let flat: Vec<u32> = settings.into_iter().flat_map(|(id, value)| [id.into(), value]).collect();
            row.set(1, flat)?;
        }
        Frame::SettingsAck { inserted } => {
            row.set(0, "acknowledged")?;
            row.set(1, inserted)?;
        }
        Frame::Ping(payload) => {
            row.set(0, "ping")?;
            row.set(1, bytes_to_js(ctx, payload)?)?;
        }
        Frame::Pong(payload) => {
            row.set(0, "pong")?;
            row.set(1, bytes_to_js(ctx, payload)?)?;
        }
        Frame::GoAway { last, code, data } => {
            row.set(0, "goaway")?;
            row.set(1, code)?;
            row.set(2, last)?;
            row.set(3, bytes_to_js(ctx, data)?)?;
        }
        Frame::Ended { stream, headers } => {
            row.set(0, "ended")?;
            row.set(1, stream)?;
            row.set(2, headers)?;
        }
        Frame::Reset { stream, code } => {
            row.set(0, "reset")?;
            row.set(1, stream)?;
            row.set(2, code)?;
        }
    }
    row.into_js(ctx)
}

/// Sets `request(head, headers, last)` of a client.
fn ask<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, session: &Shared) -> Result<()> {
    let shared = session.clone();
    handle.set(
        "request",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, head: Object<'js>, rows: Array<'js>, last: bool| {
            let request = request(&ctx, &head, &rows)?;
            // Each clone has a separate queue, so requests can wait without a limit.
            let Some(mut requests) = shared.borrow().requests.clone() else {
                return Err(plain_error(&ctx, "the session has ended"));
            };
            let (response, sending) =
                requests.send_request(request, last).map_err(|error| failed(&ctx, &error))?;
            stream::requested(&ctx, response, sending)
        }),
    )
}

/// Sets `ping(bytes)`, `settings(bytes)`, `goaway(code, last, bytes)`, `window(size)`, `streamWindow(size)`, `windows()`, `close(code)`,
/// and `ended()`, which returns or throws when the session has ended.
fn control<'js>(
    ctx: &Ctx<'js>,
    handle: &Object<'js>,
    session: &Shared,
    wire: &Rc<RefCell<Wire>>,
) -> Result<()> {
    let shared = wire.clone();
    handle.set(
        "ping",
        Function::new(ctx.clone(), move |payload: Value<'js>| {
            let payload = bytes_of(&payload).unwrap_or_default();
            shared.borrow_mut().insert(scan::ping(&payload));
        }),
    )?;
    let shared = wire.clone();
    handle.set(
        "settings",
        Function::new(ctx.clone(), move |packed: Value<'js>| {
            let packed = bytes_of(&packed).unwrap_or_default();
            shared.borrow_mut().insert(scan::settings(&packed));
        }),
    )?;
    let shared = wire.clone();
    handle.set(
        "goaway",
        Function::new(ctx.clone(), move |code: u32, last: u32, data: Value<'js>| {
            let data = bytes_of(&data).unwrap_or_default();
            shared.borrow_mut().insert(scan::go_away(code, last, &data));
        }),
    )?;
    let shared = session.clone();
    handle.set(
        "window",
        Function::new(ctx.clone(), move |size: u32| {
            let size = size.min(LARGEST_WINDOW);
            let mut session = shared.borrow_mut();
            session.window = Some(size);
            session.wake();
            size
        }),
    )?;
    let shared = session.clone();
    handle.set(
        "streamWindow",
        Function::new(ctx.clone(), move |size: u32| {
            let mut session = shared.borrow_mut();
            session.stream_window = Some(size);
            session.wake();
        }),
    )?;
    let shared = wire.clone();
    handle.set(
        "windows",
        Function::new(ctx.clone(), move || {
            let wire = shared.borrow();
            // Above 2^53 bytes these values are inexact.
            let left = |opened: u64, data: u64| (opened + 65535).saturating_sub(data) as f64;
            vec![left(wire.sent.opened, wire.received.data), left(wire.received.opened, wire.sent.data)]
        }),
    )?;
    let shared = session.clone();
    handle.set(
        "close",
        Function::new(ctx.clone(), move |code: u32| {
            let mut session = shared.borrow_mut();
            session.closing = Some(code);
            session.wake();
        }),
    )?;
    let shared = session.clone();
    handle.set(
        "ended",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (shared, inside) = (shared.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                poll_fn(|waker| {
                    let mut session = shared.borrow_mut();
                    if !matches!(session.ended, Ended::Not) {
                        return Poll::Ready(());
                    }
                    session.watcher = Some(waker.waker().clone());
                    Poll::Pending
                })
                .await;
                match &shared.borrow().ended {
                    Ended::With(error) => Err(failed(&inside, error)),
                    Ended::Not | Ended::Well => Ok(()),
                }
            })
        }),
    )
}

/// Builds a request from its pseudo-headers and headers.
fn request(ctx: &Ctx<'_>, head: &Object<'_>, rows: &Array<'_>) -> Result<Request<()>> {
    let given = |name: &str| head.get::<_, Option<String>>(name);
    let invalid = |name: &str, value: &str| type_error(ctx, format_args!("Invalid {name}: {value:?}"));
    let method = given(":method")?.unwrap_or_else(|| "GET".to_owned());
    let mut parts = http::uri::Parts::default();
    if let Some(scheme) = given(":scheme")? {
        parts.scheme = Some(Scheme::try_from(scheme.as_str()).map_err(|_| invalid(":scheme", &scheme))?);
    }
    if let Some(authority) = given(":authority")? {
        let parsed = Authority::try_from(authority.as_str());
        parts.authority = Some(parsed.map_err(|_| invalid(":authority", &authority))?);
    }
    if let Some(path) = given(":path")? {
        let parsed = PathAndQuery::try_from(path.as_str());
        parts.path_and_query = Some(parsed.map_err(|_| invalid(":path", &path))?);
    }
    let mut request = Request::new(());
    *request.uri_mut() = Uri::from_parts(parts).map_err(|error| type_error(ctx, error))?;
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| invalid(":method", &method))?;
    *request.headers_mut() = stream::headers(ctx, rows)?;
    if let Some(protocol) = given(":protocol")? {
        request.extensions_mut().insert(Protocol::from(protocol.as_str()));
    }
    Ok(request)
}
