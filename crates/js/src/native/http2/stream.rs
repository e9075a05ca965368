//! One stream of a session: a request and its response, on either side.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Error, Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use rquickjs::{Array, Ctx, Function, Object, Promise, Result, Value};

use super::failed;
use crate::errors::type_error;
use crate::values::{bytes_of, bytes_to_js};

/// The incoming part of a stream.
enum Coming {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// The outgoing part of a stream.
enum Sending {
    /// A server's stream without a response yet.
    Response(SendResponse<Bytes>),
    Body(SendStream<Bytes>),
}

pub(super) struct Stream {
    sending: Sending,
    coming: Coming,
}

pub(super) type Shared = Rc<RefCell<Stream>>;

/// A part of the message before its body.
enum Head {
    Information(Response<()>),
    Response(Response<()>, bool),
}

impl Stream {
    /// Creates a server's stream.
    pub(super) fn accepted(respond: SendResponse<Bytes>, body: RecvStream) -> Shared {
        let stream = Self { sending: Sending::Response(respond), coming: Coming::Body(body) };
        Rc::new(RefCell::new(stream))
    }

    fn id(&self) -> u32 {
        match &self.sending {
            Sending::Response(respond) => respond.stream_id().as_u32(),
            Sending::Body(body) => body.stream_id().as_u32(),
        }
    }

    /// Returns the outgoing body; fails before the response.
    fn body(&mut self) -> std::result::Result<&mut SendStream<Bytes>, Error> {
        match &mut self.sending {
            Sending::Body(body) => Ok(body),
            Sending::Response(_) => Err(Reason::INTERNAL_ERROR.into()),
        }
    }

    fn respond(&mut self, response: Response<()>, last: bool) -> std::result::Result<(), Error> {
        let Sending::Response(respond) = &mut self.sending else {
            return Err(Reason::INTERNAL_ERROR.into());
        };
        self.sending = Sending::Body(respond.send_response(response, last)?);
        Ok(())
    }

    fn inform(&mut self, response: Response<()>) -> std::result::Result<(), Error> {
        match &mut self.sending {
            Sending::Response(respond) => respond.send_informational(response),
            Sending::Body(_) => Err(Reason::INTERNAL_ERROR.into()),
        }
    }

    fn reset(&mut self, reason: Reason) {
        match &mut self.sending {
            Sending::Response(respond) => respond.send_reset(reason),
            Sending::Body(body) => body.send_reset(reason),
        }
    }

    fn poll_head(&mut self, waker: &mut Context<'_>) -> Poll<std::result::Result<Head, Error>> {
        let Coming::Head(response) = &mut self.coming else { return Poll::Pending };
        if let Poll::Ready(Some(information)) = response.poll_informational(waker) {
            return Poll::Ready(information.map(Head::Information));
        }
        Pin::new(response).poll(waker).map_ok(|response| {
            let (head, body) = response.into_parts();
            let ended = body.is_end_stream();
            self.coming = Coming::Body(body);
            Head::Response(Response::from_parts(head, ()), ended)
        })
    }

    fn poll_data(&mut self, waker: &mut Context<'_>) -> Poll<std::result::Result<Option<Bytes>, Error>> {
        let Coming::Body(body) = &mut self.coming else { return Poll::Ready(Ok(None)) };
        match body.poll_data(waker) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(Ok(None)),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(error)),
            Poll::Ready(Some(Ok(bytes))) => {
                // JavaScript's stream only reads when it has room.
                let released = body.flow_control().release_capacity(bytes.len());
                Poll::Ready(released.map(|()| Some(bytes)))
            }
        }
    }

    fn poll_trailers(
        &mut self,
        waker: &mut Context<'_>,
    ) -> Poll<std::result::Result<Option<HeaderMap>, Error>> {
        match &mut self.coming {
            Coming::Body(body) => body.poll_trailers(waker),
            Coming::Head(_) => Poll::Ready(Ok(None)),
        }
    }

    /// Returns how many bytes can be sent; `None` if the stream is closed.
    fn poll_room(
        &mut self,
        waker: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<std::result::Result<Option<usize>, Error>> {
        let sending = self.body()?;
        sending.reserve_capacity(wanted);
        loop {
            match sending.capacity() {
                0 => {}
                room => return Poll::Ready(Ok(Some(room))),
            }
            match sending.poll_capacity(waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(room))) => return Poll::Ready(Ok(Some(room))),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Converts text whose characters are bytes.
fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
}

/// Builds headers from rows of `[name, value, is sensitive]`.
pub(super) fn headers(ctx: &Ctx<'_>, rows: &Array<'_>) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for row in rows.iter::<Array>() {
        let row = row?;
        let (name, value): (String, String) = (row.get(0)?, row.get(1)?);
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
        let bytes = latin1(&value).and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
        let (Some(parsed), Some(mut bytes)) = (parsed, bytes) else {
            return Err(type_error(ctx, format_args!("Invalid header {name:?}: {value:?}")));
        };
        bytes.set_sensitive(row.get::<Option<bool>>(2)?.unwrap_or_default());
        map.append(parsed, bytes);
    }
    Ok(map)
}

/// Returns a flat list of names and values.
pub(super) fn list<'js>(
    ctx: &Ctx<'js>,
    pseudo: &[(&str, String)],
    headers: &HeaderMap,
) -> Result<Array<'js>> {
    let flat = Array::new(ctx.clone())?;
    let mut at = 0;
    let mut add = |name: &str, value: String| -> Result<()> {
        flat.set(at, name)?;
        flat.set(at + 1, value)?;
        at += 2;
        Ok(())
    };
    for (name, value) in pseudo {
        add(name, value.clone())?;
    }
    for (name, value) in headers {
        add(name.as_str(), value.as_bytes().iter().map(|byte| char::from(*byte)).collect())?;
    }
    Ok(flat)
}

