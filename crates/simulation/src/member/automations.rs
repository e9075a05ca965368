//! The automation store.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{AutomationProgress, AutomationStore, KeptAutomation, RunPage};
use ostler_contract::protocol::names;
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunLifecycle, AutomationRunOrigin,
    AutomationRunState,
};
use ostler_contract::shared_runs::Decision;
use ostler_contract::stores::automations::{check, exists, iso, message, none_such, patched, refuse_id};
use ostler_contract::{Call, RpcError, Thrown};

use super::Member;
use crate::database::tables::RunRow;

/// The maximum number of runs in a page.
const PAGE: usize = 20;

type M = Arc<Member>;

macro_rules! member {
    ($member:expr, $function:expr) => {{
        let member: M = $member.clone();
        Call::new(move |arguments| $function(&member, arguments))
    }};
}

/// Returns the store of a member.
pub fn store(own: &M) -> AutomationStore {
    AutomationStore {
        list: member!(own, |member: &M, ()| {
            member.read(|tables| tables.automations.values().cloned().collect())
        }),
        get: member!(own, |member: &M, (id,): (String,)| {
            member.read(move |tables| tables.automations.get(&id).cloned())
        }),
        triggers: Call::now(|()| Ok(Vec::new())),
        create: member!(own, create),
        update: member!(own, update),
        remove: member!(own, |member: &M, (id,): (String,)| {
            member.write(move |tables, _| {
                let is_there = tables.automations.remove(&id).is_some();
                if is_there {
                    tables.forget_automation(&id);
                }
                Ok(is_there)
            })
        }),
        run: member!(own, |member: &M, (run,): (AutomationRunState,)| keep(member, run)),
        run_of: member!(own, |member: &M, (uri,): (String,)| {
            member.read(move |tables| tables.runs.get(&uri).map(|row| row.run.clone()))
        }),
        runs: member!(own, page),
        find_runs: None,
        watch_removed_runs: None,
        watch: None,
        unfinished: Some(member!(own, |member: &M, ()| {
            member.read(|tables| {
                let mut open: Vec<&RunRow> = tables.runs.values().filter(|row| !row.is_ended).collect();
                open.sort_by_key(|row| row.number);
                open.into_iter().map(|row| row.run.clone()).collect()
            })
        })),
        progress: Some(member!(own, |member: &M, (id,): (String,)| {
            member.read(move |tables| tables.progress.get(&id).cloned())
        })),
        keep_progress: Some(member!(own, |member: &M, (id, progress): (String, AutomationProgress)| {
            member.write(move |tables, _| {
                tables.progress.insert(id.clone(), progress.clone());
                Ok(())
            })
        })),
        place: None,
        close: None,
    }
}

fn create(
    member: &M,
    (id, definition, owner): (String, AutomationDefinition, Option<String>),
) -> Pending<KeptAutomation> {
    let definition = AutomationDefinition { message: message(definition.message), ..definition };
    if let Err(refused) = refuse_id(&id).and_then(|()| checked(&id, &definition)) {
        return ready(Err(refused));
    }
    let now = iso(Timestamp::UNIX_EPOCH);
    let kept =
        KeptAutomation { id: id.clone(), definition, owner, created_at: now.clone(), modified_at: now };
    member.write(move |tables, _| {
        if tables.automations.contains_key(&id) {
            return Err(exists(&id));
        }
        tables.forget_automation(&id);
        tables.automations.insert(id.clone(), kept.clone());
        Ok(kept.clone())
    })
}

fn update(member: &M, (id, patch): (String, AutomationDefinitionPatch)) -> Pending<KeptAutomation> {
    member.write(move |tables, _| {
        let kept = tables.automations.get_mut(&id).ok_or_else(|| none_such(&id))?;
        let definition = patched(&kept.definition, patch.clone());
        checked(&id, &definition)?;
        kept.definition = definition;
        Ok(kept.clone())
    })
}

fn checked(id: &str, definition: &AutomationDefinition) -> Result<(), Thrown> {
    check(definition).map_err(|why| Thrown::new(format_args!("cannot store {id}: {why}")))
}

/// Stores a run. Where hosts share runs, only the owner of the automation does so, and the wake of the run is decided with it.
fn keep(member: &M, run: AutomationRunState) -> Pending<()> {
    keep_with(member, run, Vec::new())
}

/// Stores a run, and decides wakes that it counts.
pub fn keep_with(member: &M, run: AutomationRunState, decisions: Vec<Decision>) -> Pending<()> {
    let is_shared = member.lease.is_member;
    member.write(move |tables, me| {
        let row = row_of(run.clone());
        if is_shared && !tables.owns_runs(me, &row.automation) {
            return Err(Thrown::new(format_args!("another host has the runs of {}", row.automation)));
        }
        tables.keep_run(me, row)?;
        if let Some(wake) = tables.wakes.iter_mut().find(|row| row.wake.run.resource == run.resource) {
            wake.is_done = true;
            wake.outcome = Some(run.resource.clone());
        }
        for decision in &decisions {
            tables.decide(&decision.wake, decision.run.clone());
        }
        Ok(())
    })
}

/// Returns the row of a run; the table gives it its number.
pub fn row_of(run: AutomationRunState) -> RunRow {
    let is_ended =
        !matches!(run.lifecycle, AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_));
    let automation = automation_id(&run.automation).unwrap_or(&run.automation).to_owned();
    RunRow { number: 0, automation, cause: cause(&run), is_ended, run }
}

/// The cause that must start only one run.
pub fn cause(run: &AutomationRunState) -> Option<String> {
    if let AutomationRunOrigin::Trigger(origin) = &run.origin
        && let Some(at) = &origin.scheduled_for
    {
        return Some(format!("schedule:{}:{at}", origin.trigger_id));
    }
    Some(run.meta.as_ref()?.get(&names::meta_key("cause"))?.as_str()?.to_owned())
}

fn page(member: &M, (id, cursor): (String, Option<String>)) -> Pending<RunPage> {
    let read = member.read(move |tables| {
        let number_of = |cursor: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
            let number = u64::from_be_bytes(bytes.try_into().ok()?);
            let row = tables.runs.values().find(|row| row.number == number && row.automation == id);
            row.map(|row| row.number)
        };
        let before = match &cursor {
            None => u64::MAX,
            Some(cursor) => {
                number_of(cursor).ok_or_else(|| Thrown::from(RpcError::unrecognised_cursor(cursor)))?
            }
        };
        let mut rows: Vec<&RunRow> =
            tables.runs.values().filter(|row| row.automation == id && row.number < before).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.number));
        let next_cursor = rows.get(PAGE).and_then(|_| rows.get(PAGE - 1));
        let next_cursor = next_cursor.map(|last| URL_SAFE_NO_PAD.encode(last.number.to_be_bytes()));
        let runs = rows.into_iter().take(PAGE).map(|row| row.run.clone()).collect();
        Ok(RunPage { runs, next_cursor })
    });
    Box::pin(async move { read.await? })
}
