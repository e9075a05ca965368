//! A host whose users are in a database that other hosts change too, while it cannot read them.

use std::time::Duration;

use ostler_contract::json;
use ostler_engine::Principal;
use ostler_engine::outbox::Closed;
use ostler_testkit::RawClient;
use tokio::time::{Instant, sleep};

use super::people::{host, signed_in};

/// How long what was read is valid here.
const VALID: Duration = Duration::from_secs(1);

async fn list(client: &mut RawClient) -> Result<(), (i64, bool)> {
    let listed = client.request("listSessions", json!({})).await;
    listed.map(drop).map_err(|why| (why["code"].as_i64().unwrap(), why["data"]["retryable"] == true))
}

#[tokio::test(start_paused = true)]
async fn users_are_refused_and_disconnected_while_the_stored_ones_are_unknown() {
    let host = host().await;
    let people = host.host.access.gate.people().unwrap().clone();
    let confirm = || people.confirm(Instant::now(), VALID);
    let (mut ben, mut root) = (signed_in(&host, "ben's").await, host.raw_as(Principal::Root));
    root.initialize("root").await;
    sleep(10 * VALID).await;
    assert_eq!(list(&mut ben).await, Ok(()), "without a limit nothing ends it");

    confirm();
    assert_eq!(list(&mut ben).await, Ok(()));
    sleep(VALID + VALID / 2).await;
    assert!(
        host.host.core.lost_storage().is_some_and(|why| why.contains("users of this host cannot be read"))
    );
    // A request waits for the next read.
    let (served, ()) = tokio::join!(list(&mut ben), async {
        sleep(VALID / 4).await;
        confirm();
    });
    assert_eq!(served, Ok(()));
    assert_eq!(host.host.core.lost_storage(), None);

    sleep(VALID + VALID / 2).await;
    assert_eq!(list(&mut ben).await, Err((-32603, true)), "the stored users are unknown");
    assert_eq!(list(&mut root).await, Ok(()), "the host itself is no user");
    assert_eq!(ben.ended().await, Closed::UnreadUsers);
    assert_eq!(list(&mut root).await, Ok(()));

    // Nothing else was lost.
    confirm();
    let mut ben = signed_in(&host, "ben's").await;
    assert_eq!(list(&mut ben).await, Ok(()));
    assert_eq!(host.host.core.lost_storage(), None);
}
