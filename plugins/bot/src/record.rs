//! Bots, and the parsing of bodies and stored records.

use std::path::Path;

use ostler_contract::owner::Owner;
use ostler_contract::{JsonObject, RpcError, Value};
use serde::Serialize;

use crate::folder;
use crate::looks::{BODIES, COLORS, any_body};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bot {
    /// Its slug.
    pub id: String,
    pub name: String,
    pub labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computer: Option<String>,
    pub body: String,
    pub color: String,
    pub workspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub owner: String,
    /// Whether a turn in a reader's chat runs its model.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub answers: bool,
    pub created_at: String,
    pub updated_at: String,
}

/// The defaults of omitted fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults<'a> {
    /// The root of bots' folders.
    pub root: &'a Path,
    /// The owner of the bot.
    pub owner: &'a str,
    /// The time of its creation.
    pub now: &'a str,
}

/// The source of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// A body that creates a bot.
    Make,
    /// A body that edits one.
    Edit,
    /// The store, in which users can edit records.
    Store,
}

/// The time of records without one.
const LONG_AGO: &str = "1970-01-01T00:00:00.000Z";

type Text = fn(&mut Bot) -> &mut Option<String>;

/// The optional text fields.
const TEXTS: &[(&str, Text)] = &[
    ("description", |bot| &mut bot.description),
    ("instructions", |bot| &mut bot.instructions),
    ("harness", |bot| &mut bot.harness),
    ("model", |bot| &mut bot.model),
    ("preset", |bot| &mut bot.preset),
    ("computer", |bot| &mut bot.computer),
];

fn wrong(message: impl Into<String>) -> RpcError {
    RpcError::invalid_params(message)
}

impl Bot {
    /// Creates a bot from a body.
    pub fn make(slug: &str, body: &JsonObject, defaults: Defaults<'_>) -> Result<Self, RpcError> {
        let mut bot = Self::blank(slug, defaults);
        any_body().clone_into(&mut bot.body);
        bot.take(body, From::Make, defaults.root)?;
        bot.named()
    }

    /// Returns the bot with the fields of a body applied.
    pub fn edited(&self, body: &JsonObject, root: &Path) -> Result<Self, RpcError> {
        let mut bot = self.clone();
        bot.take(body, From::Edit, root)?;
        Ok(bot)
    }

    /// Parses a bot from a stored record.
    pub fn kept(record: &JsonObject, root: &Path, owner: &str) -> Result<Self, RpcError> {
        let slug = record.get("id").and_then(Value::as_str).unwrap_or_default();
        let mut bot = Self::blank(slug, Defaults { root, owner, now: LONG_AGO });
        bot.take(record, From::Store, root)?;
        // The last line of a file has a line break, which is not part of the instructions.
        if let Some(instructions) = &mut bot.instructions {
            instructions.truncate(instructions.trim_end().len());
        }
        bot.named()
    }

