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
use crate::call::Call;
use crate::cross::Text;

/// Serves `file:` URIs, and paths that have no scheme. It decides which files those are: what a client names is taken
/// nowhere else. Without any of the write half, what it serves is only read.
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
    /// What is in a directory.
    pub list: Call<fn(uri: String, reader: Option<Reader>) -> Vec<DirectoryEntry>>,
    /// What a URI names.
    pub read: Call<fn(uri: String, reader: Option<Reader>) -> ResourceContent>,
    /// Facts about what a URI names, and its own name where that is another.
    pub resolve: Call<fn(uri: String, reader: Option<Reader>, options: ResourceResolving) -> ResourceFacts>,
    /// What a person may mean who typed the beginning of a path after `@`, in a session of that directory; the best
    /// first.
    pub complete: Call<fn(directory: String, typed: String) -> Vec<ResourceCompletion>>,
    /// Writes what a URI names.
    pub write: Option<Call<fn(uri: String, content: ResourceWrite, writer: ResourceWriter)>>,
    /// Removes what a URI names.
    pub delete: Option<Call<fn(uri: String, recursive: bool, writer: ResourceWriter)>>,
    /// Makes a directory and its parents.
    pub mkdir: Option<Call<fn(uri: String, writer: ResourceWriter)>>,
    /// Moves a file or a directory.
    pub r#move: Option<
        Call<fn(source: String, destination: String, options: ResourceTransfer, writer: ResourceWriter)>,
    >,
    /// Copies a file or a directory.
    pub copy: Option<
        Call<fn(source: String, destination: String, options: ResourceTransfer, writer: ResourceWriter)>,
    >,
    /// Answers a request for access; a throw denies it. It gives nothing that a grant does not.
    pub request: Option<Call<fn(uri: String, writer: ResourceWriter, access: ResourceAccess)>>,
    /// Watches under a URI; answers the function that stops it.
    pub watch: Option<
        Call<
            fn(
                uri: String,
                recursive: bool,
                on_change: Call<fn(changes: Vec<ResourceChanged>)>,
            ) -> Option<Call<fn()>>,
        >,
    >,
}

impl PortValue for ResourceStore {
    const NAME: &'static str = "resources";
}

impl ResourceStore {
    /// The store as what it is routed as: the provider of `file:`.
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

/// One file or directory a person may mean.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceCompletion {
    /// Its URI.
    pub uri: String,
    /// As it is written after `@`: from the session's directory on. A directory's ends with a slash.
    pub path: String,
}

impl ResourceContent {
    /// Bytes: text where they are, and no zero byte is among them; base64 otherwise.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Self::text(text),
            Ok(text) => Self::base64(text.as_bytes()),
            Err(error) => Self::base64(error.as_bytes()),
        }
    }
}

impl ResourceWrite {
    /// The bytes to write.
    ///
    /// # Errors
    /// `-32602`: they are said to be base64 and are not.
    pub fn decoded(&self) -> Result<Vec<u8>, RpcError> {
        match self.encoding {
            Some(Encoding::Base64) => {
                STANDARD.decode(&self.data).map_err(|_| RpcError::invalid_params("data is not base64"))
            }
            Some(Encoding::Utf8) | None => Ok(self.data.clone().into_bytes()),
        }
    }
}
