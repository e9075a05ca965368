//! Attachments whose content only the client has that sent them, such as a file of a window on another computer. Their URIs
//! do not name the client: the host notes it with the attachment, and asks that client when a backend reads the URI.

use std::collections::VecDeque;

use ostler_contract::points::ResourceContent;
use ostler_contract::{Grant, Thrown};
use ostler_protocol::names::meta_key;
use ostler_protocol::wire::commands::ContentEncoding;
use ostler_protocol::wire::state::{Message, MessageAttachment};
use parking_lot::Mutex;

use super::Entry;
use crate::sessions::Sessions;

/// The most attachments of a session that are remembered.
const REMEMBERED: usize = 200;
/// The longest URI that is remembered, in bytes.
const LONGEST: usize = 4096;

/// The key of an attachment's `_meta` with the id of the client that has the content.
fn client_key() -> String {
    meta_key("client")
}

/// Attachments of what a session's backends were told last: their URIs, and the clients that have the content.
#[derive(Debug, Default)]
pub(super) struct ClientResources(Mutex<VecDeque<(String, String)>>);

impl ClientResources {
    /// Remembers the attachments of what a backend is told.
    pub(super) fn remember(&self, attachments: Option<&Vec<MessageAttachment>>) {
        for attachment in attachments.into_iter().flatten() {
            let MessageAttachment::Resource(resource) = attachment else { continue };
            let meta = resource.meta.as_ref();
            let client = meta.and_then(|meta| meta.get(&client_key())?.as_str());
            let Some(client) = client.filter(|_| resource.uri.len() <= LONGEST) else { continue };
            let mut known = self.0.lock();
            known.retain(|(uri, _)| *uri != resource.uri);
            if known.len() == REMEMBERED {
                known.pop_front();
            }
            known.push_back((resource.uri.clone(), client.to_owned()));
        }
    }

    fn client_of(&self, uri: &str) -> Option<String> {
        let known = self.0.lock();
        known.iter().find(|(known, _)| known == uri).map(|(_, client)| client.clone())
    }
}

impl Sessions {
    /// Notes with the attachments of a message which client has their content, where nobody else serves them. What the
    /// sender said of it is not taken.
    pub(crate) fn note_client(&self, message: &mut Message, client: Option<&str>) {
        let key = client_key();
        for attachment in message.attachments.iter_mut().flatten() {
            let MessageAttachment::Resource(resource) = attachment else { continue };
            if let Some(meta) = &mut resource.meta {
                meta.shift_remove(&key);
            }
            if let Some(client) = client.filter(|_| self.resources.is_of_clients(&resource.uri)) {
                resource.meta.get_or_insert_default().insert(key.clone(), client.into());
            }
        }
    }

    /// Reads an attachment that only a client has; `None` where the URI is not one.
    pub(super) async fn content_of_client(
        &self,
        entry: &Entry,
        uri: &str,
    ) -> Option<Result<ResourceContent, Thrown>> {
        let client = entry.client_resources.client_of(uri)?;
        let owner = entry.owner.as_deref();
        let publisher = match self.resources.publisher_named(&client, owner) {
            Ok(Some(publisher)) => publisher,
            Ok(None) => {
                let why = format!("{uri}: client {client}, which attached it, is not connected");
                return Some(Err(ostler_protocol::RpcError::not_found(why).into()));
            }
            Err(refused) => return Some(Err(refused.into())),
        };
        if let Err(refused) = self.access.require_of(owner.unwrap_or("nobody"), &Grant::on("file", "get")) {
            return Some(Err(refused.into()));
        }
        let read = self.resources.read_published(&publisher, uri, Some(ContentEncoding::Utf8)).await;
        Some(read.map_err(Into::into))
    }
}
