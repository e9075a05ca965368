//! Settings that editors push to the root channel: each belongs to the connection that sent it, and backends receive
//! the relevant ones.

use std::collections::HashSet;

use ostler_contract::proxy;
use ostler_protocol::{JsonObject, Value, json};

/// The values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Switch,
    Object,
    List,
    /// One of these, in ascending order.
    Level(&'static [&'static str]),
}

/// A setting of a connection.
struct Setting {
    key: &'static str,
    title: &'static str,
    kind: Kind,
    backends: Backends,
}

/// Which settings backends receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backends {
    None,
    /// Those of all active clients of the session.
    AllClients,
    /// Those of clients that may configure the host: agents use the operator's keys, and a proxy reads what is not
    /// encrypted. The value can contain a password, so snapshots do not have it.
    Configurers,
}

const LEVELS: &[&str] = &["off", "crash", "error", "all"];

const fn setting(key: &'static str, title: &'static str, kind: Kind, backends: Backends) -> Setting {
    Setting { key, title, kind, backends }
}

/// The settings that have an effect, in the order of their declaration.
const SETTINGS: &[Setting] = &[
    setting("defaultShell", "Default shell", Kind::Text, Backends::None),
    setting("workspaceTrust", "Trusted folders", Kind::Object, Backends::None),
    setting("telemetryLevel", "Telemetry level", Kind::Level(LEVELS), Backends::AllClients),
    setting("systemProxyEnabled", "Use the system's proxy", Kind::Switch, Backends::AllClients),
    setting(
        "terminalAutoApproveEnabled",
        "Approve terminal commands by rule",
        Kind::Switch,
        Backends::AllClients,
    ),
    setting("terminalAutoApproveRules", "Rules for terminal commands", Kind::Object, Backends::AllClients),
    setting("autoReplyEnabled", "Answer questions automatically", Kind::Switch, Backends::AllClients),
    setting(proxy::SETTING, "Proxy", Kind::Text, Backends::Configurers),
    setting(proxy::EXCEPTIONS_SETTING, "Addresses without the proxy", Kind::List, Backends::Configurers),
    setting(proxy::PRINCIPAL_SETTING, "Kerberos principal of the proxy", Kind::Text, Backends::Configurers),
];

/// Settings of VS Code and its own agents. They are accepted without an effect.
const IGNORED: &[&str] = &[
    "activeAgentTitleGeneration",
    "agentMerge.addressReviews",
    "agentMerge.enabled",
    "agentMerge.fixCI",
    "agentMerge.mergeMethod",
    "agentMerge.mergePullRequest",
    "agentMerge.replyAttribution",
    "agentMerge.resolveConflicts",
    "artifactTools",
    "autoApprovePolicyRestricted",
    "autoArchiveMergedSessionsAfterDays",
    "autoAttachPullRequests",
    "autoDeleteArchivedMergedSessionsAfterDays",
    "byokModelsEnabled",
    "claudeMultiRootEnabled",
    "claudeUseCopilotProxy",
    "codexAgentEnabled",
    "codexMultiRootEnabled",
    "codexUsageSource",
    "copilotMultiRootEnabled",
    "customizations",
    "disableCustomTerminalTool",
    "disableRepoInfoTelemetry",
    "editAutoApprovePatterns",
    "editTelemetryEnabled",
    "enableCustomTerminalTool",
    "githubMcpServerEnabled",
    "markdownPlanRichLinksEnabled",
    "migrateLegacyCopilotCliEnabled",
    "noProxy",
    "opus48Prompt",
    "permissions",
    "preferLongContextEnabled",
    "proxy",
    "proxyKerberosServicePrincipal",
    "rubberDuck",
    "sessionCatalogEnabled",
    "sessionCustomizationDiscoveryMode",
    "sessionSyncEnabled",
    "showExternalSessions",
];

/// The maximum size of a connection's settings, in bytes of JSON.
const KEPT_MAX: usize = 256 * 1024;

fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// Returns whether a setting belongs to the connection that sends it.
pub fn is_own(key: &str) -> bool {
    find(key).is_some() || is_ignored(key)
}

/// Returns whether a setting is accepted without an effect.
pub fn is_ignored(key: &str) -> bool {
    IGNORED.contains(&key)
}

/// Returns whether a setting is shown to the connection that sent it.
pub fn is_shown(key: &str) -> bool {
    find(key).is_some_and(|setting| setting.backends != Backends::Configurers)
}

/// Returns why a value is invalid for a setting, if it is. `null` removes a value.
pub fn wrong_value(key: &str, value: &Value) -> Option<String> {
    let kind = find(key)?.kind;
    let (fits, expected) = match kind {
        Kind::Text => (value.is_string(), "text".to_owned()),
        Kind::Switch => (value.is_boolean(), "true or false".to_owned()),
        Kind::Object => (value.is_object(), "an object".to_owned()),
        Kind::List => (value.is_array(), "a list".to_owned()),
        // The value of VS Code for the highest level.
        Kind::Level(levels) => (
            value.as_str().is_some_and(|level| level == "on" || levels.contains(&level)),
            format!("one of {}", levels.join(", ")),
        ),
    };
    (!fits && !value.is_null()).then(|| format!("{key} must be {expected}"))
}

/// Returns why the settings of a connection are too large, if they are.
pub fn too_much(kept: &JsonObject) -> Option<String> {
    let size: usize = kept.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    (size > KEPT_MAX)
        .then(|| format!("the settings of this connection have {size} bytes; the limit is {KEPT_MAX}"))
}

/// Returns the settings for backends, as properties of the root channel's schema.
pub fn schema() -> JsonObject {
    let property = |setting: &Setting| {
        let described = match setting.kind {
            Kind::Text => json!({ "type": "string", "title": setting.title }),
            Kind::Switch => json!({ "type": "boolean", "title": setting.title }),
            Kind::Object => json!({ "type": "object", "title": setting.title }),
            Kind::List => json!({ "type": "array", "title": setting.title,
                "items": { "type": "string", "title": setting.title } }),
            Kind::Level(levels) => json!({ "type": "string", "title": setting.title, "enum": levels }),
        };
        (setting.key.to_owned(), described)
    };
    SETTINGS.iter().filter(|setting| setting.backends != Backends::None).map(property).collect()
}

/// The settings of a connection of an active client of a session.
#[derive(Debug)]
pub struct ClientValues {
    pub values: JsonObject,
    /// The client: its owner and id. A client can have several connections, of which some are dead.
    pub client: (Option<String>, Option<String>),
    /// Whether it may configure the host.
    pub configures: bool,
}

/// Merges the settings of several clients, the newest connection first. If they differ, the most restrictive value
/// counts: the lowest level, `false`, and the rules that all of them have. A proxy counts if all clients that have one
/// have the same.
pub fn merged(clients: &[ClientValues]) -> JsonObject {
    let mut all = JsonObject::new();
    for own in clients {
        for setting in SETTINGS.iter().filter(|setting| setting.backends == Backends::AllClients) {
            let Some(value) = own.values.get(setting.key).filter(|value| !value.is_null()) else { continue };
            let value = match all.shift_remove(setting.key) {
                Some(other) => more_careful(setting.kind, other, value.clone()),
                None => as_level(setting.kind, value.clone()),
            };
            all.insert(setting.key.to_owned(), value);
        }
    }
    all.extend(proxy_of(clients));
    all
}

/// Returns the settings of the proxy of the clients that may configure the host.
fn proxy_of(clients: &[ClientValues]) -> JsonObject {
    let mut seen = HashSet::new();
    let newest = clients
        .iter()
        .filter(|client| client.values.contains_key(proxy::SETTING) && seen.insert(&client.client));
    let settings = newest.filter(|client| client.configures).map(|client| {
        let settings = SETTINGS.iter().filter(|setting| setting.backends == Backends::Configurers);
        let values = settings.filter_map(|setting| Some((setting.key, client.values.get(setting.key)?)));
        // An editor sends an empty value for a setting without one.
        let values = values.filter(|(_, value)| !value.is_null() && **value != "" && **value != json!([]));
        values.map(|(key, value)| (key.to_owned(), value.clone())).collect::<JsonObject>()
    });
    let mut proxies = settings.filter(|settings| settings.contains_key(proxy::SETTING));
    let first = proxies.next().unwrap_or_default();
    match proxies.all(|other| other == first) {
        true => first,
        false => JsonObject::new(),
    }
}

