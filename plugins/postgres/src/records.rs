//! The store of records. A record is JSON text with a hash of the whole and one of each field: an index of the latter finds
//! records by any field.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{ChangeType, CollectionOptions, RecordChange, RecordStore, StoredCollection};
use ostler_contract::stores::equality::contains_fields;
use ostler_contract::stores::records::{check_options, check_record};
use ostler_contract::stores::{Report, Unreadable, Watchers};
use ostler_contract::{Call, JsonObject, Slug, Thrown, Value};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use tokio_postgres::Row;

use crate::database::{Database, Param, Write, decode, encode};
use crate::external_changes::Listeners;

/// Stores a record.
pub const PUT: &str =
    "INSERT INTO records (collection, id, record, digest, fields) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (collection, id) DO UPDATE
         SET record = excluded.record, digest = excluded.digest, fields = excluded.fields
         WHERE records.digest IS DISTINCT FROM excluded.digest
     RETURNING xmax = 0";
const FIND: &str = "SELECT id, record FROM records WHERE collection = $1 AND fields @> $2::bigint[]
     UNION ALL SELECT id, record FROM records WHERE collection = $1 AND fields IS NULL
     ORDER BY id";

/// Collections in the database.
pub struct Records {
    database: Arc<Database>,
    report: Report,
    listeners: Arc<Listeners>,
    open: Mutex<HashMap<String, Arc<Collection>>>,
}

struct Collection {
    name: String,
    body: Option<String>,
    database: Arc<Database>,
    unreadable: Unreadable,
    watchers: Watchers<RecordChange>,
}

impl Records {
    /// Creates the store.
    pub fn new(database: Arc<Database>, report: Report, listeners: Arc<Listeners>) -> Self {
        Self { database, report, listeners, open: Mutex::default() }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> RecordStore {
        RecordStore {
            collection: member!(self, |store: &Arc<Self>, (name, options)| ready(
                store.collection(name, &options)
            )),
            close: Some(member!(self, |store: &Arc<Self>, ()| store.database.close())),
        }
    }

    fn collection(&self, name: String, options: &CollectionOptions) -> Result<StoredCollection, Thrown> {
        check_options(&name, options)?;
        let mut open = self.open.lock();
        if let Some(collection) = open.get(&name) {
            return Ok(collection.clone().into_point());
        }
        let watchers = Watchers::new(format!("records {name}"), self.report.clone())?;
        self.listeners.records(&name, watchers.clone());
        let collection = Arc::new(Collection {
            name: name.clone(),
            body: options.body.clone(),
            database: self.database.clone(),
            unreadable: Unreadable::of_records(self.report.clone(), &name),
            watchers,
        });
        open.insert(name, collection.clone());
        Ok(collection.into_point())
    }
}

impl Collection {
    fn into_point(self: Arc<Self>) -> StoredCollection {
        let watch = self.clone();
        StoredCollection {
            get: member!(self, |store: &Arc<Self>, (id,)| store.get(id)),
            ids: Some(member!(self, |store: &Arc<Self>, ()| store.ids())),
            list: member!(self, |store: &Arc<Self>, ()| store.find(JsonObject::new())),
            find: member!(self, |store: &Arc<Self>, (wanted,)| store.find(wanted)),
            put: member!(self, |store: &Arc<Self>, (record,)| store.put(record)),
            remove: member!(self, |store: &Arc<Self>, (id,)| store.remove(id)),
            watch: Call::now(move |(on_change,)| Ok(Some(watch.watchers.add(on_change)))),
        }
    }

    fn named(&self) -> Param {
        Box::new(self.name.clone())
    }

    fn get(self: &Arc<Self>, id: String) -> Pending<Option<JsonObject>> {
        if Slug::parse(&id).is_none() {
            return ready(Ok(None));
        }
        let store = self.clone();
        Box::pin(async move {
            let sql = "SELECT id, record FROM records WHERE collection = $1 AND id = $2";
            let rows = store.database.rows(sql, vec![store.named(), Box::new(id.clone())]).await?;
            store.unreadable.noted(&id, rows.first().map(|row| store.record(row)).transpose())
        })
    }

