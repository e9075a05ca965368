//! Converts a message of a user to the content of a prompt, as far as the agent supports it.

use std::time::Duration;

use ostler_contract::media_type::{Content, media_type};
use ostler_contract::points::{ResourceContent, Start};
use ostler_contract::wire::commands::ContentEncoding;
use ostler_contract::wire::state::MessageAttachment;
use ostler_contract::{HostFunction, Value, json};

use crate::agent::AgentFacts;

/// The limit for reading an attachment, after which only its name is sent.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of embedded text, in bytes. Of a longer one only the name is sent.
const EMBEDDED_AT_MOST: usize = 256 << 10;

/// The parts of a prompt.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub text: String,
    pub attachments: Vec<MessageAttachment>,
    /// Hidden text before the message.
    pub context: Option<String>,
}

impl Message {
    /// Adds text before the context.
    pub fn put_before(&mut self, earlier: String) {
        self.context = Some(match self.context.take() {
            Some(context) => format!("{earlier}\n\n{context}"),
            None => earlier,
        });
    }
}

/// Reads resources as the session's owner.
pub type Read = Option<HostFunction<fn(uri: String) -> ResourceContent>>;

/// Returns the function that reads resources in a chat.
pub fn reader(start: &Start) -> Read {
    start.read.clone()
}

/// The content blocks of a prompt. `log` receives a line for each attachment that could not be read.
pub async fn blocks(message: Message, facts: &AgentFacts, read: &Read, log: impl Fn(String)) -> Vec<Value> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let mut blocks = Vec::new();
    blocks.extend(message.context.iter().map(|context| text(context)));
    // A message can consist only of attachments.
    if !message.text.is_empty() || message.attachments.is_empty() {
        blocks.push(text(&message.text));
    }
    for attachment in message.attachments {
        blocks.push(block(attachment, facts, read, &log).await);
    }
    blocks
}

async fn block(
    attachment: MessageAttachment,
    facts: &AgentFacts,
    read: &Read,
    log: &impl Fn(String),
) -> Value {
    match attachment {
        MessageAttachment::Simple(simple) => {
            let said = simple.model_representation.unwrap_or_else(|| simple.label.clone());
            json!({ "type": "text", "text": said })
        }
        MessageAttachment::EmbeddedResource(embedded) => {
            let name = embedded.label.clone();
            let mime = media_type(Some(&embedded.content_type), &name, Content::Base64(&embedded.data));
            let mime = mime.unwrap_or(embedded.content_type);
            contents(format!("attachment:/{name}"), name, mime, embedded.data, true, facts)
        }
        MessageAttachment::Resource(resource) => {
            let name = match by_uri(&resource.uri) {
                Some(name) => name,
                None => &resource.label,
            };
            let declared = media_type(resource.content_type.as_deref(), name, Content::Unknown);
            let link = || {
                let mut link =
                    json!({ "type": "resource_link", "uri": resource.uri, "name": resource.label });
                if let Some(mime) = &declared {
                    link["mimeType"] = mime.as_str().into();
                }
                link
            };
            // A file of the host is read by the agent itself; an image can only be sent.
            let image = declared.as_deref().is_some_and(|mime| mime.starts_with("image/") && !is_text(mime));
            let is_file = resource.uri.starts_with("file:");
            // Resources that only the host or a client can read are sent as text to an agent without support for
            // resources.
            let is_on_web = resource.uri.starts_with("https:") || resource.uri.starts_with("http:");
            let wanted = (image && facts.image) || (!is_file && (facts.embedded || !is_on_web));
            let Some(read) = read.as_ref().filter(|_| wanted) else { return link() };
            match tokio::time::timeout(READ_LIMIT, read.call((resource.uri.clone(),))).await {
                Ok(Ok(content)) => {
                    let encoded = content.encoding == ContentEncoding::Base64;
                    let data = if encoded { Content::Base64(&content.data) } else { Content::Text };
                    let told = content.content_type.as_deref().or(resource.content_type.as_deref());
                    let mime = media_type(told, name, data).unwrap_or_else(|| "text/plain".to_owned());
                    contents(resource.uri.clone(), resource.label.clone(), mime, content.data, encoded, facts)
                }
                // The name can still be useful to the agent or its user.
                Ok(Err(why)) => {
                    log(format!("the attachment {} could not be read: {}", resource.label, why.message));
                    link()
                }
                Err(_) => {
                    let limit = READ_LIMIT.as_secs();
                    log(format!("the attachment {} was not read within {limit} seconds", resource.label));
                    link()
                }
            }
        }
        MessageAttachment::Annotations(annotations) => {
            json!({ "type": "text", "text": format!("[{}: {}]", annotations.label, annotations.resource) })
        }
        MessageAttachment::Chat(chat) => {
            json!({ "type": "text", "text": format!("[{}: {}]", chat.label, chat.resource) })
        }
        MessageAttachment::Unknown(value) => json!({ "type": "text", "text": value.to_string() }),
    }
}

/// Returns the URI as the name of a resource, if its path ends in a file with an extension.
fn by_uri(uri: &str) -> Option<&str> {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().filter(|file| file.contains('.')).map(|_| uri)
}

