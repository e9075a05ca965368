//! The messages about loading plugins whose wording the contract defines. Spec: *Plugin loading messages*.

use crate::thrown::Thrown;

/// One line about a plugin: printed, logged, shown as `skipped: <line>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The module has no `apply`.
    #[error("{url} does not export an apply function")]
    NoApply {
        /// The module.
        url: String,
    },
    /// An invalid slug: the module's name or its replacement.
    #[error("plugin {name} skipped: its name is not a slug")]
    NotASlug {
        /// The name.
        name: String,
    },
    /// Two entries with the same id.
    #[error("plugin {id} is named by {first} and by {second}; only {first} is loaded")]
    SameId {
        /// The id.
        id: String,
        /// The spec that is loaded.
        first: String,
        /// The spec that is not loaded.
        second: String,
    },
    /// Two entries with the same id, of which the first is off.
    #[error("plugin {id} is named by {first} and by {second}; {first} is off, so neither is loaded")]
    SameIdOff {
        /// The id.
        id: String,
        /// The spec that is off.
        first: String,
        /// The other.
        second: String,
    },
    /// A bare name that is not installed.
    #[error("Plugin {name} is not installed in {dir}; run npm install there, or name a path.{hint}")]
    NotInstalled {
        /// The spec.
        name: String,
        /// The configuration folder.
        dir: String,
        /// A suggestion of a similar name: a sentence with a space before it, or empty.
        hint: String,
    },
    /// A bundled plugin that the program was built without.
    #[error(
        "plugin {name} skipped: {}; install a build with it or remove {name} from the configuration",
        built_without(feature)
    )]
    LeftOut {
        /// The spec.
        name: String,
        /// The feature that it needs.
        feature: &'static str,
    },
    /// A path that does not exist.
    #[error("Plugin {name} is not there: tried {tried}.")]
    NotThere {
        /// The spec.
        name: String,
        /// The path.
        tried: String,
    },
    /// A folder without a module.
    #[error("{dir} has no plugin entry: looked for {looked}")]
    NoEntry {
        /// The folder.
        dir: String,
        /// The files.
        looked: String,
    },
    /// A spec with an unsupported scheme.
    #[error(
        "plugin {spec} cannot be imported: {scheme}: modules are not served here; name a package or a path"
    )]
    Scheme {
        /// The spec.
        spec: String,
        /// Its scheme.
        scheme: String,
    },
    /// An invalid manifest.
    #[error("{0}")]
    Manifest(String),
    /// The SDK's version is out of the plugin's range.
    #[error("plugin {name} needs {sdk} {range}, this is {version}{why}", sdk = ostler_protocol::names::SDK)]
    Range {
        /// The plugin.
        name: String,
        /// The range in its manifest.
        range: String,
        /// The version of this SDK.
        version: String,
        /// `""`, or in brackets why the range is invalid.
        why: String,
    },
    /// The module could not be imported.
    #[error("plugin {id} could not be imported from {target} in {ms} ms: {why}")]
    Import {
        /// The spec, because the id is not known yet.
        id: String,
        /// The file.
        target: String,
        /// How long it took.
        ms: u128,
        /// The exception.
        why: String,
    },
    /// `defaults` does not contain options.
    #[error("plugin {id} skipped: its defaults is not an object")]
    Defaults {
        /// The plugin.
        id: String,
    },
    /// `optionsSchema` is not a schema.
    #[error("plugin {id} skipped: its optionsSchema {why}")]
    Schema {
        /// The plugin.
        id: String,
        /// `is not an object`, or what is wrong in it.
        why: String,
    },
    /// An option does not fit the schema.
    #[error("plugin {id} skipped: plugins.{id}.options{path} must {expected}")]
    Option {
        /// The plugin.
        id: String,
        /// `.<key>…`
        path: String,
        /// `be text`
        expected: String,
    },
    /// An option that is not in the schema.
    #[error("plugin {id}: plugins.{id}.options.{key} is not an option {id} knows; passed through")]
    UnknownOption {
        /// The plugin.
        id: String,
        /// The option.
        key: String,
    },
    /// A secret reference that cannot be read.
    #[error("plugin {id} skipped: plugins.{id}.options{path} names {name}: {reason}")]
    Secret {
        /// The plugin.
        id: String,
        /// `.<key>…`
        path: String,
        /// The vault name, as written.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A vault plugin whose options name a secret.
    #[error("plugin {id} skipped: a vault plugin's own options cannot name a secret")]
    VaultNamesSecret {
        /// The plugin.
        id: String,
    },
    /// A vault that is registered after secrets were read.
    #[error(
        "plugin {id} sets vault, but plugin {earlier} already named a secret; list {id} first in the configuration"
    )]
    VaultTooLate {
        /// The vault plugin.
        id: String,
        /// The plugin that named one.
        earlier: String,
    },
    /// `apply` threw, or registered something invalid.
    #[error("plugin {id} failed in {ms} ms: {why}")]
    Failed {
        /// The plugin.
        id: String,
        /// How long it took.
        ms: u128,
        /// The exception.
        why: String,
    },
    /// Two plugins claim one name; the later loses that item.
    #[error("{0}")]
    Clash(String),
    /// A port that is already provided.
    #[error("plugin {id} sets {port}, which {holder} already set; pass 'replace' to take it over")]
    PortHeld {
        /// The plugin.
        id: String,
        /// The port.
        port: &'static str,
        /// `the daemon`, or `plugin <a>`.
        holder: String,
    },
    /// An invalid grant.
    #[error("plugin {id}: grants: {grant} is not <subject>:<operation>; dropped")]
    Grant {
        /// The plugin.
        id: String,
        /// The word.
        grant: String,
    },
    /// A line that a plugin reported with `problem(line)`, printed unchanged.
    #[error("{line}")]
    Said {
        /// The plugin.
        id: String,
        /// The line.
        line: String,
    },
}