    fn ids(self: &Arc<Self>) -> Pending<Vec<String>> {
        let store = self.clone();
        Box::pin(async move {
            let sql = "SELECT id FROM records WHERE collection = $1 ORDER BY id";
            let rows = store.database.rows(sql, vec![store.named()]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn find(self: &Arc<Self>, wanted: JsonObject) -> Pending<Vec<JsonObject>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = if wanted.is_empty() {
                let sql = "SELECT id, record FROM records WHERE collection = $1 ORDER BY id";
                store.database.rows(sql, vec![store.named()]).await?
            } else {
                store.database.rows(FIND, vec![store.named(), Box::new(fields(&wanted))]).await?
            };
            if wanted.is_empty() {
                store.unreadable.keep_only(rows.iter().map(|row| row.get(0)));
            }
            // One that cannot be read keeps none of the others from being found.
            let read = |row: &Row| store.unreadable.read(row.get(0), store.record(row));
            Ok(rows.iter().filter_map(read).filter(|record| contains_fields(record, &wanted)).collect())
        })
    }

    fn put(self: &Arc<Self>, record: JsonObject) -> Pending<()> {
        let Prepared { id, params, size } = match prepare(&self.name, self.body.as_deref(), record) {
            Ok(prepared) => prepared,
            Err(refused) => return ready(Err(refused)),
        };
        let store = self.clone();
        self.database.write(Write::new(PUT, params, size), move |rows| {
            store.unreadable.is_readable(&id);
            // The same again is no change.
            if let Some(row) = rows.first() {
                let how = if row.get(0) { ChangeType::Added } else { ChangeType::Updated };
                store.watchers.notify(&RecordChange { id, r#type: how });
            }
            Ok(())
        })
    }

    fn remove(self: &Arc<Self>, id: String) -> Pending<bool> {
        if Slug::parse(&id).is_none() {
            return ready(Ok(false));
        }
        let size = self.name.len() + id.len();
        let params: Vec<Param> = vec![self.named(), Box::new(id.clone())];
        let sql = "DELETE FROM records WHERE collection = $1 AND id = $2 RETURNING true";
        let store = self.clone();
        self.database.write(Write::new(sql, params, size), move |rows| {
            store.unreadable.is_readable(&id);
            if !rows.is_empty() {
                store.watchers.notify(&RecordChange { id, r#type: ChangeType::Deleted });
            }
            Ok(!rows.is_empty())
        })
    }

    fn record(&self, row: &Row) -> Result<JsonObject, Thrown> {
        read(&self.name, row)
    }
}

/// The columns of a record.
pub struct RecordRow {
    pub id: String,
    pub text: String,
    pub digest: Vec<u8>,
    pub fields: Vec<i64>,
}

/// Returns the columns of a record of a collection without a body.
///
/// # Errors
/// It is no record.
pub fn row_of(collection: &str, record: JsonObject) -> Result<RecordRow, Thrown> {
    encoded(check_record(collection, None, &record)?, &record)
}

fn encoded(id: String, record: &JsonObject) -> Result<RecordRow, Thrown> {
    let digest = digest_of(|hash| object(hash, record)).as_ref().to_vec();
    Ok(RecordRow { id, text: encode(record)?, digest, fields: fields(record) })
}

/// Reads a record of a collection from a row with its id and its text.
///
/// # Errors
/// It is not a JSON object.
pub fn read(collection: &str, row: &Row) -> Result<JsonObject, Thrown> {
    let id: String = row.get(0);
    let mut record: JsonObject = decode(row.get(1), &format!("record {collection}"), &id)?;
    // The key column identifies it, whatever a manual edit made of the text.
    if record.get("id").and_then(Value::as_str) != Some(&id) {
        record.insert("id".to_owned(), id.into());
    }
    Ok(record)
}

/// A record for [`PUT`].
pub struct Prepared {
    pub id: String,
    /// The values of the statement.
    pub params: Vec<Param>,
    /// Their size.
    pub size: usize,
}

/// Validates a record of a collection, and returns it as it is stored.
///
/// # Errors
/// What is wrong with it.
pub fn prepare(collection: &str, body: Option<&str>, mut record: JsonObject) -> Result<Prepared, Thrown> {
    let id = check_record(collection, body, &record)?;
    if let Some(body) = body
        && !record.get(body).is_some_and(Value::is_string)
    {
        record.insert(body.to_owned(), "".into());
    }
    let RecordRow { id, text, digest, fields } = encoded(id, &record)?;
    let size = collection.len() + text.len() + 32 + 8 * record.len();
    let params: Vec<Param> = vec![
        Box::new(collection.to_owned()),
        Box::new(id.clone()),
        Box::new(text),
        Box::new(digest),
        Box::new(fields),
    ];
    Ok(Prepared { id, params, size })
}

fn digest_of(write: impl FnOnce(&mut Context)) -> ring::digest::Digest {
    let mut hash = Context::new(&SHA256);
    write(&mut hash);
    hash.finish()
}

/// A hash of each field with its value.
fn fields(record: &JsonObject) -> Vec<i64> {
    let hashes = record.iter().map(|(key, held)| {
        let digest = digest_of(|hash| {
            text(hash, key);
            value(hash, held);
        });
        let mut first = [0; 8];
        first.copy_from_slice(&digest.as_ref()[..8]);
        i64::from_be_bytes(first)
    });
    hashes.collect()
}

/// Formats a value so that equal ones have the same text: `1` is `1.0`, and the order of fields is irrelevant.
fn value(hash: &mut Context, held: &Value) {
    match held {
        Value::Null => hash.update(b"n"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Number(number) => {
            hash.update(b"#");
            // Whole numbers that a float has exactly are written as that float.
            let float = number.as_f64().unwrap_or_default() + 0.0;
            let is_exact = match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => whole.unsigned_abs() <= 1 << 53,
                (None, Some(whole)) => whole <= 1 << 53,
                (None, None) => true,
            };
            match is_exact {
                true => hash.update(&float.to_bits().to_be_bytes()),
                false => text(hash, &number.to_string()),
            }
        }
        Value::String(held) => {
            hash.update(b"s");
            text(hash, held);
        }
        Value::Array(values) => {
            hash.update(b"[");
            hash.update(&(values.len() as u64).to_be_bytes());
            values.iter().for_each(|one| value(hash, one));
        }
        Value::Object(fields) => {
            hash.update(b"{");
            object(hash, fields);
        }
    }
}

fn object(hash: &mut Context, fields: &JsonObject) {
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    hash.update(&(sorted.len() as u64).to_be_bytes());
    for (key, held) in sorted {
        text(hash, key);
        value(hash, held);
    }
}

fn text(hash: &mut Context, held: &str) {
    hash.update(&(held.len() as u64).to_be_bytes());
    hash.update(held.as_bytes());
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn hashes_equal_values_alike() {
        let of = |held: Value| digest_of(|hash| value(hash, &held)).as_ref().to_vec();
        assert_eq!(of(json!(1)), of(json!(1.0)));
        assert_eq!(of(json!(0.0)), of(json!(-0.0)));
        assert_eq!(of(json!({ "a": 1, "b": [null] })), of(json!({ "b": [null], "a": 1.0 })));
        for (one, other) in [
            (json!(1), json!("1")),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64)),
            (json!([1, 2]), json!([2, 1])),
            (json!([[], []]), json!([[[]]])),
            (json!({ "a": "b" }), json!({ "ab": "" })),
            (json!(null), json!(false)),
        ] {
            assert_ne!(of(one.clone()), of(other.clone()), "{one} {other}");
        }
    }
}
