//! Attachments whose content only the sending client has, such as a file in an editor window on another computer. Their
//! URIs do not name the client, so the host records it with the attachment, and asks that client when a backend reads
//! the URI.

use std::collections::VecDeque;

use ostler_contract::Thrown;
use ostler_contract::points::ResourceContent;
use ostler_engine_users::resources::CLIENTS;
use ostler_engine_users::resources::published::Asker;
use ostler_engine_users::users::principal::ANONYMOUS;
use ostler_protocol::names::meta_key;
use ostler_protocol::origins::{Effect, WayIn};
use ostler_protocol::wire::state::{Message, MessageAttachment};
use parking_lot::Mutex;

use super::SessionEntry;
use crate::Sessions;

/// Maximum number of attachments that are remembered per session.
const REMEMBERED: usize = 200;
/// Maximum length of a URI that is remembered, in bytes.
const LONGEST: usize = 4096;

/// Returns the key in an attachment's `_meta` for the id of the client that has the content.
fn client_key() -> String {
    meta_key("client")
}

/// The attachments most recently sent to a session's backends: their URIs, and the clients that have the content.
#[derive(Debug, Default)]
pub(super) struct ClientResources(Mutex<VecDeque<(String, String)>>);

impl ClientResources {
    /// Remembers the attachments of a message that is sent to a backend.
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

impl SessionEntry {
    /// Returns on whose behalf the session's backends and tools ask clients.
    pub(super) fn asker(&self) -> Asker {
        Asker { owner: self.owner.clone(), active: Some(self.active_clients()) }
    }
}

impl Sessions {
    /// Records in the attachments of a message which client has their content, if nothing else serves them. A value
    /// that the sender supplied is discarded.
    pub fn note_client(&self, message: &mut Message, client: Option<&str>) {
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

    /// Reads an attachment that only a client has; returns `None` if the URI is not such an attachment.
    pub(super) async fn content_of_client(
        &self,
        entry: &SessionEntry,
        uri: &str,
    ) -> Option<Result<ResourceContent, Thrown>> {
        let client = entry.client_resources.client_of(uri)?;
        let asker = entry.asker();
        let Some(publisher) = self.resources.publisher_named(&client, &asker) else {
            let why = self.resources.unreached(&asker);
            let why = format!("{uri}: client {client}, which attached it, {why}");
            return Some(Err(ostler_protocol::RpcError::not_found(why).into()));
        };
        let owner = entry.owner.as_deref().unwrap_or(ANONYMOUS);
        if let Err(refused) =
            self.access.require_effect((WayIn::Attachment, Effect::LookUp), owner, Some(CLIENTS))
        {
            return Some(Err(refused.into()));
        }
        let read = self.resources.read_published(&publisher, uri).await;
        Some(read.map_err(Into::into))
    }
}