/// Returns a resource with its content, as far as the agent supports it.
fn contents(
    uri: String,
    name: String,
    mime: String,
    data: String,
    encoded: bool,
    facts: &AgentFacts,
) -> Value {
    let media = encoded && !is_text(&mime);
    let kind = mime.split('/').next().unwrap_or_default();
    match (media, kind) {
        (true, "image") if facts.image => {
            json!({ "type": "image", "data": data, "mimeType": mime, "uri": uri })
        }
        (true, "audio") if facts.audio => json!({ "type": "audio", "data": data, "mimeType": mime }),
        (true, _) if facts.embedded => {
            json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "blob": data } })
        }
        (true, _) => json!({ "type": "resource_link", "uri": uri, "name": name, "mimeType": mime }),
        (false, _) if data.len() > EMBEDDED_AT_MOST => {
            json!({ "type": "resource_link", "uri": uri, "name": name, "mimeType": mime })
        }
        (false, _) => {
            let text = if encoded { decoded(&data) } else { data };
            match facts.embedded {
                true => {
                    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } })
                }
                false => json!({ "type": "text", "text": format!("{name} ({uri}):\n{text}") }),
            }
        }
    }
}

/// Whether content of a type is text, which a drawing in SVG is as well.
fn is_text(mime: &str) -> bool {
    mime.starts_with("text/") || mime.ends_with("+xml")
}

fn decoded(base64: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_with_only_attachments_has_no_empty_text() {
        let attachment = json!({ "type": "resource", "uri": "file:///hay.txt", "label": "hay.txt" });
        let attachments = vec![serde_json::from_value(attachment).unwrap()];
        let kinds = async |text: &str, attachments: Vec<MessageAttachment>| -> Vec<Value> {
            let message = Message { text: text.to_owned(), attachments, context: None };
            let blocks = blocks(message, &AgentFacts::default(), &None, |_| {}).await;
            blocks.iter().map(|block| block["type"].clone()).collect()
        };
        assert_eq!(kinds("", attachments.clone()).await, ["resource_link"]);
        assert_eq!(kinds("Look", attachments).await, ["text", "resource_link"]);
        assert_eq!(kinds("", Vec::new()).await, ["text"]);
    }

    #[tokio::test]
    async fn what_an_agent_cannot_read_is_sent_to_it() {
        let read: Read =
            Some(HostFunction::now(|(uri,): (String,)| match uri.to_lowercase().contains(".png") {
                true => Ok(ResourceContent::base64(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")),
                false => Ok(ResourceContent::text(format!("content of {uri}"))),
            }));
        let block = async |uri: &str, mime: Option<&str>, facts: &AgentFacts| -> Value {
            let mut attachment = json!({ "type": "resource", "uri": uri, "label": "a" });
            if let Some(mime) = mime {
                attachment["contentType"] = mime.into();
            }
            super::block(serde_json::from_value(attachment).unwrap(), facts, &read, &|_| {}).await
        };
        let (plain, rich) = (AgentFacts::default(), AgentFacts { embedded: true, ..AgentFacts::default() });
        let remote = "vscode-remote://ssh-remote+box/a.txt";
        let told = block(remote, None, &plain).await;
        assert_eq!(told["text"], format!("a ({remote}):\ncontent of {remote}"), "{told}");
        let told = block(remote, None, &rich).await;
        assert_eq!(told["resource"]["text"], format!("content of {remote}"), "{told}");
        // Without a type, the extension and the content say what an attachment is.
        let shown = AgentFacts { image: true, ..AgentFacts::default() };
        let remote = "vscode-remote://ssh-remote+box/a.png";
        for (uri, mime) in
            [(remote, None), (remote, Some("")), ("file:///a.png", None), ("file:///a.PNG?x", None)]
        {
            let told = block(uri, mime, &shown).await;
            assert_eq!(
                (&told["type"], &told["mimeType"]),
                (&json!("image"), &json!("image/png")),
                "{uri}: {told}"
            );
        }
        for uri in ["file:///a.svg", "file:///a", "file:///a.ts"] {
            assert_eq!(block(uri, None, &shown).await["type"], "resource_link", "{uri}");
        }
        let png = "iVBORw0KGgoAAAANSUhEUg==";
        for (label, mime, data, kind, expected) in [
            ("a", "", png, "image", "image/png"),
            ("a.txt", "application/octet-stream", png, "image", "image/png"),
            ("a", "", "aGF5", "resource", "text/plain"),
            ("a.svg", "", "PHN2Zz4=", "resource", "image/svg+xml"),
        ] {
            let embedded =
                json!({ "type": "embeddedResource", "label": label, "contentType": mime, "data": data });
            let facts = AgentFacts { image: true, embedded: true, ..AgentFacts::default() };
            let told = super::block(serde_json::from_value(embedded).unwrap(), &facts, &None, &|_| {}).await;
            let of = if kind == "image" { &told["mimeType"] } else { &told["resource"]["mimeType"] };
            assert_eq!((&told["type"], of), (&json!(kind), &json!(expected)), "{told}");
        }
        for (uri, mime) in [
            ("file:///a.txt", None),
            ("https://example.org/a", None),
            ("vscode-remote://ssh-remote+box/a.png", Some("image/png")),
        ] {
            assert_eq!(block(uri, mime, &plain).await["type"], "resource_link", "{uri}");
        }
    }
}
