//! Reading, creating, editing and deleting of bots.

use std::path::{Path, PathBuf};

use ostler_contract::points::{Collection, Reader, ResourceWriter};
use ostler_contract::{JsonObject, PluginHost, RpcError, Slug, Thrown, Value, json};
use tokio::sync::Mutex;

use crate::chats::Chats;
use crate::record::{Bot, Defaults};
use crate::{access, folder, sessions};

/// The expectation of a write about the existing bot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expect {
    /// Fails if the bot exists.
    pub create_only: bool,
    /// Fails if the bot has another etag.
    pub if_match: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Bots {
    pub host: PluginHost,
    /// The root of their folders.
    pub root: PathBuf,
    pub records: Collection,
    pub gone: Collection,
    pub chats: Chats,
    /// One write at a time, so that a write's checks stay valid until it ends.
    pub writing: Mutex<()>,
}

impl Bots {
    /// Parses a stored record as a bot.
    pub fn read_record(&self, record: &JsonObject) -> Result<Bot, RpcError> {
        Bot::kept(record, &self.root, &self.host_owner())
    }

    /// The owner of work without a user.
    pub fn host_owner(&self) -> String {
        format!("root:{}", self.host.facts().host_name)
    }

    /// Returns the bot of a slug. One with an invalid record counts as missing.
    pub async fn get(&self, slug: &str) -> Result<Option<Bot>, Thrown> {
        let record = self.records.get.read((slug.to_owned(),)).await.known()?;
        Ok(record.and_then(|record| self.read_record(&record).ok()))
    }

    /// Returns all bots that a reader can see.
    pub async fn seen_by(&self, reader: Option<&Reader>) -> Result<Vec<Bot>, Thrown> {
        let records = self.records.list.read(()).await.known()?;
        let bots = records.iter().filter_map(|record| self.read_record(record).ok());
        Ok(bots.filter(|bot| access::may_see(bot, reader)).collect())
    }

    /// Creates a bot, or edits the existing one.
    pub async fn write(
        &self,
        slug: &Slug,
        body: Body<'_>,
        expect: Expect,
        writer: ResourceWriter,
    ) -> Result<(), Thrown> {
        let _alone = self.writing.lock().await;
        let reader = writer.reader.as_ref();
        let kept = self.records.get.read((slug.to_string(),)).await.known()?;
        let Some(kept) = kept else { return self.make(slug, body, expect, &writer).await };
        let bot = self.read_record(&kept).map_err(|why| {
            let why = format!("the record of {slug} is invalid: {}", why.message);
            RpcError::invalid_params(why)
        })?;
        access::require_change(&bot, reader)?;
        if expect.create_only {
            return Err(RpcError::already_exists(format!("{slug} is already a bot here")).into());
        }
        if expect.if_match.is_some_and(|etag| etag != bot.updated_at) {
            return Err(read_again(slug).into());
        }
        let body = body.read()?;
        let mut edited = bot.edited(&body, &self.root)?;
        if let Some(session) = body.get("session").and_then(Value::as_str)
            && edited.session.as_deref() == Some(session)
        {
            sessions::require_link(&self.host, session, &edited.owner).await?;
        }
        edited.updated_at = later_than(&bot.updated_at);
        self.records.put.call((edited.to_json(),)).await
    }

    async fn make(
        &self,
        slug: &Slug,
        body: Body<'_>,
        expect: Expect,
        writer: &ResourceWriter,
    ) -> Result<(), Thrown> {
        if self.gone.get.read((slug.to_string(),)).await.known()?.is_some() {
            let why = format!("{slug} was a bot here once; choose another name");
            return Err(RpcError::already_exists(why).into());
        }
        if expect.if_match.is_some() {
            return Err(read_again(slug).into());
        }
        let body = body.read()?;
        let maker = writer.owner.clone().unwrap_or_else(|| self.host_owner());
        let now = now();
        let mut bot = Bot::make(slug, &body, Defaults { root: &self.root, owner: &maker, now: &now })?;
        if bot.owner != maker {
            access::require_make(&bot.owner, writer.reader.as_ref())?;
        }
        self.require_own_folder(&bot).await?;
        match &bot.session {
            Some(session) => sessions::require_link(&self.host, session, &bot.owner).await?,
            None => {
                if bot.computer.is_none() {
                    folder::make(&bot.workspace).await?;
                }
                let request = sessions::request(&bot, &bot.owner, &bot.name);
                bot.session = Some(self.host.start_session(request).await?);
            }
        }
        self.records.put.call((bot.to_json(),)).await
    }

    async fn require_own_folder(&self, bot: &Bot) -> Result<(), Thrown> {
        let others = self.records.list.read(()).await.known()?;
        let holder = others
            .iter()
            .filter_map(|record| self.read_record(record).ok())
            .find(|other| other.id != bot.id && Path::new(&other.workspace) == Path::new(&bot.workspace));
        match holder {
            Some(other) => {
                let (folder, other) = (&bot.workspace, other.id);
                let why = format!("{folder} is where {other} works; a bot's folder is its own");
                Err(RpcError::invalid_params(why).into())
            }
            None => Ok(()),
        }
    }

    /// Removes a bot. Its slug is never reused; its session and folder stay.
    pub async fn delete(&self, slug: &Slug, uri: &str, writer: &ResourceWriter) -> Result<(), Thrown> {
        let _alone = self.writing.lock().await;
        let bot = self.get(slug).await?.ok_or_else(|| crate::address::nobody(uri))?;
        access::require_change(&bot, writer.reader.as_ref())?;
        // First the tombstone, so that after a crash between the two the bot can be deleted again.
        if let Value::Object(tombstone) = json!({ "id": bot.id, "at": now() }) {
            self.gone.put.call((tombstone,)).await?;
        }
        self.records.remove.call((bot.id.clone(),)).await?;
        self.chats.forget(&bot.id).await
    }
}

/// The body of a write, not parsed yet, so that an unauthorized writer learns nothing about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body<'a> {
    /// The target.
    pub uri: &'a str,
    /// The content.
    pub text: &'a str,
}

fn read_again(slug: &Slug) -> RpcError {
    RpcError::conflict(format!("{slug} is not the bot that was read; read it again"))
}

fn made_from(uri: &str, what: &str) -> RpcError {
    RpcError::invalid_params(format!("{uri} is made from {what}"))
}

impl Body<'_> {
    fn read(self) -> Result<JsonObject, RpcError> {
        let uri = self.uri;
        if self.text.trim().is_empty() {
            return Err(made_from(uri, "an object with a name"));
        }
        match serde_json::from_str(self.text) {
            Ok(Value::Object(body)) => Ok(body),
            Ok(_) => Err(made_from(uri, "an object with a name")),
            Err(_) => Err(made_from(uri, "JSON")),
        }
    }
}

fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// Returns the current time, but never the previous one, because the time of an edit is the bot's etag.
fn later_than(before: &str) -> String {
    let now = now();
    if now.as_str() > before {
        return now;
    }
    match before
        .parse::<jiff::Timestamp>()
        .ok()
        .and_then(|at| at.checked_add(jiff::SignedDuration::from_millis(1)).ok())
    {
        Some(next) => format!("{next:.3}"),
        None => now,
    }
}
