//! The catalogue channel: every automation with its latest runs, in step with the store.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map};
use std::sync::Arc;

use ostler_contract::points::{
    AutomationChange, AutomationProgress, AutomationStore, ChangeType, KeptAutomation, RunPage,
};
use ostler_contract::problems::ProblemKind;
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{JsonObject, Thrown, limit};
use ostler_engine_core::fanout::{Fanout, Origin, Subscriber};
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::refusals::{does_not_belong, lacks_field, try_again};
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::wire::actions::{AutomationRemovedAction, StateAction};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationEntry, AutomationOperation,
    AutomationTriggerDefinition,
};
use ostler_protocol::{RpcError, Value, actions, names, uri};

use super::Automations;
use super::check::check;
use super::listing::{Listed, publish};
use super::settings::{AutomationSettings, with_editor, with_pinned};

/// The listed automations, by id.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub entries: BTreeMap<String, Listed>,
    /// The automations pinned to a session, by its URI.
    pinned: HashMap<String, BTreeSet<String>>,
}

/// One automation; an edit replaces it.
#[derive(Debug)]
pub(super) struct CatalogueEntry {
    /// Its entry in the catalogue, without the runs.
    pub wire: AutomationEntry,
    /// The settings in its definition that only this host reads.
    pub settings: AutomationSettings,
    pub owner: Option<String>,
}

