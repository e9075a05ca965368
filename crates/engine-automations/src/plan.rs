//! The plan of the clock: when each schedule is next due, and which occurrences were missed.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use ostler_contract::points::{AutomationProgress, ScheduleProgress};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDisableCondition, AutomationMisfirePolicy, AutomationSchedule,
    AutomationTrigger,
};

use super::schedule::Schedule;

/// How late an occurrence may be handled and still count as on time.
const ON_TIME: SignedDuration = SignedDuration::from_secs(60);
/// The same for schedules that skip missed occurrences: only as long as a busy machine needs.
const ON_TIME_OR_SKIPPED: SignedDuration = SignedDuration::from_secs(10);

/// Every automation with a plan.
#[derive(Debug, Default)]
pub(super) struct Plans {
    plans: HashMap<String, Plan>,
    due: BTreeSet<(Timestamp, String)>,
    /// Scheduled runs counted against `afterRuns`, for automations with that condition.
    counts: HashMap<String, i64>,
}

#[derive(Debug)]
struct Plan {
    schedules: Vec<Planned>,
    /// When the automation is switched off.
    until: Option<Timestamp>,
    /// Its time in `due`.
    at: Option<Timestamp>,
}

#[derive(Debug)]
struct Planned {
    trigger: String,
    written: AutomationSchedule,
    schedule: Schedule,
    skips: bool,
    /// `None` after the last occurrence.
    next: Option<Timestamp>,
    /// The latest occurrence that was due.
    last: Option<Timestamp>,
}

impl Planned {
    /// Plans the next occurrence again if it is later than the one after now, as it is if the clock was ahead when it was
    /// computed. Returns whether it changed.
    fn correct(&mut self, now: Timestamp) -> bool {
        let Some(next) = self.next else { return false };
        // What was just due does not come again if the clock is set back by a moment.
        let from = self.last.filter(|last| *last > now && !is_ahead(*last, now)).unwrap_or(now);
        let latest = self.schedule.after(from).filter(|latest| *latest < next);
        if latest.is_some() {
            self.next = latest;
        }
        latest.is_some()
    }
}

/// Whether an occurrence is so far after `now` that it was due by a clock that was ahead.
fn is_ahead(occurrence: Timestamp, now: Timestamp) -> bool {
    occurrence.duration_since(now) > ON_TIME
}

/// An occurrence that starts a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub trigger: String,
    pub at: Timestamp,
    /// Whether it was missed and is caught up.
    pub catch_up: bool,
}

/// What is due for one automation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub automation: String,
    pub occurrences: Vec<Occurrence>,
    /// Whether the automation has expired.
    pub expired: bool,
}

/// The state of the schedules that an entry contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ScheduleState {
    pub next: Option<Timestamp>,
    pub run_count: Option<i64>,
}

/// Returns the maximum number of runs that a definition's schedules may start.
pub(super) fn most_runs(definition: &AutomationDefinition) -> Option<i64> {
    definition.disable_conditions.iter().flatten().find_map(|condition| match condition {
        AutomationDisableCondition::AfterRuns(condition) => Some(condition.max),
        AutomationDisableCondition::AfterDate(_) => None,
    })
}

fn last_date(definition: &AutomationDefinition) -> Option<Timestamp> {
    definition.disable_conditions.iter().flatten().find_map(|condition| match condition {
        AutomationDisableCondition::AfterDate(condition) => condition.date.parse().ok(),
        AutomationDisableCondition::AfterRuns(_) => None,
    })
}

