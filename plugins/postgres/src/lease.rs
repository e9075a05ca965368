//! The lease of the host, which allows it to write.
//!
//! A row of `host` is the lease, by the clock of the database. It is renewed every 2 seconds and expires after 8. A host that
//! could not renew it for 6 seconds by its own clock stops writing before another one can take over.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::Thrown;
use ostler_contract::stores::Report;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Connector, drive};
use crate::failure::{self, thrown};
use crate::migrations;

/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(2);
/// How long it is valid, by the clock of the database.
const LENGTH: &str = "8 seconds";
/// How long it is valid for the host itself, from the moment a renewal was sent.
const VALID: Duration = Duration::from_secs(6);
/// How long a start waits for the lease of a host that ended without releasing it.
const PATIENCE: Duration = Duration::from_secs(12);
/// The limit of a renewal.
const RENEWAL: Duration = Duration::from_secs(2);
/// The limit for connecting.
const CONNECT: Duration = Duration::from_secs(4);
/// How often entries of `changes` are removed, in renewals.
const PRUNE_EVERY: u64 = 30;

enum State {
    /// Valid until then.
    Until(Instant),
    /// Another host took over.
    Lost,
    /// Released.
    Closed,
}

/// The lease of this host.
pub struct Lease {
    /// This run of the host.
    pub incarnation: String,
    state: Mutex<State>,
}

impl Lease {
    /// Returns an error unless the host may use the database.
    ///
    /// # Errors
    /// The lease could not be renewed in time, was taken over, or was released.
    pub fn check(&self) -> Result<(), Thrown> {
        match *self.state.lock() {
            State::Until(until) if Instant::now() < until => Ok(()),
            State::Until(_) => Err(Thrown::new(
                "PostgreSQL: the host could not renew its lease for 6 seconds and stores nothing until the database answers \
                 again",
            )),
            State::Lost => Err(Thrown::new(
                "PostgreSQL: another host has taken over the database, so this one stores nothing more; stop it, or restart \
                 it after the other one",
            )),
            State::Closed => Err(Thrown::new("PostgreSQL: the stores are closed")),
        }
    }

    /// Returns whether the lease was taken over or released permanently.
    pub fn is_over(&self) -> bool {
        !matches!(*self.state.lock(), State::Until(_))
    }

    /// Records that another host has taken over.
    pub fn lose(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Until(_)) {
            *state = State::Lost;
        }
    }

    fn extend(&self, sent: Instant) {
        if let State::Until(until) = &mut *self.state.lock() {
            *until = sent + VALID;
        }
    }
}

/// Migrates the schema and acquires the lease. Waits for the lease of a host that ended without releasing it.
///
/// # Errors
/// The database cannot be used, or another host is running on it.
pub async fn acquire(
    connector: &Connector,
    id: &str,
    incarnation: String,
    say: &Report,
) -> Result<Arc<Lease>, Thrown> {
    let (client, connection) =
        connector.open(&incarnation, Duration::from_secs(50)).await.map_err(|why| thrown(&why))?;
    drive(connection);
    check_server(&client).await?;
    let begun = Instant::now();
    let mut before: Option<Holder> = None;
    loop {
        let sent = Instant::now();
        let holder = match take(&client, &connector.schema, id, &incarnation).await? {
            None => {
                let state = Mutex::new(State::Until(sent + VALID));
                return Ok(Arc::new(Lease { incarnation, state }));
            }
            Some(holder) => holder,
        };
        let is_renewed = before.as_ref().is_some_and(|before| before.expires_at != holder.expires_at);
        if is_renewed || begun.elapsed() > PATIENCE {
            return Err(Thrown::new(format_args!(
                "another host uses the database: {}{}. Several hosts on one database are not supported yet; stop that one, or \
                 set the option schema to another one",
                holder.id,
                holder.url.as_ref().map(|url| format!(" at {url}")).unwrap_or_default(),
            )));
        }
        if before.is_none() {
            say(format!(
                "waiting until the lease of {} expires, which ended without giving it up or is running",
                holder.id
            ));
        }
        let rest = Duration::from_millis(u64::try_from(holder.rest).unwrap_or_default() + 50);
        before = Some(holder);
        tokio::time::sleep(rest.min(Duration::from_millis(500))).await;
    }
}

/// The host that has the lease.
struct Holder {
    id: String,
    url: Option<String>,
    expires_at: String,
    /// Milliseconds.
    rest: i64,
}

/// Checks that a server can be used.
///
/// # Errors
/// What is wrong with it.
pub async fn check_server(client: &Client) -> Result<(), Thrown> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                 current_setting('server_encoding'), pg_is_in_recovery()",
            &[],
        )
        .await
        .map_err(|why| thrown(&why))?;
    let (number, version, encoding, is_standby): (i32, String, String, bool) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    if number < 140_000 {
        return Err(Thrown::new(format_args!("PostgreSQL {version} is too old; 14 or newer is required")));
    }
    if encoding != "UTF8" {
        return Err(Thrown::new(format_args!(
            "the database has the encoding {encoding}; create one with UTF8"
        )));
    }
    if is_standby {
        return Err(Thrown::new(
            "the server is a standby, which cannot be written; use the address of the primary",
        ));
    }
    Ok(())
}

