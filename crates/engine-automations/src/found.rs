//! Searches the runs of all automations, and reads one run by its id.

use ostler_contract::limit;
use ostler_contract::points::{RunPage, RunQuery};
use ostler_contract::read::Read;
use ostler_protocol::run_list::{Run, RunFilter, RunList, RunOperation};
use ostler_protocol::wire::state::{
    AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState, AutomationRunSummary,
};
use ostler_protocol::{RpcError, names, uri};

use super::Automations;
use super::catalogue::asked;
use super::finishing::operation_of;
use super::run_summary::summary_of;

/// The states of runs.
const STATES: &[&str] = &["pending", "running", "completed", "failed", "cancelled"];

/// The longest error that a list contains, in bytes.
const ERROR_SHOWN: usize = 2000;
/// Default number of runs on a page.
const PAGE: u32 = 50;
/// Maximum number of runs on a page.
const PAGE_MAX: u32 = 500;

impl Automations {
    /// Returns a page of the runs that a filter selects, newest first.
    ///
    /// # Errors
    /// The filter is invalid, or the store cannot answer it.
    pub async fn list_runs(&self, filter: RunFilter) -> Result<RunList, RpcError> {
        let RunFilter { automation, state, owner, since, until, text, cursor, limit } = filter;
        if let Some(state) = state.as_deref().filter(|state| !STATES.contains(state)) {
            return Err(RpcError::invalid_params(format!(
                "state must be one of {}, not {state}",
                STATES.join(", ")
            )));
        }
        // Stores look for words, and a text without any would be no condition for them.
        if text
            .as_deref()
            .is_some_and(|text| !text.trim().is_empty() && !text.contains(char::is_alphanumeric))
        {
            return Ok(RunList { runs: Vec::new(), next: None });
        }
        let query = RunQuery {
            automation: automation.as_deref().map(|name| automation_id(name).to_owned()),
            state,
            owner,
            since,
            until,
            text,
            cursor,
            limit: limit.unwrap_or(PAGE).clamp(1, PAGE_MAX).into(),
        };
        let store = self.core.automations_kept()?;
        let page = match (&store.find_runs, &query.automation) {
            (Some(find), _) => asked(find.read(limit::STORE, (query.clone(),)).await)?,
            (None, Some(id)) => {
                let page = asked(store.runs.read(limit::STORE, (id.clone(), query.cursor.clone())).await)?;
                RunPage { runs: page.runs.into_iter().filter(|run| fits(run, &query)).collect(), ..page }
            }
            (None, None) => {
                return Err(RpcError::invalid_params(
                    "the automation store of this host lists the runs of one automation at a time; name one with automation",
                ));
            }
        };
        let runs = page.runs.iter().map(|run| self.newest(run));
        // A run that changed in the meantime may no longer match.
        let wanted = |run: &AutomationRunSummary| {
            query.state.as_deref().is_none_or(|state| state_of(&run.lifecycle) == state)
        };
        let runs = runs.filter(wanted).map(|run| self.listed_run(&run)).collect();
        Ok(RunList { runs, next: page.next_cursor })
    }

    /// Returns a run as it appears in lists.
    pub fn listed_run(&self, run: &AutomationRunSummary) -> Run {
        let meta = |fact: &str| {
            let value = run.meta.as_ref().and_then(|meta| meta.get(&names::meta_key(fact))?.as_str());
            value.map(str::to_owned)
        };
        let (trigger, event) = match &run.origin {
            AutomationRunOrigin::Trigger(origin) => (Some(origin.trigger_id.clone()), origin.event.clone()),
            AutomationRunOrigin::Manual(_) => (None, None),
        };
        let (started, ended, error) = times(&run.lifecycle);
        Run {
            id: run.resource.rsplit('/').next().unwrap_or_default().to_owned(),
            uri: run.resource.clone(),
            url: self.core.options.links.of(&run.resource),
            automation: automation_id(&run.automation).to_owned(),
            title: self.title_of(&run.automation),
            state: state_of(&run.lifecycle).to_owned(),
            error: error.map(|error| error[..error.floor_char_boundary(ERROR_SHOWN)].to_owned()),
            owner: meta("owner"),
            triggered_by: meta("triggeredBy"),
            trigger,
            event,
            accepted_at: accepted_at(&run.lifecycle).to_owned(),
            started_at: started.map(str::to_owned),
            ended_at: ended.map(str::to_owned),
            after: operation_of(run.meta.as_ref()).map(|after| RunOperation {
                message: after.message.map(|text| text[..text.floor_char_boundary(ERROR_SHOWN)].to_owned()),
                ..after
            }),
            session: run.primary_session.clone(),
            sessions: None,
        }
    }

