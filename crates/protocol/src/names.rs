//! What this host calls itself, spelt once.

/// The program, and the prefix of `_meta` keys (`ostler.grants`).
pub const HOST: &str = "ostler";

/// The key of `_meta` for one of the host's own facts: `ostler.<fact>`.
pub fn meta_key(fact: &str) -> String {
    format!("{HOST}.{fact}")
}

/// A command of the host's own: `x-ostler/<domain>/<verb>`.
pub fn own_command(domain: &str, verb: &str) -> String {
    format!("{}/{domain}/{verb}", own_scheme())
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
