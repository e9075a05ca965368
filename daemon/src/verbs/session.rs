//! `ostler session …`: the sessions of the running daemon.

use std::cmp::Reverse;

use clap::{Args, Subcommand};
use ostler_contract::{Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::state::SessionSummary;
use serde::Deserialize as _;

use super::ask;
use crate::answer::{Answer, json_line};
use crate::api::list_shapes::{
    NO_CURSOR, NO_SESSION, PAGE, SESSION, SESSIONS, Session, SessionDetail, SessionDetails, SessionFilter,
    SessionList, WAITING, cursor, last_turns, place,
};
use crate::client::Connection;
use crate::client::automations::object;
use crate::client::screen::{Screen, first_line};
use crate::client::sessions::named;
use crate::exit::Exit;
use crate::place::Place;
use crate::query_flags::QueryFlags;
use crate::remote::Remote;

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
    let daemon = async || Connection::required(at).await;
    match verb {
        SessionVerb::List(QueryFlags(filter)) => list(at, &filter).await,
        SessionVerb::Show { session, turns } => show(at, &session, turns).await,
        SessionVerb::Send(flags) => send(at, &daemon().await?, flags).await,
        SessionVerb::Follow { session, until_idle } => {
            follow(at, &daemon().await?, &session, until_idle).await
        }
        SessionVerb::Dispose { session, yes } => dispose(at, &daemon().await?, &session, yes).await,
    }
}

async fn list(at: &Place, filter: &SessionFilter) -> Result<Answer, Exit> {
    let list = match at.remote()? {
        Some(remote) => listed_elsewhere(&remote, filter).await?,
        None => listed(&Connection::required(at).await?, filter).await?,
    };
    let line = |row: &Session| {
        format!("{}: {}, {}, {}", row.uri, first_line(&row.title), state_word(row), row.modified_at)
    };
    let mut lines: Vec<String> = list.sessions.iter().map(line).collect();
    let is_whole = SessionFilter { limit: None, ..filter.clone() } == SessionFilter::default();
    if lines.is_empty() {
        lines.push(match is_whole {
            true => "no sessions; start one with: ostler session send --new \"Hello\"".to_owned(),
            false => "no matching sessions".to_owned(),
        });
    }
    let names: Vec<String> = list.sessions.iter().map(|row| row.uri.clone()).collect();
    let answer = Answer::new(lines, json!(list)).named(names);
    Ok(match list.next {
        Some(next) => answer.note(format!("there are older sessions; list them with: --cursor '{next}'")),
        None => answer,
    })
}

/// Reads the list over the protocol, which a daemon serves without the HTTP API too.
async fn listed(daemon: &Connection, filter: &SessionFilter) -> Result<SessionList, Exit> {
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
    let rows = daemon.sessions(limit.saturating_add(1), is_wanted).await?;
    let rows = rows.into_iter().filter_map(|row| SessionSummary::deserialize(row).ok());
    let mut sessions: Vec<Session> =
        rows.map(|row| Session::of(&row, daemon.links.of(&row.resource))).collect();
    let has_more = sessions.len() > limit;
    sessions.truncate(limit);
    let next = sessions.last().filter(|_| has_more).map(|last| cursor(&last.modified_at, &last.uri));
    Ok(SessionList { sessions, next })
}

/// Reads the list over the HTTP API, page by page: a page may have fewer than asked for.
async fn listed_elsewhere(remote: &Remote, filter: &SessionFilter) -> Result<SessionList, Exit> {
    let limit = filter.limit.unwrap_or(PAGE);
    let mut list = SessionList { sessions: Vec::new(), next: filter.cursor.clone() };
    loop {
        let found = u32::try_from(list.sessions.len()).unwrap_or(limit);
        let query = SessionFilter { cursor: list.next.take(), limit: Some(limit - found), ..filter.clone() };
        let page: SessionList = remote.get_selected(SESSIONS, &query).await?;
        list.sessions.extend(page.sessions);
        list.next = page.next;
        if list.next.is_none() || list.sessions.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
            return Ok(list);
        }
    }
}

