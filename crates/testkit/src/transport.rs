//! The in-memory transport of the official client.

use std::sync::Arc;

use ahp::{Transport, TransportError, TransportMessage};
use ostler_engine::Connection;
use ostler_engine::outbox::Item;

/// One end of an in-memory connection.
#[derive(Debug)]
pub struct MemoryTransport {
    connection: Arc<Connection>,
    items: Vec<Item>,
    ready: std::collections::VecDeque<String>,
}

impl MemoryTransport {
    /// Returns the client's end of a connection.
    pub fn new(connection: Arc<Connection>) -> Self {
        Self { connection, items: Vec::new(), ready: std::collections::VecDeque::new() }
    }
}

impl Transport for MemoryTransport {
    async fn send(&mut self, message: TransportMessage) -> Result<(), TransportError> {
        let text = match TransportMessage::encode(&message.into_parsed()?)? {
            TransportMessage::Text(text) => text,
            _ => return Err(TransportError::Protocol("not text".to_owned())),
        };
        self.connection.receive_frame(&text).await;
        Ok(())
    }

    async fn recv(&mut self) -> Result<Option<TransportMessage>, TransportError> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Ok(Some(TransportMessage::Text(text)));
            }
            if self.connection.outbox.drain(&mut self.items).await.is_some() {
                return Ok(None);
            }
            for item in self.items.drain(..) {
                self.ready
                    .extend(item.frames().iter().map(|frame| String::from_utf8_lossy(frame).into_owned()));
            }
        }
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        self.connection.close();
        Ok(())
    }
}
