//! The sessions of a running daemon, as its clients see them.

use ostler_contract::{Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{ChatState, SessionState, SnapshotState};

use super::Connection;
use crate::exit::Exit;
use ostler_protocol::nearest::did_you_mean;

impl Connection {
    /// Summaries of sessions, most recently changed first, at most so many.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn sessions(
        &self,
        most: usize,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, Exit> {
        let (mut rows, mut cursor): (Vec<Value>, Option<Value>) = (Vec::new(), None);
        loop {
            let mut params = json!({ "channel": uri::ROOT });
            if let Some(cursor) = cursor.take() {
                params["cursor"] = cursor;
            }
            let mut page = self.request("listSessions", params).await?;
            if let Value::Array(items) = page["items"].take() {
                rows.extend(items.into_iter().filter(&is_wanted));
            }
            cursor = page.get("nextCursor").filter(|cursor| cursor.is_string()).cloned();
            if cursor.is_none() || rows.len() >= most {
                rows.truncate(most);
                return Ok(rows);
            }
        }
    }

    /// The session a command names: its URI, its id, or the beginning of its id.
    ///
    /// # Errors
    /// Exit 2 when there is none, or several begin so.
    pub async fn session(&self, name: &str) -> Result<(String, Box<SessionState>), Exit> {
        let uri = match name.contains(':') {
            true => name.to_owned(),
            false => {
                let rows = self.sessions(usize::MAX, |_| true).await?;
                named(name, rows.iter().filter_map(|row| row["resource"].as_str()))?
            }
        };
        match self.state(&uri).await? {
            SnapshotState::Session(state) => {
                let id = uri::session_id(&uri).unwrap_or(&uri);
                Ok((uri::session(&state.provider, id), state))
            }
            _ => Err(Exit::usage(format!("{name} is not a session"))),
        }
    }

    /// The state of a chat with at most so many of its last turns.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn last_turns(&self, chat: &str, turns: usize) -> Result<ChatState, Exit> {
        let params = json!({ "channel": chat, "view": { "turns": turns } });
        let mut answer = self.request("subscribe", params).await?;
        let _ = self.client().unsubscribe(chat.to_owned()).await;
        serde_json::from_value(answer["snapshot"]["state"].take())
            .map_err(|error| Exit::machine(format!("the daemon returned no state of {chat}: {error}")))
    }
}

/// The one of these URIs that a command names: by its id, or the beginning of its id.
///
/// # Errors
/// Exit 2 when there is none, or several begin so.
pub fn named<'a>(name: &str, uris: impl Iterator<Item = &'a str>) -> Result<String, Exit> {
    let uris: Vec<&str> = uris.collect();
    let id = |uri: &&str| uri::session_id(uri).unwrap_or_default().to_owned();
    if let Some(exact) = uris.iter().find(|uri| id(uri) == name) {
        return Ok((*exact).to_owned());
    }
    let begin: Vec<&&str> = uris.iter().filter(|uri| id(uri).starts_with(name)).collect();
    match begin[..] {
        [one] => Ok((*one).to_owned()),
        [] => {
            let ids: Vec<String> = uris.iter().map(id).collect();
            let hint = did_you_mean(name, ids.iter().map(String::as_str));
            Err(Exit::usage(format!("unknown session {name}; list sessions with: ostler session list{hint}")))
        }
        _ => Err(Exit::usage(format!(
            "{name} is ambiguous: {} sessions match; use a longer prefix",
            begin.len()
        ))),
    }
}
