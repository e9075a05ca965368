//! The store of the users file: one row that all hosts share. A change is written only if the row still has the version that it
//! was made from.

use std::fmt;
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_contract::live::Pending;
use ostler_contract::users::{EditUsers, UsersStore};
use tokio_postgres::Row;

use crate::database::{Database, Param, Write};
use crate::direct::Direct;
use crate::external_changes::Listeners;
use crate::text::{original, storable};

/// How often a change is repeated if others change the row at the same time. Each time, one of them succeeds.
const ATTEMPTS: usize = 100;

const READ: &str = "SELECT version, content FROM users";
const CREATE: &str = "INSERT INTO users (content) VALUES ($1) ON CONFLICT DO NOTHING RETURNING true";
const REPLACE: &str = "UPDATE users SET content = $1 WHERE version = $2 RETURNING true";

/// The users file in the database of a running host.
pub struct Users {
    database: Arc<Database>,
    listeners: Arc<Listeners>,
    place: String,
}

impl Users {
    /// Creates the store. `place` is the database, for messages.
    pub fn new(database: Arc<Database>, listeners: Arc<Listeners>, place: &str) -> Self {
        Self { database, listeners, place: users_in(place) }
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
        let database = self.database.clone();
        Box::pin(async move { Ok(content(&database.rows(READ, vec![]).await?)) })
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

fn busy(place: &str) -> Thrown {
    Thrown::new(format_args!("{place}: other changes were made at the same time; try again"))
}
