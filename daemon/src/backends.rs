//! Which plugins have the backends of a running host, so that it does not end for a start that would be refused.

use ostler_contract::registry::Registrant;
use ostler_loader::{LoadedPlugin, PluginConfig, State};

use crate::compose::Composed;
use crate::settings::Settings;
use crate::sources::Sources;

/// The plugins of a host with and without backends.
#[derive(Debug, Clone)]
pub struct Backends {
    /// The specs of the plugins with a backend.
    pub specs: Vec<String>,
    /// The entries of the plugins without one.
    without: Vec<PluginConfig>,
    /// Whether a backend belongs to no plugin.
    is_built_in: bool,
    sources: Sources,
}

impl Backends {
    /// Reads the plugins of a composed host.
    pub fn of(settings: &Settings, composed: &Composed) -> Self {
        let owners: Vec<&Registrant> = composed.host.core.listed_agents().map(|agent| &agent.owner).collect();
        let owns = |plugin: &LoadedPlugin, owner: &Registrant| matches!(owner, Registrant::Plugin(id) if plugin.id.as_ref() == Some(id));
        let applied = composed.plugins.iter().filter(|plugin| plugin.state == State::Applied);
        let (with, without): (Vec<_>, Vec<_>) =
            applied.partition(|plugin| owners.iter().any(|owner| owns(plugin, owner)));
        let entries = settings.plugins.iter();
        let is_without = |entry: &&PluginConfig| without.iter().any(|plugin| plugin.spec == entry.name);
        Self {
            specs: with.into_iter().map(|plugin| plugin.spec.clone()).collect(),
            without: entries.filter(is_without).cloned().collect(),
            is_built_in: owners.iter().any(|owner| matches!(owner, Registrant::Host)),
            sources: composed.sources.clone(),
        }
    }

    /// Returns why a host with these plugins would not start, with the remedy; `None` if it may start.
    pub fn refusal(&self, next: &[PluginConfig]) -> Option<String> {
        let mut enabled = next.iter().filter(|entry| entry.enabled);
        // A plugin with other options or files, or one that is not loaded, may have a backend.
        if self.is_built_in
            || enabled.any(|entry| !self.without.contains(entry))
            || self.sources.have_changed()
        {
            return None;
        }
        Some(format!("{NONE}; {}", remedy(&self.specs, next)))
    }
}

/// What is wrong with a configuration without a backend.
const NONE: &str = "no enabled plugin has a backend, without which the daemon does not start";

/// Returns what to note about a change of the configuration after which no plugin of the running daemon with a backend is
/// enabled; `None` for other changes. `backends` are the specs of those plugins.
pub fn note(backends: &[String], next: &[PluginConfig]) -> Option<String> {
    let is_left = next.iter().any(|entry| entry.enabled && backends.contains(&entry.name));
    (!backends.is_empty() && !is_left).then(|| {
        format!(
            "no enabled plugin has a backend of the running daemon, which does not restart without one; {}",
            remedy(backends, next)
        )
    })
}

fn remedy(backends: &[String], next: &[PluginConfig]) -> String {
    let disabled = next.iter().find(|entry| !entry.enabled && backends.contains(&entry.name));
    match disabled {
        Some(entry) => format!("enable one with: ostler plugin enable {}", entry.name),
        None => format!(
            "install one with: ostler plugin install {}",
            backends.first().map_or("<spec>", String::as_str)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, enabled: bool) -> PluginConfig {
        PluginConfig { enabled, ..PluginConfig::named(name) }
    }

    #[test]
    fn a_host_is_refused_only_if_it_certainly_has_no_backend() {
        let backends = Backends {
            specs: vec!["@ostler/echo".to_owned()],
            without: vec![entry("@ostler/git", true)],
            is_built_in: false,
            sources: Sources::default(),
        };
        let refused = backends.refusal(&[entry("@ostler/echo", false), entry("@ostler/git", true)]);
        assert!(refused.unwrap().ends_with("enable one with: ostler plugin enable @ostler/echo"));
        assert!(backends.refusal(&[]).unwrap().ends_with("ostler plugin install @ostler/echo"));
        assert_eq!(backends.refusal(&[entry("@ostler/echo", true)]), None);
        assert_eq!(backends.refusal(&[entry("./new.mjs", true)]), None, "it may have one");
        let mut changed = entry("@ostler/git", true);
        changed.options.insert("a".to_owned(), 1.into());
        assert_eq!(backends.refusal(&[changed]), None, "with other options it may have one");
        assert_eq!(Backends { is_built_in: true, ..backends }.refusal(&[]), None);
    }
}
