//! Runs of automations over HTTP: lists, one of them, and their changes.

use ostler_contract::points::RunQuery;
use ostler_engine::feed::Change;
use ostler_engine::runs::{accepted_at, state_of};
use ostler_protocol::wire::state::{
    AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState, AutomationRunSummary,
};
use ostler_protocol::{RpcError, error::code, json, names, uri};

use super::Refused;
use super::events::{Events, Seen};
use super::list_shapes::{Run, RunFilter, RunList};
use super::rows::Ask;
use crate::control::Control;
use crate::exit::Exit;

/// How many runs a page has where nothing is said.
const PAGE: u32 = 50;
/// How much of an error a list shows, in bytes.
const ERROR_SHOWN: usize = 2000;

pub(super) async fn list(ask: Ask, filter: RunFilter) -> Result<RunList, Refused> {
    let query = RunQuery {
        automation: filter.automation.as_deref().map(id_of),
        state: filter.state,
        owner: filter.owner,
        since: filter.since,
        until: filter.until,
        text: filter.text,
        cursor: filter.cursor,
        limit: filter.limit.unwrap_or(PAGE).into(),
    };
    let (runs, next) = ask.control.host.automations.find_runs(query).await.map_err(refused)?;
    Ok(RunList { runs: runs.iter().map(|run| shown(&ask.control, run)).collect(), next })
}

pub(super) async fn one(ask: Ask) -> Result<Run, Refused> {
    let unknown = || Refused::Missing(format!("There is no run {}", ask.name));
    let id = ask.name.rsplit('/').next().unwrap_or_default();
    let run = ask.control.host.automations.run_of_id(id).await.ok_or_else(unknown)?;
    Ok(whole(&ask.control, &run))
}

/// The changes of runs. A filter of what changes would leave out that a run no longer fits.
pub(super) fn events(ask: &Ask, filter: RunFilter) -> Result<Events, Refused> {
    let RunFilter { automation, owner, state, since, until, text, cursor, limit } = filter;
    super::events::only(&[
        ("state", state.is_some()),
        ("since", since.is_some()),
        ("until", until.is_some()),
        ("text", text.is_some()),
        ("cursor", cursor.is_some()),
        ("limit", limit.is_some()),
    ])?;
    let automation = automation.as_deref().map(id_of);
    let control = ask.control.clone();
    Events::of(
        ask,
        ("automation", "list"),
        |core| &core.feeds.runs,
        move |change| match change {
            Change::Put(run) => {
                let run = shown(&control, run);
                let fits = automation.as_ref().is_none_or(|wanted| run.automation == *wanted)
                    && owner.as_ref().is_none_or(|wanted| run.owner.as_ref() == Some(wanted));
                fits.then(|| Seen { event: "run", data: json!(run) })
            }
            Change::Removed(uri) => Some(Seen { event: "removed", data: json!({ "uri": uri }) }),
        },
    )
}

/// The id of an automation that is named by its id or URI.
fn id_of(name: &str) -> String {
    uri::automation_id(name).unwrap_or(name).to_owned()
}

fn refused(error: RpcError) -> Refused {
    match error.code {
        code::PERMISSION_DENIED => Refused::from(error),
        code::INVALID_PARAMS => Exit::usage(error.message).into(),
        _ => Exit::machine(error.message).into(),
    }
}

/// A run as lists show it.
fn shown(control: &Control, run: &AutomationRunSummary) -> Run {
    let meta = |fact: &str| {
        let value = run.meta.as_ref().and_then(|meta| meta.get(&names::meta_key(fact))?.as_str());
        value.map(str::to_owned)
    };
    let (trigger, event) = match &run.origin {
        AutomationRunOrigin::Trigger(origin) => (Some(origin.trigger_id.clone()), origin.event.clone()),
        AutomationRunOrigin::Manual(_) => (None, None),
    };
    let (started, ended, error) = times(&run.lifecycle);
    let host = &control.host;
    Run {
        id: run.resource.rsplit('/').next().unwrap_or_default().to_owned(),
        uri: run.resource.clone(),
        url: host.core.options.links.of(&run.resource),
        automation: id_of(&run.automation),
        title: host.automations.title_of(&run.automation),
        state: state_of(&run.lifecycle).to_owned(),
        error: error.map(|error| error[..error.floor_char_boundary(ERROR_SHOWN)].to_owned()),
        owner: meta("owner"),
        triggered_by: meta("triggeredBy"),
        trigger,
        event,
        accepted_at: accepted_at(&run.lifecycle).to_owned(),
        started_at: started.map(str::to_owned),
        ended_at: ended.map(str::to_owned),
        session: run.primary_session.clone(),
        sessions: None,
    }
}

/// A run with all that is known of it.
fn whole(control: &Control, run: &AutomationRunState) -> Run {
    let summary = AutomationRunSummary {
        resource: run.resource.clone(),
        automation: run.automation.clone(),
        origin: run.origin.clone(),
        lifecycle: run.lifecycle.clone(),
        primary_session: run.primary_session.clone(),
        session_count: 0,
        meta: run.meta.clone(),
    };
    let error = times(&run.lifecycle).2.map(str::to_owned);
    Run { error, sessions: Some(run.sessions.clone()), ..shown(control, &summary) }
}

/// When a run began and ended, and why it failed.
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
