//! Direct access to the database for commands: without a lease, whether or not hosts run on it.
//!
//! Hosts notice such changes as they notice those with SQL. Data that a host has in memory, sessions and runs, is not
//! accessible here; [`crate::transfer`] copies it while no host runs.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{
    CollectionOptions, KeptAutomation, RecordStore, StoredCollection, Vault as VaultPoint,
};
use ostler_contract::protocol::wire::state::AutomationDefinition;
use ostler_contract::stores::automations::{exists, iso, message, refuse_id};
use ostler_contract::stores::equality::contains_fields;
use ostler_contract::stores::records::check_options;
use ostler_contract::{Call, JsonObject, Options, Slug, Thrown, VaultName};
use tokio_postgres::{Client, Row};

use crate::connect::{Connector, SCAN};
use crate::database::{Param, borrowed, encode};
use crate::failure::thrown;
use crate::migrations::{self, Tables};
use crate::text::accepted;
use crate::vault::Cipher;
use crate::{automations, joining, options, records};

/// Who made a change, in the table of changes.
const ORIGIN: &str = "command";

/// A connection of a command.
pub struct Direct {
    pub(crate) client: Client,
    pub(crate) cipher: Cipher,
    pub(crate) schema: String,
}

/// A host on a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningHost {
    /// Its name and its configuration folder.
    pub id: String,
    /// Its address, once it listens.
    pub url: Option<String>,
}

/// The state of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The version of the server.
    pub server: String,
    pub schema: String,
    /// How many migrations were applied; 0 for a schema that does not exist.
    pub version: usize,
    /// How many this program knows.
    pub newest: usize,
    /// The hosts with a valid lease.
    pub hosts: Vec<RunningHost>,
    /// The number of secrets.
    pub secrets: i64,
    /// The number of secrets that were encrypted with another key than the configured one.
    pub foreign_secrets: i64,
}

impl Direct {
    /// Connects with the options of the plugin. Relative files are in the configuration folder.
    ///
    /// # Errors
    /// The options are wrong, the server cannot be reached, or is not usable. Without secrets.
    pub async fn connect(options: &JsonObject, config_dir: &Path) -> Result<Arc<Self>, Thrown> {
        let environment = |name: &str| std::env::var(name).ok();
        let settings = options::read(&Options::from(options.clone()), config_dir, &environment)?;
        let cipher = Cipher::new(&settings.vault_key)?;
        let connector = Connector::new(&settings);
        let client = joining::connect_first(&connector, ORIGIN, SCAN).await?;
        Ok(Arc::new(Self { client, cipher, schema: connector.schema }))
    }

    /// Returns where the data is stored, for messages.
    pub fn place(&self) -> String {
        format!("PostgreSQL, schema {}", self.schema)
    }

    /// Returns the state of the schema. Changes nothing.
    ///
    /// # Errors
    /// The schema is of a newer host or another build, or the database fails.
    pub async fn status(&self) -> Result<Status, Thrown> {
        let found = migrations::inspect(&self.client, &self.schema, Tables::default()).await?;
        let row = self.one("SELECT current_setting('server_version')", &[]).await?;
        let mut status = Status {
            server: row.get(0),
            schema: self.schema.clone(),
            version: found.version(),
            newest: Tables::default().known(),
            hosts: Vec::new(),
            secrets: 0,
            foreign_secrets: 0,
        };
        if found.has_tables() {
            status.hosts = self.hosts().await?;
            let sql = "SELECT count(*), count(*) FILTER (WHERE key_id <> $1) FROM vault";
            let row = self.one(sql, &[Box::new(self.cipher.id().to_vec())]).await?;
            (status.secrets, status.foreign_secrets) = (row.get(0), row.get(1));
        }
        Ok(status)
    }

    /// Returns an error unless this program can use the tables of the schema.
    ///
    /// # Errors
    /// The schema is missing, older, or newer and not compatible.
    pub async fn check_schema(&self) -> Result<(), Thrown> {
        let found = migrations::inspect(&self.client, &self.schema, Tables::default()).await?;
        match found.is_served() {
            true => Ok(()),
            false => Err(Thrown::new(format_args!(
                "schema {} has no tables of this version of ostler; start the host once, which creates or updates them",
                self.schema
            ))),
        }
    }

    pub(crate) async fn hosts(&self) -> Result<Vec<RunningHost>, Thrown> {
        let sql = "SELECT id, url FROM host WHERE expires_at > clock_timestamp() ORDER BY id";
        let rows = self.rows(sql, vec![]).await?;
        Ok(rows.iter().map(|row| RunningHost { id: row.get(0), url: row.get(1) }).collect())
    }

