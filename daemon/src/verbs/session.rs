//! `ostler session …`: the sessions of the running daemon.

use std::cmp::Reverse;

use clap::{Args, Subcommand};
use ostler_contract::{Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{SessionState, SessionSummary, SnapshotState};
use serde::Deserialize as _;

use super::ask;
use crate::answer::Answer;
use crate::api::list_shapes::{NO_CURSOR, PAGE, Session, SessionFilter, cursor, place};
use crate::client::Connection;
use crate::client::automations::object;
use crate::client::screen::{Screen, first_line};
use crate::client::sessions::status;
use crate::exit::Exit;
use crate::place::Place;
use crate::query_flags::QueryFlags;

/// The `ostler session` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum SessionVerb {
    /// List sessions, most recently changed first
    List(QueryFlags<SessionFilter>),
    /// Show a session and its last turns
    Show {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Maximum number of turns
        #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
        turns: usize,
    },
    /// Send a message and stream the reply
    Send(SendFlags),
    /// Stream the events of a session
    Follow {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Exit when no turn is running
        #[arg(long)]
        until_idle: bool,
    },
    /// Dispose of a session
    Dispose {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
}

/// The flags of `ostler session send`.
#[derive(Debug, Clone, Args)]
pub struct SendFlags {
    /// URI, id or unique id prefix of the session; omitted with --new
    #[arg(required_unless_present = "new")]
    pub session: Option<String>,
    /// Message text [default: read from standard input]
    pub text: Option<String>,
    /// Create a session for the message
    #[arg(long)]
    pub new: bool,
    /// Backend of the new session [default: the first one]
    #[arg(long, value_name = "NAME", requires = "new")]
    pub provider: Option<String>,
    /// Exit when the turn has started
    #[arg(long)]
    pub no_wait: bool,
}

/// Runs the command.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 if no daemon runs.
pub async fn session(at: &Place, verb: SessionVerb) -> Result<Answer, Exit> {
    let daemon = Connection::required(at).await?;
    match verb {
        SessionVerb::List(QueryFlags(filter)) => list(&daemon, &filter).await,
        SessionVerb::Show { session, turns } => show(&daemon, &session, turns).await,
        SessionVerb::Send(flags) => send(at, &daemon, flags).await,
        SessionVerb::Follow { session, until_idle } => follow(at, &daemon, &session, until_idle).await,
        SessionVerb::Dispose { session, yes } => dispose(at, &daemon, &session, yes).await,
    }
}

async fn list(daemon: &Connection, filter: &SessionFilter) -> Result<Answer, Exit> {
    let limit = usize::try_from(filter.limit.unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let after = filter.cursor.as_deref().map(|given| place(given).ok_or_else(|| Exit::usage(NO_CURSOR)));
    let after = after.transpose()?;
    let is_wanted = |row: &Value| {
        SessionSummary::deserialize(row).is_ok_and(|row| {
            let follows = |(at, uri)| (Reverse(&*row.modified_at), &*row.resource) > (Reverse(at), uri);
            after.is_none_or(follows) && filter.fits(&Session::of(&row, None))
        })
    };
    // One more than the limit, to find out whether more follow.
    let mut rows = daemon.sessions(limit.saturating_add(1), is_wanted).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let bits = row["status"].as_u64().and_then(|bits| u32::try_from(bits).ok()).unwrap_or_default();
            let (uri, title) = (text(row, "resource"), first_line(&text(row, "title")));
            format!("{uri}: {title}, {}, {}", status(bits), text(row, "modifiedAt"))
        })
        .collect();
    let is_whole = SessionFilter { limit: None, ..filter.clone() } == SessionFilter::default();
    if lines.is_empty() {
        lines.push(match is_whole {
            true => "no sessions; start one with: ostler session send --new \"Hello\"".to_owned(),
            false => "no matching sessions".to_owned(),
        });
    }
    let names: Vec<String> = rows.iter().map(|row| text(row, "resource")).collect();
    let next = rows
        .last()
        .filter(|_| has_more)
        .map(|last| cursor(&text(last, "modifiedAt"), &text(last, "resource")));
    let answer = Answer::new(lines, rows.into()).named(names);
    Ok(match next {
        Some(next) => answer.note(format!("there are older sessions; list them with: --cursor '{next}'")),
        None => answer,
    })
}

