//! Providers of URI schemes. Spec: *Resource provider*.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::grants::Grant;
use ostler_protocol::uri;
use ostler_protocol::wire::commands::{ContentEncoding, DirectoryEntry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Checked, Contribution, Slot};
use crate::call::{Call, HostFunction};
use crate::cross::{Cross, Mismatch, Text, data_from_live, data_to_live};
use crate::live::Live;
use crate::owner::Owner;
use crate::recorder::{Key, Space, Unique};
use crate::reserved;
use crate::shape::Shape;

/// The provider of a URI scheme. Every member except `read` is optional. The existing members are advertised as
/// operations of the scheme and become grants (`read` requires `<scheme>:get`, `write` requires `<scheme>:put`, every
/// other member its own name).
///
/// ```
/// use ostler_contract::{Call, RpcError, points::{ResourceContent, ResourceProvider}};
///
/// let provider = ResourceProvider {
///     read: Call::new(|(uri, _reader): (String, _)| async move {
///         match uri.as_str() {
///             "greeting://hello" => Ok(ResourceContent::text("Hello.")),
///             _ => Err(RpcError::not_found(format!("no greeting at {uri}")).into()),
///         }
///     }),
///     ..ResourceProvider::default()
/// };
/// # assert!(ostler_contract::Cross::check(&provider).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct ResourceProvider {
    /// Reads a resource.
    pub read: Call<fn(uri: String, reader: Option<Reader>) -> ResourceContent>,
    /// Lists the entries under a URI, also under the root of the scheme.
    pub list: Option<Call<fn(uri: String, reader: Option<Reader>) -> Vec<DirectoryEntry>>>,
    /// Writes a resource.
    pub write: Option<Call<fn(uri: String, content: ResourceWrite, writer: ResourceWriter)>>,
    /// Returns facts about a resource.
    pub resolve:
        Option<Call<fn(uri: String, reader: Option<Reader>, options: ResourceResolving) -> ResourceFacts>>,
    /// Deletes a resource.
    pub delete: Option<Call<fn(uri: String, recursive: bool, writer: ResourceWriter)>>,
    /// Creates a directory.
    pub mkdir: Option<Call<fn(uri: String, writer: ResourceWriter)>>,
    /// Moves within the scheme.
    pub r#move: Option<
        Call<fn(source: String, destination: String, options: ResourceTransfer, writer: ResourceWriter)>,
    >,
    /// Copies within the scheme.
    pub copy: Option<
        Call<fn(source: String, destination: String, options: ResourceTransfer, writer: ResourceWriter)>,
    >,
    /// Answers a request for access.
    pub request: Option<Call<fn(uri: String, writer: ResourceWriter, access: ResourceAccess)>>,
    /// Watches the resources under a URI; returns the function that stops it.
    pub watch: Option<
        Call<
            fn(
                uri: String,
                recursive: bool,
                on_change: HostFunction<fn(changes: Vec<ResourceChanged>)>,
            ) -> Option<Call<fn()>>,
        >,
    >,
    /// Describes the scheme to clients.
    pub describe: Option<Call<fn() -> SchemeDescription>>,
    /// Called before the grant is required; can allow a reader to read.
    pub authorize: Option<Call<fn(uri: String, reader: Reader) -> bool>>,
    /// Operations in addition to the ten of the contract, advertised and granted under these names.
    pub operations: Option<Vec<String>>,
}

/// The content of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceContent {
    /// The text, or the bytes as base64.
    pub data: String,
    /// The encoding of `data`.
    pub encoding: ContentEncoding,
    /// Media type.
    pub content_type: Option<String>,
}

impl ResourceContent {
    /// Returns content that is text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { data: text.into(), encoding: ContentEncoding::Utf8, content_type: None }
    }

    /// Returns content that is bytes.
    pub fn base64(bytes: &[u8]) -> Self {
        Self { data: STANDARD.encode(bytes), encoding: ContentEncoding::Base64, content_type: None }
    }

    /// Returns content that is formatted JSON.
    pub fn json(value: &Value) -> Self {
        Self { content_type: Some("application/json".to_owned()), ..Self::text(format!("{value:#}")) }
    }
}

/// The form in JavaScript: the encoding is optional.
mod written {
    use super::{Cross, Deserialize, Encoding, Serialize};

    /// The content of a resource.
    #[derive(Serialize, Deserialize, Cross)]
    #[serde(rename_all = "camelCase")]
    #[cross(data)]
    pub(super) struct ResourceContent {
        /// The text, or the bytes as base64.
        pub data: String,
        /// `utf-8` or `base64`. Default: `utf-8`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encoding: Option<Encoding>,
        /// Media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub content_type: Option<String>,
    }
}

/// The encoding of bytes in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
pub enum Encoding {
    /// As text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// As base64.
    #[serde(rename = "base64")]
    Base64,
}

impl Cross for ResourceContent {
    fn shape() -> Shape {
        written::ResourceContent::shape()
    }

    fn into_live(self) -> Live {
        data_to_live(&written::ResourceContent {
            data: self.data,
            encoding: Some(match self.encoding {
                ContentEncoding::Utf8 => Encoding::Utf8,
                ContentEncoding::Base64 => Encoding::Base64,
            }),
            content_type: self.content_type,
        })
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        let read: written::ResourceContent = data_from_live(live, &Self::shape())?;
        let encoding = match read.encoding {
            Some(Encoding::Base64) => ContentEncoding::Base64,
            _ => ContentEncoding::Utf8,
        };
        if encoding == ContentEncoding::Base64 && STANDARD.decode(&read.data).is_err() {
            return Err(Mismatch::expected("base64").within("data"));
        }
        Ok(Self { data: read.data, encoding, content_type: read.content_type })
    }
}

