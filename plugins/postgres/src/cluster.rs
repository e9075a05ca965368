//! The hosts that share the schema, and which of them owns a session.
//!
//! Claims and releases are writes in the order of all others: a release follows every earlier write of the session, and writes
//! that follow a claim find it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_contract::cluster::{Cluster, ClusterGauges, ClusterHost, ClusterListener, SessionOwner};
use ostler_contract::live::{Pending, ready};
use ostler_contract::{Secret, Thrown};
use tokio::sync::watch;
use tokio_postgres::Row;

use crate::database::{Database, Param, Write};
use crate::lease::State;

/// Selects the hosts of the cluster, for [`host_of`].
pub const HOSTS: &str =
    "SELECT id, incarnation, url, version, draining, expires_at > clock_timestamp() FROM host
     WHERE member ORDER BY id";
/// Selects the owner of a session: its run, its name, and its row if that exists.
const OWNER: &str = "SELECT host.id, host.incarnation, host.url, host.version, host.draining,
         host.expires_at > clock_timestamp(), heads.owner, heads.owner_id, last.url, last.version
     FROM session_heads heads
     LEFT JOIN host ON host.incarnation = heads.owner
     LEFT JOIN host last ON last.id = heads.owner_id
     WHERE heads.session = $1";
const BOUND_TO: &str = "SELECT host.id, host.incarnation, host.url, host.version, host.draining,
         host.expires_at > clock_timestamp(), heads.bound_to
     FROM session_heads heads LEFT JOIN host ON host.id = heads.bound_to AND host.member
     WHERE heads.session = $1 AND heads.bound_to IS NOT NULL";
/// Claims a session without an owner, or whose owner no longer has a lease.
const CLAIM: &str = "WITH claimed AS (
         INSERT INTO session_heads (session, owner, owner_id, epoch, head) VALUES ($1, $2, $3, 1, 0)
         ON CONFLICT (session) DO UPDATE SET owner = excluded.owner, owner_id = excluded.owner_id,
             epoch = session_heads.epoch + (session_heads.owner IS DISTINCT FROM excluded.owner)::int
         WHERE session_heads.owner IS NOT DISTINCT FROM excluded.owner OR session_heads.owner IS NULL
             OR NOT EXISTS (
                 SELECT 1 FROM host WHERE incarnation = session_heads.owner AND expires_at > clock_timestamp()
             )
         RETURNING session
     )
     SELECT count(*) FROM claimed";
/// Releases a session. Nothing remains of one that was never stored.
const RELEASE: &str = "WITH unborn AS (
         DELETE FROM session_heads WHERE session = $1 AND owner = $2 AND head = 0
             AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = $1)
         RETURNING session
     )
     UPDATE session_heads SET owner = NULL
     WHERE session = $1 AND owner = $2 AND NOT EXISTS (SELECT 1 FROM unborn)";
const BIND: &str = "UPDATE session_heads SET bound_to = $3 WHERE session = $1 AND owner = $2";
const DRAIN: &str = "UPDATE host SET draining = $2 WHERE incarnation = $1";
const EVICT: &str = "DELETE FROM host WHERE id = $1 AND member AND incarnation <> $2 RETURNING id";

/// Returns the host in a row of [`HOSTS`].
pub fn host_of(row: &Row) -> ClusterHost {
    ClusterHost {
        id: row.get(0),
        incarnation: row.get(1),
        url: row.get(2),
        version: row.get(3),
        is_draining: row.get(4),
        is_alive: row.get(5),
    }
}

/// Returns the host in a row whose columns of the host can be null.
fn found_host(row: &Row) -> Option<ClusterHost> {
    row.get::<_, Option<String>>(0).map(|_| host_of(row))
}

/// A host that no longer has a row.
fn lost_host(id: String, incarnation: String) -> ClusterHost {
    ClusterHost { id, incarnation, url: None, version: String::new(), is_draining: false, is_alive: false }
}

/// The cluster, as seen by this host.
pub struct Hosts {
    pub database: Arc<Database>,
    /// The token that the hosts share.
    pub token: Secret<String>,
    /// Paths under which every host has the same files.
    pub shared_paths: Vec<PathBuf>,
    /// The address of this host, once it listens.
    pub url: Arc<watch::Sender<Option<String>>>,
    pub is_draining: Arc<AtomicBool>,
    /// Whether no session is in memory after the lease has lapsed.
    pub is_emptied: Arc<AtomicBool>,
}

impl fmt::Debug for Hosts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Hosts").field("id", &self.database.lease.id).finish_non_exhaustive()
    }
}

async fn hosts(database: &Database) -> Result<Vec<ClusterHost>, Thrown> {
    Ok(database.rows(HOSTS, vec![]).await?.iter().map(host_of).collect())
}

