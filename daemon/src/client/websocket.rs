//! The WebSocket under the official client.
//!
//! `ahp-ws` provides one as well, over an older release of the WebSocket library that the listener uses. The daemon
//! uses one release of it.

use ahp::{Transport, TransportError, TransportMessage};
use futures::{SinkExt as _, StreamExt as _};
use ostler_protocol::origins::{self, WayIn};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};
use url::Url;

/// A connection to a daemon.
pub struct WebSocket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Whether there is room for what is read; always where left out.
    room: Option<watch::Receiver<bool>>,
}

impl WebSocket {
    /// Connects to a `ws://` or `wss://` URL and names how what it sends entered the host. The URL's token (`?tkn=…`) is sent as a header, which proxies do not log.
    ///
    /// # Errors
    /// An invalid URL, a connection that fails, or a handshake that the server rejects.
    pub async fn connect(url: &str, way: WayIn) -> Result<Self, Error> {
        let (url, token) = match Url::parse(url) {
            Ok(mut parsed) => {
                let token =
                    parsed.query_pairs().find(|(name, _)| name == "tkn").map(|(_, token)| token.into_owned());
                parsed.set_query(None);
                (parsed.to_string(), token)
            }
            Err(_) => (url.to_owned(), None),
        };
        let mut request = url.into_client_request()?;
        request.headers_mut().insert(origins::HEADER, HeaderValue::from_static(way.name()));
        if let Some(token) = token {
            let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        let connector = match request.uri().scheme_str() {
            Some("wss") => {
                let tls =
                    ostler_net::tls().map_err(|why| Error::Io(std::io::Error::other(why.to_string())))?;
                Connector::Rustls(tls)
            }
            _ => Connector::Plain,
        };
        let (stream, _) = connect_async_tls_with_config(request, None, false, Some(connector)).await?;
        Ok(Self { stream, room: None })
    }

    /// Reads only while there is room. The daemon disconnects a client that does not read.
    pub fn paced(self, room: watch::Receiver<bool>) -> Self {
        Self { room: Some(room), ..self }
    }
}

impl Transport for WebSocket {
    async fn send(&mut self, message: TransportMessage) -> Result<(), TransportError> {
        let frame = match message {
            TransportMessage::Parsed(message) => {
                let text = serde_json::to_string(&message);
                Message::Text(text.map_err(|error| TransportError::Protocol(error.to_string()))?.into())
            }
            TransportMessage::Text(text) => Message::Text(text.into()),
            TransportMessage::Binary(bytes) => Message::Binary(bytes.into()),
        };
        self.stream.send(frame).await.map_err(io)
    }

    async fn recv(&mut self) -> Result<Option<TransportMessage>, TransportError> {
        if let Some(room) = &mut self.room {
            // What tells ends with this program.
            let _ = room.wait_for(|room| *room).await;
        }
        loop {
            match self.stream.next().await.transpose().map_err(io)? {
                None | Some(Message::Close(_)) => return Ok(None),
                Some(Message::Text(text)) => {
                    return Ok(Some(TransportMessage::Text(text.as_str().to_owned())));
                }
                Some(Message::Binary(bytes)) => return Ok(Some(TransportMessage::Binary(bytes.into()))),
                // The library answers pings.
                Some(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        self.stream.close(None).await.map_err(io)
    }
}

fn io(error: Error) -> TransportError {
    TransportError::Io(error.to_string())
}
