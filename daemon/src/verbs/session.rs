//! `ostler session …`: the sessions of the running daemon.

use std::cmp::Reverse;
use std::time::Duration;

use clap::{Args, Subcommand};
use ostler_contract::{Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{SessionState, SessionSummary};
use serde::Deserialize as _;

use tokio::time::Instant;

use super::ask;
use crate::answer::{Answer, json_line};
use crate::api::list_shapes::{
    INPUT_NEEDED, NO_CURSOR, NO_SESSION, PAGE, SESSION, SESSIONS, Session, SessionDetail, SessionDetails,
    SessionFilter, SessionList, WAITING, cursor, last_turns, place,
};
use crate::client::Connection;
use crate::client::automations::object;
use crate::client::follow::{Seen, TurnEnd};
use crate::client::screen::{Screen, first_line};
use crate::client::sessions::named;
use crate::exit::Exit;
use crate::notify::request::Request;
use crate::pending::{
    AnswerRequest, AnsweredRequest, Answering, ApproveRequest, CancelTurn, CancelledTurn, PendingRequest,
    RejectRequest, Reply, not_running, nothing_waits, prefixed, unnamed,
};
use crate::place::Place;
use crate::query_flags::QueryFlags;
use crate::remote::Remote;
use crate::signals::Interrupts;

/// The exit code of a command that an interrupt ended.
const INTERRUPTED: u8 = 130;
/// How long a command that was interrupted waits for a second interrupt.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// A message is sent to a session, or to a new one.
const SEND_USAGE: &str =
    "ostler session send [OPTIONS] <SESSION> [TEXT]\n       ostler session send [OPTIONS] --new [TEXT]";

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
    #[command(override_usage = SEND_USAGE)]
    Send(SendFlags),
    /// Stream the events of a session
    Follow {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Exit when no turn is running
        #[arg(long)]
        until_idle: bool,
    },
    /// Approve the tool call that a session waits for
    Approve {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Id of the request [default: the only one]
        #[arg(long, value_name = "ID")]
        request: Option<String>,
        /// Digest of the request as it was shown; nothing else is answered
        #[arg(long, value_name = "DIGEST")]
        shown: Option<String>,
        /// Option that approves the call [default: approve this call only]
        #[arg(long, value_name = "ID")]
        option: Option<String>,
    },
    /// Reject the tool call, or decline the question, that a session waits for
    Reject {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Id of the request [default: the only one]
        #[arg(long, value_name = "ID")]
        request: Option<String>,
        /// Digest of the request as it was shown; nothing else is answered
        #[arg(long, value_name = "DIGEST")]
        shown: Option<String>,
        /// Option that rejects the call [default: reject this call only]
        #[arg(long, value_name = "ID")]
        option: Option<String>,
        /// Why the call is rejected
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Answer the question that a session waits for
    Answer {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Answer; with several questions, <QUESTION>=<ANSWER> (repeatable)
        #[arg(value_name = "ANSWER")]
        answers: Vec<String>,
        /// Id of the request [default: the only one]
        #[arg(long, value_name = "ID")]
        request: Option<String>,
        /// Digest of the request as it was shown; nothing else is answered
        #[arg(long, value_name = "DIGEST")]
        shown: Option<String>,
    },
    /// Cancel the running turn of a session
    Cancel {
        /// URI, id or unique id prefix of the session
        session: String,
        /// Id of the turn [default: the running one]
        #[arg(long, value_name = "ID")]
        turn: Option<String>,
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
    /// URI, id or unique id prefix of the session; leave it out with --new
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
        SessionVerb::Approve { session, request, shown, option } => {
            reply(at, &session, Reply::Approve(ApproveRequest { request, shown, option })).await
        }
        SessionVerb::Reject { session, request, shown, option, reason } => {
            reply(at, &session, Reply::Reject(RejectRequest { request, shown, option, reason })).await
        }
        SessionVerb::Answer { session, answers, request, shown } => {
            reply(at, &session, Reply::Answer(AnswerRequest { request, shown, answers })).await
        }
        SessionVerb::Cancel { session, turn } => cancel(at, &session, turn).await,
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
        lines.extend(prefixed("> ", text));
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
            lines.extend(
                line.lines().map(|line| format!("  {}", ostler_telemetry::printable::one_line(line))),
            );
        }
    }
    let uri = details.session.uri.clone();
    lines.extend(details.requests.iter().flatten().flat_map(|request| request.lines(&uri)));
    Ok(Answer::new(lines, json!(details)).named([uri]))
}

