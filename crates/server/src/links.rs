//! Links between hosts of a cluster: one WebSocket connection, authenticated by the token of the cluster.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ostler_contract::Secret;
use ostler_contract::cluster::{Cluster, ClusterHost};
use ostler_contract::http::{Body, Response};
use ostler_engine::{Host, LinkDialer, LinkTransport};
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message as Frame};
use tokio_tungstenite::{Connector, WebSocketStream, connect_async_tls_with_config};

use crate::guard::bearer;
use crate::linger::Socket;
use crate::websocket::accepted;

pub(crate) const PATH: &str = "/cluster/link";

/// `largest` is the size of the largest message: what a host may use for all its peers, because answers are not limited as the
/// messages of clients are.
fn config(largest: usize) -> WebSocketConfig {
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(largest);
    config.max_frame_size = Some(largest);
    config
}

/// Answers the request of another host for a link, and serves the link after the upgrade.
pub(crate) fn accept(
    mut request: hyper::Request<Incoming>,
    host: Arc<Host>,
    cluster: &Arc<dyn Cluster>,
    mut stop: watch::Receiver<bool>,
) -> Response {
    let token = cluster.token();
    let given = bearer(request.headers()).unwrap_or_default();
    if token.reveal().is_empty() || !bool::from(given.as_bytes().ct_eq(token.reveal().as_bytes())) {
        let mut response = Response::new(Body::from("a link requires the token of the cluster"));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return response;
    }
    let largest = host.core.budget.limit();
    let (response, upgrade) = accepted(&mut request);
    if let Some(upgrade) = upgrade {
        tokio::spawn(async move {
            let Ok(upgraded) = upgrade.await else { return };
            let Ok(parts) = upgraded.downcast::<TokioIo<Socket>>() else { return };
            let (stream, begun) = (parts.io.into_inner().into_inner(), parts.read_buf.to_vec());
            let socket =
                WebSocketStream::from_partially_read(stream, begun, Role::Server, Some(config(largest)))
                    .await;
            tokio::select! {
                () = host.front.serve_link(transport(socket)) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
    }
    response
}

/// Connects to other hosts over WebSocket.
#[derive(Debug)]
pub struct WebSocketLinks {
    /// The size of the largest message, in bytes.
    pub largest: usize,
    /// Returns which certificates of hosts at `wss` addresses are accepted; the error says why none can be. Called for each
    /// connection.
    pub connector: fn() -> Result<Connector, String>,
}

impl LinkDialer for WebSocketLinks {
    fn dial(
        &self,
        host: ClusterHost,
        token: Secret<String>,
    ) -> BoxFuture<'static, Result<LinkTransport, String>> {
        let (config, connector) = (config(self.largest), self.connector);
        Box::pin(async move {
            let url = host.url.unwrap_or_default();
            let url = format!("{}{PATH}", url.trim_end_matches('/'));
            let mut request =
                url.as_str().into_client_request().map_err(|error| format!("{url}: {error}"))?;
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
            let bearer = bearer.map_err(|_| "the token of the cluster cannot be sent in a header")?;
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
            let connector = connector().map_err(|error| format!("{url}: {error}"))?;
            match connect_async_tls_with_config(request, Some(config), true, Some(connector)).await {
                Ok((socket, _)) => Ok(transport(socket)),
                Err(Error::Http(response)) if response.status() == StatusCode::UNAUTHORIZED => {
                    Err(format!("{url}: the host has another token of the cluster"))
                }
                Err(error) => Err(format!("{url}: {error}")),
            }
        })
    }
}

fn transport<S>(socket: WebSocketStream<S>) -> LinkTransport
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (outgoing, incoming) = socket.split();
    let incoming = incoming
        .take_while(|frame| ready(matches!(frame, Ok(frame) if !frame.is_close())))
        .filter_map(|frame| {
            ready(match frame {
                Ok(Frame::Text(text)) => Some(Bytes::from(text)),
                Ok(Frame::Binary(bytes)) => Some(bytes),
                _ => None,
            })
        });
    let outgoing = outgoing
        .with(|text: String| ready(Ok::<_, Error>(Frame::text(text))))
        .sink_map_err(|error| error.to_string());
    LinkTransport { incoming: Box::pin(incoming), outgoing: Box::pin(outgoing) }
}
