//! Names of this host.

/// The name of the program, and the prefix of `_meta` keys (`ostler.grants`).
pub const HOST: &str = "ostler";

/// The specifier of the host's module for plugins.
pub const SDK: &str = "@ostler/sdk";

/// The path of plugin routes on a listener.
pub const ROUTES: &str = "/plugins";

/// Environment variable of the processes of a session: the session's URI.
pub const SESSION_VARIABLE: &str = "OSTLER_SESSION";
/// Environment variable of the processes of a session that a run started: the run's URI.
pub const RUN_VARIABLE: &str = "OSTLER_RUN";
/// Environment variable of the processes of a session: the session's URL, if it has one.
pub const SESSION_URL_VARIABLE: &str = "OSTLER_SESSION_URL";
/// Environment variable of the processes of a session that a run started: the run's URL, if it has one.
pub const RUN_URL_VARIABLE: &str = "OSTLER_RUN_URL";

/// The URL of a page of the documentation, such as `webhooks`.
pub fn page(name: &str) -> String {
    format!("{}/blob/main/docs/{name}.md", env!("CARGO_PKG_REPOSITORY"))
}

/// The path of a plugin's route: `/plugins/<plugin>/<rest>`.
pub fn route(plugin: &str, rest: &str) -> String {
    format!("{ROUTES}/{plugin}/{rest}")
}

/// The fact of a failure after which the same request or action may succeed: in the data of an error, and under `_meta` in the
/// envelope of a rejected action.
pub const RETRYABLE: &str = "retryable";

/// Returns the key of `_meta` for a fact of the host: `ostler.<fact>`.
pub fn meta_key(fact: &str) -> String {
    format!("{HOST}.{fact}")
}

/// The scheme of the host's commands, reserved for them.
pub fn own_scheme() -> String {
    format!("x-{HOST}")
}

/// Returns whether the name of a command belongs to the host, served or not.
pub fn is_own_command(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.strip_prefix(&own_scheme()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
