//! Stored bodies of deliveries for replays: encrypted with a key from the vault, limited in time and number per
//! endpoint.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use ostler_contract::duration::A_DURATION;
use ostler_contract::http::{HeaderMap, HeaderValue, Uri, header};
use ostler_contract::points::Collection;
use ostler_contract::{JsonObject, Thrown, Value, VaultName, json};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::deliveries::Delivery;
use crate::extras::duration;
use crate::recorded_calls::{listed_bodies, row_record, rows_of};
use crate::route::{Admitted, Head};
use crate::shared_store::SharedStore;

/// The default vault name of the key.
pub(crate) const KEY: &str = "host:webhook-bodies";
/// The minimum length of the key in bytes. It is a random text, not a password.
pub(crate) const SHORTEST_KEY: usize = 16;
/// The maximum number of bodies of an endpoint, and their total size.
pub(crate) const MOST: usize = 50;
pub(crate) const MOST_BYTES: usize = 16 * 1024 * 1024;
/// The maximum size of a stored body.
pub(crate) const LARGEST: usize = 1024 * 1024;
/// How long a body may be missing after its call.
const STORING: Duration = Duration::from_secs(60);
/// The maximum time for which bodies are stored.
const LONGEST: Duration = Duration::from_secs(90 * 24 * 3600);

/// The field `keepBodies` of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BodyRetention {
    /// How long bodies are stored.
    pub lasts: Duration,
    /// The vault name of the key.
    pub key: String,
}

impl BodyRetention {
    /// Parses `7d`, or `{ for: 7d, key: host:<name> }`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Self, String> {
        let wrong = || format!("keepBodies must be {A_DURATION} of at most 90d, or {{ for, key }}");
        let (lasts, key) = match value {
            Value::String(lasts) => (lasts.as_str(), KEY),
            Value::Object(fields) if fields.keys().all(|field| field == "for" || field == "key") => {
                let lasts = fields.get("for").and_then(Value::as_str).ok_or_else(wrong)?;
                (lasts, fields.get("key").map_or(Some(KEY), Value::as_str).ok_or_else(wrong)?)
            }
            _ => return Err(wrong()),
        };
        let lasts = duration(lasts).filter(|lasts| *lasts <= LONGEST).ok_or_else(wrong)?;
        match VaultName::parse(key) {
            Ok(VaultName::Host(_)) => Ok(Self { lasts, key: key.to_owned() }),
            // The value is not repeated, because it may be the key itself.
            _ => Err("keepBodies.key must be a host: name of the vault".to_owned()),
        }
    }
}

/// The stored bodies of all endpoints.
#[derive(Debug)]
pub(crate) struct StoredBodies {
    /// The bodies of each endpoint. Written before a body, so that every body is in it.
    index: Collection,
    bodies: Collection,
    store: SharedStore,
    /// One writer of this host for each endpoint's index.
    writing: tokio::sync::Mutex<Known>,
}

/// Indexes that were read or written, unless other hosts may write them.
type Known = HashMap<String, Index>;

/// The bodies of an endpoint.
#[derive(Debug, Clone, Default)]
struct Index {
    /// Oldest first.
    rows: Vec<Row>,
    /// Whether there is a list of them.
    has_list: bool,
    /// Which of them are records.
    records: HashSet<String>,
}

/// A body of the index, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    id: String,
    /// Time of the call, ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    at: Option<String>,
    bytes: usize,
    /// Seconds since 1970.
    expires: i64,
}

/// The head of a call without the sender's credentials.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentHead {
    uri: String,
    #[serde(skip_serializing_if = "HashMap::is_empty", default)]
    headers: HashMap<String, String>,
}

/// A delivery to be replayed.
#[derive(Debug)]
pub(crate) struct Stored {
    pub endpoint: String,
    pub expires: Timestamp,
    sealed: String,
}

impl StoredBodies {
    pub fn new(index: Collection, bodies: Collection, store: SharedStore) -> Self {
        Self { index, bodies, store, writing: tokio::sync::Mutex::default() }
    }

