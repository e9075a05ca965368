//! The store of the users file: one row that all hosts share. A change is written only if the row still has the version that it
//! was made from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::Pending;
use ostler_contract::users::{EditUsers, UsersStore};
use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::connect::{Connector, Opened, Purpose};
use crate::database::{Database, Param, Write};
use crate::direct::Direct;
use crate::external_changes::Listeners;
use crate::failure;
use crate::text::{original, storable};

/// How often a change is repeated if others change the row at the same time. Each time, one of them succeeds.
const ATTEMPTS: usize = 100;

/// How long a host relies on what it has read: a removed user is served no longer than that, whatever becomes of the database.
const VALID: Duration = Duration::from_secs(1);

/// The limit for connecting. Each try of a database that does not answer delays the next one.
const CONNECT: Duration = Duration::from_secs(2);

const READ: &str = "SELECT version, content FROM users";
/// As [`READ`], without the content if it has the version `$1`.
const READ_CHANGED: &str =
    "SELECT version, CASE WHEN version IS DISTINCT FROM $1 THEN content END FROM users";
const CREATE: &str = "INSERT INTO users (content) VALUES ($1) ON CONFLICT DO NOTHING RETURNING true";
const REPLACE: &str = "UPDATE users SET content = $1 WHERE version = $2 RETURNING true";

/// The users file in the database of a running host.
pub struct Users {
    database: Arc<Database>,
    reader: Arc<Reader>,
    listeners: Arc<Listeners>,
    place: String,
}

impl Users {
    /// Creates the store. `place` is the database, for messages.
    pub fn new(
        database: Arc<Database>,
        connector: Connector,
        listeners: Arc<Listeners>,
        place: &str,
    ) -> Self {
        let reader = Reader { connector, database: database.clone(), last: Mutex::default() };
        Self { database, reader: Arc::new(reader), listeners, place: users_in(place) }
    }
}

/// Reads the row over a connection of its own, on which nothing else is waited for.
struct Reader {
    connector: Connector,
    database: Arc<Database>,
    last: Mutex<Last>,
}

/// The connection, and what it read last.
#[derive(Default)]
struct Last {
    open: Option<Opened>,
    read: Option<(i64, String)>,
}

impl Reader {
    async fn read(&self) -> Result<Option<String>, Thrown> {
        let mut last = self.last.lock().await;
        self.database.lease.check()?;
        let read = match self.read_once(&mut last).await {
            // An idle connection may have been closed meanwhile.
            Err((_, true)) => self.read_once(&mut last).await,
            read => read,
        };
        read.map_err(|(why, _)| why)
    }

    /// Reads the row; the error says also whether an earlier connection failed.
    async fn read_once(&self, last: &mut Last) -> Result<Option<String>, (Thrown, bool)> {
        let was_open = last.open.as_ref().is_some_and(|open| !open.client.is_closed());
        // Closed unless it answers.
        let open = match last.open.take() {
            Some(open) if was_open => open,
            _ => {
                // Another server may have other content under the same version.
                last.read = None;
                self.open().await.map_err(|why| (why, false))?
            }
        };
        let version = last.read.as_ref().map(|(version, _)| *version);
        let params: [(&(dyn ToSql + Sync), Type); 1] = [(&version, Type::INT8)];
        let read = tokio::time::timeout(VALID, open.client.query_typed(READ_CHANGED, &params)).await;
        let rows = match read {
            Ok(Ok(rows)) => rows,
            Ok(Err(why)) => {
                self.connector.notice(&why);
                return Err((failure::thrown(&why), was_open && open.client.is_closed()));
            }
            Err(_) => return Err((unanswered("no answer within a second"), false)),
        };
        last.open = Some(open);
        let Some(row) = rows.first() else {
            last.read = None;
            return Ok(None);
        };
        if row.get::<_, Option<&str>>(1).is_some() {
            last.read = Some((row.get(0), original(row.get(1)).into_owned()));
        }
        Ok(last.read.as_ref().map(|(_, content)| content.clone()))
    }