async fn show(at: &Place, name: &str, limit: usize) -> Result<Answer, Exit> {
    let details = match at.remote()? {
        Some(remote) => read_elsewhere(&remote, name, limit).await?,
        None => read(&Connection::required(at).await?, name, limit).await?,
    };
    let mut lines = described(&details);
    if details.earlier_turns == Some(true) {
        lines.push("(earlier turns)".to_owned());
    }
    for turn in details.turns.iter().flatten() {
        let text = turn.get("message").and_then(|message| message["text"].as_str()).unwrap_or_default();
        lines.push(format!("> {}", first_line(text)));
        for part in turn.get("responseParts").and_then(Value::as_array).into_iter().flatten() {
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
    let uri = details.session.uri.clone();
    Ok(Answer::new(lines, json!(details)).named([uri]))
}

/// Reads a session over the protocol.
async fn read(daemon: &Connection, name: &str, limit: usize) -> Result<SessionDetails, Exit> {
    let (uri, state) = daemon.session(name).await?;
    let rows = daemon.sessions(1, |row| row["resource"] == uri).await?;
    let row = rows.into_iter().next().and_then(|row| SessionSummary::deserialize(row).ok());
    let row =
        row.ok_or_else(|| Exit::usage(format!("{uri} is a draft; it is listed from its first turn on")))?;
    let chat = state.default_chat.clone().unwrap_or_else(|| uri::default_chat(&uri));
    let chats = state.chats.into_iter().map(|chat| chat.resource).collect();
    let (turns, earlier_turns) = match limit {
        0 => (None, None),
        _ => {
            let (turns, has_earlier) = last_turns(&daemon.last_turns(&chat, limit).await?, limit);
            (Some(turns), Some(has_earlier))
        }
    };
    let session = Session::of(&row, daemon.links.of(&row.resource));
    Ok(SessionDetails { session, chats, turns, earlier_turns })
}

/// Reads a session over the HTTP API.
async fn read_elsewhere(remote: &Remote, name: &str, limit: usize) -> Result<SessionDetails, Exit> {
    let turns = u32::try_from(limit).map_err(|_| Exit::usage(format!("--turns {limit} is too large")))?;
    let detail = SessionDetail { turns: Some(turns) };
    let read = async |id: &str| remote.get_named_selected(SESSION, id, &detail).await;
    if name.is_empty() {
        return Err(named(name, std::iter::empty()).err().unwrap_or_else(|| Exit::usage(NO_SESSION)));
    }
    match read(name).await {
        Err(Exit::Usage(why)) if why.starts_with(NO_SESSION) && !name.contains(':') => {
            // It may be the beginning of an id.
            let filter =
                SessionFilter { text: Some(name.to_owned()), limit: Some(500), ..SessionFilter::default() };
            let (mut uris, mut next) = (Vec::new(), None);
            loop {
                let query = SessionFilter { cursor: next.take(), ..filter.clone() };
                let page: SessionList = remote.get_selected(SESSIONS, &query).await?;
                uris.extend(page.sessions.into_iter().map(|session| session.uri));
                next = page.next;
                if next.is_none() {
                    break;
                }
            }
            read(&named(name, uris.iter().map(String::as_str))?).await
        }
        other => other,
    }
}

/// The state of a session, as messages name it.
fn state_word(session: &Session) -> &str {
    match &*session.state {
        WAITING => "input needed",
        state => state,
    }
}

fn described(SessionDetails { session, chats, .. }: &SessionDetails) -> Vec<String> {
    let mut lines = vec![format!("{}: {}, {}", session.uri, first_line(&session.title), state_word(session))];
    if !session.directories.is_empty() {
        lines.push(format!("directories {}", session.directories.join(", ")));
    }
    if let Some(run) = &session.run {
        lines.push(format!("started by run {}", uri::automation_run(run)));
    }
    if chats.len() > 1 {
        lines.push(format!("{} chats; showing the default one", chats.len()));
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
        if json {
            let mut out = std::io::stdout().lock();
            let _ = std::io::Write::write_all(&mut out, format!("{}\n", json_line(envelope)).as_bytes());
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
