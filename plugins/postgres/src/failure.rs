//! Failures of connections and statements: their messages and their meaning.

use std::error::Error as _;
use std::time::{Duration, Instant};

use ostler_contract::protocol::names;
use ostler_contract::stores::Report;
use ostler_contract::{RpcError, Thrown};
use parking_lot::Mutex;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The code of `write_batch` for a host without a lease.
const NO_LEASE: &str = "OS001";
/// The code of `write_batch` for a transaction that was committed before.
const COMMITTED: &str = "OS002";

/// What callers are told about a statement that the database rejected,
const REFUSED: &str = "the database rejected this; see the log of the host";
/// one that took too long,
const LATE: &str = "the database did not answer in time; try again";
/// and one that the database did not carry out.
const AWAY: &str = "the database cannot be used at the moment; try again";
/// How soon the same failure is logged again.
const AGAIN: Duration = Duration::from_secs(10);

/// What to do about a pooler that shares connections.
const REMEDY: &str = "connect to PostgreSQL directly, or set pool_mode = session in PgBouncer";
/// The name of errors with this remedy.
const POOLED: &str = "PooledConnection";
/// The name of errors about tables that were locked for too long.
const LOCKED: &str = "LockedTable";

/// Returns what to do about a failure to connect, if that is known.
pub fn remedy(why: &Thrown) -> Option<&'static str> {
    (why.name == POOLED).then_some(REMEDY)
}

/// Why a connection cannot be used, or a read on it failed.
#[derive(Debug)]
pub enum Unopened {
    /// The server cannot be reached, or refused something.
    Failed(Error),
    /// The host must not use the server now.
    Unfit(String),
    /// The connection does not keep its settings.
    Pooled(String),
}

impl Unopened {
    /// Returns the message.
    pub fn sentence(&self) -> String {
        match self {
            Self::Failed(error) => sentence(error),
            Self::Unfit(why) => format!("PostgreSQL: {why}"),
            Self::Pooled(what) => format!(
                "PostgreSQL: a connection does not keep its state: {what}; a pooler between this host and the server shares \
                 connections (transaction mode); {REMEDY}"
            ),
        }
    }

    /// Returns whether the same fails again.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Failed(error) if kind(error) == Kind::Refused)
    }
}

impl From<Error> for Unopened {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Unopened> for Thrown {
    fn from(why: Unopened) -> Self {
        match why {
            Unopened::Failed(error) => thrown(&error),
            Unopened::Pooled(_) => Self { name: POOLED.to_owned(), ..Self::new(why.sentence()) },
            Unopened::Unfit(_) => Self::new(why.sentence()),
        }
    }
}

/// What a failed statement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The connection is closed, or the server is starting, stopping or overloaded, so a retry can succeed.
    Unavailable,
    /// The server cannot be written, because another one replaced it, or it was set so.
    ReadOnly,
    /// The host has no lease.
    NoLease,
    /// The transaction was committed before.
    Committed,
    /// The transaction failed before this statement.
    Aborted,
    /// The database rejected the statement.
    Refused,
}

/// Returns the meaning of a failure.
pub fn kind(error: &Error) -> Kind {
    let Some(code) = error.code() else { return Kind::Unavailable };
    match code.code() {
        NO_LEASE => Kind::NoLease,
        COMMITTED => Kind::Committed,
        "25006" => Kind::ReadOnly,
        "25P02" => Kind::Aborted,
        // Ended idle transactions; serialization failures and deadlocks.
        "25P03" | "40001" | "40P01" => Kind::Unavailable,
        // A prepared statement is missing or exists already, because the connection is shared.
        "26000" | "42P05" => Kind::Unavailable,
        other => match &other[..2] {
            // Connections; insufficient resources; the operator's interventions; system errors.
            "08" | "53" | "58" => Kind::Unavailable,
            "57" if *code != SqlState::QUERY_CANCELED => Kind::Unavailable,
            _ => Kind::Refused,
        },
    }
}

/// Returns the message of a failure without the server's details, which repeat values.
pub fn sentence(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        let rights;
        let hint = match *db.code() {
            SqlState::QUERY_CANCELED => " (statementTimeoutSeconds)",
            SqlState::DISK_FULL => "; the disk of the database is full",
            SqlState::READ_ONLY_SQL_TRANSACTION => "; another server has replaced it, or it was set so",
            SqlState::INSUFFICIENT_PRIVILEGE => {
                rights = format!("; grant the database user its rights: {}", names::page("postgres"));
                rights.as_str()
            }
            SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => {
                "; a pooler that shares connections (transaction mode) cannot be used"
            }
            _ => "",
        };
        return format!("PostgreSQL: {} ({}){hint}", db.message(), db.code().code());
    }
    let mut text = format!("PostgreSQL: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    if text.contains("CaUsedAsEndEntity") {
        text.push_str(
            "; it is the certificate of an authority (CA:TRUE), which no server may use: create a certificate with CA:FALSE for \
             the server, sign it with the authority, and set tlsCaFile to the authority's certificate",
        );
    } else if text.contains("UnknownIssuer") {
        text.push_str("; set tlsCaFile to the certificate of the database's authority");
    }
    text
}

/// Returns a failure as an error for whoever runs the host: of a start, or of a command of its computer.
pub fn thrown(error: &Error) -> Thrown {
    let why = Thrown::new(sentence(error));
    match error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        true => Thrown { name: LOCKED.to_owned(), ..why },
        false => why,
    }
}

/// Returns whether a table was locked for too long.
pub fn is_locked(why: &Thrown) -> bool {
    why.name == LOCKED
}

/// Failures of a running host. The log has what the database reports; callers of the host, who do not know its tables, have a
/// sentence.
pub struct Failures {
    report: Report,
    /// The failure that was logged last, and when.
    last: Mutex<Option<(String, Instant)>>,
}

impl Failures {
    /// Creates it. `report` receives lines for the log.
    pub fn new(report: Report) -> Self {
        Self { report, last: Mutex::default() }
    }

    /// Logs a failed statement, and returns it as the error of a store call.
    pub fn of(&self, error: &Error) -> Thrown {
        let constraint = error.as_db_error().and_then(|db| db.constraint());
        if constraint == Some("automation_runs_once") {
            return RpcError::already_exists("this cause has started a run of the automation already").into();
        }
        self.log(sentence(error));
        Thrown::new(match kind(error) {
            Kind::Refused if error.code() == Some(&SqlState::QUERY_CANCELED) => LATE,
            Kind::Refused => REFUSED,
            _ => AWAY,
        })
    }

    /// Logs why the database cannot be used, and returns the error of a store call.
    pub fn away(&self, why: String) -> Thrown {
        self.log(why);
        Thrown::new(AWAY)
    }

    fn log(&self, why: String) {
        let mut last = self.last.lock();
        if last.as_ref().is_some_and(|(logged, at)| *logged == why && at.elapsed() < AGAIN) {
            return;
        }
        self.report.say(format!("a statement failed: {why}"));
        *last = Some((why, Instant::now()));
    }
}
