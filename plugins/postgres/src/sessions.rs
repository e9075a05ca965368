//! The session store. Each write of a session is one statement that checks the owner of the session, its epoch, and the
//! number of earlier writes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::bodies::LONG;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{
    KeptAttachment, KeptChat, KeptSession, KeptTurn, ListedPlace, SessionFlags, SessionStore, StoredSession,
};
use ostler_contract::stores::{Report, Unreadable};
use ostler_contract::{JsonObject, Thrown, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use crate::database::{Database, Param, Target, Write, decode, encode, number};

/// Default chats with the host's URI, which are not looked up by it.
const DEFAULT_CHAT: &str = "ahp-chat://default/";

/// A statement that appends to a session: `done` is a list of further parts of its `WITH`, and reads from `own`.
macro_rules! append {
    ($done:literal) => {
        concat!(
            "WITH own AS (
                 UPDATE session_heads SET head = head + 1
                 WHERE session = $1 AND owner = $2 AND epoch = $3 AND head = $4 RETURNING session
             ), ",
            $done,
            " SELECT count(*) FROM own"
        )
    };
}

/// Selects sessions with their marks and chats, for [`stored`] to read.
macro_rules! stored {
    ($rest:literal) => {
        concat!(
            "SELECT sessions.id, sessions.kept, flags.value, chats.value, sessions.listed_at, sessions.uri FROM sessions
             LEFT JOIN session_parts flags ON flags.session = sessions.id AND flags.part = 'flags'
             LEFT JOIN session_parts chats ON chats.session = sessions.id AND chats.part = 'chats' ",
            $rest
        )
    };
}

const SET_PART: &str = append!(
    "done AS (
         INSERT INTO session_parts (session, part, value) SELECT session, $5, $6 FROM own
         ON CONFLICT (session, part) DO UPDATE SET value = excluded.value
     )"
);
const REMOVE_PART: &str = append!(
    "done AS (DELETE FROM session_parts USING own WHERE session_parts.session = own.session AND part = $5)"
);
const SET_CHATS: &str = append!(
    "done AS (
         INSERT INTO session_parts (session, part, value) SELECT session, 'chats', $5 FROM own
         ON CONFLICT (session, part) DO UPDATE SET value = excluded.value
     ), closed AS (
         DELETE FROM session_chat_uris USING own
         WHERE session_chat_uris.session = own.session AND NOT (uri = ANY ($6::text[]))
     ), opened AS (
         INSERT INTO session_chat_uris (uri, session) SELECT uri, session FROM own, unnest($6::text[]) AS uri
         ON CONFLICT DO NOTHING
     )"
);
const SET_CONFIG: &str = append!(
    "done AS (
         INSERT INTO sessions (id, uri, listed_at, draft, kept) SELECT session, $5, $6, $7, $8 FROM own
         ON CONFLICT (id) DO UPDATE SET uri = excluded.uri, listed_at = excluded.listed_at, draft = excluded.draft,
             kept = excluded.kept
     ), noted AS (
         INSERT INTO changes (kind, id, operation, origin) SELECT 'session', session, 'insert', $2 FROM own
         WHERE $9 AND $6 IS NOT NULL AND NOT EXISTS (
             SELECT 1 FROM sessions WHERE sessions.id = own.session AND sessions.listed_at IS NOT NULL
         )
     )"
);
const SET_TURN: &str = append!(
    "done AS (
         INSERT INTO turns (session, chat, place, kept) SELECT session, $5, $6, $7 FROM own
         ON CONFLICT (session, chat, place) DO UPDATE SET kept = excluded.kept
     )"
);
const DROP_TURNS: &str = append!(
    "done AS (
         DELETE FROM turns USING own WHERE turns.session = own.session AND chat = $5 AND place >= $6
     )"
);
const SET_ATTACHMENT: &str = append!(
    "done AS (
         INSERT INTO attachments (session, id, content_type, content) SELECT session, $5, $6, $7 FROM own
         ON CONFLICT DO NOTHING
     )"
);
const FORGET: &str = "WITH own AS (
         DELETE FROM session_heads WHERE session = $1 AND owner = $2 AND epoch = $3 AND head = $4 RETURNING session
     ),
     gone AS (DELETE FROM sessions USING own WHERE id = own.session RETURNING id, uri, listed_at),
     noted AS (
         INSERT INTO changes (kind, collection, id, operation, origin)
         SELECT 'session', uri, id, 'delete', $2 FROM gone WHERE $5 AND listed_at IS NOT NULL
     ),
     parts AS (DELETE FROM session_parts USING own WHERE session_parts.session = own.session),
     uris AS (DELETE FROM session_chat_uris USING own WHERE session_chat_uris.session = own.session),
     of_chats AS (DELETE FROM turns USING own WHERE turns.session = own.session),
     files AS (DELETE FROM attachments USING own WHERE attachments.session = own.session)
     SELECT count(*) FROM own";

