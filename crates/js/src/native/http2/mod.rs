//! Sessions of HTTP/2: the `h2` crate on a connection whose bytes JavaScript carries.

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

/// The window of a connection is no larger: what nobody has read yet takes the host's memory.
const LARGEST_WINDOW: u32 = 16 << 20;
/// The window of a connection, unless those of its streams are large.
const WINDOW: u32 = 4 << 20;
/// So many streams may be full while another is still read.
const FULL_STREAMS: u32 = 16;
/// Headers take no more bytes, unless the settings say otherwise.
const LONGEST_HEADERS: u32 = 65535;
/// They say no more than this.
const MOST_HEADERS: u32 = 1 << 20;

/// What `internal/http2/session` is built on.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "session": session, "serverSession": server::session }
}

/// How a session ended by itself.
enum Ended {
    Not,
    Well,
    With(h2::Error),
}

struct Session {
    /// Of a client, and nothing once the session ends.
    requests: Option<SendRequest<Bytes>>,
    /// Of a server: streams that JavaScript has not taken yet.
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

/// Throws what became of a session or a stream. `reason` is the code with which a stream was closed; without it the
/// whole session failed.
fn failed(ctx: &Ctx<'_>, error: &h2::Error) -> rquickjs::Error {
    let reason = if error.is_reset() {
        error.reason()
    } else {
        // The server has gone and did not look at this stream.
        (error.is_go_away() && error.is_remote()).then_some(Reason::REFUSED_STREAM)
    };
    let thrown = plain_error(ctx, error);
    let value = ctx.catch();
    if let Some(object) = value.as_object() {
        // Best effort: the words say the same.
        let _ = object.set("reason", reason.map(u32::from));
    }
    drop(thrown);
    ctx.throw(value)
}

/// Sets what the settings say on a builder of either end; the window of the connection.
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

/// The window of a connection whose streams have windows of this size.
fn window_of(size: u32) -> u32 {
    size.saturating_mul(FULL_STREAMS).clamp(WINDOW, LARGEST_WINDOW)
}

/// A session with its settings, before there is a connection.
fn session<'js>(ctx: Ctx<'js>, settings: Object<'js>) -> Result<Object<'js>> {
    let mut builder = Builder::new();
    builder.enable_push(false);
    let window = configure!(builder, settings);
    let wire = Rc::new(RefCell::new(Wire::new(false)));
    // The wire takes what a session begins with at once.
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

/// Lets the session go on until it ends.
async fn drive(session: Shared, wire: Rc<RefCell<Wire>>, mut connection: Connection<End, Bytes>) {
    let ended = poll_fn(|waker| poll_session(&session, &mut connection, waker)).await;
    conclude(&session, ended);
    // What waits for a stream of it hears that it is gone.
    drop(connection);
    close(&session, &wire);
}

/// The session ended: those who wait for it hear how.
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

/// Nothing more goes out, after what the session says last.
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
            // Until the settings before it are acknowledged, it waits.
            if connection.set_initial_window_size(size).is_ok() {
                session.stream_window = None;
            }
        }
    }
    let polled = Pin::new(connection).poll(waker);
    // What the last streams had to say is out now.
    if polled.is_pending() && session.borrow().closing.is_some() { Poll::Ready(Ok(())) } else { polled }
}

/// `push(bytes)` answers `[is full, frames…]`, `drained()` waits until there is room, `end()` says that nothing more
/// comes, `take()` answers what goes out, or null once nothing more does.
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

/// A frame as `[name, …]`.
fn row<'js>(ctx: &Ctx<'js>, frame: Frame) -> Result<Value<'js>> {
    let row = Array::new(ctx.clone())?;
    match frame {
        Frame::Settings(settings) => {
            row.set(0, "settings")?;
            let flat: Vec<u32> = settings.into_iter().flat_map(|(id, value)| [id.into(), value]).collect();
            row.set(1, flat)?;
        }
        Frame::SettingsAck => row.set(0, "acknowledged")?,
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

/// `request(head, headers, last)` of a client.
fn ask<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, session: &Shared) -> Result<()> {
    let shared = session.clone();
    handle.set(
        "request",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, head: Object<'js>, rows: Array<'js>, last: bool| {
            let request = request(&ctx, &head, &rows)?;
            // Each clone lets requests wait for their turn without a limit of its own.
            let Some(mut requests) = shared.borrow().requests.clone() else {
                return Err(plain_error(&ctx, "the session has ended"));
            };
            let (response, sending) =
                requests.send_request(request, last).map_err(|error| failed(&ctx, &error))?;
            stream::requested(&ctx, response, sending)
        }),
    )
}

/// `ping(bytes)`, `goaway(code, last, bytes)`, `window(size)`, `streamWindow(size)`,
/// `windows()`, `close(code)`, and `ended()`, which answers or throws when the session ended.
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
            // Beyond 2^53 bytes these are no longer exact.
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

/// A request of its pseudo-headers and its headers.
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
