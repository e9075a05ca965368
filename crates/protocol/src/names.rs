//! What this host calls itself, spelt once.

/// The program, and the prefix of `_meta` keys (`ostler.grants`).
pub const HOST: &str = "ostler";

/// What plugins import the host's own module as.
pub const SDK: &str = "@ostler/sdk";

/// Where routes of plugins stand on a listener.
pub const ROUTES: &str = "/plugins";

/// Environment variable of the processes of a session: the session's URI.
pub const SESSION_VARIABLE: &str = "OSTLER_SESSION";
/// Environment variable of the processes of a session that a run started: the run's URI.
pub const RUN_VARIABLE: &str = "OSTLER_RUN";
/// Environment variable of the processes of a session: the session's URL, where it has one.
pub const SESSION_URL_VARIABLE: &str = "OSTLER_SESSION_URL";
/// Environment variable of the processes of a session that a run started: the run's URL, where it has one.
pub const RUN_URL_VARIABLE: &str = "OSTLER_RUN_URL";

/// The path of a plugin's route: `/plugins/<plugin>/<rest>`.
pub fn route(plugin: &str, rest: &str) -> String {
    format!("{ROUTES}/{plugin}/{rest}")
}

/// The key of `_meta` for one of the host's own facts: `ostler.<fact>`.
pub fn meta_key(fact: &str) -> String {
    format!("{HOST}.{fact}")
}

/// The scheme that stands before the host's own commands, and that no plugin's channel may take.
pub fn own_scheme() -> String {
    format!("x-{HOST}")
}

/// Whether a command's name is one of the host's own, served or not.
pub fn is_own_command(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.strip_prefix(&own_scheme()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
