//! What this host calls itself, spelt once.

/// The program, and the prefix of `_meta` keys (`ostler.grants`).
pub const HOST: &str = "ostler";

/// The key of `_meta` for one of the host's own facts: `ostler.<fact>`.
pub fn meta_key(fact: &str) -> String {
    format!("{HOST}.{fact}")
}

/// A command of the host's own: `x-ostler/<domain>/<verb>`.
pub fn own_command(domain: &str, verb: &str) -> String {
    format!("x-{HOST}/{domain}/{verb}")
}