    /// Returns it in the form for the store and for answers.
    pub fn to_json(&self) -> JsonObject {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => JsonObject::new(),
        }
    }

    fn blank(slug: &str, defaults: Defaults<'_>) -> Self {
        let at = slug.bytes().map(usize::from).sum::<usize>() % BODIES.len();
        Self {
            id: slug.to_owned(),
            name: String::new(),
            labels: Vec::new(),
            description: None,
            instructions: None,
            harness: None,
            model: None,
            preset: None,
            computer: None,
            body: BODIES[at].to_owned(),
            color: COLORS[0].to_owned(),
            workspace: defaults.root.join(slug).to_string_lossy().into_owned(),
            session: None,
            owner: defaults.owner.to_owned(),
            answers: false,
            created_at: defaults.now.to_owned(),
            updated_at: defaults.now.to_owned(),
        }
    }

    fn named(self) -> Result<Self, RpcError> {
        if self.name.is_empty() {
            return Err(wrong(format!("{} needs a name", self.id)));
        }
        Ok(self)
    }

    fn take(&mut self, body: &JsonObject, from: From, root: &Path) -> Result<(), RpcError> {
        for (key, value) in body {
            // A key without a value in a file counts as absent.
            if from == From::Store && value.is_null() {
                continue;
            }
            if let Some((_, field)) = TEXTS.iter().find(|(name, _)| name == key) {
                if let Some(said) = line(key, value)? {
                    *field(self) = Some(said);
                }
                continue;
            }
            match key.as_str() {
                "id" => {
                    if value.as_str() != Some(&self.id) {
                        let said = said(value);
                        return Err(wrong(format!("{said} is not this bot; {} is", self.id)));
                    }
                }
                "name" => {
                    if let Some(name) = line(key, value)? {
                        name.trim().clone_into(&mut self.name);
                    }
                }
                "labels" => self.labels = labels(value)?,
                "body" => self.body = one_of(value, BODIES, "a body a bot is drawn with")?,
                "color" => self.color = one_of(value, COLORS, "a colour a bot is drawn in")?,
                "workspace" => self.take_workspace(value, from, root)?,
                "session" if value.is_null() => self.session = None,
                "session" => {
                    if let Some(session) = line(key, value)? {
                        self.session = Some(session);
                    }
                }
                "owner" => {
                    let owner = owner(value)?;
                    if from == From::Edit && owner != self.owner {
                        let current = &self.owner;
                        return Err(wrong(format!("{owner} is not whose this bot is; it is {current}")));
                    }
                    self.owner = owner;
                }
                "answers" => {
                    self.answers = value.as_bool().ok_or_else(|| wrong("answers is true or false"))?;
                }
                // Only the host's clock sets times; the stored ones are from it.
                "createdAt" | "updatedAt" => {
                    let at = line(key, value)?;
                    if let (From::Store, Some(at)) = (from, at) {
                        match key.as_str() {
                            "createdAt" => self.created_at = at,
                            _ => self.updated_at = at,
                        }
                    }
                }
                _ if from == From::Store => {}
                _ => return Err(wrong(format!("{key} is not something a bot has"))),
            }
        }
        Ok(())
    }

    fn take_workspace(&mut self, value: &Value, from: From, root: &Path) -> Result<(), RpcError> {
        let Some(written) = line("workspace", value)? else { return Ok(()) };
        let current = &self.workspace;
        match from {
            From::Edit => {
                let same = written == *current
                    || folder::named(&written, root).is_ok_and(|path| path == Path::new(current));
                if !same {
                    return Err(wrong(format!("{written} is not where this bot works; it is {current}")));
                }
            }
            // The root may have changed since.
            From::Store => self.workspace = written,
            From::Make => {
                self.workspace = folder::named(&written, root)?.to_string_lossy().into_owned();
            }
        }
        Ok(())
    }
}

/// Returns a text; `None` if it is blank.
fn line(key: &str, value: &Value) -> Result<Option<String>, RpcError> {
    let text = value.as_str().ok_or_else(|| wrong(format!("{key} is a line of text")))?;
    Ok((!text.trim().is_empty()).then(|| text.to_owned()))
}

fn labels(value: &Value) -> Result<Vec<String>, RpcError> {
    let words = || wrong("labels is a list of words, one per label");
    let entries = value.as_array().ok_or_else(words)?;
    let mut labels = Vec::new();
    for entry in entries {
        let label = entry.as_str().ok_or_else(words)?.trim();
        if !label.is_empty() {
            labels.push(label.to_owned());
        }
    }
    Ok(labels)
}

fn one_of(value: &Value, known: &[&str], what: &str) -> Result<String, RpcError> {
    match value.as_str() {
        Some(text) if known.contains(&text) => Ok(text.to_owned()),
        _ => Err(wrong(format!("{} is not {what}", said(value)))),
    }
}

fn owner(value: &Value) -> Result<String, RpcError> {
    match value.as_str() {
        Some(text) if Owner::parse(text).is_some() => Ok(text.to_owned()),
        _ => {
            let said = said(value);
            Err(wrong(format!("{said} is not an owner; write user:, team:, project:, plugin: or root:")))
        }
    }
}

