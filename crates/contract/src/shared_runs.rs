//! Runs of automations in a store that can write them together with records, and that several hosts may share.
//!
//! A host that shares its store with others does not start a run itself. It stores a wake, which the owner of the automation
//! turns into a run: one host decides about overlap, order and the hourly cap of an automation, as on a single host.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ostler_protocol::JsonObject;
use ostler_protocol::wire::state::AutomationRunState;
use serde::{Deserialize, Serialize};

use crate::host::{Firing, Routing};
use crate::live::Pending;

/// A record that is stored unless there is one with its id.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRecord {
    /// Its collection.
    pub collection: String,
    /// The record.
    pub record: JsonObject,
}

/// The URIs of the runs of an event when its records are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRuns<'a> {
    /// The runs that it started or was merged into.
    Decided(&'a [String]),
    /// The runs that it requests. The owner of an automation may merge one into another run, or drop it.
    Requested(&'a [String]),
}

/// Creates a record that is stored with the runs of an event.
pub type RecordOf = Arc<dyn Fn(EventRuns<'_>) -> NewRecord + Send + Sync>;

/// The records that are stored in the transaction of an event's runs.
#[derive(Clone, Default)]
pub struct EventRecords {
    /// What identifies the event.
    pub once: Option<Once>,
    /// The log entry of the event. A host that does not share its runs stores it only together with `once`.
    pub log: Option<RecordOf>,
}

impl Debug for EventRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { once, log } = self;
        f.debug_struct("EventRecords").field("once", once).field("log", &log.is_some()).finish()
    }
}

/// Identifies an event, so that the same event starts no other runs, and the record that is stored with its runs.
#[derive(Clone)]
pub struct Once {
    /// The cause of its runs, one run of each automation: `webhook:<endpoint>:<id>`.
    pub cause: String,
    /// Its record.
    pub record: RecordOf,
}

impl Debug for Once {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Once").field("cause", &self.cause).finish_non_exhaustive()
    }
}

/// The outcome of an event that is fired once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FiredOnce {
    /// It was fired, and the record that identifies it is stored.
    Recorded(Firing),
    /// It was fired; the caller stores that record.
    Fired(Firing),
    /// That record exists, so nothing was fired.
    Repeated,
}

impl FiredOnce {
    /// Returns the outcome of the event, if it was fired.
    pub fn firing(self) -> Option<Firing> {
        match self {
            Self::Recorded(firing) | Self::Fired(firing) => Some(firing),
            Self::Repeated => None,
        }
    }
}

/// What requests a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WakeKind {
    /// An event.
    Event,
    /// An event whose runs are ordered.
    Ordered {
        /// The field.
        by: String,
        /// Whether the runs of a value share a session.
        session: bool,
    },
    /// A schedule.
    Clock,
    /// A client.
    Manual,
}

impl WakeKind {
    /// Returns the kind of an event with this order.
    pub fn of_event(routing: Option<&Routing>) -> Self {
        match routing {
            None => Self::Event,
            Some(routing) => Self::Ordered { by: routing.by.clone(), session: routing.session },
        }
    }
}

/// A request for a run of an automation.
#[derive(Debug, Clone, PartialEq)]
pub struct Wake {
    /// The run that it starts, unless it is merged into another one, steered into its turn, or dropped. Its URI identifies the
    /// wake.
    pub run: AutomationRunState,
    /// What requests it.
    pub kind: WakeKind,
}

/// The outcome of a wake that started no run of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The wake.
    pub wake: String,
    /// The run that it was merged into or steered into; `None` if it was dropped.
    pub run: Option<String>,
}

/// The outcome of storing wakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The identifier of each wake; that of an earlier one with the same automation and cause, if there is one.
    Stored(Vec<String>),
    /// The record exists, so nothing was stored.
    Repeated,
    /// Too many wakes of an automation wait, so nothing was stored.
    Full,
}

/// An automation that this host owns since the last call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Acquired {
    /// The id of the automation.
    pub automation: String,
    /// The id of the host that owned it before, unless it is this one.
    pub previous: Option<String>,
    /// Its runs that have not ended, oldest first.
    pub unfinished: Vec<AutomationRunState>,
    /// How long ago events started its runs of the last hour, oldest first.
    pub woken: Vec<Duration>,
}

/// What a host has to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// The automations that it owns now and did not before.
    pub acquired: Vec<Acquired>,
    /// The automations that it no longer owns.
    pub lost: Vec<String>,
    /// The wakes of its automations that are not decided, oldest first.
    pub wakes: Vec<Wake>,
}

/// Stores runs together with a record.
pub trait RunTransactions: Debug + Send + Sync {
    /// Stores runs, a record, and a log entry if there is one in one transaction. Returns `false` and stores nothing if the
    /// record exists.
    fn store(
        &self,
        runs: Vec<AutomationRunState>,
        record: NewRecord,
        log: Option<NewRecord>,
    ) -> Pending<bool>;
}

/// The runs of automations that several hosts share. Automations are owned by runs of hosts, like sessions, and only the
/// owner stores runs.
pub trait SharedRuns: Debug + Send + Sync {
    /// Stores wakes, a record and a log entry in one transaction.
    fn send(&self, wakes: Vec<Wake>, record: Option<NewRecord>, log: Option<NewRecord>) -> Pending<Sent>;

    /// Returns what is decided about wakes: their run, or `None` for a wake without one.
    fn outcomes(&self, wakes: Vec<String>) -> Pending<HashMap<String, Option<String>>>;

    /// Takes over automations that have something to do and that no living host owns, and returns what this host has to do.
    /// `owned` are the automations that it knows to own; without it, only those that it takes over now are returned.
    /// `deciding` are wakes that it decides already, `full` automations whose wakes wait.
    fn take(&self, owned: Option<Vec<String>>, deciding: Vec<String>, full: Vec<String>) -> Pending<Work>;

    /// Stores a run of an automation that this host owns, and the decisions about wakes that it counts, in one transaction.
    fn store_with(&self, run: AutomationRunState, decisions: Vec<Decision>) -> Pending<()>;

    /// Records the outcome of a wake of an automation that this host owns, which no run counts. One that started a run is decided
    /// by storing the run.
    fn settle(&self, wake: String, run: Option<String>) -> Pending<()>;

    /// Sets the listener that is called when there may be something to do, once. It must not block.
    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>);
}
