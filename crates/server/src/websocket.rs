//! WebSocket connections. The library reads frames. What the host publishes is framed once for all subscribers and
//! written unchanged, many frames in one system call.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ostler_contract::budget::{Budget, Charge, SMALL};
use ostler_contract::http::{Body, Response};
use ostler_engine::outbox::{Batch, Closed, Item, Outbox};
use ostler_engine::{Connection, Host};
use ostler_protocol::message::MAX_FRAME;
use ostler_protocol::origins::{self, WayIn};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, Sleep, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

use crate::guard::Admitted;
use crate::linger::{Socket, linger};
use crate::sign_ins::is_same_origin;

/// The library's default is 128 KiB per connection; requests are small.
const READ_BUFFER: usize = 4 * 1024;
/// Smaller frames are combined into one write of this size.
const WRITE_BUFFER: usize = 16 * 1024;
/// The buffer that an idle connection retains for its next write.
const KEPT_BUFFER: usize = 512;
/// The interval of pings to a silent peer.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a peer can be silent.
const SILENCE_LIMIT: Duration = Duration::from_secs(90);

/// How long a peer can read nothing of what is written to it.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// Up to this size, a message is not charged.
const FREE: usize = 16 * 1024;
/// The step by which the charge of a longer message grows.
const CHARGE_STEP: usize = 1024 * 1024;
/// The memory per byte of a message: its text, and the decoded values.
const COPIES: usize = 2;
/// How long a message waits for memory before its connection is closed.
const MEMORY_WAIT: Duration = Duration::from_secs(1);
/// How often it tries to charge memory.
const MEMORY_ASK: Duration = Duration::from_millis(20);

const OPCODE_TEXT: u8 = 0x81;
const OPCODE_CLOSE: u8 = 0x88;
const OPCODE_PING: u8 = 0x89;
const OPCODE_PONG: u8 = 0x8a;

/// Returns whether a request is a WebSocket upgrade.
pub(crate) fn is_handshake<B>(request: &hyper::Request<B>) -> bool {
    let has = |name: header::HeaderName, wanted: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(wanted)))
    };
    request.method() == http::Method::GET
        && has(header::UPGRADE, "websocket")
        && has(header::CONNECTION, "upgrade")
        && request.headers().contains_key(header::SEC_WEBSOCKET_KEY)
}

/// Answers a handshake and serves the connection after the upgrade.
pub(crate) fn upgrade(
    mut request: hyper::Request<Incoming>,
    host: Arc<Host>,
    admitted: Admitted,
    stop: watch::Receiver<bool>,
) -> Response {
    let way = way_in(request.headers());
    let (response, upgrade) = accepted(&mut request);
    if let Some(upgrade) = upgrade {
        tokio::spawn(async move {
            let Ok(upgraded) = upgrade.await else { return };
            let Ok(parts) = upgraded.downcast::<TokioIo<Socket>>() else { return };
            serve(parts.io.into_inner().into_inner(), parts.read_buf, host, (admitted, way), stop).await;
        });
    }
    response
}

/// Returns how the messages of a connection enter the host. A program of the host's own that passes on what others wrote
/// says so; a page with the cookie of a sign-in is the console.
fn way_in(headers: &HeaderMap) -> WayIn {
    let named = headers.get(origins::HEADER).and_then(|name| WayIn::named(name.to_str().ok()?));
    match named {
        Some(way @ (WayIn::Editor | WayIn::CommandLine)) => way,
        _ if is_same_origin(headers) => WayIn::Console,
        _ => WayIn::Client,
    }
}

/// Returns the answer to a handshake, and the upgrade that follows unless it is rejected.
pub(crate) fn accepted(request: &mut hyper::Request<Incoming>) -> (Response, Option<OnUpgrade>) {
    let mut response = Response::new(Body::Empty);
    if request.headers().get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return (response, None);
    }
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let accept = key.and_then(|key| HeaderValue::from_str(&key).ok());
    let upgrade = hyper::upgrade::on(request);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Some(accept) = accept {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    (response, Some(upgrade))
}

