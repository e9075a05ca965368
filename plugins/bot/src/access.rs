//! Who may see a bot and who may change it. A reader that is absent is the host itself, or anybody on a host
//! with no users directory.

use ostler_contract::points::Reader;
use ostler_contract::{Grant, RpcError};

use crate::SCHEME;
use crate::record::Bot;

/// Whether somebody holds a grant.
pub(crate) fn holds(reader: &Reader, subject: &'static str, operation: &'static str) -> bool {
    let asked = Grant::of(subject, operation);
    reader.grants.iter().filter_map(|held| Grant::parse(held)).any(|held| held.covers(&asked))
}

fn is_admin(reader: &Reader) -> bool {
    holds(reader, "*", "*")
}

/// Whether somebody belongs to an owner: is it, or is in its team or project. Being in a team covers its
/// projects.
fn belongs(reader: &Reader, owner: &str) -> bool {
    if reader.id == owner {
        return true;
    }
    let in_team = |team: &str| {
        let all = format!("{team}:*");
        reader.memberships.iter().any(|held| *held == *team || *held == all)
    };
    match owner.split_once(':') {
        Some(("team", team)) => in_team(team),
        Some(("project", project)) => {
            reader.memberships.iter().any(|held| held == project)
                || project.split_once(':').is_some_and(|(team, _)| in_team(team))
        }
        _ => false,
    }
}

/// Whether somebody may read a bot that lacks the grant to read any.
pub(crate) fn may_read_own(bot: &Bot, reader: &Reader) -> bool {
    belongs(reader, &bot.owner) || is_admin(reader)
}

/// Whether a bot is in somebody's list.
pub(crate) fn may_see(bot: &Bot, reader: Option<&Reader>) -> bool {
    reader.is_none_or(|reader| {
        may_read_own(bot, reader) || holds(reader, SCHEME, "get") || holds(reader, SCHEME, "list")
    })
}

/// Whether somebody is answered a chat.
pub(crate) fn may_chat(reader: Option<&Reader>) -> bool {
    reader.is_none_or(|reader| holds(reader, SCHEME, "get") && holds(reader, SCHEME, "chat"))
}

/// Refuses whoever may not change a bot.
pub(crate) fn require_change(bot: &Bot, writer: Option<&Reader>) -> Result<(), RpcError> {
    match writer {
        Some(writer) if !belongs(writer, &bot.owner) && !is_admin(writer) => {
            let id = &bot.id;
            Err(RpcError::permission_denied(format!(
                "Only the owner of {id}, a member of its team or project, an admin or this host may change it"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses whoever may not make a bot of an owner.
pub(crate) fn require_make(owner: &str, writer: Option<&Reader>) -> Result<(), RpcError> {
    match writer {
        Some(writer) if !belongs(writer, owner) && !is_admin(writer) => {
            let name = &writer.id;
            Err(RpcError::permission_denied(format!("{name} may not make a bot of {owner} here")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_belong() {
        let reader = |memberships: &[&str]| Reader {
            id: "user:ann".into(),
            memberships: memberships.iter().map(|held| (*held).to_owned()).collect(),
            ..Reader::default()
        };
        for (memberships, owner, yes) in [
            (&[][..], "user:ann", true),
            (&[], "user:bob", false),
            (&["ops"], "team:ops", true),
            (&["ops"], "project:ops:web", true),
            (&["ops:*"], "project:ops:web", true),
            (&["ops:web"], "project:ops:web", true),
            (&["ops:api"], "project:ops:web", false),
            (&["ops:web"], "team:ops", false),
            (&["op"], "team:ops", false),
            (&["ops"], "root:host", false),
        ] {
            assert_eq!(belongs(&reader(memberships), owner), yes, "{memberships:?} {owner}");
        }
    }
}