    /// Stores a call, encrypted; returns until when it is stored, or why it is not.
    pub async fn store(
        &self,
        endpoint: &str,
        delivery: &Delivery,
        retention: &BodyRetention,
        key: String,
        admitted: &Admitted,
    ) -> Result<Timestamp, Thrown> {
        let Delivery { id: delivery, at, .. } = delivery;
        if admitted.body.len() > LARGEST {
            return Err(Thrown::new(format_args!("the body is larger than {LARGEST} bytes")));
        }
        let now = Timestamp::now();
        let expires = now.checked_add(retention.lasts).map_err(Thrown::new)?;
        let sealed = {
            let (aad, admitted) = (delivery.to_owned(), admitted.clone());
            off_shared_threads(move || seal(&key, &aad, &admitted)).await?
        };
        let row = Row {
            id: delivery.to_owned(),
            at: Some(crate::iso(*at)),
            bytes: admitted.body.len(),
            expires: expires.as_second(),
        };
        let mut writing = self.writing.lock().await;
        let mut index = self.read(&writing, endpoint).await?;
        let rows = &mut index.rows;
        rows.push(row);
        let mut bytes: usize = rows.iter().map(|row| row.bytes).sum();
        let (mut gone, mut left) = (Vec::new(), rows.len());
        rows.retain(|row| {
            let goes = row.expires <= now.as_second() || left > MOST || bytes > MOST_BYTES;
            if goes {
                bytes -= row.bytes;
                left -= 1;
                gone.push(row.id.clone());
            }
            !goes
        });
        // Before they are removed from the index, because bodies without an entry would stay forever.
        for id in gone {
            self.bodies.remove.call((id,)).await?;
        }
        self.write(&mut writing, endpoint, index).await?;
        let record = json!({
            "id": delivery, "endpoint": endpoint, "expires": expires.to_string(), "sealed": sealed,
        });
        if let Value::Object(record) = record {
            self.bodies.put.call((record,)).await?;
        }
        Ok(expires)
    }

    /// Returns the stored call of a delivery, unless it has expired.
    pub async fn find(&self, delivery: &str) -> Result<Option<Stored>, Thrown> {
        Ok(self.stored(delivery).await?.filter(|stored| stored.expires > Timestamp::now()))
    }

    async fn stored(&self, delivery: &str) -> Result<Option<Stored>, Thrown> {
        let Some(record) = self.bodies.get.read((delivery.to_owned(),)).await.known()? else {
            return Ok(None);
        };
        let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
        let read = || {
            let (endpoint, sealed) = (text("endpoint")?, text("sealed")?);
            Some(Stored { endpoint, expires: text("expires")?.parse().ok()?, sealed })
        };
        Ok(read())
    }

    /// Reconciles the index with the bodies, after a crash or manual edits: deletes a row without a body, and adds one
    /// for a body without a row. Reads only such bodies.
    pub async fn reconcile(&self) -> Result<(), Thrown> {
        let mut writing = self.writing.lock().await;
        let mut bodies: BTreeSet<String> = self.bodies.ids.read(()).await.known()?.into_iter().collect();
        // Another host may be storing the body of a newer row.
        let recent = match self.store.is_shared() {
            true => Timestamp::now().checked_sub(STORING).map_err(Thrown::new)?,
            false => Timestamp::MAX,
        };
        let is_recent = |row: &Row| {
            let at = row.at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
            at.is_some_and(|at| at > recent)
        };
        for endpoint in self.endpoints().await? {
            let mut index = self.read(&writing, &endpoint).await?;
            let before = index.rows.len();
            index.rows.retain(|row| bodies.remove(&row.id) || is_recent(row));
            if index.rows.len() < before {
                self.write(&mut writing, &endpoint, index).await?;
            }
        }
        for id in bodies {
            // An unreadable one stays for inspection by the user.
            let Ok(Some(stored)) = self.stored(&id).await else { continue };
            if stored.expires <= Timestamp::now() {
                self.bodies.remove.call((id,)).await?;
                continue;
            }
            let mut index = self.read(&writing, &stored.endpoint).await?;
            let (bytes, expires) = (stored.sealed.len() / 4 * 3, stored.expires.as_second());
            index.rows.push(Row { id, at: None, bytes, expires });
            self.write(&mut writing, &stored.endpoint, index).await?;
        }
        Ok(())
    }

    /// Deletes expired bodies.
    pub async fn forget_expired(&self) -> Result<(), Thrown> {
        let now = Timestamp::now();
        for endpoint in self.endpoints().await? {
            let mut writing = self.writing.lock().await;
            let mut index = self.read(&writing, &endpoint).await?;
            let (gone, left): (Vec<Row>, Vec<Row>) =
                index.rows.into_iter().partition(|row| row.expires <= now.as_second());
            if gone.is_empty() {
                continue;
            }
            // The index last, so that the next start finds the rest.
            for row in gone {
                self.bodies.remove.call((row.id,)).await?;
            }
            index.rows = left;
            self.write(&mut writing, &endpoint, index).await?;
        }
        Ok(())
    }

    async fn endpoints(&self) -> Result<BTreeSet<String>, Thrown> {
        let records = self.index.list.read(()).await.known()?;
        let endpoint = |record: &JsonObject| {
            record.get("endpoint").or(record.get("id")).and_then(Value::as_str).map(str::to_owned)
        };
        Ok(records.iter().filter_map(endpoint).collect())
    }

    async fn read(&self, known: &Known, endpoint: &str) -> Result<Index, Thrown> {
        if let Some(index) = known.get(endpoint) {
            return Ok(index.clone());
        }
        let list = self.index.get.read((endpoint.to_owned(),)).await.known()?;
        let records = self.index.find.read((rows_of(endpoint),)).await.known()?;
        let ids = records.iter().filter_map(|record| record.get("id")?.as_str().map(str::to_owned)).collect();
        let rows = listed_bodies(list.as_ref(), records).into_iter();
        Ok(Index {
            rows: rows.filter_map(|row| serde_json::from_value(row).ok()).collect(),
            has_list: list.is_some(),
            records: ids,
        })
    }