impl Plans {
    /// Plans an automation again. An unchanged schedule continues from its progress; any other begins now. `kept` is
    /// the progress stored when the host last stopped.
    pub fn set(
        &mut self,
        id: &str,
        before: Option<&AutomationDefinition>,
        definition: &AutomationDefinition,
        kept: Option<&AutomationProgress>,
        now: Timestamp,
    ) -> ScheduleState {
        let old = self.take(id);
        let has_schedules =
            definition.triggers.iter().any(|trigger| matches!(trigger, AutomationTrigger::Schedule(_)));
        // Stored progress without schedules means that the automation was off, or that no progress was stored before:
        // it has been switched on since.
        let asleep = kept.is_some_and(|kept| kept.schedules.is_empty() && has_schedules);
        let begins = definition.enabled
            && (before.is_some_and(|before| !before.enabled || most_runs(before).is_none()) || asleep);
        match most_runs(definition) {
            None => drop(self.counts.remove(id)),
            Some(_) if begins => drop(self.counts.insert(id.to_owned(), 0)),
            Some(_) => {
                let counted = kept.and_then(|kept| kept.run_count).unwrap_or(0);
                self.counts.entry(id.to_owned()).or_insert(counted);
            }
        }
        if definition.enabled {
            let mut schedules = Vec::new();
            for trigger in &definition.triggers {
                let AutomationTrigger::Schedule(trigger) = trigger else { continue };
                let Ok(schedule) = Schedule::read(&trigger.schedule) else { continue };
                let same = old.as_ref().and_then(|old| {
                    old.schedules
                        .iter()
                        .find(|held| held.trigger == trigger.id && held.written == trigger.schedule)
                });
                let skips = trigger.misfire_policy == Some(AutomationMisfirePolicy::Skip);
                let next =
                    match (same, kept.and_then(|kept| progress_of(kept, &trigger.id, &trigger.schedule))) {
                        (Some(same), _) => same.next,
                        // It was due while the host was not running, so it counts as missed, however short ago.
                        (None, Some(next)) if skips && next <= now => schedule.after(now),
                        (None, Some(next)) => Some(next),
                        (None, None) => schedule.after(now),
                    };
                let mut planned = Planned {
                    trigger: trigger.id.clone(),
                    written: trigger.schedule.clone(),
                    schedule,
                    skips,
                    next,
                    last: same.and_then(|same| same.last),
                };
                planned.correct(now);
                schedules.push(planned);
            }
            let until = last_date(definition);
            if !schedules.is_empty() || until.is_some() {
                self.put(id, Plan { schedules, until, at: None });
            }
        }
        self.shown(id)
    }

    /// Skips an occurrence whose run was stored although its progress was not. One after `now` was due by a clock that was
    /// ahead, and comes again.
    pub fn passed(&mut self, id: &str, trigger: &str, occurrence: Timestamp, now: Timestamp) {
        if is_ahead(occurrence, now) {
            return;
        }
        let Some(mut plan) = self.take(id) else { return };
        for planned in plan.schedules.iter_mut().filter(|planned| planned.trigger == trigger) {
            if planned.next.is_some_and(|next| next <= occurrence) {
                planned.next = planned.schedule.after(occurrence);
            }
        }
        self.put(id, plan);
    }

    /// Plans every schedule again whose next occurrence was computed by a clock that was ahead. Returns the automations that
    /// have such schedules.
    pub fn correct(&mut self, now: Timestamp) -> Vec<String> {
        let ids: Vec<String> = self.plans.keys().cloned().collect();
        let mut corrected = Vec::new();
        for id in ids {
            let Some(mut plan) = self.take(&id) else { continue };
            // All of them: each is corrected, whether or not one was before.
            let changed =
                plan.schedules.iter_mut().filter_map(|planned| planned.correct(now).then_some(())).count();
            self.put(&id, plan);
            if changed > 0 {
                corrected.push(id);
            }
        }
        corrected
    }

    pub fn remove(&mut self, id: &str) {
        self.take(id);
        self.counts.remove(id);
    }

