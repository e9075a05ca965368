//! The plugins that come with this host.

use ostler_contract::Plugin;

/// Every bundled plugin, by its spec.
pub fn plugins() -> Vec<Plugin> {
    vec![ostler_plugin_bot::plugin(), ostler_plugin_echo::plugin(), ostler_plugin_webhook::plugin()]
}