    pub(crate) async fn rows(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Thrown> {
        self.client.query(sql, &borrowed(&accepted(params))).await.map_err(|why| thrown(&why))
    }

    async fn one(&self, sql: &str, params: &[Param]) -> Result<Row, Thrown> {
        self.client.query_one(sql, &borrowed(params)).await.map_err(|why| thrown(&why))
    }

    pub fn vault(self: &Arc<Self>) -> VaultPoint {
        VaultPoint {
            get: member!(self, |direct: &Arc<Self>, (name,): (String,)| {
                let direct = direct.clone();
                async move {
                    let name = VaultName::parse(&name)?.to_string();
                    let sql = "SELECT key_id, value FROM vault WHERE name = $1";
                    let rows = direct.rows(sql, vec![Box::new(name.clone())]).await?;
                    rows.first().map(|row| direct.cipher.open(&name, row.get(0), row.get(1))).transpose()
                }
            }),
            set: member!(self, |direct: &Arc<Self>, (name, value): (String, String)| {
                let direct = direct.clone();
                async move {
                    let name = VaultName::parse(&name)?.to_string();
                    let sealed = direct.cipher.seal(&name, &value)?;
                    let params: Vec<Param> =
                        vec![Box::new(name), Box::new(direct.cipher.id().to_vec()), Box::new(sealed)];
                    direct.rows(crate::vault::SET, params).await.map(drop)
                }
            }),
            delete: member!(self, |direct: &Arc<Self>, (name,): (String,)| {
                let direct = direct.clone();
                async move {
                    let rows = direct.rows(crate::vault::DELETE, vec![Box::new(name.clone())]).await?;
                    crate::vault::deleted(&name, !rows.is_empty())
                }
            }),
            list: member!(self, |direct: &Arc<Self>, ()| {
                let direct = direct.clone();
                async move {
                    let rows = direct.rows("SELECT name FROM vault ORDER BY name", vec![]).await?;
                    Ok(rows.iter().map(|row| row.get(0)).collect())
                }
            }),
            close: None,
        }
    }

    /// Returns the records. Their watchers are not called.
    pub fn records(self: &Arc<Self>) -> RecordStore {
        RecordStore {
            collection: member!(self, |direct: &Arc<Self>, (name, options)| ready(
                direct.collection(name, options)
            )),
            close: None,
        }
    }

    fn collection(
        self: &Arc<Self>,
        name: String,
        options: CollectionOptions,
    ) -> Result<StoredCollection, Thrown> {
        check_options(&name, &options)?;
        let one = Arc::new(DirectCollection { direct: self.clone(), name, body: options.body });
        Ok(StoredCollection {
            get: member!(one, |one: &Arc<DirectCollection>, (id,): (String,)| {
                let one = one.clone();
                async move { Ok(one.find(Some(id), JsonObject::new()).await?.pop()) }
            }),
            ids: None,
            list: member!(one, |one: &Arc<DirectCollection>, ()| {
                let one = one.clone();
                async move { one.find(None, JsonObject::new()).await }
            }),
            find: member!(one, |one: &Arc<DirectCollection>, (wanted,): (JsonObject,)| {
                let one = one.clone();
                async move { one.find(None, wanted).await }
            }),
            put: member!(one, |one: &Arc<DirectCollection>, (record,): (JsonObject,)| one.put(record)),
            remove: member!(one, |one: &Arc<DirectCollection>, (id,): (String,)| {
                let one = one.clone();
                async move {
                    let sql = "DELETE FROM records WHERE collection = $1 AND id = $2 RETURNING true";
                    let params: Vec<Param> = vec![Box::new(one.name.clone()), Box::new(id)];
                    Ok(!one.direct.rows(sql, params).await?.is_empty())
                }
            }),
            watch: Call::now(|_| Ok(None)),
        })
    }

    /// Returns all automations that can be read.
    ///
    /// # Errors
    /// The database fails.
    pub async fn automations(&self) -> Result<Vec<KeptAutomation>, Thrown> {
        let sql = "SELECT id, definition, owner, created_at, modified_at FROM automations ORDER BY id";
        let rows = self.rows(sql, vec![]).await?;
        Ok(rows.iter().filter_map(|row| automations::kept(row).ok()).collect())
    }

    /// Stores a new automation.
    ///
    /// # Errors
    /// It is invalid, or one with this id exists.
    pub async fn create_automation(
        &self,
        id: &str,
        definition: AutomationDefinition,
        owner: Option<String>,
    ) -> Result<(), Thrown> {
        refuse_id(id)?;
        let definition = AutomationDefinition { message: message(definition.message), ..definition };
        automations::checked(id, &definition)?;
        let params: Vec<Param> = vec![
            Box::new(id.to_owned()),
            Box::new(encode(&definition)?),
            Box::new(owner),
            Box::new(iso(Timestamp::now())),
        ];
        match self.rows(automations::CREATE, params).await?.is_empty() {
            true => Err(exists(id)),
            false => Ok(()),
        }
    }
}

struct DirectCollection {
    direct: Arc<Direct>,
    name: String,
    body: Option<String>,
}

impl DirectCollection {
    async fn find(&self, id: Option<String>, wanted: JsonObject) -> Result<Vec<JsonObject>, Thrown> {
        if id.as_ref().is_some_and(|id| Slug::parse(id).is_none()) {
            return Ok(Vec::new());
        }
        let sql = "SELECT id, record FROM records WHERE collection = $1 AND ($2::text IS NULL OR id = $2) ORDER BY id";
        let params: Vec<Param> = vec![Box::new(self.name.clone()), Box::new(id)];
        let rows = self.direct.rows(sql, params).await?;
        let read = rows.iter().map(|row| records::read(&self.name, row));
        Ok(read
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .filter(|one| contains_fields(one, &wanted))
            .collect())
    }

    fn put(self: &Arc<Self>, record: JsonObject) -> Pending<()> {
        let one = self.clone();
        Box::pin(async move {
            let prepared = records::prepare(&one.name, one.body.as_deref(), record)?;
            one.direct.rows(records::PUT, prepared.params).await.map(drop)
        })
    }
}