/// Selects the sessions with messages that wait and with turns of listed chats that have not ended, unless another host is alive that owns them, or
/// they need the files of another host.
const UNFINISHED: &str =
    "SELECT session FROM (
         SELECT session FROM waiting_sessions
         UNION SELECT session FROM unended_turns WHERE NOT EXISTS (
             SELECT 1 FROM session_parts parts WHERE parts.session = unended_turns.session AND parts.part = 'chats'
                 AND parts.value <> '[]' AND strpos(parts.value, '\"uri\":' || to_json(unended_turns.chat)::text) = 0
         )
     ) AS unfinished
     WHERE NOT EXISTS (
         SELECT 1 FROM session_heads heads LEFT JOIN host ON host.incarnation = heads.owner
         WHERE heads.session = unfinished.session AND (
             heads.owner <> $1 AND host.expires_at > clock_timestamp()
             OR heads.bound_to <> (SELECT id FROM host WHERE incarnation = $1)
         )
     )
     ORDER BY session";

/// Sessions in the database.
pub struct Sessions {
    database: Arc<Database>,
    unreadable: Unreadable,
}

impl Sessions {
    /// Creates the store.
    pub fn new(database: Arc<Database>, report: Report) -> Self {
        Self { database, unreadable: Unreadable::of_sessions(report) }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> SessionStore {
        SessionStore {
            flags: member!(self, |store: &Arc<Self>, (id,)| store.part(id, "flags".to_owned(), "marks of")),
            set_flags: member!(self, |store: &Arc<Self>, (id, flags): (String, SessionFlags)| {
                store.set_listed_part(id, "flags".to_owned(), &flags)
            }),
            config: member!(self, |store: &Arc<Self>, (id,): (String,)| match id.is_empty() {
                // No session has this id: a host asks so whether its store works, for `GET /api/ready`.
                true => store.is_writable(),
                false => store.config(id),
            }),
            set_config: member!(self, |store: &Arc<Self>, arguments| store.set_config(arguments)),
            artifacts: member!(self, |store: &Arc<Self>, (id,)| {
                or_default::<Vec<Value>>(store.part(id, "artifacts".to_owned(), "artifacts of"))
            }),
            set_artifacts: member!(self, |store: &Arc<Self>, (id, artifacts): (String, Vec<Value>)| {
                store.set_part(id, "artifacts".to_owned(), &artifacts)
            }),
            pull_requests: member!(self, |store: &Arc<Self>, (id,)| {
                or_default::<JsonObject>(store.part(id, "pullRequests".to_owned(), "pull requests of"))
            }),
            set_pull_requests: member!(self, |store: &Arc<Self>, (id, requests): (String, JsonObject)| {
                store.set_part(id, "pullRequests".to_owned(), &requests)
            }),
            chat_title: member!(self, |store: &Arc<Self>, (id, chat): (String, String)| {
                store.part(id, title_of(&chat), "title of")
            }),
            set_chat_title: member!(
                self,
                |store: &Arc<Self>, (id, chat, title): (String, String, Option<String>)| match title {
                    Some(title) => store.set_part(id, title_of(&chat), &title),
                    None => {
                        let part = title_of(&chat);
                        let size = part.len();
                        store.database.put(Write::append(id, REMOVE_PART, vec![Box::new(part)], size))
                    }
                }
            ),
            chats: member!(self, |store: &Arc<Self>, (id,)| {
                or_default::<Vec<KeptChat>>(store.part(id, "chats".to_owned(), "chats of"))
            }),
            set_chats: member!(self, |store: &Arc<Self>, arguments| store.set_chats(arguments)),
            sessions: member!(self, |store: &Arc<Self>, ()| store.sessions()),
            forget: member!(self, |store: &Arc<Self>, (id,): (String,)| store.forget(id)),
            all: Some(member!(self, |store: &Arc<Self>, ()| store.all())),
            session: Some(member!(self, |store: &Arc<Self>, (id,): (String,)| store.session(id))),
            page: Some(member!(self, |store: &Arc<Self>, (limit, after)| store.page(limit, after))),
            session_of_chat: Some(member!(self, |store: &Arc<Self>, (chat,): (String,)| {
                store.ids(
                    "SELECT session FROM session_chat_uris JOIN sessions ON sessions.id = session
                     WHERE session_chat_uris.uri = $1 ORDER BY sessions.number LIMIT 1",
                    vec![Box::new(chat)],
                    |mut ids| ids.pop(),
                )
            })),
            drafts: Some(member!(self, |store: &Arc<Self>, ()| {
                store.ids("SELECT id FROM sessions WHERE draft ORDER BY number", vec![], |ids| ids)
            })),
            // Asked once in the life of a host. An index whose condition is on the value would make each update of a part write
            // to all indexes.
            waiting: Some(member!(self, |store: &Arc<Self>, ()| store.waiting())),
            count: Some(member!(self, |store: &Arc<Self>, ()| store.count())),
            turns: Some(member!(self, |store: &Arc<Self>, (id, chat)| store.turns(id, chat))),
            set_turn: Some(member!(self, |store: &Arc<Self>, arguments| store.set_turn(arguments))),
            drop_turns: Some(member!(self, |store: &Arc<Self>, (id, chat, from): (String, String, u64)| {
                let size = chat.len();
                let params: Vec<Param> = vec![Box::new(chat), Box::new(number(from))];
                store.database.put(Write::append(id, DROP_TURNS, params, size))
            })),
            annotations: Some(member!(self, |store: &Arc<Self>, (id,)| {
                or_default::<Vec<Value>>(store.part(id, "annotations".to_owned(), "annotations of"))
            })),
            set_annotations: Some(member!(
                self,
                |store: &Arc<Self>, (id, annotations): (String, Vec<Value>)| {
                    store.set_part(id, "annotations".to_owned(), &annotations)
                }
            )),
            reported: Some(member!(self, |store: &Arc<Self>, (id,)| {
                or_default::<JsonObject>(store.part(id, "reported".to_owned(), "reports of"))
            })),
            set_reported: Some(member!(self, |store: &Arc<Self>, (id, reported): (String, JsonObject)| {
                store.set_part(id, "reported".to_owned(), &reported)
            })),
            set_attachment: Some(
                member!(self, |store: &Arc<Self>, arguments| store.set_attachment(arguments))
            ),
            attachment: Some(member!(self, |store: &Arc<Self>, (id,)| store.attachment(id))),
            close: Some(member!(self, |store: &Arc<Self>, ()| store.database.close())),
        }
    }

    fn part<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        id: String,
        part: String,
        what: &'static str,
    ) -> Pending<Option<T>> {
        let store = self.clone();
        Box::pin(async move {
            let params: Vec<Param> = vec![Box::new(id.clone()), Box::new(part)];
            let rows = store
                .database
                .rows("SELECT value FROM session_parts WHERE session = $1 AND part = $2", params)
                .await?;
            rows.first().map(|row| decode(row.get(0), what, &id)).transpose()
        })
    }

