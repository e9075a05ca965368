//! Listeners, called one after the other on a separate task, never in a session's mailbox.
//!
//! While a listener does not return, events wait, up to a maximum: further ones are dropped and counted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ostler_contract::events::{Event, EventName};
use ostler_contract::points::Listener;
use ostler_contract::registry::Registrant;
use ostler_contract::{Frozen, PluginContext, PluginId, Registry};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::log::Log;
use crate::tasks;

/// The maximum number of events that wait for listeners. Further ones are dropped.
const MOST: usize = 65_536;

/// The raised events that listeners have not received yet.
#[derive(Debug, Default)]
pub struct Events {
    queue: Mutex<Option<mpsc::UnboundedSender<Raised>>>,
    heard: Mutex<HashSet<EventName>>,
    /// The plugins that listen to the log.
    hear_lines: Mutex<HashSet<PluginId>>,
    backlog: Arc<Mutex<Backlog>>,
    /// Receives the lines about listeners.
    log: OnceLock<Log>,
    /// The plugin whose listener is being called.
    calling: Arc<Mutex<Option<String>>>,
    /// Whether a listener is no longer waited for.
    stuck: AtomicBool,
}

struct Raised {
    /// `None` if a caller only waits for earlier events.
    event: Option<Event>,
    done: Option<oneshot::Sender<()>>,
}

/// The events that wait and those that were dropped. Events that a caller waits for are not counted.
#[derive(Debug, Default)]
struct Backlog {
    waiting: usize,
    /// Since the number of waiting events reached the maximum, until half of them were processed.
    dropped: Option<Dropped>,
}

#[derive(Debug)]
struct Dropped {
    count: u64,
    /// The listener that had not returned.
    listener: String,
}

impl Backlog {
    /// Adds an event; returns whether it can wait.
    fn add(&mut self) -> bool {
        let has_room = self.waiting < MOST;
        if has_room {
            self.waiting += 1;
        } else if let Some(dropped) = &mut self.dropped {
            dropped.count += 1;
        }
        has_room
    }

    /// Removes an event that is processed now; returns what was dropped once half of the events were processed.
    fn remove(&mut self) -> Option<Dropped> {
        self.waiting = self.waiting.saturating_sub(1);
        self.dropped.take_if(|_| self.waiting <= MOST / 2)
    }
}

impl Events {
    /// Starts the task that calls the listeners of a registry. `log` must not pass its lines to them.
    pub fn start(&self, registry: &Registry, log: Log) {
        let listeners: Vec<_> = registry
            .all::<Listener>()
            .iter()
            .map(|listener| {
                let context = match &listener.owner {
                    Registrant::Plugin(id) => registry.plugin(id).map(|plugin| plugin.context()),
                    Registrant::Host => None,
                };
                (listener.clone(), context)
            })
            .collect();
        *self.heard.lock() = listeners.iter().map(|(listener, _)| listener.event).collect();
        let to_lines = listeners.iter().filter(|(listener, _)| listener.event == EventName::Log);
        *self.hear_lines.lock() = to_lines
            .filter_map(|(listener, _)| match &listener.owner {
                Registrant::Plugin(id) => Some(id.clone()),
                Registrant::Host => None,
            })
            .collect();
        let (sender, mut receiver) = mpsc::unbounded_channel::<Raised>();
        *self.queue.lock() = Some(sender);
        let _ = self.log.set(log.clone());
        let (calling, backlog) = (self.calling.clone(), self.backlog.clone());
        tasks::spawn(async move {
            while let Some(Raised { event, done }) = receiver.recv().await {
                let ended = if done.is_none() { backlog.lock().remove() } else { None };
                if let Some(Dropped { count, listener }) = ended {
                    log.info(format_args!("{listener} returned; {count} events were dropped"));
                }
                for (listener, context) in &listeners {
                    let Some(event) = event.as_ref().filter(|event| event.name() == listener.event) else {
                        continue;
                    };
                    let name = event.name();
                    let Some(context): Option<PluginContext> = context.clone() else { continue };
                    let owner = &listener.owner;
                    *calling.lock() = Some(format!("{owner}: its {} listener", name.as_str()));
                    let call = listener.handler.unbounded((Frozen(event.clone()), Frozen(context)));
                    let outcome = call.await;
                    *calling.lock() = None;
                    if let Err(thrown) = outcome {
                        log.uncaught(format_args!(
                            "{owner}: its {} listener failed: {}",
                            name.as_str(),
                            thrown.for_log()
                        ));
                    }
                }
                if let Some(done) = done {
                    let _ = done.send(());
                }
            }
        });
    }

    /// Raises an event, without waiting for listeners. It is dropped while too many events wait for them.
    pub fn raise(&self, event: Event) {
        if !self.listened(event.name()) {
            return;
        }
        if self.add() {
            self.send(Raised { event: Some(event), done: None });
        }
    }

    /// Adds an event to those that wait; returns whether it can. Logs the listener that they wait for with the first that
    /// cannot.
    fn add(&self) -> bool {
        let listener = {
            let mut backlog = self.backlog.lock();
            if backlog.add() {
                return true;
            }
            if backlog.dropped.is_some() {
                return false;
            }
            let listener = self.calling.lock().clone().unwrap_or_else(|| "a listener".to_owned());
            backlog.dropped = Some(Dropped { count: 1, listener: listener.clone() });
            listener
        };
        if let Some(log) = self.log.get() {
            log.warn(format_args!(
                "{listener} has not returned; {MOST} events wait, and further ones are dropped"
            ));
        }
        false
    }

    /// Raises an event and waits until each listener has processed it and all earlier events.
    pub async fn raise_and_wait(&self, event: Event) {
        self.send_and_wait(Some(event)).await;
    }

    /// Waits until all raised events are processed; returns immediately once a listener was given up.
    pub async fn all_heard(&self) {
        if !self.stuck.load(Ordering::Acquire) {
            self.send_and_wait(None).await;
        }
    }

    /// Gives up the listener that is being called; returns its plugin.
    pub fn give_up(&self) -> Option<String> {
        self.stuck.store(true, Ordering::Release);
        self.calling.lock().clone()
    }

    async fn send_and_wait(&self, event: Option<Event>) {
        let (done, wait) = oneshot::channel();
        self.send(Raised { event, done: Some(done) });
        let _ = wait.await;
    }

    /// Returns whether an event has listeners, so that others need not be created.
    pub fn listened(&self, name: EventName) -> bool {
        self.heard.lock().contains(&name)
    }

    /// Returns whether a plugin listens to the log.
    pub fn hears_lines(&self, plugin: &PluginId) -> bool {
        self.hear_lines.lock().contains(plugin)
    }

    fn send(&self, raised: Raised) {
        if let Some(queue) = &*self.queue.lock() {
            let _ = queue.send(raised);
        }
    }
}