    /// Returns what is due, and plans each schedule's next occurrence after now. Automations whose date has passed start no
    /// runs, and expire once the clock `is_settled`.
    pub fn take_due(&mut self, now: Timestamp, is_settled: bool) -> Vec<Due> {
        let mut all = Vec::new();
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let ids: Vec<String> = due.map(|(_, id)| id.clone()).collect();
        for id in ids {
            let Some(mut plan) = self.take(&id) else { continue };
            let mut due = Due { automation: id.clone(), occurrences: Vec::new(), expired: false };
            let mut is_planned_again = false;
            for planned in &mut plan.schedules {
                let Some(next) = planned.next.filter(|next| *next <= now) else { continue };
                planned.next = planned.schedule.after(now);
                is_planned_again = true;
                let on_time = if planned.skips { ON_TIME_OR_SKIPPED } else { ON_TIME };
                let late = now.duration_since(next) > on_time;
                let occurrence = match late {
                    true => planned.schedule.latest(now).unwrap_or(next),
                    false => next,
                };
                planned.last = Some(occurrence);
                // An occurrence that is on time is not a missed one, even if earlier ones were missed.
                let catch_up = now.duration_since(occurrence) > on_time;
                if plan.until.is_none_or(|until| occurrence <= until) && !(catch_up && planned.skips) {
                    due.occurrences.push(Occurrence {
                        trigger: planned.trigger.clone(),
                        at: occurrence,
                        catch_up: late && !planned.skips,
                    });
                }
            }
            due.expired = is_settled && plan.until.is_some_and(|until| until <= now);
            if !due.expired {
                self.put(&id, plan);
            }
            if due.expired || is_planned_again {
                all.push(due);
            }
        }
        all
    }

    /// Returns when something is next due after `now`.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.due.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    /// Whether something is due, now or later.
    pub fn is_waiting(&self) -> bool {
        !self.due.is_empty()
    }

    pub fn shown(&self, id: &str) -> ScheduleState {
        let plan = self.plans.get(id);
        ScheduleState {
            next: plan.and_then(|plan| plan.schedules.iter().filter_map(|planned| planned.next).min()),
            run_count: self.counts.get(id).copied(),
        }
    }

    /// Counts a scheduled run. Returns the number of runs if the automation has a limit.
    pub fn count(&mut self, id: &str) -> Option<i64> {
        let count = self.counts.get_mut(id)?;
        *count += 1;
        Some(*count)
    }

    /// Sets the number of scheduled runs, as another host counted them.
    pub fn set_count(&mut self, id: &str, count: i64) {
        if let Some(held) = self.counts.get_mut(id) {
            *held = count.max(*held);
        }
    }

    /// Returns the progress of an automation for the store.
    pub fn progress(&self, id: &str) -> AutomationProgress {
        let planned = self.plans.get(id).map(|plan| plan.schedules.as_slice()).unwrap_or_default();
        let schedules = planned.iter().filter_map(|planned| {
            Some(ScheduleProgress {
                trigger: planned.trigger.clone(),
                expression: planned.written.expression.clone(),
                time_zone: planned.written.time_zone.clone(),
                next: ostler_engine_core::clock::iso(planned.next?),
            })
        });
        AutomationProgress { schedules: schedules.collect(), run_count: self.counts.get(id).copied() }
    }

    fn put(&mut self, id: &str, mut plan: Plan) {
        let nexts = plan.schedules.iter().filter_map(|planned| planned.next);
        plan.at = nexts.chain(plan.until).min();
        if let Some(at) = plan.at {
            self.due.insert((at, id.to_owned()));
        }
        self.plans.insert(id.to_owned(), plan);
    }

    fn take(&mut self, id: &str) -> Option<Plan> {
        let plan = self.plans.remove(id)?;
        if let Some(at) = plan.at {
            self.due.remove(&(at, id.to_owned()));
        }
        Some(plan)
    }
}

fn progress_of(kept: &AutomationProgress, trigger: &str, written: &AutomationSchedule) -> Option<Timestamp> {
    let of = |held: &&ScheduleProgress| {
        held.trigger == trigger
            && held.expression == written.expression
            && held.time_zone == written.time_zone
    };
    kept.schedules.iter().find(of)?.next.parse().ok()
}
