//! The files below the directories a host serves: the store behind `file:`.

mod complete;
mod git_folder;
mod path_index;
mod read;
mod served_path;
mod watch;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use ostler_contract::points::{
    Reader, ResourceAccess, ResourceChanged, ResourceResolving, ResourceStore, ResourceTransfer,
    ResourceWrite, ResourceWriter,
};
use ostler_contract::{Call, HostFunction};

use tokio::sync::Semaphore;

use ostler_contract::stores::watchers::{blocking, runtime};
use served_path::Roots;

/// How many directories are listed, and how many are searched, concurrently.
const AT_ONCE: usize = 2;

/// The files below served directories. Paths outside them are rejected, also through links.
#[derive(Debug)]
pub struct DiskFiles {
    roots: Roots,
    /// One change at a time, so that the checks of a change are still valid when it writes.
    changing: Arc<Semaphore>,
    /// Lists and searches have all names of a directory in memory, so only a few run concurrently. Waiting ones use no
    /// thread.
    listing: Arc<Semaphore>,
    searching: Arc<Semaphore>,
}

impl DiskFiles {
    /// Creates the store of the files below these directories.
    pub fn new(served: &[PathBuf]) -> Self {
        Self::without(served, &[])
    }

    /// Creates the store of the files below these directories, except for private ones of the host: its secrets, users
    /// and automations. Those cannot be read, written, listed or watched, by any path.
    pub fn without(served: &[PathBuf], private: &[PathBuf]) -> Self {
        let of = |at_once| Arc::new(Semaphore::new(at_once));
        Self {
            roots: Roots::new(served, private),
            changing: of(1),
            listing: of(AT_ONCE),
            searching: of(AT_ONCE),
        }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> ResourceStore {
        /// Returns a call that accesses the disk on a thread for blocking work, once the semaphore, if any, has a
        /// permit.
        macro_rules! on_disk {
            ($turns:ident, |$store:ident, $arguments:tt: $types:ty| $body:expr) => {{
                let store = self.clone();
                Call::new(move |$arguments: $types| {
                    let $store = store.clone();
                    async move {
                        let turn = $store.$turns.clone().acquire_owned().await;
                        blocking(move || {
                            // Held until the work ends, even if the caller no longer waits.
                            let _turn = turn;
                            $body
                        })
                        .await?
                        .map_err(Into::into)
                    }
                })
            }};
            (|$store:ident, $arguments:tt: $types:ty| $body:expr) => {{
                let store = self.clone();
                Call::new(move |$arguments: $types| {
                    let $store = store.clone();
                    async move { blocking(move || $body).await?.map_err(Into::into) }
                })
            }};
        }
        type Read = (String, Option<Reader>);
        type Transfer = (String, String, ResourceTransfer, ResourceWriter);
        type Watch = (String, bool, HostFunction<fn(Vec<ResourceChanged>)>);
        let watched = self.clone();
        ResourceStore {
            list: on_disk!(listing, |store, (uri, _): Read| store.roots.list(&uri)),
            read: on_disk!(|store, (uri, _): Read| store.roots.read(&uri)),
            resolve: on_disk!(|store, (uri, _, options): (String, Option<Reader>, ResourceResolving)| {
                store.roots.resolve(&uri, options)
            }),
            complete: on_disk!(searching, |store, (directory, typed): (String, String)| {
                store.roots.complete(&directory, &typed)
            }),
            write: Some(on_disk!(
                changing,
                |store, (uri, content, _): (String, ResourceWrite, ResourceWriter)| {
                    store.roots.write(&uri, &content)
                }
            )),
            delete: Some(on_disk!(changing, |store, (uri, recursive, _): (String, bool, ResourceWriter)| {
                store.roots.delete(&uri, recursive)
            })),
            mkdir: Some(on_disk!(changing, |store, (uri, _): (String, ResourceWriter)| {
                store.roots.mkdir(&uri)
            })),
            r#move: Some(on_disk!(changing, |store, (source, destination, options, _): Transfer| {
                store.roots.transfer(&source, &destination, options, false)
            })),
            copy: Some(on_disk!(changing, |store, (source, destination, options, _): Transfer| {
                store.roots.transfer(&source, &destination, options, true)
            })),
            // Served files are available to callers with the grant; nothing else can be requested.
            request: Some(on_disk!(|store, (uri, ..): (String, ResourceWriter, ResourceAccess)| {
                store.roots.locate(&uri).map(drop)
            })),
            watch: Some(Call::new(move |(uri, recursive, told): Watch| {
                let store = watched.clone();
                async move {
                    let runtime = runtime()?;
                    let watch =
                        blocking(move || store.roots.watch(&uri, recursive, told, &runtime)).await??;
                    Ok(Some(watch))
                }
            })),
        }
    }
}
