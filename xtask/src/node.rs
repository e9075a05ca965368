//! Node, for what is compared with it or needs a newer one than that of the system.

use std::path::{Path, PathBuf};

/// Returns the program that `OSTLER_NODE` names, the one that `.ci/lint` installs, or that of `PATH`.
pub fn node(root: &Path) -> PathBuf {
    if let Some(named) = std::env::var_os("OSTLER_NODE") {
        return named.into();
    }
    let installed = root.join("target/tools/node_modules/node/bin/node");
    if installed.is_file() { installed } else { "node".into() }
}
