//! A model of the shared database: its tables, and a server that can be slow, lose answers and restart.

pub mod rows;
pub mod tables;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as Turn, oneshot, watch};

use crate::history::History;
use crate::network::Network;
use crate::random::Random;
use tables::Tables;

/// The name of the database in the network.
pub const PARTY: &str = "database";

/// What is wrong with the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Whether it does not run.
    pub is_down: bool,
    /// How long it takes for each request.
    pub delay: Duration,
    /// How many requests in percent are lost before they are executed, and their connections with them.
    pub loses_requests: u64,
    /// How many answers in percent are lost after the commit, and their connections with them.
    pub loses_answers: u64,
}

struct Inner {
    tables: Mutex<Tables>,
    faults: Mutex<Faults>,
    /// How often the server was restarted.
    restarts: Mutex<u64>,
    /// The transactions of each host, in order.
    turns: Mutex<HashMap<String, Arc<Turn<()>>>>,
    network: Network,
    history: History,
    handle: Handle,
    random: Mutex<Random>,
    changed: watch::Sender<usize>,
}

/// The database.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

impl std::fmt::Debug for Database {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Database")
    }
}

impl Database {
    /// Creates an empty database that runs on the computer of this handle.
    pub fn new(handle: Handle, network: Network, history: History, random: Random) -> Self {
        Self(Arc::new(Inner {
            tables: Mutex::default(),
            faults: Mutex::default(),
            restarts: Mutex::default(),
            turns: Mutex::default(),
            network,
            history,
            handle,
            random: Mutex::new(random),
            changed: watch::Sender::new(0),
        }))
    }

    /// Returns the tables, with the current time of the database.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        let mut tables = self.0.tables.lock();
        tables.now = self.0.history.now();
        tables
    }

    /// Returns the history.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// Sets what is wrong with the server.
    pub fn set_faults(&self, faults: Faults) {
        let mut held = self.0.faults.lock();
        if faults.is_down && !held.is_down {
            *self.0.restarts.lock() += 1;
        }
        *held = faults;
    }

    /// Returns a receiver of changes of the tables, which notifications are.
    pub fn changes(&self) -> watch::Receiver<usize> {
        self.0.changed.subscribe()
    }

    /// Wakes whoever waits for changes.
    fn notify(&self) {
        let changes = self.0.tables.lock().changes.len();
        self.0.changed.send_if_modified(|known| std::mem::replace(known, changes) != changes);
    }

    /// Wakes all hosts.
    pub fn wake(&self) {
        self.0.changed.send_modify(|_| {});
    }

    fn chance(&self, percent: u64) -> bool {
        percent > 0 && self.0.random.lock().chance(percent)
    }

    /// Executes a transaction for a party. The answer is nothing if the connection broke, before or after it was executed.
    /// It is executed even if the party is gone by then. Those of the same `order` are executed one after the other.
    pub async fn call<T: Send + 'static>(
        &self,
        party: &str,
        order: Option<&str>,
        job: impl FnOnce(&mut Tables) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let (database, party) = (self.clone(), party.to_owned());
        let turn = order.map(|order| self.0.turns.lock().entry(order.to_owned()).or_default().clone());
        self.0.handle.spawn(async move {
            let _turn = match turn {
                Some(turn) => Some(turn.lock_owned().await),
                None => None,
            };
            if let Some(done) = database.serve(&party, job).await {
                // The party may be gone.
                let _ = answer.send(done);
            }
        });
        answered.await.ok()
    }

    async fn serve<T>(&self, party: &str, job: impl FnOnce(&mut Tables) -> T) -> Option<T> {
        let restarts = *self.0.restarts.lock();
        if !self.0.network.travel(party, PARTY).await {
            return None;
        }
        let faults = *self.0.faults.lock();
        if !faults.delay.is_zero() {
            tokio::time::sleep(faults.delay).await;
        }
        let is_running = || !self.0.faults.lock().is_down && *self.0.restarts.lock() == restarts;
        if !is_running() || self.chance(faults.loses_requests) {
            return None;
        }
        let done = job(&mut self.tables());
        self.notify();
        if self.chance(faults.loses_answers) {
            return None;
        }
        (self.0.network.travel(PARTY, party).await && is_running()).then_some(done)
    }
}
