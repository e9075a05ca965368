//! The host's own tools for a model: what it may do with the sessions of whoever it works for.

use ostler_contract::points::{Tool, ToolChat, ToolContext, ToolEffects, ToolSpec};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_protocol::wire::state::SessionSummary;
use ostler_protocol::{names, uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::core::refusals::no_session;

/// The tools, to be registered by whoever builds the host.
pub fn session_tools() -> Vec<Tool> {
    vec![create_chat()]
}

/// The input of `createChat`.
#[derive(Deserialize)]
struct CreateChat {
    prompt: String,
    session: Option<String>,
    title: Option<String>,
    model: Option<String>,
}

fn create_chat() -> Tool {
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
                "Opens one more chat in a session and says the first thing in it. The chat goes on by itself, beside \
                 this one."
                    .to_owned(),
            ),
            input_schema: schema.as_object().cloned(),
            ..ToolSpec::default()
        },
        effects: Some(ToolEffects { writes: Some(true), ..ToolEffects::default() }),
        run: Call::new(|(input, at): (Value, ToolContext)| async move {
            let CreateChat { prompt, session, title, model } = read("createChat", input)?;
            let session = session_of(&at, session).await?;
            let request = ToolChat { prompt, title, model };
            let chat = at.create_chat.call((session.resource.clone(), request)).await?;
            Ok(format!("Chat created ({}).", uri::link(&session.resource, Some(&chat))).into())
        }),
        ..Tool::default()
    }
}

fn read<T: DeserializeOwned>(tool: &str, input: Value) -> Result<T, Thrown> {
    serde_json::from_value(input).map_err(|error| Thrown::new(format_args!("Invalid {tool} input: {error}")))
}

/// The session somebody means: this one, or another of the same owner's.
async fn session_of(at: &ToolContext, named: Option<String>) -> Result<SessionSummary, Thrown> {
    let named = named.unwrap_or_else(|| at.session.clone());
    let sessions = at.sessions.call(()).await?;
    let owner = |session: &SessionSummary| session.meta.as_ref()?.get(&names::meta_key("owner")).cloned();
    let id = uri::linked(&named).or_else(|| uri::session_id(&named)).unwrap_or_default();
    let of = |id: &str| sessions.iter().find(|session| uri::session_id(&session.resource) == Some(id));
    let mine = uri::session_id(&at.session).and_then(of).and_then(owner);
    // Somebody else's is answered as one there is not.
    let found = of(id).filter(|found| owner(found) == mine).cloned();
    found.ok_or_else(|| Thrown::from(no_session(&named)))
}
