//! Settings that editors push to the root channel: each belongs to the connection that sent it, and backends receive
//! the relevant ones.

use ostler_protocol::{JsonObject, Value, json};

/// The values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Switch,
    Object,
    /// One of these, in ascending order.
    Level(&'static [&'static str]),
}

/// A setting of a connection.
struct Setting {
    key: &'static str,
    title: &'static str,
    kind: Kind,
    /// Whether backends receive it.
    handed: bool,
}

const LEVELS: &[&str] = &["off", "crash", "error", "all"];

const fn setting(key: &'static str, title: &'static str, kind: Kind, handed: bool) -> Setting {
    Setting { key, title, kind, handed }
}

/// The settings that have an effect, in the order of their declaration.
const SETTINGS: &[Setting] = &[
    setting("defaultShell", "Default shell", Kind::Text, false),
    setting("workspaceTrust", "Trusted folders", Kind::Object, false),
    setting("telemetryLevel", "Telemetry level", Kind::Level(LEVELS), true),
    setting("systemProxyEnabled", "Use the system's proxy", Kind::Switch, true),
    setting("terminalAutoApproveEnabled", "Approve terminal commands by rule", Kind::Switch, true),
    setting("terminalAutoApproveRules", "Rules for terminal commands", Kind::Object, true),
    setting("autoReplyEnabled", "Answer questions automatically", Kind::Switch, true),
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
    "http.noProxy",
    "http.proxy",
    "http.proxyKerberosServicePrincipal",
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
pub(crate) fn is_own(key: &str) -> bool {
    find(key).is_some() || is_ignored(key)
}

/// Returns whether a setting is accepted without an effect.
pub(crate) fn is_ignored(key: &str) -> bool {
    IGNORED.contains(&key)
}

/// Returns why a value is invalid for a setting, if it is. `null` removes a value.
pub(crate) fn wrong_value(key: &str, value: &Value) -> Option<String> {
    let kind = find(key)?.kind;
    let (fits, expected) = match kind {
        Kind::Text => (value.is_string(), "text".to_owned()),
        Kind::Switch => (value.is_boolean(), "true or false".to_owned()),
        Kind::Object => (value.is_object(), "an object".to_owned()),
        // The value of VS Code for the highest level.
        Kind::Level(levels) => (
            value.as_str().is_some_and(|level| level == "on" || levels.contains(&level)),
            format!("one of {}", levels.join(", ")),
        ),
    };
    (!fits && !value.is_null()).then(|| format!("{key} must be {expected}"))
}

/// Returns why the settings of a connection are too large, if they are.
pub(crate) fn too_much(kept: &JsonObject) -> Option<String> {
    let size: usize = kept.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    (size > KEPT_MAX).then(|| format!("the settings of one connection may take {KEPT_MAX} bytes, not {size}"))
}

/// Returns the settings for backends, as properties of the root channel's schema.
pub(crate) fn schema() -> JsonObject {
    let property = |setting: &Setting| {
        let described = match setting.kind {
            Kind::Text => json!({ "type": "string", "title": setting.title }),
            Kind::Switch => json!({ "type": "boolean", "title": setting.title }),
            Kind::Object => json!({ "type": "object", "title": setting.title }),
            Kind::Level(levels) => json!({ "type": "string", "title": setting.title, "enum": levels }),
        };
        (setting.key.to_owned(), described)
    };
    SETTINGS.iter().filter(|setting| setting.handed).map(property).collect()
}

/// Merges the settings of several clients. If they differ, the most restrictive value counts: the lowest level,
/// `false`, and the rules that all of them have.
pub(crate) fn merged(clients: impl Iterator<Item = JsonObject>) -> JsonObject {
    let mut all = JsonObject::new();
    for own in clients {
        for setting in SETTINGS.iter().filter(|setting| setting.handed) {
            let Some(value) = own.get(setting.key).filter(|value| !value.is_null()) else { continue };
            let value = match all.shift_remove(setting.key) {
                Some(other) => more_careful(setting.kind, other, value.clone()),
                None => as_level(setting.kind, value.clone()),
            };
            all.insert(setting.key.to_owned(), value);
        }
    }
    all
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

    #[test]
    fn the_most_careful_client_counts() {
        let one = json!({ "telemetryLevel": "on", "terminalAutoApproveEnabled": true, "defaultShell": "/bin/sh",
            "terminalAutoApproveRules": { "ls": true, "rm": false, "git": true }, "sessionSyncEnabled": true });
        assert_eq!(
            merged([object(one.clone())].into_iter()),
            object(json!({ "telemetryLevel": "all", "terminalAutoApproveEnabled": true,
                "terminalAutoApproveRules": { "ls": true, "rm": false, "git": true } }))
        );
        let other = json!({ "telemetryLevel": "crash", "terminalAutoApproveEnabled": false,
            "systemProxyEnabled": true, "terminalAutoApproveRules": { "ls": true, "git": false } });
        assert_eq!(
            merged([object(one), object(other)].into_iter()),
            object(json!({ "telemetryLevel": "crash", "terminalAutoApproveEnabled": false,
                "systemProxyEnabled": true, "terminalAutoApproveRules": { "ls": true } }))
        );
    }
}
