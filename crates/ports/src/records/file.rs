//! Records as files: `<configDir>/<name>/<id>.md`.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{CollectionOptions, RecordChange, RecordStore, StoredCollection};
use ostler_contract::problems::ProblemKind;
use ostler_contract::{Call, JsonObject, Slug, Thrown, Value};
use tokio::sync::OnceCell;

use super::encoded::EncodedRecord;
use super::find::{Snapshot, index};
use super::format::RecordFormat;
use super::uncached::UncachedCollection;
use super::{check_options, check_record};
use crate::Report;
use crate::atomic::{self, Access, Staged};
use crate::folder::{Edit, Events, Folder, FolderSetup, Watching, read_text};
use ostler_contract::stores::equality::contains_fields;
use ostler_contract::stores::watchers::{Watchers, blocking};

/// Up to this number, records are searched on the caller's thread.
const FEW: usize = 500;

/// Records in the configuration folder, one file each, which users can edit while the host runs.
pub struct FileRecords {
    config_dir: PathBuf,
    report: Report,
    watching: Watching,
    events: Arc<Events>,
    open: Mutex<HashMap<String, Arc<OnceCell<Open>>>>,
}

/// An open collection.
#[derive(Clone)]
enum Open {
    Cached(Arc<FileCollection>),
    Uncached(Arc<UncachedCollection>),
}

impl Open {
    /// Returns its options.
    fn options(&self) -> CollectionOptions {
        match self {
            Self::Cached(collection) => CollectionOptions { body: collection.body.clone(), uncached: None },
            Self::Uncached(collection) => {
                CollectionOptions { body: collection.body().cloned(), uncached: Some(true) }
            }
        }
    }
}

impl FileRecords {
    /// Creates the store of a configuration folder. The first record of a collection creates its folder.
    pub fn new(config_dir: &Path, report: Report) -> Self {
        Self::watched(config_dir, report, Watching::Events)
    }

    /// Like [`Self::new`], with a choice of how edits are noticed.
    pub fn watched(config_dir: &Path, report: Report, watching: Watching) -> Self {
        let config_dir = fs::canonicalize(config_dir).unwrap_or_else(|_| config_dir.to_owned());
        let events = Arc::new(Events::new(&config_dir));
        Self { config_dir, report, watching, events, open: Mutex::default() }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> RecordStore {
        RecordStore {
            collection: Call::new(move |(name, options): (String, CollectionOptions)| {
                let store = self.clone();
                async move { store.collection(name, options).await }
            }),
            // Every acknowledged change is in its file.
            close: None,
        }
    }

    async fn collection(&self, name: String, options: CollectionOptions) -> Result<StoredCollection, Thrown> {
        check_options(&name, &options)?;
        let cell = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.entry(name.clone()).or_default().clone()
        };
        let collection = cell.get_or_try_init(|| self.open(name.clone(), options.clone())).await?.clone();
        let held = collection.options();
        if held.body != options.body {
            let word = |body: Option<String>| body.unwrap_or_else(|| "none".to_owned());
            let (held, asked) = (word(held.body), word(options.body));
            return Err(Thrown::new(format_args!(
                "records {name} is already open with body {held}; cannot open it with body {asked}"
            )));
        }
        // Both collections would write to its files.
        if held.uncached != options.uncached.filter(|uncached| *uncached) {
            let word = if held.uncached.is_some() { "uncached" } else { "cached" };
            return Err(Thrown::new(format_args!(
                "records {name} is already open and {word}; open it with the same option uncached"
            )));
        }
        Ok(match collection {
            Open::Cached(collection) => collection.into_point(),
            Open::Uncached(collection) => collection.into_point(),
        })
    }

    async fn open(&self, name: String, options: CollectionOptions) -> Result<Open, Thrown> {
        if options.uncached != Some(true) {
            return self.read(name, options.body).await.map(Open::Cached);
        }
        let format = RecordFormat { body: options.body };
        let opened = UncachedCollection::open(name, &self.config_dir, format, self.report.clone());
        opened.await.map(|opened| Open::Uncached(Arc::new(opened)))
    }

