//! Changes under a file or directory, collected for a moment and reported together.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecursiveMode, Watcher as _};
use ostler_contract::points::{ChangeType, ResourceChanged};
use ostler_contract::{Call, HostFunction, RpcError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::served_path::{Roots, uri_of};

/// How long changes are collected.
const GATHERED: Duration = Duration::from_millis(50);
/// The maximum number of changes in a report.
const AT_ONCE: usize = 1000;

type OnChange = HostFunction<fn(Vec<ResourceChanged>)>;

impl Roots {
    /// Watches until the returned function is called.
    pub fn watch(
        &self,
        uri: &str,
        recursive: bool,
        on_change: OnChange,
        runtime: &Handle,
    ) -> Result<Call<fn()>, RpcError> {
        let place = self.locate(uri)?;
        let real = self.real(&place)?;
        let roots = self.clone();
        let (sender, changes) = mpsc::unbounded_channel();
        let failed = |error: notify::Error| RpcError::internal(format!("{uri} cannot be watched: {error}"));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if let Ok(event) = event {
                for change in changes_of(&event).into_iter().filter(|(path, _)| !roots.is_private(path)) {
                    // The receiver has ended.
                    let _ = sender.send(change);
                }
            }
        })
        .map_err(failed)?;
        let mode = if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        watcher.watch(&real, mode).map_err(failed)?;
        if self.real(&place)? != real {
            return Err(RpcError::conflict(format!("{uri} was moved before it could be watched")));
        }
        // The names that the caller asked for, not those behind links.
        let asked = place.path();
        let named = move |path: &Path| {
            uri_of(&path.strip_prefix(&real).map_or_else(
                |_| path.to_owned(),
                |rest| match rest.as_os_str().is_empty() {
                    true => asked.clone(),
                    false => asked.join(rest),
                },
            ))
        };
        runtime.spawn(report_gathered(changes, named, on_change));
        let watcher = Mutex::new(Some(watcher));
        Ok(Call::now(move |()| {
            if let Ok(mut watcher) = watcher.lock() {
                watcher.take();
            }
            Ok(())
        }))
    }
}

type Change = (PathBuf, ChangeType);

/// Converts an event to changes of paths. Reading is not a change.
fn changes_of(event: &Event) -> Vec<Change> {
    let of = |path: &Path, how: ChangeType| (path.to_owned(), how);
    let each = |how: ChangeType| event.paths.iter().map(|path| of(path, how)).collect();
    match event.kind {
        EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => each(ChangeType::Added),
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
            each(ChangeType::Deleted)
        }
        // Each side was already reported separately.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => Vec::new(),
        EventKind::Modify(_) | EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            each(ChangeType::Updated)
        }
        _ => Vec::new(),
    }
}

async fn report_gathered(
    mut changes: mpsc::UnboundedReceiver<Change>,
    named: impl Fn(&Path) -> String,
    on_change: OnChange,
) {
    while let Some(first) = changes.recv().await {
        tokio::time::sleep(GATHERED).await;
        let mut batch: Vec<Change> = Vec::new();
        let mut next = Some(first);
        while let Some((path, how)) = next {
            match batch.iter_mut().find(|(held, _)| *held == path) {
                Some((_, held)) => *held = both(*held, how),
                None => batch.push((path, how)),
            }
            next = if batch.len() < AT_ONCE { changes.try_recv().ok() } else { None };
        }
        let items =
            batch.iter().map(|(path, how)| ResourceChanged { uri: named(path), r#type: *how }).collect();
        // The receiver has ended.
        if on_change.call((items,)).await.is_err() {
            return;
        }
    }
}

/// Combines two successive changes.
fn both(first: ChangeType, then: ChangeType) -> ChangeType {
    match (first, then) {
        (ChangeType::Added, ChangeType::Updated) => ChangeType::Added,
        (ChangeType::Deleted, ChangeType::Added) => ChangeType::Updated,
        (_, then) => then,
    }
}
