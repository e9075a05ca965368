//! Whom work belongs to and is charged to. Spec: *Users and grants*.

use std::fmt;

/// The principal, team or project that a session, automation, bot or entry of usage belongs to.
///
/// ```
/// use ostler_contract::owner::Owner;
///
/// assert_eq!(Owner::parse("project:inn:hay"), Some(Owner::Project { team: "inn", project: "hay" }));
/// assert_eq!(Owner::parse("project:inn"), None);
/// assert_eq!(Owner::User("ada").to_string(), "user:ada");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner<'a> {
    /// `user:<id>`
    User(&'a str),
    /// `root:<host>`
    Root(&'a str),
    /// `plugin:<id>`
    Plugin(&'a str),
    /// `team:<team>`
    Team(&'a str),
    /// `project:<team>:<project>`
    Project {
        /// The team that has the project.
        team: &'a str,
        /// The project.
        project: &'a str,
    },
}

impl<'a> Owner<'a> {
    /// The forms, for error messages.
    pub const FORMS: &'static str =
        "user:<id>, root:<host>, plugin:<id>, team:<team> or project:<team>:<project>";

    /// Reads an owner; `None` if the text has none of the forms. An id is not blank and contains no `:`, `/`, `\` or
    /// control character.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let owner = match kind {
            "user" => Self::User(rest),
            "root" => Self::Root(rest),
            "plugin" => Self::Plugin(rest),
            "team" => Self::Team(rest),
            "project" => {
                let (team, project) = rest.split_once(':')?;
                Self::Project { team, project }
            }
            _ => return None,
        };
        let ids = match owner {
            Self::User(id) | Self::Root(id) | Self::Plugin(id) | Self::Team(id) => [id, id],
            Self::Project { team, project } => [team, project],
        };
        ids.into_iter().all(is_id).then_some(owner)
    }
}

fn is_id(id: &str) -> bool {
    !id.trim().is_empty() && !id.contains([':', '/', '\\']) && !id.contains(char::is_control)
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(formatter, "user:{id}"),
            Self::Root(host) => write!(formatter, "root:{host}"),
            Self::Plugin(id) => write!(formatter, "plugin:{id}"),
            Self::Team(team) => write!(formatter, "team:{team}"),
            Self::Project { team, project } => write!(formatter, "project:{team}:{project}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_declared_forms_are_owners() {
        for text in ["user:ada", "root:inn", "plugin:bot", "team:inn", "project:inn:hay", "user:a b"] {
            assert_eq!(Owner::parse(text).map(|owner| owner.to_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "ada",
            "user",
            "user:",
            "user: ",
            "user:a:b",
            "user:a/b",
            "user:a\\b",
            "user:a\n",
            "team:",
            "team:a:b",
            "project:inn",
            "project::hay",
            "project:inn:",
            "project:inn:hay:x",
            "host:k",
            "User:ada",
        ] {
            assert_eq!(Owner::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn an_owner_is_written_as_it_was_read(text in "(user|root|plugin|team|project|[a-z]{0,4}):.{0,8}(:.{0,4})?") {
            if let Some(owner) = Owner::parse(&text) {
                prop_assert_eq!(owner.to_string(), text);
            }
        }
    }
}
