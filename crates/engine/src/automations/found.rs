//! Runs of all automations by what is known of them, and one run by its id.

use ostler_contract::limit;
use ostler_contract::points::{RunPage, RunQuery};
use ostler_protocol::wire::state::{AutomationRunLifecycle, AutomationRunState, AutomationRunSummary};
use ostler_protocol::{RpcError, names, uri};

use super::Automations;
use super::catalogue::asked;
use super::run_summary::summary_of;

/// The states of runs.
pub const STATES: &[&str] = &["pending", "running", "completed", "failed", "cancelled"];

impl Automations {
    /// A page of the runs that a query asks for, newest first, and the cursor of the next one.
    ///
    /// # Errors
    /// The query is invalid, or the store cannot answer it.
    pub async fn find_runs(
        &self,
        query: RunQuery,
    ) -> Result<(Vec<AutomationRunSummary>, Option<String>), RpcError> {
        let store = self.core.automations_kept()?;
        let page = match (&store.find_runs, &query.automation) {
            (Some(find), _) => asked(find.within(limit::STORE, (query.clone(),))).await?,
            (None, Some(id)) => {
                let page = asked(store.runs.within(limit::STORE, (id.clone(), query.cursor.clone()))).await?;
                RunPage { runs: page.runs.into_iter().filter(|run| fits(run, &query)).collect(), ..page }
            }
            (None, None) => {
                return Err(RpcError::invalid_params(
                    "the automation store of this host lists the runs of one automation at a time; name one with automation",
                ));
            }
        };
        let runs = page.runs.iter().map(|run| self.newest(run));
        // One that has changed since may fit no longer.
        let wanted = |run: &AutomationRunSummary| {
            query.state.as_deref().is_none_or(|state| state_of(&run.lifecycle) == state)
        };
        Ok((runs.filter(wanted).collect(), page.next_cursor))
    }

    /// A run by its id, as it is now.
    pub async fn run_of_id(&self, id: &str) -> Option<AutomationRunState> {
        let run = uri::automation_run(id);
        let open = self.runs.lock().state_of(&run).cloned();
        match open {
            Some(run) => Some(run),
            None => self.kept_run(&run).await,
        }
    }

    /// The title of an automation, by its URI.
    pub fn title_of(&self, automation: &str) -> Option<String> {
        Some(self.entry(uri::automation_id(automation)?)?.wire.definition.title.clone())
    }

    /// A run as listings show it: what is in memory is never older than what is stored.
    fn newest(&self, stored: &AutomationRunState) -> AutomationRunSummary {
        self.runs.lock().state_of(&stored.resource).map_or_else(|| summary_of(stored), summary_of)
    }

    /// Publishes a run as it is now to the readers of the feed.
    pub(super) fn feed_run(&self, run: &AutomationRunState) {
        self.core.feeds.runs.put(|| std::sync::Arc::new(summary_of(run)));
    }
}

/// The name of a run's state.
pub fn state_of(lifecycle: &AutomationRunLifecycle) -> &'static str {
    match lifecycle {
        AutomationRunLifecycle::Pending(_) => "pending",
        AutomationRunLifecycle::Running(_) => "running",
        AutomationRunLifecycle::Completed(_) => "completed",
        AutomationRunLifecycle::Failed(_) => "failed",
        AutomationRunLifecycle::Cancelled(_) => "cancelled",
    }
}

/// When a run was accepted.
pub fn accepted_at(lifecycle: &AutomationRunLifecycle) -> &str {
    match lifecycle {
        AutomationRunLifecycle::Pending(of) => &of.created_at,
        AutomationRunLifecycle::Running(of) => &of.created_at,
        AutomationRunLifecycle::Completed(of) => &of.created_at,
        AutomationRunLifecycle::Failed(of) => &of.created_at,
        AutomationRunLifecycle::Cancelled(of) => &of.created_at,
    }
}

/// Whether a run is asked for, for a store that cannot tell.
fn fits(run: &AutomationRunState, query: &RunQuery) -> bool {
    let owner = || run.meta.as_ref().and_then(|meta| meta.get(&names::meta_key("owner"))?.as_str());
    let at: Option<jiff::Timestamp> = accepted_at(&run.lifecycle).parse().ok();
    let time = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let has = |word: &str| serde_json::to_string(run).is_ok_and(|text| text.to_lowercase().contains(word));
    query.state.as_deref().is_none_or(|state| state_of(&run.lifecycle) == state)
        && query.owner.as_deref().is_none_or(|wanted| owner() == Some(wanted))
        && time(&query.since).is_none_or(|since| at.is_some_and(|at| at >= since))
        && time(&query.until).is_none_or(|until| at.is_some_and(|at| at < until))
        && query.text.as_deref().is_none_or(|text| text.to_lowercase().split_whitespace().all(has))
}
