//! The watched folder of one designated host: edits of files reach the database.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ostler_contract::{JsonObject, Thrown};
use ostler_engine::Log;

use super::{EditedFolder, Force, Outcome};
use crate::parts::postgres::Direct;

/// How often the folder is compared. Editors replace files in several steps, which one comparison can see.
const LOOK: Duration = Duration::from_secs(1);

/// A watch, until dropped.
pub struct FileWatch(tokio::task::JoinHandle<()>);

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Follows the files of a configuration folder.
pub fn follow(
    options: JsonObject,
    (config_dir, state_dir): (PathBuf, PathBuf),
    users: Option<PathBuf>,
    log: Log,
) -> FileWatch {
    FileWatch(tokio::spawn(async move {
        let folder = EditedFolder::of_host(&config_dir, &state_dir, &[], users);
        let mut watch = Watch { seen: None, direct: None, reported: BTreeSet::new(), failed: None };
        loop {
            match watch.look(&folder, &options, &config_dir).await {
                Ok(Some(outcome)) => watch.report(&outcome, &log),
                Ok(None) => {}
                Err(why) => {
                    // Connected again the next time.
                    (watch.direct, watch.seen) = (None, None);
                    let why = why.message;
                    if watch.failed.as_ref() != Some(&why) {
                        log.warn(format_args!("watched files: {why}; retrying"));
                    }
                    watch.failed = Some(why);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }))
}

/// A file as it was last compared.
type Stamp = (u64, Option<SystemTime>);

struct Watch {
    seen: Option<BTreeMap<PathBuf, Stamp>>,
    direct: Option<Arc<Direct>>,
    /// Conflicts that were logged.
    reported: BTreeSet<(String, String)>,
    failed: Option<String>,
}

impl Watch {
    /// Imports the files if one of them has changed.
    async fn look(
        &mut self,
        folder: &EditedFolder,
        options: &JsonObject,
        config_dir: &Path,
    ) -> Result<Option<Outcome>, Thrown> {
        let now = stamps(folder);
        if self.seen.as_ref() == Some(&now) {
            return Ok(None);
        }
        let direct = match self.direct.clone() {
            Some(direct) => direct,
            None => Direct::connect(options, config_dir).await?,
        };
        self.direct = Some(direct.clone());
        let outcome = folder.import(&direct, &[], Force { overwrite: false, remove: true }).await?;
        self.seen = Some(now);
        Ok(Some(outcome))
    }

    fn report(&mut self, outcome: &Outcome, log: &Log) {
        if self.failed.take().is_some() {
            log.info("watched files: the database answers again");
        }
        for name in &outcome.stored {
            log.info(format_args!("watched files: stored {name} in the database"));
        }
        for name in &outcome.removed {
            log.warn(format_args!(
                "watched files: removed {name} from the database, because its file was removed"
            ));
        }
        let conflicts: BTreeSet<_> = outcome.conflicts.iter().cloned().collect();
        for (name, why) in conflicts.difference(&self.reported) {
            log.warn(format_args!("watched files: {name} is not stored: {why}"));
        }
        self.reported = conflicts;
    }
}

/// The size and the time of each file.
fn stamps(folder: &EditedFolder) -> BTreeMap<PathBuf, Stamp> {
    let mut found = BTreeMap::new();
    let mut add = |path: PathBuf| {
        if let Ok(about) = std::fs::metadata(&path).as_ref()
            && about.is_file()
        {
            found.insert(path, (about.len(), about.modified().ok()));
        }
    };
    for path in folder.paths() {
        match std::fs::read_dir(&path) {
            Ok(entries) => entries.flatten().for_each(|entry| add(entry.path())),
            Err(_) => add(path),
        }
    }
    found
}
