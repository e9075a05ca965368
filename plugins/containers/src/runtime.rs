//! The container runtime: its socket, and its API with a limit for each call.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, Docker};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ostler_contract::{RpcError, Thrown};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::archive::{Read, gather};

/// The limit of a query of the runtime: less than the host waits for the plugin.
pub const QUICK: Duration = Duration::from_secs(8);
/// The limit of a change of a container, whose process has 10 seconds to end.
pub const CHANGE: Duration = Duration::from_secs(45);
/// The limit of pulling an image, or of a copy into a container.
pub const LONG: Duration = Duration::from_secs(600);
/// The limit of the client itself, in seconds; calls have separate limits.
const CLIENT_LIMIT: u64 = 900;
/// The largest JSON answer, in bytes.
const ANSWER: usize = 16 << 20;
/// The retained length of a message of the runtime, in characters.
const MESSAGE: usize = 600;

/// The default socket of Docker.
const DOCKER: &str = "/var/run/docker.sock";
/// The default socket of the system's Podman.
const PODMAN: &str = "/run/podman/podman.sock";

/// Why a call of the runtime failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The runtime is missing or does not answer.
    Unreachable,
    /// The runtime has no such container, image, file or volume.
    Missing,
    /// It already exists, or is in another state.
    Conflict,
    /// The request is invalid.
    Invalid,
    /// Anything else.
    Failed,
}

