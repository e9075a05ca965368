//! Automations as files: `<configDir>/automations/<id>.md`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{
    AutomationChange, AutomationProgress, AutomationStore, KeptAutomation, RunPage, RunQuery,
};
use ostler_contract::problems::ProblemKind;
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunState,
};
use ostler_contract::{Call, RpcError, Thrown};

use super::format::{AutomationFormat, ParsedAutomation, patched_text, text};
use crate::Report;
use crate::folder::{Edit, Events, Folder, FolderSetup, Watching};
use crate::runs::{RunRetention, Runs, Titles};
use crate::state::StateDb;
use ostler_contract::stores::automations::message;
use ostler_contract::stores::automations::{exists, none_such, refuse_id};
use ostler_contract::stores::watchers::{Watchers, blocking};

/// Automations that users can write and edit while the host runs, with their runs in the state database.
pub struct FileAutomations {
    folder: Folder<AutomationFormat>,
    runs: Runs,
    watchers: Watchers<AutomationChange>,
}

impl FileAutomations {
    /// Reads the automations of a configuration folder.
    pub async fn open(config_dir: &Path, db: Arc<StateDb>, report: Report) -> Result<Self, Thrown> {
        Self::watched(config_dir, db, report, Watching::Events).await
    }

    /// Like [`Self::open`], with a choice of how edits are noticed.
    pub async fn watched(
        config_dir: &Path,
        db: Arc<StateDb>,
        report: Report,
        watching: Watching,
    ) -> Result<Self, Thrown> {
        let config_dir = fs::canonicalize(config_dir).unwrap_or_else(|_| config_dir.to_owned());
        let watchers = Watchers::new("automations".to_owned(), report.clone())?;
        let told = watchers.clone();
        let setup = FolderSetup {
            path: config_dir.join("automations"),
            events: Arc::new(Events::new(&config_dir)),
            watching,
            kind: ProblemKind::Automations,
            report: report.clone(),
            tell: Box::new(move |changed| {
                // The caller knows of its change.
                if !changed.own {
                    told.notify(&AutomationChange {
                        id: changed.id.as_ref().to_owned(),
                        r#type: changed.how,
                    });
                }
            }),
        };
        let folder = blocking(move || Folder::open(setup, AutomationFormat)).await?.map_err(Thrown::new)?;
        Ok(Self { folder, runs: Runs::new(db, report)?, watchers })
    }