/// Returns a client's stream: `head()` returns `[is the response, headers, has ended]`; the rest is from `handle`.
pub(super) fn requested<'js>(
    ctx: &Ctx<'js>,
    response: ResponseFuture,
    sending: SendStream<Bytes>,
) -> Result<Object<'js>> {
    let stream = Stream { sending: Sending::Body(sending), coming: Coming::Head(response) };
    let stream = Rc::new(RefCell::new(stream));
    let handle = handle(ctx, &stream)?;
    handle.set(
        "head",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (shared, inside) = (stream.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                let head = poll_fn(|waker| shared.borrow_mut().poll_head(waker)).await;
                let (last, response, ended) = match head.map_err(|error| failed(&inside, &error))? {
                    Head::Information(response) => (false, response, false),
                    Head::Response(response, ended) => (true, response, ended),
                };
                let status = [(":status", response.status().as_u16().to_string())];
                let row = Array::new(inside.clone())?;
                row.set(0, last)?;
                row.set(1, list(&inside, &status, response.headers())?)?;
                row.set(2, ended)?;
                Ok::<_, rquickjs::Error>(row)
            })
        }),
    )?;
    Ok(handle)
}

/// Returns a server's stream: `respond(status, rows, last)` and `inform(status, rows)`; the rest is from `handle`.
pub(super) fn responding<'js>(ctx: &Ctx<'js>, stream: &Shared) -> Result<Object<'js>> {
    let handle = handle(ctx, stream)?;
    let shared = stream.clone();
    handle.set(
        "respond",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, status: u16, rows: Array<'js>, last: bool| {
            let response = response(&ctx, status, &rows)?;
            let sent = shared.borrow_mut().respond(response, last);
            sent.map_err(|error| failed(&ctx, &error))
        }),
    )?;
    let shared = stream.clone();
    handle.set(
        "inform",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, status: u16, rows: Array<'js>| {
            let response = response(&ctx, status, &rows)?;
            let sent = shared.borrow_mut().inform(response);
            sent.map_err(|error| failed(&ctx, &error))
        }),
    )?;
    Ok(handle)
}

fn response(ctx: &Ctx<'_>, status: u16, rows: &Array<'_>) -> Result<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status)
        .map_err(|_| type_error(ctx, format_args!("Invalid status: {status}")))?;
    *response.headers_mut() = headers(ctx, rows)?;
    Ok(response)
}

/// Returns the functions of either side: `id`; `read()` returns bytes or null, `trailers()` headers or null;
/// `write(bytes, last)` waits for room; `sendTrailers(rows)`, `reset(code)`.
fn handle<'js>(ctx: &Ctx<'js>, stream: &Shared) -> Result<Object<'js>> {
    let handle = Object::new(ctx.clone())?;
    handle.set("id", stream.borrow().id())?;
    let shared = stream.clone();
    handle.set(
        "read",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (shared, inside) = (shared.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                let bytes = poll_fn(|waker| shared.borrow_mut().poll_data(waker)).await;
                match bytes.map_err(|error| failed(&inside, &error))? {
                    Some(bytes) => bytes_to_js(&inside, bytes),
                    None => Ok(Value::new_null(inside)),
                }
            })
        }),
    )?;
    let shared = stream.clone();
    handle.set(
        "trailers",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (shared, inside) = (shared.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                let trailers = poll_fn(|waker| shared.borrow_mut().poll_trailers(waker)).await;
                match trailers.map_err(|error| failed(&inside, &error))? {
                    Some(trailers) => Ok::<_, rquickjs::Error>(Some(list(&inside, &[], &trailers)?)),
                    None => Ok(None),
                }
            })
        }),
    )?;
    let shared = stream.clone();
    handle.set(
        "write",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, bytes: Value<'js>, last: bool| {
            let bytes = bytes_of(&bytes).unwrap_or_default();
            let (shared, inside) = (shared.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                send(&shared, bytes, last).await.map_err(|error| failed(&inside, &error))
            })
        }),
    )?;
    let shared = stream.clone();
    handle.set(
        "sendTrailers",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, rows: Array<'js>| {
            let trailers = headers(&ctx, &rows)?;
            let sent = shared.borrow_mut().body().and_then(|body| body.send_trailers(trailers));
            sent.map_err(|error| failed(&ctx, &error))
        }),
    )?;
    let shared = stream.clone();
    handle.set(
        "reset",
        Function::new(ctx.clone(), move |code: u32| shared.borrow_mut().reset(Reason::from(code))),
    )?;
    Ok(handle)
}

async fn send(stream: &RefCell<Stream>, mut bytes: Bytes, last: bool) -> std::result::Result<(), Error> {
    if bytes.is_empty() {
        return if last { stream.borrow_mut().body()?.send_data(bytes, true) } else { Ok(()) };
    }
    while !bytes.is_empty() {
        let room = poll_fn(|waker| stream.borrow_mut().poll_room(waker, bytes.len())).await?;
        let Some(room) = room else { return Err(Reason::STREAM_CLOSED.into()) };
        let part = bytes.split_to(room.min(bytes.len()));
        stream.borrow_mut().body()?.send_data(part, last && bytes.is_empty())?;
    }
    Ok(())
}
