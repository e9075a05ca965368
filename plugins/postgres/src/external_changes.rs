//! Changes by other writers: another host, or a user with SQL. Notifications wake the reader; the table `changes` has
//! the order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::cluster::ClusterEvent;
use ostler_contract::points::{AutomationChange, ChangeType, RecordChange};
use ostler_contract::stores::Watchers;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::database::Database;

/// How often the table is read without a notification.
const POLL: Duration = Duration::from_secs(5);
/// How soon it is read again after a notification if a running transaction hides the change.
const AGAIN: Duration = Duration::from_millis(200);
/// How many changes are read at once.
const PAGE: i64 = 1000;

/// The notified listeners.
#[derive(Default)]
pub struct Listeners {
    records: Mutex<HashMap<String, Watchers<RecordChange>>>,
    automations: Mutex<Option<Watchers<AutomationChange>>>,
    runs: Mutex<Option<Listener>>,
    users: Mutex<Option<Listener>>,
}

/// Called when something may have changed.
type Listener = Arc<dyn Fn() + Send + Sync>;

impl Listeners {
    /// Notifies the watchers of a collection of records.
    pub fn records(&self, collection: &str, watchers: Watchers<RecordChange>) {
        self.records.lock().insert(collection.to_owned(), watchers);
    }

    /// Notifies the watchers of automations.
    pub fn automations(&self, watchers: Watchers<AutomationChange>) {
        *self.automations.lock() = Some(watchers);
    }

    /// Notifies of runs that may wait for this host.
    pub fn runs(&self, listener: Listener) {
        *self.runs.lock() = Some(listener);
    }

    /// Notifies of changed users.
    pub fn users(&self, listener: Listener) {
        *self.users.lock() = Some(listener);
    }

    /// Calls the listener of users.
    fn wake_users(&self) {
        if let Some(listener) = &*self.users.lock() {
            listener();
        }
    }

    /// Calls the listener of runs.
    pub fn wake_runs(&self) {
        if let Some(listener) = &*self.runs.lock() {
            listener();
        }
    }

    fn tell(&self, kind: &str, collection: Option<&str>, id: String, how: ChangeType) {
        match (kind, collection) {
            ("record", Some(collection)) => {
                if let Some(watchers) = self.records.lock().get(collection) {
                    watchers.notify(&RecordChange { id, r#type: how });
                }
            }
            ("automation", _) => {
                if let Some(watchers) = &*self.automations.lock() {
                    watchers.notify(&AutomationChange { id, r#type: how });
                }
            }
            ("users", _) => self.wake_users(),
            // Policies and secrets are read for each use.
            _ => {}
        }
    }
}

/// Reads changes until the lease is over.
pub async fn follow(database: Arc<Database>, listeners: Arc<Listeners>, wake: Arc<Notify>) {
    // Changes from before the start of the host were removed when it took the lease, or are not read if other hosts run.
    let mut last = ("0".to_owned(), 0_i64);
    if database.lease.is_member {
        let now = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text";
        if let Some(row) = database.rows(now, vec![]).await.ok().as_ref().and_then(|rows| rows.first()) {
            last.0 = row.get(0);
        }
    }
    let mut pause = POLL;
    let mut read_as = database.lease.incarnation();
    // Changes before the first one that is read here; and those that were removed while the database could not be read.
    let mut may_have_missed = true;
    while !database.lease.is_over() {
        let was_woken = tokio::time::timeout(pause, wake.notified()).await.is_ok();
        listeners.wake_runs();
        let mut found = 0;
        loop {
            let rows = database
                .rows(
                    "SELECT xid::text, seq, kind, collection, id, operation, origin FROM changes
                     WHERE (xid, seq) > ($1::text::xid8, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot())
                     ORDER BY xid, seq LIMIT $3",
                    vec![Box::new(last.0.clone()), Box::new(last.1), Box::new(PAGE)],
                )
                .await;
            // If it cannot be read now, the next poll reads it.
            let Ok(rows) = rows else {
                may_have_missed = true;
                break;
            };
            let me = database.lease.incarnation();
            if std::mem::take(&mut may_have_missed) || me != read_as {
                read_as = me.clone();
                listeners.wake_users();
            }
            let (mut sessions, mut runs) = (HashSet::new(), HashSet::new());
            for row in &rows {
                let (kind, collection): (String, Option<String>) = (row.get(2), row.get(3));
                let (id, operation, origin): (String, String, String) = (row.get(4), row.get(5), row.get(6));
                let how = match operation.as_str() {
                    "insert" => ChangeType::Added,
                    "delete" => ChangeType::Deleted,
                    _ => ChangeType::Updated,
                };
                last = (row.get(0), row.get(1));
                if origin == *me {
                    continue;
                }
                match (kind.as_str(), collection) {
                    // Several changes of a session by one host are one event.
                    ("session", listed) => {
                        if sessions.insert((id.clone(), how, origin.clone())) {
                            database.lease.tell(&session_event(id, how, listed, origin));
                        }
                    }
                    ("run", _) => {
                        if runs.insert(id.clone()) {
                            database.lease.tell(&ClusterEvent::RunsChanged { automation: id });
                        }
                    }
                    (kind, collection) => listeners.tell(kind, collection.as_deref(), id, how),
                }
            }
            found += rows.len();
            if (rows.len() as i64) < PAGE {
                break;
            }
        }
        pause = if was_woken && found == 0 { AGAIN } else { POLL };
    }
}

fn session_event(id: String, how: ChangeType, listed: Option<String>, by: String) -> ClusterEvent {
    match how {
        ChangeType::Added => ClusterEvent::SessionAdded { id },
        ChangeType::Updated => ClusterEvent::SessionChanged { id, by },
        ChangeType::Deleted => ClusterEvent::SessionRemoved { id, listed },
    }
}
