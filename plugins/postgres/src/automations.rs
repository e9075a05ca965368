//! The store of automations and their runs.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{AutomationChange, AutomationProgress, AutomationStore, KeptAutomation};
use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunState,
};
use ostler_contract::stores::automations::{check, exists, iso, message, none_such, patched, refuse_id};
use ostler_contract::stores::{Report, Unreadable, Watchers};
use ostler_contract::{Call, Thrown};
use tokio::sync::Mutex;
use tokio_postgres::Row;

use crate::database::{Database, Param, Write, decode, encode};
use crate::external_changes::Listeners;
use crate::runs::Runs;

/// Stores a new automation.
pub const CREATE: &str = "WITH made AS (
         INSERT INTO automations (id, definition, owner, created_at, modified_at) VALUES ($1, $2, $3, $4, $4)
         ON CONFLICT DO NOTHING RETURNING id
     ),
     runs AS (DELETE FROM automation_runs USING made WHERE automation = made.id),
     progress AS (DELETE FROM automation_progress USING made WHERE automation = made.id),
     wakes AS (DELETE FROM automation_wakes USING made WHERE automation = made.id),
     owners AS (DELETE FROM automation_owners USING made WHERE automation = made.id)
     SELECT id FROM made";
const REMOVE: &str = "WITH gone AS (DELETE FROM automations WHERE id = $1 RETURNING id),
     runs AS (DELETE FROM automation_runs USING gone WHERE automation = gone.id),
     progress AS (DELETE FROM automation_progress USING gone WHERE automation = gone.id),
     wakes AS (DELETE FROM automation_wakes USING gone WHERE automation = gone.id),
     owners AS (DELETE FROM automation_owners USING gone WHERE automation = gone.id)
     SELECT id FROM gone";
/// Removes an automation whose definition has not changed, with its runs and the progress of its schedules.
pub const REMOVE_UNCHANGED: &str = "WITH gone AS (
         DELETE FROM automations WHERE id = $1 AND definition = $2 RETURNING id
     ),
     runs AS (DELETE FROM automation_runs USING gone WHERE automation = gone.id),
     progress AS (DELETE FROM automation_progress USING gone WHERE automation = gone.id),
     wakes AS (DELETE FROM automation_wakes USING gone WHERE automation = gone.id),
     owners AS (DELETE FROM automation_owners USING gone WHERE automation = gone.id)
     SELECT id FROM gone";
const UPDATE: &str = "UPDATE automations SET definition = $2, modified_at = $3
     WHERE id = $1 AND definition = $4 RETURNING id";

/// Automations in the database.
pub struct Automations {
    database: Arc<Database>,
    runs: Arc<Runs>,
    unreadable: Unreadable,
    watchers: Watchers<AutomationChange>,
    /// Updates read before they write, so they run one after the other.
    updating: Mutex<()>,
    place: String,
}

