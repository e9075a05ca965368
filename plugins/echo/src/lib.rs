//! `@ostler/echo`: a backend that needs no model. It streams the prompt back word by word; a prompt that begins with
//! `/` is a script. For tests, benchmarks and a first try.

mod script;
mod session;
mod tool;
mod worker;

use std::sync::Arc;

use ostler_contract::points::{Agent, ChatAbilities, Offered, OfferedCommand, OfferedModel, Start};
use ostler_contract::{Call, Frozen, JsonObject, Plugin, json};

pub use script::{COMMANDS, Script};

/// The plugin.
pub fn plugin() -> Plugin {
    Plugin::new("@ostler/echo", |host, options| {
        Box::pin(async move {
            let text = |key: &str| options.get(key).and_then(|value| value.as_str());
            host.register_agent(agent(
                text("provider").unwrap_or("echo"),
                text("workerStop") == Some("session"),
            ))
        })
    })
    .title("Echo")
    .defaults(json!({ "provider": "echo", "workerStop": "worker" }))
    .options_schema(json!({
        "type": "object",
        "properties": {
            "provider": { "type": "string", "description": "The name clients ask for this backend by." },
            "workerStop": {
                "type": "string", "enum": ["worker", "session"],
                "description": "What stopping a worker stops: only the worker, or its lead turn."
            }
        }
    }))
}

fn agent(provider: &str, stops_lead: bool) -> Agent {
    let ways = session::Ways { approved: Arc::default(), stops_lead };
    Agent {
        provider: provider.into(),
        display_name: "Echo".into(),
        description: Some("Repeats each message. Messages that begin with / run a script.".to_owned()),
        schema: Call::now(|()| Ok(settings())),
        defaults: Call::now(|()| Ok(JsonObject::from_iter([("delayMs".to_owned(), json!(0))]))),
        create: Call::now(move |(start,): (Frozen<Start>,)| Ok(session::session(start.0, ways.clone()))),
        chats: Some(ChatAbilities { fork: true, side_chat: true }),
        probe: Some(Call::now(|()| {
            Ok(Offered {
                models: vec![OfferedModel {
                    id: "echo".to_owned(),
                    name: "Echo".to_owned(),
                    ..Default::default()
                }],
                commands: COMMANDS
                    .iter()
                    .map(|(name, what)| OfferedCommand {
                        name: (*name).to_owned(),
                        description: Some((*what).to_owned()),
                    })
                    .collect(),
                customizations: None,
            })
        })),
        ..Agent::default()
    }
}

fn settings() -> ostler_contract::Value {
    json!({
        "type": "object",
        "properties": {
            "delayMs": {
                "type": "number", "title": "Delay", "default": 0, "sessionMutable": true,
                "description": "Delay between two words, in milliseconds."
            }
        }
    })
}
