//! The runs that a stop or the loss of a host left unfinished.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_contract::{Thrown, limit};
use ostler_engine_core::tasks;
use ostler_protocol::wire::state::{AutomationRunLifecycle, AutomationRunState};
use ostler_protocol::{Value, names, uri};

use super::Automations;
use super::finishing;
use super::order::{Order, place_of};
use super::run::RESUMED;
use super::settings::OnHostLost;

/// How often a run is resumed, because it may be what stops its hosts.
const MOST_RESUMED: u64 = 3;

impl Automations {
    /// Resumes the runs that a stop left unfinished. Where hosts share runs, those of automations that no other host owns.
    ///
    /// # Errors
    /// The store cannot read them.
    pub(super) async fn resume_runs(self: &Arc<Self>) -> Result<(), Thrown> {
        if let Some(shared) = self.core.shared_runs() {
            self.runs.lock().early = None;
            return self.begin_sharing(shared).await;
        }
        let unfinished = self.core.automation_store().and_then(|store| store.unfinished.clone());
        let mut open = match unfinished {
            Some(unfinished) => unfinished.read(limit::STORE_SCAN, ()).await.known()?,
            None => Vec::new(),
        };
        let early = self.runs.lock().early.take().unwrap_or_default();
        open.retain(|run| !early.contains(&run.resource));
        self.resume_open(open, None).await;
        Ok(())
    }

    /// Resumes runs that a stop left unfinished: a pending run begins, a running one fails, or starts its work again if its
    /// automation says so. One whose turn had completed does its operation again. `lost` is the other host that had them.
    pub(super) async fn resume_open(self: &Arc<Self>, mut open: Vec<AutomationRunState>, lost: Option<&str>) {
        // A store may return them in any order.
        open.sort_by_key(place_of);
        let (mut begun, mut resumed) = (Vec::new(), Vec::new());
        let mut ids = BTreeSet::new();
        for mut run in open {
            let resource = run.resource.clone();
            let pending = matches!(run.lifecycle, AutomationRunLifecycle::Pending(_));
            let id = uri::automation_id(&run.automation).unwrap_or_default().to_owned();
            let is_wanted = finishing::begun(&run).is_some()
                || self.entry(&id).is_some_and(|entry| entry.settings.on_host_lost == OnHostLost::Resume);
            let resumes = !pending && is_wanted && count_resumed(&mut run);
            let mut runs = self.runs.lock();
            let order = Order::of_run(&run);
            match (pending, resumes) {
                (true, _) => {
                    let lane = runs.lanes.entry(id.clone()).or_default();
                    lane.resume(&resource, order.as_ref(), place_of(&run));
                }
                (false, true) => {
                    runs.lanes.entry(id.clone()).or_default().go_on(
                        &resource,
                        order.as_ref(),
                        place_of(&run),
                    );
                    let operation = finishing::begun(&run);
                    if operation.is_some() {
                        runs.add_completed(&run);
                    }
                    resumed.push((resource.clone(), operation));
                }
                (false, false) => begun.push(resource.clone()),
            }
            runs.open.insert(resource, run);
            ids.insert(id);
        }
        // Runs that wait in the same order begin after these have ended.
        for run in begun {
            let why = match lost {
                None => "the host stopped while this run was going".to_owned(),
                Some(host) => format!("its host, {host}, was lost while this run was going"),
            };
            self.settle_run(&run, "failed", Some(why)).await;
        }
        for (run, operation) in resumed {
            let automations = self.clone();
            tasks::spawn(async move {
                // How often it was resumed precedes the work.
                if automations.core.can_store().await && automations.keep_run_at_last(&run, None).await {
                    automations
                        .core
                        .log
                        .info(format_args!("{run} resumes after its host stopped or was lost"));
                    match operation {
                        Some(operation) => automations.finish_run(&run, operation).await,
                        None => automations.begin_run(&run).await,
                    }
                }
            });
        }
        for id in ids {
            self.begin_waiting(&id);
        }
    }
}

/// Counts in a run that it is resumed. Returns `false` if it was resumed too often.
fn count_resumed(run: &mut AutomationRunState) -> bool {
    let meta = run.meta.get_or_insert_default();
    let key = names::meta_key(RESUMED);
    let before = meta.get(&key).and_then(Value::as_u64).unwrap_or(0);
    if before < MOST_RESUMED {
        meta.insert(key, (before + 1).into());
    }
    before < MOST_RESUMED
}
