//! The lists of a cluster. Each host sends the notifications of its root channel to the others, whose clients receive them
//! too. The row of a session in memory has more than the store, so it is retained for listings until the link to its host ends.
//!
//! What a client has of a row after its listing and all notifications is what a new listing shows. So what changes a row
//! without a notification of its host is reported as a whole row: the end of a link, another host of the session, and a
//! write whose host reports nothing of it here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_contract::points::ListedPlace;
use ostler_engine_core::outbox::Outbox;
use ostler_engine_core::tasks;
use ostler_engine_core::terminal_lists;
use ostler_engine_sessions::{ReportedRows, SessionEntry};
use ostler_protocol::message::encode;
use ostler_protocol::wire::state::SessionSummary;
use ostler_protocol::{JsonObject, Value, json, uri};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{FOLLOW_AGAIN, Link, Relay};
use crate::front::Front;

/// The maximum number of retained rows of each kind.
const ROWS_MAX: usize = 10_000;

/// The rows of sessions of other hosts.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<Rows>);

#[derive(Debug, Default)]
struct Rows {
    /// The rows of sessions that other hosts have in memory, by id.
    live: HashMap<String, Live>,
    /// The number of listings in progress.
    listings: usize,
    /// What clients were told since the first of these listings began, by id.
    since: ReportedRows,
}

impl Rows {
    /// Records a whole row that clients are about to receive, or the removal of its session. Listings of several clients can
    /// overlap for long; a row beyond the maximum is as the store had it.
    fn reported(&mut self, id: &str, row: Option<&SessionSummary>) {
        if self.listings > 0 && (self.since.len() < ROWS_MAX || self.since.contains_key(id)) {
            self.since.insert(id.to_owned(), row.cloned());
        }
    }
}

/// A listing of sessions that is in progress.
#[derive(Debug)]
pub(in crate::front) struct ListingInProgress(Arc<Relay>);

impl ListingInProgress {
    /// Returns what clients were told since it began.
    pub(in crate::front) fn reported(&self) -> ReportedRows {
        self.0.lists.0.lock().since.clone()
    }

    /// Adds to its rows what other hosts reported.
    pub(in crate::front) fn show(&self, front: &Front, rows: &mut [SessionSummary]) {
        self.0.show_rows(front, rows);
    }
}

impl Front {
    /// Returns at most `limit` rows of the list of sessions that follow a place, with what other hosts report of theirs, and whether
    /// more follow.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn listed(
        &self,
        after: Option<ListedPlace>,
        limit: usize,
    ) -> Result<(Vec<SessionSummary>, bool), Thrown> {
        let elsewhere = self.relay().map(|relay| relay.begin_listing());
        let page = self.sessions.session_page(after, limit).await?;
        let reported = elsewhere.as_ref().map(ListingInProgress::reported).unwrap_or_default();
        let (mut rows, more) = page.rows(reported);
        if let Some(elsewhere) = &elsewhere {
            elsewhere.show(self, &mut rows);
        }
        Ok((rows, more))
    }

    /// Returns the row of a listed session that another host serves, with what that host reports.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn listed_elsewhere(&self, id: &str) -> Result<Option<SessionSummary>, Thrown> {
        let mut row = self.sessions.stored_row(id).await?;
        if let Some(relay) = self.relay() {
            relay.show_rows(self, row.as_mut_slice());
        }
        Ok(row)
    }
}

impl Drop for ListingInProgress {
    fn drop(&mut self) {
        let mut rows = self.0.lists.0.lock();
        rows.listings -= 1;
        if rows.listings == 0 {
            rows.since = HashMap::new();
        }
    }
}

/// The recipients of a whole row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipients {
    /// The clients of this host.
    Clients,
    /// They, and other hosts.
    Everyone,
}

/// The row of a session in the memory of another host, as far as the host reported it. The store may not have everything.
#[derive(Debug, Clone)]
struct Live {
    /// The run of its host.
    incarnation: String,
    fields: JsonObject,
}

impl Live {
    /// Adds what differs from the stored row.
    fn show(&self, row: &mut SessionSummary) {
        let modified = self.fields.get("modifiedAt").and_then(Value::as_str);
        if modified.is_some_and(|modified| modified < row.modified_at.as_str()) {
            // Another host has changed it since.
            return;
        }
        let Ok(Value::Object(mut shown)) = serde_json::to_value(&*row) else { return };
        for (name, value) in &self.fields {
            match value {
                Value::Null => drop(shown.shift_remove(name)),
                value => drop(shown.insert(name.clone(), value.clone())),
            }
        }
        if let Ok(shown) = serde_json::from_value(Value::Object(shown)) {
            *row = shown;
        }
    }
}

