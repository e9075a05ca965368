//! Attachments of messages. Large ones are stored with their session, once for any number of uses, and messages refer
//! to them by URI.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use ostler_contract::points::{KeptAttachment, ResourceContent, SessionStore};
use ostler_contract::read::Read;
use ostler_contract::{Thrown, limit};
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::refusals::Rejection;
use ostler_protocol::message::MAX_FRAME;
use ostler_protocol::wire::commands::ContentEncoding;
use ostler_protocol::wire::state::{Message, MessageAttachment, MessageResourceAttachment, Turn};
use ostler_protocol::{RpcError, uri};

use super::SessionEntry;
use super::chat::Chat;
use crate::Sessions;

/// Maximum size of an attachment that stays in its message, in bytes.
const INLINE_MAX: usize = 4096;
/// Maximum size of an attachment, in bytes: as base64, it was part of one message.
const SIZE_MAX: usize = MAX_FRAME / 4 * 3;

impl Sessions {
    /// Returns the store that persists attachments, if there is one.
    pub fn attachment_store(&self) -> Option<&SessionStore> {
        let keeps = |store: &&SessionStore| store.keeps_attachments();
        self.core.session_store().filter(keeps).or_else(|| self.core.spare_sessions().filter(keeps))
    }

    /// Reads a stored attachment.
    ///
    /// # Errors
    /// `-32008` if there is no attachment with that URI.
    pub async fn read_attachment(&self, named: &str) -> Result<KeptAttachment, RpcError> {
        let unknown = || RpcError::not_found(format!("No attachment at {named}"));
        let id = uri::attachment_id(named).ok_or_else(unknown)?.to_owned();
        let read = self.attachment_store().and_then(|store| store.attachment.as_ref()).ok_or_else(unknown)?;
        let kept = read
            .read(limit::STORE, (id,))
            .await
            .known()
            .map_err(|why| RpcError::internal(format!("{named} could not be read: {why}")))?;
        kept.ok_or_else(unknown)
    }
}

/// Converts a stored attachment to resource content.
pub fn content_of(kept: KeptAttachment) -> ResourceContent {
    ResourceContent {
        data: kept.data,
        encoding: ContentEncoding::Base64,
        content_type: Some(kept.content_type),
    }
}

impl Sessions {
    /// Reads the resource at a URI for a host tool, with the rights of the session's owner.
    pub async fn read_as_session(&self, session: &str, uri: &str) -> Result<String, Thrown> {
        Ok(self.content_for_session(session, uri).await?.data)
    }

    /// Reads the resource at a URI as the owner of a session: an attachment, a resource that a client publishes, or one
    /// that a provider serves. Its memory is charged while it is read; then the content is the reader's.
    pub async fn content_for_session(&self, session: &str, uri: &str) -> Result<ResourceContent, Thrown> {
        if let Some(text) = uri::inline_text(uri) {
            return Ok(ResourceContent::text(text));
        }
        if let Some(id) = uri::attachment_id(uri) {
            let _charge = self.resources.room(size_of_attachment(id)).await?;
            return Ok(content_of(self.read_attachment(uri).await?));
        }
        let entry = self.session_at(session).await.known()?;
        if let Some(entry) = &entry
            && let Some(content) = self.content_of_client(entry, uri).await
        {
            return content;
        }
        let asker = entry.map(|entry| entry.asker()).unwrap_or_default();
        self.resources.content_for(&asker, uri).await
    }
}

impl Sessions {
    /// Whether a message has attachments that are to be stored separately.
    pub(super) fn has_attachments_to_store(&self, message: &Message) -> bool {
        let large = |attachment: &MessageAttachment| matches!(attachment, MessageAttachment::EmbeddedResource(inline) if inline.data.len() > INLINE_MAX);
        message.attachments.iter().flatten().any(large) && self.attachment_store().is_some()
    }

