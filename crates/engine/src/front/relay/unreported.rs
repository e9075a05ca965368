//! What the links do not report of the lists of other hosts: sessions that were added, removed or changed while there was no
//! link, and whole rows. The database has these changes in order, so each is looked for once the link had the time to report
//! it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ostler_engine_core::tasks;
use ostler_protocol::message::encode;
use ostler_protocol::wire::state::SessionSummary;
use ostler_protocol::{json, uri};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Relay;
use super::lists::Recipients;
use crate::front::Front;

/// How long the link to a host has to report what the database reports.
const LINK_TIME: Duration = Duration::from_secs(1);
/// How long the changes of a row are collected for readers of the API.
const ROW_TIME: Duration = Duration::from_millis(200);
/// How long a report counts. The database may report the same change later.
const REPORT_COUNTS: Duration = Duration::from_secs(60);
/// The maximum number of retained reports. A client may be told of a change twice if there were more in that time.
const REPORTS_MAX: usize = 10_000;

/// What clients were told about the lists of other hosts.
#[derive(Debug, Default)]
pub(super) struct Reports(Mutex<Retained>);

/// A change of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Change {
    Added,
    Row,
    Stored,
    Removed,
}

#[derive(Debug, Default)]
struct Retained {
    /// Whether a session is in the list, by its id, and when that was reported.
    latest: HashMap<String, (bool, Instant)>,
    /// The changes that are looked for, by the id of the session.
    awaited: HashSet<(String, Change)>,
}

impl Reports {
    /// Records that a session was added or removed. Returns whether clients have to be told.
    pub(super) fn record(&self, id: &str, is_listed: bool) -> bool {
        let (mut retained, now) = (self.0.lock(), Instant::now());
        if retained.latest.len() >= REPORTS_MAX {
            retained.latest.retain(|_, (_, at)| now < *at + REPORT_COUNTS);
        }
        if retained.latest.len() >= REPORTS_MAX {
            retained.latest.clear();
        }
        let before = retained.latest.insert(id.to_owned(), (is_listed, now));
        before.is_none_or(|(was_listed, at)| was_listed != is_listed || now >= at + REPORT_COUNTS)
    }

    /// Returns whether the last report of a session was this one.
    fn has(&self, id: &str, is_listed: bool) -> bool {
        let latest = self.0.lock().latest.get(id).copied();
        latest.is_some_and(|(was, at)| was == is_listed && Instant::now() < at + REPORT_COUNTS)
    }

    /// Forgets what was reported of a session, because this host creates one with its id.
    pub(super) fn forget(&self, id: &str) {
        self.0.lock().latest.remove(id);
    }
}

impl Relay {
    /// Tells clients of a session that another host added to the list, unless the link to that host does.
    pub(super) fn was_added(self: &Arc<Self>, id: String) {
        self.later(id, Change::Added, LINK_TIME, |relay, front, id| {
            Box::pin(async move {
                // A row that is reported meanwhile is newer.
                let _turn = relay.reporting.lock().await;
                // A removal since then is reported by the database, too.
                if !relay.reports.has(id, true)
                    && let Some(summary) = relay.current_row(front, id).await
                    && relay.reports.record(id, true)
                {
                    relay.publish_added(front, summary);
                }
            })
        });
    }

    /// Tells clients of a listed session that another host removed, unless the link to that host does.
    pub(super) fn was_removed(self: &Arc<Self>, id: String, session: String) {
        self.later(id, Change::Removed, LINK_TIME, move |relay, front, id| {
            Box::pin(async move {
                // A later session with the same id is reported by the database, too.
                if !relay.reports.has(id, false)
                    && matches!(relay.stored_row(id).await, Some(None))
                    && relay.reports.record(id, false)
                {
                    relay.publish_removed(front, &session);
                }
            })
        });
    }

    /// Tells clients of the row of a session that another host has stored, unless the link to that host does.
    pub(super) fn was_stored(self: &Arc<Self>, id: String, by: &str) {
        if !self.has_row_of(&id, by) {
            self.look_at_row(id);
        }
    }

    fn look_at_row(self: &Arc<Self>, id: String) {
        self.later(id, Change::Stored, LINK_TIME, |relay, _, id| {
            Box::pin(async move {
                // A session that clients do not know yet is added first.
                let is_new = relay.reports.0.lock().awaited.contains(&(id.to_owned(), Change::Added));
                match is_new {
                    true => relay.look_at_row(id.to_owned()),
                    false => relay.report_row(id, Recipients::Clients).await,
                }
            })
        });
    }

    /// Adds a changed row of another host to what readers of the API receive.
    pub(super) fn row_changed(self: &Arc<Self>, front: &Front, id: &str) {
        if front.core.feeds.sessions.is_read() {
            self.later(id.to_owned(), Change::Row, ROW_TIME, |relay, front, id| {
                Box::pin(async move {
                    if let Some(summary) = relay.current_row(front, id).await {
                        front.core.feeds.sessions.put(|| Arc::new(summary));
                    }
                })
            });
        }
    }

    /// Looks for a change after a pause, once for all its reports until then.
    fn later<F>(self: &Arc<Self>, id: String, change: Change, pause: Duration, look: F)
    where
        F: for<'a> FnOnce(&'a Arc<Self>, &'a Arc<Front>, &'a str) -> BoxFuture<'a, ()> + Send + 'static,
    {
        if !self.reports.0.lock().awaited.insert((id.clone(), change)) {
            return;
        }
        let relay = self.clone();
        tasks::spawn(async move {
            tokio::time::sleep(pause).await;
            relay.reports.0.lock().awaited.remove(&(id.clone(), change));
            if let Some(front) = relay.front.upgrade() {
                look(&relay, &front, &id).await;
            }
        });
    }

    /// The row of a session with what its host reported, if it is listed.
    async fn current_row(&self, front: &Front, id: &str) -> Option<SessionSummary> {
        let mut rows = [self.stored_row(id).await??];
        self.show_rows(front, &mut rows);
        let [stored] = rows;
        Some(front.sessions.get(id).map_or(stored, |entry| (*entry.view().summary).clone()))
    }

    fn publish_added(&self, front: &Front, summary: SessionSummary) {
        self.row_reported(&summary);
        let params = json!({ "channel": uri::ROOT, "summary": summary });
        if let Ok(frame) = encode::notification("root/sessionAdded", &params) {
            front.core.fanout.notify_clients(uri::ROOT, frame);
        }
        front.core.feeds.sessions.put(|| Arc::new(summary));
        self.count_again();
    }

    fn publish_removed(&self, front: &Front, session: &str) {
        if let Some(id) = uri::session_id(session) {
            self.forget_row(id);
        }
        let params = json!({ "channel": uri::ROOT, "session": session });
        if let Ok(frame) = encode::notification("root/sessionRemoved", &params) {
            front.core.fanout.notify_clients(uri::ROOT, frame);
        }
        front.core.feeds.sessions.remove(session);
        self.count_again();
    }
}
