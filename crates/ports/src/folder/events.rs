//! Events of the operating system about the folders of one configuration folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::FolderEvent;

type Tell = Arc<dyn Fn(FolderEvent) + Send + Sync>;
type Routes = Arc<Mutex<HashMap<PathBuf, Tell>>>;

/// One watcher for all folders, because the number of watchers of a system is small.
pub(crate) struct Events {
    config_dir: PathBuf,
    system: Mutex<Result<System, String>>,
    routes: Routes,
}

struct System {
    watcher: RecommendedWatcher,
    /// The configuration folder that is watched, for folders that are created and removed in it.
    config_dir: Option<FolderId>,
}

/// Identifies the folder that a path leads to: its inode, where inodes exist.
pub(super) type FolderId = u64;

pub(super) fn folder_id(path: &Path) -> Option<FolderId> {
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_dir)?;
    #[cfg(unix)]
    let id = std::os::unix::fs::MetadataExt::ino(&found);
    #[cfg(not(unix))]
    let id = found.created().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis() as u64;
    Some(id)
}

impl Events {
    pub(crate) fn new(config_dir: &Path) -> Self {
        let routes = Routes::default();
        let told = routes.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let routes = told.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(event) => tell(&routes, &event),
                Err(_) => routes.values().for_each(|tell| tell(FolderEvent::Lost)),
            }
        });
        let system = watcher.map(|watcher| System { watcher, config_dir: None });
        let system = Mutex::new(system.map_err(|error| error.to_string()));
        Self { config_dir: config_dir.to_owned(), system, routes }
    }

    /// Reports the events of a folder from now on, if it is watched.
    pub(super) fn route(&self, folder: &Path, tell: impl Fn(FolderEvent) + Send + Sync + 'static) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.insert(folder.to_owned(), Arc::new(tell));
    }

    /// Watches a folder, and its creation and removal. Returns the id of the folder that the path leads to, if it
    /// exists.
    pub(super) fn watch(&self, folder: &Path) -> Result<Option<FolderId>, String> {
        let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
        let system = system.as_mut().map_err(|error| error.clone())?;
        let mut watch = |path: &Path| {
            let id = folder_id(path)?;
            // A watch stays with a folder that was moved away.
            let _ = system.watcher.unwatch(path);
            Some(system.watcher.watch(path, RecursiveMode::NonRecursive).map(|()| id))
        };
        if folder_id(&self.config_dir) != system.config_dir {
            system.config_dir = watch(&self.config_dir).transpose().map_err(|error| error.to_string())?;
        }
        match watch(folder) {
            // It was removed in the meantime.
            Some(Err(_)) if !folder.exists() => Ok(None),
            watched => watched.transpose().map_err(|error| error.to_string()),
        }
    }

    pub(super) fn forget(&self, folder: &Path) {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
        if let Ok(system) = self.system.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            // It was removed, or never watched.
            let _ = system.watcher.unwatch(folder);
        }
    }
}

fn tell(routes: &HashMap<PathBuf, Tell>, event: &Event) {
    if event.need_rescan() {
        routes.values().for_each(|tell| tell(FolderEvent::Lost));
        return;
    }
    // Reading is not a change, and the host itself reads.
    if matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write)) {
        return;
    }
    for path in &event.paths {
        if let Some(tell) = routes.get(path) {
            tell(FolderEvent::Folder);
        } else if let Some(tell) = path.parent().and_then(|folder| routes.get(folder)) {
            match path.file_name().and_then(|name| name.to_str()) {
                Some(name) => tell(FolderEvent::File(name.to_owned())),
                None => tell(FolderEvent::Lost),
            }
        }
    }
}
