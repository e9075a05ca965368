//! `@ostler/bot`: bots, each a record under `bot://<slug>` with a session, a folder and an owner.
//!
//! A read of `bot://<slug>?chat=<key>` also returns a separate chat of the reader with the bot, which the first such
//! read creates. A turn in that chat runs no model, unless the bot's record contains `answers: true`.

mod access;
mod address;
mod bots;
mod chats;
mod folder;
mod looks;
mod provider;
mod record;
mod sessions;
mod silent;

use std::path::PathBuf;
use std::sync::Arc;

use ostler_contract::points::{Collection, CollectionOptions, RecordChange, RecordStore};
use ostler_contract::read::Read;
use ostler_contract::{Call, JsonObject, Options, Plugin, PluginHost, Thrown, Value, json, limit};

use bots::Bots;
use chats::Chats;

/// The scheme of bots.
const SCHEME: &str = "bot";
/// The collection of bots.
pub const BOTS: &str = "bots";
/// The collection of the slugs of deleted bots.
const GONE: &str = "bots-gone";
/// The collection of readers' chats.
const CHATS: &str = "bot-chats";

/// The plugin.
pub fn plugin() -> Plugin {
    Plugin::new("@ostler/bot", |host, options| Box::pin(async move { apply(&host, &options) }))
        .title("Bots")
        .defaults(json!({ "root": "~/.bots" }))
        .options_schema(json!({
            "type": "object",
            "properties": {
                "root": {
                    "type": "string", "minLength": 1,
                    "description": "Folder of the bots' folders."
                }
            }
        }))
}

/// Returns the slugs of the bots of a session: those with a chat in it, and the one whose session it is.
pub async fn bots_of(records: &RecordStore, session: &str) -> Read<Vec<String>> {
    let mut bots: Vec<String> = Vec::new();
    for (collection, options, field) in [(BOTS, bots_options(), "id"), (CHATS, Default::default(), "bot")] {
        let read = async {
            let opened =
                records.collection.read(limit::STORE, (collection.to_owned(), options)).await.known()?;
            let of_session = JsonObject::from_iter([("session".to_owned(), session.into())]);
            opened.find.read(limit::STORE, (of_session,)).await.known()
        };
        let found = match read.await {
            Ok(found) => found,
            Err(why) => return Read::Unknown(why),
        };
        let slugs = found.iter().filter_map(|record| record.get(field)?.as_str());
        slugs.for_each(|slug| {
            if !bots.iter().any(|known| known == slug) {
                bots.push(slug.to_owned());
            }
        });
    }
    Read::Known(bots)
}

/// Returns the options of the collection of bots. Their instructions are the long text, which users edit as Markdown.
pub fn bots_options() -> CollectionOptions {
    CollectionOptions { body: Some("instructions".to_owned()), ..CollectionOptions::default() }
}

fn apply(host: &PluginHost, options: &Options) -> Result<(), Thrown> {
    let root = options.get("root").and_then(Value::as_str).unwrap_or("~/.bots");
    let root = folder::root(root, std::env::var_os("HOME").map(PathBuf::from).as_deref())?;
    host.register_agent(silent::agent())?;
    let records = host.records(BOTS.to_owned(), Some(bots_options()))?;
    let bots = Arc::new(Bots {
        host: host.clone(),
        root,
        records: records.clone(),
        gone: host.records(GONE.to_owned(), None)?,
        chats: Chats::new(host.clone(), host.records(CHATS.to_owned(), None)?),
        writing: tokio::sync::Mutex::new(()),
    });
    report_edits(&bots, &records)?;
    host.register_resource_provider(SCHEME.into(), provider::provider(bots))
}

/// Logs the problems of a record when it is first read and after edits. Such a bot is not listed.
fn report_edits(bots: &Arc<Bots>, records: &Collection) -> Result<(), Thrown> {
    let (changed, read) = (bots.clone(), records.get.clone());
    records.watch.call((Call::new(move |(change,): (RecordChange,)| {
        let (bots, record) = (changed.clone(), read.read((change.id,)));
        async move {
            if let Some(record) = record.await.known()? {
                report(&bots, &record);
            }
            Ok(())
        }
    }),))?;
    let (bots, list) = (bots.clone(), records.list.clone());
    tokio::spawn(async move {
        let records = list.read(()).await.or_assume(
            Vec::new(),
            "a bot is served or not by its record as it is read for each request; this only logs",
            |why| {
                drop(
                    bots.host
                        .log(format!("the problems of bots are unknown: {BOTS} could not be read: {why}")),
                )
            },
        );
        for record in records {
            report(&bots, &record);
        }
    });
    Ok(())
}

fn report(bots: &Bots, record: &JsonObject) {
    if let Err(why) = bots.read_record(record) {
        let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
        let _ = bots.host.log(format!("bot {BOTS}/{id} is not served: {}", why.message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_exports() {
        let module = plugin().module;
        assert_eq!(module.name, Some("bot".into()));
        assert_eq!(module.defaults, Some(json!({ "root": "~/.bots" })));
    }
}
