//! Sessions over HTTP: lists, one of them, and their changes.

use std::sync::Arc;

use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::points::ListedPlace;
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{JsonObject, Thrown, Value};
use ostler_engine::feed::Change;
use ostler_protocol::origins::WayIn;
use ostler_protocol::wire::state::SessionSummary;
use ostler_protocol::{json, uri};

use super::Refused;
use super::events::{Events, Seen};
use super::list_shapes::{
    NO_CURSOR, NO_SESSION, PAGE, Session, SessionDetail, SessionDetails, SessionFilter, SessionList, WAITING,
    cursor, last_turns, place,
};
use super::rows::Ask;
use crate::control::Control;
use crate::exit::Exit;
use crate::notify::client::{Client, Failed};
use crate::pending::{
    AnsweredRequest, Answering, CancelTurn, CancelledTurn, PendingRequest, Reply, cancelling, not_running,
    unnamed,
};

/// How many sessions a page looks at.
const EXAMINED: usize = 2000;
/// How many are read at a time.
const CHUNK: usize = 250;
/// The maximum length of turns as JSON; of longer ones, the last that fit are returned.
const TURNS_LENGTH: usize = 8 * 1024 * 1024;

pub(super) async fn list(ask: Ask, filter: SessionFilter) -> Result<SessionList, Refused> {
    let mut after = filter.cursor.as_deref().map(place_in).transpose()?;
    let limit = usize::try_from(filter.limit.unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let (mut sessions, mut examined) = (Vec::new(), 0);
    loop {
        let page = ask.control.host.front.listed(after.clone(), CHUNK).await;
        let (rows, more) = page
            .map_err(|why| Exit::machine(format!("the sessions could not be read from the store: {why}")))?;
        for row in &rows {
            if sessions.len() == limit {
                return Ok(SessionList { sessions, next: after.as_ref().map(cursor_of) });
            }
            let session = shown(&ask.control, row);
            if filter.fits(&session) {
                sessions.push(session);
            }
            after = Some(ListedPlace { modified_at: row.modified_at.clone(), uri: row.resource.clone() });
        }
        examined += rows.len();
        if !more || rows.is_empty() {
            return Ok(SessionList { sessions, next: None });
        }
        if examined >= EXAMINED {
            return Ok(SessionList { sessions, next: after.as_ref().map(cursor_of) });
        }
    }
}

pub(super) async fn one(ask: Ask, detail: SessionDetail) -> Result<SessionDetails, Refused> {
    let Found { summary, default_chat } = find(&ask).await?;
    let (turns, earlier_turns) = match detail.turns.and_then(|turns| usize::try_from(turns).ok()) {
        None | Some(0) => (None, None),
        Some(limit) => {
            let (turns, has_earlier) = turns(&ask, &default_chat, limit).await?;
            (Some(turns), Some(has_earlier))
        }
    };
    let mut chats: Vec<String> = summary.chats.iter().flatten().map(|chat| chat.resource.clone()).collect();
    // A listing names the chats of sessions that have several.
    if chats.is_empty() {
        chats.push(default_chat);
    }
    let session = shown(&ask.control, &summary);
    let requests = if session.state == WAITING { requests(&ask, &summary.resource).await? } else { None };
    Ok(SessionDetails { session, chats, requests, turns, earlier_turns })
}

/// A session that a request names.
struct Found {
    summary: Arc<SessionSummary>,
    default_chat: String,
}

/// Finds the session that a request names, also at another host.
async fn find(ask: &Ask) -> Result<Found, Refused> {
    let unknown = || Refused::Missing(format!("{NO_SESSION}{}", ask.name));
    let id = uri::session_id(&ask.name).unwrap_or(&ask.name);
    let (sessions, front) = (&ask.control.host.sessions, &ask.control.host.front);
    let unread =
        |why: Thrown| Refused::NotReady(format!("session {id} could not be read from the store: {why}"));
    let (summary, default_chat) = match sessions.session(id).await {
        Read::Unknown(Unknown(why)) if SessionElsewhere::is(&why) => {
            let row = front.listed_elsewhere(id).await.map_err(unread)?.ok_or_else(unknown)?;
            let default_chat = row.default_chat.clone().unwrap_or_else(|| uri::default_chat(&row.resource));
            (Arc::new(row), default_chat)
        }
        found => {
            let found = found.known().map_err(|Unknown(why)| unread(why))?;
            let entry =
                found.filter(|entry| !entry.is_gone() && !sessions.is_draft(entry)).ok_or_else(unknown)?;
            let view = entry.view();
            (view.summary.clone(), view.default_chat.clone())
        }
    };
    Ok(Found { summary, default_chat })
}

/// Connects as the caller, so that the same grants are checked as for every other client.
async fn connect(ask: &Ask) -> Result<Client, Refused> {
    Client::open(&ask.control.host.front, ask.caller.clone(), WayIn::HttpApi).await.map_err(failed)
}

/// The rejection for what the host answered a client.
fn failed(why: Failed) -> Refused {
    match why {
        Failed::Refused(why) => Refused::Grant(why),
        Failed::Slow => Refused::NotReady("The host did not answer in time; try again".to_owned()),
    }
}

/// What a session waits for; `None` if the caller may not see it.
async fn requests(ask: &Ask, session: &str) -> Result<Option<Vec<PendingRequest>>, Refused> {
    match connect(ask).await?.session(session).await {
        Ok(now) => Ok(Some(now.requests.iter().map(PendingRequest::of).collect())),
        Err(Failed::Refused(_)) => Ok(None),
        Err(slow) => Err(failed(slow)),
    }
}

/// Sends an action as the caller. What the host rejects now conflicts with its state.
async fn dispatch(client: &mut Client, chat: &str, action: &Value) -> Result<(), Refused> {
    client.dispatch(chat, action).await.map_err(|why| match why {
        Failed::Refused(why) => Exit::machine(why).into(),
        slow => failed(slow),
    })
}

/// Answers a pending request of a session.
pub(super) async fn reply(ask: Ask, reply: Reply) -> Result<AnsweredRequest, Refused> {
    let Found { summary, .. } = find(&ask).await?;
    let mut client = connect(&ask).await?;
    let now = client.session(&summary.resource).await.map_err(failed)?;
    if !reply.is_bound() && !now.requests.is_empty() {
        // A program answers what it has read, not what waits when its request arrives.
        let requests = now.requests.iter().map(|request| (&*request.id, request.line()));
        return Err(unnamed(&summary.resource, requests).into());
    }
    let Answering { chat, action, answered } = reply.action(&summary.resource, &now.requests)?;
    dispatch(&mut client, &chat, &action).await?;
    Ok(answered)
}

/// Cancels the running turn of a session.
pub(super) async fn cancel(ask: Ask, CancelTurn { turn }: CancelTurn) -> Result<CancelledTurn, Refused> {
    let Found { summary, default_chat } = find(&ask).await?;
    let session = summary.resource.clone();
    let mut client = connect(&ask).await?;
    let chat = client.chat(&default_chat, 1).await.map_err(failed)?;
    let active = chat.active_turn.filter(|active| turn.as_ref().is_none_or(|turn| active.id == *turn));
    let active = active.ok_or_else(|| not_running(&session, turn.as_deref()))?;
    dispatch(&mut client, &default_chat, &cancelling(&active.id, &active.started_at)).await?;
    Ok(CancelledTurn { session, turn: active.id, cancelled: true })
}

/// The last turns of a session's default chat, read over a connection of the caller, so that the same grants are checked as
/// for every other client. One request reads at a time, because turns can be large.
async fn turns(ask: &Ask, chat: &str, limit: usize) -> Result<(Vec<JsonObject>, bool), Refused> {
    let closing = |_| Refused::NotReady("The host is closing".to_owned());
    let _turn = ask.control.reads_of_turns.acquire().await.map_err(closing)?;
    let mut client = connect(ask).await?;
    let chat = client.chat(chat, limit).await.map_err(failed)?;
    let (mut turns, mut has_earlier) = last_turns(&chat, limit);
    let mut room = TURNS_LENGTH;
    let mut fits = |turn: &JsonObject| {
        room = room.saturating_sub(json!(turn).to_string().len());
        room > 0
    };
    let fitting = turns.iter().rev().take_while(|turn| fits(turn)).count();
    if fitting == 0 && !turns.is_empty() {
        return Err(Exit::machine(
            "The last turn is too large for an answer; clients of the protocol can read it",
        )
        .into());
    }
    has_earlier |= fitting < turns.len();
    turns.drain(..turns.len() - fitting);
    Ok((turns, has_earlier))
}

/// The changes of sessions. A filter of what changes would leave out that a session no longer fits.
pub(super) fn events(ask: &Ask, filter: SessionFilter) -> Result<Events, Refused> {
    let SessionFilter { provider, owner, waiting, archived, text, cursor, limit } = filter;
    super::events::only(&[
        ("waiting", waiting.is_some()),
        ("archived", archived.is_some()),
        ("text", text.is_some()),
        ("cursor", cursor.is_some()),
        ("limit", limit.is_some()),
    ])?;
    let filter = SessionFilter { provider, owner, ..SessionFilter::default() };
    let control = ask.control.clone();
    Events::of(
        ask,
        ("session", "list"),
        |core| &core.feeds.sessions,
        move |change| match change {
            Change::Put(summary) => {
                let session = shown(&control, summary);
                filter.fits(&session).then(|| Seen { event: "session", data: json!(session) })
            }
            Change::Removed(uri) => Some(Seen { event: "removed", data: json!({ "uri": uri }) }),
        },
    )
}

fn shown(control: &Control, row: &SessionSummary) -> Session {
    Session::of(row, control.host.core.options.links.of(&row.resource))
}

fn cursor_of(place: &ListedPlace) -> String {
    cursor(&place.modified_at, &place.uri)
}

fn place_in(cursor: &str) -> Result<ListedPlace, Refused> {
    let (modified_at, uri) = place(cursor).ok_or_else(|| Exit::usage(NO_CURSOR))?;
    Ok(ListedPlace { modified_at: modified_at.to_owned(), uri: uri.to_owned() })
}
