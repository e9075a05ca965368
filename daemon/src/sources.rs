//! The files plugins are made of, and noticing that one of them changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ostler_js::FileSink;
use parking_lot::Mutex;

/// How often the files are looked at. Notices of the system would miss network file systems, and editors that replace a
/// file rather than write it.
const LOOK: Duration = Duration::from_millis(200);

/// The files plugins are made of, as they were when they were read. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Sources(Arc<Mutex<Files>>);

type Files = BTreeMap<PathBuf, Stamp>;

/// What tells a file from what it was before; `None` where there is none.
type Stamp = Option<(Option<SystemTime>, u64)>;

fn stamp(path: &Path) -> Stamp {
    fs::metadata(path).ok().map(|found| (found.modified().ok(), found.len()))
}

impl Sources {
    /// Notes each file an engine reads a module from.
    pub fn sink(&self) -> FileSink {
        let sources = self.clone();
        Arc::new(move |path| sources.add(path))
    }

    /// Notes a file, there or not, as it is now. One that was noted before stays as it was.
    pub fn add(&self, path: &Path) {
        let mut files = self.0.lock();
        if !files.contains_key(path) {
            files.insert(path.to_owned(), stamp(path));
        }
    }

    /// Notes the file of a plugin and the manifest of its package.
    pub fn add_module(&self, module: &Path) {
        self.add(module);
        let manifest =
            module.ancestors().skip(1).map(|dir| dir.join("package.json")).find(|path| path.is_file());
        if let Some(manifest) = manifest {
            self.add(&manifest);
        }
    }

    /// Notes every file anew, as it is now.
    pub fn refresh(&self) {
        self.0.lock().iter_mut().for_each(|(path, seen)| *seen = stamp(path));
    }

    /// Waits until a file is another than it was when it was noted, and is written to no longer; returns it.
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

    /// The first file that is another, and what the files are now.
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
