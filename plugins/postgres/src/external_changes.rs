//! Changes by other writers: another host, or a user with SQL. Notifications wake the reader; the table `changes` has
//! the order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::cluster::ClusterEvent;
use ostler_contract::points::{AutomationChange, ChangeType, RecordChange};
use ostler_contract::stores::Watchers;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::Row;

use crate::database::{Database, Param};

/// How often the table is read without a notification.
const POLL: Duration = Duration::from_secs(5);
/// How many changes are read at once.
const PAGE: i64 = 1000;

/// Reads the snapshot of the database as it is now.
const NOW: &str = "SELECT pg_current_snapshot()::text";
/// Reads the changes that were committed after a snapshot, whose `xmax` is `$1` and whose running transactions are `$2`, and the
/// snapshot of this statement. After the first page, reads those after the change of `$4` and `$5` that the snapshot `$3` shows,
/// which was that of the first page.
const READ: &str =
    "SELECT pg_current_snapshot()::text, xid::text, seq, kind, collection, id, operation, origin
     FROM (SELECT) AS now LEFT JOIN LATERAL (
         SELECT * FROM (
             (SELECT * FROM changes
              WHERE xid >= $1::text::xid8 AND (xid, seq) > ($4::text::xid8, $5)
                  AND ($3::text IS NULL OR pg_visible_in_snapshot(xid, $3::text::pg_snapshot))
              ORDER BY xid, seq LIMIT $6)
             UNION ALL
             (SELECT * FROM changes
              WHERE xid = ANY ($2::text[]::xid8[]) AND (xid, seq) > ($4::text::xid8, $5)
                  AND ($3::text IS NULL OR pg_visible_in_snapshot(xid, $3::text::pg_snapshot))
              ORDER BY xid, seq LIMIT $6)
         ) AS committed
         ORDER BY xid, seq LIMIT $6
     ) AS found ON true";

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

/// A snapshot of the database: which transactions had ended.
///
/// What one snapshot shows and an earlier one does not is exactly what was committed in between, whichever transactions of the server
/// still run. The oldest of them, which may be of another database, delays nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    text: String,
    /// The first transaction that had not begun.
    xmax: u64,
    /// The transactions that were running.
    running: Vec<String>,
}

impl Snapshot {
    /// Parses the text `xmin:xmax:running,running`.
    fn parse(text: String) -> Option<Self> {
        let mut parts = text.splitn(3, ':').skip(1);
        let xmax = parts.next()?.parse().ok()?;
        let running = parts.next()?.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        Some(Self { text, xmax, running })
    }
}

/// Reads the changes after a snapshot, in pages; returns the snapshot that shows all of them.
async fn read(
    database: &Database,
    since: &Snapshot,
    mut tell: impl FnMut(&[Row]),
) -> Result<Snapshot, Thrown> {
    let mut until: Option<Snapshot> = None;
    let mut last = ("0".to_owned(), 0_i64);
    loop {
        let params: Vec<Param> = vec![
            Box::new(since.xmax.to_string()),
            Box::new(since.running.clone()),
            Box::new(until.as_ref().map(|until| until.text.clone())),
            Box::new(last.0.clone()),
            Box::new(last.1),
            Box::new(PAGE),
        ];
        let page = database.rows(READ, params).await?;
        if until.is_none() {
            until = page.first().and_then(|row| Snapshot::parse(row.get(0)));
        }
        // A page without changes is one row with the snapshot.
        let found = page.first().is_some_and(|row| row.get::<_, Option<&str>>(1).is_some());
        if let (true, Some(row)) = (found, page.last()) {
            tell(&page);
            last = (row.get(1), row.get(2));
            if page.len() as i64 == PAGE {
                continue;
            }
        }
        return until.ok_or_else(unreadable);
    }
}

/// Returns the snapshot after which changes are to be read.
///
/// # Errors
/// The database fails.
pub async fn now(database: &Database) -> Result<Snapshot, Thrown> {
    let rows = database.rows(NOW, vec![]).await?;
    rows.first().and_then(|row| Snapshot::parse(row.get(0))).ok_or_else(unreadable)
}

/// Reads the changes after a snapshot until the lease is over.
pub async fn follow(
    database: Arc<Database>,
    listeners: Arc<Listeners>,
    wake: Arc<Notify>,
    mut since: Snapshot,
) {
    let mut read_as = database.lease.incarnation();
    // Changes before the first one that is read here; and those that were removed while the database could not be read.
    let mut may_have_missed = true;
    while !database.lease.is_over() {
        let me = database.lease.incarnation();
        match read(&database, &since, |rows| tell(&database, &listeners, rows, &me)).await {
            // The next poll reads them; listeners may hear of some of them twice.
            Err(_) => may_have_missed = true,
            Ok(until) => {
                // Another server has replaced the one that was read, and lacks its last transactions.
                may_have_missed |= until.xmax < since.xmax;
                if std::mem::take(&mut may_have_missed) || me != read_as {
                    listeners.wake_users();
                }
                (since, read_as) = (until, me);
            }
        }
        drop(tokio::time::timeout(POLL, wake.notified()).await);
        listeners.wake_runs();
    }
}

/// Notifies of changes by others than this run of the host.
fn tell(database: &Database, listeners: &Listeners, rows: &[Row], me: &str) {
    let (mut sessions, mut runs) = (HashSet::new(), HashSet::new());
    for row in rows {
        let (kind, collection): (String, Option<String>) = (row.get(3), row.get(4));
        let (id, operation, origin): (String, String, String) = (row.get(5), row.get(6), row.get(7));
        let how = match operation.as_str() {
            "insert" => ChangeType::Added,
            "delete" => ChangeType::Deleted,
            _ => ChangeType::Updated,
        };
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
}

fn session_event(id: String, how: ChangeType, listed: Option<String>, by: String) -> ClusterEvent {
    match how {
        ChangeType::Added => ClusterEvent::SessionAdded { id },
        ChangeType::Updated => ClusterEvent::SessionChanged { id, by },
        ChangeType::Deleted => ClusterEvent::SessionRemoved { id, listed },
    }
}

fn unreadable() -> Thrown {
    Thrown::new("PostgreSQL: the snapshot of the database cannot be read")
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn a_snapshot_names_what_was_running() {
        let of = |text: &str| Snapshot::parse(text.to_owned()).map(|one| (one.xmax, one.running.join(" ")));
        assert_eq!(of("10:20:10,14"), Some((20, "10 14".to_owned())));
        assert_eq!(of("20:20:"), Some((20, String::new())));
        assert_eq!(of("20:20"), None);
    }
}
