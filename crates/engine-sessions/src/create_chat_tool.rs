//! The host's own tools for models, which act on sessions of the same owner.

use std::sync::{Arc, Weak};

use ostler_contract::points::{Tool, ToolChat, ToolContext, ToolEffects, ToolSpec};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_engine_core::refusals::no_session;
use ostler_engine_core::weak::upgraded;
use ostler_protocol::uri;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::SessionEntry;
use crate::Sessions;

/// Returns the host's own tools, for registration by the code that builds the host.
pub fn session_tools(sessions: &Arc<Sessions>) -> Vec<Tool> {
    vec![create_chat(Arc::downgrade(sessions))]
}

/// The input of `createChat`.
#[derive(Deserialize)]
struct CreateChat {
    prompt: String,
    session: Option<String>,
    title: Option<String>,
    model: Option<String>,
}

fn create_chat(sessions: Weak<Sessions>) -> Tool {
    let schema = json!({
        "type": "object",
        "required": ["prompt"],
        "properties": {
            "prompt": { "type": "string", "description": "What the chat begins with." },
            "session": { "type": "string", "description": "The session's URI or link; this one where left out." },
            "title": { "type": "string", "maxLength": 200, "description": "What the chat is called." },
            "model": { "type": "string", "description": "A model's id." }
        },
        "additionalProperties": false
    });
    Tool {
        definition: ToolSpec {
            name: "createChat".into(),
            title: Some("Open a chat".to_owned()),
            description: Some(
                "Opens one more chat in a session and sends its first message. The chat runs by itself, beside \
                 this one."
                    .to_owned(),
            ),
            input_schema: schema.as_object().cloned(),
            ..ToolSpec::default()
        },
        effects: Some(ToolEffects { writes: Some(true), ..ToolEffects::default() }),
        run: Call::new(move |(input, at): (Value, ToolContext)| {
            let sessions = upgraded(&sessions);
            async move {
                let sessions = sessions?;
                let CreateChat { prompt, session, title, model } = read("createChat", input)?;
                let session = session_of(&sessions, &at, session).await?;
                let request = ToolChat { prompt, title, model };
                let chat = at.create_chat.call((session.uri.clone(), request)).await?;
                Ok(format!("Chat created ({}).", uri::link(&session.uri, Some(&chat))).into())
            }
        }),
        ..Tool::default()
    }
}

fn read<T: DeserializeOwned>(tool: &str, input: Value) -> Result<T, Thrown> {
    serde_json::from_value(input).map_err(|error| Thrown::new(format_args!("Invalid {tool} input: {error}")))
}

/// Returns the session that is meant: the calling one, or another one of the same owner.
async fn session_of(
    sessions: &Sessions,
    at: &ToolContext,
    named: Option<String>,
) -> Result<Arc<SessionEntry>, Thrown> {
    let named = named.unwrap_or_else(|| at.session.clone());
    let id = uri::linked(&named).or_else(|| uri::session_id(&named)).unwrap_or_default();
    let own = sessions.session_at(&at.session).await.known()?;
    let found = sessions.session(id).await.known()?;
    // A session of another owner, or one that is not listed, is reported as nonexistent. The caller's own session may
    // still be a draft: a backend starts while its first turn, which announces the session, is being stored.
    let listed = |session: &Arc<SessionEntry>| {
        !session.is_gone() && (session.uri == at.session || !sessions.is_draft(session))
    };
    let found = found.filter(|found| own.is_some_and(|own| own.works_as(found)) && listed(found));
    found.ok_or_else(|| Thrown::from(no_session(&named)))
}