    /// Stores an index that was read and changed.
    async fn write(&self, known: &mut Known, endpoint: &str, mut index: Index) -> Result<(), Thrown> {
        known.remove(endpoint);
        if self.store.is_shared() {
            for row in index.rows.iter().filter(|row| !index.records.contains(&row.id)) {
                let record = match serde_json::to_value(row) {
                    Ok(Value::Object(record)) => row_record(endpoint, record, false),
                    _ => continue,
                };
                self.index.put.call((record,)).await?;
            }
            index.records.retain(|id| !index.rows.iter().any(|row| row.id == *id));
            if index.has_list {
                index.records.insert(endpoint.to_owned());
            }
        } else {
            let bodies = serde_json::to_value(&index.rows).map_err(Thrown::new)?;
            let list =
                JsonObject::from_iter([("id".to_owned(), endpoint.into()), ("bodies".to_owned(), bodies)]);
            self.index.put.call((list,)).await?;
        }
        for replaced in index.records.drain() {
            self.index.remove.call((replaced,)).await?;
        }
        if !self.store.is_shared() {
            known.insert(endpoint.to_owned(), Index { has_list: true, ..index });
        }
        Ok(())
    }
}

impl Stored {
    /// Returns the decrypted call.
    ///
    /// # Errors
    /// The key has changed.
    pub async fn open(self, delivery: &str, key: String) -> Result<Admitted, Thrown> {
        let aad = delivery.to_owned();
        off_shared_threads(move || open(&key, &aad, &self.sealed)).await
    }
}

/// Derives the key from a text in the vault.
fn key(secret: &str) -> Result<LessSafeKey, Thrown> {
    if secret.len() < SHORTEST_KEY {
        return Err(Thrown::new(format_args!("the key must have at least {SHORTEST_KEY} bytes")));
    }
    let failed = |_| Thrown::new("no key can be derived");
    let extracted = Salt::new(HKDF_SHA256, &[]).extract(secret.as_bytes());
    let derived = extracted.expand(&[b"ostler webhook bodies"], &AES_256_GCM).map_err(failed)?;
    Ok(LessSafeKey::new(UnboundKey::from(derived)))
}

/// A nonce, then the sealed text: the length of the head, the head as JSON, the body.
fn seal(secret: &str, delivery: &str, admitted: &Admitted) -> Result<String, Thrown> {
    let sent = SentHead { uri: admitted.head.uri.to_string(), headers: admitted.head.facts().collect() };
    let head = serde_json::to_vec(&sent).map_err(Thrown::new)?;
    let length = u32::try_from(head.len()).map_err(Thrown::new)?;
    let mut nonce = [0; NONCE_LEN];
    SystemRandom::new().fill(&mut nonce).map_err(|_| Thrown::new("no randomness"))?;
    let mut text = Vec::with_capacity(4 + head.len() + admitted.body.len() + AES_256_GCM.tag_len());
    text.extend_from_slice(&length.to_be_bytes());
    text.extend_from_slice(&head);
    text.extend_from_slice(&admitted.body);
    let aad = Aad::from(delivery.as_bytes());
    let sealed = key(secret)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text);
    sealed.map_err(|_| Thrown::new("the body cannot be encrypted"))?;
    Ok(STANDARD.encode([&nonce[..], &text].concat()))
}

fn open(secret: &str, delivery: &str, sealed: &str) -> Result<Admitted, Thrown> {
    let damaged = || Thrown::new("the stored body is damaged");
    let mut sealed = STANDARD.decode(sealed).map_err(|_| damaged())?;
    if sealed.len() < NONCE_LEN {
        return Err(damaged());
    }
    let mut text = sealed.split_off(NONCE_LEN);
    let nonce = Nonce::try_assume_unique_for_key(&sealed).map_err(|_| damaged())?;
    let opened = key(secret)?.open_in_place(nonce, Aad::from(delivery.as_bytes()), &mut text);
    let opened = opened.map_err(|_| {
        Thrown::new("the stored body cannot be decrypted: its key is another one, or it is damaged")
    })?;
    let (length, rest) = opened.split_first_chunk::<4>().ok_or_else(damaged)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(Thrown::new)?;
    let (head, body) = rest.split_at_checked(length).ok_or_else(damaged)?;
    let sent: SentHead = serde_json::from_slice(head).map_err(|_| damaged())?;
    let uri: Uri = sent.uri.parse().map_err(|_| damaged())?;
    let mut headers = HeaderMap::new();
    for (name, value) in sent.headers {
        let name = header::HeaderName::try_from(name).map_err(|_| damaged())?;
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| damaged())?);
    }
    Ok(Admitted { head: Head { uri, headers }, body: Bytes::copy_from_slice(body) })
}

async fn off_shared_threads<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Thrown> + Send + 'static,
) -> Result<T, Thrown> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Thrown::new(error)))
}