fn as_level(kind: Kind, value: Value) -> Value {
    match kind {
        Kind::Level(levels) if value == "on" => levels.last().copied().unwrap_or_default().into(),
        _ => value,
    }
}

fn more_careful(kind: Kind, one: Value, other: Value) -> Value {
    let other = as_level(kind, other);
    match (kind, one, other) {
        (Kind::Level(levels), one, other) => {
            let height = |value: &Value| levels.iter().position(|level| *value == **level);
            if height(&other) < height(&one) { other } else { one }
        }
        (Kind::Object, Value::Object(mut rules), Value::Object(other)) => {
            rules.retain(|rule, value| other.get(rule) == Some(value));
            Value::Object(rules)
        }
        (_, Value::Bool(one), Value::Bool(other)) => Value::Bool(one && other),
        (_, one, _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> JsonObject {
        value.as_object().cloned().unwrap_or_default()
    }

    fn client_named(name: &str, values: &Value) -> ClientValues {
        ClientValues {
            values: object(values.clone()),
            client: (None, Some(name.to_owned())),
            configures: true,
        }
    }

    fn client(values: &Value) -> ClientValues {
        client_named("client", values)
    }

    #[test]
    fn the_most_careful_client_counts() {
        let one = json!({ "telemetryLevel": "on", "terminalAutoApproveEnabled": true, "defaultShell": "/bin/sh",
            "terminalAutoApproveRules": { "ls": true, "rm": false, "git": true }, "sessionSyncEnabled": true });
        assert_eq!(
            merged(&[client(&one)]),
            object(json!({ "telemetryLevel": "all", "terminalAutoApproveEnabled": true,
                "terminalAutoApproveRules": { "ls": true, "rm": false, "git": true } }))
        );
        let other = json!({ "telemetryLevel": "crash", "terminalAutoApproveEnabled": false,
            "systemProxyEnabled": true, "terminalAutoApproveRules": { "ls": true, "git": false } });
        assert_eq!(
            merged(&[client(&one), client(&other)]),
            object(json!({ "telemetryLevel": "crash", "terminalAutoApproveEnabled": false,
                "systemProxyEnabled": true, "terminalAutoApproveRules": { "ls": true } }))
        );
    }

    #[test]
    fn a_proxy_counts_if_its_clients_may_configure_the_host_and_agree() {
        let proxy = |at: &str, without: Value| {
            json!({ "http.proxy": at, "http.noProxy": without,
            "http.proxyKerberosServicePrincipal": "HTTP/proxy.example" })
        };
        let one = || client_named("one", &proxy("http://proxy.example:3128", json!(["example.org"])));
        let same = client_named("same", &proxy("http://proxy.example:3128", json!(["example.org"])));
        let without = client_named("without", &proxy("", json!([])));
        let older = client_named("one", &proxy("http://older.example:3128", json!([])));
        let expected = object(proxy("http://proxy.example:3128", json!(["example.org"])));
        assert_eq!(merged(&[one(), without, same, older]), expected);

        for other in [
            proxy("http://other.example:3128", json!(["example.org"])),
            proxy("http://proxy.example:3128", json!([])),
        ] {
            assert_eq!(merged(&[one(), client_named("other", &other)]), JsonObject::new());
        }

        let mut member = one();
        member.configures = false;
        assert_eq!(merged(&[member]), JsonObject::new());
        // Who removed the proxy has none, whatever an older connection had.
        assert_eq!(merged(&[client_named("one", &proxy("", json!([]))), one()]), JsonObject::new());
    }
}
