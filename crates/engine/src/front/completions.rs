//! Completions of typed text: the `/` commands of a session's backend, and files (`mentions.rs`). Plugins register no
//! such commands; they are the session's customizations and the backend's list.

use std::collections::HashSet;
use std::sync::Arc;

use ostler_contract::points::OfferedCommand;
use ostler_engine_sessions::toggles::is_enabled;
use ostler_engine_sessions::{SessionEntry, ToSession};
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::{
    ChildCustomization, Customization, MessageAttachment, SimpleMessageAttachment,
};
use ostler_protocol::{JsonObject, Value};
use tokio::sync::oneshot;

use crate::front::Front;

/// The maximum number of rows for a single slash.
const ALL_MOST: usize = 500;
/// The maximum number of rows for a slash with text.
const SOME_MOST: usize = 50;

/// One `/` command.
#[derive(Debug, Clone, PartialEq)]
struct Slash {
    name: String,
    description: Option<String>,
    skill: bool,
}

impl Front {
    /// Returns the rows for the typed text, if any.
    pub(crate) async fn complete(self: &Arc<Self>, params: c::CompletionsParams) -> c::CompletionsResult {
        let none = c::CompletionsResult { items: Vec::new() };
        let located = self.sessions.located(&params.channel).await;
        let Some((entry, _)) = located.or_assume(None, "they are asked for again at the next key", |_| {})
        else {
            return none;
        };
        if params.kind != c::CompletionItemKind::UserMessage {
            return none;
        }
        let Some(typed) = typed(&params.text, params.offset) else {
            return c::CompletionsResult { items: self.mentions(&entry, &params.text, params.offset).await };
        };
        let most = if typed.query.is_empty() { ALL_MOST } else { SOME_MOST };
        let slashes = matching(self.slashes(&entry).await, typed.query);
        let items = slashes.into_iter().take(most).map(|slash| item(slash, &typed, params.offset));
        c::CompletionsResult { items: items.collect() }
    }

    /// Returns the `/` commands of a session: first its customizations, then those of its backend.
    async fn slashes(self: &Arc<Self>, entry: &Arc<SessionEntry>) -> Vec<Slash> {
        let own = match entry.is_awake() {
            true => self.customizations_of(entry).await,
            false => self.sessions.customizations_asleep(entry).await,
        };
        let (offered, commands) = match self.core.offered.read().get(&entry.provider) {
            Some((_, offered)) => (offered.customizations.clone(), offered.commands.clone()),
            None => (None, Vec::new()),
        };
        let customized = own.or(offered).unwrap_or_default();
        let (on, off): (Vec<_>, Vec<_>) =
            customized.iter().flat_map(of_customization).partition(|(_, on)| *on);
        let mut all: Vec<Slash> = on.into_iter().map(|(slash, _)| slash).collect();
        // The backend lists those as well that a client disabled in this session.
        let off: HashSet<String> = off.into_iter().map(|(slash, _)| slash.name).collect();
        all.extend(commands.into_iter().map(of_command).filter(|slash| !off.contains(&slash.name)));
        let mut names = HashSet::new();
        all.retain(|slash| names.insert(slash.name.clone()));
        all
    }

    async fn customizations_of(self: &Arc<Self>, entry: &Arc<SessionEntry>) -> Option<Vec<Customization>> {
        let (answer, wait) = oneshot::channel();
        self.sessions.tell(entry, ToSession::Customizations { answer });
        wait.await.ok().flatten()
    }
}

/// Returns the text after a message's leading slash, up to the cursor.
struct Typed<'a> {
    query: &'a str,
    /// The position of the slash, in UTF-16.
    start: i64,
}

fn typed(text: &str, offset: i64) -> Option<Typed<'_>> {
    let before = &text[..byte_at(text, usize::try_from(offset).ok()?)?];
    let trimmed = before.trim_start();
    let query = trimmed.strip_prefix('/').filter(|query| !query.contains(char::is_whitespace))?;
    let start = before[..before.len() - trimmed.len()].encode_utf16().count();
    Some(Typed { query, start: i64::try_from(start).ok()? })
}

/// Converts an offset in UTF-16 to one in the text; `None` if it is past the end or inside a character.
pub(crate) fn byte_at(text: &str, offset: usize) -> Option<usize> {
    let mut passed = 0;
    for (at, c) in text.char_indices() {
        if passed >= offset {
            return (passed == offset).then_some(at);
        }
        passed += c.len_utf16();
    }
    (passed == offset).then_some(text.len())
}