impl Automations {
    /// Subscribes to the catalogue. Returns its state as JSON text and the sequence number of that state.
    pub fn subscribe(&self, fanout: &Fanout, subscriber: Subscriber) -> (String, u64) {
        let catalogue = self.catalogue.lock();
        let entries: Vec<String> = catalogue
            .entries
            .values()
            .filter_map(|listed| serde_json::to_string(&listed.wire()).ok())
            .collect();
        let seq = fanout.subscribe(uri::AUTOMATIONS, subscriber);
        (format!(r#"{{"entries":[{}]}}"#, entries.join(",")), seq)
    }

    pub(super) fn entry(&self, id: &str) -> Option<Arc<CatalogueEntry>> {
        self.catalogue.lock().entries.get(id).map(|listed| listed.entry.clone())
    }

    /// Returns the ids of the automations pinned to a session.
    pub(super) fn pinned_to(&self, session: &str) -> Vec<String> {
        let catalogue = self.catalogue.lock();
        catalogue.pinned.get(session).into_iter().flatten().cloned().collect()
    }

    /// Adds or replaces an automation and publishes it to subscribers unless nothing changed. An automation that is
    /// already listed retains its runs; a new one gets the given runs. Its schedules have to be planned before.
    fn set(&self, id: &str, mut entry: CatalogueEntry, runs: RunPage, origin: Option<Origin>) {
        let mut catalogue = self.catalogue.lock();
        let shown = self.plans.lock().shown(id);
        entry.wire.next_run_at = shown.next.map(ostler_engine_core::clock::iso);
        entry.wire.run_count = shown.run_count;
        let before = catalogue.entries.get(id).map(|listed| listed.entry.clone());
        if before.as_ref().is_some_and(|before| before.wire == entry.wire) {
            return;
        }
        let definition = &entry.wire.definition;
        if before.as_ref().is_none_or(|before| before.wire.definition != *definition) {
            let lacking = super::triggers::lacking(self, definition);
            super::check::set_problems(self, id, definition, &lacking, self.keeps_schedules());
            if let Some(session) = before.as_ref().and_then(|before| before.settings.pinned_session.as_ref())
            {
                catalogue.unpin(id, session);
            }
            if let Some(session) = &entry.settings.pinned_session {
                catalogue.pinned.entry(session.clone()).or_default().insert(id.to_owned());
            }
            self.index.write().set(id, definition, &lacking);
            self.watching.set(id, definition);
        }
        let listed = match catalogue.entries.entry(id.to_owned()) {
            btree_map::Entry::Occupied(listed) => {
                let listed = listed.into_mut();
                listed.entry = Arc::new(entry);
                listed
            }
            btree_map::Entry::Vacant(vacant) => vacant.insert(Listed::new(entry, &runs)),
        };
        listed.publish(&self.core.fanout, origin);
    }

    fn remove(&self, fanout: &Fanout, id: &str, origin: Option<Origin>) {
        let mut catalogue = self.catalogue.lock();
        let Some(removed) = catalogue.entries.remove(id) else { return };
        if let Some(session) = &removed.entry.settings.pinned_session {
            catalogue.unpin(id, session);
        }
        self.index.write().remove(id);
        self.watching.remove(id);
        self.plans.lock().remove(id);
        self.core.log.set_problems(ProblemKind::Automations, &format!("automation {id}"), Vec::new());
        let resource = uri::automation(id);
        publish(fanout, &StateAction::AutomationRemoved(AutomationRemovedAction { resource }), origin);
    }

    /// Publishes the progress of an automation's schedules.
    pub(super) fn show_schedules(&self, fanout: &Fanout, id: &str) {
        let mut catalogue = self.catalogue.lock();
        let Some(listed) = catalogue.entries.get_mut(id) else { return };
        let shown = self.plans.lock().shown(id);
        let held = &*listed.entry;
        let wire = AutomationEntry {
            next_run_at: shown.next.map(ostler_engine_core::clock::iso),
            run_count: shown.run_count,
            ..held.wire.clone()
        };
        listed.entry =
            Arc::new(CatalogueEntry { wire, settings: held.settings.clone(), owner: held.owner.clone() });
        listed.publish(fanout, None);
    }
}

impl Catalogue {
    fn unpin(&mut self, id: &str, session: &str) {
        if let Some(automations) = self.pinned.get_mut(session) {
            automations.remove(id);
            if automations.is_empty() {
                self.pinned.remove(session);
            }
        }
    }
}

fn entry_of(stored: KeptAutomation) -> CatalogueEntry {
    let mut meta = JsonObject::new();
    if let Some(owner) = &stored.owner {
        meta.insert(names::meta_key("owner"), owner.as_str().into());
    }
    CatalogueEntry {
        settings: AutomationSettings::of(&stored.definition),
        wire: AutomationEntry {
            resource: uri::automation(&stored.id),
            definition: stored.definition,
            next_run_at: None,
            run_count: None,
            runs: Vec::new(),
            runs_next_cursor: None,
            operations: vec![
                AutomationOperation::Update,
                AutomationOperation::Remove,
                AutomationOperation::Run,
            ],
            customizations: None,
            created_at: stored.created_at,
            modified_at: stored.modified_at,
            meta: (!meta.is_empty()).then_some(meta),
        },
        owner: stored.owner,
    }
}

/// What the store has of an automation before it is listed.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The newest page of its runs.
    pub runs: RunPage,
    /// The progress of its schedules.
    pub progress: Option<AutomationProgress>,
}

impl Automations {
    pub(super) async fn list_stored(&self, store: &AutomationStore) -> Result<(), Thrown> {
        for automation in store.list.read(limit::STORE_SCAN, ()).await.known()? {
            let id = automation.id.clone();
            let history = self.history(&id).await?;
            self.plan(&id, None, &automation.definition, &history).await;
            self.set(&id, entry_of(automation), history.runs, None);
        }
        Ok(())
    }

    /// Returns an automation, without its runs.
    pub fn automation(&self, id: &str) -> Option<AutomationEntry> {
        self.entry(id).map(|entry| entry.wire.clone())
    }

    /// Applies a change that was made outside the host.
    pub(super) async fn automation_changed(self: Arc<Self>, change: AutomationChange) {
        let removed = || {
            self.remove(&self.core.fanout, &change.id, None);
            self.begin_waiting(&change.id);
        };
        if change.r#type == ChangeType::Deleted {
            return removed();
        }
        let Some(store) = self.core.automation_store() else { return };
        let read = || store.get.read(limit::STORE, (change.id.clone(),));
        match self.read_at_last(&change.id, "definition", read, || !self.core.is_stopping()).await {
            Some(Some(kept)) => {
                if let Err(why) = self.list_entry(kept).await {
                    // Its next event and its waiting runs ask for it again.
                    self.core.log.warn(format_args!("automation {} is not listed: {why}", change.id));
                }
            }
            Some(None) => removed(),
            None => {}
        }
    }