/// Acquires the lease in one transaction with the migrations, or returns the host that has it.
async fn take(client: &Client, schema: &str, id: &str, incarnation: &str) -> Result<Option<Holder>, Thrown> {
    client.batch_execute("BEGIN").await.map_err(|why| thrown(&why))?;
    let taken = take_within(client, schema, id, incarnation).await;
    let end = if matches!(taken, Ok(None)) { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await.map_err(|why| thrown(&why));
    let holder = taken?;
    ended.map(|()| holder)
}

async fn take_within(
    client: &Client,
    schema: &str,
    id: &str,
    incarnation: &str,
) -> Result<Option<Holder>, Thrown> {
    let failed = |why: tokio_postgres::Error| thrown(&why);
    let found = migrations::lock(client, schema).await?;
    if found.has_tables() {
        let holder = client
            .query_opt(
                "SELECT id, url, expires_at::text,
                     (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint
                 FROM host WHERE expires_at > clock_timestamp() ORDER BY expires_at DESC LIMIT 1",
                &[],
            )
            .await
            .map_err(failed)?;
        if let Some(row) = holder {
            let (id, url, expires_at, rest) = (row.get(0), row.get(1), row.get(2), row.get(3));
            return Ok(Some(Holder { id, url, expires_at, rest }));
        }
    }
    migrations::apply(client, &found).await?;
    // Waits for transactions of hosts whose leases have expired. There are no watchers yet, so earlier changes need not
    // be reported.
    client
        .batch_execute("DELETE FROM host; DELETE FROM writer; DELETE FROM changes")
        .await
        .map_err(failed)?;
    client
        .execute(
            &format!(
                "INSERT INTO host (id, incarnation, expires_at) VALUES ($1, $2, clock_timestamp() + interval '{LENGTH}')"
            ),
            &[&id, &incarnation],
        )
        .await
        .map_err(failed)?;
    client
        .execute("INSERT INTO writer (incarnation, batch) VALUES ($1, 0)", &[&incarnation])
        .await
        .map_err(failed)?;
    Ok(None)
}

/// Renews the lease until it is released, and wakes readers of changes.
pub struct Renewal {
    /// Opens the connection.
    pub connector: Connector,
    /// The lease.
    pub lease: Arc<Lease>,
    /// Woken by notifications of the database.
    pub wake: Arc<Notify>,
    /// Receives the request to release the lease.
    pub stop: Arc<Notify>,
    /// The address of the host, once it listens.
    pub url: Arc<Mutex<Option<String>>>,
    /// Receives lines for the log.
    pub say: Report,
}

impl Renewal {
    /// Runs until the lease is released or lost.
    pub async fn run(self) {
        let mut client: Option<Client> = None;
        let (mut is_late, mut renewals) = (false, 0_u64);
        while !self.lease.is_over() {
            let begun = Instant::now();
            let (sent, renewed) = self.renew(&mut client, renewals).await;
            renewals += 1;
            match renewed {
                Ok(true) => {
                    self.lease.extend(sent);
                    if is_late {
                        (self.say)("PostgreSQL answers again; storing resumes".to_owned());
                    }
                    is_late = false;
                }
                Ok(false) => {
                    self.lease.lose();
                    (self.say)(
                        "another host has taken over the database; this one stores nothing more. Stop it"
                            .to_owned(),
                    );
                    return;
                }
                Err(why) => {
                    client = None;
                    if !is_late {
                        (self.say)(format!("the lease could not be renewed, retrying: {why}"));
                    }
                    is_late = true;
                }
            }
            let pause =
                if is_late { Duration::from_millis(250) } else { RENEW.saturating_sub(begun.elapsed()) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.notified() => break,
            }
        }
        self.give_up(client).await;
    }

    /// Renews once; returns when the renewal was sent, and whether this host still has the lease.
    async fn renew(&self, client: &mut Option<Client>, renewals: u64) -> (Instant, Result<bool, String>) {
        if client.as_ref().is_none_or(Client::is_closed) {
            *client = match tokio::time::timeout(CONNECT, self.listen()).await {
                Ok(Ok(open)) => Some(open),
                Ok(Err(why)) => return (Instant::now(), Err(failure::sentence(&why))),
                Err(_) => return (Instant::now(), Err("no connection within 4 seconds".to_owned())),
            };
        }
        let sent = Instant::now();
        let Some(open) = client else { return (sent, Err("not connected".to_owned())) };
        let renewed = tokio::time::timeout(RENEWAL, self.send(open, renewals)).await;
        (sent, renewed.unwrap_or_else(|_| Err("no answer within 2 seconds".to_owned())))
    }

    async fn send(&self, open: &Client, renewals: u64) -> Result<bool, String> {
        let url = self.url.lock().clone();
        let sql = format!(
            "UPDATE host SET expires_at = clock_timestamp() + interval '{LENGTH}', url = $2 WHERE incarnation = $1"
        );
        let renewed = open.execute(&sql, &[&self.lease.incarnation, &url]).await;
        let renewed = renewed.map_err(|why| failure::sentence(&why))?;
        if renewals % PRUNE_EVERY == PRUNE_EVERY - 1 {
            // The rest is removed the next time.
            let pruned = "DELETE FROM changes WHERE at < now() - interval '10 minutes'";
            drop(open.execute(pruned, &[]).await);
        }
        Ok(renewed == 1)
    }

    async fn listen(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, mut connection) = self.connector.open(&self.lease.incarnation, RENEWAL).await?;
        let wake = self.wake.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    wake.notify_one();
                }
            }
        });
        // A renewal waits for no disk. A crash of the server loses at most the last one: the one before it is valid for as
        // long as the host relies on the last.
        let prepare = format!("SET synchronous_commit = off; LISTEN ostler_{}", self.connector.schema);
        client.batch_execute(&prepare).await?;
        // Whatever was notified in between.
        self.wake.notify_one();
        Ok(client)
    }

    async fn give_up(&self, client: Option<Client>) {
        *self.lease.state.lock() = State::Closed;
        let Some(client) = client else { return };
        let given_up = async {
            client.execute("DELETE FROM host WHERE incarnation = $1", &[&self.lease.incarnation]).await
        };
        // If this fails, the lease expires.
        drop(tokio::time::timeout(RENEWAL, given_up).await);
    }
}
