//! The place of `@ostler/console` in a program without it.

use ostler_contract::Plugin;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/console";

/// Changes that no page displays.
#[derive(Debug, Clone, Default)]
pub struct Changes;

impl Changes {
    /// Notifies nobody.
    pub fn tell(&self, _: &'static str) {}

    /// Waits for a page, which never comes.
    pub async fn watched(&self) {
        std::future::pending().await
    }
}

/// The plugin, which cannot be loaded.
pub fn plugin(_: Changes) -> Plugin {
    Plugin::left_out(NAME, "console")
}
