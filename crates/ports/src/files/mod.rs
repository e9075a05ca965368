//! The files below the directories a host serves: the store behind `file:`.

mod complete;
mod place;
mod read;
mod watch;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use ostler_contract::points::{
    Reader, ResourceAccess, ResourceChanged, ResourceResolving, ResourceStore, ResourceTransfer,
    ResourceWrite, ResourceWriter,
};
use ostler_contract::{Call, HostFunction, RpcError};

use crate::watchers::{blocking, runtime};
use place::Roots;
use write::Writing;

/// The files below some directories. What a client names outside them is refused, by whatever way it goes there.
#[derive(Debug)]
pub struct DiskFiles {
    roots: Roots,
    writing: Writing,
}

impl DiskFiles {
    /// The files below these directories.
    pub fn new(served: &[PathBuf]) -> Self {
        Self::without(served, &[])
    }

    /// The files below these directories, but for those that are the host's own: what it keeps its secrets, its people
    /// and its automations in. They are neither read nor written, listed nor watched, whichever way leads there.
    pub fn without(served: &[PathBuf], private: &[PathBuf]) -> Self {
        Self { roots: Roots::new(served, private), writing: Writing::default() }
    }

    /// The files as the point has them.
    pub fn into_point(self: Arc<Self>) -> ResourceStore {
        /// A call that works on the disk where that holds nobody up.
        macro_rules! on_disk {
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
            list: on_disk!(|store, (uri, _): Read| store.roots.list(&uri)),
            read: on_disk!(|store, (uri, _): Read| store.roots.read(&uri)),
            resolve: on_disk!(|store, (uri, _, options): (String, Option<Reader>, ResourceResolving)| {
                store.roots.resolve(&uri, options)
            }),
            complete: on_disk!(|store, (directory, typed): (String, String)| {
                store.roots.complete(&directory, &typed)
            }),
            write: Some(on_disk!(|store, (uri, content, _): (String, ResourceWrite, ResourceWriter)| {
                let _alone = store.writing.alone();
                store.roots.write(&uri, &content)
            })),
            delete: Some(on_disk!(|store, (uri, recursive, _): (String, bool, ResourceWriter)| {
                let _alone = store.writing.alone();
                store.roots.delete(&uri, recursive)
            })),
            mkdir: Some(on_disk!(|store, (uri, _): (String, ResourceWriter)| {
                let _alone = store.writing.alone();
                store.roots.mkdir(&uri)
            })),
            r#move: Some(on_disk!(|store, (source, destination, options, _): Transfer| {
                let _alone = store.writing.alone();
                store.roots.transfer(&source, &destination, options, false)
            })),
            copy: Some(on_disk!(|store, (source, destination, options, _): Transfer| {
                let _alone = store.writing.alone();
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