    /// Stores the large attachments of a message before the message is accepted, and replaces them with references. If
    /// no store persists attachments, they stay inline.
    pub(super) async fn store_attachments(
        &self,
        session: &str,
        message: &mut Message,
    ) -> Result<(), Rejection> {
        let store = self.attachment_store().and_then(|store| store.set_attachment.as_ref());
        let Some(set) = store else { return Ok(()) };
        for attachment in message.attachments.iter_mut().flatten() {
            let MessageAttachment::EmbeddedResource(inline) = attachment else { continue };
            // The decoded bytes are never longer than their base64 text.
            if inline.data.len() <= INLINE_MAX {
                continue;
            }
            let (size, id) = long_work(inline.data.len(), || {
                let bytes = STANDARD.decode(&inline.data)?;
                Ok((bytes.len(), id_of(&inline.content_type, &bytes)))
            })
            .map_err(|error: DecodeError| {
                format!("the attachment {} is not base64: {error}", inline.label)
            })?;
            if size <= INLINE_MAX {
                continue;
            }
            let kept = KeptAttachment {
                content_type: inline.content_type.clone(),
                data: std::mem::take(&mut inline.data),
            };
            let stored = set.within(limit::STORE, (session.to_owned(), id.clone(), kept)).await;
            stored.map_err(|why| {
                let label = &inline.label;
                Rejection::retryable(format!("the attachment {label} could not be stored: {}", why.message))
            })?;
            *attachment = MessageAttachment::Resource(MessageResourceAttachment {
                label: inline.label.clone(),
                range: inline.range.clone(),
                display_kind: inline.display_kind.clone(),
                meta: inline.meta.clone(),
                uri: uri::attachment(&id),
                size_hint: i64::try_from(size).ok(),
                content_type: Some(inline.content_type.clone()),
                nonce: None,
                selection: inline.selection.clone(),
            });
        }
        Ok(())
    }
}

impl Sessions {
    /// Stores the attachments of a chat that comes from another session with this session too, so that they outlive the
    /// other session. Reads and writes of many attachments may take long, so no mailbox waits for them.
    pub(super) async fn adopt_attachments(&self, entry: &SessionEntry, chats: &[Chat]) -> bool {
        let Some(store) = self.attachment_store() else { return true };
        let (Some(read), Some(set)) = (&store.attachment, &store.set_attachment) else { return true };
        let mut ids: Vec<&str> = chats.iter().flat_map(referred).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if entry.is_gone() {
                return false;
            }
            let moved = match read.read(limit::STORE, (id.to_owned(),)).await {
                Read::Known(Some(kept)) => {
                    set.within(limit::STORE, (entry.id.clone(), id.to_owned(), kept)).await
                }
                // A message may refer to an attachment that no longer exists.
                Read::Known(None) => Ok(()),
                Read::Unknown(why) => Err(why.into()),
            };
            if let Err(why) = moved {
                self.core
                    .log
                    .warn(format_args!("{}: the attachment {id} could not be stored: {why}", entry.uri));
                return false;
            }
        }
        true
    }
}

/// Returns the ids of the stored attachments that a chat's messages refer to.
fn referred(chat: &Chat) -> impl Iterator<Item = &str> {
    let state = &chat.state;
    let said = state.turns.iter().map(|turn: &Turn| &turn.message);
    let running = state.active_turn.iter().map(|turn| &turn.message);
    let waiting = state.queued_messages.iter().flatten().map(|waiting| &waiting.message);
    let messages = said.chain(running).chain(waiting).chain(&state.draft);
    messages.flat_map(|message| message.attachments.iter().flatten()).filter_map(
        |attachment| match attachment {
            MessageAttachment::Resource(resource) => uri::attachment_id(&resource.uri),
            _ => None,
        },
    )
}

/// Returns the id of an attachment: a hash of its content type and bytes, and its size, so that memory can be reserved
/// before the content is read.
fn id_of(content_type: &str, bytes: &[u8]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    context.update(content_type.as_bytes());
    context.update(&[0]);
    context.update(bytes);
    format!("{}-{}", hex::encode(context.finish()), bytes.len())
}

/// Returns the size in an attachment's id, in bytes; the largest possible one for an id of an earlier version, which has
/// none.
pub fn size_of_attachment(id: &str) -> usize {
    id.rsplit_once('-').and_then(|(_, size)| size.parse().ok()).unwrap_or(SIZE_MAX).min(SIZE_MAX)
}

/// Returns the number of bytes in a base64 text, without decoding it.
pub fn decoded_length(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_attachment_contains_its_size() {
        let id = id_of("image/png", &[7; 5000]);
        assert_eq!(size_of_attachment(&id), 5000);
        assert_eq!(id_of("image/png", &[7; 5000]), id);
        assert_ne!(id_of("image/gif", &[7; 5000]), id);
        let (hash, _) = id.split_once('-').unwrap();
        assert_eq!((hash.len(), size_of_attachment(hash)), (64, SIZE_MAX));
        assert_eq!(size_of_attachment(&format!("{hash}-99999999999")), SIZE_MAX);
    }

    #[test]
    fn the_length_of_base64_is_known_without_its_content() {
        for length in 0..10 {
            assert_eq!(decoded_length(&STANDARD.encode(vec![1; length])), length);
        }
    }
}