/// Returns a value in the form for messages.
fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    const DEFAULTS: fn() -> Defaults<'static> =
        || Defaults { root: Path::new("/bots"), owner: "user:ann", now: "2026-01-01T00:00:00.000Z" };

    fn object(value: Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    fn make(body: Value) -> Result<Bot, RpcError> {
        Bot::make("helper", &object(body), DEFAULTS())
    }

    #[test]
    fn defaults_of_a_make() {
        let bot = make(
            json!({ "name": " Helper ", "labels": [" a ", "", "b"], "description": " ", "id": "helper" }),
        )
        .unwrap();
        assert_eq!((bot.name.as_str(), bot.labels.join(",")), ("Helper", "a,b".to_owned()));
        assert_eq!((bot.color.as_str(), bot.workspace.as_str()), ("red", "/bots/helper"));
        assert!(BODIES.contains(&bot.body.as_str()));
        assert_eq!((bot.description.as_ref(), bot.owner.as_str()), (None, "user:ann"));
        let late = make(json!({ "name": "x", "createdAt": "1999", "updatedAt": "1999" })).unwrap();
        assert_eq!((late.created_at.as_str(), late.updated_at.as_str()), (DEFAULTS().now, DEFAULTS().now));
    }

    #[test]
    fn each_wrong_field_is_named() {
        for (body, why) in [
            (json!({}), "helper needs a name"),
            (json!({ "name": " " }), "helper needs a name"),
            (json!({ "name": 5 }), "name is a line of text"),
            (json!({ "name": "x", "id": "other" }), "other is not this bot; helper is"),
            (json!({ "name": "x", "labels": "a" }), "labels is a list of words, one per label"),
            (json!({ "name": "x", "labels": [1] }), "labels is a list of words, one per label"),
            (json!({ "name": "x", "model": null }), "model is a line of text"),
            (json!({ "name": "x", "body": "blob" }), "blob is not a body a bot is drawn with"),
            (json!({ "name": "x", "color": "gold" }), "gold is not a colour a bot is drawn in"),
            (
                json!({ "name": "x", "workspace": "/etc" }),
                "/etc is not under /bots; a bot's folder is one there",
            ),
            (
                json!({ "name": "x", "owner": "ann" }),
                "ann is not an owner; write user:, team:, project:, plugin: or root:",
            ),
            (
                json!({ "name": "x", "owner": "project:inn" }),
                "project:inn is not an owner; write user:, team:, project:, plugin: or root:",
            ),
            (json!({ "name": "x", "answers": "yes" }), "answers is true or false"),
            (json!({ "name": "x", "size": 1 }), "size is not something a bot has"),
        ] {
            let error = make(body).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (-32602, why));
        }
    }

    #[test]
    fn an_edit_keeps_what_it_leaves_out() {
        let bot = make(json!({ "name": "x", "model": "m", "session": "echo:/1", "answers": true })).unwrap();
        let edit = |body: Value| bot.edited(&object(body), Path::new("/bots"));
        let edited = edit(json!({ "name": "y", "model": " ", "workspace": "/bots/./helper" })).unwrap();
        assert_eq!((edited.name.as_str(), edited.model.as_deref()), ("y", Some("m")));
        assert_eq!((edited.session.as_deref(), edited.answers), (Some("echo:/1"), true));
        assert_eq!(edit(json!({ "session": null })).unwrap().session, None);
        assert_eq!(
            edit(json!({ "workspace": "/bots/b" })).unwrap_err().message,
            "/bots/b is not where this bot works; it is /bots/helper"
        );
        assert_eq!(
            edit(json!({ "owner": "user:bob" })).unwrap_err().message,
            "user:bob is not whose this bot is; it is user:ann"
        );
        assert!(edit(json!({ "owner": "user:ann" })).is_ok());
    }

    #[test]
    fn what_is_kept_reads_back_the_same() {
        let bot =
            make(json!({ "name": "x", "instructions": "Be kind.\n\nBe short.", "answers": true })).unwrap();
        assert_eq!(Bot::kept(&bot.to_json(), Path::new("/elsewhere"), "root:h").unwrap(), bot);
        let by_hand = Bot::kept(
            &object(json!({ "id": "mine", "name": "Mine", "later": 1, "model": null, "instructions": "" })),
            Path::new("/bots"),
            "root:h",
        );
        let by_hand = by_hand.unwrap();
        assert_eq!((by_hand.owner.as_str(), by_hand.instructions), ("root:h", None));
        assert!(Bot::kept(&object(json!({ "id": "mine" })), Path::new("/bots"), "root:h").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_body_panics(
            fields in proptest::collection::btree_map("(id|name|labels|model|body|owner|workspace|session|[a-z]{3})", ".{0,20}", 0..8)
        ) {
            let body = object(json!(fields));
            let _ = make(Value::Object(body.clone()));
            let _ = Bot::kept(&body, Path::new("/bots"), "root:h");
        }
    }
}