impl Automations {
    /// Creates the store. `place` describes where automations are stored.
    ///
    /// # Errors
    /// There is no tokio runtime.
    pub fn new(
        database: Arc<Database>,
        runs: Arc<Runs>,
        report: Report,
        listeners: &Listeners,
        place: String,
    ) -> Result<Self, Thrown> {
        let watchers = Watchers::new("automations".to_owned(), report.clone())?;
        listeners.automations(watchers.clone());
        let unreadable = Unreadable::of_automations(report);
        Ok(Self { database, runs, unreadable, watchers, updating: Mutex::default(), place })
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> AutomationStore {
        let watch = self.clone();
        let removed = self.runs.removed.clone();
        AutomationStore {
            list: member!(self, |store: &Arc<Self>, ()| store.list()),
            get: member!(self, |store: &Arc<Self>, (id,): (String,)| {
                let store = store.clone();
                async move { store.get(&id).await }
            }),
            triggers: Call::now(|()| Ok(Vec::new())),
            create: member!(self, |store: &Arc<Self>, arguments| store.create(arguments)),
            update: member!(self, |store: &Arc<Self>, (id, patch): (String, AutomationDefinitionPatch)| {
                let store = store.clone();
                async move { store.update(id, patch).await }
            }),
            remove: member!(self, |store: &Arc<Self>, (id,): (String,)| store.remove(id)),
            run: member!(self, |store: &Arc<Self>, (run,): (AutomationRunState,)| store.runs.keep(&run)),
            run_of: member!(self, |store: &Arc<Self>, (uri,)| store.runs.of(uri)),
            runs: member!(self, |store: &Arc<Self>, (id, cursor)| store.runs.page(id, cursor)),
            find_runs: Some(member!(self, |store: &Arc<Self>, (query,)| store.runs.find(query))),
            watch_removed_runs: Some(Call::now(move |(on_removed,)| Ok(Some(removed.add(on_removed))))),
            watch: Some(Call::now(move |(on_change,)| Ok(Some(watch.watchers.add(on_change))))),
            unfinished: Some(member!(self, |store: &Arc<Self>, ()| store.runs.unfinished())),
            progress: Some(member!(self, |store: &Arc<Self>, (id,)| store.runs.progress(id))),
            keep_progress: Some(member!(
                self,
                |store: &Arc<Self>, (id, progress): (String, AutomationProgress)| {
                    store.runs.keep_progress(id, &progress)
                }
            )),
            place: Some(self.place.clone()),
            close: Some(member!(self, |store: &Arc<Self>, ()| store.database.close())),
        }
    }

    fn list(self: &Arc<Self>) -> Pending<Vec<KeptAutomation>> {
        let store = self.clone();
        Box::pin(async move {
            let sql = "SELECT id, definition, owner, created_at, modified_at FROM automations ORDER BY id";
            let rows = store.database.scan(sql, vec![]).await?;
            store.unreadable.keep_only(rows.iter().map(|row| row.get(0)));
            // One that cannot be read keeps none of the others from being listed.
            Ok(rows.iter().filter_map(|row| store.unreadable.read(row.get(0), kept(row))).collect())
        })
    }

    async fn row(&self, id: &str) -> Result<Option<Row>, Thrown> {
        if refuse_id(id).is_err() {
            return Ok(None);
        }
        let sql = "SELECT id, definition, owner, created_at, modified_at FROM automations WHERE id = $1";
        Ok(self.database.rows(sql, vec![Box::new(id.to_owned())]).await?.pop())
    }

    async fn get(&self, id: &str) -> Result<Option<KeptAutomation>, Thrown> {
        let row = self.row(id).await?;
        self.unreadable.noted(id, row.as_ref().map(kept).transpose())
    }

    fn create(
        &self,
        (id, definition, owner): (String, AutomationDefinition, Option<String>),
    ) -> Pending<KeptAutomation> {
        let prepare = || {
            refuse_id(&id)?;
            let definition = AutomationDefinition { message: message(definition.message), ..definition };
            checked(&id, &definition)?;
            Ok((encode(&definition)?, definition))
        };
        let (text, definition) = match prepare() {
            Ok(prepared) => prepared,
            Err(refused) => return ready(Err(refused)),
        };
        let now = iso(Timestamp::now());
        let size = id.len() + text.len();
        let params: Vec<Param> =
            vec![Box::new(id.clone()), Box::new(text), Box::new(owner.clone()), Box::new(now.clone())];
        self.database.write(Write::new(CREATE, params, size), move |rows| match rows.is_empty() {
            true => Err(exists(&id)),
            false => Ok(KeptAutomation { id, definition, owner, created_at: now.clone(), modified_at: now }),
        })
    }

    async fn update(&self, id: String, patch: AutomationDefinitionPatch) -> Result<KeptAutomation, Thrown> {
        let _one = self.updating.lock().await;
        loop {
            let row = self.row(&id).await?.ok_or_else(|| none_such(&id))?;
            let mut kept = kept(&row)?;
            let definition = patched(&kept.definition, patch.clone());
            checked(&id, &definition)?;
            if definition == kept.definition {
                return Ok(kept);
            }
            kept.definition = definition;
            kept.modified_at = iso(Timestamp::now());
            let (text, before) = (encode(&kept.definition)?, row.get::<_, String>(1));
            let size = text.len() + before.len();
            let params: Vec<Param> = vec![
                Box::new(id.clone()),
                Box::new(text),
                Box::new(kept.modified_at.clone()),
                Box::new(before),
            ];
            // Another writer may have changed it in between.
            if self.database.write(Write::new(UPDATE, params, size), |rows| Ok(!rows.is_empty())).await? {
                return Ok(kept);
            }
        }
    }

    fn remove(&self, id: String) -> Pending<bool> {
        if refuse_id(&id).is_err() {
            return ready(Ok(false));
        }
        let (size, unreadable) = (id.len(), self.unreadable.clone());
        self.database.write(Write::new(REMOVE, vec![Box::new(id.clone())], size), move |rows| {
            unreadable.is_readable(&id);
            Ok(!rows.is_empty())
        })
    }
}

/// Validates a definition.
///
/// # Errors
/// What is wrong.
pub fn checked(id: &str, definition: &AutomationDefinition) -> Result<(), Thrown> {
    check(definition).map_err(|why| Thrown::new(format_args!("cannot store {id}: {why}")))
}

/// Reads a row.
///
/// # Errors
/// It is not a valid automation.
pub fn kept(row: &Row) -> Result<KeptAutomation, Thrown> {
    let id: String = row.get(0);
    let definition: AutomationDefinition = decode(row.get(1), "automation", &id)?;
    check(&definition)
        .map_err(|why| Thrown::new(format_args!("cannot read the stored automation {id}: {why}")))?;
    Ok(KeptAutomation { id, definition, owner: row.get(2), created_at: row.get(3), modified_at: row.get(4) })
}
