//! The backend of a chat with a bot that runs no model: every turn ends in the call that starts it, complete
//! and with no response part.

use ostler_contract::points::{Agent, AgentSession, Emit, Start};
use ostler_contract::protocol::actions;
use ostler_contract::{Call, Frozen, JsonObject, Thrown, json};

/// Its name, which is also the scheme of its sessions.
pub(crate) const PROVIDER: &str = "bot-chat";

pub(crate) fn agent() -> Agent {
    Agent {
        provider: PROVIDER.into(),
        display_name: "Bot chat".into(),
        description: Some("Messages to a bot; runs no model.".to_owned()),
        unlisted: Some(true),
        schema: Call::now(|()| Ok(json!({ "type": "object", "properties": {} }))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        create: Call::now(|(start,): (Frozen<Start>,)| Ok(session(start.0))),
        ..Agent::default()
    }
}

fn session(start: Start) -> AgentSession {
    AgentSession {
        begin: Call::now(move |(turn, ..): (String, String, _, _, _)| {
            let ended = json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 });
            let ended = actions::read(ended).map_err(Thrown::new)?;
            start.emit.call((Emit::Chat, ended))
        }),
        cancel: Call::now(|(_turn,)| Ok(())),
        close: Call::now(|(_removing,)| Ok(())),
        ..AgentSession::default()
    }
}
