//! The outbound HTTP client. It returns redirects without following them, streams bodies, and limits the time to
//! connect. The caller limits the time of an answer.

mod certificate;
mod resolver;

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http::{Request, Response, header};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

pub use certificate::certificate_problem;
pub use resolver::use_own_resolver;

/// The limit for opening a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unanswered(String);

/// A streamed body; `None` if there is none.
pub type Chunks = Option<BoxStream<'static, Result<Bytes, Unanswered>>>;

/// An extension of a request whose body is returned as the server encodes it, with all its headers. Without it, gzip and
/// deflate are requested and decoded, and the headers about them are removed.
#[derive(Debug, Clone, Copy)]
pub struct Encoded;

type Built = OnceLock<Result<reqwest::Client, Unanswered>>;

/// The client. The first request sets it up, so that a host without requests does not pay for it. Clones share their
/// connections.
#[derive(Debug, Clone, Default)]
pub struct Client(Arc<Clients>);

#[derive(Debug, Default)]
struct Clients {
    decoding: Built,
    encoded: Built,
}

impl Client {
    fn built(&self, encoded: bool) -> Result<&reqwest::Client, Unanswered> {
        let client = if encoded { &self.0.encoded } else { &self.0.decoding };
        client.get_or_init(|| build(encoded)).as_ref().map_err(Clone::clone)
    }

    /// Sends a request and returns when the head of the response has arrived.
    ///
    /// # Errors
    /// TLS cannot be set up, or the request failed; the message includes the cause.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<Chunks>, Unanswered>
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (mut head, body) = request.into_parts();
        let sends = !body.is_end_stream();
        if let Some(length) = body.size_hint().exact().filter(|_| sends) {
            // Replaced, because servers reject a request with two.
            head.headers.insert(header::CONTENT_LENGTH, length.into());
        }
        let encoded = head.extensions.get::<Encoded>().is_some();
        let mut asked = self.built(encoded)?.request(head.method, head.uri.to_string()).headers(head.headers);
        if sends {
            asked = asked.body(reqwest::Body::wrap(body));
        }
        let answered = asked.send().await.map_err(|error| Unanswered(reason(&error)))?;
        let mut response = Response::new(None);
        *response.status_mut() = answered.status();
        *response.headers_mut() = answered.headers().clone();
        let empty = answered.content_length() == Some(0)
            && !answered.headers().contains_key(header::TRANSFER_ENCODING);
        if !empty {
            let chunks = answered.bytes_stream();
            let chunks = chunks.map(|chunk| chunk.map_err(|error| Unanswered(reason(&error))));
            *response.body_mut() = Some(chunks.boxed());
        }
        Ok(response)
    }
}

fn build(encoded: bool) -> Result<reqwest::Client, Unanswered> {
    reqwest::Client::builder()
        .gzip(!encoded)
        .deflate(!encoded)
        .tls_backend_preconfigured(tls()?.as_ref().clone())
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .user_agent(concat!("ostler/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| no_connection(&error))
}

/// The TLS configuration, with the system's certificates, or those of Mozilla if it has none. Read once.
///
/// # Errors
/// Why it cannot be set up.
pub fn tls() -> Result<Arc<ClientConfig>, Unanswered> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, Unanswered>> = OnceLock::new();
    CONFIG.get_or_init(read_certificates).clone()
}

/// The trusted root certificates: the system's, or those of Mozilla if it has none. Read once.
pub fn roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        Arc::new(roots)
    };
    ROOTS.get_or_init(read).clone()
}

/// Returns the usable root certificates of the system, possibly none. Read each time.
pub fn authorities() -> Vec<CertificateDer<'static>> {
    let mut known = RootCertStore::empty();
    let mut certificates = rustls_native_certs::load_native_certs().certs;
    certificates.retain(|certificate| known.add(certificate.clone()).is_ok());
    certificates
}

fn read_certificates() -> Result<Arc<ClientConfig>, Unanswered> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| no_connection(&error))?;
    Ok(Arc::new(config.with_root_certificates(roots()).with_no_client_auth()))
}

fn no_connection(why: &dyn Error) -> Unanswered {
    Unanswered(format!("no connection can be made: {why}"))
}

/// Formats an error with its causes: `connection refused` is more informative than `error sending request`.
fn reason(error: &reqwest::Error) -> String {
    if let Some(problem) = certificate_problem(error) {
        return problem;
    }
    let mut deepest: &dyn Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
