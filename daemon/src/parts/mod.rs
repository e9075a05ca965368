//! The optional parts of the program. Each is a plugin, behind a feature of this crate with the name of its module here.
//!
//! This is the only place that knows which parts a build has. Where a part is left out, a module with the same items takes the
//! place of its crate: its plugin cannot be loaded and says so, and the rest does nothing or fails with the same reason.

#[cfg(feature = "acp")]
pub use {crate::acp as editor, ostler_plugin_acp as acp};
#[cfg(not(feature = "acp"))]
pub mod acp;
#[cfg(not(feature = "acp"))]
pub use acp::editor;

#[cfg(feature = "console")]
pub use ostler_plugin_console as console;
#[cfg(not(feature = "console"))]
pub mod console;

#[cfg(feature = "containers")]
pub use ostler_plugin_containers as containers;
#[cfg(not(feature = "containers"))]
pub mod containers;

#[cfg(feature = "git")]
pub use ostler_plugin_git as git;
#[cfg(not(feature = "git"))]
pub mod git;

#[cfg(feature = "github")]
pub use ostler_plugin_github as github;
#[cfg(not(feature = "github"))]
pub mod github;

#[cfg(feature = "postgres")]
pub use ostler_plugin_postgres as postgres;
#[cfg(not(feature = "postgres"))]
pub mod postgres;

/// The optional parts, each with whether this program has it. The order is that of listings.
pub const PARTS: &[(&str, bool)] = &[
    ("acp", cfg!(feature = "acp")),
    ("console", cfg!(feature = "console")),
    ("containers", cfg!(feature = "containers")),
    ("git", cfg!(feature = "git")),
    ("github", cfg!(feature = "github")),
    ("postgres", cfg!(feature = "postgres")),
];

/// Returns which optional parts this program has and which it lacks.
pub fn listed() -> String {
    let (built_in, left_out): (Vec<_>, Vec<_>) =
        PARTS.iter().copied().partition(|(_, is_built_in)| *is_built_in);
    let named = |word: &str, parts: &[(&str, bool)]| {
        let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
        (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")))
    };
    let said = [named("with", &built_in), named("without", &left_out)];
    said.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns why a command does nothing in a program that was built without a part.
#[cfg(not(all(feature = "acp", feature = "containers")))]
fn unavailable(part: &str) -> String {
    format!("{}; install a build with it", ostler_contract::problem::built_without(part))
}
