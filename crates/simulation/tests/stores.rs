//! The model of the database passes the suites of every store.

use std::sync::Arc;
use std::time::Duration;

use ostler_ports::conformance::{
    ClusterMember, automations_conformance, cluster_conformance, sessions_conformance,
};
use ostler_simulation::database::Database;
use ostler_simulation::history::History;
use ostler_simulation::machine::Machine;
use ostler_simulation::member::Member;
use ostler_simulation::network::Network;
use ostler_simulation::random::Random;
use parking_lot::Mutex;

const STEP: Duration = Duration::from_millis(10);
/// The time after which a suite does not end.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs a suite with hosts on the model.
fn with_members(ids: &[&'static str], is_cluster: bool, suite: impl AsyncFnOnce(Vec<Arc<Member>>) + 'static) {
    let (history, server, wires, host) = (History::default(), Machine::new(), Machine::new(), Machine::new());
    let network = Network::new(wires.handle(), Random::new(1, 1));
    let database = Database::new(server.handle(), network, history.clone(), Random::new(1, 2));
    let (ids, done) = (ids.to_vec(), Arc::new(Mutex::new(None)));
    let ended = done.clone();
    host.start(async move {
        let mut members = Vec::new();
        for id in ids {
            members.push(Member::join(&database, id, &format!("{id}#1"), is_cluster).await.unwrap());
        }
        let suite = std::panic::AssertUnwindSafe(suite(members));
        *ended.lock() = Some(futures::FutureExt::catch_unwind(suite).await);
    });
    while done.lock().is_none() {
        history.set_now(history.now() + STEP);
        assert!(history.now() < LIMIT, "the suite does not end");
        server.run_for(STEP);
        wires.run_for(STEP);
        host.run_for(STEP);
    }
    let outcome = done.lock().take();
    if let Some(Err(panic)) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn the_model_passes_the_suite_of_sessions() {
    with_members(&["only"], false, async |members| sessions_conformance(members[0].sessions()).await);
}

#[test]
fn the_model_passes_the_suite_of_automations() {
    with_members(&["only"], false, async |members| automations_conformance(members[0].automations()).await);
}

#[test]
fn the_model_passes_the_suite_of_clusters() {
    with_members(&["one", "other"], true, async |members| {
        let member = |member: &Arc<Member>| ClusterMember {
            cluster: member.cluster(),
            sessions: member.sessions(),
            automations: member.automations(),
            runs: member.shared_runs(),
        };
        cluster_conformance(member(&members[0]), member(&members[1])).await;
    });
}
