//! Grants: subjects, their operations, the two groups, and the matching.
//!
//! A grant is `<subject>:<operation>`, `<subject>:read` or `<subject>:write`; each side can be `*`.

use std::borrow::Cow;
use std::fmt;

/// A subject of grants.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The part before the colon.
    pub name: &'static str,
    /// Text for users.
    pub title: &'static str,
    /// Text for users.
    pub description: &'static str,
    /// Operations in the group `<subject>:read`.
    pub read: &'static [&'static str],
    /// Operations in the group `<subject>:write`.
    pub write: &'static [&'static str],
}

/// Read operations of `file:` and of every scheme a provider serves.
pub const SCHEME_READ: &[&str] = &["get", "list", "resolve", "watch"];
/// Write operations of `file:` and of every scheme a provider serves.
pub const SCHEME_WRITE: &[&str] = &["put", "delete", "mkdir", "move", "copy", "request"];

macro_rules! subjects {
    ($($name:literal $title:literal $description:literal $read:expr, $write:expr;)+) => {
        /// The subjects of the host, in the order in which they are advertised.
        pub const SUBJECTS: &[Subject] = &[$(Subject {
            name: $name, title: $title, description: $description, read: $read, write: $write,
        }),+];
    };
}

subjects! {
    "session" "Sessions" "Agent sessions: see them, make them, change them."
        &["list", "state"],
        &["create", "dispose", "rename", "configure", "folders", "attach", "mark", "review", "changes", "worktree", "artifacts"];
    "chat" "Chats" "The chats of a session; a session grant covers them."
        &["turns"],
        &["create", "fork", "dispose", "move", "send", "cancel", "answer", "tool", "draft", "folders", "mark", "truncate"];
    "terminal" "Terminals" "Shells on this host."
        &["output"], &["create", "dispose", "input", "resize", "claim", "rename", "clear"];
    "automation" "Automations" "Work that starts by itself."
        &["list"], &["create", "update", "remove", "run", "cancel"];
    "file" "Files" "The files of this host."
        SCHEME_READ, SCHEME_WRITE;
    "config" "Configuration" "The settings of this host."
        &["settings"], &["change"];
    "diagnostics" "Diagnostics" "Logs, network facts, endpoint checks."
        &["logs", "network", "fetch", "metrics"], &[];
    "container" "Dev containers" "Dev containers on this host."
        &[], &["connect", "disconnect", "relay", "stop", "remove"];
    "proxy" "Model proxy" "Model calls through this host."
        &["models"], &["call"];
    "trust" "Trusted folders" "Which folders agents may act in unasked."
        &[], &["push"];
    "user" "People" "The people this host knows." SCHEME_READ, SCHEME_WRITE;
    "team" "Teams" "The teams this host knows." SCHEME_READ, SCHEME_WRITE;
    "project" "Projects" "The projects this host knows." SCHEME_READ, SCHEME_WRITE;
    "role" "Roles" "Named lists of grants." SCHEME_READ, SCHEME_WRITE;
    "policy" "Policies" "Which agents, models and machines may be used." SCHEME_READ, SCHEME_WRITE;
    "usage" "Usage" "What work cost." &["get", "list", "resolve"], &[];
}

/// Returns the host's subject of that name.
pub fn subject(name: &str) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|subject| subject.name == name)
}

/// One `<subject>:<operation>`, of a principal or required by a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The part before the colon, or `*`.
    pub subject: Cow<'static, str>,
    /// An operation, `read`, `write` or `*`.
    pub operation: Cow<'static, str>,
}

impl Grant {
    /// Creates a grant from two constants.
    pub const fn of(subject: &'static str, operation: &'static str) -> Self {
        Self { subject: Cow::Borrowed(subject), operation: Cow::Borrowed(operation) }
    }

    /// Creates a grant for a scheme that is known at run time.
    pub fn on(subject: &str, operation: &'static str) -> Self {
        Self { subject: Cow::Owned(subject.to_ascii_lowercase()), operation: Cow::Borrowed(operation) }
    }

    /// Parses `<subject>:<operation>`; other text is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let (subject, operation) = text.split_once(':')?;
        let word = |text: &str| {
            text == "*"
                || (text.starts_with(|first: char| first.is_ascii_alphabetic())
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+')))
        };
        (word(subject) && word(operation)).then(|| Self {
            subject: Cow::Owned(subject.to_ascii_lowercase()),
            operation: Cow::Owned(operation.to_owned()),
        })
    }

    /// Returns whether it is valid. The host's subjects have fixed operations; other subjects belong to plugins.
    pub fn is_known(&self) -> bool {
        matches!(self.operation.as_ref(), "*" | "read" | "write")
            || subject(&self.subject).is_none_or(|known| {
                known.read.iter().chain(known.write).any(|operation| *operation == self.operation)
            })
    }

    /// Returns whether `self` includes `asked`.
    pub fn covers(&self, asked: &Grant) -> bool {
        self.covers_subject(asked, &asked.subject)
            // Operations on a session include its chats.
            || (asked.subject == "chat" && self.subject == "session" && self.covers_subject(asked, "session"))
    }

