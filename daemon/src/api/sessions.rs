//! Sessions over HTTP: lists, one of them, and their changes.

use ostler_contract::points::ListedPlace;
use ostler_engine::feed::Change;
use ostler_protocol::wire::state::SessionSummary;
use ostler_protocol::{json, uri};

use super::Refused;
use super::events::{Events, Seen};
use super::list_shapes::{NO_CURSOR, PAGE, Session, SessionFilter, SessionList, cursor, place};
use super::rows::Ask;
use crate::control::Control;
use crate::exit::Exit;

/// How many sessions a page looks at.
const EXAMINED: usize = 2000;
/// How many are read at a time.
const CHUNK: usize = 250;

pub(super) async fn list(ask: Ask, filter: SessionFilter) -> Result<SessionList, Refused> {
    let mut after = filter.cursor.as_deref().map(place_in).transpose()?;
    let limit = usize::try_from(filter.limit.unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let (mut sessions, mut examined) = (Vec::new(), 0);
    loop {
        let page = ask.control.host.sessions.session_page(after.clone(), CHUNK).await;
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

pub(super) async fn one(ask: Ask) -> Result<Session, Refused> {
    let unknown = || Refused::Missing(format!("There is no session {}", ask.name));
    let id = uri::session_id(&ask.name).unwrap_or(&ask.name);
    let sessions = &ask.control.host.sessions;
    let found = sessions
        .session(id)
        .await
        .map_err(|why| Exit::machine(format!("session {id} could not be read from the store: {why}")))?;
    let entry = found.filter(|entry| !entry.is_gone() && !sessions.is_draft(entry)).ok_or_else(unknown)?;
    Ok(shown(&ask.control, &entry.view().summary))
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
