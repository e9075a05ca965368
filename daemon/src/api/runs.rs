//! Runs of automations over HTTP: lists, one of them, and their changes.

use ostler_engine::feed::Change;
use ostler_protocol::run_list::{Run, RunFilter, RunList};
use ostler_protocol::{RpcError, error::code, json, uri};

use super::Refused;
use super::events::{Events, Seen};
use super::rows::Ask;
use super::schedule_shapes::ScheduledAutomation;
use crate::exit::Exit;
use crate::schedules;

pub(super) async fn list(ask: Ask, filter: RunFilter) -> Result<RunList, Refused> {
    ask.control.host.automations.list_runs(filter).await.map_err(refused)
}

pub(super) async fn one(ask: Ask) -> Result<Run, Refused> {
    let unknown = || Refused::Missing(format!("There is no run {}", ask.name));
    let id = ask.name.rsplit('/').next().unwrap_or_default();
    let run = ask.control.host.automations.whole_run(id).await.known();
    run.map_err(|why| Refused::NotReady(format!("the run could not be read: {why}")))?.ok_or_else(unknown)
}

pub(super) async fn automation(ask: Ask) -> Result<ScheduledAutomation, Refused> {
    let id = uri::automation_id(&ask.name).unwrap_or(&ask.name);
    let entry = ask.control.host.automations.automation(id);
    let entry = entry.ok_or_else(|| Refused::Missing(format!("There is no automation {id}")))?;
    Ok(ScheduledAutomation {
        id: id.to_owned(),
        title: entry.definition.title.clone(),
        enabled: entry.definition.enabled,
        schedules: schedules::schedules(&entry),
        next: schedules::next(&entry, jiff::Timestamp::now()),
    })
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
    let automation = automation.map(|name| uri::automation_id(&name).unwrap_or(&name).to_owned());
    let control = ask.control.clone();
    Events::of(
        ask,
        ("automation", "list"),
        |core| &core.feeds.runs,
        move |change| match change {
            Change::Put(run) => {
                let run = control.host.automations.listed_run(run);
                let fits = automation.as_ref().is_none_or(|wanted| run.automation == *wanted)
                    && owner.as_ref().is_none_or(|wanted| run.owner.as_ref() == Some(wanted));
                fits.then(|| Seen { event: "run", data: json!(run) })
            }
            Change::Removed(removed) => match uri::automation_id(removed) {
                // All its runs were removed with it.
                Some(id) => {
                    let fits = automation.as_ref().is_none_or(|wanted| wanted == id);
                    fits.then(|| Seen { event: "removed", data: json!({ "automation": id }) })
                }
                None => Some(Seen { event: "removed", data: json!({ "uri": removed }) }),
            },
        },
    )
}

fn refused(error: RpcError) -> Refused {
    match error.code {
        code::PERMISSION_DENIED => Refused::from(error),
        code::INVALID_PARAMS => Exit::usage(error.message).into(),
        _ => Exit::machine(error.message).into(),
    }
}
