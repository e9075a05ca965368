//! Sockets: TCP and Unix, as a client and as a server.

use std::rc::Rc;

use rquickjs::{Ctx, Function, Object, Promise, Result, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, split};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Mutex, Notify};

use super::pipes::{Slot, write_now_to, write_to};
use super::{SystemError, natives, system_error};
use crate::engine::State;
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// The maximum size of one read.
const CHUNK: usize = 64 << 10;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "lookup": lookup,
        "connect": connect,
        "listen": listen,
    }
}

/// Resolves a host name to its addresses.
fn lookup<'js>(ctx: Ctx<'js>, host: String) -> Result<Promise<'js>> {
    let inside = ctx.clone();
    Promise::wrap_future(&ctx, async move {
        let found = tokio::net::lookup_host((host.as_str(), 0)).await;
        let mut addresses: Vec<String> = match found {
            Ok(found) => found.map(|address| address.ip().to_string()).collect(),
            // The name is unknown; the caller creates the error.
            Err(_) => Vec::new(),
        };
        addresses.dedup();
        list(&inside, addresses)
    })
}

fn list<'js>(ctx: &Ctx<'js>, texts: Vec<String>) -> Result<Value<'js>> {
    use rquickjs::IntoJs;
    texts.into_js(ctx)
}

/// A stream of either kind.
trait Both: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Both for T {}
type Connection = Box<dyn Both>;

fn connect<'js>(ctx: Ctx<'js>, host: String, port: u16, path: Option<String>) -> Result<Promise<'js>> {
    let inside = ctx.clone();
    Promise::wrap_future(&ctx, async move {
        let failed = |error, place: &str| system_error(&inside, SystemError::socket(error, "connect", place));
        match path {
            Some(path) => {
                let stream = UnixStream::connect(&path).await.map_err(|error| failed(error, &path))?;
                socket(&inside, Box::new(stream), None, None)
            }
            None => {
                let place = format!("{host}:{port}");
                let stream =
                    TcpStream::connect((host.as_str(), port)).await.map_err(|error| failed(error, &place))?;
                tcp(&inside, stream)
            }
        }
    })
}

fn tcp<'js>(ctx: &Ctx<'js>, stream: TcpStream) -> Result<Object<'js>> {
    let (local, remote) = (stream.local_addr().ok(), stream.peer_addr().ok());
    // Small writes are sent immediately; a socket without this option still works.
    let _ = stream.set_nodelay(true);
    socket(ctx, Box::new(stream), local, remote)
}

/// Returns the handle of this process's end of a pair of sockets.
pub(super) fn end_of_pair<'js>(ctx: &Ctx<'js>, end: std::os::unix::net::UnixStream) -> Result<Object<'js>> {
    let failed = |error| system_error(ctx, SystemError::new(error, "spawn"));
    socket(ctx, Box::new(UnixStream::from_std(end).map_err(failed)?), None, None)
}

fn socket<'js>(
    ctx: &Ctx<'js>,
    stream: Connection,
    local: Option<std::net::SocketAddr>,
    remote: Option<std::net::SocketAddr>,
) -> Result<Object<'js>> {
    let (read, write) = split(stream);
    let read = Rc::new(Mutex::new(Some(read)));
    let write = Rc::new(Mutex::new(Some(write)));
    let handle = Object::new(ctx.clone())?;
    if let Some(local) = local {
        handle.set("localAddress", local.ip().to_string())?;
        handle.set("localPort", local.port())?;
    }
    if let Some(remote) = remote {
        handle.set("remoteAddress", remote.ip().to_string())?;
        handle.set("remotePort", remote.port())?;
    }
    let gone = Rc::new(Notify::new());
    handle.set("read", reader(ctx, read.clone(), gone.clone())?)?;
    handle.set("write", write_to(ctx, write.clone(), |error| SystemError::socket(error, "write", ""))?)?;
    handle.set(
        "writeNow",
        write_now_to(ctx, write.clone(), |error| SystemError::socket(error, "write", ""))?,
    )?;
    let ended = write.clone();
    handle.set(
        "end",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let ended = ended.clone();
            Promise::wrap_future(&ctx, async move {
                if let Some(write) = &mut *ended.lock().await {
                    // The peer may have closed the connection first.
                    let _ = write.shutdown().await;
                }
                Ok::<_, rquickjs::Error>(())
            })
        }),
    )?;
    handle.set(
        "destroy",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            gone.notify_waiters();
            gone.notify_one();
            let (read, write) = (read.clone(), write.clone());
            ctx.spawn(async move {
                drop(write.lock().await.take());
                drop(read.lock().await.take());
            });
        }),
    )?;
    Ok(handle)
}

