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
        owner.ids().into_iter().all(is_id).then_some(owner)
    }

    /// Reads a membership of the users file, `<team>` or `<team>:<project>`, as the team or project; `None` if the text
    /// has neither form. The project is `*` in a membership in all projects of a team.
    pub fn from_membership(text: &'a str) -> Option<Self> {
        let owner = match text.split_once(':') {
            Some((team, project)) => Self::Project { team, project },
            None => Self::Team(text),
        };
        owner.ids().into_iter().all(is_id).then_some(owner)
    }

    /// Returns the word before the first colon: `user`, `root`, `plugin`, `team` or `project`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Root(_) => "root",
            Self::Plugin(_) => "plugin",
            Self::Team(_) => "team",
            Self::Project { .. } => "project",
        }
    }

    /// Returns the id of a user; `None` for other owners.
    pub fn user(self) -> Option<&'a str> {
        match self {
            Self::User(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the id of a team, or of the team that has a project; `None` for other owners.
    pub fn team(self) -> Option<&'a str> {
        match self {
            Self::Team(team) | Self::Project { team, .. } => Some(team),
            _ => None,
        }
    }

    /// Returns the id of a project, without its team; `None` for other owners.
    pub fn project(self) -> Option<&'a str> {
        match self {
            Self::Project { project, .. } => Some(project),
            _ => None,
        }
    }

    /// Returns a team or project as a membership of the users file, `<team>` or `<team>:<project>`; `None` for other
    /// owners.
    pub fn membership(self) -> Option<String> {
        match self {
            Self::Team(team) => Some(team.to_owned()),
            Self::Project { team, project } => Some(format!("{team}:{project}")),
            _ => None,
        }
    }

    fn ids(self) -> [&'a str; 2] {
        match self {
            Self::User(id) | Self::Root(id) | Self::Plugin(id) | Self::Team(id) => [id, id],
            Self::Project { team, project } => [team, project],
        }
    }
}

fn is_id(id: &str) -> bool {
    !id.trim().is_empty() && !id.contains([':', '/', '\\']) && !id.contains(char::is_control)
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::User(id) | Self::Root(id) | Self::Plugin(id) | Self::Team(id) => {
                write!(formatter, "{kind}:{id}")
            }
            Self::Project { team, project } => write!(formatter, "{kind}:{team}:{project}"),
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

    #[test]
    fn the_parts_of_an_owner() {
        let parts = |text| {
            let owner = Owner::parse(text).unwrap();
            (owner.kind(), owner.user(), owner.team(), owner.project(), owner.membership())
        };
        assert_eq!(parts("user:ada"), ("user", Some("ada"), None, None, None));
        assert_eq!(parts("root:inn"), ("root", None, None, None, None));
        assert_eq!(parts("plugin:bot"), ("plugin", None, None, None, None));
        assert_eq!(parts("team:inn"), ("team", None, Some("inn"), None, Some("inn".to_owned())));
        let project = ("project", None, Some("inn"), Some("hay"), Some("inn:hay".to_owned()));
        assert_eq!(parts("project:inn:hay"), project);
    }

    #[test]
    fn a_membership_is_a_team_or_a_project() {
        assert_eq!(Owner::from_membership("inn"), Some(Owner::Team("inn")));
        assert_eq!(Owner::from_membership("inn:hay"), Some(Owner::Project { team: "inn", project: "hay" }));
        assert_eq!(Owner::from_membership("inn:*"), Some(Owner::Project { team: "inn", project: "*" }));
        for text in ["", "inn:", ":hay", "inn:hay:x", "a/b"] {
            assert_eq!(Owner::from_membership(text), None, "{text:?}");
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
