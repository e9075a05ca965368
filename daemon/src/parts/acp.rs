//! The place of `@ostler/acp` and `ostler acp` in a program without them.

use std::collections::BTreeMap;

use ostler_contract::Plugin;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/acp";

/// The plugin, which cannot be loaded.
pub fn plugin<M>(_: Option<Vec<String>>, _: Option<Vec<String>>, _: M) -> Plugin {
    Plugin::left_out(NAME, "acp")
}

/// No presets.
pub fn bundled_presets() -> Vec<String> {
    Vec::new()
}

/// No processes.
pub fn agent_processes() -> BTreeMap<String, usize> {
    BTreeMap::new()
}

/// The place of the commands that speak ACP.
pub mod editor {
    use crate::answer::Answer;
    use crate::exit::Exit;
    use crate::parts::unavailable;
    use crate::place::Place;
    use crate::verbs::AcpFlags;

    /// Serves no editor.
    ///
    /// # Errors
    /// Always: exit 1.
    pub async fn acp(_: &Place, _: AcpFlags) -> Result<Answer, Exit> {
        Err(Exit::machine(unavailable("acp")))
    }

    /// The place of the command that serves tools to agents.
    pub mod tools_bridge {
        use super::{Answer, Exit, unavailable};

        /// Serves no agent.
        ///
        /// # Errors
        /// Always: exit 1.
        pub async fn bridge() -> Result<Answer, Exit> {
            Err(Exit::machine(unavailable("acp")))
        }
    }
}
