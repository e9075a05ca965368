//! The `bot:` scheme.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::points::{
    Encoding, Reader, ResourceContent, ResourceFacts, ResourceProvider, ResourceResolving, ResourceWrite,
    ResourceWriter, SchemeDescription, WriteMode,
};
use ostler_contract::wire::commands::DirectoryEntry;
use ostler_contract::{Call, RpcError, Thrown, Value, json};

use crate::access;
use crate::address::{Address, nobody};
use crate::bots::{Body, Bots, Expect};
use crate::looks::{BODIES, COLORS};
use crate::record::Bot;

pub(crate) fn provider(bots: Arc<Bots>) -> ResourceProvider {
    /// Creates a member that works on the bots.
    macro_rules! member {
        (|$bots:ident, $arguments:tt: $types:ty| $body:expr) => {{
            let bots = bots.clone();
            Call::new(move |$arguments: $types| {
                let $bots = bots.clone();
                async move { $body }
            })
        }};
    }
    ResourceProvider {
        read: member!(|bots, (uri, reader): (String, Option<Reader>)| read(&bots, &uri, reader).await),
        list: Some(member!(|bots, (uri, reader): (String, Option<Reader>)| {
            list(&bots, &uri, reader.as_ref()).await
        })),
        write: Some(member!(|bots, (uri, content, writer): (String, ResourceWrite, ResourceWriter)| {
            write(&bots, &uri, content, writer).await
        })),
        resolve: Some(member!(|bots, (uri, ..): (String, Option<Reader>, ResourceResolving)| resolve(
            &bots, &uri
        )
        .await)),
        delete: Some(member!(|bots, (uri, _recursive, writer): (String, bool, ResourceWriter)| {
            bots.delete(&Address::written(&uri)?, &uri, &writer).await
        })),
        authorize: Some(member!(|bots, (uri, reader): (String, Reader)| {
            match Address::read(&uri) {
                // The list contains only what its reader can see.
                Ok(Address::Root) => Ok(true),
                Ok(Address::Bot { slug, .. }) => {
                    Ok(bots.get(&slug).await?.is_some_and(|bot| access::may_read_own(&bot, &reader)))
                }
                Err(_) => Ok(false),
            }
        })),
        describe: Some(Call::now(|()| Ok(description()))),
        operations: Some(vec!["chat".to_owned()]),
        ..ResourceProvider::default()
    }
}

async fn bot_at(bots: &Bots, uri: &str) -> Result<(Bot, Option<String>), Thrown> {
    match Address::read(uri)? {
        Address::Root => Err(nobody(uri).into()),
        Address::Bot { slug, chat } => Ok((bots.get(&slug).await?.ok_or_else(|| nobody(uri))?, chat)),
    }
}

async fn read(bots: &Bots, uri: &str, reader: Option<Reader>) -> Result<ResourceContent, Thrown> {
    let (bot, key) = bot_at(bots, uri).await?;
    let mut answer = bot.to_json();
    if let Some(key) = key.filter(|_| access::may_chat(reader.as_ref())) {
        let owner = reader.map_or_else(|| bots.host_owner(), |reader| reader.id);
        if let Some(chat) = bots.chats.chat(&bot, &owner, &key).await? {
            answer.insert("chat".to_owned(), json!({ "uri": chat.uri, "session": chat.session }));
        }
    }
    Ok(ResourceContent::json(&Value::Object(answer)))
}

async fn list(bots: &Bots, uri: &str, reader: Option<&Reader>) -> Result<Vec<DirectoryEntry>, Thrown> {
    if Address::read(uri)? != Address::Root {
        bot_at(bots, uri).await?;
        return Err(RpcError::invalid_params(format!("{uri} is a bot, and nothing is under one")).into());
    }
    let mut names: Vec<String> = bots.seen_by(reader).await?.into_iter().map(|bot| bot.id).collect();
    names.sort_unstable();
    Ok(names.into_iter().map(|name| DirectoryEntry { name, r#type: "file".to_owned() }).collect())
}

async fn write(bots: &Bots, uri: &str, content: ResourceWrite, writer: ResourceWriter) -> Result<(), Thrown> {
    let slug = Address::written(uri)?;
    if content.position != 0 || content.mode.is_some_and(|mode| mode != WriteMode::Truncate) {
        return Err(RpcError::invalid_params(format!("{uri} is written whole")).into());
    }
    let not_json = || RpcError::invalid_params(format!("{uri} is made from JSON"));
    let text = match content.encoding {
        Some(Encoding::Base64) => {
            let bytes = STANDARD.decode(&content.data).map_err(|_| not_json())?;
            String::from_utf8(bytes).map_err(|_| not_json())?
        }
        _ => content.data,
    };
    let expect = Expect { create_only: content.create_only, if_match: content.if_match };
    bots.write(&slug, Body { uri, text: &text }, expect, writer).await
}

async fn resolve(bots: &Bots, uri: &str) -> Result<ResourceFacts, Thrown> {
    if Address::read(uri)? == Address::Root {
        return Ok(ResourceFacts { r#type: "directory".to_owned(), ..ResourceFacts::default() });
    }
    let (bot, _) = bot_at(bots, uri).await?;
    let content = ResourceContent::json(&Value::Object(bot.to_json()));
    Ok(ResourceFacts {
        uri: None,
        r#type: "file".to_owned(),
        size: i64::try_from(content.data.len()).ok(),
        mtime: Some(bot.updated_at.clone()),
        ctime: Some(bot.created_at),
        content_type: content.content_type,
        etag: Some(bot.updated_at),
    })
}

fn description() -> SchemeDescription {
    let text = |what: &str| json!({ "type": "string", "description": what });
    let manifest = json!({
        "type": "object",
        "properties": {
            "id": text("The bot's slug."),
            "name": text("Display name."),
            "labels": { "type": "array", "items": { "type": "string" }, "description": "Search terms." },
            "description": text("Description."),
            "instructions": text("First message of its session."),
            "harness": text("Backend."),
            "model": text("Model."),
            "preset": text("Preset, instead of a backend and a model."),
            "computer": text("Machine."),
            "body": { "type": "string", "enum": BODIES, "description": "Body in clients." },
            "color": { "type": "string", "enum": COLORS, "description": "Color in clients." },
            "workspace": text("Folder."),
            "session": { "type": ["string", "null"], "description": "Session." },
            "owner": text("Owner."),
            "answers": {
                "type": "boolean", "description": "Whether its model responds in readers' chats."
            },
            "createdAt": text("Time of creation."),
            "updatedAt": text("Time of the last change."),
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    SchemeDescription {
        title: Some("Bot".to_owned()),
        description: Some("An agent with a name, a session and a folder.".to_owned()),
        manifest: manifest.as_object().cloned(),
    }
}
