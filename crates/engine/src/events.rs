//! Listeners: called one after the other on a task of their own, never in a session's mailbox.

use std::collections::HashSet;
use std::sync::Arc;

use ostler_contract::events::{Event, EventName};
use ostler_contract::points::Listener;
use ostler_contract::registry::Owner;
use ostler_contract::{Frozen, PluginContext, PluginId, Registry};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// The events that were raised and not yet heard.
#[derive(Debug, Default)]
pub struct Events {
    queue: Mutex<Option<mpsc::UnboundedSender<Raised>>>,
    heard: Mutex<HashSet<EventName>>,
    /// The plugins that listen to the log.
    hear_lines: Mutex<HashSet<PluginId>>,
    /// Whose listener is being called.
    calling: Arc<Mutex<Option<String>>>,
}

struct Raised {
    event: Event,
    done: Option<oneshot::Sender<()>>,
}

impl Events {
    /// Starts calling the listeners of a registry. `report` takes the line when one throws.
    pub fn start(&self, registry: &Registry, report: Arc<dyn Fn(String) + Send + Sync>) {
        let listeners: Vec<_> = registry
            .all::<Listener>()
            .iter()
            .map(|listener| {
                let context = match &listener.owner {
                    Owner::Plugin(id) => registry.plugin(id).map(|plugin| plugin.context()),
                    Owner::Host => None,
                };
                (listener.clone(), context)
            })
            .collect();
        *self.heard.lock() = listeners.iter().map(|(listener, _)| listener.event).collect();
        let to_lines = listeners.iter().filter(|(listener, _)| listener.event == EventName::Log);
        *self.hear_lines.lock() = to_lines
            .filter_map(|(listener, _)| match &listener.owner {
                Owner::Plugin(id) => Some(id.clone()),
                Owner::Host => None,
            })
            .collect();
        let (sender, mut receiver) = mpsc::unbounded_channel::<Raised>();
        *self.queue.lock() = Some(sender);
        let calling = self.calling.clone();
        tokio::spawn(async move {
            while let Some(raised) = receiver.recv().await {
                let name = raised.event.name();
                for (listener, context) in listeners.iter().filter(|(listener, _)| listener.event == name) {
                    let Some(context): Option<PluginContext> = context.clone() else { continue };
                    let owner = &listener.owner;
                    *calling.lock() = Some(format!("{owner}: its {} listener", name.as_str()));
                    let call = listener.handler.call((Frozen(raised.event.clone()), Frozen(context)));
                    let outcome = call.await;
                    *calling.lock() = None;
                    if let Err(thrown) = outcome {
                        report(format!(
                            "{owner}: its {} listener failed: {}",
                            name.as_str(),
                            thrown.for_log()
                        ));
                    }
                }
                if let Some(done) = raised.done {
                    let _ = done.send(());
                }
            }
        });
    }

    /// Tells the listeners, later.
    pub fn raise(&self, event: Event) {
        self.send(event, None);
    }

    /// Tells the listeners and waits until each has answered.
    pub async fn raise_and_wait(&self, event: Event) {
        let (done, wait) = oneshot::channel();
        self.send(event, Some(done));
        let _ = wait.await;
    }

    /// Whose listener is being called, for the line when it does not answer.
    pub fn calling(&self) -> Option<String> {
        self.calling.lock().clone()
    }

    /// Whether somebody listens to an event: what it costs to make may be spared.
    pub fn listened(&self, name: EventName) -> bool {
        self.heard.lock().contains(&name)
    }

    /// Whether a plugin listens to the log.
    pub fn hears_lines(&self, plugin: &PluginId) -> bool {
        self.hear_lines.lock().contains(plugin)
    }

    fn send(&self, event: Event, done: Option<oneshot::Sender<()>>) {
        if !self.listened(event.name()) {
            return;
        }
        if let Some(queue) = &*self.queue.lock() {
            let _ = queue.send(Raised { event, done });
        }
    }
}
