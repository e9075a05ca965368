//! When the schedules of an automation are due, for people.

use jiff::Timestamp;
use ostler_contract::time_zone::time_zone;
use ostler_engine::{in_words, next_times};
use ostler_protocol::wire::state::{AutomationEntry, AutomationSchedule, AutomationTrigger};

use crate::api::schedule_shapes::{NextTime, ShownSchedule};

/// How many times are shown.
const NEXT: usize = 5;

/// Returns the schedules of an automation, in words.
pub fn schedules(entry: &AutomationEntry) -> Vec<ShownSchedule> {
    let shown = |(trigger, schedule): (&str, &AutomationSchedule)| ShownSchedule {
        trigger: trigger.to_owned(),
        expression: schedule.expression.clone(),
        time_zone: schedule.time_zone.clone(),
        in_words: in_words(schedule).ok(),
    };
    written(entry).map(shown).collect()
}

/// Returns the next times of an automation: the first as the daemon has planned it, the others as its schedules say.
pub fn next(entry: &AutomationEntry, now: Timestamp) -> Vec<NextTime> {
    let Some(first) = &entry.next_run_at else { return Vec::new() };
    let planned = first.parse().unwrap_or(now);
    let mut times: Vec<(Timestamp, &str)> = Vec::new();
    for (_, schedule) in written(entry) {
        let due = next_times(schedule, planned, NEXT).unwrap_or_default();
        times.extend(due.into_iter().map(|time| (time, schedule.time_zone.as_str())));
    }
    times.sort();
    times.dedup_by_key(|(time, _)| *time);
    let zone = zone_of(entry, planned);
    let all = std::iter::once((planned, zone)).chain(times).take(NEXT);
    all.map(|(at, zone)| shown(at, zone)).collect()
}

fn written(entry: &AutomationEntry) -> impl Iterator<Item = (&str, &AutomationSchedule)> {
    entry.definition.triggers.iter().filter_map(|trigger| match trigger {
        AutomationTrigger::Schedule(trigger) => Some((trigger.id.as_str(), &trigger.schedule)),
        AutomationTrigger::Event(_) => None,
    })
}

/// Returns the zone of the schedule that is due at a time.
fn zone_of(entry: &AutomationEntry, at: Timestamp) -> &str {
    let before = at.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap_or(at);
    let is_due = |schedule: &AutomationSchedule| {
        next_times(schedule, before, 1).is_ok_and(|times| times.first() == Some(&at))
    };
    let due = written(entry).find(|(_, schedule)| is_due(schedule)).or_else(|| written(entry).next());
    due.map_or("UTC", |(_, schedule)| schedule.time_zone.as_str())
}

fn shown(at: Timestamp, zone: &str) -> NextTime {
    let local = time_zone(zone).map_or_else(
        || format!("{at:.0}"),
        |known| at.to_zoned(known).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    );
    NextTime { at: format!("{at:.3}"), local, time_zone: zone.to_owned() }
}