    /// Returns a run by its id with all its details.
    pub async fn whole_run(&self, id: &str) -> Read<Option<Run>> {
        self.run_of_id(id).await.map(|run| run.map(|run| self.whole(run)))
    }

    fn whole(&self, run: AutomationRunState) -> Run {
        let summary = AutomationRunSummary {
            resource: run.resource,
            automation: run.automation,
            origin: run.origin,
            session_count: 0,
            primary_session: run.primary_session,
            meta: run.meta,
            lifecycle: run.lifecycle,
        };
        let error = times(&summary.lifecycle).2.map(str::to_owned);
        Run { error, sessions: Some(run.sessions), ..self.listed_run(&summary) }
    }

    /// Returns the current state of a run by its id.
    async fn run_of_id(&self, id: &str) -> Read<Option<AutomationRunState>> {
        let run = uri::automation_run(id);
        let open = self.runs.lock().state_of(&run).cloned();
        match open {
            Some(run) => Read::Known(Some(run)),
            None => self.kept_run(&run).await,
        }
    }

    /// Returns the title of an automation by its URI.
    fn title_of(&self, automation: &str) -> Option<String> {
        Some(self.entry(uri::automation_id(automation)?)?.wire.definition.title.clone())
    }

    /// Returns the summary of a run; the state in memory is never older than the stored one.
    pub(super) fn newest(&self, stored: &AutomationRunState) -> AutomationRunSummary {
        self.runs.lock().state_of(&stored.resource).map_or_else(|| summary_of(stored), summary_of)
    }

    /// Publishes a run's current state to the readers of the feed.
    pub(super) fn feed_run(&self, run: &AutomationRunState) {
        self.core.feeds.runs.put(|| std::sync::Arc::new(summary_of(run)));
    }
}

/// Returns the id of an automation, given its id or URI.
fn automation_id(name: &str) -> &str {
    uri::automation_id(name).unwrap_or(name)
}

/// Returns when a run began and ended, and why it failed.
fn times(lifecycle: &AutomationRunLifecycle) -> (Option<&str>, Option<&str>, Option<&str>) {
    match lifecycle {
        AutomationRunLifecycle::Pending(_) => (None, None, None),
        AutomationRunLifecycle::Running(of) => (Some(&of.started_at), None, None),
        AutomationRunLifecycle::Completed(of) => (Some(&of.started_at), Some(&of.completed_at), None),
        AutomationRunLifecycle::Failed(of) => {
            (of.started_at.as_deref(), Some(&of.completed_at), Some(&of.error.message))
        }
        AutomationRunLifecycle::Cancelled(of) => (of.started_at.as_deref(), Some(&of.completed_at), None),
    }
}

/// Returns the name of a run's state.
pub fn state_of(lifecycle: &AutomationRunLifecycle) -> &'static str {
    match lifecycle {
        AutomationRunLifecycle::Pending(_) => "pending",
        AutomationRunLifecycle::Running(_) => "running",
        AutomationRunLifecycle::Completed(_) => "completed",
        AutomationRunLifecycle::Failed(_) => "failed",
        AutomationRunLifecycle::Cancelled(_) => "cancelled",
    }
}

/// Returns when a run was accepted.
pub fn accepted_at(lifecycle: &AutomationRunLifecycle) -> &str {
    match lifecycle {
        AutomationRunLifecycle::Pending(of) => &of.created_at,
        AutomationRunLifecycle::Running(of) => &of.created_at,
        AutomationRunLifecycle::Completed(of) => &of.created_at,
        AutomationRunLifecycle::Failed(of) => &of.created_at,
        AutomationRunLifecycle::Cancelled(of) => &of.created_at,
    }
}

/// Whether a run matches a query, for a store that cannot filter.
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
