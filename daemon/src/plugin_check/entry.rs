//! What a check takes from the configuration and from its flags: options, grants, and where the plugin may listen.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::{Grant, JsonObject};
use ostler_js::ListenRule;
use ostler_loader::PluginConfig;
use ostler_loader::options::option_path;

use crate::compose::listens;
use crate::config::ConfigFiles;
use crate::exit::Exit;
use crate::settings::entries;

/// The flags of a check that change the entry of the plugin.
#[derive(Debug, Clone, Default)]
pub struct EntryFlags {
    /// `<key>[.<key>]=<value>`
    pub option: Vec<String>,
    /// `<subject>:<operation>`
    pub grant: Vec<String>,
    /// `<host>:<port>` or the path of a socket.
    pub listen: Vec<String>,
}

/// The entry that a check loads.
#[derive(Debug, Clone)]
pub struct CheckedEntry {
    /// Spec, options, grants, and the folder of a relative spec.
    pub plugin: PluginConfig,
    /// Where the plugin may listen.
    pub listen: Vec<String>,
    /// The configuration file that has the entry.
    pub configured: Option<String>,
}

impl CheckedEntry {
    /// Creates an entry with only a spec, relative to a folder.
    pub fn of(spec: &str, working_dir: &Path) -> Self {
        let plugin = PluginConfig { base: Some(working_dir.to_owned()), ..PluginConfig::named(spec) };
        Self { plugin, listen: Vec::new(), configured: None }
    }

    /// Returns the configured entry of a plugin that is a file or a package, or else one with only the spec. The entry of
    /// a bundled plugin is not used: its options name databases and hosts that serve others.
    pub fn find(spec: &str, working_dir: &Path, files: Option<&ConfigFiles>) -> Self {
        let unconfigured = Self::of(spec, working_dir);
        let Some(files) = files else { return unconfigured };
        let file = |spec: &str, base: &Path| -> Option<PathBuf> {
            ostler_loader::resolve(spec, base, &files.dir).ok()?.path.canonicalize().ok()
        };
        let own = file(spec, working_dir);
        let found =
            entries(files).into_iter().zip(files.config.plugins.iter().flatten()).find(|(entry, _)| {
                let base = entry.base.as_deref().unwrap_or(&files.dir);
                match (&own, file(&entry.name, base)) {
                    (_, None) => false,
                    (Some(own), Some(other)) => *own == other,
                    // As the configuration writes it, relative to its folder.
                    (None, Some(_)) => entry.name == spec,
                }
            });
        let Some((entry, written)) = found else { return unconfigured };
        let plugin = match own {
            Some(_) => PluginConfig { name: spec.to_owned(), base: unconfigured.plugin.base, ..entry },
            None => entry,
        };
        Self {
            plugin: PluginConfig { enabled: true, ..plugin },
            listen: written.listen.clone().unwrap_or_default(),
            configured: Some(files.at("plugins")),
        }
    }

    /// Applies the flags: an option replaces the configured value, a grant and an address are added.
    ///
    /// # Errors
    /// Exit 2 for an invalid value.
    pub fn with(mut self, flags: &EntryFlags) -> Result<Self, Exit> {
        set_options(&mut self.plugin.options, &flags.option)?;
        for grant in &flags.grant {
            if Grant::parse(grant).is_none() {
                return Err(Exit::usage(format!("--grant: {grant} is not <subject>:<operation>")));
            }
            self.plugin.grants.push(grant.clone());
        }
        for place in &flags.listen {
            let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            if !has_port && !place.starts_with('/') {
                return Err(Exit::usage(format!(
                    "--listen: {place} is not <host>:<port> or the absolute path of a socket"
                )));
            }
            self.listen.push(place.clone());
        }
        Ok(self)
    }

    /// Returns the rule for the listeners of the plugin.
    pub(super) fn listen_rule(&self) -> ListenRule {
        let allowed = self.listen.clone();
        Arc::new(move |_, place| listens(&allowed, place))
    }

    /// Returns the rule for the listeners of its tests, which may also listen on loopback.
    pub(super) fn listen_rule_of_tests(&self) -> ListenRule {
        let allowed = self.listen.clone();
        Arc::new(move |_, place| is_loopback(place) || listens(&allowed, place))
    }
}

fn set_options(values: &mut JsonObject, options: &[String]) -> Result<(), Exit> {
    for option in options {
        let wrong = |why: String| Exit::usage(format!("--option: {why}"));
        let (key, typed) =
            option.split_once('=').ok_or_else(|| wrong(format!("{option} is not <key>=<value>")))?;
        let value = option_path::typed(typed).map_err(|why| wrong(format!("{key}: {why}")))?;
        option_path::set(values, key, value).map_err(|why| wrong(why.to_string()))?;
    }
    Ok(())
}

fn is_loopback(place: &str) -> bool {
    let Some((host, _)) = place.rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_listen_on_loopback_and_where_the_entry_allows() {
        let entry = CheckedEntry {
            listen: vec!["0.0.0.0:8080".to_owned()],
            ..CheckedEntry::of("./a", Path::new("/"))
        };
        let (of_tests, of_plugin) = (entry.listen_rule_of_tests(), entry.listen_rule());
        for (place, tests, plugin) in [
            ("127.0.0.1:0", true, false),
            ("127.1.2.3:80", true, false),
            ("[::1]:0", true, false),
            ("localhost:3000", true, false),
            ("0.0.0.0:8080", true, true),
            ("0.0.0.0:8081", false, false),
            ("[::]:0", false, false),
            ("127.0.0.1.example.com:80", false, false),
            ("/tmp/socket", false, false),
        ] {
            assert_eq!((of_tests("./a", place), of_plugin("./a", place)), (tests, plugin), "{place}");
        }
    }
}