/// Reads a session over the protocol.
async fn read(daemon: &Connection, name: &str, limit: usize) -> Result<SessionDetails, Exit> {
    let (uri, state) = daemon.session(name).await?;
    let requests = pending(&state);
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
    Ok(SessionDetails { session, chats, requests, turns, earlier_turns })
}

/// What a session waits for; nothing is `None`.
fn pending(state: &SessionState) -> Option<Vec<PendingRequest>> {
    let requests: Vec<PendingRequest> =
        Request::all(state).map(|request| PendingRequest::of(&request)).collect();
    (!requests.is_empty()).then_some(requests)
}

/// Reads a session over the HTTP API.
async fn read_elsewhere(remote: &Remote, name: &str, limit: usize) -> Result<SessionDetails, Exit> {
    let turns = u32::try_from(limit).map_err(|_| Exit::usage(format!("--turns {limit} is too large")))?;
    let detail = SessionDetail { turns: Some(turns) };
    of_named(remote, name, async |id: &str| remote.get_named_selected(SESSION, id, &detail).await).await
}

/// Sends a request about a session that is named by its URI, its id or the beginning of its id.
async fn of_named<A>(
    remote: &Remote,
    name: &str,
    send: impl AsyncFn(&str) -> Result<A, Exit>,
) -> Result<A, Exit> {
    if name.is_empty() {
        return Err(named(name, std::iter::empty()).err().unwrap_or_else(|| Exit::usage(NO_SESSION)));
    }
    match send(name).await {
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
            send(&named(name, uris.iter().map(String::as_str))?).await
        }
        other => other,
    }
}

/// The state of a session, as messages name it.
fn state_word(session: &Session) -> &str {
    match &*session.state {
        WAITING => INPUT_NEEDED,
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
    let started = ostler_telemetry::clock().iso();
    let action =
        json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": started, "message": message });
    daemon.dispatch(&chat, object(action)).await?;
    if no_wait {
        let json = json!({ "session": session, "turn": turn });
        return Ok(Answer::new([format!("started turn {turn} of {session}")], json).named([session]));
    }
    let Some((end, interrupted)) = follow_sent(daemon, (&session, &chat, &turn), screen).await? else {
        let json = json!({ "session": session, "turn": turn, "status": "running" });
        return Ok(Answer { json, names: vec![session], code: INTERRUPTED, ..Answer::default() });
    };
    let mut json = end.json();
    json["session"] = session.as_str().into();
    let lines = match (&end.error, end.status) {
        (Some(why), _) => vec![format!("turn failed: {}", ostler_telemetry::printable::one_line(why))],
        (None, "complete") => Vec::new(),
        (None, status) => vec![format!("turn {status}")],
    };
    let mut answer = Answer::new(lines, json).named([session]);
    answer.code = match end.status {
        "complete" => 0,
        _ if interrupted => INTERRUPTED,
        _ => 1,
    };
    Ok(answer)
}

/// Follows the turn of a sent message. The first interrupt says that the turn continues, and the command ends shortly after;
/// a second one before that cancels the turn. Returns how the turn ended and whether it was cancelled so; `None` if the
/// command leaves it.
async fn follow_sent(
    daemon: &Connection,
    (session, chat, turn): (&str, &str, &str),
    mut screen: Screen,
) -> Result<Option<(TurnEnd, bool)>, Exit> {
    let mut interrupts = Interrupts::listen();
    let mut see = |seen: &Seen<'_>| screen.see(seen);
    let following = daemon.follow_turn(chat, turn, &mut see);
    tokio::pin!(following);
    let (mut leaves_at, mut cancelled) = (None, false);
    loop {
        let leaving = async {
            match leaves_at {
                Some(at) if !cancelled => tokio::time::sleep_until(at).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            end = &mut following => return Ok(Some((end?, cancelled))),
            () = leaving => return Ok(None),
            () = interrupts.next() => {}
        }
        if leaves_at.is_some() {
            cancelled = true;
            daemon.cancel_turn(chat, Some(turn)).await?;
            continue;
        }
        leaves_at = Some(Instant::now() + LEAVES_WITHIN);
        let id = uri::session_id(session).unwrap_or(session);
        let note = format!(
            "The turn continues. Press Ctrl-C again within {} seconds to cancel it, or cancel it later with: ostler session cancel {id}",
            LEAVES_WITHIN.as_secs()
        );
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), format!("\n{note}\n").as_bytes());
    }
}

