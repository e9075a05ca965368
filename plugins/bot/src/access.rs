//! Who may see a bot and who may change it. A reader that is absent is the host itself, or anybody on a host
//! with no users directory.

use ostler_contract::points::Reader;
use ostler_contract::{Grant, RpcError};

use crate::SCHEME;
use crate::record::Bot;

fn holds(reader: &Reader, subject: &'static str, operation: &'static str) -> bool {
    reader.holds(&Grant::of(subject, operation))
}

fn is_admin(reader: &Reader) -> bool {
    holds(reader, "*", "*")
}

/// Whether somebody may read a bot that lacks the grant to read any.
pub(crate) fn may_read_own(bot: &Bot, reader: &Reader) -> bool {
    reader.belongs_to(&bot.owner) || is_admin(reader)
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
        Some(writer) if !writer.belongs_to(&bot.owner) && !is_admin(writer) => {
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
        Some(writer) if !writer.belongs_to(owner) && !is_admin(writer) => {
            let name = &writer.id;
            Err(RpcError::permission_denied(format!("{name} may not make a bot of {owner} here")))
        }
        _ => Ok(()),
    }
}
