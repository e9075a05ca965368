//! The media type of content that its sender describes incompletely, as attachments of messages often are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The media type of bytes about which nothing is known.
const BYTES: &str = "application/octet-stream";
/// The media type of text about which nothing else is known.
const TEXT: &str = "text/plain";
/// How much of an encoded content decides, in characters: whole groups of base64.
const BEGINNING: usize = 4096;

/// What is known of a content besides its name.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// Nothing.
    Unknown,
    /// It is text.
    Text,
    /// Its bytes, as base64.
    Base64(&'a str),
}

/// Returns the media type of a content: the one that its sender declares, unless that says nothing; otherwise what its first
/// bytes show; otherwise that of the extension in its name, which can be a path or a URI, unless text contradicts it; and
/// otherwise that of text or of bytes. `None` if nothing is known.
pub fn media_type(declared: Option<&str>, name: &str, content: Content<'_>) -> Option<String> {
    let declared = declared.map(str::trim).filter(|declared| !declared.is_empty());
    if let Some(declared) = declared.filter(|declared| !declared.eq_ignore_ascii_case(BYTES)) {
        return Some(declared.to_owned());
    }
    let bytes = match content {
        Content::Base64(data) => beginning(data),
        Content::Unknown | Content::Text => None,
    };
    if let Some(shown) = bytes.as_deref().and_then(infer::get) {
        return Some(shown.mime_type().to_owned());
    }
    let is_text = match (&bytes, content) {
        (Some(bytes), _) => Some(is_text(bytes)),
        (None, Content::Text) => Some(true),
        (None, _) => None,
    };
    let by_name = by_name(name);
    match (is_text, by_name) {
        (Some(true), Some(of)) if is_media(of) => Some(TEXT.to_owned()),
        // The extension of some films is also that of sources.
        (None, Some(of)) if of.starts_with("video/") => declared.map(str::to_owned),
        (_, Some(of)) => Some(of.to_owned()),
        (Some(true), None) => Some(TEXT.to_owned()),
        (Some(false), None) => Some(BYTES.to_owned()),
        (None, None) => declared.map(str::to_owned),
    }
}

/// Returns the media type of the extension in a path or URI.
fn by_name(name: &str) -> Option<&'static str> {
    let path = name.split(['?', '#']).next().unwrap_or_default();
    mime_guess::from_path(path.rsplit('/').next().unwrap_or_default()).first_raw()
}

/// Whether a type is one of images, sounds or films, whose content is not text.
fn is_media(of: &str) -> bool {
    let kind = of.split('/').next().unwrap_or_default();
    matches!(kind, "image" | "audio" | "video") && !of.ends_with("+xml")
}

/// Returns the first bytes of an encoded content; `None` if it is not base64.
fn beginning(data: &str) -> Option<Vec<u8>> {
    let data = data.as_bytes();
    STANDARD.decode(&data[..data.len().min(BEGINNING)]).ok()
}

/// Whether bytes are the beginning of a text.
fn is_text(bytes: &[u8]) -> bool {
    let is_utf8 = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        // Cut within a character.
        Err(error) => error.error_len().is_none(),
    };
    is_utf8 && !bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_declared_or_shown_by_the_content_or_by_the_name() {
        let encoded = |bytes: &[u8]| STANDARD.encode(bytes);
        let png = encoded(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
        let (text, bytes) =
            (encoded("export const hay = 'é';".repeat(300).as_bytes()), encoded(&[0, 1, 2, 0xff]));
        let cases = [
            (Some("image/webp"), "a.png", Content::Base64(&png), Some("image/webp")),
            (Some(""), "a", Content::Base64(&png), Some("image/png")),
            (Some("application/octet-stream"), "a", Content::Base64(&png), Some("image/png")),
            (None, "a.txt", Content::Base64(&png), Some("image/png")),
            (None, "file:///yard/a.JPG?x=1#y", Content::Unknown, Some("image/jpeg")),
            (None, "a.svg", Content::Base64(&text), Some("image/svg+xml")),
            (None, "a.png", Content::Base64(&text), Some("text/plain")),
            // The extension is also that of films.
            (None, "a.ts", Content::Base64(&text), Some("text/plain")),
            (None, "a.ts", Content::Text, Some("text/plain")),
            (None, "a.ts", Content::Unknown, None),
            (None, "a.json", Content::Text, Some("application/json")),
            (None, "attachment", Content::Base64(&text), Some("text/plain")),
            (None, "attachment", Content::Base64(&bytes), Some("application/octet-stream")),
            (None, "attachment", Content::Base64("not base64!"), None),
            (None, "file:///yard/Makefile", Content::Unknown, None),
            (Some("application/octet-stream"), "a", Content::Unknown, Some("application/octet-stream")),
        ];
        for (declared, name, content, expected) in cases {
            assert_eq!(
                media_type(declared, name, content).as_deref(),
                expected,
                "{declared:?} {name} {content:?}"
            );
        }
    }
}
