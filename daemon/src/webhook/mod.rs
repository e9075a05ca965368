//! `ostler webhook …`: adds, lists, tests, inspects and removes endpoints. Each command works on the stores of a
//! configuration folder, requests the outcomes of calls from the running daemon, and returns its output.

mod add;
mod automation;
mod curl;
mod explain;
mod follow;
mod list;
mod log;
mod replay;
mod rm;
mod test;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use ostler_contract::id::SLUG_RULE;
use ostler_contract::points::{RecordStore, StoredCollection, Vault};
use ostler_contract::problems::{KnownProblem, ProblemKind, Problems};
use ostler_contract::{JsonObject, Slug, Value, limit};
use ostler_plugin_webhook::{BODIES, ENDPOINTS, bodies_options};
use ostler_ports::{FileRecords, FileVault, Report, atomic};
use ostler_protocol::names;
use ostler_protocol::nearest::did_you_mean;

pub use add::AddFlags;
pub use explain::{ExplainFlags, explain_on, explained};
pub use follow::{Followed, follow};
pub use list::listed;
pub use log::logged;
pub use replay::{ReplayFlags, replay_on, replayed};
pub use rm::RmFlags;
pub use test::TestFlags;

use crate::client::Connection;
use crate::client::screen::Screen;
use crate::exit::Exit;
use crate::parts::postgres::Direct;

/// The path of endpoints.
pub fn path(id: &str) -> String {
    names::route("webhook", id)
}

/// The `ostler webhook` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum WebhookVerb {
    /// Add an endpoint with its secret and automation, and print how to call it
    Add(AddFlags),
    /// List endpoints and their problems
    List,
    /// Call an endpoint of the running daemon
    Test(TestFlags),
    /// Say what a call would do, without doing it
    Explain(ExplainFlags),
    /// Show the last calls of an endpoint, their status and the outcome of their runs
    Log {
        /// Endpoint id
        #[arg(id = "endpoint", value_name = "ID")]
        id: String,
    },
    /// Deliver a call again whose body is stored (keepBodies)
    Replay(ReplayFlags),
    /// Remove an endpoint, its secret and its log
    Rm(RmFlags),
}

/// The stores of endpoints and secrets, and the address of the daemon.
pub struct Endpoints {
    /// The records of the configuration folder.
    pub records: RecordStore,
    /// Its vault.
    pub vault: Vault,
    /// `http://<address>`, before `/plugins/webhook/`: where this computer calls them.
    pub base: String,
    /// The beginning of their URLs for others; without it, `base`.
    pub public_url: Option<String>,
    /// The configuration folder, whose changes by commands are made one after the other; `None` for a running daemon.
    pub folder: Option<PathBuf>,
    /// The folder of automation files; `None` if they are in memory, or in the database.
    pub automations: Option<PathBuf>,
    /// The database, if the stores are in one.
    pub database: Option<Arc<Direct>>,
    /// The URL with token of the running daemon, which knows the outcomes of calls.
    pub daemon: Option<String>,
    /// The output while a run is followed.
    pub screen: Screen,
    /// Why records could not be read, as the stores list it.
    pub problems: Problems,
}

/// The output of a verb of `ostler webhook`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VerbOutput {
    /// Text for users.
    pub lines: Vec<String>,
    /// JSON for programs.
    pub json: Value,
    /// The ids of the endpoints.
    pub names: Vec<String>,
    /// Whether the verb succeeded.
    pub good: bool,
}

impl Endpoints {
    /// Creates it for a configuration folder and the daemon at a base URL.
    ///
    /// # Errors
    /// Why the vault cannot be opened.
    pub fn of(config_dir: &Path, base: &str) -> Result<Self, Exit> {
        let problems = Problems::default();
        let report = Report::quiet().keeping(problems.clone());
        let vault = FileVault::new(config_dir, Report::quiet()).map_err(machine)?;
        Ok(Self {
            records: Arc::new(FileRecords::new(config_dir, report)).into_point(),
            vault: Arc::new(vault).into_point(),
            base: base.trim_end_matches('/').to_owned(),
            public_url: None,
            folder: Some(config_dir.to_owned()),
            automations: Some(config_dir.join("automations")),
            database: None,
            daemon: None,
            screen: Screen::default(),
            problems,
        })
    }

    /// Creates it for a host whose stores are in a database.
    pub fn in_database(direct: Arc<Direct>, base: &str) -> Self {
        Self {
            records: direct.records(),
            vault: direct.vault(),
            base: base.trim_end_matches('/').to_owned(),
            public_url: None,
            folder: None,
            automations: None,
            database: Some(direct),
            daemon: None,
            screen: Screen::default(),
            problems: Problems::default(),
        }
    }

