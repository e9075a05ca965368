//! A collection without a cache: each call reads the files that it needs.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ostler_contract::points::{ChangeType, RecordChange, StoredCollection};
use ostler_contract::problems::{Finding, ProblemKind};
use ostler_contract::{Call, JsonObject, Slug, Thrown};

use super::check_record;
use super::file::convert;
use super::format::RecordFormat;
use crate::Report;
use crate::atomic::{self, Access};
use crate::folder::REPAIR;
use crate::folder::read_text;
use crate::frontmatter;
use crate::worker::Worker;
use ostler_contract::stores::equality::{contains_fields, equal_objects};
use ostler_contract::stores::watchers::{Watchers, blocking};

const SUFFIX: &str = ".md";

/// A collection in a folder. One thread accesses the files, in the order of the calls.
pub(super) struct UncachedCollection {
    body: Option<String>,
    files: Worker<Files>,
    watchers: Watchers<RecordChange>,
}

struct Files {
    name: String,
    folder: PathBuf,
    format: RecordFormat,
    report: Report,
    watchers: Watchers<RecordChange>,
    /// The records that could not be read when all were read last.
    broken: Mutex<BTreeSet<String>>,
}

impl UncachedCollection {
    pub(super) async fn open(
        name: String,
        config_dir: &Path,
        format: RecordFormat,
        report: Report,
    ) -> Result<Self, Thrown> {
        let watchers = Watchers::new(format!("records {name}"), report.clone())?;
        let body = format.body.clone();
        let folder = config_dir.join(&name);
        let files =
            Files { name, folder, format, report, watchers: watchers.clone(), broken: Mutex::default() };
        let files = blocking(move || {
            convert(&files.folder, &files.format, &files.report);
            atomic::sweep(&files.folder);
            let name = files.name.clone();
            Worker::start(&name, files)
        });
        let files =
            files.await?.map_err(|error| Thrown::new(format_args!("cannot start a thread: {error}")))?;
        Ok(Self { body, files, watchers })
    }

    /// Returns the field with a record's long text.
    pub(super) fn body(&self) -> Option<&String> {
        self.body.as_ref()
    }

    pub(super) fn into_point(self: Arc<Self>) -> StoredCollection {
        macro_rules! on_disk {
            ($work:expr) => {{
                let collection = self.clone();
                Call::new(move |arguments| collection.files.ask(move |files| $work(files, arguments)))
            }};
        }
        let watch = self.clone();
        StoredCollection {
            get: on_disk!(|files: &Files, (id,): (String,)| files.read(&id)),
            ids: Some(on_disk!(|files: &Files, ()| files.ids())),
            list: on_disk!(|files: &Files, ()| files.find(&JsonObject::new())),
            find: on_disk!(|files: &Files, (wanted,)| files.find(&wanted)),
            put: on_disk!(|files: &Files, (record,)| files.put(record)),
            remove: on_disk!(|files: &Files, (id,): (String,)| files.remove(id)),
            watch: Call::now(move |(on_change,)| Ok(Some(watch.watchers.add(on_change)))),
        }
    }
}

impl Files {
    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}{SUFFIX}"))
    }

    fn ids(&self) -> Result<Vec<String>, Thrown> {
        let files = match fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(Thrown::new(format_args!("{} cannot be read: {error}", self.folder.display())));
            }
        };
        let mut ids = Vec::new();
        for file in files {
            let file = file.map_err(Thrown::new)?;
            let name = file.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            ids.extend(id.filter(|id| Slug::parse(id).is_some()).map(str::to_owned));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Returns one record. An existing file that cannot be read is an error.
    fn read(&self, id: &str) -> Result<Option<JsonObject>, Thrown> {
        let path = self.path(id);
        // Opening a pipe would wait for a writer.
        if Slug::parse(id).is_none() || !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            return Ok(None);
        }
        let record = read_text(&path).and_then(|text| self.parse(id, &text));
        record.map(Some).map_err(|why| Thrown::new(format_args!("{}: {why}", path.display())))
    }

    fn parse(&self, id: &str, text: &str) -> Result<JsonObject, String> {
        let (fields, body) = frontmatter::split(text).map_err(|error| error.to_string())?;
        self.format.complete(id, fields, &body)
    }

    fn find(&self, wanted: &JsonObject) -> Result<Vec<JsonObject>, Thrown> {
        let mut found = Vec::new();
        let mut broken = BTreeSet::new();
        for id in self.ids()? {
            match self.read(&id) {
                Ok(record) => found.extend(record.filter(|record| contains_fields(record, wanted))),
                Err(why) => {
                    let line = format!("{}; skipped until the file is fixed", why.message);
                    self.set_problems(&id, vec![Finding::error(line.clone()).fixed_by(REPAIR)]);
                    self.report.say(line);
                    broken.insert(id);
                }
            }
        }
        let mut before = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        before.difference(&broken).for_each(|repaired| self.set_problems(repaired, Vec::new()));
        *before = broken;
        Ok(found)
    }

    fn set_problems(&self, id: &str, findings: Vec<Finding>) {
        self.report.set(ProblemKind::Records, &self.path(id).display().to_string(), findings);
    }

    fn put(&self, record: JsonObject) -> Result<(), Thrown> {
        let id = check_record(&self.name, self.format.body.as_deref(), &record)?;
        let path = self.path(&id);
        let text = self.format.text(record);
        // Text that cannot be parsed again is not written.
        let record = self.parse(&id, &text);
        let record = record.map_err(|why| Thrown::new(format_args!("cannot store {id}: {why}")))?;
        let how = match path.exists() {
            true if self
                .read(&id)
                .is_ok_and(|held| held.is_some_and(|held| equal_objects(&held, &record))) =>
            {
                return Ok(());
            }
            true => ChangeType::Updated,
            false => ChangeType::Added,
        };
        let written = match self.folder.is_dir() {
            true => Ok(()),
            false => atomic::make_folder(&self.folder),
        };
        written
            .and_then(|()| atomic::write(&path, text.as_bytes(), Access::Owner))
            .map_err(|error| self.unwritten(&error))?;
        self.set_problems(&id, Vec::new());
        self.watchers.notify(&RecordChange { id, r#type: how });
        Ok(())
    }

    fn remove(&self, id: String) -> Result<bool, Thrown> {
        if Slug::parse(&id).is_none() {
            return Ok(false);
        }
        match fs::remove_file(self.path(&id)) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(error) => return Err(self.unwritten(&error)),
        }
        atomic::sync_folder(&self.folder).map_err(|error| self.unwritten(&error))?;
        self.set_problems(&id, Vec::new());
        self.watchers.notify(&RecordChange { id, r#type: ChangeType::Deleted });
        Ok(true)
    }

    fn unwritten(&self, error: &std::io::Error) -> Thrown {
        Thrown::new(format_args!("{} could not be written: {error}", self.folder.display()))
    }
}