async fn serve(
    stream: TcpStream,
    read: Bytes,
    host: Arc<Host>,
    (admitted, way): (Admitted, WayIn),
    mut stop: watch::Receiver<bool>,
) {
    let (reader, writer) = stream.into_split();
    let control = Arc::new(Control::default());
    let connection = Connection::open_by(&host.front, admitted.principal, way, admitted.by);
    let seen = Arc::new(LastHeard::new());
    let outbox = connection.outbox.clone();
    let mut writing = tokio::spawn(write(writer, outbox.clone(), control.clone(), seen.clone()));
    let mut config = WebSocketConfig::default();
    config.read_buffer_size = READ_BUFFER;
    config.write_buffer_size = 0;
    config.max_message_size = Some(MAX_FRAME);
    config.max_frame_size = Some(MAX_FRAME);
    let io = ReadIo::new(reader, control, outbox.budget().clone());
    // The bytes after the handshake are a slice of its whole buffer; copying them frees it.
    let begun = read.to_vec();
    drop(read);
    let mut frames = WebSocketStream::from_partially_read(io, begun, Role::Server, Some(config)).await;
    let why = loop {
        let frame = tokio::select! {
            biased;
            // The peer does not read, has disconnected, or is being disconnected.
            _ = &mut writing => break None,
            _ = stop.wait_for(|stop| *stop) => break Some(Closed::Done),
            // A peer that does not read its answers is not asked for more.
            frame = async { outbox.writable().await; frames.next().await } => frame,
        };
        seen.now();
        // Charged until the message is processed. A control frame can be between its parts.
        let _charge = match &frame {
            Some(Ok(Frame::Ping(payload) | Frame::Pong(payload))) => {
                frames.get_mut().skip(payload.len());
                None
            }
            _ => frames.get_mut().taken(),
        };
        match frame {
            // On the heap, because otherwise every waiting connection would contain the state of the largest command.
            Some(Ok(Frame::Text(text))) => Box::pin(connection.receive_frame(&text)).await,
            Some(Ok(Frame::Binary(bytes))) => match std::str::from_utf8(&bytes) {
                Ok(text) => Box::pin(connection.receive_frame(text)).await,
                Err(_) => break Some(Closed::Protocol),
            },
            // The library uses this code in place of one that no peer may send.
            Some(Ok(Frame::Close(Some(close)))) if close.code == CloseCode::Protocol => {
                break Some(Closed::Protocol);
            }
            Some(Ok(Frame::Close(_))) | None => break Some(Closed::Done),
            Some(Ok(_)) => {}
            Some(Err(Error::Utf8(_))) => break Some(Closed::NotText),
            Some(Err(Error::Io(error))) if error.kind() == io::ErrorKind::OutOfMemory => {
                break Some(Closed::NoMemory);
            }
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => break Some(Closed::TooLarge),
            Some(Err(_)) => break Some(Closed::Protocol),
        }
    };
    if let Some(why) = why {
        outbox.close(why);
    }
    connection.close();
    let farewell = async {
        if why.is_some() {
            let _ = tokio::time::timeout(Duration::from_secs(5), writing).await;
        }
    };
    // Reading continues, because a peer that sends without a pause reads nothing before it is done.
    let ReadIo { reader, .. } = frames.into_inner().released();
    tokio::join!(farewell, linger(reader));
}

/// The time of the last input of a peer.
struct LastHeard {
    begun: Instant,
    at: AtomicU64,
}

impl LastHeard {
    fn new() -> Self {
        Self { begun: Instant::now(), at: AtomicU64::new(0) }
    }

    fn now(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.store(millis, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.at.load(Ordering::Relaxed)))
    }
}

/// The answer to the latest ping. A peer that does not read has only one queued, however many pings it sends.
#[derive(Default)]
struct Control {
    pong: Mutex<Option<Vec<u8>>>,
    wake: Notify,
}