fn reader<'js>(ctx: &Ctx<'js>, slot: Slot<ReadHalf<Connection>>, gone: Rc<Notify>) -> Result<Function<'js>> {
    Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
        let (slot, gone, inside) = (slot.clone(), gone.clone(), ctx.clone());
        Promise::wrap_future(&ctx, async move {
            let mut held = slot.lock().await;
            let Some(read) = &mut *held else { return Ok(Value::new_null(inside)) };
            let mut bytes = vec![0; CHUNK];
            let many = tokio::select! {
                many = read.read(&mut bytes) => many,
                () = gone.notified() => Ok(0),
            };
            let many = many.map_err(|error| system_error(&inside, SystemError::socket(error, "read", "")))?;
            bytes.truncate(many);
            match many {
                0 => Ok(Value::new_null(inside)),
                _ => bytes_to_js(&inside, bytes.into()),
            }
        })
    })
}

/// Formats `<host>:<port>`, with brackets around an IPv6 address.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn not_allowed(ctx: &Ctx<'_>, place: &str, advice: &str) -> rquickjs::Error {
    let error = plain_error(ctx, format_args!("listen EACCES: permission denied {place}; {advice}"));
    let value = ctx.catch();
    if let Some(thrown) = value.as_object() {
        // Best effort: the message contains the same.
        let _ = thrown.set("code", "EACCES");
        let _ = thrown.set("syscall", "listen");
    }
    drop(error);
    ctx.throw(value)
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

fn listen<'js>(ctx: Ctx<'js>, host: String, port: u16, path: Option<String>) -> Result<Promise<'js>> {
    let inside = ctx.clone();
    let place = path.clone().unwrap_or_else(|| authority(&host, port));
    let shared = State::of(&ctx)?.shared.clone();
    let allowed = (shared.options.listen)(&shared.spec, &place);
    Promise::wrap_future(&ctx, async move {
        let failed = |error, place: &str| system_error(&inside, SystemError::socket(error, "listen", place));
        if !allowed {
            return Err(not_allowed(&inside, &place, &shared.options.listen_advice));
        }
        let handle = Object::new(inside.clone())?;
        let listener = match path {
            Some(path) => Listener::Unix(UnixListener::bind(&path).map_err(|error| failed(error, &path))?),
            None => {
                let place = format!("{host}:{port}");
                let listener =
                    TcpListener::bind((host.as_str(), port)).await.map_err(|error| failed(error, &place))?;
                if let Ok(address) = listener.local_addr() {
                    handle.set("address", address.ip().to_string())?;
                    handle.set("port", address.port())?;
                }
                Listener::Tcp(listener)
            }
        };
        serve(&inside, &handle, listener)?;
        Ok::<_, rquickjs::Error>(handle)
    })
}

/// Sets `accept()`, which returns a socket, or null after `close()`.
fn serve<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, listener: Listener) -> Result<()> {
    let listener = Rc::new(Mutex::new(Some(listener)));
    let gone = Rc::new(Notify::new());
    let (closed, closing) = (listener.clone(), gone.clone());
    handle.set(
        "accept",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let (listener, gone, inside) = (listener.clone(), gone.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                let held = listener.lock().await;
                let accepted = match &*held {
                    None => return Ok(None),
                    Some(Listener::Tcp(listener)) => tokio::select! {
                        accepted = listener.accept() => accepted.map(|(stream, _)| tcp(&inside, stream)),
                        () = gone.notified() => return Ok(None),
                    },
                    Some(Listener::Unix(listener)) => tokio::select! {
                        accepted = listener.accept() => {
                            accepted.map(|(stream, _)| socket(&inside, Box::new(stream), None, None))
                        }
                        () = gone.notified() => return Ok(None),
                    },
                };
                accepted
                    .map_err(|error| system_error(&inside, SystemError::socket(error, "accept", "")))?
                    .map(Some)
            })
        }),
    )?;
    handle.set(
        "close",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            closing.notify_waiters();
            closing.notify_one();
            let closed = closed.clone();
            ctx.spawn(async move {
                drop(closed.lock().await.take());
            });
        }),
    )
}
