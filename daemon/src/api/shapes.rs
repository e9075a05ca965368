//! What the requests of the API take and return. Each is declared once: serde reads and writes it, and the OpenAPI document
//! has its JSON Schema. The commands read the same answers with `--remote`.

use ostler_contract::{JsonObject, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem_shapes::Problem;

/// The body of every error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Error {
    /// What failed, where, and what to do.
    pub message: String,
}

/// A request without members.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Nothing {}

/// The state of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Where it listens for clients.
    pub url: String,
    /// What URLs begin with under which others reach it, where that is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// The directories it serves.
    pub paths: Vec<String>,
    /// When it was started, as ISO 8601.
    pub started_at: String,
    /// Where automations are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automations: Option<String>,
    /// Its state folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What plugins announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// The running ACP agents of each session, where the plugin of the agents is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<AgentProcesses>>,
}

/// The running processes of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentProcesses {
    /// Provider of the agent.
    pub provider: String,
    /// Number of processes.
    pub processes: u64,
    /// Their memory.
    pub memory_bytes: u64,
    /// How processes and memory were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_by: Option<String>,
    /// The session they belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The state of the daemon and of its storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonStatus {
    /// The state of the daemon.
    #[serde(flatten)]
    pub status: Status,
    /// False while the host cannot store anything.
    pub ready: bool,
    /// Why it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What is wrong now, as `GET /api/problems`.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// The configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The files that were read, in order.
    pub files: Vec<String>,
    /// The merged configuration; credentials are `<set>`.
    pub config: JsonObject,
    /// Keys that were changed and take effect at the next start.
    pub restart_needed: Vec<String>,
}

/// A configured plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plugin {
    /// The spec, as the configuration names it.
    pub name: String,
    /// `pending` until a restart loads the plugin.
    #[schemars(extend("enum" = ["ready", "disabled", "missing", "incompatible", "unconfigured", "error", "pending"]))]
    pub state: String,
    /// Whether it is loaded at a start.
    pub enabled: bool,
    /// Its options; credentials are `<set>`.
    pub options: JsonObject,
    /// Grants that the configuration gives it.
    pub grants: Vec<String>,
    /// Its id, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The file it was imported from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether it is part of the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundled: bool,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What may not be intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Plugin {
    /// Its id, or its spec where that is not known.
    pub fn called(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }

    /// As lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let path = match (&self.path, self.bundled) {
            (Some(path), _) => path,
            (None, true) => "bundled",
            (None, false) => "-",
        };
        let id = self.id.as_deref().unwrap_or("not resolved");
        let title = self.title.as_ref().map(|title| format!(", {title}")).unwrap_or_default();
        let problem = self.problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
        let mut lines = vec![format!("{} {} -> {path} ({id}{title}){problem}", self.state, self.name)];
        lines.extend(self.options.iter().map(|(key, value)| match value {
            Value::String(text) => format!("  {key}: {text}"),
            value => format!("  {key}: {value}"),
        }));
        if !self.grants.is_empty() {
            lines.push(format!("  grants: {}", self.grants.join(", ")));
        }
        lines.extend(self.warnings.iter().map(|warning| format!("  warning: {warning}")));
        lines
    }
}

/// A plugin and what a change did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedPlugin {
    /// The plugin as it is configured now.
    #[serde(flatten)]
    pub plugin: Plugin,
    /// Options that its schema offers and the configuration does not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<UnsetOption>,
    /// Whether the change takes effect at the next start; absent where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<bool>,
    /// Remarks about the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// An option that is not set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsetOption {
    /// Its key.
    pub key: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl UnsetOption {
    /// As a line for a person.
    pub fn line(&self) -> String {
        let described = self.description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        format!("  {} is not set{described}", self.key)
    }
}

/// Names a plugin, and changes it where `options` or `enabled` is present.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurePlugin {
    /// Plugin id or configured spec.
    #[schemars(length(min = 1), extend("examples" = ["@ostler/echo"]))]
    pub name: String,
    /// Options to change: `null` removes an option, `<set>` leaves a credential as it is, others stay.
    #[serde(default)]
    pub options: Option<JsonObject>,
    /// Whether the plugin is loaded at a start.
    #[serde(default)]
    pub enabled: Option<bool>,
}

/// Names a plugin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NamedPlugin {
    /// Plugin id or configured spec.
    #[schemars(length(min = 1), extend("examples" = ["@ostler/echo"]))]
    pub name: String,
}

/// Sets an option.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SetOption {
    /// Plugin id or configured spec.
    #[schemars(length(min = 1), extend("examples" = ["@ostler/echo"]))]
    pub name: String,
    /// Option key, with dots for nested keys.
    #[schemars(length(min = 1), extend("examples" = ["greeting"]))]
    pub key: String,
    /// The value.
    pub value: Value,
}

/// Removes an option.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RemoveOption {
    /// Plugin id or configured spec.
    #[schemars(length(min = 1), extend("examples" = ["@ostler/echo"]))]
    pub name: String,
    /// Option key, with dots for nested keys.
    #[schemars(length(min = 1), extend("examples" = ["greeting"]))]
    pub key: String,
}

fn yes() -> bool {
    true
}

/// Installs a plugin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct InstallPlugin {
    /// Package, package version (name@1.2), archive, or path on the daemon's computer.
    #[schemars(length(min = 1), extend("examples" = ["@ostler/webhook"]))]
    pub name: String,
    /// Whether to add it to the configuration.
    #[serde(default = "yes")]
    pub enable: bool,
}

/// Removes a plugin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RemovePlugin {
    /// Plugin id or configured spec.
    #[schemars(length(min = 1), extend("examples" = ["@ostler/webhook"]))]
    pub name: String,
    /// Whether to leave its package installed.
    #[serde(default)]
    pub keep: bool,
}

