//! A server session: streams are accepted in the order in which clients open them.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use h2::ext::Protocol;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use http::Request;
use http::request::Parts;
use rquickjs::{Ctx, Function, Object, Promise, Result, Value};

use super::stream::{self, Stream};
use super::wire::{End, Wire};
use super::{Ended, Session, Shared, carry, close, conclude, configure, control};

/// A request with the handle for its response.
pub(super) type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// Creates a server session with its settings, before the client has sent anything: the functions of every session, and
/// `accept()`.
pub(super) fn session<'js>(ctx: Ctx<'js>, settings: Object<'js>) -> Result<Object<'js>> {
    let mut builder = Builder::new();
    let window = configure!(builder, settings);
    if settings.get::<_, Option<bool>>("enableConnectProtocol")?.unwrap_or_default() {
        builder.enable_connect_protocol();
    }
    let wire = Rc::new(RefCell::new(Wire::new(true)));
    let begun = builder.handshake::<_, Bytes>(End(wire.clone()));
    let session = Rc::new(RefCell::new(Session::new(None)));
    ctx.spawn(serve(session.clone(), wire.clone(), begun));
    let handle = Object::new(ctx.clone())?;
    handle.set("windowSize", window)?;
    carry(&ctx, &handle, &wire)?;
    accept(&ctx, &handle, &session)?;
    control(&ctx, &handle, &session, &wire)?;
    Ok(handle)
}

/// The state of a client's connection, which may not have completed its handshake.
enum Phase {
    Beginning(Handshake<End, Bytes>),
    Open(Connection<End, Bytes>),
}

/// Drives the session until it ends.
async fn serve(session: Shared, wire: Rc<RefCell<Wire>>, begun: Handshake<End, Bytes>) {
    let mut phase = Phase::Beginning(begun);
    let ended = poll_fn(|waker| poll_session(&session, &mut phase, waker)).await;
    conclude(&session, ended);
    // Dropping the connection wakes the waiters of its streams.
    drop(phase);
    close(&session, &wire);
}

fn poll_session(
    session: &Shared,
    phase: &mut Phase,
    waker: &mut Context<'_>,
) -> Poll<std::result::Result<(), h2::Error>> {
    session.borrow_mut().driver = Some(waker.waker().clone());
    loop {
        match phase {
            Phase::Beginning(begun) => match Pin::new(begun).poll(waker) {
                Poll::Ready(begun) => *phase = Phase::Open(begun?),
                Poll::Pending => break,
            },
            Phase::Open(connection) => {
                resize(&mut session.borrow_mut(), connection);
                match connection.poll_accept(waker) {
                    Poll::Ready(Some(accepted)) => {
                        let mut session = session.borrow_mut();
                        session.accepted.push_back(accepted?);
                        if let Some(acceptor) = session.acceptor.take() {
                            acceptor.wake();
                        }
                    }
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => break,
                }
            }
        }
    }
    // The last frames of the streams have been sent.
    if session.borrow().closing.is_some() { Poll::Ready(Ok(())) } else { Poll::Pending }
}

fn resize(session: &mut Session, connection: &mut Connection<End, Bytes>) {
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

/// Sets `accept()`, which returns the next stream with its `headers` and whether it has `ended`; null at the end.
fn accept<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, session: &Shared) -> Result<()> {
    let shared = session.clone();
    handle.set(
        "accept",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (shared, inside) = (shared.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                let accepted = poll_fn(|waker| {
                    let mut session = shared.borrow_mut();
                    if let Some(accepted) = session.accepted.pop_front() {
                        return Poll::Ready(Some(accepted));
                    }
                    if !matches!(session.ended, Ended::Not) {
                        return Poll::Ready(None);
                    }
                    session.acceptor = Some(waker.waker().clone());
                    Poll::Pending
                })
                .await;
                let Some((request, respond)) = accepted else {
                    return Ok::<_, rquickjs::Error>(Value::new_null(inside));
                };
                let (head, body) = request.into_parts();
                let ended = body.is_end_stream();
                let handle = stream::responding(&inside, &Stream::accepted(respond, body))?;
                handle.set("headers", stream::list(&inside, &pseudo(&head), &head.headers)?)?;
                handle.set("ended", ended)?;
                Ok(handle.into_value())
            })
        }),
    )
}

/// Returns the pseudo-headers of a request, in the order in which Node sends them.
fn pseudo(head: &Parts) -> Vec<(&'static str, String)> {
    let mut rows = vec![(":method", head.method.as_str().to_owned())];
    if let Some(path) = head.uri.path_and_query() {
        rows.push((":path", path.as_str().to_owned()));
    }
    if let Some(scheme) = head.uri.scheme_str() {
        rows.push((":scheme", scheme.to_owned()));
    }
    if let Some(authority) = head.uri.authority() {
        rows.push((":authority", authority.as_str().to_owned()));
    }
    if let Some(protocol) = head.extensions.get::<Protocol>() {
        rows.push((":protocol", protocol.as_str().to_owned()));
    }
    rows
}
