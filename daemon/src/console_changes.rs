//! Notifies the console of changes that no channel of the protocol has: endpoints and their deliveries, plugins, users.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::points::StoredCollection;
use ostler_contract::{HostFunction, limit};
use ostler_plugin_console::Changes;
use ostler_plugin_webhook::{DELIVERIES, ENDPOINTS};

use crate::control::Control;

/// The id of the webhook plugin.
const WEBHOOK: &str = "webhook";
/// The interval at which frequently changing values are compared: the memory of plugins, the users.
const COMPARE_EVERY: Duration = Duration::from_secs(2);

/// Sends notifications until the daemon ends.
pub async fn watch(control: Arc<Control>, changes: Changes) {
    for (collection, topic) in [(ENDPOINTS, "endpoints"), (DELIVERIES, "deliveries")] {
        if !control.has_applied(WEBHOOK) {
            break;
        }
        if let Err(why) = watch_records(&control, &changes, collection, topic).await {
            control
                .host
                .core
                .log
                .line(format_args!("the console does not see changes of {collection}: {why}"));
        }
    }
    let weak: Weak<Control> = Arc::downgrade(&control);
    drop(control);
    let control = weak;
    let mut seen = None;
    loop {
        // Without an open page, the daemon does nothing here.
        changes.watched().await;
        let Some(control) = control.upgrade() else { return };
        let people = control.host.access.gate.people().map(|people| people.now());
        let now = (control.used(), control.restart_needed(), people);
        if let Some((used, restart, people)) = &seen {
            if *used != now.0 || *restart != now.1 {
                changes.tell("plugins");
            }
            let is_same = match (people, &now.2) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now),
                (before, now) => before.is_none() && now.is_none(),
            };
            if !is_same {
                changes.tell("users");
            }
        }
        seen = Some(now);
        drop(control);
        tokio::time::sleep(COMPARE_EVERY).await;
    }
}

async fn watch_records(
    control: &Control,
    changes: &Changes,
    collection: &str,
    topic: &'static str,
) -> Result<(), ostler_contract::Thrown> {
    let Some(store) = control.host.core.record_store() else { return Ok(()) };
    let asked = (collection.to_owned(), Default::default());
    let opened: StoredCollection = store.collection.within(limit::STORE, asked).await?;
    let changes = changes.clone();
    let tell = HostFunction::now(move |_| {
        changes.tell(topic);
        Ok(())
    });
    opened.watch.within(limit::STORE, (tell,)).await?;
    Ok(())
}