async fn owner(database: &Database, session: String) -> Result<SessionOwner, Thrown> {
    let me = database.lease.current()?;
    let rows = database.rows(OWNER, vec![Box::new(session)]).await?;
    let Some(row) = rows.first() else { return Ok(SessionOwner::Nobody { last: None }) };
    let incarnation: Option<String> = row.get(6);
    if incarnation.as_deref() == Some(&*me) {
        return Ok(SessionOwner::Here);
    }
    match found_host(row) {
        Some(host) if host.is_alive => Ok(SessionOwner::Elsewhere(host)),
        Some(host) => Ok(SessionOwner::Nobody { last: Some(host) }),
        None => {
            let last: Option<String> = row.get(7);
            let last = last.map(|id| ClusterHost {
                url: row.get(8),
                version: row.get::<_, Option<String>>(9).unwrap_or_default(),
                ..lost_host(id, incarnation.unwrap_or_default())
            });
            Ok(SessionOwner::Nobody { last })
        }
    }
}

impl Cluster for Hosts {
    fn incarnation(&self) -> String {
        self.database.lease.incarnation().to_string()
    }

    fn token(&self) -> Secret<String> {
        self.token.clone()
    }

    fn hosts(&self) -> Pending<Vec<ClusterHost>> {
        let database = self.database.clone();
        Box::pin(async move { hosts(&database).await })
    }

    fn owner(&self, session: String) -> Pending<SessionOwner> {
        let database = self.database.clone();
        Box::pin(async move { owner(&database, session).await })
    }

    fn claim(&self, session: String) -> Pending<SessionOwner> {
        let me = match self.database.lease.current() {
            Ok(me) => me,
            Err(why) => return ready(Err(why)),
        };
        let id = self.database.lease.id.clone();
        let params: Vec<Param> = vec![Box::new(session.clone()), Box::new(me.to_string()), Box::new(id)];
        let write = Write::moving(session.clone(), CLAIM, params);
        // The write is queued now.
        let claimed = self
            .database
            .write_as(me, write, |rows| Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) == 1)));
        let database = self.database.clone();
        Box::pin(async move {
            match claimed.await? {
                true => Ok(SessionOwner::Here),
                false => owner(&database, session).await,
            }
        })
    }

    fn release(&self, session: String) -> Pending<()> {
        let me = match self.database.lease.current() {
            Ok(me) => me,
            // Without its lease the host owns nothing.
            Err(_) => return ready(Ok(())),
        };
        let params: Vec<Param> = vec![Box::new(session.clone()), Box::new(me.to_string())];
        self.database.write_as(me, Write::moving(session, RELEASE, params), |_| Ok(()))
    }

    fn set_draining(&self, is_draining: bool) -> Pending<()> {
        self.is_draining.store(is_draining, Ordering::Release);
        let me = match self.database.lease.current() {
            Ok(me) => me,
            // It is stored when the host joins again.
            Err(_) => return ready(Ok(())),
        };
        let params: Vec<Param> = vec![Box::new(me.to_string()), Box::new(is_draining)];
        self.database.write_as(me, Write::new(DRAIN, params, 0), |_| Ok(()))
    }

    fn set_url(&self, url: String) {
        self.url.send_replace(Some(url));
    }

    fn evict(&self, host: String) -> Pending<bool> {
        let me = match self.database.lease.current() {
            Ok(me) => me,
            Err(why) => return ready(Err(why)),
        };
        let params: Vec<Param> = vec![Box::new(host), Box::new(me.to_string())];
        self.database.write_as(me, Write::new(EVICT, params, 0), |rows| Ok(!rows.is_empty()))
    }

    fn listen(&self, listener: ClusterListener) {
        self.database.lease.listen(listener);
    }

    fn id(&self) -> String {
        self.database.lease.id.clone()
    }

    fn emptied(&self) {
        if self.database.lease.state() == State::Lapsed {
            self.is_emptied.store(true, Ordering::Release);
        }
    }

    fn bind(&self, session: String) -> Pending<()> {
        let me = match self.database.lease.current() {
            Ok(me) => me,
            Err(why) => return ready(Err(why)),
        };
        let id = self.database.lease.id.clone();
        let params: Vec<Param> = vec![Box::new(session.clone()), Box::new(me.to_string()), Box::new(id)];
        self.database.write_as(me, Write::new(BIND, params, session.len()), |_| Ok(()))
    }

    fn bound_to(&self, session: String) -> Pending<Option<ClusterHost>> {
        let database = self.database.clone();
        Box::pin(async move {
            let rows = database.rows(BOUND_TO, vec![Box::new(session)]).await?;
            Ok(rows
                .first()
                .map(|row| found_host(row).unwrap_or_else(|| lost_host(row.get(6), String::new()))))
        })
    }

    fn is_shared(&self, path: &str) -> bool {
        let path = Path::new(path);
        let is_plain = path.components().all(|part| part != std::path::Component::ParentDir);
        is_plain && self.shared_paths.iter().any(|shared| path.starts_with(shared))
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    fn gauges(&self) -> ClusterGauges {
        let lease = &self.database.lease;
        let (sent, took) = lease.renewed();
        ClusterGauges { has_lease: lease.check().is_ok(), lease_age: sent.elapsed(), database_latency: took }
    }
}
