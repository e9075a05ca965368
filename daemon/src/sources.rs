//! The files of plugins, and the detection of their changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ostler_js::FileSink;
use parking_lot::Mutex;

/// How often the files are checked. Events of the system would miss network file systems, and editors that replace a
/// file instead of writing it.
const LOOK: Duration = Duration::from_millis(200);

/// The files of plugins, with their state when they were read. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Sources(Arc<Mutex<Files>>);

type Files = BTreeMap<PathBuf, Stamp>;

/// The state of a file, which shows changes; `None` if there is no file.
type Stamp = Option<(Option<SystemTime>, u64)>;

fn stamp(path: &Path) -> Stamp {
    fs::metadata(path).ok().map(|found| (found.modified().ok(), found.len()))
}

impl Sources {
    /// Records each file from which an engine reads a module.
    pub fn sink(&self) -> FileSink {
        let sources = self.clone();
        Arc::new(move |path| sources.add(path))
    }

    /// Records the current state of a file, existing or not. A recorded file stays unchanged.
    pub fn add(&self, path: &Path) {
        let mut files = self.0.lock();
        if !files.contains_key(path) {
            files.insert(path.to_owned(), stamp(path));
        }
    }

    /// Records the file of a plugin and the manifest of its package.
    pub fn add_module(&self, module: &Path) {
        self.add(module);
        let manifest =
            module.ancestors().skip(1).map(|dir| dir.join("package.json")).find(|path| path.is_file());
        if let Some(manifest) = manifest {
            self.add(&manifest);
        }
    }

    /// Records the current state of all files.
    pub fn refresh(&self) {
        self.0.lock().iter_mut().for_each(|(path, seen)| *seen = stamp(path));
    }

    /// Returns whether a recorded file has changed.
    pub fn have_changed(&self) -> bool {
        self.look().is_some()
    }

    /// Waits until a recorded file has changed and is no longer written to; returns it.
    pub async fn changed(&self) -> PathBuf {
        let mut last = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let sources = self.clone();
            let Ok(found) = tokio::task::spawn_blocking(move || sources.look()).await else { continue };
            match found {
                Some(found) if last.as_ref() == Some(&found) => return found.0,
                found => last = found,
            }
        }
    }

    /// Returns the first changed file, and the current state of the files.
    fn look(&self) -> Option<(PathBuf, Files)> {
        let seen = self.0.lock().clone();
        let now: Files = seen.keys().map(|path| (path.clone(), stamp(path))).collect();
        let changed = now.iter().find(|(path, stamp)| seen.get(*path) != Some(*stamp))?.0.clone();
        Some((changed, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_once_the_files_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        let sources = Sources::default();
        write("package.json", "{}");
        write("a.ts", "1");
        sources.add_module(&path("a.ts"));
        sources.add(&path("not-yet.ts"));
        let quiet = Duration::from_secs(60);
        assert!(tokio::time::timeout(quiet, sources.changed()).await.is_err());
        write("other.ts", "1");
        assert!(tokio::time::timeout(quiet, sources.changed()).await.is_err());
        for (name, text) in [("a.ts", "12"), ("package.json", "{ }"), ("not-yet.ts", "")] {
            write(name, text);
            assert_eq!(sources.changed().await, path(name));
            sources.refresh();
        }
        fs::remove_file(path("a.ts")).unwrap();
        assert_eq!(sources.changed().await, path("a.ts"));
    }
}