/// Returns the error for a value of a plugin that violates the contract, thrown at the call.
pub(crate) fn needs(plugin: impl std::fmt::Display, method: &str, wrong: impl std::fmt::Display) -> Thrown {
    Thrown::new(format_args!("plugin {plugin}: {method} needs {wrong}"))
}

/// Returns the message for a file or directory that is not served, with how to serve it.
pub fn outside(what: impl std::fmt::Display) -> String {
    format!(
        "{what} is outside the directories this host serves; to serve it, add its directory to paths in the configuration, or start the host with --path <directory>"
    )
}

/// The error of a call that uses the network when there is none.
pub fn no_network(plugin: impl std::fmt::Display) -> Thrown {
    Thrown::new(format_args!("plugin {plugin}: this host gives plugins no access to the network"))
}

/// The error of a host call when a plugin is tested without a host.
pub(crate) fn no_host(call: &str) -> Thrown {
    Thrown::new(format_args!("{call} needs a host, and there is none"))
}

/// Returns the error for a plugin that registers too late.
pub fn sealed(id: &str) -> String {
    format!("{id}: nothing may be registered after apply returned")
}

/// Returns the message for a command or a plugin of a feature that this program was built without.
pub fn built_without(feature: &str) -> String {
    format!("this {} was built without {feature}", ostler_protocol::names::HOST)
}

/// Returns the message for a secret that is not in the vault.
pub fn no_secret(name: &str) -> String {
    format!("the vault holds no {name}")
}

/// Returns the message for a secret on a host without a vault.
pub fn no_vault(name: &str) -> String {
    format!("{name} cannot be read: this host has no vault")
}

/// Returns the message for a collection on a host without a record store.
pub fn no_record_store(name: &str) -> String {
    format!("records {name} cannot be read: this host has no record store")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_the_spec_fixes() {
        let id = || "notes".to_owned();
        insta::assert_snapshot!(Problem::NoApply { url: "file:///p/index.js".into() }, @"file:///p/index.js does not export an apply function");
        insta::assert_snapshot!(Problem::NotASlug { name: "@a/b".into() }, @"plugin @a/b skipped: its name is not a slug");
        insta::assert_snapshot!(Problem::Option { id: id(), path: ".key".into(), expected: "be text".into() }, @"plugin notes skipped: plugins.notes.options.key must be text");
        insta::assert_snapshot!(Problem::UnknownOption { id: id(), key: "kee".into() }, @"plugin notes: plugins.notes.options.kee is not an option notes knows; passed through");
        insta::assert_snapshot!(Problem::Secret { id: id(), path: ".key".into(), name: "host:k".into(), reason: no_secret("host:k") }, @"plugin notes skipped: plugins.notes.options.key names host:k: the vault holds no host:k");
        insta::assert_snapshot!(sealed("notes"), @"notes: nothing may be registered after apply returned");
        insta::assert_snapshot!(no_vault("host:k"), @"host:k cannot be read: this host has no vault");
        insta::assert_snapshot!(no_record_store("todo"), @"records todo cannot be read: this host has no record store");
        insta::assert_snapshot!(Problem::VaultNamesSecret { id: id() }, @"plugin notes skipped: a vault plugin's own options cannot name a secret");
    }
}
