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
use super::{Entry, Sessions};

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

/// A listing in progress.
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
enum Row {
    /// A session in memory.
    Held(Arc<Entry>),
    /// A stored session with its chats.
    Stored(Box<(StoredSession, Vec<KeptChat>)>),
}

impl Entry {
    fn place(&self) -> ListedPlace {
        ListedPlace { modified_at: self.view().summary.modified_at.clone(), uri: self.uri.clone() }
    }
}

impl Sessions {
    /// Returns a page of the listing, the most recently modified sessions first, starting after a place, and whether
    /// more sessions follow.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn session_page(
        &self,
        after: Option<ListedPlace>,
        limit: usize,
    ) -> Result<(Vec<SessionSummary>, bool), Thrown> {
        let listing = Listing::begin(self);
        let mut held = self.held();
        let total = self.total.load(Ordering::Acquire);
        let whole =
            self.is_whole() || self.is_alone() && self.counted.load(Ordering::Acquire) && held.len() >= total;
        let (mut stored, mut more) = (Vec::new(), false);
        if let Some(store) = self.core.session_store()
            && let Some(page) = store.page.as_ref().filter(|_| !whole)
        {
            // One more than the limit, to find out whether more follow.
            (stored, more) = read(page, after.clone(), limit.saturating_add(1), &held).await?;
            for (row, chats) in &mut stored {
                *chats = self.chats_in(store, row).await;
            }
            // Sessions that were loaded in the meantime may have changed. Those that were evicted are unchanged in
            // `held`.
            held.extend(self.held());
        }
        let stored =
            stored.into_iter().filter(|(row, _)| !held.contains_key(&row.id) && !listing.is_removed(&row.id));
        let mut rows: Vec<_> =
            stored.map(|stored| (place_of(&stored.0), Row::Stored(Box::new(stored)))).collect();
        let held = held.into_values().filter(|entry| !entry.is_gone() && !self.is_draft(entry));
        let held = held.map(|entry| (entry.place(), Row::Held(entry)));
        rows.extend(held.filter(|(place, _)| after.as_ref().is_none_or(|after| follows(place, after))));
        rows.sort_unstable_by(|(one, _), (other, _)| order(one, other));
        more |= rows.len() > limit;
        rows.truncate(limit);
        let shown = rows.into_iter().map(|(_, row)| match row {
            Row::Held(entry) => SessionSummary::clone(&entry.view().summary),
            Row::Stored(stored) => self.at_rest(&stored.0, &stored.1),
        });
        Ok((shown.collect(), more))
    }

    /// Returns the row of a session in the store, if it is listed.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn stored_row(&self, id: &str) -> Result<Option<SessionSummary>, Thrown> {
        let Some(store) = self.core.session_store() else { return Ok(None) };
        let Some(session) = &store.session else { return Ok(None) };
        let Some(mut stored) = session.within(limit::STORE, (id.to_owned(),)).await? else { return Ok(None) };
        let chats = self.chats_in(store, &mut stored).await;
        Ok(stored.session.draft.is_none().then(|| self.at_rest(&stored, &chats)))
    }

    /// Returns all sessions in memory, by id.
    fn held(&self) -> HashMap<String, Arc<Entry>> {
        self.entries.read().clone()
    }

    /// Returns the summary that a listing shows of a session that is not in memory.
    fn at_rest(&self, stored: &StoredSession, chats: &[KeptChat]) -> SessionSummary {
        let StoredSession { id, session, flags, .. } = stored;
        let mut summary = summary_at_rest(session, *flags);
        let first = uri::default_chat(&session.uri);
        let open = || chats.iter().filter(|chat| !chat.closed);
        let default =
            open().rfind(|chat| chat.default).map_or_else(|| first.clone(), |chat| chat.uri.clone());
        let others = self.chats.read();
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
    held: &HashMap<String, Arc<Entry>>,
) -> Result<(Vec<(StoredSession, Vec<KeptChat>)>, bool), Thrown> {
    let mut rows = Vec::new();
    let (mut place, mut chunk) = (after, wanted.min(CHUNK));
    loop {
        let some = page.within(limit::STORE, (chunk as u64, place.clone())).await?;
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
