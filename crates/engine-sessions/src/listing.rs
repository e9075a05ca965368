//! The listing of sessions. The state in memory is never older than the stored one, so the listing uses it and reads
//! the rest from the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_contract::points::{KeptChat, ListedPlace, StoredSession};
use ostler_contract::{Call, Thrown, limit};
use ostler_protocol::uri;
use ostler_protocol::wire::state::SessionSummary;

use super::summary::{rest, summary_at_rest};
use super::{SessionEntry, Sessions};

/// Maximum number of sessions read from the store at a time.
const CHUNK: usize = 1000;

/// The sessions that are removed while listings read the store; rows already read may still contain them.
#[derive(Debug, Default)]
pub(super) struct Removals {
    listings: usize,
    ids: HashSet<String>,
}

impl Removals {
    /// Records the removal of a session.
    pub fn add(&mut self, id: &str) {
        if self.listings > 0 {
            self.ids.insert(id.to_owned());
        }
    }
}

/// Rows of sessions of other hosts that are newer than what a listing has read from the store, by the id of the session;
/// `None` if it was removed.
pub type ReportedRows = HashMap<String, Option<SessionSummary>>;

/// A listing in progress.
#[derive(Debug)]
struct Listing<'a>(&'a Sessions);

impl<'a> Listing<'a> {
    fn begin(sessions: &'a Sessions) -> Self {
        sessions.removals.lock().listings += 1;
        Self(sessions)
    }

    fn is_removed(&self, id: &str) -> bool {
        self.0.removals.lock().ids.contains(id)
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        let mut removals = self.0.removals.lock();
        removals.listings -= 1;
        if removals.listings == 0 {
            removals.ids = HashSet::new();
        }
    }
}

/// A session of a listing.
enum ListedRow {
    /// A session in memory.
    Held(Arc<SessionEntry>),
    Stored(Box<(StoredSession, Vec<KeptChat>)>),
    /// A session of another host that was reported meanwhile.
    Reported(Box<SessionSummary>),
}

impl SessionEntry {
    fn place(&self) -> ListedPlace {
        ListedPlace { modified_at: self.view().summary.modified_at.clone(), uri: self.uri.clone() }
    }
}

/// A page of the listing, as far as the store had to be read for it.
#[derive(Debug)]
pub struct SessionPage<'a> {
    listing: Listing<'a>,
    after: Option<ListedPlace>,
    limit: usize,
    /// The sessions in memory, those included that were evicted since.
    held: HashMap<String, Arc<SessionEntry>>,
    stored: Vec<(StoredSession, Vec<KeptChat>)>,
    /// Whether the store has more.
    more: bool,
}

impl SessionPage<'_> {
    /// Returns the rows as they are at this moment, the most recently modified sessions first, and whether more sessions
    /// follow. `reported` has what other hosts reported since the page was begun.
    ///
    /// A caller that queues them for a client holds back what is queued for the client meanwhile. Otherwise the client would
    /// overwrite a notification with an older row.
    pub fn rows(self, mut reported: ReportedRows) -> (Vec<SessionSummary>, bool) {
        let Self { listing, after, limit, mut held, stored, mut more } = self;
        let sessions = listing.0;
        // Sessions that were loaded or created in the meantime. Those that were evicted are unchanged in `held`.
        held.extend(sessions.held());
        // What follows in the store belongs to later pages.
        let last = stored.last().filter(|_| more).map(|(row, _)| place_of(row));
        let mut rows = Vec::new();
        for stored in stored {
            let id = &stored.0.id;
            match reported.remove(id) {
                _ if held.contains_key(id) || listing.is_removed(id) => {}
                None => rows.push((place_of(&stored.0), ListedRow::Stored(Box::new(stored)))),
                Some(None) => {}
                Some(Some(row)) => rows.push((place_of(&stored.0), ListedRow::Reported(Box::new(row)))),
            }
        }
        for (id, row) in reported {
            let Some(row) = row.filter(|_| !held.contains_key(&id) && !listing.is_removed(&id)) else {
                continue;
            };
            let place = ListedPlace { modified_at: row.modified_at.clone(), uri: row.resource.clone() };
            if last.as_ref().is_none_or(|last| order(&place, last).is_lt())
                && after.as_ref().is_none_or(|after| follows(&place, after))
            {
                rows.push((place, ListedRow::Reported(Box::new(row))));
            }
        }
        let held = held.into_values().filter(|entry| !entry.is_gone() && !sessions.is_draft(entry));
        let held = held.map(|entry| (entry.place(), ListedRow::Held(entry)));
        rows.extend(held.filter(|(place, _)| after.as_ref().is_none_or(|after| follows(place, after))));
        rows.sort_unstable_by(|(one, _), (other, _)| order(one, other));
        more |= rows.len() > limit;
        rows.truncate(limit);
        let shown = rows.into_iter().map(|(_, row)| match row {
            ListedRow::Held(entry) => SessionSummary::clone(&entry.view().summary),
            ListedRow::Stored(stored) => sessions.at_rest(&stored.0, &stored.1),
            ListedRow::Reported(row) => *row,
        });
        (shown.collect(), more)
    }
}