/// Updates a plugin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UpdatePlugin {
    /// Plugin id or configured spec; `all` updates every package.
    #[schemars(length(min = 1), extend("examples" = ["all"]))]
    pub name: String,
    /// Whether to install the latest version, ignoring the version range.
    #[serde(default)]
    pub force: bool,
}

/// Installed plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Installed {
    /// One entry.
    pub installed: Vec<InstalledPlugin>,
    /// Whether the change takes effect at the next start.
    pub restart: bool,
}

/// An installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstalledPlugin {
    /// The spec, as the configuration names it.
    pub name: String,
    /// The version of a package.
    pub version: Option<String>,
    /// Its id, where it could be imported.
    pub id: Option<String>,
    /// Whether it was added to the configuration.
    pub enabled: bool,
}

/// Removed plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    /// Their specs.
    pub removed: Vec<String>,
    /// Whether the change takes effect at the next start.
    pub restart: bool,
}

/// Updated packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Updated {
    /// `<name> <old version> -> <new version>` for each package that changed.
    pub updated: Vec<String>,
    /// Whether the change takes effect at the next start.
    pub restart: bool,
}

/// Restarts the daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Restart {
    /// Whether to restart while turns are running, which ends them.
    #[serde(default)]
    pub force: bool,
}

/// The daemon restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restarting {
    /// True.
    pub restarting: bool,
    /// Where it listens for clients.
    pub url: String,
}

/// The name of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secret {
    /// `host:<name>`, `team:<team>/<name>` or `user:<id>/<name>`.
    pub name: String,
    /// Whether the vault has a value.
    pub set: bool,
    /// Where the configuration references it.
    pub named: Vec<String>,
}

/// Stores a secret.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct StoreSecret {
    /// The value; it is never returned.
    #[schemars(length(min = 1), extend("writeOnly" = true))]
    pub value: String,
}

/// A secret was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredSecret {
    /// Its name.
    pub name: String,
    /// True.
    pub set: bool,
}

/// A secret was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedSecret {
    /// Its name.
    pub name: String,
    /// True.
    pub deleted: bool,
}

/// Names a delivery.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDelivery {
    /// Its id, as the log of the endpoint has it.
    #[schemars(length(min = 1), extend("examples" = ["d0123456789abcdef0123456789abcdef"]))]
    pub delivery: String,
}

/// A delivery that replays another one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayedDelivery {
    /// Its id.
    pub id: String,
    /// The delivery that it replays.
    pub replays: String,
    /// The endpoint.
    pub endpoint: String,
    /// When it was delivered, ISO 8601.
    pub at: String,
    /// How long the answer took, in milliseconds.
    pub ms: u64,
    /// The status that the endpoint answered.
    pub status: u16,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The length of its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether the endpoint's filter left it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// The URIs of the runs that it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// Why automations got no run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unstarted: Vec<String>,
    /// The thread it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The chat of its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// The id of its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
}

/// What a pool was charged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUsage {
    /// The pool, such as `user:<id>` or `team:<id>`.
    pub pool: String,
    /// The part before the colon.
    pub kind: String,
    /// Its display name.
    pub name: String,
    /// Since midnight.
    pub day: Total,
    /// Since Monday.
    pub week: Total,
    /// Since the first of the month.
    pub month: Total,
}

/// A sum; only charged measures are present.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Total {
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// US dollars for input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_usd: Option<f64>,
    /// US dollars for output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_usd: Option<f64>,
    /// All tokens: input, output and cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Input tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Tokens read from caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Tokens written to caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Number of model entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Seconds for which machines were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// A user of the users file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// The id.
    pub id: String,
    /// Assigned roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
    /// The issuer that signs the user in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The claim of the issuer that names more roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles_from: Option<String>,
    /// Memberships: `<team>`, `<team>:<project>` or `<team>:*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memberships: Option<Vec<String>>,
    /// Membership that is charged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// Whether the user has a personal token.
    pub token: bool,
}

/// A team or project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The id.
    pub id: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Adds a user.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AddUser {
    /// The id.
    #[schemars(length(min = 1), extend("examples" = ["ada"]))]
    pub id: String,
    /// Roles to assign; `guest` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
    /// Memberships to assign: `<team>`, `<team>:<project>` or `<team>:*`.
    #[serde(default)]
    pub memberships: Vec<String>,
    /// Membership to charge by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
}

/// Names a user, team or project.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The id.
    #[schemars(length(min = 1), extend("examples" = ["ada"]))]
    pub id: String,
}

/// Adds a team or project.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AddGroup {
    /// The id.
    #[schemars(length(min = 1), extend("examples" = ["core"]))]
    pub id: String,
    /// The display name; the id where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The personal token of a user. It is not returned again.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct PersonalToken {
    /// The id of the user.
    pub id: String,
    /// The token.
    pub token: String,
}

/// A team or project was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddedGroup {
    /// The id.
    pub id: String,
}

/// A user, team or project was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedRecord {
    /// The id.
    pub id: String,
    /// True.
    pub removed: bool,
}

/// Where the API is described.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pointer {
    /// The program.
    pub name: String,
    /// The path of the OpenAPI document, which needs no token.
    pub openapi: String,
    /// The URL of the documentation.
    pub documentation: String,
}

/// The OpenAPI 3.1 document of this API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// The version of OpenAPI.
    pub openapi: String,
    /// Title and version.
    pub info: JsonObject,
    /// Where the API is, from this document.
    pub servers: Vec<JsonObject>,
    /// The groups of operations.
    pub tags: Vec<JsonObject>,
    /// The operations of each path.
    pub paths: JsonObject,
    /// Schemas and the security schemes.
    pub components: JsonObject,
    /// What every operation requires.
    pub security: Vec<JsonObject>,
}