/// Returns the fields of a row that can change.
fn fields_of(summary: &SessionSummary) -> JsonObject {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(summary) else { return JsonObject::new() };
    for constant in ["resource", "provider", "createdAt"] {
        fields.shift_remove(constant);
    }
    fields.entry("activity").or_insert(Value::Null);
    fields
}

/// Returns the id of a listed session.
fn id_of(session: &str) -> &str {
    uri::session_id(session).unwrap_or(session)
}

/// Returns the notification of changed fields of a row.
fn changed(session: &str, fields: &JsonObject) -> Option<String> {
    let params = json!({ "channel": uri::ROOT, "session": session, "changes": fields });
    encode::notification("root/sessionSummaryChanged", &params).ok()
}

/// A notification of a root channel.
#[derive(Deserialize)]
struct Notified {
    method: String,
    params: RootChange,
}

#[derive(Deserialize)]
struct RootChange {
    #[serde(default)]
    summary: Option<SessionSummary>,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    changes: Option<JsonObject>,
}

/// Sends the rows of sessions in memory to a host that has begun to follow. A row that changes meanwhile is sent once more,
/// because its notification may already be queued.
pub(super) fn send_rows(front: &Front, outbox: &Outbox) {
    for entry in front.sessions.all() {
        send_row(&entry, |frame| outbox.send(frame));
    }
}

/// Sends the row of a session in memory, unless it is a draft, until it is the current one.
fn send_row(entry: &SessionEntry, send: impl Fn(String)) -> Option<Arc<SessionSummary>> {
    loop {
        let view = entry.view();
        if view.record.draft.is_some() {
            return None;
        }
        if let Some(frame) = changed(&view.summary.resource, &fields_of(&view.summary)) {
            send(frame);
        }
        if Arc::ptr_eq(&view.summary, &entry.view().summary) {
            return Some(view.summary.clone());
        }
    }
}

impl Relay {
    /// Publishes a notification of the root channel of another host.
    pub(super) fn watched(self: &Arc<Self>, link: &Link, frame: &str) {
        if let (Some(front), Some(terminals)) = (self.front.upgrade(), terminal_lists::read(frame)) {
            let core = &front.core;
            return core.root.set_terminals_elsewhere(&core.fanout, &link.host.incarnation, terminals);
        }
        // Its actions concern that host.
        if !frame.starts_with(r#"{"jsonrpc":"2.0","method":"root/session"#) {
            return;
        }
        let (Some(front), Ok(notified)) = (self.front.upgrade(), serde_json::from_str::<Notified>(frame))
        else {
            return;
        };
        let core = &front.core;
        let RootChange { summary, session, changes } = notified.params;
        match (&*notified.method, summary, session) {
            ("root/sessionAdded", Some(summary), _) => {
                let (id, fields) = (id_of(&summary.resource), fields_of(&summary));
                self.has_row(link, id, fields.clone());
                self.row_reported(&summary);
                if !self.reports.record(id, true) {
                    if let Some(frame) = changed(&summary.resource, &fields) {
                        core.fanout.notify_clients(uri::ROOT, frame);
                    }
                    return;
                }
                front.sessions.counts_listed(true);
                core.feeds.sessions.put(|| Arc::new(summary));
            }
            ("root/sessionRemoved", _, Some(session)) => {
                self.forget_row(id_of(&session));
                if !self.reports.record(id_of(&session), false) {
                    return;
                }
                front.sessions.counts_listed(false);
                core.feeds.sessions.remove(&session);
            }
            ("root/sessionSummaryChanged", _, Some(session)) => {
                let id = id_of(&session);
                if front.sessions.get(id).is_some() {
                    // This host has taken it over; what its former host reported last is older.
                    return;
                }
                self.has_row(link, id, changes.unwrap_or_default());
                self.row_changed(&front, id);
            }
            _ => {}
        }
        core.fanout.notify_clients(uri::ROOT, frame.to_owned());
        core.root.set_active_sessions(&core.fanout, front.sessions.count());
    }

    /// Records a whole row that clients are about to receive.
    pub(super) fn row_reported(&self, row: &SessionSummary) {
        self.lists.0.lock().reported(id_of(&row.resource), Some(row));
    }

    /// Forgets the row of a session that was removed.
    pub(super) fn forget_row(&self, id: &str) {
        let mut rows = self.lists.0.lock();
        rows.live.remove(id);
        rows.reported(id, None);
    }