impl Sessions {
    /// Begins a page of the listing, after a place.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn session_page(
        &self,
        after: Option<ListedPlace>,
        limit: usize,
    ) -> Result<SessionPage<'_>, Thrown> {
        let listing = Listing::begin(self);
        let held = self.held();
        let total = self.counts.total.load(Ordering::Acquire);
        let whole = self.is_whole()
            || self.is_alone() && self.counts.counted.load(Ordering::Acquire) && held.len() >= total;
        let (mut stored, mut more) = (Vec::new(), false);
        if let Some(store) = self.core.session_store()
            && let Some(page) = store.page.as_ref().filter(|_| !whole)
        {
            // One more than the limit, to find out whether more follow.
            (stored, more) = read(page, after.clone(), limit.saturating_add(1), &held).await?;
            for (row, chats) in &mut stored {
                *chats = self.chats_in(store, row).await;
            }
        }
        Ok(SessionPage { listing, after, limit, held, stored, more })
    }

    /// Returns the row of a session in the store, if it is listed.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn stored_row(&self, id: &str) -> Result<Option<SessionSummary>, Thrown> {
        let Some(store) = self.core.session_store() else { return Ok(None) };
        let Some(session) = &store.session else { return Ok(None) };
        let Some(mut stored) = session.read(limit::STORE, (id.to_owned(),)).await.known()? else {
            return Ok(None);
        };
        let chats = self.chats_in(store, &mut stored).await;
        Ok(stored.session.draft.is_none().then(|| self.at_rest(&stored, &chats)))
    }

    /// Returns all sessions in memory, by id.
    fn held(&self) -> HashMap<String, Arc<SessionEntry>> {
        self.in_memory.entries.read().clone()
    }

    /// Returns the summary that a listing shows of a session that is not in memory.
    fn at_rest(&self, stored: &StoredSession, chats: &[KeptChat]) -> SessionSummary {
        let StoredSession { id, session, flags, .. } = stored;
        let mut summary = summary_at_rest(session, *flags);
        let first = uri::default_chat(&session.uri);
        let open = || chats.iter().filter(|chat| !chat.closed);
        let default =
            open().rfind(|chat| chat.default).map_or_else(|| first.clone(), |chat| chat.uri.clone());
        let others = self.in_memory.chats.read();
        rest(
            &mut summary,
            default,
            open().filter(|chat| others.get(&chat.uri).is_none_or(|owner| owner == id)),
        );
        summary
    }
}

/// Reads rows of sessions that are not in memory, starting after a place. Returns whether there may be more than
/// `wanted`.
async fn read(
    page: &Call<fn(u64, Option<ListedPlace>) -> Vec<StoredSession>>,
    after: Option<ListedPlace>,
    wanted: usize,
    held: &HashMap<String, Arc<SessionEntry>>,
) -> Result<(Vec<(StoredSession, Vec<KeptChat>)>, bool), Thrown> {
    let mut rows = Vec::new();
    let (mut place, mut chunk) = (after, wanted.min(CHUNK));
    loop {
        let some = page.read(limit::STORE, (chunk as u64, place.clone())).await.known()?;
        let last = some.len() < chunk;
        for row in some {
            let next = place_of(&row);
            if place.as_ref().is_some_and(|place| !follows(&next, place)) {
                return Err(Thrown::new(format_args!("the store lists {} out of order", next.uri)));
            }
            place = Some(next);
            if row.session.draft.is_none() && !held.contains_key(&row.id) {
                rows.push((row, Vec::new()));
            }
        }
        if last || rows.len() >= wanted {
            break;
        }
        chunk = (chunk * 2).min(CHUNK);
    }
    let more = rows.len() >= wanted;
    rows.truncate(wanted);
    Ok((rows, more))
}

fn place_of(stored: &StoredSession) -> ListedPlace {
    ListedPlace { modified_at: stored.session.modified_at.clone(), uri: stored.session.uri.clone() }
}

/// Compares two places in the order of the listing.
fn order(one: &ListedPlace, other: &ListedPlace) -> std::cmp::Ordering {
    other.modified_at.cmp(&one.modified_at).then_with(|| one.uri.cmp(&other.uri))
}

fn follows(place: &ListedPlace, after: &ListedPlace) -> bool {
    order(place, after).is_gt()
}
