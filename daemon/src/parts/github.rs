//! The place of `@ostler/github` in a program without it.

use ostler_contract::Plugin;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/github";

/// The plugin, which cannot be loaded.
pub fn plugin() -> Plugin {
    Plugin::left_out(NAME, "github")
}
