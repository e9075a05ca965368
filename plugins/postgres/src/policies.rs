//! The store of policies. Rows are read for each use, so that an edit with SQL takes effect immediately.

use std::sync::Arc;

use ostler_contract::live::{Pending, ready};
use ostler_contract::points::Policies as Point;
use ostler_contract::policy::check_policy;
use ostler_contract::{JsonObject, Thrown, Value};
use tokio_postgres::Row;

use crate::database::{Database, Param, Write, decode, encode};

/// Policies in the database.
pub struct Policies {
    database: Arc<Database>,
}

impl Policies {
    /// Creates the store.
    pub fn new(database: Arc<Database>) -> Self {
        Self { database }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> Point {
        Point {
            list: member!(self, |store: &Arc<Self>, ()| store.list()),
            get: member!(self, |store: &Arc<Self>, (id,)| store.get(id)),
            put: member!(self, |store: &Arc<Self>, (policy,)| store.put(policy)),
            remove: member!(self, |store: &Arc<Self>, (id,): (String,)| {
                let size = id.len();
                let write =
                    Write::new("DELETE FROM policies WHERE id = $1 RETURNING true", vec![Box::new(id)], size);
                store.database.write(write, |rows| Ok(!rows.is_empty()))
            }),
            close: Some(member!(self, |store: &Arc<Self>, ()| store.database.close())),
        }
    }

    fn list(self: &Arc<Self>) -> Pending<Vec<JsonObject>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.rows("SELECT id, policy FROM policies ORDER BY number", vec![]).await?;
            // An invalid row is an error, because what it restricts is unknown.
            rows.iter().map(policy).collect()
        })
    }

    fn get(self: &Arc<Self>, id: String) -> Pending<Option<JsonObject>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store
                .database
                .rows("SELECT id, policy FROM policies WHERE id = $1", vec![Box::new(id)])
                .await?;
            rows.first().map(policy).transpose()
        })
    }

    fn put(&self, policy: JsonObject) -> Pending<()> {
        let put = || -> Result<Write, Thrown> {
            let row = check_policy(&Value::Object(policy))?;
            let id = row.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
            let text = encode(&row)?;
            let size = id.len() + text.len();
            let params: Vec<Param> = vec![Box::new(id), Box::new(text)];
            Ok(Write::new(
                "INSERT INTO policies (id, policy) VALUES ($1, $2)
                 ON CONFLICT (id) DO UPDATE SET policy = excluded.policy",
                params,
                size,
            ))
        };
        match put() {
            Ok(write) => self.database.put(write),
            Err(refused) => ready(Err(refused)),
        }
    }
}

fn policy(row: &Row) -> Result<JsonObject, Thrown> {
    let id: String = row.get(0);
    let invalid = |why: String| {
        Thrown::new(format_args!("policies cannot be read: row {id} of the table policies: {why}"))
    };
    let value: Value = decode(row.get(1), "policy", &id).map_err(|why| invalid(why.message))?;
    check_policy(&value).map_err(|why| invalid(why.message))
}
