//! What the requests take and return that pages of the console need: who is signed in, endpoints, the log.

use ostler_contract::{JsonObject, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Signs a page in.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct SignIn {
    /// The connection token, or a personal token.
    #[schemars(length(min = 1), extend("writeOnly" = true, "examples" = ["a-token"]))]
    pub token: String,
}

/// A page is signed in, by a cookie that scripts cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedIn {
    /// The user, or `connection token`.
    pub name: String,
    /// How long it lasts.
    pub seconds: u64,
}

/// Who the caller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Me {
    /// The user, `connection token`, or `this computer` on a host without tokens.
    pub name: String,
    /// The id of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The name of the host's program.
    pub host: String,
    /// Its version.
    pub version: String,
    /// Whether the host has tokens to sign in with.
    pub sign_in: bool,
    /// Whether the host has a users file.
    pub users: bool,
    /// The roles of the user.
    pub roles: Vec<String>,
    /// The memberships of the user.
    pub memberships: Vec<String>,
    /// The effective grants.
    pub grants: Vec<String>,
}

/// What a user may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permissions {
    /// The id of the user.
    pub id: String,
    /// The roles, each with the grants that it gives.
    pub roles: Vec<RoleGrants>,
    /// Memberships: `<team>`, `<team>:<project>` or `<team>:*`.
    pub memberships: Vec<String>,
    /// The effective grants.
    pub grants: Vec<String>,
    /// Whether the user has ever signed in.
    pub has_signed_in: bool,
}

/// A role and its grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleGrants {
    /// The role.
    pub role: String,
    /// The grants that it gives.
    pub grants: Vec<String>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// When it was written, ISO 8601.
    pub at: String,
    /// The line.
    pub text: String,
}

/// A webhook endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The id.
    pub id: String,
    /// Where it is called.
    pub url: String,
    /// The bot that it talks to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot: Option<String>,
    /// Whether it fires automations.
    #[serde(default)]
    pub automation: bool,
    /// How a bot's endpoint replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// The signature that is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// The name of its secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Whether the vault has the secret.
    #[serde(default)]
    pub secret_set: bool,
    /// What else is to be known.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Why the record is no endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<JsonObject>,
}

/// The last calls of an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointLog {
    /// The endpoint.
    pub id: String,
    /// The calls, oldest first, without their bodies: `at`, `status`, `ms`, `runs`, `unstarted`, `repeats`, `chat`, `turn`, `why`, `times` (of the calls that were rejected for one reason, the last is listed) and others.
    pub calls: Vec<JsonObject>,
}

/// Calls an endpoint.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CallEndpoint {
    /// The endpoint.
    #[schemars(length(min = 1), extend("examples" = ["in"]))]
    pub id: String,
    /// The body: JSON, or a string with the text that is sent; a minimal valid one where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// What an endpoint answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalledEndpoint {
    /// The endpoint.
    pub id: String,
    /// Where it was called.
    pub url: String,
    /// The status of the answer.
    pub status: u16,
    /// The answer: JSON where it is any, else text.
    pub answer: Value,
}

/// Tests a rule of notify.yaml.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TestRule {
    /// The rule's id.
    #[schemars(length(min = 1), extend("examples" = ["phone"]))]
    pub rule: String,
}

/// A test message that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestedRule {
    /// The rule's id.
    pub rule: String,
    /// How it was sent: `webhook`, `slack` or `email`.
    pub by: String,
    /// The link of the message, which tells whoever opens it that links can be reached.
    pub link: String,
}
