//! WebSocket connections, as a client.

use std::rc::Rc;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use rquickjs::{Array, Ctx, Function, IntoJs, Object, Promise, Result, Value};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

use super::natives;
use crate::errors::{plain_error, type_error};
use crate::values::{bytes_of, bytes_to_js, text};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;
type Sink = Rc<Mutex<SplitSink<Socket, Message>>>;
type Source = Rc<Mutex<SplitStream<Socket>>>;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "connect": connect }
}

fn connect<'js>(
    ctx: Ctx<'js>,
    url: String,
    protocols: Vec<String>,
    headers: Vec<Vec<String>>,
) -> Result<Promise<'js>> {
    let mut request = url
        .as_str()
        .into_client_request()
        .map_err(|error| type_error(&ctx, format_args!("{url}: {error}")))?;
    if !protocols.is_empty() {
        let value = HeaderValue::from_str(&protocols.join(", "))
            .map_err(|_| type_error(&ctx, "a protocol is not a valid token"))?;
        request.headers_mut().insert("sec-websocket-protocol", value);
    }
    for pair in headers {
        let [name, value] = pair.as_slice() else { continue };
        match (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            (Ok(name), Ok(value)) => request.headers_mut().append(name, value),
            _ => return Err(type_error(&ctx, format_args!("the header {name} cannot be sent"))),
        };
    }
    let inside = ctx.clone();
    Promise::wrap_future(&ctx, async move {
        let tls = ostler_net::tls().map_err(|error| plain_error(&inside, error))?;
        let connected =
            connect_async_tls_with_config(request, None, true, Some(Connector::Rustls(tls))).await;
        let (socket, response) = connected.map_err(|error| plain_error(&inside, sentence(&error)))?;
        let handle = Object::new(inside.clone())?;
        let header =
            |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        handle.set("protocol", header("sec-websocket-protocol"))?;
        handle.set("extensions", header("sec-websocket-extensions"))?;
        let (sink, source) = socket.split();
        let (sink, source) = (Rc::new(Mutex::new(sink)), Rc::new(Mutex::new(source)));
        set_send(&inside, &handle, sink)?;
        set_next(&inside, &handle, source)?;
        Ok::<_, rquickjs::Error>(handle)
    })
}

fn sentence(error: &Error) -> String {
    match error {
        Error::Http(response) => format!("Unexpected server response: {}", response.status().as_u16()),
        other => other.to_string(),
    }
}

/// Sets `send(text or bytes)` and `close(code, reason)`.
fn set_send<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, sink: Sink) -> Result<()> {
    let closing = sink.clone();
    handle.set(
        "send",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, data: Value<'js>| {
            let message = match bytes_of(&data) {
                Some(bytes) => Message::Binary(bytes),
                None => Message::Text(text(&data).unwrap_or_default().into()),
            };
            give(&ctx, sink.clone(), message)
        }),
    )?;
    handle.set(
        "close",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, code: Option<u16>, reason: Option<String>| {
            let frame =
                code.map(|code| CloseFrame { code: code.into(), reason: reason.unwrap_or_default().into() });
            give(&ctx, closing.clone(), Message::Close(frame))
        }),
    )
}

fn give<'js>(ctx: &Ctx<'js>, sink: Sink, message: Message) -> Result<Promise<'js>> {
    let inside = ctx.clone();
    Promise::wrap_future(ctx, async move {
        match sink.lock().await.send(message).await {
            // The peer has closed the connection first.
            Ok(()) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => Ok(()),
            Err(error) => Err(plain_error(&inside, error)),
        }
    })
}

/// Sets `next()`, which returns `['text', text]`, `['bytes', bytes]`, or `['close', code, reason]` at the end.
fn set_next<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, source: Source) -> Result<()> {
    handle.set(
        "next",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (source, inside) = (source.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                let mut source = source.lock().await;
                loop {
                    let told = match source.next().await {
                        Some(Ok(Message::Text(text))) => ("text", text.as_str().into_js(&inside)?, None),
                        Some(Ok(Message::Binary(bytes))) => ("bytes", bytes_to_js(&inside, bytes)?, None),
                        Some(Ok(Message::Close(frame))) => {
                            let code = frame.as_ref().map_or(1005, |frame| u16::from(frame.code));
                            let reason = frame.map(|frame| frame.reason.to_string()).unwrap_or_default();
                            ("close", code.into_js(&inside)?, Some(reason))
                        }
                        Some(Ok(_)) => continue,
                        Some(Err(Error::ConnectionClosed)) | None => {
                            ("close", 1006.into_js(&inside)?, Some(String::new()))
                        }
                        Some(Err(error)) => return Err(plain_error(&inside, error)),
                    };
                    let answer = Array::new(inside.clone())?;
                    answer.set(0, told.0)?;
                    answer.set(1, told.1)?;
                    answer.set(2, told.2)?;
                    return Ok(answer);
                }
            })
        }),
    )
}