/// The content of a write.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceWrite {
    /// The text, or the bytes as base64.
    pub data: String,
    /// The encoding of `data`. Default: `utf-8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Fails if the resource exists.
    #[serde(default)]
    pub create_only: bool,
    /// Fails if the resource has another etag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_match: Option<String>,
    /// `truncate`, `append` or `insert`. Default: `truncate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WriteMode>,
    /// Position in bytes from the start; from the end for `append`.
    #[serde(default)]
    pub position: u64,
}

/// How a write changes a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// Truncates at the position, then writes.
    Truncate,
    /// Writes at the position from the end.
    Append,
    /// Inserts at the position.
    Insert,
}

/// The principal of a write.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceWriter {
    /// `user:<id>`, `plugin:<id>` or `root:<host>`; absent on a host without a users file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The client's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The user or plugin; absent on a host without a users file and for the root connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<Reader>,
}

/// A user or plugin that reads, subscribes or calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Reader {
    /// `user:<id>` or `plugin:<id>`.
    pub id: String,
    /// The user's roles.
    #[serde(default)]
    pub roles: Vec<String>,
    /// `<team>`, `<team>:<project>` or `<team>:*`.
    #[serde(default)]
    pub memberships: Vec<String>,
    /// The principal's grants, as `<subject>:<operation>`.
    #[serde(default)]
    pub grants: Vec<String>,
}

impl Reader {
    /// Returns whether the principal has a grant.
    pub fn holds(&self, asked: &Grant) -> bool {
        self.grants.iter().filter_map(|held| Grant::parse(held)).any(|held| held.covers(asked))
    }

    /// Returns whether the principal is an owner or a member of the owning team or project. A member of a team belongs
    /// to its projects; a member of a project does not belong to its team.
    pub fn belongs_to(&self, owner: &str) -> bool {
        if self.id == owner {
            return true;
        }
        let of_all_projects = |group: Owner<'_>| group.project().is_none_or(|project| project == "*");
        let mut groups = self.memberships.iter().filter_map(|held| Owner::from_membership(held));
        match Owner::parse(owner) {
            Some(Owner::Team(team)) => {
                groups.any(|group| group.team() == Some(team) && of_all_projects(group))
            }
            Some(owner @ Owner::Project { team, .. }) => {
                groups.any(|group| group == owner || group.team() == Some(team) && of_all_projects(group))
            }
            _ => false,
        }
    }
}

/// Options of `resolve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceResolving {
    /// Whether symbolic links are followed; otherwise facts are about the link itself.
    pub follow_symlinks: bool,
}

/// The requested access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceAccess {
    /// Read access.
    #[serde(default)]
    pub read: bool,
    /// Write access.
    #[serde(default)]
    pub write: bool,
}

/// Facts about a resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceFacts {
    /// Its canonical URI, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// `file`, `directory` or `symlink`.
    pub r#type: String,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Time of the last change, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<String>,
    /// Time of creation, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctime: Option<String>,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// A value that changes with the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// Options of a move or copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceTransfer {
    /// Fails if the destination exists.
    #[serde(default)]
    pub fail_if_exists: bool,
}

/// A change under a watched URI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceChanged {
    /// URI of the resource.
    pub uri: String,
    /// Kind of change.
    pub r#type: ChangeType,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum ChangeType {
    /// Created.
    Added,
    /// Changed.
    Updated,
    /// Deleted.
    Deleted,
}

/// The description of a scheme for clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SchemeDescription {
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the content of writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<JsonObject>,
}

/// A scheme with its provider.
#[derive(Debug)]
pub struct SchemeProvider {
    /// Lowercase letters, digits, `+`, `-` and `.`, starting with a letter.
    pub scheme: Text,
    /// The provider.
    pub provider: ResourceProvider,
}

impl Checked for SchemeProvider {
    fn holds(&self) -> Result<(), Mismatch> {
        self.scheme.check().map_err(|wrong| wrong.within("scheme"))?;
        self.provider.check().map_err(|wrong| wrong.within("provider"))
    }
}

impl Contribution for SchemeProvider {
    const SLOT: Slot = Slot::Keyed;

    fn key(&self) -> Option<Key> {
        Some(Key {
            space: Space::Scheme,
            name: self.scheme.to_string(),
            member: "scheme",
            unique: Unique::Among { kind: "scheme", takes: "scheme", other: "provider" },
        })
    }

    fn refuse(&self) -> Result<(), Mismatch> {
        if !uri::is_scheme(&self.scheme) {
            return Err(Mismatch::expected("a URI scheme, as notes").within("scheme"));
        }
        refuse_reserved(&self.scheme, "scheme")
    }
}

/// Rejects reserved names of harnesses and schemes.
pub(super) fn refuse_reserved(name: &str, member: &str) -> Result<(), Mismatch> {
    if reserved::is_reserved(name) {
        return Err(Mismatch::expected(format!("a name other than {name}, which is reserved")).within(member));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_belong() {
        let reader = |memberships: &[&str]| Reader {
            id: "user:ann".into(),
            memberships: memberships.iter().map(|held| (*held).to_owned()).collect(),
            ..Reader::default()
        };
        for (memberships, owner, yes) in [
            (&[][..], "user:ann", true),
            (&[], "user:bob", false),
            (&["ops"], "team:ops", true),
            (&["ops:*"], "team:ops", true),
            (&["ops"], "project:ops:web", true),
            (&["ops:*"], "project:ops:web", true),
            (&["ops:web"], "project:ops:web", true),
            (&["ops:api"], "project:ops:web", false),
            (&["ops:web"], "team:ops", false),
            (&["op"], "team:ops", false),
            (&["ops"], "root:host", false),
        ] {
            assert_eq!(reader(memberships).belongs_to(owner), yes, "{memberships:?} {owner}");
        }
    }
}