impl Control {
    /// Receives frames that the library writes. Close frames are written elsewhere.
    fn take(&self, mut frames: &[u8]) {
        // A control frame is a byte for the kind, one for the length, and at most 125 more.
        while let [kind, length, rest @ ..] = frames {
            let payload = rest.get(..usize::from(*length)).unwrap_or(rest);
            if *kind == OPCODE_PONG {
                let mut pong = self.pong.lock();
                let pong = pong.get_or_insert_default();
                pong.clear();
                pong.extend_from_slice(&[*kind, *length]);
                pong.extend_from_slice(payload);
                self.wake.notify_one();
            }
            frames = &rest[payload.len()..];
        }
    }
}

/// The stream from which the library reads and to which it writes control frames.
struct ReadIo {
    reader: OwnedReadHalf,
    control: Arc<Control>,
    budget: Budget,
    /// The bytes read of the current message.
    read: usize,
    charge: Option<Charge>,
    /// While no memory is available for it: since when, and when to try again.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl ReadIo {
    fn new(reader: OwnedReadHalf, control: Arc<Control>, budget: Budget) -> Self {
        Self { reader, control, budget, read: 0, charge: None, waits: None }
    }

    /// Excludes a control frame, which is not part of a message.
    fn skip(&mut self, payload: usize) {
        // A byte for the kind, one for the length, and the mask.
        self.read = self.read.saturating_sub(payload + 6);
    }

    /// Returns the charge of the message that was read.
    fn taken(&mut self) -> Option<Charge> {
        self.read = 0;
        self.charge.take()
    }

    /// Resets the count of a message that is dropped.
    fn released(mut self) -> Self {
        self.taken();
        self
    }

    /// Charges the bytes that were read and are about to be read.
    fn poll_charge(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let charged = self.charge.as_ref().map_or(FREE, Charge::bytes);
        if self.read * COPIES < charged {
            return Poll::Ready(Ok(()));
        }
        loop {
            let grown = match &mut self.charge {
                Some(charge) => charge.try_grow(CHARGE_STEP),
                None => {
                    self.charge = self.budget.try_take(SMALL);
                    self.charge.is_some()
                }
            };
            if grown {
                self.waits = None;
                return Poll::Ready(Ok(()));
            }
            let (since, again) =
                self.waits.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(MEMORY_ASK))));
            if since.elapsed() > MEMORY_WAIT {
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            ready!(again.as_mut().poll(context));
            again.as_mut().reset(Instant::now() + MEMORY_ASK);
        }
    }
}

impl AsyncRead for ReadIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_charge(context))?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
        self.read += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadIo {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.control.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Writes the messages of the outbox until it is closed, or the peer does not read.
async fn write(mut writer: OwnedWriteHalf, outbox: Arc<Outbox>, control: Arc<Control>, seen: Arc<LastHeard>) {
    let mut items: Vec<Item> = Vec::new();
    let mut gathered: Vec<u8> = Vec::new();
    let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let closed = tokio::select! {
            biased;
            closed = outbox.drain(&mut items) => closed,
            () = control.wake.notified() => None,
            _ = ping.tick() => {
                if seen.silence() > SILENCE_LIMIT {
                    return;
                }
                gathered.extend_from_slice(&[OPCODE_PING, 0]);
                None
            }
        };
        let to = Writer { socket: &writer, seen: &seen };
        let sent = tokio::select! {
            biased;
            sent = send(&to, &mut items, &mut gathered, &control) => sent,
            () = outbox.overrun() => Ok(()),
        };
        if sent.is_err() {
            return;
        }
        if let Some(why) = closed {
            let farewell = async {
                writer.write_all(&close_frame(why)).await?;
                writer.shutdown().await
            };
            let _ = tokio::time::timeout(Duration::from_secs(1), farewell).await;
            return;
        }
    }
}

