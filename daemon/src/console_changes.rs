//! Notifies the console of changes that no channel of the protocol has: endpoints and their deliveries, bots, policies,
//! plugins, users, and the health of the host.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::points::{CollectionOptions, StoredCollection};
use ostler_contract::{HostFunction, JsonObject, limit};
use ostler_engine::Gauges;
use ostler_engine::users::Directory;
use ostler_plugin_bot::{BOTS, bots_options};
use ostler_plugin_webhook::{DELIVERIES, ENDPOINTS};

use crate::api::problem_shapes::Problem;
use crate::control::Control;
use crate::parts::console::Changes;

/// The id of the webhook plugin.
const WEBHOOK: &str = "webhook";
/// The id of the bot plugin.
const BOT: &str = "bot";
/// The interval at which values without events are compared: the memory of plugins, grants, policies, gauges.
const COMPARE_EVERY: Duration = Duration::from_secs(2);

/// Sends notifications until the daemon ends.
pub async fn watch(control: Arc<Control>, changes: Changes) {
    let plain = CollectionOptions::default;
    let collections = [
        (WEBHOOK, (ENDPOINTS, plain()), "endpoints"),
        (WEBHOOK, (DELIVERIES, plain()), "deliveries"),
        (BOT, (BOTS, bots_options()), "bots"),
    ];
    for (plugin, (collection, options), topic) in collections {
        if !control.has_applied(plugin) {
            continue;
        }
        if let Err(why) = watch_records(&control, &changes, (collection, options), topic).await {
            control
                .host
                .core
                .log
                .warn(format_args!("the console does not see changes of {collection}: {why}"));
        }
    }
    let weak: Weak<Control> = Arc::downgrade(&control);
    drop(control);
    let mut before: Option<Compared> = None;
    loop {
        // Without an open page, the daemon does nothing here.
        changes.watched().await;
        let Some(control) = weak.upgrade() else { return };
        let now = Compared::now(&control).await;
        drop(control);
        match &before {
            Some(before) => before.topics(&now).for_each(|topic| changes.tell(topic)),
            // What changed between what a page has read and this first comparison is not known.
            None => changes.tell("all"),
        }
        before = Some(now);
        tokio::time::sleep(COMPARE_EVERY).await;
    }
}

/// What has no events, at one moment.
struct Compared {
    plugins: (Vec<(String, u128, usize)>, Vec<String>),
    users: Option<Arc<Directory>>,
    policies: Option<Vec<JsonObject>>,
    health: (Gauges, Vec<Problem>),
}

impl Compared {
    async fn now(control: &Control) -> Self {
        let core = &control.host.core;
        let policies = match core.policies() {
            Some(store) => {
                let read = store.list.read(limit::STORE, ()).await.map(Some);
                read.or_assume(None, "while they cannot be read, the page shows what it has", |_| {})
            }
            None => None,
        };
        Self {
            plugins: (control.used(), control.restart_needed()),
            users: control.host.access.gate.people().map(|people| people.now()),
            policies,
            health: (control.host.gauges(), control.problems().await),
        }
    }

    /// The topics of what differs later.
    fn topics(&self, later: &Self) -> impl Iterator<Item = &'static str> {
        let same_users = match (&self.users, &later.users) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        let topics = [
            ("plugins", self.plugins == later.plugins),
            ("users", same_users),
            ("policies", later.policies.is_none() || self.policies == later.policies),
            ("health", self.health == later.health),
        ];
        topics.into_iter().filter(|(_, is_same)| !is_same).map(|(topic, _)| topic)
    }
}

async fn watch_records(
    control: &Control,
    changes: &Changes,
    (collection, options): (&str, CollectionOptions),
    topic: &'static str,
) -> Result<(), ostler_contract::Thrown> {
    let Some(store) = control.host.core.record_store() else { return Ok(()) };
    let asked = (collection.to_owned(), options);
    let opened: StoredCollection = store.collection.read(limit::STORE, asked).await.known()?;
    let changes = changes.clone();
    let tell = HostFunction::now(move |_| {
        changes.tell(topic);
        Ok(())
    });
    opened.watch.within(limit::STORE, (tell,)).await?;
    Ok(())
}