    /// Lists a definition of the store, with what the store has of its earlier runs if it is not listed yet.
    ///
    /// # Errors
    /// These could not be read. Without them, a schedule would begin again, so that it is not listed.
    pub(super) async fn list_entry(&self, kept: KeptAutomation) -> Result<(), Unknown> {
        // An automation that could not be read before may already have runs.
        let history = match self.entry(&kept.id) {
            None => self.history(&kept.id).await?,
            Some(_) => History::default(),
        };
        self.keep_with(kept, history, None).await;
        Ok(())
    }

    /// Lists a definition as the store has it now: a new one, or a listed one that has changed.
    pub(super) async fn keep_entry(&self, kept: KeptAutomation, origin: Option<Origin>) {
        self.keep_with(kept, History::default(), origin).await;
    }

    async fn keep_with(&self, kept: KeptAutomation, history: History, origin: Option<Origin>) {
        let id = kept.id.clone();
        let before = self.entry(&id);
        let before = before.as_ref().map(|before| &before.wire.definition);
        self.plan(&id, before, &kept.definition, &history).await;
        self.set(&id, entry_of(kept), history.runs, origin);
        if let Some(automations) = self.me() {
            automations.begin_waiting(&id);
        }
    }

    /// Reads what the store has of an automation that is about to be listed.
    async fn history(&self, id: &str) -> Result<History, Unknown> {
        let Some(store) = self.core.automation_store() else { return Ok(History::default()) };
        let runs = store.runs.read(limit::STORE, (id.to_owned(), None)).await.known()?;
        let progress = match store.progress.as_ref().filter(|_| self.keeps_schedules()) {
            Some(progress) => progress.read(limit::STORE, (id.to_owned(),)).await.known()?,
            None => None,
        };
        for run in &runs.runs {
            self.remember_request(run);
            self.remember_cause(run);
        }
        Ok(History { runs, progress })
    }

    /// Applies an action that a client dispatched on the catalogue or on a run.
    pub async fn automation_action(
        &self,
        action: &Value,
        origin: Origin,
        by: &Principal,
    ) -> Result<(), String> {
        let store = self.core.automations_kept().map_err(|why| why.message)?;
        let name = action.get("type").and_then(Value::as_str).unwrap_or_default();
        match actions::read(action) {
            Ok(StateAction::AutomationCreateRequested(request)) => {
                let id = slug_of(&request.resource)?;
                if self.entry(&id).is_some() {
                    return Err(format!("automation {} already exists", request.resource));
                }
                let mut definition = from_automation(request.definition);
                definition.meta = with_editor(with_pinned(definition.meta, None), None);
                check(&definition, Some(&definition.triggers), self.keeps_schedules())?;
                let owner = self.access.owner_of(by);
                let kept = store
                    .create
                    .within(limit::STORE, (id, definition, owner))
                    .await
                    .map_err(|why| why.message)?;
                // An earlier automation with this id may have left runs, which the store has just removed.
                self.core.feeds.runs.remove(&request.resource);
                self.keep_entry(kept, Some(origin)).await;
                Ok(())
            }
            Ok(StateAction::AutomationUpdateRequested(request)) => {
                let id = slug_of(&request.resource)?;
                let held = self.entry(&id).ok_or_else(|| none(&request.resource))?;
                self.require_own(by, &held, "change")?;
                let mut changes = request.changes;
                let settings = &held.settings;
                // On a host without users, the editor is unknown.
                let known = self.access.owner_of(by).filter(|_| self.access.gate.is_guarded());
                let editor = known.or_else(|| settings.editor.clone());
                if changes.meta.is_some() || editor != settings.editor {
                    let meta = changes.meta.or_else(|| held.wire.definition.meta.clone());
                    let meta = with_pinned(meta, settings.pinned_session.as_deref());
                    // An empty `_meta` clears the stored one.
                    changes.meta = Some(with_editor(meta, editor.as_deref()).unwrap_or_default());
                }
                let triggers = changes.triggers.clone();
                check(
                    &patched(held.wire.definition.clone(), &changes),
                    triggers.as_deref(),
                    self.keeps_schedules(),
                )?;
                let kept =
                    store.update.within(limit::STORE, (id, changes)).await.map_err(|why| why.message)?;
                self.keep_entry(kept, Some(origin)).await;
                Ok(())
            }
            Ok(StateAction::AutomationRemoved(request)) => {
                let id = slug_of(&request.resource)?;
                let held = self.entry(&id).ok_or_else(|| none(&request.resource))?;
                self.require_own(by, &held, "remove")?;
                self.runs.lock().forget(&id);
                if store.remove.within(limit::STORE, (id.clone(),)).await.map_err(|why| why.message)? {
                    // Those that were accepted in the meantime.
                    self.runs.lock().forget(&id);
                    self.core.feeds.runs.remove(&uri::automation(&id));
                    self.remove(&self.core.fanout, &id, Some(origin));
                    if let Some(automations) = self.me() {
                        automations.forget_sessions_of_values(&id);
                    }
                    return Ok(());
                }
                // Its file was removed in the meantime; without an error, the client would wait for an answer.
                Err(none(&request.resource))
            }
            Ok(StateAction::AutomationRunCancelRequested(_)) => {
                Err("a run is cancelled by disposing its session".to_owned())
            }
            Ok(StateAction::Unknown(_)) | Err(_) => Err(lacks_field(name, action)),
            Ok(_) => Err(does_not_belong(name, "an automation")),
        }
    }

