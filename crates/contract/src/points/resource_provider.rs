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
use crate::call::Call;
use crate::cross::{Cross, Mismatch, Text, data_from_live, data_to_live};
use crate::live::Live;
use crate::recorder::{Key, Space, Unique};
use crate::reserved;
use crate::shape::Shape;

/// Serves one URI scheme. Every member beyond `read` is optional; the ones there are advertise what the
/// scheme can do and become grants on it (`read` asks for `<scheme>:get`, `write` for `<scheme>:put`, every
/// other one for its own name).
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
    /// What a URI names.
    pub read: Call<fn(uri: String, reader: Option<Reader>) -> ResourceContent>,
    /// What is under a URI; asked for the scheme's root too.
    pub list: Option<Call<fn(uri: String, reader: Option<Reader>) -> Vec<DirectoryEntry>>>,
    /// Writes what a URI names.
    pub write: Option<Call<fn(uri: String, content: ResourceWrite, writer: ResourceWriter)>>,
    /// Facts about what a URI names.
    pub resolve:
        Option<Call<fn(uri: String, reader: Option<Reader>, options: ResourceResolving) -> ResourceFacts>>,
    /// Removes what a URI names.
    pub delete: Option<Call<fn(uri: String, recursive: bool, writer: ResourceWriter)>>,
    /// Makes a directory.
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
    /// What a client may be told about the scheme.
    pub describe: Option<Call<fn() -> SchemeDescription>>,
    /// Asked before the grant is required; may let a reader read.
    pub authorize: Option<Call<fn(uri: String, reader: Reader) -> bool>>,
    /// Operations beyond the ten, advertised and granted under these names.
    pub operations: Option<Vec<String>>,
}

/// What a URI held.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceContent {
    /// The text, or base64 of the bytes.
    pub data: String,
    /// Which of the two.
    pub encoding: ContentEncoding,
    /// Its media type.
    pub content_type: Option<String>,
}

impl ResourceContent {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { data: text.into(), encoding: ContentEncoding::Utf8, content_type: None }
    }

    /// Bytes.
    pub fn base64(bytes: &[u8]) -> Self {
        Self { data: STANDARD.encode(bytes), encoding: ContentEncoding::Base64, content_type: None }
    }

    /// Pretty JSON.
    pub fn json(value: &Value) -> Self {
        Self { content_type: Some("application/json".to_owned()), ..Self::text(format!("{value:#}")) }
    }
}

/// As it is written in JavaScript: the encoding may be left out.
mod written {
    use super::{Cross, Deserialize, Encoding, Serialize};

    /// What a URI held.
    #[derive(Serialize, Deserialize, Cross)]
    #[serde(rename_all = "camelCase")]
    #[cross(data)]
    pub(super) struct ResourceContent {
        /// The text, or base64 of the bytes.
        pub data: String,
        /// `utf-8` (where left out) or `base64`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encoding: Option<Encoding>,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub content_type: Option<String>,
    }
}

/// How bytes are written in JSON.
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

/// What is to be written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceWrite {
    /// The text, or base64 of the bytes.
    pub data: String,
    /// Which of the two; `utf-8` where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Refuse when something is there.
    #[serde(default)]
    pub create_only: bool,
    /// Refuse when what is there has another etag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_match: Option<String>,
    /// `truncate` (where left out), `append` or `insert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WriteMode>,
    /// Bytes from the start; from the end for `append`.
    #[serde(default)]
    pub position: u64,
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// Cut at the position, then write.
    Truncate,
    /// Write at the position counted from the end.
    Append,
    /// Splice in at the position.
    Insert,
}

/// Who writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceWriter {
    /// `user:<id>`, `plugin:<id>` or `root:<host>`; absent on a host with no users directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The client's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The principal; absent on a host with no users directory and on the root connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<Reader>,
}

/// A person or plugin that reads, subscribes or calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Reader {
    /// `user:<id>` or `plugin:<id>`.
    pub id: String,
    /// The roles of the person's record.
    #[serde(default)]
    pub roles: Vec<String>,
    /// `<team>`, `<team>:<project>` or `<team>:*`.
    #[serde(default)]
    pub memberships: Vec<String>,
    /// What the principal holds, as `<subject>:<operation>`.
    #[serde(default)]
    pub grants: Vec<String>,
}

impl Reader {
    /// Whether the principal holds a grant.
    pub fn holds(&self, asked: &Grant) -> bool {
        self.grants.iter().filter_map(|held| Grant::parse(held)).any(|held| held.covers(asked))
    }

    /// Whether the principal is an owner or a member of the owning team or project. A member of a team belongs to the
    /// projects of the team; a member of a project does not belong to its team.
    pub fn belongs_to(&self, owner: &str) -> bool {
        if self.id == owner {
            return true;
        }
        let in_team =
            |team: &str| self.memberships.iter().any(|held| held.strip_suffix(":*").unwrap_or(held) == team);
        match owner.split_once(':') {
            Some(("team", team)) => in_team(team),
            Some(("project", project)) => {
                self.memberships.iter().any(|held| held == project)
                    || project.split_once(':').is_some_and(|(team, _)| in_team(team))
            }
            _ => false,
        }
    }
}

/// How a URI is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceResolving {
    /// Whether a symbolic link stands for what it leads to; otherwise it is told of itself.
    pub follow_symlinks: bool,
}

/// What access is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceAccess {
    /// To read.
    #[serde(default)]
    pub read: bool,
    /// To write.
    #[serde(default)]
    pub write: bool,
}

/// Facts about what a URI names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceFacts {
    /// Its own name, where it was reached by another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// `file`, `directory` or `symlink`.
    pub r#type: String,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// When it was changed, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<String>,
    /// When it was made, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctime: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Changes with the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// How a move or copy treats what is in the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ResourceTransfer {
    /// Refuse rather than overwrite.
    #[serde(default)]
    pub fail_if_exists: bool,
}

/// One change under a watched URI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ResourceChanged {
    /// What changed.
    pub uri: String,
    /// How.
    pub r#type: ChangeType,
}

/// How something changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum ChangeType {
    /// It is new.
    Added,
    /// It is another.
    Updated,
    /// It is gone.
    Deleted,
}

/// What a client may be told about a scheme.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct SchemeDescription {
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// More words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of what is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<JsonObject>,
}

/// A scheme and its provider, registered.
#[derive(Debug)]
pub struct SchemeProvider {
    /// Lowercase letters, digits, `+`, `-` and `.`, starting with a letter.
    pub scheme: Text,
    /// Serves it.
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

/// Refuses a reserved name for a harness or a scheme.
pub(super) fn refuse_reserved(name: &str, member: &str) -> Result<(), Mismatch> {
    if reserved::is_reserved(name) {
        return Err(Mismatch::expected(format!("a name of its own; {name} is reserved")).within(member));
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
