//! Automations in memory, until the process ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{AutomationStore, KeptAutomation, RunPage, RunQuery};
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunState,
};
use ostler_contract::{Call, Thrown};

use crate::Report;
use crate::runs::{RunRetention, Runs};
use crate::state::StateDb;
use ostler_contract::stores::automations::check;
use ostler_contract::stores::automations::{exists, none_such, refuse_id};
use ostler_contract::stores::automations::{iso, message, patched};

/// Automations and runs in memory.
pub struct MemoryAutomations {
    held: Mutex<BTreeMap<String, KeptAutomation>>,
    runs: Runs,
}

impl MemoryAutomations {
    /// Creates an empty store. Call it within a tokio runtime.
    pub fn new(report: Report) -> Result<Self, Thrown> {
        Ok(Self { held: Mutex::default(), runs: Runs::new(StateDb::memory()?, report)? })
    }

    /// Sets the rules for ended runs. Call it within a tokio runtime.
    #[must_use]
    pub fn retaining(self, runs: RunRetention) -> Self {
        Self { runs: self.runs.retaining(runs), ..self }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, KeptAutomation>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> AutomationStore {
        let (list, get) = (self.clone(), self.clone());
        let removed = self.runs.removed.clone();
        AutomationStore {
            list: Call::now(move |()| Ok(list.held().values().cloned().collect())),
            get: Call::now(move |(id,): (String,)| Ok(get.held().get(&id).cloned())),
            triggers: Call::now(|()| Ok(Vec::new())),
            create: member!(self, |store: &Self, arguments| ready(store.create(arguments))),
            update: member!(self, |store: &Self, arguments| ready(store.update(arguments))),
            remove: member!(self, |store: &Self, (id,): (String,)| store.remove(id)),
            run: member!(self, |store: &Self, (run,): (AutomationRunState,)| store.keep(&run)),
            run_of: member!(self, |store: &Self, (uri,)| store.runs.of(uri)),
            runs: member!(self, |store: &Self, (id, cursor)| store.runs.page(id, cursor)),
            find_runs: Some(member!(self, |store: &Self, (query,): (RunQuery,)| store.find(query))),
            watch_removed_runs: Some(Call::now(move |(on_removed,)| Ok(Some(removed.add(on_removed))))),
            // Only the host can change its memory.
            watch: None,
            unfinished: Some(member!(self, |store: &Self, ()| store.runs.unfinished())),
            // Schedules of a store in memory have no progress to persist.
            progress: None,
            keep_progress: None,
            place: None,
            close: None,
        }
    }

    fn keep(&self, run: &AutomationRunState) -> Pending<()> {
        let held = self.held();
        let kept = automation_id(&run.automation).and_then(|id| held.get(id));
        self.runs.keep(run, kept.map(|kept| kept.definition.title.as_str()))
    }

    fn find(&self, query: RunQuery) -> Pending<RunPage> {
        let titled = |kept: &KeptAutomation| (kept.id.clone(), kept.definition.title.clone());
        let titles = self.held().values().map(titled).collect();
        self.runs.find(query, titles)
    }

    fn create(
        &self,
        (id, definition, owner): (String, AutomationDefinition, Option<String>),
    ) -> Result<KeptAutomation, Thrown> {
        refuse_id(&id)?;
        let definition = AutomationDefinition { message: message(definition.message), ..definition };
        checked(&id, &definition)?;
        let now = iso(Timestamp::now());
        let kept = KeptAutomation { id, definition, owner, created_at: now.clone(), modified_at: now };
        let mut held = self.held();
        if held.contains_key(&kept.id) {
            return Err(exists(&kept.id));
        }
        held.insert(kept.id.clone(), kept.clone());
        Ok(kept)
    }

    fn update(&self, (id, patch): (String, AutomationDefinitionPatch)) -> Result<KeptAutomation, Thrown> {
        let mut held = self.held();
        let kept = held.get_mut(&id).ok_or_else(|| none_such(&id))?;
        let definition = patched(&kept.definition, patch);
        checked(&id, &definition)?;
        if definition != kept.definition {
            kept.definition = definition;
            kept.modified_at = iso(Timestamp::now());
        }
        Ok(kept.clone())
    }

    fn remove(&self, id: String) -> Pending<bool> {
        let there = self.held().remove(&id).is_some();
        let forgotten = self.runs.forget(id);
        Box::pin(async move { forgotten.await.map(|()| there) })
    }
}

fn checked(id: &str, definition: &AutomationDefinition) -> Result<(), Thrown> {
    check(definition).map_err(|why| Thrown::new(format_args!("cannot store {id}: {why}")))
}