/// Answers a pending request.
async fn reply(at: &Place, name: &str, mut reply: Reply) -> Result<Answer, Exit> {
    let answered: AnsweredRequest = match at.remote()? {
        Some(remote) => {
            if !reply.is_bound() {
                reply.bind(only_request(&remote, name).await?);
            }
            let send = async |id: &str| match &reply {
                Reply::Approve(body) => remote.post_named("/api/session/approve/", id, body).await,
                Reply::Reject(body) => remote.post_named("/api/session/reject/", id, body).await,
                Reply::Answer(body) => remote.post_named("/api/session/answer/", id, body).await,
            };
            of_named(&remote, name, send).await?
        }
        None => {
            let daemon = Connection::required(at).await?;
            let (session, state) = daemon.session(name).await?;
            let requests: Vec<Request> = Request::all(&state).collect();
            let Answering { chat, action, answered } = reply.action(&session, &requests)?;
            daemon.client().subscribe(chat.clone()).await.map_err(crate::client::exit)?;
            daemon.dispatch(&chat, object(action)).await?;
            answered
        }
    };
    let AnsweredRequest { session, request, asked, answer } = &answered;
    let mut word = answer.clone();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Ok(Answer::new([format!("{word} {request} of {session}: {asked}")], json!(answered)).named([session]))
}

/// Reads what a session waits for over the HTTP API; returns the digest of the only request.
async fn only_request(remote: &Remote, name: &str) -> Result<String, Exit> {
    let SessionDetails { session, requests, .. } = read_elsewhere(remote, name, 0).await?;
    match requests.as_deref().unwrap_or_default() {
        [] => Err(nothing_waits(&session.uri)),
        [one] => Ok(one.digest.clone()),
        several => Err(unnamed(&session.uri, several.iter().map(|one| (&*one.id, first_line(&one.line()))))),
    }
}

/// Cancels a turn.
async fn cancel(at: &Place, name: &str, turn: Option<String>) -> Result<Answer, Exit> {
    let cancelled: CancelledTurn = match at.remote()? {
        Some(remote) => {
            let body = CancelTurn { turn };
            of_named(&remote, name, async |id: &str| {
                remote.post_named("/api/session/cancel/", id, &body).await
            })
            .await?
        }
        None => {
            let daemon = Connection::required(at).await?;
            let (session, state) = daemon.session(name).await?;
            let chat = state.default_chat.clone().unwrap_or_else(|| uri::default_chat(&session));
            let cancelled = daemon.cancel_turn(&chat, turn.as_deref()).await?;
            let turn = cancelled.ok_or_else(|| not_running(&session, turn.as_deref()))?;
            CancelledTurn { session, turn, cancelled: true }
        }
    };
    let CancelledTurn { session, turn, .. } = &cancelled;
    Ok(Answer::new([format!("Cancelled turn {turn} of {session}.")], json!(cancelled)).named([session]))
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
