//! What the host does while it cannot read its users from the database that hosts share: any of them may have been removed.

use std::sync::Arc;
use std::time::Duration;

use ostler_engine_core::outbox::Closed;
use ostler_engine_core::tasks;
use ostler_engine_users::users::ValidityWatch;
use ostler_engine_users::users::access::Access;
use ostler_engine_users::users::principal::Principal;

use super::Host;

/// When the connections of users are closed, after their requests were answered that had waited until then.
const ANSWERED: Duration = Duration::from_millis(100);

impl Host {
    /// Starts no work while the stored users are unknown, and closes the connections of users unless that ends soon.
    pub(super) fn follow_validity(&self) {
        let Some(people) = self.access.gate.stored_people() else { return };
        let (validity, access) = (people.watch_validity(), Arc::downgrade(&self.access));
        tasks::spawn(follow(validity, move || access.upgrade()));
    }
}

/// Follows the validity of the users until the host ends.
async fn follow(mut validity: ValidityWatch, access: impl Fn() -> Option<Arc<Access>>) {
    while validity.lapsed().await {
        let Some(now) = access() else { return };
        now.core.set_unread_users(now.gate.is_guarded());
        drop(now);
        if !validity.settled().await {
            tokio::time::sleep(ANSWERED).await;
            let Some(now) = access() else { return };
            if now.gate.check_users().is_err() {
                close_users(&now);
            }
        }
        if !validity.restored().await {
            return;
        }
        let Some(now) = access() else { return };
        now.core.set_unread_users(false);
    }
}

/// Closes the connections and streams of users.
fn close_users(access: &Access) {
    for client in access.clients.open() {
        if matches!(client.principal(), Principal::Person(_)) {
            access.clients.close(client.id(), Closed::UnreadUsers);
        }
    }
    access.core.feeds.recheck();
}