    /// Sets the rules for ended runs. Call it within a tokio runtime.
    #[must_use]
    pub fn retaining(self, runs: RunRetention) -> Self {
        Self { runs: self.runs.retaining(runs), ..self }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> AutomationStore {
        let (list, get, watch) = (self.clone(), self.clone(), self.clone());
        let removed = self.runs.removed.clone();
        AutomationStore {
            list: Call::now(move |()| {
                Ok(list.folder.contents().iter().map(|(_, read)| read.kept.clone()).collect())
            }),
            get: Call::new(move |(id,): (String,)| get.get(id)),
            triggers: Call::now(|()| Ok(Vec::new())),
            create: member!(self, Self::create),
            update: member!(self, Self::update),
            remove: member!(self, |store: &Self, (id,): (String,)| store.remove(id)),
            run: member!(self, |store: &Self, (run,): (AutomationRunState,)| store.keep(&run)),
            run_of: member!(self, |store: &Self, (uri,)| store.runs.of(uri)),
            runs: member!(self, |store: &Self, (id, cursor)| store.runs.page(id, cursor)),
            find_runs: Some(member!(self, |store: &Self, (query,): (RunQuery,)| store.find(query))),
            watch_removed_runs: Some(Call::now(move |(on_removed,)| Ok(Some(removed.add(on_removed))))),
            watch: Some(Call::now(move |(on_change,)| Ok(Some(watch.watchers.add(on_change))))),
            unfinished: Some(member!(self, |store: &Self, ()| store.runs.unfinished())),
            progress: Some(member!(self, |store: &Self, (id,): (String,)| store.runs.progress(id))),
            keep_progress: Some(member!(
                self,
                |store: &Self, (id, progress): (String, AutomationProgress)| {
                    store.runs.keep_progress(id, &progress)
                }
            )),
            place: Some(self.folder.path().display().to_string()),
            close: Some(member!(self, |store: &Self, ()| store.runs.close())),
        }
    }

    fn keep(&self, run: &AutomationRunState) -> Pending<()> {
        let contents = self.folder.contents();
        let read = automation_id(&run.automation).and_then(|id| contents.get(id));
        self.runs.keep(run, read.map(|read| read.kept.definition.title.as_str()))
    }

    fn find(&self, query: RunQuery) -> Pending<RunPage> {
        let contents = self.folder.contents();
        let titled = |(_, read): (_, &Arc<ParsedAutomation>)| {
            (read.kept.id.clone(), read.kept.definition.title.clone())
        };
        let titles = if query.text.is_some() { contents.iter().map(titled).collect() } else { Titles::new() };
        self.runs.find(query, titles)
    }

    fn create(
        &self,
        (id, definition, owner): (String, AutomationDefinition, Option<String>),
    ) -> Pending<KeptAutomation> {
        if let Err(refused) = refuse_id(&id) {
            return ready(Err(refused));
        }
        let taken = id.clone();
        let definition = AutomationDefinition { message: message(definition.message), ..definition };
        let edited = self.folder.edit(id.clone(), move |held| match (held.value, held.broken) {
            (None, None) => Ok(Edit::Write(text(definition, owner.as_deref()))),
            _ => Err(exists(&taken)),
        });
        // If a user removed the file of an earlier automation with this id, its runs remain.
        let runs = self.runs.clone();
        Box::pin(async move {
            let kept = kept(edited.await?.after, &id)?;
            runs.forget(id).await?;
            Ok(kept)
        })
    }

    /// An automation whose file cannot be read is an error, unless an earlier version could be read.
    fn get(&self, id: String) -> Pending<Option<KeptAutomation>> {
        if let Some(read) = self.folder.contents().get(&id) {
            return ready(Ok(Some(read.kept.clone())));
        }
        if refuse_id(&id).is_err() {
            return ready(Ok(None));
        }
        let path = self.folder.path().join(format!("{id}.md"));
        let looked = self.folder.edit(id, move |held| match held.broken {
            Some(why) => Err(Thrown::new(format_args!("{}: {why}", path.display()))),
            None => Ok(Edit::Unchanged),
        });
        Box::pin(async move { Ok(looked.await?.after.map(|read| read.kept.clone())) })
    }

    fn update(&self, (id, patch): (String, AutomationDefinitionPatch)) -> Pending<KeptAutomation> {
        if refuse_id(&id).is_err() {
            return ready(Err(none_such(&id)));
        }
        let path = self.folder.path().join(format!("{id}.md"));
        let sought = id.clone();
        let edited = self.folder.edit(id.clone(), move |held| match (held.value, held.broken) {
            // Writing would overwrite what a user is about to fix.
            (_, Some(why)) => {
                let line = format!("{}: {why}; fix the file before changing the automation", path.display());
                Err(RpcError::conflict(line).into())
            }
            (Some(read), None) => Ok(Edit::Write(patched_text(read, patch))),
            (None, None) => Err(none_such(&sought)),
        });
        Box::pin(async move { kept(edited.await?.after, &id) })
    }

    fn remove(&self, id: String) -> Pending<bool> {
        if refuse_id(&id).is_err() {
            return ready(Ok(false));
        }
        let edited = self
            .folder
            .edit(id.clone(), |held| Ok(if held.value.is_some() { Edit::Remove } else { Edit::Unchanged }));
        let runs = self.runs.clone();
        Box::pin(async move {
            let there = edited.await?.before.is_some();
            if there {
                runs.forget(id).await?;
            }
            Ok(there)
        })
    }
}

fn kept(after: Option<Arc<ParsedAutomation>>, id: &str) -> Result<KeptAutomation, Thrown> {
    after.map(|read| read.kept.clone()).ok_or_else(|| none_such(id))
}
