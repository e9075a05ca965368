//! The listing of sessions. What is in memory is never older than what is stored, so it takes what is in memory and the
//! rest from the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_contract::points::{KeptChat, ListedPlace, StoredSession};
use ostler_contract::{Thrown, limit};
use ostler_protocol::uri;
use ostler_protocol::wire::state::SessionSummary;

use super::summary::{rest, summary_at_rest};
use super::{Entry, Sessions};

/// How many sessions the store is asked for at a time, at most.
const CHUNK: usize = 1000;

impl Sessions {
    /// A page of the listing: the sessions modified last first, from after a place on, and whether more follow.
    ///
    /// # Errors
    /// What the store failed with.
    pub async fn session_page(
        &self,
        after: Option<ListedPlace>,
        limit: usize,
    ) -> Result<(Vec<SessionSummary>, bool), Thrown> {
        let (held, total) = self.held();
        let counted = self.counted.load(Ordering::Acquire);
        let whole = self.is_whole() || counted && held.len() >= total;
        // One more, to know whether there is one.
        let wanted = limit.saturating_add(1);
        let stored =
            match self.core.session_store().and_then(|store| store.page.as_ref().map(|page| (store, page))) {
                Some((store, page)) if !whole => {
                    let ids: HashSet<&str> = held.iter().map(|(_, entry)| entry.id.as_str()).collect();
                    let mut rows = Vec::new();
                    let (mut place, mut chunk) = (after.clone(), wanted.min(CHUNK));
                    loop {
                        let some = page.within(limit::STORE, (chunk as u64, place.clone())).await?;
                        let last = some.len() < chunk;
                        for row in some {
                            let next = place_of(&row);
                            if place.as_ref().is_some_and(|place| !follows(&next, place)) {
                                return Err(Thrown::new(format_args!(
                                    "the store lists {} out of order",
                                    next.uri
                                )));
                            }
                            place = Some(next);
                            if row.session.draft.is_none() && !ids.contains(row.id.as_str()) {
                                rows.push(row);
                            }
                        }
                        if last || rows.len() >= wanted {
                            break;
                        }
                        chunk = (chunk * 2).min(CHUNK);
                    }
                    rows.truncate(wanted);
                    let mut shown = Vec::with_capacity(rows.len());
                    for mut row in rows {
                        let chats = self.chats_in(store, &mut row).await;
                        shown.push((place_of(&row), Row::Stored(Box::new((row, chats)))));
                    }
                    shown
                }
                _ => Vec::new(),
            };
        let mut rows = stored;
        let held = held.into_iter().filter(|(place, entry)| {
            after.as_ref().is_none_or(|after| follows(place, after)) && !self.is_draft(entry)
        });
        rows.extend(held.map(|(place, entry)| (place, Row::Held(entry))));
        rows.sort_unstable_by(|(one, _), (other, _)| order(one, other));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let shown = rows.into_iter().map(|(_, row)| match row {
            Row::Held(entry) => SessionSummary::clone(&entry.view().summary),
            Row::Stored(stored) => self.at_rest(&stored.0, &stored.1),
        });
        Ok((shown.collect(), more))
    }
}

/// A session of a listing.
enum Row {
    /// In memory.
    Held(Arc<Entry>),
    /// In the store, with its chats.
    Stored(Box<(StoredSession, Vec<KeptChat>)>),
}

impl Sessions {
    /// Every session in memory with its place in the listing, and how many sessions there are.
    fn held(&self) -> (Vec<(ListedPlace, Arc<Entry>)>, usize) {
        let entries = self.entries.read();
        let held = entries.values().map(|entry| {
            let modified_at = entry.view().summary.modified_at.clone();
            (ListedPlace { modified_at, uri: entry.uri.clone() }, entry.clone())
        });
        (held.collect(), self.total.load(Ordering::Acquire))
    }

    /// What a listing shows of a session that is not in memory.
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

fn place_of(stored: &StoredSession) -> ListedPlace {
    ListedPlace { modified_at: stored.session.modified_at.clone(), uri: stored.session.uri.clone() }
}

/// The order of the listing.
fn order(one: &ListedPlace, other: &ListedPlace) -> std::cmp::Ordering {
    other.modified_at.cmp(&one.modified_at).then_with(|| one.uri.cmp(&other.uri))
}

fn follows(place: &ListedPlace, after: &ListedPlace) -> bool {
    order(place, after).is_gt()
}