async fn show(daemon: &Connection, name: &str, turns: usize) -> Result<Answer, Exit> {
    let (uri, state) = daemon.session(name).await?;
    let chat = match daemon.state(&uri::default_chat(&uri)).await? {
        SnapshotState::Chat(chat) => chat,
        _ => return Err(Exit::machine(format!("{uri} has no chat"))),
    };
    let mut lines = described(&uri, &state);
    let all: Vec<Value> = chat
        .turns
        .iter()
        .map(|turn| json!(turn))
        .chain(chat.active_turn.iter().map(|turn| json!(turn)))
        .collect();
    let shown: Vec<Value> = all.iter().skip(all.len().saturating_sub(turns)).cloned().collect();
    if all.len() > shown.len() {
        lines.push(format!("({} earlier turns)", all.len() - shown.len()));
    }
    for turn in &shown {
        lines.push(format!("> {}", first_line(turn["message"]["text"].as_str().unwrap_or_default())));
        for part in turn["responseParts"].as_array().into_iter().flatten() {
            let line = match part["kind"].as_str() {
                Some("markdown") => part["content"].as_str().map(str::to_owned),
                Some("toolCall") => {
                    part["toolCall"]["toolName"].as_str().map(|tool| format!("[tool {tool}]"))
                }
                Some("error") => part["error"]["message"].as_str().map(|why| format!("[failed: {why}]")),
                _ => None,
            };
            let line = line.unwrap_or_default();
            lines.extend(line.lines().map(|line| format!("  {}", crate::log::one_line(line))));
        }
    }
    let mut json = serde_json::to_value(&state).unwrap_or_default();
    json["resource"] = uri.as_str().into();
    json["turns"] = shown.into();
    Ok(Answer::new(lines, json).named([uri]))
}

fn described(uri: &str, state: &SessionState) -> Vec<String> {
    let mut lines = vec![format!("{uri}: {}, {}", first_line(&state.title), status(state.status))];
    if let Some(folders) = state.working_directories.as_ref().filter(|folders| !folders.is_empty()) {
        lines.push(format!("directories {}", folders.join(", ")));
    }
    let origin = serde_json::to_value(&state.origin).unwrap_or_default();
    if let Some(run) = origin["run"].as_str() {
        lines.push(format!("started by run {run}"));
    }
    if state.chats.len() > 1 {
        lines.push(format!("{} chats; showing the default one", state.chats.len()));
    }
    lines
}

async fn send(at: &Place, daemon: &Connection, flags: SendFlags) -> Result<Answer, Exit> {
    let SendFlags { session, text, new, provider, no_wait } = flags;
    let (session, text) = match (new, session, text) {
        (true, Some(_), Some(_)) => {
            return Err(Exit::usage("--new takes no session; pass only the message"));
        }
        // With --new the only word is the message.
        (true, text, None) | (true, None, text) => (None, text),
        (false, session, text) => (session, text),
    };
    let text = match text {
        Some(text) => text,
        None => ask::piped("message")?,
    };
    if text.trim().is_empty() {
        return Err(Exit::usage("the message is empty"));
    }
    let mut screen = Screen::of(&at.common);
    let session = match session {
        Some(name) => daemon.session(&name).await?.0,
        None => {
            let session = daemon.create_session(provider).await?;
            screen.line(format_args!("session {session}"));
            session
        }
    };
    let (chat, turn) = (uri::default_chat(&session), uuid::Uuid::new_v4().to_string());
    // Subscribed before, so that no action of the turn and no rejection is missed.
    daemon.client().subscribe(chat.clone()).await.map_err(crate::client::exit)?;
    let message = json!({ "text": text, "origin": { "kind": "user" } });
    let started = crate::log::clock().iso();
    let action =
        json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": started, "message": message });
    daemon.dispatch(&chat, object(action)).await?;
    if no_wait {
        let json = json!({ "session": session, "turn": turn });
        return Ok(Answer::new([format!("started turn {turn} of {session}")], json).named([session]));
    }
    let end = daemon.follow_turn(&chat, &turn, &mut |seen| screen.see(seen)).await?;
    let mut json = end.json();
    json["session"] = session.as_str().into();
    let lines = match (&end.error, end.status) {
        (Some(why), _) => vec![format!("turn failed: {}", crate::log::one_line(why))],
        (None, "complete") => Vec::new(),
        (None, status) => vec![format!("turn {status}")],
    };
    let mut answer = Answer::new(lines, json).named([session]);
    answer.code = u8::from(end.status != "complete");
    Ok(answer)
}

async fn follow(at: &Place, daemon: &Connection, name: &str, until_idle: bool) -> Result<Answer, Exit> {
    let (session, _) = daemon.session(name).await?;
    let mut screen = Screen::of(&at.common);
    let json = at.common.json;
    let mut raw = |envelope: &ostler_protocol::wire::actions::ActionEnvelope| {
        if json && let Ok(line) = serde_json::to_string(envelope) {
            let mut out = std::io::stdout().lock();
            let _ = std::io::Write::write_all(&mut out, format!("{line}\n").as_bytes());
            let _ = std::io::Write::flush(&mut out);
        }
    };
    let chat = uri::default_chat(&session);
    daemon.follow_chat(&chat, until_idle, &mut |seen| screen.see(seen), &mut raw).await?;
    Ok(Answer { printed: json, names: vec![session], ..Answer::default() })
}

async fn dispose(at: &Place, daemon: &Connection, name: &str, yes: bool) -> Result<Answer, Exit> {
    let (session, state) = daemon.session(name).await?;
    ask::sure(at, yes, &format!("Dispose of session {session} ({})?", first_line(&state.title)))?;
    daemon.request("disposeSession", json!({ "channel": session })).await?;
    let json = json!({ "session": session, "disposed": true });
    Ok(Answer::new([format!("Disposed of {session}.")], json).named([session]))
}