    async fn open(&self) -> Result<Opened, Thrown> {
        let purpose = Purpose { timeout: VALID, ..Purpose::default() };
        match tokio::time::timeout(CONNECT, self.connector.open(purpose)).await {
            Ok(opened) => opened.map_err(Thrown::from),
            Err(_) => Err(unanswered("no connection within 2 seconds")),
        }
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Users")
    }
}

impl UsersStore for Users {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn read(&self) -> Pending<Option<String>> {
        let reader = self.reader.clone();
        Box::pin(async move { reader.read().await })
    }

    fn valid_for(&self) -> Option<Duration> {
        Some(VALID)
    }

    fn change(&self, edit: EditUsers) -> Pending<Option<String>> {
        let (database, place) = (self.database.clone(), self.place.clone());
        Box::pin(async move {
            for _ in 0..ATTEMPTS {
                let rows = database.rows(READ, vec![]).await?;
                let Some(Replacement { sql, params, text }) = replacement(&rows, &edit)? else {
                    return Ok(content(&rows));
                };
                let write = Write::new(sql, params, text.len());
                if database.write(write, |rows| Ok(!rows.is_empty())).await? {
                    return Ok(Some(text));
                }
            }
            Err(busy(&place))
        })
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.listeners.users(listener);
    }
}

/// The users file in the database, for commands.
pub struct DirectUsers(Arc<Direct>);

impl fmt::Debug for DirectUsers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DirectUsers")
    }
}

impl Direct {
    /// Returns the store of the users file. Its listener is not called.
    pub fn users(self: &Arc<Self>) -> Arc<dyn UsersStore> {
        Arc::new(DirectUsers(self.clone()))
    }
}

impl UsersStore for DirectUsers {
    fn place(&self) -> String {
        users_in(&self.0.place())
    }

    fn read(&self) -> Pending<Option<String>> {
        let direct = self.0.clone();
        Box::pin(async move { Ok(content(&direct.rows(READ, vec![]).await?)) })
    }

    fn change(&self, edit: EditUsers) -> Pending<Option<String>> {
        let (direct, place) = (self.0.clone(), self.place());
        Box::pin(async move {
            for _ in 0..ATTEMPTS {
                let rows = direct.rows(READ, vec![]).await?;
                let Some(Replacement { sql, params, text }) = replacement(&rows, &edit)? else {
                    return Ok(content(&rows));
                };
                if !direct.rows(sql, params).await?.is_empty() {
                    return Ok(Some(text));
                }
            }
            Err(busy(&place))
        })
    }

    fn listen(&self, _: Arc<dyn Fn() + Send + Sync>) {}
}

/// A statement that replaces the row, if it still has the version that was read.
struct Replacement {
    sql: &'static str,
    params: Vec<Param>,
    text: String,
}

/// Applies a change to the row that was read; `None` if nothing changes.
fn replacement(rows: &[Row], edit: &EditUsers) -> Result<Option<Replacement>, Thrown> {
    let before = content(rows);
    let Some(text) = edit(before.as_deref())? else { return Ok(None) };
    let stored = storable(text.clone());
    let (sql, params): (_, Vec<Param>) = match rows.first() {
        None => (CREATE, vec![Box::new(stored)]),
        Some(row) => (REPLACE, vec![Box::new(stored), Box::new(row.get::<_, i64>(0))]),
    };
    Ok(Some(Replacement { sql, params, text }))
}

fn content(rows: &[Row]) -> Option<String> {
    rows.first().map(|row| original(row.get(1)).into_owned())
}

fn users_in(place: &str) -> String {
    format!("users in {place}")
}

fn unanswered(why: &str) -> Thrown {
    Thrown::new(format_args!("PostgreSQL: {why}"))
}

fn busy(place: &str) -> Thrown {
    Thrown::new(format_args!("{place}: other changes were made at the same time; try again"))
}
