//! Chats of readers: one per bot, reader and key.

use ostler_contract::host::SessionRequest;
use ostler_contract::points::Collection;
use ostler_contract::protocol::error::code;
use ostler_contract::protocol::uri;
use ostler_contract::{JsonObject, PluginHost, Thrown, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::folder;
use crate::record::Bot;
use crate::sessions;
use crate::silent::PROVIDER;

/// The maximum number of concurrently created chats; never two of one key.
const LANES: usize = 32;

/// A chat with a bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chat {
    pub uri: String,
    pub session: String,
}

#[derive(Debug)]
pub(crate) struct Chats {
    host: PluginHost,
    kept: Collection,
    starting: Vec<Mutex<()>>,
}

impl Chats {
    pub fn new(host: PluginHost, kept: Collection) -> Self {
        Self { host, kept, starting: (0..LANES).map(|_| Mutex::default()).collect() }
    }

    /// Returns the chat of a reader with a bot under a key. Creates one if there is none, its session no longer exists,
    /// or the bot answers differently now. `None` if the reader cannot start a session.
    ///
    /// # Errors
    /// `-32009` if the bot's owner could not start a session now: a bot answers in its owner's name.
    pub async fn chat(&self, bot: &Bot, owner: &str, key: &str) -> Result<Option<Chat>, Thrown> {
        self.host.may_work_for(bot.owner.clone()).map_err(|why| Thrown {
            message: format!("{} answers no more: its owner {}", bot.name, why.message),
            ..why
        })?;
        let digest = Sha256::digest(json!([bot.id, owner, key]).to_string());
        let id = format!("c{}", hex::encode(&digest[..16]));
        let _one_at_a_time = self.starting[usize::from(digest[0]) % LANES].lock().await;
        let request = self.request(bot, owner, key);
        let runs = runs(bot, &request);
        if let Some(record) = self.kept.get.read((id.clone(),)).await.known()?
            && let Some(chat) = read(&record).filter(|_| record.get("runs") == Some(&runs))
            && works_for(&record).is_none_or(|former| former == bot.owner)
            && self.host.session_kept(chat.session.clone()).await?
        {
            return Ok(Some(chat));
        }
        if bot.answers && bot.computer.is_none() {
            folder::make(&bot.workspace).await?;
        }
        let session = match self.host.start_session(request).await {
            Ok(session) => session,
            Err(why) if why.rpc.as_ref().is_some_and(|rpc| rpc.code == code::PERMISSION_DENIED) => {
                let _ = self.host.log(format!("bot {} cannot start a chat: {}", bot.id, why.message));
                return Ok(None);
            }
            Err(why) => return Err(why),
        };
        let chat = Chat { uri: uri::default_chat(&session), session };
        let record = json!({
            "id": id, "bot": bot.id, "owner": owner, "key": key,
            "session": chat.session, "chat": chat.uri, "runs": runs, "worksFor": bot.owner,
        });
        if let Value::Object(record) = record {
            self.kept.put.call((record,)).await?;
        }
        Ok(Some(chat))
    }

    /// Removes the chats of a bot; their sessions stay.
    pub async fn forget(&self, bot: &str) -> Result<(), Thrown> {
        let of_bot = JsonObject::from_iter([("bot".to_owned(), bot.into())]);
        for record in self.kept.find.read((of_bot,)).await.known()? {
            if let Some(id) = record.get("id").and_then(Value::as_str) {
                self.kept.remove.call((id.to_owned(),)).await?;
            }
        }
        Ok(())
    }

    fn request(&self, bot: &Bot, owner: &str, key: &str) -> SessionRequest {
        // Several chats of one bot are adjacent in a list.
        let title = format!("{} ({key})", bot.name);
        match bot.answers {
            true => sessions::request(bot, owner, &title),
            false => SessionRequest {
                owner: owner.to_owned(),
                provider: Some(PROVIDER.to_owned()),
                title: Some(title),
                works_for: sessions::works_for(bot, owner),
                ..SessionRequest::default()
            },
        }
    }
}

/// The settings of a chat's answers; a chat with other settings is not continued.
fn runs(bot: &Bot, request: &SessionRequest) -> Value {
    match bot.answers {
        true => json!([request.provider, request.model.as_ref().map(|model| &model.id), bot.computer]),
        false => json!([request.provider]),
    }
}

/// The owner of the bot for whom a chat works; none in a record of an earlier version.
fn works_for(record: &JsonObject) -> Option<&str> {
    record.get("worksFor").and_then(Value::as_str)
}

fn read(record: &JsonObject) -> Option<Chat> {
    let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
    Some(Chat { uri: text("chat")?, session: text("session")? })
}