    /// Returns the endpoints whose files cannot be read, with the message about each.
    fn unread(&self) -> Vec<(String, String)> {
        let of_file = |problem: KnownProblem| {
            let path = Path::new(&problem.place);
            let is_endpoint = path.parent()?.file_name()? == ENDPOINTS;
            let is_unread = problem.kind == ProblemKind::Records && problem.finding.is_error;
            let id = path.file_stem()?.to_str()?.to_owned();
            let found = &problem.finding.found;
            let why = found.strip_prefix(&problem.place).and_then(|rest| rest.strip_prefix(": "));
            let message = format!(
                "{ENDPOINTS}/{id}.md cannot be read: {}; a running daemon answers with the last version that it could read, and \
                 with 404 from its next start on",
                why.unwrap_or(found)
            );
            (is_endpoint && is_unread).then_some((id, message))
        };
        self.problems.list().into_iter().filter_map(of_file).collect()
    }

    /// Runs a command.
    ///
    /// # Errors
    /// Exit 2 for an invalid argument, 1 for a failure of the machine.
    pub async fn run(&self, verb: WebhookVerb) -> Result<VerbOutput, Exit> {
        match verb {
            WebhookVerb::Add(flags) => add::add(self, flags).await,
            WebhookVerb::List => list::list(self).await,
            WebhookVerb::Test(flags) => test::test(self, flags).await,
            WebhookVerb::Log { id } => log::log(self, &id).await,
            WebhookVerb::Explain(flags) => explain::explain(self, &flags).await,
            WebhookVerb::Replay(flags) => replay::replay(self, &flags).await,
            WebhookVerb::Rm(flags) => rm::rm(self, &flags).await,
        }
    }

    /// Connects to the running daemon.
    async fn connect(&self) -> Result<Option<Connection>, Exit> {
        match &self.daemon {
            Some(url) => Connection::open(url, "ostler-webhook").await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits until no other command changes endpoints; none does until the file is dropped.
    async fn lock(&self) -> Result<Option<File>, Exit> {
        let Some(folder) = self.folder.clone() else { return Ok(None) };
        let failed = |error: &dyn std::fmt::Display, folder: &Path| {
            Exit::machine(format!("the endpoints in {} could not be locked: {error}", folder.display()))
        };
        let locked = {
            let folder = folder.clone();
            tokio::task::spawn_blocking(move || {
                atomic::make_folder(&folder)?;
                atomic::lock(&folder.join(ENDPOINTS))
            })
        };
        match locked.await {
            Ok(Ok(file)) => Ok(Some(file)),
            Ok(Err(error)) => Err(failed(&error, &folder)),
            Err(error) => Err(failed(&error, &folder)),
        }
    }

    /// Returns the URL of an endpoint for its senders.
    fn url(&self, id: &str) -> String {
        format!("{}{}", self.public_url.as_ref().unwrap_or(&self.base), path(id))
    }

    /// The URL at which this computer calls an endpoint, without a proxy between.
    fn local_url(&self, id: &str) -> String {
        format!("{}{}", self.base, path(id))
    }

    async fn collection(&self, name: &str) -> Result<StoredCollection, Exit> {
        let options = if name == BODIES { bodies_options() } else { Default::default() };
        self.records.collection.read(limit::STORE, (name.to_owned(), options)).await.known().map_err(machine)
    }

    /// Returns the record of an endpoint.
    async fn record(&self, id: &str) -> Result<JsonObject, Exit> {
        self.find(id).await?.map_err(Exit::Usage)
    }

    /// Returns the record of an endpoint, or the message that it does not exist.
    ///
    /// # Errors
    /// Exit 2 for an invalid id, 1 for a failure of the store.
    pub async fn find(&self, id: &str) -> Result<Result<JsonObject, String>, Exit> {
        slug(id)?;
        let collection = self.collection(ENDPOINTS).await?;
        if let Some(held) =
            collection.get.read(limit::STORE, (id.to_owned(),)).await.known().map_err(machine)?
        {
            return Ok(Ok(held));
        }
        if let Some((_, why)) = self.unread().into_iter().find(|(unread, _)| unread == id) {
            return Ok(Err(why));
        }
        let all = collection.list.read(limit::STORE, ()).await.known().map_err(machine)?;
        let hint = did_you_mean(id, all.iter().filter_map(|record| record.get("id")?.as_str()));
        Ok(Err(format!("unknown endpoint {id}; list endpoints with: ostler webhook list{hint}")))
    }

    async fn secret(&self, name: &str) -> Result<Option<String>, Exit> {
        self.vault.get.read(limit::STORE, (name.to_owned(),)).await.known().map_err(machine)
    }
}

fn slug(id: &str) -> Result<(), Exit> {
    match Slug::parse(id) {
        Some(_) => Ok(()),
        None => Err(Exit::usage(format!("invalid endpoint id {id}: use {SLUG_RULE}"))),
    }
}

fn machine(why: impl std::fmt::Display) -> Exit {
    Exit::machine(why.to_string())
}
