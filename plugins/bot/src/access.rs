//! Authorization of reads and changes of bots. An absent reader means the host itself, or anyone on a host without a
//! users file.

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

/// Returns whether a reader without the grant can read a bot.
pub(crate) fn may_read_own(bot: &Bot, reader: &Reader) -> bool {
    reader.belongs_to(&bot.owner) || is_admin(reader)
}

/// Returns whether a bot is in a reader's list.
pub(crate) fn may_see(bot: &Bot, reader: Option<&Reader>) -> bool {
    reader.is_none_or(|reader| {
        may_read_own(bot, reader) || holds(reader, SCHEME, "get") || holds(reader, SCHEME, "list")
    })
}

/// Returns whether a reader receives a chat.
pub(crate) fn may_chat(reader: Option<&Reader>) -> bool {
    reader.is_none_or(|reader| holds(reader, SCHEME, "get") && holds(reader, SCHEME, "chat"))
}

/// Checks that a writer can change a bot.
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

/// Checks that a writer can create a bot of an owner.
pub(crate) fn require_make(owner: &str, writer: Option<&Reader>) -> Result<(), RpcError> {
    match writer {
        Some(writer) if !writer.belongs_to(owner) && !is_admin(writer) => {
            let name = &writer.id;
            Err(RpcError::permission_denied(format!("{name} may not make a bot of {owner} here")))
        }
        _ => Ok(()),
    }
}