    fn has_row(self: &Arc<Self>, link: &Link, id: &str, fields: JsonObject) {
        let mut rows = self.lists.0.lock();
        if rows.live.len() >= ROWS_MAX {
            rows.live.clear();
        }
        let incarnation = &link.host.incarnation;
        match rows.live.get_mut(id) {
            Some(live) if live.incarnation == *incarnation => live.fields.extend(fields),
            former => {
                let had_other = former.is_some();
                rows.live.insert(id.to_owned(), Live { incarnation: incarnation.clone(), fields });
                drop(rows);
                if had_other {
                    // It reports what changes there, not what the former host has reported and is no longer so.
                    self.report_soon(id.to_owned(), Recipients::Clients);
                }
            }
        }
    }

    /// Returns whether a host reports the row of a session over its link.
    pub(super) fn has_row_of(&self, id: &str, incarnation: &str) -> bool {
        self.lists.0.lock().live.get(id).is_some_and(|live| live.incarnation == incarnation)
    }

    /// Reports the row of a session that this host has loaded, if another one had it in memory.
    pub(super) fn was_loaded(self: &Arc<Self>, id: &str) {
        if self.lists.0.lock().live.contains_key(id) {
            self.report_soon(id.to_owned(), Recipients::Clients);
        }
    }

    /// Reports the whole row of a session in a task.
    pub(super) fn report_soon(self: &Arc<Self>, id: String, told: Recipients) {
        let relay = self.clone();
        tasks::spawn(async move { relay.report_row(&id, told).await });
    }

    /// Reports the whole row of a session as listings show it: the stored row with what its host has reported, or the row in
    /// memory here.
    pub(super) async fn report_row(&self, id: &str, told: Recipients) {
        // One at a time, so that of two reports of a session the later one is the newer one.
        let _turn = self.reporting.lock().await;
        let Some(Some(mut row)) = self.stored_row(id).await else { return };
        let Some(front) = self.front.upgrade() else { return };
        let core = &front.core;
        let notify = |frame| match told {
            Recipients::Clients => core.fanout.notify_clients(uri::ROOT, frame),
            Recipients::Everyone => core.fanout.notify(uri::ROOT, frame),
        };
        // Locked until it is sent, so that it does not follow what its host reports later.
        let mut rows = self.lists.0.lock();
        if let Some(entry) = front.sessions.get(id) {
            rows.live.remove(id);
            if let Some(summary) = send_row(&entry, notify) {
                core.feeds.sessions.put(|| summary);
            }
            return;
        }
        rows.reported(id, Some(&row));
        if let Some(live) = rows.live.get(id) {
            live.show(&mut row);
        }
        if let Some(frame) = changed(&row.resource, &fields_of(&row)) {
            notify(frame);
        }
        core.feeds.sessions.put(|| Arc::new(row));
    }

    /// Returns the stored row of a session, if it is listed, once the store can be read. Returns `None` if the host stops
    /// before that.
    pub(super) async fn stored_row(&self, id: &str) -> Option<Option<SessionSummary>> {
        loop {
            let front = self.front.upgrade().filter(|front| !front.core.is_stopping())?;
            if let Ok(row) = front.sessions.stored_row(id).await {
                return Some(row);
            }
            drop(front);
            tokio::time::sleep(FOLLOW_AGAIN).await;
        }
    }

    /// Reports the rows of the sessions of a host, because the link to it ended: what it reported last may be missing.
    pub(super) fn forget_rows(self: &Arc<Self>, link: &Link) {
        let mut lost = HashSet::new();
        self.lists.0.lock().live.retain(|id, live| {
            let stays = live.incarnation != link.host.incarnation;
            if !stays {
                lost.insert(id.clone());
            }
            stays
        });
        let relay = self.clone();
        tasks::spawn(async move {
            for id in lost {
                relay.report_row(&id, Recipients::Clients).await;
            }
        });
    }

    pub(in crate::front) fn begin_listing(self: &Arc<Self>) -> ListingInProgress {
        self.lists.0.lock().listings += 1;
        ListingInProgress(self.clone())
    }

    /// Adds to the rows of a listing what other hosts reported.
    pub(super) fn show_rows(&self, front: &Front, rows: &mut [SessionSummary]) {
        let lists = self.lists.0.lock();
        for row in rows {
            let id = id_of(&row.resource);
            if let Some(live) = lists.live.get(id)
                && front.sessions.get(id).is_none()
            {
                live.show(row);
            }
        }
    }
}
