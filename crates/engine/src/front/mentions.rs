//! Completions of files after an `@`, from the session's directories.

use std::collections::HashSet;

use ostler_contract::limit;
use ostler_contract::points::{ResourceCompletion, ResourceStore};
use ostler_engine_core::file_uris::file_uri;
use ostler_engine_sessions::SessionEntry;
use ostler_protocol::wire::commands::CompletionItem;
use ostler_protocol::wire::state::{MessageAttachment, MessageResourceAttachment};

use crate::front::Front;
use crate::front::completions::byte_at;

/// The maximum number of rows.
const MOST: usize = 50;

/// Returns the text after the `@` of the word before the cursor.
struct Mention<'a> {
    path: &'a str,
    /// The position of the `@`, in UTF-16.
    start: i64,
}

fn mention(text: &str, offset: i64) -> Option<Mention<'_>> {
    let before = &text[..byte_at(text, usize::try_from(offset).ok()?)?];
    let word = before.rsplit(char::is_whitespace).next()?;
    let path = word.strip_prefix('@')?;
    let start = before[..before.len() - word.len()].encode_utf16().count();
    Some(Mention { path, start: i64::try_from(start).ok()? })
}

impl Front {
    /// Returns the rows for a partial file name. A directory that fails is logged and omitted.
    pub(crate) async fn mentions(
        &self,
        entry: &SessionEntry,
        text: &str,
        offset: i64,
    ) -> Vec<CompletionItem> {
        let Some(mention) = mention(text, offset) else { return Vec::new() };
        let Some(store) = self.core.registry().and_then(|registry| registry.port::<ResourceStore>()) else {
            return Vec::new();
        };
        let mut directories = entry.view().directories().to_vec();
        if directories.is_empty() {
            directories.extend(self.core.options.paths.first().map(|path| file_uri(path)));
        }
        let asked = directories
            .into_iter()
            .map(|directory| store.complete.within(limit::COMPLETION, (directory, mention.path.to_owned())));
        let mut found = Vec::new();
        for answer in futures::future::join_all(asked).await {
            match answer {
                Ok(rows) => found.extend(rows),
                Err(why) => {
                    let line = format_args!("{}: cannot complete file names: {}", entry.uri, why.for_log());
                    self.core.log.warn(line);
                }
            }
        }
        // A directory can be in another one.
        let mut uris = HashSet::new();
        found.retain(|found| uris.insert(found.uri.clone()));
        found.into_iter().take(MOST).map(|found| item(found, &mention, offset)).collect()
    }
}

fn item(found: ResourceCompletion, mention: &Mention<'_>, offset: i64) -> CompletionItem {
    let kind = if found.path.ends_with('/') { "directory" } else { "document" };
    CompletionItem {
        insert_text: format!("@{}", found.path),
        range_start: Some(mention.start),
        range_end: Some(offset),
        attachment: MessageAttachment::Resource(MessageResourceAttachment {
            label: found.path,
            range: None,
            display_kind: Some(kind.to_owned()),
            meta: None,
            uri: found.uri,
            size_hint: None,
            content_type: None,
            nonce: None,
            selection: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_an_at() {
        let read = |text, offset| mention(text, offset).map(|mention| (mention.path, mention.start));
        assert_eq!(read("@", 1), Some(("", 0)));
        assert_eq!(read("see @src/ma and", 11), Some(("src/ma", 4)));
        assert_eq!(read("🐎 @a", 5), Some(("a", 3)));
        for (text, offset) in [("", 0), ("@a b", 4), ("a@b", 3), ("@a", 3), ("@a", -1), ("🐎@", 1)] {
            assert_eq!(read(text, offset), None, "{text:?} {offset}");
        }
    }
}