    fn set_part(&self, id: String, part: String, value: &impl Serialize) -> Pending<()> {
        match part_write(id, part, value) {
            Ok(write) => self.database.put(write),
            Err(thrown) => ready(Err(thrown)),
        }
    }

    /// Stores a part that listings show.
    fn set_listed_part(&self, id: String, part: String, value: &impl Serialize) -> Pending<()> {
        match part_write(id, part, value) {
            Ok(write) => self.database.put(write.listed()),
            Err(thrown) => ready(Err(thrown)),
        }
    }

    /// Finds no session, once a write has succeeded.
    fn is_writable(self: &Arc<Self>) -> Pending<Option<KeptSession>> {
        let probed = self.database.probe();
        Box::pin(async move { probed.await.map(|()| None) })
    }

    fn config(self: &Arc<Self>, id: String) -> Pending<Option<KeptSession>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store
                .database
                .rows("SELECT kept FROM sessions WHERE id = $1", vec![Box::new(id.clone())])
                .await?;
            rows.first().map(|row| decode(row.get(0), "session", &id)).transpose()
        })
    }

    fn set_config(&self, (id, kept): (String, KeptSession)) -> Pending<()> {
        let text = match encode(&kept) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        let size = text.len() + kept.uri.len();
        let is_draft = kept.draft.is_some();
        let listed_at = (!is_draft).then_some(kept.modified_at);
        let params: Vec<Param> =
            vec![Box::new(kept.uri), Box::new(listed_at), Box::new(is_draft), Box::new(text), self.notes()];
        self.database.put(Write::append(id, SET_CONFIG, params, size).listed())
    }

    /// The parameter that says whether other hosts may read what the statement notes in `changes`.
    fn notes(&self) -> Param {
        Box::new(self.database.lease.is_member)
    }

    fn set_chats(&self, (id, chats): (String, Vec<KeptChat>)) -> Pending<()> {
        let text = match encode(&chats) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        let uris = open_chats(chats);
        let size = text.len() + uris.iter().map(String::len).sum::<usize>();
        let params: Vec<Param> = vec![Box::new(text), Box::new(uris)];
        self.database.put(Write::append(id, SET_CHATS, params, size).listed())
    }

    fn forget(&self, id: String) -> Pending<()> {
        let mut write = Write::append(id.clone(), FORGET, vec![self.notes()], 0);
        write.target = Some(Target { session: id.clone(), ends: true, is_listed: true });
        let (unreadable, forgotten) = (self.unreadable.clone(), self.database.put(write));
        Box::pin(async move {
            forgotten.await?;
            unreadable.is_readable(&id);
            Ok(())
        })
    }

    fn waiting(self: &Arc<Self>) -> Pending<Vec<String>> {
        let store = self.clone();
        Box::pin(async move {
            let me: Param = Box::new(store.database.lease.incarnation().to_string());
            let rows = store.database.scan(UNFINISHED, vec![me]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn ids<T: Send + 'static>(
        self: &Arc<Self>,
        sql: &'static str,
        params: Vec<Param>,
        of: impl FnOnce(Vec<String>) -> T + Send + 'static,
    ) -> Pending<T> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.rows(sql, params).await?;
            Ok(of(rows.iter().map(|row| row.get(0)).collect()))
        })
    }

    fn sessions(self: &Arc<Self>) -> Pending<Vec<String>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.scan("SELECT id FROM sessions ORDER BY number", vec![]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn all(self: &Arc<Self>) -> Pending<Vec<StoredSession>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.scan(stored!("ORDER BY sessions.number"), vec![]).await?;
            Ok(rows.iter().filter_map(|row| store.listed(row)).collect())
        })
    }

    fn session(self: &Arc<Self>, id: String) -> Pending<Option<StoredSession>> {
        let store = self.clone();
        Box::pin(async move {
            let sql = stored!("WHERE sessions.id = $1");
            let rows = store.database.rows(sql, vec![Box::new(id.clone())]).await?;
            store.unreadable.noted(&id, rows.first().map(stored).transpose())
        })
    }

    fn page(self: &Arc<Self>, limit: u64, after: Option<ListedPlace>) -> Pending<Vec<StoredSession>> {
        let store = self.clone();
        Box::pin(async move {
            let (mut page, mut after) = (Vec::new(), after);
            let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
            while page.len() < wanted {
                let lacking = number((wanted - page.len()) as u64);
                let rows = match &after {
                    None => {
                        let first =
                            stored!("WHERE listed_at IS NOT NULL ORDER BY listed_at DESC, uri LIMIT $1");
                        store.database.rows(first, vec![Box::new(lacking)]).await?
                    }
                    Some(ListedPlace { modified_at, uri }) => {
                        let next = stored!(
                            "WHERE listed_at <= $1 AND (listed_at < $1 OR uri > $2) ORDER BY listed_at DESC, uri LIMIT $3"
                        );
                        let params: Vec<Param> =
                            vec![Box::new(modified_at.clone()), Box::new(uri.clone()), Box::new(lacking)];
                        store.database.rows(next, params).await?
                    }
                };
                page.extend(rows.iter().filter_map(|row| store.listed(row)));
                let is_last = (rows.len() as i64) < lacking;
                let Some(last) = rows.last().filter(|_| !is_last) else { break };
                after = Some(ListedPlace { modified_at: last.get(4), uri: last.get(5) });
            }
            Ok(page)
        })
    }

    fn count(self: &Arc<Self>) -> Pending<u64> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.rows("SELECT count(*) FROM sessions", vec![]).await?;
            Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0).unsigned_abs()))
        })
    }

    fn turns(self: &Arc<Self>, id: String, chat: String) -> Pending<Vec<KeptTurn>> {
        let store = self.clone();
        Box::pin(async move {
            let params: Vec<Param> = vec![Box::new(id), Box::new(chat.clone())];
            let rows = store
                .database
                .rows("SELECT kept FROM turns WHERE session = $1 AND chat = $2 ORDER BY place", params)
                .await?;
            // Omitting one would change the positions of those after it.
            rows.iter().map(|row| decode(row.get(0), "turn of", &chat)).collect()
        })
    }

    fn set_turn(&self, (id, chat, place, turn): (String, String, u64, KeptTurn)) -> Pending<()> {
        match encode(&turn) {
            Ok(text) => {
                let size = chat.len() + text.len();
                let params: Vec<Param> = vec![Box::new(chat), Box::new(number(place)), Box::new(text)];
                self.database.put(Write::append(id, SET_TURN, params, size))
            }
            Err(thrown) => ready(Err(thrown)),
        }
    }

    fn set_attachment(
        self: &Arc<Self>,
        (id, attachment, kept): (String, String, KeptAttachment),
    ) -> Pending<()> {
        let store = self.clone();
        Box::pin(async move {
            let KeptAttachment { content_type, data } = kept;
            let bytes = elsewhere(data.len(), move || STANDARD.decode(data)).await?;
            let bytes = bytes.map_err(|error| {
                Thrown::new(format_args!("attachment {attachment} is not base64: {error}"))
            })?;
            let size = attachment.len() + content_type.len() + bytes.len();
            let params: Vec<Param> = vec![Box::new(attachment), Box::new(content_type), Box::new(bytes)];
            store.database.put(Write::append(id, SET_ATTACHMENT, params, size)).await
        })
    }

    fn attachment(self: &Arc<Self>, attachment: String) -> Pending<Option<KeptAttachment>> {
        let store = self.clone();
        Box::pin(async move {
            let mut rows = store
                .database
                .rows(
                    "SELECT content_type, content FROM attachments WHERE id = $1 LIMIT 1",
                    vec![Box::new(attachment)],
                )
                .await?;
            let Some(row) = rows.pop() else { return Ok(None) };
            let length = row.get::<_, &[u8]>(1).len();
            let kept = elsewhere(length, move || KeptAttachment {
                content_type: row.get(0),
                data: STANDARD.encode(row.get::<_, &[u8]>(1)),
            });
            kept.await.map(Some)
        })
    }

    /// Returns the session of a row, or `None` if it is damaged, so that the others can be listed.
    fn listed(&self, row: &Row) -> Option<StoredSession> {
        self.unreadable.read(row.get(0), stored(row))
    }
}

