//! The catalogue channel: every automation with its latest runs, in step with the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ostler_contract::points::{AutomationChange, ChangeType, KeptAutomation, RunPage};
use ostler_contract::{Call, JsonObject};
use ostler_protocol::wire::actions::{AutomationRemovedAction, AutomationSetAction, StateAction};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationEntry, AutomationOperation,
    AutomationRunSummary, AutomationTriggerDefinition,
};
use ostler_protocol::{RpcError, Value, Version, actions, names, uri};

use super::Automations;
use super::check::check;
use super::settings::{Settings, with_editor, with_pinned};
use crate::core::fanout::{Fanout, Origin, Outgoing, Subscriber};
use crate::core::ids::ConnectionId;
use crate::core::refusals::{does_not_belong, lacks_field};
use crate::host::Host;
use crate::users::principal::Principal;

/// How many runs an entry carries.
pub(super) const RUNS_SHOWN: usize = 20;

/// Entries by id.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    entries: BTreeMap<String, Entry>,
    /// The automations pinned to a session, by its URI.
    pinned: HashMap<String, BTreeSet<String>>,
}

/// One automation.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub wire: AutomationEntry,
    pub owner: Option<String>,
}

impl Automations {
    /// Subscribes to the catalogue; answers its state as JSON text and the number it was taken at.
    pub fn subscribe(&self, fanout: &Fanout, subscriber: Subscriber) -> (String, u64) {
        let catalogue = self.catalogue.lock();
        let entries: Vec<&AutomationEntry> = catalogue.entries.values().map(|entry| &entry.wire).collect();
        let state = serde_json::to_string(&entries).unwrap_or_else(|_| "[]".to_owned());
        let seq = fanout.subscribe(uri::AUTOMATIONS, subscriber);
        (format!(r#"{{"entries":{state}}}"#), seq)
    }

    pub(super) fn entry(&self, id: &str) -> Option<Entry> {
        self.catalogue.lock().entries.get(id).cloned()
    }

    /// The automations pinned to a session.
    pub(super) fn pinned_to(&self, session: &str) -> Vec<String> {
        let catalogue = self.catalogue.lock();
        catalogue.pinned.get(session).into_iter().flatten().cloned().collect()
    }

    /// Puts one automation in place, with the runs it showed before, and tells whoever watches, unless nothing
    /// changed. Its schedules are planned by then.
    fn set(&self, host: &Host, id: &str, mut entry: Entry, origin: Option<Origin>) {
        let mut catalogue = self.catalogue.lock();
        let held = catalogue.entries.get(id);
        if let Some(held) = held {
            entry.wire.runs.clone_from(&held.wire.runs);
            entry.wire.runs_next_cursor.clone_from(&held.wire.runs_next_cursor);
        }
        let shown = self.plans.lock().shown(id);
        entry.wire.next_run_at = shown.next.map(crate::core::clock::iso);
        entry.wire.run_count = shown.run_count;
        if held.is_some_and(|held| held.wire == entry.wire) {
            return;
        }
        let before = held.map(|held| &held.wire.definition);
        let definition = &entry.wire.definition;
        if before != Some(definition) {
            let lacking = super::triggers::lacking(host, definition);
            lacking.iter().for_each(|lacking| host.log.line(lacking.line(id)));
            super::check::log_problems(host, id, definition);
            if let Some(session) = before.and_then(|before| Settings::of(before).pinned_session) {
                catalogue.unpin(id, &session);
            }
            if let Some(session) = Settings::of(definition).pinned_session {
                catalogue.pinned.entry(session).or_default().insert(id.to_owned());
            }
            self.index.write().set(id, definition, &lacking);
            self.watching.set(id, definition);
        }
        catalogue.entries.insert(id.to_owned(), entry.clone());
        publish_set(&host.fanout, entry.wire, origin);
    }

    fn remove(&self, fanout: &Fanout, id: &str, origin: Option<Origin>) {
        let mut catalogue = self.catalogue.lock();
        let Some(held) = catalogue.entries.remove(id) else { return };
        if let Some(session) = Settings::of(&held.wire.definition).pinned_session {
            catalogue.unpin(id, &session);
        }
        self.index.write().remove(id);
        self.watching.remove(id);
        self.plans.lock().remove(id);
        let resource = uri::automation(id);
        publish(fanout, StateAction::AutomationRemoved(AutomationRemovedAction { resource }), origin);
    }

    /// Shows how far an automation's schedules have come.
    pub(super) fn show_schedules(&self, fanout: &Fanout, id: &str) {
        let mut catalogue = self.catalogue.lock();
        let Some(entry) = catalogue.entries.get_mut(id) else { return };
        let shown = self.plans.lock().shown(id);
        entry.wire.next_run_at = shown.next.map(crate::core::clock::iso);
        entry.wire.run_count = shown.run_count;
        publish_set(fanout, entry.wire.clone(), None);
    }

    /// Adds a page of older runs to an entry.
    fn add_page(&self, fanout: &Fanout, id: &str, page: RunPage) {
        let mut catalogue = self.catalogue.lock();
        let Some(entry) = catalogue.entries.get_mut(id) else { return };
        for run in page.runs.iter().map(super::shown::summary_of) {
            if !entry.wire.runs.iter().any(|shown| shown.resource == run.resource) {
                entry.wire.runs.push(run);
            }
        }
        entry.wire.runs_next_cursor = page.next_cursor;
        publish_set(fanout, entry.wire.clone(), None);
    }

    /// Shows a run in its automation's entry.
    /// Answers whether there are more than an entry carries now.
    pub(super) fn show_run(&self, fanout: &Fanout, id: &str, run: AutomationRunSummary) -> bool {
        let mut catalogue = self.catalogue.lock();
        let Some(entry) = catalogue.entries.get_mut(id) else { return false };
        match entry.wire.runs.iter_mut().find(|shown| shown.resource == run.resource) {
            Some(shown) => *shown = run,
            None => entry.wire.runs.insert(0, run),
        }
        publish_set(fanout, entry.wire.clone(), None);
        entry.wire.runs.len() > RUNS_SHOWN
    }

    /// Leaves an entry with the runs of its newest page, and the cursor that leads to the others.
    fn show_page(&self, fanout: &Fanout, id: &str, page: &RunPage) {
        let mut catalogue = self.catalogue.lock();
        let Some(entry) = catalogue.entries.get_mut(id) else { return };
        let Some(oldest) = page.runs.last() else { return };
        let Some(at) = entry.wire.runs.iter().position(|shown| shown.resource == oldest.resource) else {
            return;
        };
        entry.wire.runs.truncate(at + 1);
        entry.wire.runs_next_cursor.clone_from(&page.next_cursor);
        publish_set(fanout, entry.wire.clone(), None);
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

fn publish_set(fanout: &Fanout, automation: AutomationEntry, origin: Option<Origin>) {
    publish(fanout, StateAction::AutomationSet(Box::new(AutomationSetAction { automation })), origin);
}

fn publish(fanout: &Fanout, action: StateAction, origin: Option<Origin>) {
    if let Ok(text) = serde_json::to_string(&action) {
        fanout.publish(uri::AUTOMATIONS, vec![Outgoing { origin, ..Outgoing::host(text, Version::V0_9) }]);
    }
}

fn wire_of(kept: KeptAutomation, runs: Vec<AutomationRunSummary>, runs_next_cursor: Option<String>) -> Entry {
    let mut meta = JsonObject::new();
    if let Some(owner) = &kept.owner {
        meta.insert(names::meta_key("owner"), owner.as_str().into());
    }
    Entry {
        wire: AutomationEntry {
            resource: uri::automation(&kept.id),
            definition: kept.definition,
            next_run_at: None,
            run_count: None,
            runs,
            runs_next_cursor,
            operations: vec![
                AutomationOperation::Update,
                AutomationOperation::Remove,
                AutomationOperation::Run,
            ],
            customizations: None,
            created_at: kept.created_at,
            modified_at: kept.modified_at,
            meta: (!meta.is_empty()).then_some(meta),
        },
        owner: kept.owner,
    }
}

impl Host {
    /// Reads the automations of the store, watches it for edits, and takes up what a stop left unfinished.
    pub(crate) async fn load_automations(self: Arc<Self>) {
        let Some(store) = self.automation_store().cloned() else { return };
        match store.list.call(()).await {
            Ok(kept) => {
                for automation in kept {
                    let id = automation.id.clone();
                    let page = store.runs.call((id.clone(), None)).await.unwrap_or_default();
                    page.runs.iter().for_each(|run| self.remember_request(run));
                    self.plan(&id, None, &automation.definition, &page.runs).await;
                    let runs = page.runs.iter().map(super::shown::summary_of).collect();
                    self.automations.set(&self, &id, wire_of(automation, runs, page.next_cursor), None);
                }
            }
            Err(why) => self.log.line(format_args!("the automations could not be read: {why}")),
        }
        if let Some(watch) = &store.watch {
            let host = Arc::downgrade(&self);
            let on_change = Call::new(move |(change,): (AutomationChange,)| {
                let host = host.upgrade();
                async move {
                    if let Some(host) = host {
                        host.automation_changed(change).await;
                    }
                    Ok(())
                }
            });
            if let Err(why) = watch.call((on_change,)).await {
                self.log.line(format_args!("edits of automations will not be seen: {why}"));
            }
        }
        self.resume_runs().await;
        if self.keeps_schedules() {
            tokio::spawn(super::clockwork::serve_schedules(Arc::downgrade(&self)));
        }
    }

    /// Takes up one definition that was changed from outside.
    async fn automation_changed(&self, change: AutomationChange) {
        if change.r#type == ChangeType::Deleted {
            return self.automations.remove(&self.fanout, &change.id, None);
        }
        let Some(store) = self.automation_store() else { return };
        match store.get.call((change.id.clone(),)).await {
            Ok(Some(kept)) => self.keep_entry(kept, None).await,
            Ok(None) => self.automations.remove(&self.fanout, &change.id, None),
            Err(why) => self.log.line(format_args!("automation {} could not be read: {why}", change.id)),
        }
    }

    /// Takes up a definition as the store has it now.
    pub(super) async fn keep_entry(&self, kept: KeptAutomation, origin: Option<Origin>) {
        let id = kept.id.clone();
        let before = self.automations.entry(&id).map(|held| held.wire.definition);
        self.plan(&id, before.as_ref(), &kept.definition, &[]).await;
        self.automations.set(self, &id, wire_of(kept, Vec::new(), None), origin);
    }

    /// What a client dispatched on the catalogue or on a run.
    pub(crate) async fn automation_action(
        &self,
        action: &Value,
        origin: Origin,
        by: &Principal,
    ) -> Result<(), String> {
        let store = self.automations_kept().map_err(|why| why.message)?;
        let name = action.get("type").and_then(Value::as_str).unwrap_or_default();
        match actions::read(action.clone()) {
            Ok(StateAction::AutomationCreateRequested(request)) => {
                let id = slug_of(&request.resource)?;
                if self.automations.entry(&id).is_some() {
                    return Err(format!("there is an automation {} already", request.resource));
                }
                let mut definition = from_automation(request.definition);
                definition.meta = with_editor(with_pinned(definition.meta, None), None);
                check(&definition, Some(&definition.triggers), self.keeps_schedules())?;
                let owner = self.access.owner_of(by);
                let kept = store.create.call((id, definition, owner)).await.map_err(|why| why.message)?;
                self.keep_entry(kept, Some(origin)).await;
                Ok(())
            }
            Ok(StateAction::AutomationUpdateRequested(request)) => {
                let id = slug_of(&request.resource)?;
                let held = self.automations.entry(&id).ok_or_else(|| none(&request.resource))?;
                self.require_own(by, &held, "change")?;
                let mut changes = request.changes;
                let settings = Settings::of(&held.wire.definition);
                // Where the host knows no users, nobody is known to have changed it.
                let known = self.access.owner_of(by).filter(|_| self.access.gate.guarded);
                let editor = known.or_else(|| settings.editor.clone());
                if changes.meta.is_some() || editor != settings.editor {
                    let meta = changes.meta.or_else(|| held.wire.definition.meta.clone());
                    let meta = with_pinned(meta, settings.pinned_session.as_deref());
                    // An empty one takes back what is there.
                    changes.meta = Some(with_editor(meta, editor.as_deref()).unwrap_or_default());
                }
                let triggers = changes.triggers.clone();
                check(&patched(held.wire.definition, &changes), triggers.as_deref(), self.keeps_schedules())?;
                let kept = store.update.call((id, changes)).await.map_err(|why| why.message)?;
                self.keep_entry(kept, Some(origin)).await;
                Ok(())
            }
            Ok(StateAction::AutomationRemoved(request)) => {
                let id = slug_of(&request.resource)?;
                let held = self.automations.entry(&id).ok_or_else(|| none(&request.resource))?;
                self.require_own(by, &held, "remove")?;
                self.automations.runs.lock().forget(&id);
                if store.remove.call((id.clone(),)).await.map_err(|why| why.message)? {
                    self.automations.remove(&self.fanout, &id, Some(origin));
                }
                Ok(())
            }
            Ok(StateAction::AutomationRunCancelRequested(_)) => {
                Err("a run is cancelled by disposing its session".to_owned())
            }
            Ok(StateAction::Unknown(_)) | Err(_) => Err(lacks_field(name, action)),
            Ok(_) => Err(does_not_belong(name, "an automation")),
        }
    }

    fn require_own(&self, by: &Principal, held: &Entry, verb: &str) -> Result<(), String> {
        let owned = self.access.gate.require_owned(by, held.owner.as_deref(), verb, &held.wire.resource);
        owned.map_err(|refused| refused.message)
    }

    /// Event types an automation may wait for: the host's, the plugins' in the order they were registered, then
    /// the store's own.
    pub(crate) async fn trigger_definitions(&self) -> Result<Vec<AutomationTriggerDefinition>, RpcError> {
        let store = self.automations_kept()?;
        let mut items = super::rule::definitions();
        items.extend(super::triggers::registered(self));
        items.extend(store.triggers.call(()).await.map_err(|why| why.into_rpc())?);
        Ok(items)
    }

    /// Takes the runs an entry no longer carries out of it, so that they are found by its cursor.
    pub(super) async fn page_runs(&self, id: &str) {
        let Some(store) = self.automation_store() else { return };
        match store.runs.call((id.to_owned(), None)).await {
            Ok(page) => self.automations.show_page(&self.fanout, id, &page),
            Err(why) => self.log.line(format_args!("the runs of {id} could not be read: {why}")),
        }
    }

    /// Loads older runs into an automation's entry.
    pub(crate) async fn fetch_runs(
        &self,
        automation: &str,
        cursor: Option<String>,
        _from: ConnectionId,
    ) -> Result<(), RpcError> {
        let store = self.automations_kept()?;
        let unknown = || RpcError::session_not_found(none(automation));
        let id = uri::automation_id(automation).ok_or_else(unknown)?;
        self.automations.entry(id).ok_or_else(unknown)?;
        let page = store.runs.call((id.to_owned(), cursor)).await.map_err(|why| why.into_rpc())?;
        self.automations.add_page(&self.fanout, id, page);
        Ok(())
    }
}

/// The sentence for an automation nobody knows or that is off.
pub(super) fn none(automation: &str) -> String {
    format!("No automation at {automation}, or it is switched off")
}

fn slug_of(resource: &str) -> Result<String, String> {
    let id = uri::automation_id(resource)
        .ok_or_else(|| format!("{resource} is not an automation's URI: ahp-automation:/<id>"))?;
    match ostler_contract::Slug::parse(id) {
        Some(slug) => Ok(slug.to_string()),
        None if uuid::Uuid::parse_str(id).is_ok() => Ok(id.to_owned()),
        None => Err(format!("{id} is not an automation's id: a UUID, or {}", ostler_contract::id::SLUG_RULE)),
    }
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