    async fn read(&self, name: String, body: Option<String>) -> Result<Arc<FileCollection>, Thrown> {
        let watchers = Watchers::new(format!("records {name}"), self.report.clone())?;
        let told = watchers.clone();
        let setup = FolderSetup {
            path: self.config_dir.join(&name),
            events: self.events.clone(),
            watching: self.watching,
            kind: ProblemKind::Records,
            report: self.report.clone(),
            tell: Box::new(move |changed| {
                told.notify(&RecordChange { id: changed.id.as_ref().to_owned(), r#type: changed.how });
            }),
        };
        let format = RecordFormat { body: body.clone() };
        let folder = blocking(move || {
            convert(&setup.path, &format, &setup.report);
            Folder::open(setup, format)
        })
        .await?
        .map_err(Thrown::new)?;
        Ok(Arc::new(FileCollection { name, body, folder, watchers }))
    }
}

struct FileCollection {
    name: String,
    body: Option<String>,
    folder: Folder<RecordFormat>,
    watchers: Watchers<RecordChange>,
}

impl FileCollection {
    fn into_point(self: Arc<Self>) -> StoredCollection {
        let (get, list, find) = (self.clone(), self.clone(), self.clone());
        let (ids, put, remove, watch) = (self.clone(), self.clone(), self.clone(), self);
        StoredCollection {
            get: Call::now(move |(id,): (String,)| Ok(get.encoded(&id).map(|record| record.decode()))),
            ids: Some(Call::now(move |()| {
                Ok(ids.folder.contents().iter().map(|(id, _)| id.as_ref().to_owned()).collect())
            })),
            list: Call::new(move |()| list.clone().find(JsonObject::new())),
            find: Call::new(move |(wanted,)| find.clone().find(wanted)),
            put: Call::new(move |(record,)| put.put(record)),
            remove: Call::new(move |(id,)| remove.remove(id)),
            watch: Call::now(move |(on_change,)| Ok(Some(watch.watchers.add(on_change)))),
        }
    }

    fn encoded(&self, id: &str) -> Option<EncodedRecord> {
        self.folder.contents().get(id).cloned()
    }

    async fn find(self: Arc<Self>, wanted: JsonObject) -> Result<Vec<JsonObject>, Thrown> {
        let few = self.folder.contents().len() <= FEW;
        let narrowed = if few { Some(self.all()) } else { self.candidates(&wanted) };
        match narrowed {
            Some(candidates) if candidates.len() <= FEW => Ok(matching(&candidates, &wanted)),
            Some(candidates) => blocking(move || matching(&candidates, &wanted)).await,
            None => {
                blocking(move || {
                    self.index(&wanted);
                    matching(&self.candidates(&wanted).unwrap_or_else(|| self.all()), &wanted)
                })
                .await
            }
        }
    }

    fn all(&self) -> Vec<EncodedRecord> {
        self.folder.contents().iter().map(|(_, record)| record.clone()).collect()
    }

    /// Returns the records that can match, according to the existing index.
    fn candidates(&self, wanted: &JsonObject) -> Option<Vec<EncodedRecord>> {
        let contents = self.folder.contents();
        let mut ids = contents.index.candidates(wanted)?;
        ids.sort_unstable();
        Some(ids.into_iter().filter_map(|id| contents.get(id).cloned()).collect())
    }

    /// Adds the searched fields to the index. Only the searching caller waits.
    fn index(&self, wanted: &JsonObject) {
        for field in self.folder.change(|contents| contents.index.begin(wanted)) {
            let snapshot: Snapshot =
                self.folder.contents().iter().map(|(id, record)| (id.clone(), record.clone())).collect();
            let made = index(&field, &snapshot);
            self.folder.change(|contents| {
                let (finder, entries) = contents.index_and_entries();
                finder.end(field, made, &snapshot, |id| entries.get(id));
            });
        }
    }

    fn put(&self, record: JsonObject) -> Pending<()> {
        let id = match check_record(&self.name, self.body.as_deref(), &record) {
            Ok(id) => id,
            Err(thrown) => return ready(Err(thrown)),
        };
        let format = RecordFormat { body: self.body.clone() };
        let edited = self.folder.edit(id, move |_| Ok(Edit::Write(format.text(record))));
        Box::pin(async move { edited.await.map(drop) })
    }

    fn remove(&self, id: String) -> Pending<bool> {
        if Slug::parse(&id).is_none() {
            return ready(Ok(false));
        }
        let edited = self
            .folder
            .edit(id, |held| Ok(if held.value.is_some() { Edit::Remove } else { Edit::Unchanged }));
        Box::pin(async move { edited.await.map(|edited| edited.before.is_some()) })
    }
}

fn matching(candidates: &[EncodedRecord], wanted: &JsonObject) -> Vec<JsonObject> {
    candidates.iter().map(EncodedRecord::decode).filter(|record| contains_fields(record, wanted)).collect()
}

/// Converts records of earlier versions to Markdown: `<id>.json` without `<id>.md` beside it.
pub(super) fn convert(folder: &Path, format: &RecordFormat, report: &Report) {
    let Ok(files) = fs::read_dir(folder) else { return };
    let mut converted = Vec::new();
    for file in files.flatten() {
        let path = file.path();
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
        let Some(id) = id.filter(|id| Slug::parse(id).is_some()) else { continue };
        let target = path.with_extension("md");
        if target.exists() {
            continue;
        }
        match convert_one(&path, id, &target, format) {
            Ok(()) => converted.push(path),
            Err(why) => {
                report.say(format!("{}: {why}; not converted until the file is fixed", path.display()))
            }
        }
    }
    if converted.is_empty() {
        return;
    }
    // A record is durable as Markdown before its JSON file is renamed.
    if let Err(error) = atomic::sync_folder(folder) {
        report.say(format!("{} could not be written: {error}", folder.display()));
        return;
    }
    for path in converted {
        if let Err(error) = fs::rename(&path, path.with_extension("json.migrated"))
            && error.kind() != ErrorKind::NotFound
        {
            report.say(format!("converted {}, but could not rename it: {error}", path.display()));
        }
    }
}

fn convert_one(path: &Path, id: &str, target: &Path, format: &RecordFormat) -> Result<(), String> {
    let record = match serde_json::from_str(&read_text(path)?) {
        Ok(Value::Object(record)) => record,
        Ok(_) => return Err("a record must be an object".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let (mut fields, mut text) = (record, String::new());
    if let Some(Value::String(body)) = format.body.as_ref().and_then(|body| fields.shift_remove(body)) {
        text = body;
    }
    let record = format.complete(id, fields, &text)?;
    Staged::new(target, format.text(record).as_bytes(), Access::Owner)
        .and_then(Staged::place)
        .map(drop)
        .map_err(|error| error.to_string())
}
