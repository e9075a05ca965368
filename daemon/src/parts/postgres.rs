//! The place of `@ostler/postgres` in a program without it. There is no connection to a database: its type has no value.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::live::Pending;
use ostler_contract::points::{KeptAutomation, RecordStore, Vault};
use ostler_contract::problem::built_without;
use ostler_contract::protocol::wire::state::AutomationDefinition;
use ostler_contract::stores::edits::{EditedItem, EditedKey};
use ostler_contract::stores::transfer::{Item, Kind, Position, Transfer};
use ostler_contract::users::UsersStore;
use ostler_contract::{JsonObject, Plugin, Thrown, Value};

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/postgres";

/// What to do about a configuration with the plugin, or a command that needs it.
const REMEDY: &str = "install a build with it or remove @ostler/postgres from the configuration";

/// The plugin, which cannot be loaded.
pub fn plugin(_: Retention) -> Plugin {
    Plugin::left_out(NAME, "postgres")
}

/// Returns what to do about an error of [`Direct::connect`].
pub fn remedy(_: &Thrown) -> Option<&'static str> {
    Some(REMEDY)
}

/// The rules for ended runs, which nothing reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// How many of each automation.
    pub count: u32,
    /// For how long after their end.
    pub age: Option<Duration>,
    /// How many bytes those of all automations take.
    pub bytes: Option<u64>,
}

/// A host that uses the schema.
#[derive(Debug, Clone)]
pub struct RunningHost {
    /// Its id.
    pub id: String,
    /// Its URL.
    pub url: Option<String>,
}

/// The state of a schema.
#[derive(Debug, Clone)]
pub struct Status {
    /// The version of the server.
    pub server: String,
    /// The schema.
    pub schema: String,
    /// The version of its tables.
    pub version: usize,
    /// The newest version that this program knows.
    pub newest: usize,
    /// The hosts that use it.
    pub hosts: Vec<RunningHost>,
    /// The number of secrets.
    pub secrets: i64,
    /// How many of them another key encrypted.
    pub foreign_secrets: i64,
}

/// A connection to a database: none, so nothing calls the methods that need one.
#[derive(Debug, Clone, Copy)]
pub enum Direct {}

impl Direct {
    /// Connects to no database.
    ///
    /// # Errors
    /// Always: what to do about it.
    pub async fn connect(_: &JsonObject, _: &Path) -> Result<Arc<Self>, Thrown> {
        Err(Thrown::new(format_args!("{}; {REMEDY}", built_without("postgres"))))
    }

    pub fn place(&self) -> String {
        match *self {}
    }

    pub async fn status(&self) -> Result<Status, Thrown> {
        match *self {}
    }

    pub async fn check_schema(&self) -> Result<(), Thrown> {
        match *self {}
    }

    pub fn vault(&self) -> Vault {
        match *self {}
    }

    pub fn records(&self) -> RecordStore {
        match *self {}
    }

    pub fn users(&self) -> Arc<dyn UsersStore> {
        match *self {}
    }

    pub async fn automations(&self) -> Result<Vec<KeptAutomation>, Thrown> {
        match *self {}
    }

    pub async fn create_automation(
        &self,
        _: &str,
        _: AutomationDefinition,
        _: Option<String>,
    ) -> Result<(), Thrown> {
        match *self {}
    }

    pub async fn edited_items(&self, _: &[String]) -> Result<Vec<EditedItem>, Thrown> {
        match *self {}
    }

    pub async fn replace_item(
        &self,
        _: &EditedKey,
        _: Option<&str>,
        _: Option<&Value>,
    ) -> Result<bool, Thrown> {
        match *self {}
    }
}

/// A schema without hosts, of a connection: none.
pub struct ExclusiveSchema(Arc<Direct>);

impl ExclusiveSchema {
    pub async fn source(direct: Arc<Direct>) -> Result<Self, Thrown> {
        match *direct {}
    }

    pub async fn target(direct: Arc<Direct>) -> Result<Self, Thrown> {
        match *direct {}
    }

    pub async fn empty_target(direct: Arc<Direct>, _: &str) -> Result<(Self, Option<String>), Thrown> {
        match *direct {}
    }
}

impl Transfer for ExclusiveSchema {
    fn place(&self) -> String {
        match *self.0 {}
    }

    fn read(&self, _: Kind, _: Option<Position>) -> Pending<Vec<Item>> {
        match *self.0 {}
    }

    fn append(&self, _: Kind, _: Vec<Item>) -> Pending<()> {
        match *self.0 {}
    }

    fn close(&self) -> Pending<()> {
        match *self.0 {}
    }
}