    fn covers_subject(&self, asked: &Grant, subject: &str) -> bool {
        if self.subject != "*" && self.subject != subject {
            return false;
        }
        match self.operation.as_ref() {
            "*" => true,
            // Only the group includes a group, and only everything includes everything.
            _ if matches!(asked.operation.as_ref(), "*" | "read" | "write") => {
                self.operation == asked.operation
            }
            "read" => in_group(&asked.subject, &asked.operation, false),
            "write" => in_group(&asked.subject, &asked.operation, true),
            operation => operation == asked.operation && self.subject_is(&asked.subject),
        }
    }

    /// A single operation of `session` does not include the chat operation of the same name.
    fn subject_is(&self, asked: &str) -> bool {
        self.subject == "*" || self.subject == asked
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.subject, self.operation)
    }
}

/// Returns whether `operation` is in the read or the write group of `subject`. An operation of a plugin outside the ten
/// common ones is a write, so that the read group only reads.
fn in_group(subject_name: &str, operation: &str, write: bool) -> bool {
    match subject(subject_name) {
        Some(subject) => (if write { subject.write } else { subject.read }).contains(&operation),
        None => SCHEME_READ.contains(&operation) != write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(held: &str, asked: &str) -> bool {
        Grant::parse(held).expect("held").covers(&Grant::parse(asked).expect("asked"))
    }

    #[test]
    fn groups_and_wildcards() {
        assert!(covers("*:*", "bot:chat"));
        assert!(covers("session:read", "session:state"));
        assert!(covers("session:read", "chat:turns"));
        assert!(covers("session:write", "chat:send"));
        assert!(covers("session:*", "chat:send"));
        assert!(!covers("session:read", "chat:send"));
        assert!(!covers("session:create", "chat:create"));
        assert!(covers("notes:read", "notes:get"));
        assert!(covers("notes:write", "notes:put"));
        assert!(covers("bot:write", "bot:chat"));
        assert!(!covers("bot:read", "bot:chat"));
        assert!(covers("*:get", "notes:get"));
        assert!(!covers("notes:*", "bot:get"));
        for (held, asked) in
            [("*:*", "*:*"), ("*:*", "notes:write"), ("notes:read", "notes:read"), ("*:write", "bot:write")]
        {
            assert!(covers(held, asked), "{held} {asked}");
        }
        for (held, asked) in [
            ("*:write", "*:*"),
            ("notes:*", "*:*"),
            ("notes:write", "notes:*"),
            ("notes:write", "notes:read"),
            ("notes:read", "notes:write"),
            ("notes:read", "*:read"),
            ("notes:get", "notes:read"),
        ] {
            assert!(!covers(held, asked), "{held} {asked}");
        }
    }

    #[test]
    fn words_that_are_no_grant() {
        for text in [
            "",
            "session",
            ":",
            "session:",
            ":read",
            "a b:get",
            "session:read:more",
            "1a:get",
            "a:1",
            "a/b:get",
            "a:b/c",
            "a*:get",
            "**:get",
            "-a:get",
        ] {
            assert_eq!(Grant::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_grant_is_printed_as_it_is_written() {
        for text in ["session:create", "*:*", "*:read", "x-notes.v1+json:put_all", "b2:write"] {
            let grant = Grant::parse(text).expect("a grant");
            assert_eq!(grant.to_string(), text);
            let (subject, operation) = text.split_once(':').expect("two words");
            assert_eq!((grant.subject.as_ref(), grant.operation.as_ref()), (subject, operation));
        }
        assert_eq!(Grant::parse("Notes:Put").expect("a grant").to_string(), "notes:Put");
        assert_eq!(Grant::of("session", "create").to_string(), "session:create");
        assert_eq!(Grant::on("Notes", "get").to_string(), "notes:get");
    }

    #[test]
    fn a_subject_of_the_host_has_its_operations_alone() {
        let known = |text: &str| Grant::parse(text).expect("a grant").is_known();
        for text in ["session:create", "session:*", "session:read", "usage:write", "usage:get", "*:anything"]
        {
            assert!(known(text), "{text}");
        }
        assert!(known("notes:fly"), "a plugin's scheme has any operation");
        for text in ["session:fly", "usage:put", "policy:chat"] {
            assert!(!known(text), "{text}");
        }
        for known in SUBJECTS {
            assert_eq!(subject(known.name).map(|found| found.title), Some(known.title));
        }
        assert!(subject("notes").is_none());
    }

    #[test]
    fn one_operation_of_a_session_is_not_the_chat_operation_of_that_name() {
        assert!(covers("chat:create", "chat:create"));
        assert!(covers("session:create", "session:create"));
        assert!(!covers("chat:*", "session:create"));
        assert!(!covers("terminal:*", "chat:send"));
        assert!(!covers("session:*", "terminal:write"));
        assert!(covers("*:create", "chat:create"));
    }

    #[test]
    fn no_operation_is_called_like_a_group() {
        for subject in SUBJECTS {
            for operation in subject.read.iter().chain(subject.write) {
                assert!(!["read", "write", "*"].contains(operation), "{}:{operation}", subject.name);
            }
        }
    }
}
