//! The sessions of bots.

use ostler_contract::host::{SessionModel, SessionRequest};
use ostler_contract::owner::Owner;
use ostler_contract::{PluginHost, RpcError, Thrown, json};

use crate::record::Bot;

/// The request for a session with a bot's backend.
pub(crate) fn request(bot: &Bot, owner: &str, title: &str) -> SessionRequest {
    let config =
        bot.computer.as_ref().and_then(|computer| json!({ "computer": computer }).as_object().cloned());
    SessionRequest {
        owner: owner.to_owned(),
        provider: bot.preset.clone().or_else(|| bot.harness.clone()),
        working_directory: Some(bot.workspace.clone()),
        config,
        model: match &bot.preset {
            Some(_) => None,
            None => bot.model.clone().map(|id| SessionModel { id }),
        },
        title: Some(title.to_owned()),
        prompt: bot.instructions.clone(),
        works_for: works_for(bot, owner),
    }
}

/// Returns in whose name a session with a bot works besides that of its own owner. Nothing can take the grants of a host's root
/// away, and its host may have had another name.
pub(crate) fn works_for(bot: &Bot, owner: &str) -> Option<String> {
    let is_root = matches!(Owner::parse(&bot.owner), Some(Owner::Root(_)));
    (owner != bot.owner && !is_root).then(|| bot.owner.clone())
}

/// Checks that a session of this host belongs to a bot's owner.
pub(crate) async fn require_link(host: &PluginHost, session: &str, owner: &str) -> Result<(), Thrown> {
    if !host.session_kept(session.to_owned()).await? {
        return Err(RpcError::invalid_params(format!("{session} is not a session this host has")).into());
    }
    match host.session_owner(session.to_owned()).await? {
        Some(held) if held != owner => {
            Err(RpcError::permission_denied(format!("{session} is not a session of {owner}")).into())
        }
        _ => Ok(()),
    }
}
