//! The files below the directories a host serves: the store behind `file:`.

mod complete;
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
use ostler_contract::{Call, HostFunction, RpcError};

use tokio::sync::Semaphore;

use ostler_contract::stores::watchers::{blocking, runtime};
use served_path::Roots;

/// How many directories are listed, and how many are searched, at the same time.
const AT_ONCE: usize = 2;

/// The files below some directories. What a client names outside them is refused, by whatever way it goes there.
#[derive(Debug)]
pub struct DiskFiles {
    roots: Roots,
    /// One change at a time, so that what one looks at is still so when it writes.
    changing: Arc<Semaphore>,
    /// Lists and searches hold every name of a directory: a few at a time. Whoever waits holds no thread.
    listing: Arc<Semaphore>,
    searching: Arc<Semaphore>,
}

impl DiskFiles {
    /// The files below these directories.
    pub fn new(served: &[PathBuf]) -> Self {
        Self::without(served, &[])
    }

    /// The files below these directories, but for those that are the host's own: what it keeps its secrets, its people
    /// and its automations in. They are neither read nor written, listed nor watched, whichever way leads there.
    pub fn without(served: &[PathBuf], private: &[PathBuf]) -> Self {
        let of = |at_once| Arc::new(Semaphore::new(at_once));
        Self {
            roots: Roots::new(served, private),
            changing: of(1),
            listing: of(AT_ONCE),
            searching: of(AT_ONCE),
        }
    }

    /// The files as the point has them.
    pub fn into_point(self: Arc<Self>) -> ResourceStore {
        /// A call that works on the disk where that holds nobody up; with a semaphore, when there is a permit of it.
        macro_rules! on_disk {
            ($turns:ident, |$store:ident, $arguments:tt: $types:ty| $body:expr) => {{
                let store = self.clone();
                Call::new(move |$arguments: $types| {
                    let $store = store.clone();
                    async move {
                        let turn = $store.$turns.clone().acquire_owned().await;
                        blocking(move || {
                            // Until the work ends: nobody may wait for it any more.
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
            // What is served is open to who holds the grant; nothing else is to be had.
            request: Some(on_disk!(|store, (uri, ..): (String, ResourceWriter, ResourceAccess)| {
                let unmediated = RpcError::permission_denied(format!("This host does not mediate {uri}"));
                store.roots.locate(&uri).map(drop).map_err(|_| unmediated)
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
