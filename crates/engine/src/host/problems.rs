//! What is wrong with the host now: what was noticed, and what is known only when it is asked for.

use std::time::Duration;

use ostler_contract::problems::{Finding, KnownProblem, ProblemKind, STATE};

use super::Host;

/// How long the list waits for the store of policies and for the vault. Whoever asks waits for the list.
const LOOK: Duration = Duration::from_secs(1);
/// The place of a vault that does not say itself what is wrong with it.
const VAULT: &str = "vault";

impl Host {
    /// Returns what is wrong now, by kind and place, without secrets. It waits for the store of policies and for the vault.
    pub async fn problems(&self) -> Vec<KnownProblem> {
        let look = async { tokio::join!(self.access.look_at_policies(), self.look_at_vault()) };
        // A store that answers late leaves what was known of it.
        let _ = tokio::time::timeout(LOOK, look).await;
        self.known_problems()
    }

    /// Like [`Host::problems`], with what was known of the policies when they were last looked at.
    pub fn known_problems(&self) -> Vec<KnownProblem> {
        let known = self.core.log.problems();
        let lost = self.core.lost_storage().map(|lost| {
            Finding::error(lost).fixed_by("it accepts no new work until this is over; see ostler logs")
        });
        known.set(ProblemKind::Storage, STATE, lost.into_iter().collect());
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

    /// Reads the vault, which says itself what is wrong with it. Another one says it by its answer.
    async fn look_at_vault(&self) {
        let Some(vault) = self.core.vault() else { return };
        let failed = vault.list.within(LOOK, ()).await.err();
        let known = self.core.log.problems();
        let says_itself = |known: &KnownProblem| known.kind == ProblemKind::Vault && known.place != VAULT;
        let failed = failed.filter(|_| !known.list().iter().any(says_itself));
        let why = failed.map(|why| Finding::error(format!("the names in the vault cannot be listed: {why}")));
        known.set(ProblemKind::Vault, VAULT, why.into_iter().collect());
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
