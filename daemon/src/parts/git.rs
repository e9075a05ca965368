//! The place of `@ostler/git` in a program without it.

use ostler_contract::Plugin;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/git";

/// The plugin, which cannot be loaded.
pub fn plugin() -> Plugin {
    Plugin::left_out(NAME, "git")
}