/// Returns those whose name begins with the typed text, then those that contain it.
fn matching(slashes: Vec<Slash>, query: &str) -> Vec<Slash> {
    let query = query.to_lowercase();
    let (begin, rest): (Vec<Slash>, Vec<Slash>) =
        slashes.into_iter().partition(|slash| slash.name.to_lowercase().starts_with(&query));
    let holds = rest.into_iter().filter(|slash| slash.name.to_lowercase().contains(&query));
    begin.into_iter().chain(holds).collect()
}

fn of_command(command: OfferedCommand) -> Slash {
    let name = command.name.trim_start_matches('/').to_owned();
    Slash { name, description: command.description, skill: false }
}

/// Returns the skills and prompts of a customization, each with whether it is enabled.
fn of_customization(customization: &Customization) -> Vec<(Slash, bool)> {
    let (is_on, children) = match customization {
        Customization::Plugin(plugin) => {
            (is_enabled(plugin.enablement.as_deref().unwrap_or_default()), plugin.children.as_ref())
        }
        Customization::Directory(directory) => (directory.enabled, directory.children.as_ref()),
        _ => (false, None),
    };
    let children = children.into_iter().flatten().filter_map(of_child);
    children.map(|(slash, on)| (slash, on && is_on)).collect()
}

fn of_child(child: &ChildCustomization) -> Option<(Slash, bool)> {
    let (name, description, enabled, skill) = match child {
        ChildCustomization::Skill(skill) if skill.disable_user_invocation != Some(true) => {
            (&skill.name, &skill.description, skill.enabled, true)
        }
        ChildCustomization::Prompt(prompt) => (&prompt.name, &prompt.description, prompt.enabled, false),
        _ => return None,
    };
    let slash = Slash { name: name.clone(), description: description.clone(), skill };
    Some((slash, enabled != Some(false)))
}

fn item(slash: Slash, typed: &Typed<'_>, offset: i64) -> c::CompletionItem {
    let Slash { name, description, skill } = slash;
    let text = format!("/{name}");
    let mut meta = JsonObject::new();
    meta.insert("command".to_owned(), name.into());
    if let Some(description) = description {
        meta.insert("description".to_owned(), description.into());
    }
    if skill {
        meta.insert("isSkill".to_owned(), Value::Bool(true));
    }
    c::CompletionItem {
        insert_text: format!("{text} "),
        range_start: Some(typed.start),
        range_end: Some(offset),
        attachment: MessageAttachment::Simple(SimpleMessageAttachment {
            label: text,
            range: None,
            display_kind: Some("command".to_owned()),
            meta: Some(meta),
            model_representation: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str, offset: i64) -> Option<(&str, i64)> {
        typed(text, offset).map(|typed| (typed.query, typed.start))
    }

    #[test]
    fn a_slash_begins_the_message() {
        assert_eq!(query("/", 1), Some(("", 0)));
        assert_eq!(query("/rev", 4), Some(("rev", 0)));
        assert_eq!(query("/rev", 2), Some(("r", 0)));
        assert_eq!(query("  /rev", 6), Some(("rev", 2)));
        assert_eq!(query("\u{2003}/é", 3), Some(("é", 1)));
        for (text, offset) in [
            ("", 0),
            ("/rev", 0),
            ("a /rev", 6),
            ("/rev it", 7),
            ("/rev", 9),
            ("/rev", -1),
            ("🐎/", 1),
            ("🐎/", 3),
        ] {
            assert_eq!(query(text, offset), None, "{text:?} {offset}");
        }
    }

    #[test]
    fn what_begins_with_it_comes_before_what_holds_it() {
        let slash = |name: &str| Slash { name: name.to_owned(), description: None, skill: false };
        let all = ["preview", "Review", "undo", "rev"].map(slash).to_vec();
        let names: Vec<String> = matching(all, "rev").into_iter().map(|slash| slash.name).collect();
        assert_eq!(names, ["Review", "rev", "preview"]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ /a🐎é]{0,8}", offset in -2i64..12) {
            if let Some(typed) = typed(&text, offset) {
                let replaced = String::from_utf16_lossy(
                    &text.encode_utf16().skip(usize::try_from(typed.start).unwrap_or_default())
                        .take(usize::try_from(offset - typed.start).unwrap_or_default()).collect::<Vec<_>>(),
                );
                proptest::prop_assert_eq!(replaced, format!("/{}", typed.query));
            }
        }
    }
}