/// Does work over `bytes` bytes, on a separate thread if there are many.
async fn elsewhere<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Thrown> {
    match bytes > LONG {
        true => tokio::task::spawn_blocking(work).await.map_err(Thrown::new),
        false => Ok(work()),
    }
}

fn part_write(id: String, part: String, value: &impl Serialize) -> Result<Write, Thrown> {
    let text = encode(value)?;
    let size = part.len() + text.len();
    Ok(Write::append(id, SET_PART, vec![Box::new(part), Box::new(text)], size))
}

fn stored(row: &Row) -> Result<StoredSession, Thrown> {
    let id: String = row.get(0);
    let session = decode(row.get(1), "session", &id)?;
    let flags: Option<&str> = row.get(2);
    let flags = flags.map(|flags| decode(flags, "marks of", &id)).transpose()?.unwrap_or_default();
    // What cannot be read here is read, and reported, when it is needed.
    let chats: Option<&str> = row.get(3);
    let chats = chats.map_or(Some(Vec::new()), |chats| decode(chats, "chats of", &id).ok());
    Ok(StoredSession { id, session, flags, chats })
}

/// The URIs by which the chats of a session are looked up.
pub fn open_chats(chats: Vec<KeptChat>) -> Vec<String> {
    let open = chats.into_iter().filter(|chat| !chat.closed).map(|chat| chat.uri);
    let mut uris: Vec<String> = open.filter(|uri| !uri.starts_with(DEFAULT_CHAT)).collect();
    uris.sort_unstable();
    uris.dedup();
    uris
}

fn title_of(chat: &str) -> String {
    format!("title:{chat}")
}

fn or_default<T: Default + Send + 'static>(one: Pending<Option<T>>) -> Pending<T> {
    Box::pin(async move { Ok(one.await?.unwrap_or_default()) })
}
