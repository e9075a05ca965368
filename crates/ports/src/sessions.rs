//! The session store, in the state database.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{
    KeptAttachment, KeptChat, KeptSession, KeptTurn, ListedPlace, SessionFlags, SessionStore, StoredSession,
};
use ostler_contract::stores::Unreadable;
use ostler_contract::{JsonObject, Thrown, Value};
use rusqlite::{OptionalExtension as _, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Report;
use crate::state::{Failure, StateDb};

/// Sessions in the state database. With [`StateDb::memory`] they end with the process.
pub struct SqliteSessions {
    db: Arc<StateDb>,
    unreadable: Unreadable,
}

/// Selects sessions with their marks and chats, for [`stored`] to read.
macro_rules! stored {
    () => {
        "SELECT id, kept, chats, coalesce(is_read, 0) AS is_read, coalesce(is_archived, 0) AS is_archived
         FROM sessions LEFT JOIN session_flags ON session_flags.session = id
         LEFT JOIN session_chats ON session_chats.session = id "
    };
}

/// The tables with data under a session's id.
const TABLES: [(&str, &str); 11] = [
    ("sessions", "id"),
    ("session_flags", "session"),
    ("session_artifacts", "session"),
    ("session_pull_requests", "session"),
    ("session_chats", "session"),
    ("session_chat_uris", "session"),
    ("session_annotations", "session"),
    ("session_reported", "session"),
    ("chat_titles", "session"),
    ("turns", "session"),
    ("attachments", "session"),
];

impl SqliteSessions {
    /// Creates the store of a database.
    pub fn new(db: Arc<StateDb>, report: Report) -> Self {
        Self { db, unreadable: Unreadable::of_sessions(report) }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> SessionStore {
        SessionStore {
            flags: member!(self, Self::flags),
            set_flags: member!(self, Self::set_flags),
            config: member!(self, |store: &Self, (id,)| {
                store.one("SELECT kept FROM sessions WHERE id = ?1", id, "session")
            }),
            set_config: member!(self, |store: &Self, (id, kept): (String, KeptSession)| {
                store.keep(
                "INSERT INTO sessions (id, kept) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET kept = excluded.kept",
                id,
                &kept
            )
            }),
            artifacts: member!(self, |store: &Self, (id,)| store.one_or_empty::<Vec<Value>>(
                "SELECT artifacts FROM session_artifacts WHERE session = ?1",
                id,
                "artifacts of"
            )),
            set_artifacts: member!(self, |store: &Self, (id, artifacts): (String, Vec<Value>)| store.keep(
                "INSERT OR REPLACE INTO session_artifacts (session, artifacts) VALUES (?1, ?2)",
                id,
                &artifacts
            )),
            pull_requests: member!(self, |store: &Self, (id,)| store.one_or_empty::<JsonObject>(
                "SELECT pull_requests FROM session_pull_requests WHERE session = ?1",
                id,
                "pull requests of"
            )),
            set_pull_requests: member!(self, |store: &Self, (id, requests): (String, JsonObject)| store
                .keep(
                    "INSERT OR REPLACE INTO session_pull_requests (session, pull_requests) VALUES (?1, ?2)",
                    id,
                    &requests
                )),
            chat_title: member!(self, Self::chat_title),
            set_chat_title: member!(self, Self::set_chat_title),
            chats: member!(self, |store: &Self, (id,)| store.one_or_empty::<Vec<KeptChat>>(
                "SELECT chats FROM session_chats WHERE session = ?1",
                id,
                "chats of"
            )),
            set_chats: member!(self, |store: &Self, (id, chats): (String, Vec<KeptChat>)| store.keep(
                "INSERT OR REPLACE INTO session_chats (session, chats) VALUES (?1, ?2)",
                id,
                &chats
            )),
            sessions: member!(self, Self::sessions),
            forget: member!(self, Self::forget),
            all: Some(member!(self, Self::all)),
            session: Some(member!(self, Self::session)),
            page: Some(member!(self, Self::page)),
            session_of_chat: Some(member!(self, Self::session_of_chat)),
            drafts: Some(member!(self, Self::drafts)),
            waiting: Some(member!(self, Self::waiting)),
            count: Some(member!(self, Self::count)),
            turns: Some(member!(self, Self::turns)),
            set_turn: Some(member!(self, Self::set_turn)),
            drop_turns: Some(member!(self, Self::drop_turns)),
            annotations: Some(member!(self, |store: &Self, (id,)| store.one_or_empty::<Vec<Value>>(
                "SELECT annotations FROM session_annotations WHERE session = ?1",
                id,
                "annotations of"
            ))),
            set_annotations: Some(member!(self, |store: &Self, (id, annotations): (String, Vec<Value>)| {
                store.keep(
                    "INSERT OR REPLACE INTO session_annotations (session, annotations) VALUES (?1, ?2)",
                    id,
                    &annotations,
                )
            })),
            reported: Some(member!(self, |store: &Self, (id,)| store.one_or_empty::<JsonObject>(
                "SELECT reported FROM session_reported WHERE session = ?1",
                id,
                "reports of"
            ))),
            set_reported: Some(member!(self, |store: &Self, (id, reported): (String, JsonObject)| {
                store.keep(
                    "INSERT OR REPLACE INTO session_reported (session, reported) VALUES (?1, ?2)",
                    id,
                    &reported,
                )
            })),
            set_attachment: Some(member!(self, Self::set_attachment)),
            attachment: Some(member!(self, Self::attachment)),
            close: Some(member!(self, |store: &Self, ()| store.db.checkpoint())),
        }
    }

    fn one<T: DeserializeOwned + Send + 'static>(
        &self,
        sql: &'static str,
        id: String,
        what: &'static str,
    ) -> Pending<Option<T>> {
        self.db.read(move |db| {
            let text: Option<String> =
                db.prepare_cached(sql)?.query_row([&id], |row| row.get(0)).optional()?;
            text.map(|text| decode(&text, what, &id)).transpose()
        })
    }

    fn one_or_empty<T: DeserializeOwned + Default + Send + 'static>(
        &self,
        sql: &'static str,
        id: String,
        what: &'static str,
    ) -> Pending<T> {
        let one = self.one(sql, id, what);
        Box::pin(async move { Ok(one.await?.unwrap_or_default()) })
    }

    fn keep(&self, sql: &'static str, id: String, value: &impl Serialize) -> Pending<()> {
        let text = match encode(value) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        self.db.write(move |db| Ok(db.prepare_cached(sql)?.execute(params![id, text]).map(drop)?))
    }

    fn flags(&self, (id,): (String,)) -> Pending<Option<SessionFlags>> {
        self.db.read(move |db| {
            let mut asked =
                db.prepare_cached("SELECT is_read, is_archived FROM session_flags WHERE session = ?1")?;
            let flags = |row: &Row<'_>| {
                Ok(SessionFlags { is_read: row.get("is_read")?, is_archived: row.get("is_archived")? })
            };
            Ok(asked.query_row([id], flags).optional()?)
        })
    }

    fn set_flags(&self, (id, flags): (String, SessionFlags)) -> Pending<()> {
        self.db.write(move |db| {
            db.prepare_cached(
                "INSERT OR REPLACE INTO session_flags (session, is_read, is_archived) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![id, flags.is_read, flags.is_archived])?;
            Ok(())
        })
    }

    fn chat_title(&self, (id, chat): (String, String)) -> Pending<Option<String>> {
        self.db.read(move |db| {
            let mut asked =
                db.prepare_cached("SELECT title FROM chat_titles WHERE session = ?1 AND chat = ?2")?;
            Ok(asked.query_row([id, chat], |row| row.get(0)).optional()?)
        })
    }

    fn set_chat_title(&self, (id, chat, title): (String, String, Option<String>)) -> Pending<()> {
        self.db.write(move |db| {
            match title {
                Some(title) => db
                    .prepare_cached(
                        "INSERT OR REPLACE INTO chat_titles (session, chat, title) VALUES (?1, ?2, ?3)",
                    )?
                    .execute([id, chat, title])?,
                None => db
                    .prepare_cached("DELETE FROM chat_titles WHERE session = ?1 AND chat = ?2")?
                    .execute([id, chat])?,
            };
            Ok(())
        })
    }

    fn sessions(&self, (): ()) -> Pending<Vec<String>> {
        self.db.read(|db| {
            let mut asked = db.prepare_cached("SELECT id FROM sessions ORDER BY rowid")?;
            Ok(asked.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn all(&self, (): ()) -> Pending<Vec<StoredSession>> {
        let unreadable = self.unreadable.clone();
        self.db.read(move |db| {
            let mut asked = db.prepare_cached(concat!(stored!(), "ORDER BY sessions.rowid"))?;
            let mut rows = asked.query([])?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.extend(listed(&unreadable, row)?);
            }
            Ok(all)
        })
    }

    fn session(&self, (id,): (String,)) -> Pending<Option<StoredSession>> {
        let unreadable = self.unreadable.clone();
        self.db.look_up(move |db| {
            let mut asked = db.prepare_cached(concat!(stored!(), "WHERE id = ?1"))?;
            let mut rows = asked.query([&id])?;
            let Some(row) = rows.next()? else {
                unreadable.is_readable(&id);
                return Ok(None);
            };
            match stored(row) {
                Ok(session) => Ok(unreadable.noted(&id, Ok(Some(session)))?),
                Err(Failure::Thrown(why)) => Ok(unreadable.noted(&id, Err(why))?),
                Err(failure) => Err(failure),
            }
        })
    }

    fn page(&self, (limit, after): (u64, Option<ListedPlace>)) -> Pending<Vec<StoredSession>> {
        let unreadable = self.unreadable.clone();
        self.db.read(move |db| {
            let (mut first, mut next);
            let mut rows = match &after {
                None => {
                    first = db.prepare_cached(concat!(
                        stored!(),
                        "WHERE listed_at IS NOT NULL ORDER BY listed_at DESC, uri"
                    ))?;
                    first.query([])?
                }
                Some(after) => {
                    next = db.prepare_cached(concat!(
                        stored!(),
                        "WHERE listed_at <= ?1 AND (listed_at < ?1 OR uri > ?2) ORDER BY listed_at DESC, uri"
                    ))?;
                    next.query([&after.modified_at, &after.uri])?
                }
            };
            let mut page = Vec::new();
            while (page.len() as u64) < limit
                && let Some(row) = rows.next()?
            {
                page.extend(listed(&unreadable, row)?);
            }
            Ok(page)
        })
    }

    fn session_of_chat(&self, (chat,): (String,)) -> Pending<Option<String>> {
        self.db.look_up(move |db| {
            let mut asked = db.prepare_cached(
                "SELECT session FROM session_chat_uris JOIN sessions ON sessions.id = session
                 WHERE session_chat_uris.uri = ?1 ORDER BY sessions.rowid LIMIT 1",
            )?;
            Ok(asked.query_row([&chat], |row| row.get(0)).optional()?)
        })
    }

    fn drafts(&self, (): ()) -> Pending<Vec<String>> {
        self.db.read(|db| {
            let mut asked = db.prepare_cached("SELECT id FROM sessions WHERE draft IS NOT NULL")?;
            Ok(asked.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn waiting(&self, (): ()) -> Pending<Vec<String>> {
        self.db.read(|db| {
            // The condition is that of the index.
            let mut asked = db.prepare_cached(
                "SELECT session FROM session_chats
                 WHERE instr(chats, '\"queued\":[') > 0 OR instr(chats, '\"starting\":{') > 0
                 UNION SELECT session FROM unended_turns WHERE NOT EXISTS (
                     SELECT 1 FROM session_chats AS listing WHERE listing.session = unended_turns.session
                         AND json_valid(chats) AND chats <> '[]' AND NOT EXISTS (
                             SELECT 1 FROM json_each(CASE WHEN json_valid(chats) THEN chats ELSE '[]' END) AS listed
                             WHERE listed.value ->> '$.uri' = unended_turns.chat
                         )
                 ) ORDER BY session",
            )?;
            Ok(asked.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn count(&self, (): ()) -> Pending<u64> {
        self.db.read(|db| {
            let mut asked = db.prepare_cached(
                "SELECT (SELECT count(*) FROM sessions WHERE listed_at IS NOT NULL)
                      + (SELECT count(*) FROM sessions WHERE draft IS NOT NULL)",
            )?;
            Ok(asked.query_row([], |row| row.get::<_, i64>(0))?.unsigned_abs())
        })
    }

    fn forget(&self, (id,): (String,)) -> Pending<()> {
        let unreadable = self.unreadable.clone();
        self.db.write(move |db| {
            for (table, column) in TABLES {
                db.prepare_cached(&format!("DELETE FROM {table} WHERE {column} = ?1"))?.execute([&id])?;
            }
            unreadable.is_readable(&id);
            Ok(())
        })
    }

    fn turns(&self, (id, chat): (String, String)) -> Pending<Vec<KeptTurn>> {
        self.db.read(move |db| {
            let mut asked =
                db.prepare_cached("SELECT kept FROM turns WHERE session = ?1 AND chat = ?2 ORDER BY place")?;
            let mut rows = asked.query([&id, &chat])?;
            let mut turns = Vec::new();
            while let Some(row) = rows.next()? {
                // Omitting one would change the positions of those after it.
                turns.push(decode(row.get_ref("kept")?.as_str().unwrap_or_default(), "turn of", &chat)?);
            }
            Ok(turns)
        })
    }

    fn set_turn(&self, (id, chat, place, turn): (String, String, u64, KeptTurn)) -> Pending<()> {
        let text = match encode(&turn) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        self.db.write(move |db| {
            // `INSERT OR REPLACE` would delete the row of the turn and add another one, which allocates and frees pages at
            // nearly every end of a turn.
            db.prepare_cached(
                "INSERT INTO turns (session, chat, place, kept) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (session, chat, place) DO UPDATE SET kept = excluded.kept",
            )?
            .execute(params![id, chat, number(place), text])?;
            Ok(())
        })
    }

    fn set_attachment(&self, (id, attachment, kept): (String, String, KeptAttachment)) -> Pending<()> {
        // Decoded by the writing thread: a long one would delay the tasks of this thread.
        self.db.write(move |db| {
            let bytes = STANDARD.decode(&kept.data).map_err(|error| {
                Thrown::new(format_args!("attachment {attachment} is not base64: {error}"))
            })?;
            db.prepare_cached(
                "INSERT OR IGNORE INTO attachments (session, id, content_type, content) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![id, attachment, kept.content_type, bytes])?;
            Ok(())
        })
    }

    fn attachment(&self, (attachment,): (String,)) -> Pending<Option<KeptAttachment>> {
        self.db.read(move |db| {
            let mut asked =
                db.prepare_cached("SELECT content_type, content FROM attachments WHERE id = ?1 LIMIT 1")?;
            let kept = |row: &rusqlite::Row<'_>| {
                let content: Vec<u8> = row.get("content")?;
                Ok(KeptAttachment { content_type: row.get("content_type")?, data: STANDARD.encode(content) })
            };
            Ok(asked.query_row([attachment], kept).optional()?)
        })
    }

    fn drop_turns(&self, (id, chat, from): (String, String, u64)) -> Pending<()> {
        self.db.write(move |db| {
            db.prepare_cached("DELETE FROM turns WHERE session = ?1 AND chat = ?2 AND place >= ?3")?
                .execute(params![id, chat, number(from)])?;
            Ok(())
        })
    }
}

/// Returns the session of a row, or `None` if it is damaged, so that the others can be listed.
fn listed(unreadable: &Unreadable, row: &Row<'_>) -> Result<Option<StoredSession>, Failure> {
    let entry = match stored(row) {
        Ok(session) => Ok(session),
        Err(Failure::Thrown(why)) => Err(why),
        Err(failure) => return Err(failure),
    };
    Ok(unreadable.read(&row.get::<_, String>("id")?, entry))
}

fn stored(row: &Row<'_>) -> Result<StoredSession, Failure> {
    let id: String = row.get("id")?;
    let flags = SessionFlags { is_read: row.get("is_read")?, is_archived: row.get("is_archived")? };
    // What cannot be read here is read, and reported, when it is needed.
    let chats = match row.get_ref("chats")?.as_str() {
        Ok(text) => serde_json::from_str(text).ok(),
        Err(_) => Some(Vec::new()),
    };
    let session = decode(row.get_ref("kept")?.as_str().unwrap_or_default(), "session", &id)?;
    Ok(StoredSession { id, session, flags, chats })
}

/// Converts a position to SQLite's integer, which is large enough.
fn number(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

pub(crate) fn encode(value: &impl Serialize) -> Result<String, Thrown> {
    serde_json::to_string(value)
        .map_err(|error| Thrown::new(format_args!("cannot store this value: {error}")))
}

pub(crate) fn decode<T: DeserializeOwned>(text: &str, what: &str, of: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Thrown::new(format_args!("cannot read the stored {what} {of}: {error}")).into())
}
