//! Names that plugins cannot use. Harness names and URI schemes share one space with the host's own channels and
//! grants. Spec: *Reserved names*.

use ostler_protocol::grants::SUBJECTS;
use ostler_protocol::names::HOST;

/// Schemes of the web.
const WEB: &[&str] = &["http", "https", "ws", "wss", "data", "mailto"];
/// Schemes of the host.
const OWN: &[&str] = &["file", "automations"];
/// Trigger types of the host.
pub const TRIGGER_TYPES: &[&str] = &["session", "watch"];

/// Returns whether a name of a harness or scheme is reserved. Compared in lowercase.
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("ahp-")
        || name.strip_prefix(HOST).is_some_and(|rest| rest.starts_with('-'))
        || name.starts_with("x-")
        || OWN.contains(&name.as_str())
        || WEB.contains(&name.as_str())
        || SUBJECTS.iter().any(|subject| subject.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names() {
        for name in [
            "ahp-chat",
            "ostler-x",
            "OSTLER-x",
            "x-notes",
            "file",
            "File",
            "automations",
            "session",
            "chat",
            "user",
            "team",
            "role",
            "config",
            "usage",
            "http",
            "https",
            "ws",
            "wss",
            "data",
            "mailto",
        ] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["echo", "notes", "ostler", "xnotes", "filesystem", "bot"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
