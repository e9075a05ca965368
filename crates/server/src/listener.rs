//! One TCP listener: HTTP/1.1 with its mounts, and WebSocket handshakes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ostler_contract::http::{Body, Response};
use ostler_engine::Host;
use ostler_protocol::names;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::body::incoming;
use crate::guard::{HostNames, Rejection, Token, admit};
use crate::heads::{Head, Heads};
use crate::linger::Socket;
use crate::links;
use crate::mount::Mount;
use crate::reply::{Reply, refuse};
use crate::sign_ins::SignIns;
use crate::websocket;

/// The limit for receiving the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of a head in bytes. A browser sends at most 8 KiB of cookies.
const LONGEST_HEAD: usize = 16 * 1024;
/// How long to wait before accepting again when no file descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Ends the connection of a request, for a handler whose caller does not read a long answer. Each request has it as an
/// extension.
#[derive(Debug, Clone, Default)]
pub struct HangUp(Arc<Notify>);

impl HangUp {
    /// Ends the connection immediately, without the rest of the output.
    pub fn now(&self) {
        self.0.notify_one();
    }
}

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds an address; port 0 means any free port.
    ///
    /// # Errors
    /// An error of the system.
    pub async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Uses a listener that another process has bound.
    ///
    /// # Errors
    /// An error of the system.
    pub fn passed(listener: std::net::TcpListener) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Returns its address with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The services of a listener.
#[derive(Debug)]
pub struct Server {
    mounts: Vec<Mount>,
    door: Option<ProtocolEndpoint>,
    heads: Arc<Heads>,
}

/// The entry point of AHP clients.
#[derive(Debug)]
struct ProtocolEndpoint {
    host: Arc<Host>,
    token: Option<Token>,
    names: HostNames,
    sign_ins: SignIns,
}

impl Server {
    /// Creates a server of mounts, in the order of their priority.
    pub fn new(mounts: Vec<Mount>) -> Self {
        Self { mounts, door: None, heads: Arc::default() }
    }

    /// Accepts AHP clients, with this token if one is required; otherwise only those that address one of `names`, and no
    /// pages of other origins.
    #[must_use]
    pub fn with_protocol(mut self, host: Arc<Host>, token: Option<Token>, names: HostNames) -> Self {
        self.door = Some(ProtocolEndpoint { host, token, names, sign_ins: SignIns::default() });
        self
    }

    /// Accepts signed-in pages as their users.
    #[must_use]
    pub fn with_sign_ins(mut self, sign_ins: SignIns) -> Self {
        if let Some(door) = &mut self.door {
            door.sign_ins = sign_ins;
        }
        self
    }

    /// Serves until `stop` resolves, then closes open connections.
    pub async fn serve(self, listener: Listener, mut stop: watch::Receiver<bool>) {
        let server = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = listener.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let head = server.heads.expect();
                    tokio::spawn(server.clone().connection(stream, head, stop.clone()));
                }
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, head: Head, mut stop: watch::Receiver<bool>) {
        let stopped = stop.clone();
        let head = Arc::new(head);
        let expected = head.clone();
        let hang_up = HangUp::default();
        let given = hang_up.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            expected.came();
            request.extensions_mut().insert(given.clone());
            let (server, stop, head) = (self.clone(), stopped.clone(), expected.clone());
            async move {
                let answer = server.answer(request, stop).await;
                Ok::<_, Infallible>(answer.map(|body| head.answered(body)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            // A peer can close its sending side and still wait for the answer.
            .half_close(true)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(Socket::new(stream)), service)
            .with_upgrades();
        tokio::pin!(connection);
        tokio::select! {
            // Errors of a peer's socket are not reported.
            _ = connection.as_mut() => {}
            () = head.given_up() => {}
            () = hang_up.0.notified() => {}
            _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
        }
    }

    async fn answer(&self, mut request: hyper::Request<Incoming>, stop: watch::Receiver<bool>) -> Response {
        // Two `Host` headers are contradictory and rejected.
        let hosts = request.headers().get_all(header::HOST).iter().count();
        if hosts > 1 || !is_decodable(request.uri().path()) {
            return refuse(&Reply::Malformed);
        }
        if request.uri().path() == links::PATH
            && let Some(door) = &self.door
            && let Some(cluster) = door.host.core.cluster()
            && websocket::is_handshake(&request)
        {
            return links::accept(request, door.host.clone(), cluster, stop);
        }
        if let Some(mount) = self.mounts.iter().find(|mount| mount.takes(request.uri().path())) {
            if let Err(refused) = mount.guard().admits(&mut request).await {
                return refuse(&refused);
            }
            return (mount.handler())(request.map(incoming)).await;
        }
        let path = request.uri().path();
        let Some(door) = &self.door else { return refuse(&Reply::NoApi(path.to_owned())) };
        if ["/api", "/v1"]
            .iter()
            .any(|api| path.strip_prefix(api).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        {
            return refuse(&Reply::NoApi(path.to_owned()));
        }
        if !websocket::is_handshake(&request) {
            return not_a_handshake();
        }
        let gate = &door.host.access.gate;
        let admitted = match admit(&request, door.token.as_ref(), &door.names, gate, &door.sign_ins).await {
            Ok(admitted) => admitted,
            Err(Rejection::ForeignHost(host)) => return refuse(&Reply::ForeignHost { what: "host", host }),
            Err(Rejection::ForeignOrigin) => return refuse(&Reply::ForeignOrigin),
            Err(Rejection::UnreadUsers(why)) => return refuse(&Reply::UnreadUsers(why)),
            Err(Rejection::NoToken) => {
                let mut response = Response::new(Body::from(Reply::NoToken.to_string()));
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                return response;
            }
        };
        websocket::upgrade(request, door.host.clone(), admitted, stop)
    }
}

fn not_a_handshake() -> Response {
    let text = format!("{} speaks the Agent Host Protocol over WebSocket", names::HOST);
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns whether every `%` of a path begins an escape, and the decoded path is UTF-8.
fn is_decodable(path: &str) -> bool {
    let bytes = path.as_bytes();
    let escapes =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
            bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
        });
    escapes && percent_encoding::percent_decode_str(path).decode_utf8().is_ok()
}