    fn require_own(&self, by: &Principal, held: &CatalogueEntry, verb: &str) -> Result<(), String> {
        let owned = self.access.gate.require_owned(by, held.owner.as_deref(), verb, &held.wire.resource);
        owned.map_err(|refused| refused.message)
    }

    /// Returns the event types that an automation may wait for: the host's, then the plugins' in the order of their
    /// registration, then the store's.
    pub async fn trigger_definitions(&self) -> Result<Vec<AutomationTriggerDefinition>, RpcError> {
        let store = self.core.automations_kept()?;
        let mut items = super::rule::definitions();
        items.extend(super::triggers::registered(self));
        let stored = asked(store.triggers.read(limit::STORE, ()).await)?;
        items.extend(stored);
        Ok(items)
    }

    /// Loads older runs into an automation's entry.
    pub async fn fetch_runs(
        &self,
        automation: &str,
        cursor: Option<String>,
        _from: ConnectionId,
    ) -> Result<(), RpcError> {
        let store = self.core.automations_kept()?;
        let unknown = || RpcError::session_not_found(none(automation));
        let id = uri::automation_id(automation).ok_or_else(unknown)?;
        self.entry(id).ok_or_else(unknown)?;
        let page = asked(store.runs.read(limit::STORE, (id.to_owned(), cursor)).await)?;
        self.add_page(&self.core.fanout, id, page);
        Ok(())
    }
}

/// Returns the store's answer to a request; a timeout becomes an error that names the limit.
pub(super) fn asked<T>(answer: Read<T>) -> Result<T, RpcError> {
    answer.known().map_err(|why| match why.0.is_timeout() {
        true => try_again(format!(
            "the automation store did not answer within {} seconds; check the plugin that registers it, then try again",
            limit::STORE.as_secs()
        )),
        false => why.into(),
    })
}

/// Returns the error for an automation that does not exist or is switched off.
pub(super) fn none(automation: &str) -> String {
    format!("No automation at {automation}, or it is switched off")
}

fn slug_of(resource: &str) -> Result<String, String> {
    let id = uri::automation_id(resource)
        .ok_or_else(|| format!("{resource} is not an automation's URI: ahp-automation:/<id>"))?;
    match is_automation_id(id) {
        true => Ok(id.to_owned()),
        false => {
            Err(format!("{id} is not an automation's id: a UUID, or {}", ostler_contract::id::SLUG_RULE))
        }
    }
}

/// Whether a text can be the id of an automation.
pub(super) fn is_automation_id(id: &str) -> bool {
    ostler_contract::Slug::parse(id).is_some() || uuid::Uuid::parse_str(id).is_ok()
}

fn from_automation(mut definition: AutomationDefinition) -> AutomationDefinition {
    definition.message.origin.kind = ostler_protocol::wire::state::MessageKind::Automation;
    definition
}

fn patched(
    mut definition: AutomationDefinition,
    changes: &AutomationDefinitionPatch,
) -> AutomationDefinition {
    if let Some(title) = &changes.title {
        definition.title.clone_from(title);
    }
    if let Some(triggers) = &changes.triggers {
        definition.triggers.clone_from(triggers);
    }
    if let Some(meta) = &changes.meta {
        definition.meta = Some(meta.clone());
    }
    definition
}