impl Failure {
    /// Creates a failure with a message.
    pub fn new(kind: Kind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// Returns whether the named object does not exist.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    fn of(what: &str, error: &Error) -> Self {
        let (kind, why) = match error {
            Error::DockerResponseServerError { status_code, message } => {
                let kind = match status_code {
                    404 => Kind::Missing,
                    409 => Kind::Conflict,
                    400 => Kind::Invalid,
                    _ => Kind::Failed,
                };
                (kind, message.clone())
            }
            Error::SocketNotFoundError(socket) => (Kind::Unreachable, format!("{socket} does not exist")),
            Error::HyperLegacyError { err } => {
                let mut cause: &dyn std::error::Error = err;
                while let Some(next) = cause.source() {
                    cause = next;
                }
                let kind = if err.is_connect() { Kind::Unreachable } else { Kind::Failed };
                (kind, cause.to_string())
            }
            Error::RequestTimeoutError => (Kind::Unreachable, "the runtime did not answer".to_owned()),
            other => (Kind::Failed, other.to_string()),
        };
        let why: String = why.trim().chars().take(MESSAGE).collect();
        Self::new(kind, format_args!("{what}: {why}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl From<Failure> for Thrown {
    fn from(failure: Failure) -> Self {
        match failure.kind {
            Kind::Missing => RpcError::not_found(failure.message).into(),
            Kind::Conflict => RpcError::already_exists(failure.message).into(),
            Kind::Invalid => RpcError::invalid_params(failure.message).into(),
            Kind::Unreachable | Kind::Failed => Self::new(failure.message),
        }
    }
}

/// Finds the address of the runtime: the option, `DOCKER_HOST`, or the first default socket that exists.
///
/// # Errors
/// There is none; the message names the searched places.
pub fn find(option: Option<&str>) -> Result<String, String> {
    let said = option.map(str::to_owned).or_else(|| variable("DOCKER_HOST"));
    if let Some(address) = said {
        let address = if address.starts_with('/') { format!("unix://{address}") } else { address };
        return match address.split_once("://") {
            Some(("unix", path)) if Path::new(path).exists() => Ok(address),
            Some(("unix", path)) => {
                Err(format!("no container runtime listens at {path}: the socket does not exist"))
            }
            Some(("tcp" | "http", _)) => Ok(address),
            _ => Err(format!(
                "{address} is not an address of a container runtime; use unix://<path> or tcp://<host>:<port>"
            )),
        };
    }
    let mut sockets = vec![DOCKER.to_owned()];
    sockets.extend(variable("XDG_RUNTIME_DIR").map(|folder| format!("{folder}/podman/podman.sock")));
    let user = rustix::process::getuid().as_raw();
    sockets.push(format!("/run/user/{user}/podman/podman.sock"));
    sockets.push(PODMAN.to_owned());
    sockets.dedup();
    match sockets.iter().find(|socket| Path::new(socket).exists()) {
        Some(socket) => Ok(format!("unix://{socket}")),
        None => Err(format!(
            "no container runtime: none of {} exists; start Docker, or Podman with systemctl --user start podman.socket, \
             or name its socket in DOCKER_HOST or the option socket",
            sockets.join(", ")
        )),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Connects to a runtime, without a request.
///
/// # Errors
/// The address is invalid.
pub fn connect(address: &str) -> Result<Docker, Failure> {
    let connected = match address.strip_prefix("unix://") {
        Some(path) => Docker::connect_with_unix(path, CLIENT_LIMIT, API_DEFAULT_VERSION),
        None => Docker::connect_with_http(address, CLIENT_LIMIT, API_DEFAULT_VERSION),
    };
    connected.map_err(|error| Failure::of(address, &error))
}

/// The runtime of this host.
#[derive(Debug, Default)]
pub struct Runtime {
    option: Option<String>,
    /// The client whose version was negotiated, with its address.
    client: Mutex<Option<(String, Docker)>>,
}

impl Runtime {
    /// Creates it with the option `socket`.
    pub fn new(option: Option<String>) -> Self {
        Self { option, client: Mutex::default() }
    }

    /// Its address.
    ///
    /// # Errors
    /// There is no runtime.
    pub fn address(&self) -> Result<String, Failure> {
        find(self.option.as_deref()).map_err(|why| Failure::new(Kind::Unreachable, why))
    }

    async fn client(&self) -> Result<Docker, Failure> {
        let address = self.address()?;
        if let Some((of, client)) = &*self.client.lock()
            && *of == address
        {
            return Ok(client.clone());
        }
        // An older runtime rejects the version of a newer client.
        let client =
            within(&format!("connect to {address}"), QUICK, connect(&address)?.negotiate_version()).await?;
        *self.client.lock() = Some((address, client.clone()));
        Ok(client)
    }

    /// Calls the runtime; `what` begins the message of a failure.
    ///
    /// # Errors
    /// The runtime reported an error, or did not answer within the limit.
    pub async fn call<T, F>(
        &self,
        what: &str,
        limit: Duration,
        call: impl FnOnce(Docker) -> F + Send,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let client = self.client().await?;
        let called = within(what, limit, call(client)).await;
        if called.as_ref().is_err_and(|failure| failure.kind == Kind::Unreachable) {
            // The answer can be of another version.
            *self.client.lock() = None;
        }
        called
    }
}

impl Runtime {
    /// Sends a GET request and reads its JSON answer. The client's types have no limit and reject a whole answer
    /// because of one unknown state, of which Podman has some.
    ///
    /// # Errors
    /// As [`Runtime::call`].
    pub async fn get<T: DeserializeOwned>(&self, what: &str, path: &str) -> Result<T, Failure> {
        let address = self.address()?;
        let answered = match timeout(QUICK, get(what, &address, path)).await {
            Ok(answered) => answered?,
            Err(_) => return Err(unanswered(what, QUICK)),
        };
        let (status, body) = answered;
        match status {
            200..=299 => serde_json::from_slice(&body.bytes)
                .map_err(|error| Failure::new(Kind::Failed, format_args!("{what}: {error}"))),
            status_code => {
                let said: Option<RuntimeError> = serde_json::from_slice(&body.bytes).ok();
                let message = said.map(|said| said.message).unwrap_or_default();
                Err(Failure::of(what, &Error::DockerResponseServerError { status_code, message }))
            }
        }
    }
}

#[derive(Deserialize)]
struct RuntimeError {
    message: String,
}

async fn get(what: &str, address: &str, path: &str) -> Result<(u16, Read), Failure> {
    let failed = |why: &dyn fmt::Display| Failure::new(Kind::Unreachable, format_args!("{what}: {why}"));
    match address.strip_prefix("unix://") {
        Some(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(|error| failed(&error))?;
            exchange(what, stream, path).await
        }
        None => {
            let place = address.split_once("://").map_or(address, |(_, place)| place);
            let stream = TcpStream::connect(place).await.map_err(|error| failed(&error))?;
            exchange(what, stream, path).await
        }
    }
}

async fn exchange(
    what: &str,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    path: &str,
) -> Result<(u16, Read), Failure> {
    let failed = |error: hyper::Error| Failure::new(Kind::Unreachable, format_args!("{what}: {error}"));
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // It ends when the request and its answer are dropped.
    tokio::spawn(connection);
    let request = hyper::Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| Failure::new(Kind::Failed, format_args!("{what}: {error}")))?;
    let answer = send.send_request(request).await.map_err(failed)?;
    let status = answer.status().as_u16();
    let body = gather(what, ANSWER, answer.into_body().into_data_stream()).await?.map_err(failed)?;
    Ok((status, body))
}

fn unanswered(what: &str, limit: Duration) -> Failure {
    let limit = limit.as_secs();
    let why = format_args!("{what}: the container runtime did not answer within {limit} seconds");
    Failure::new(Kind::Unreachable, why)
}

async fn within<T>(
    what: &str,
    limit: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| Failure::of(what, &error)),
        Err(_) => Err(unanswered(what, limit)),
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    /// A runtime that answers each connection with this, and then no more.
    fn fake(answer: &'static str) -> (tempfile::TempDir, Runtime) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("docker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    if stream.write_all(answer.as_bytes()).await.is_ok() && answer.contains("chunked") {
                        let piece = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
                        while stream.write_all(piece.as_bytes()).await.is_ok() {}
                    }
                    std::future::pending::<()>().await;
                });
            }
        });
        let runtime = Runtime::new(Some(socket.display().to_string()));
        (folder, runtime)
    }

    async fn ask(runtime: &Runtime) -> Failure {
        let asked = runtime.get::<Value>("list", "/containers/json").await.unwrap_err();
        let ping = runtime.call("ask", QUICK, |docker| async move { docker.ping().await });
        let called = ping.await.unwrap_err();
        assert_eq!(asked.kind, called.kind, "{asked} {called}");
        asked
    }

    #[tokio::test]
    async fn an_error_of_the_runtime_is_said() {
        let answer = "HTTP/1.1 500 x\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\r\n{\"message\":\"no space now\"}";
        let (_folder, runtime) = fake(answer);
        let why = ask(&runtime).await;
        assert_eq!(why, Failure::new(Kind::Failed, "list: no space now"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_answer_is_not_waited_for() {
        let (_folder, runtime) = fake("");
        let why = ask(&runtime).await;
        let says = "list: the container runtime did not answer within 8 seconds";
        assert_eq!(why, Failure::new(Kind::Unreachable, says));
    }

    #[tokio::test]
    async fn an_answer_without_end_is_not_read() {
        let (_folder, runtime) = fake("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let why = runtime.get::<Value>("list", "/containers/json").await.unwrap_err();
        assert_eq!(why, Failure::new(Kind::Invalid, "list: more than 16384 KiB"));
    }

    #[test]
    fn an_address_is_checked() {
        for (address, says) in [
            ("/no/such/socket", "no container runtime listens at /no/such/socket: the socket does not exist"),
            ("ssh://barn", "ssh://barn is not an address of a container runtime"),
        ] {
            let why = find(Some(address)).unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
        assert_eq!(find(Some("tcp://127.0.0.1:2375")).as_deref(), Ok("tcp://127.0.0.1:2375"));
    }
}
