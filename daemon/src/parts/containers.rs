//! The place of `@ostler/containers` in a program without it.

use ostler_contract::Plugin;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/containers";

/// No runtime is looked for.
pub fn is_runtime_found() -> bool {
    false
}

/// The plugin, which cannot be loaded.
pub fn plugin(_: Option<Vec<String>>) -> Plugin {
    Plugin::left_out(NAME, "containers")
}

/// The place of the process that runs another one in a machine.
pub mod container_process {
    use std::io::Write as _;

    use crate::parts::unavailable;

    /// Runs nothing, and returns an exit code.
    pub fn main() -> u8 {
        let _ = writeln!(std::io::stderr(), "{}", unavailable("containers"));
        1
    }
}