/// Writes to a peer as long as it reads.
struct Writer<'a> {
    socket: &'a OwnedWriteHalf,
    seen: &'a LastHeard,
}

impl Writer<'_> {
    async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.socket.try_write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::timeout(STALL_LIMIT, self.socket.writable()).await??;
                    // The buffer has room again only because the peer has read.
                    self.seen.now();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Combines small frames; large and shared ones are written without a copy. Each is freed as soon as it is written.
async fn send(
    writer: &Writer<'_>,
    items: &mut Vec<Item>,
    gathered: &mut Vec<u8>,
    control: &Control,
) -> io::Result<()> {
    gathered.extend(control.pong.lock().take().into_iter().flatten());
    for item in items.drain(..) {
        match item {
            Item::Frame(frame) if frame.len() < WRITE_BUFFER => push_frame(gathered, &frame),
            Item::Frame(frame) => {
                push_head(gathered, frame.len());
                flush(writer, gathered).await?;
                writer.write(&frame).await?;
            }
            Item::Batch(batch) | Item::Stream(batch, _) => {
                let encoded = batch.encoded.get_or_init(|| encode(&batch));
                if encoded.len() < WRITE_BUFFER {
                    gathered.extend_from_slice(encoded);
                } else {
                    flush(writer, gathered).await?;
                    writer.write(encoded).await?;
                }
            }
        }
        if gathered.len() >= WRITE_BUFFER {
            flush(writer, gathered).await?;
        }
    }
    flush(writer, gathered).await?;
    if gathered.capacity() > KEPT_BUFFER {
        *gathered = Vec::new();
    }
    if items.capacity() * size_of::<Item>() > KEPT_BUFFER {
        *items = Vec::new();
    }
    Ok(())
}

async fn flush(writer: &Writer<'_>, gathered: &mut Vec<u8>) -> io::Result<()> {
    writer.write(gathered).await?;
    gathered.clear();
    Ok(())
}

fn encode(batch: &Batch) -> Bytes {
    let frames = batch.frames();
    let mut bytes = BytesMut::with_capacity(frames.iter().map(|frame| frame.len() + 10).sum());
    for frame in frames {
        push_frame(&mut bytes, frame);
    }
    bytes.freeze()
}

/// A text frame of the host: never masked, never split.
fn push_frame(into: &mut impl BufMut, payload: &[u8]) {
    push_head(into, payload.len());
    into.put_slice(payload);
}

fn push_head(into: &mut impl BufMut, length: usize) {
    into.put_u8(OPCODE_TEXT);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(small @ 0..126), _) => into.put_u8(small),
        (_, Ok(middle)) => {
            into.put_u8(126);
            into.put_u16(middle);
        }
        _ => {
            into.put_u8(127);
            into.put_u64(length as u64);
        }
    }
}

fn close_frame(why: Closed) -> Vec<u8> {
    let (code, reason): (u16, &str) = match why {
        Closed::Done => (1000, ""),
        Closed::Behind => (1013, "too far behind; reconnect"),
        Closed::Protocol => (1002, "not the Agent Host Protocol"),
        Closed::TooLarge => (1009, "the frame is too large"),
        Closed::NotText => (1007, "the text is not UTF-8"),
        Closed::NoMemory => (1013, "no memory for this message; try again later"),
        Closed::Moved => (1012, "another host serves this now; reconnect"),
        Closed::SignedOut => (1008, "the token or the sign-in of this connection is no longer valid"),
        Closed::UnreadUsers => (1013, "this host cannot read its users at the moment; reconnect"),
        Closed::LostLease => (1013, "this host lost its lease of the shared database; reconnect"),
    };
    let length = u8::try_from(2 + reason.len()).unwrap_or(2);
    let mut frame = vec![OPCODE_CLOSE, length];
    frame.extend_from_slice(&code.to_be_bytes());
    frame.extend_from_slice(reason.as_bytes());
    frame
}
