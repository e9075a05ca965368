//! The store behind `file:`. Spec: *Registration methods*.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract_derive::Cross;
use ostler_protocol::RpcError;
use ostler_protocol::wire::commands::DirectoryEntry;
use serde::{Deserialize, Serialize};

use super::{
    Encoding, PortValue, Reader, ResourceAccess, ResourceChanged, ResourceContent, ResourceFacts,
    ResourceProvider, ResourceResolving, ResourceTransfer, ResourceWrite, ResourceWriter, SchemeProvider,
};
use crate::call::{Call, HostFunction};
use crate::cross::Text;

/// The store of `file:` URIs, and of paths without a scheme. It decides which files are available. Without members of
/// the write half, its files are read-only.
///
/// ```
/// use ostler_contract::{Call, RpcError, points::{ResourceContent, ResourceFacts, ResourceStore}};
///
/// let one_file = ResourceStore {
///     list: Call::now(|_| Ok(vec![])),
///     read: Call::now(|(uri, _): (String, _)| match uri.as_str() {
///         "file:///hello.txt" => Ok(ResourceContent::text("Hello.")),
///         _ => Err(RpcError::not_found(format!("there is no {uri}")).into()),
///     }),
///     resolve: Call::now(|_| Ok(ResourceFacts { r#type: "file".into(), ..ResourceFacts::default() })),
///     complete: Call::now(|_| Ok(vec![])),
///     ..ResourceStore::default()
/// };
/// # assert!(ostler_contract::Cross::check(&one_file).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct ResourceStore {
    /// Lists a directory.
    pub list: Call<fn(uri: String, reader: Option<Reader>) -> Vec<DirectoryEntry>>,
    /// Reads a file.
    pub read: Call<fn(uri: String, reader: Option<Reader>) -> ResourceContent>,
    /// Returns facts about a file, and its canonical URI if it differs.
    pub resolve: Call<fn(uri: String, reader: Option<Reader>, options: ResourceResolving) -> ResourceFacts>,
    /// Completes a path that a user types after `@`, in a session of that directory; best match first.
    pub complete: Call<fn(directory: String, typed: String) -> Vec<ResourceCompletion>>,
    /// Writes a file.
    pub write: Option<Call<fn(uri: String, content: ResourceWrite, writer: ResourceWriter)>>,
    /// Deletes a file or directory.
    pub delete: Option<Call<fn(uri: String, recursive: bool, writer: ResourceWriter)>>,
    /// Creates a directory and its parents.
    pub mkdir: Option<Call<fn(uri: String, writer: ResourceWriter)>>,
    /// Moves a file or a directory.
    pub r#move: Option<
        Call<fn(source: String, destination: String, options: ResourceTransfer, writer: ResourceWriter)>,
    >,
    /// Copies a file or a directory.
    pub copy: Option<
        Call<fn(source: String, destination: String, options: ResourceTransfer, writer: ResourceWriter)>,
    >,
    /// Answers a request for access; an error denies it. It adds no grants.
    pub request: Option<Call<fn(uri: String, writer: ResourceWriter, access: ResourceAccess)>>,
    /// Watches the files under a URI; returns the function that stops it.
    pub watch: Option<
        Call<
            fn(
                uri: String,
                recursive: bool,
                on_change: HostFunction<fn(changes: Vec<ResourceChanged>)>,
            ) -> Option<Call<fn()>>,
        >,
    >,
}

impl PortValue for ResourceStore {
    const NAME: &'static str = "resources";
}

impl ResourceStore {
    /// Returns the store as the provider of the scheme `file`.
    pub fn provider(&self) -> SchemeProvider {
        let store = self.clone();
        let provider = ResourceProvider {
            read: store.read,
            list: Some(store.list),
            resolve: Some(store.resolve),
            write: store.write,
            delete: store.delete,
            mkdir: store.mkdir,
            r#move: store.r#move,
            copy: store.copy,
            request: store.request,
            watch: store.watch,
            ..ResourceProvider::default()
        };
        SchemeProvider { scheme: Text::from("file"), provider }
    }
}

/// A completion of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceCompletion {
    /// Its URI.
    pub uri: String,
    /// The text after `@`, relative to the session's directory. Directories end with a slash.
    pub path: String,
}

impl ResourceContent {
    /// Returns content for bytes: text if they are UTF-8 without zero bytes, otherwise base64.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Self::text(text),
            Ok(text) => Self::base64(text.as_bytes()),
            Err(error) => Self::base64(error.as_bytes()),
        }
    }
}

impl ResourceWrite {
    /// Returns the bytes to write.
    ///
    /// # Errors
    /// `-32602`: the data is not valid base64.
    pub fn decoded(&self) -> Result<Vec<u8>, RpcError> {
        match self.encoding {
            Some(Encoding::Base64) => {
                STANDARD.decode(&self.data).map_err(|_| RpcError::invalid_params("data is not base64"))
            }
            Some(Encoding::Utf8) | None => Ok(self.data.clone().into_bytes()),
        }
    }
}
