//! What stands behind `fetch`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{AbortHandle, Abortable};
use ostler_contract::Thrown;
use ostler_contract::http::{Body, BodyError, Request, Response, header};
use rquickjs::{Ctx, Function, Object, Promise, Result};
use rustls::{ClientConfig, RootCertStore};

use super::{read_request, response_parts};
use crate::engine::State;
use crate::errors::{plain_error, raise};
use crate::native::natives;
use crate::options::HttpClient;

/// What `internal/fetch` is built on.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "send": send }
}

/// Starts one request: answers a promise of the response's parts, and what gives it up.
fn send<'js>(ctx: Ctx<'js>, parts: Object<'js>) -> Result<Object<'js>> {
    let state = State::of(&ctx)?;
    let request = read_request(&ctx, &state, &parts)?;
    let Some(http) = state.shared.options.http.clone() else {
        return Err(plain_error(&ctx, "this host gives plugins no way to the network"));
    };
    // On the host's runtime: a plugin that is busy holds up no connection.
    let (abort, registration) = AbortHandle::new_pair();
    let answer = {
        let _host = state.host.enter();
        http(request)
    };
    let answer = state.host.spawn(Abortable::new(answer, registration));
    let inside = ctx.clone();
    let promise = Promise::wrap_future(&ctx, async move {
        let state = State::of(&inside)?;
        match answer.await {
            Ok(Ok(Ok(response))) => response_parts(&inside, response),
            Ok(Ok(Err(thrown))) => Err(raise(&inside, &state, &thrown)),
            Ok(Err(_)) | Err(_) => Err(plain_error(&inside, "the request was given up")),
        }
    })?;
    let handle = Object::new(ctx.clone())?;
    handle.set("answer", promise)?;
    handle.set("abort", Function::new(ctx.clone(), move || abort.abort()))?;
    Ok(handle)
}

/// The engine's own client; its connections are the host's, and shared.
pub(crate) fn default_client() -> HttpClient {
    let client: Arc<OnceLock<std::result::Result<reqwest::Client, String>>> = Arc::default();
    Arc::new(move |request| {
        let client = client.clone();
        Box::pin(async move {
            match client.get_or_init(build) {
                Ok(client) => exchange(client, request).await,
                Err(error) => Err(Thrown::new(format_args!("no connection can be made: {error}"))),
            }
        })
    })
}

fn build() -> std::result::Result<reqwest::Client, String> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls()?.as_ref().clone())
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(30))
        .user_agent(concat!("ostler/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.to_string())
}

/// The system's certificates, and those of Mozilla where it has none.
pub(crate) fn tls() -> std::result::Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<std::result::Result<Arc<ClientConfig>, String>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots)
                .with_no_client_auth();
            Ok(Arc::new(config))
        })
        .clone()
}

async fn exchange(client: &reqwest::Client, request: Request) -> std::result::Result<Response, Thrown> {
    let (head, body) = request.into_parts();
    let mut asked = client.request(head.method, head.uri.to_string()).headers(head.headers);
    asked = match &body {
        Body::Empty => asked,
        Body::Full(bytes) => asked.body(bytes.clone()),
        Body::Stream(_) => asked.body(reqwest::Body::wrap(body)),
    };
    let answered = asked.send().await.map_err(|error| Thrown::new(reason(&error)))?;
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = answered.status();
    *response.headers_mut() = answered.headers().clone();
    let empty =
        answered.content_length() == Some(0) && !answered.headers().contains_key(header::TRANSFER_ENCODING);
    if !empty {
        let chunks = answered.bytes_stream();
        let chunks = chunks.map(|chunk| chunk.map_err(|error| BodyError::Cut(reason(&error))));
        *response.body_mut() = Body::stream(chunks);
    }
    Ok(response)
}

/// What went wrong, down to its cause: `connection refused` says more than `error sending request`.
fn reason(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
