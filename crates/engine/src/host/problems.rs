//! What is wrong with the host now: what was noticed, and what is known only when it is asked for.

use std::time::Duration;

use ostler_contract::problems::{Finding, KnownProblem, ProblemKind};

use super::Host;

/// How long the list waits for the store of policies. Whoever asks waits for the list.
const POLICIES: Duration = Duration::from_secs(1);

impl Host {
    /// Returns what is wrong now, by kind and place, without secrets. It waits for the store of policies.
    pub async fn problems(&self) -> Vec<KnownProblem> {
        // A store that answers late leaves what was known of them.
        let _ = tokio::time::timeout(POLICIES, self.access.look_at_policies()).await;
        self.known_problems()
    }

    /// Like [`Host::problems`], with what was known of the policies when they were last looked at.
    pub fn known_problems(&self) -> Vec<KnownProblem> {
        let known = self.core.log.problems();
        let lost = self.core.lost_storage().map(|lost| {
            Finding::error(lost).fixed_by("it accepts no new work until this is over; see ostler logs")
        });
        known.set(ProblemKind::Storage, "state", lost.into_iter().collect());
        known.set(ProblemKind::Cluster, "cluster", self.unreachable_hosts());
        let problems = known.list().into_iter().chain(self.automations.unheard_problems());
        let hide = |text| self.core.log.without_secrets(text);
        let shown = problems.map(|KnownProblem { kind, place, finding, since }| {
            let Finding { is_error, found, fix } = finding;
            let finding = Finding { is_error, found: hide(found), fix: fix.map(hide) };
            KnownProblem { kind, place: hide(place), finding, since }
        });
        let mut problems: Vec<KnownProblem> = shown.collect();
        problems.sort_by(|a, b| (a.kind, &a.place).cmp(&(b.kind, &b.place)));
        problems
    }

    fn unreachable_hosts(&self) -> Vec<Finding> {
        let own = self.core.cluster().map(|cluster| cluster.id());
        let unreachable = self.front.relay().map(|relay| relay.unreachable()).unwrap_or_default();
        let finding = |(id, why): (String, String)| {
            match own.as_ref() == Some(&id) {
            true => Finding::warning(format!("this host does not reach itself at its cluster.url: {why}")).fixed_by(
                "set cluster.url in the options of @ostler/postgres to an address that leads to this host",
            ),
            false => Finding::warning(format!("host {id} cannot be reached from here: {why}"))
                .fixed_by(format!("correct the cluster.url of host {id}, or the network between the hosts")),
        }
        };
        unreachable.into_iter().map(finding).collect()
    }
}
