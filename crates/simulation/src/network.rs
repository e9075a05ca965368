//! The network between hosts, clients and the database: each connection is a pair of pipes that can be held up and cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;

use crate::random::Random;

/// The state of the way between two parties.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// Everything arrives.
    #[default]
    Open,
    /// Nothing arrives until it is open again; connections stay.
    Held,
    /// Connections end, and there are no new ones.
    Cut,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    way: Way,
    /// How often all connections were ended.
    resets: u64,
}

#[derive(Debug)]
struct Inner {
    ways: Mutex<BTreeMap<(String, String), State>>,
    changed: watch::Sender<u64>,
    handle: Handle,
    random: Mutex<Random>,
}

/// The network.
#[derive(Debug, Clone)]
pub struct Network(Arc<Inner>);

/// One connection between two parties.
#[derive(Debug, Clone)]
struct Line {
    network: Network,
    between: (String, String),
    /// The resets before it.
    resets: u64,
}

impl Network {
    /// Creates a network whose tasks run on the computer of this handle.
    pub fn new(handle: Handle, random: Random) -> Self {
        Self(Arc::new(Inner {
            ways: Mutex::default(),
            changed: watch::Sender::new(0),
            handle,
            random: Mutex::new(random),
        }))
    }

    /// Sets the state of the way between two parties.
    pub fn set(&self, one: &str, other: &str, way: Way) {
        let mut ways = self.0.ways.lock();
        let state = ways.entry(pair(one, other)).or_default();
        if way == Way::Cut {
            state.resets += 1;
        }
        state.way = way;
        drop(ways);
        self.0.changed.send_modify(|changes| *changes += 1);
    }

    /// Opens all ways.
    pub fn heal(&self) {
        self.0.ways.lock().values_mut().for_each(|state| state.way = Way::Open);
        self.0.changed.send_modify(|changes| *changes += 1);
    }

    fn state(&self, between: &(String, String)) -> State {
        self.0.ways.lock().get(between).copied().unwrap_or_default()
    }

    /// Returns whether two parties can connect.
    pub fn connects(&self, one: &str, other: &str) -> bool {
        self.state(&pair(one, other)).way == Way::Open
    }

    /// Waits until something that was sent at this time has arrived; returns whether it does.
    pub async fn travel(&self, one: &str, other: &str) -> bool {
        let between = pair(one, other);
        let state = self.state(&between);
        if state.way == Way::Cut {
            return false;
        }
        let line = Line { network: self.clone(), between, resets: state.resets };
        tokio::time::sleep(self.latency()).await;
        line.opens().await
    }

    fn latency(&self) -> Duration {
        self.0.random.lock().millis(1, 5)
    }

    /// Connects two parties in one direction, or returns nothing if they cannot connect.
    pub fn pipe<T: Send + 'static>(
        &self,
        one: &str,
        other: &str,
    ) -> Option<(UnboundedSender<T>, UnboundedReceiver<T>)> {
        let between = pair(one, other);
        let state = self.state(&between);
        if state.way != Way::Open {
            return None;
        }
        let line = Line { network: self.clone(), between, resets: state.resets };
        let (near, mut from) = mpsc::unbounded_channel::<T>();
        let (to, far) = mpsc::unbounded_channel::<T>();
        self.0.handle.spawn(async move {
            loop {
                let first = tokio::select! {
                    biased;
                    () = line.ends() => return,
                    () = to.closed() => return,
                    item = from.recv() => item,
                };
                let Some(first) = first else { return };
                let mut items = vec![first];
                while let Ok(item) = from.try_recv() {
                    items.push(item);
                }
                tokio::time::sleep(line.network.latency()).await;
                if !line.opens().await {
                    return;
                }
                for item in items {
                    if to.send(item).is_err() {
                        return;
                    }
                }
            }
        });
        Some((near, far))
    }
}

impl Line {
    fn is_ended(&self) -> bool {
        self.network.state(&self.between).resets != self.resets
    }

    /// Waits until the connection has ended.
    async fn ends(&self) {
        let mut changed = self.network.0.changed.subscribe();
        while !self.is_ended() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the way is open; returns false if the connection has ended.
    async fn opens(&self) -> bool {
        let mut changed = self.network.0.changed.subscribe();
        loop {
            if self.is_ended() {
                return false;
            }
            if self.network.state(&self.between).way == Way::Open {
                return true;
            }
            if changed.changed().await.is_err() {
                return false;
            }
        }
    }
}

fn pair(one: &str, other: &str) -> (String, String) {
    let (first, last) = if one <= other { (one, other) } else { (other, one) };
    (first.to_owned(), last.to_owned())
}
