//! Schedules: the times of a cron expression in its time zone.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ostler_contract::time_zone::time_zone;
use ostler_protocol::wire::state::AutomationSchedule;

const FIELDS: [&str; 5] = ["minute", "hour", "day of month", "month", "day of week"];
const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// A parsed schedule.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Parses an expression of five fields and the name of a time zone. The error describes the expected value.
    pub fn read(written: &AutomationSchedule) -> Result<Self, String> {
        let expression = written.expression.trim();
        check(expression).map_err(|why| format!("schedule.expression {why}"))?;
        let cron = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build()
            .parse(expression)
            .map_err(|why| format!("schedule.expression {expression} cannot be read: {why}"))?;
        let zone = time_zone(&written.time_zone).ok_or_else(|| {
            format!(
                "schedule.timeZone {} is not a known time zone; use a name such as Europe/Berlin or UTC",
                written.time_zone
            )
        })?;
        Ok(Self { cron, zone })
    }

    /// Returns the first time after `at`, or `None` if there is none.
    pub fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let at = at.to_zoned(self.zone.clone());
        self.cron.find_next_occurrence(&at, false).ok().map(|next| next.timestamp())
    }

    /// Returns the last time that is not after `at`.
    pub fn latest(&self, at: Timestamp) -> Option<Timestamp> {
        let at = at.to_zoned(self.zone.clone());
        self.cron.find_previous_occurrence(&at, true).ok().map(|last| last.timestamp())
    }
}

/// Returns the cron expression of a schedule in English, such as `at 09:00, on Monday`.
///
/// # Errors
/// Why the schedule is invalid.
pub fn in_words(schedule: &AutomationSchedule) -> Result<String, String> {
    let said = Schedule::read(schedule)?.cron.describe();
    let said = said.strip_suffix('.').unwrap_or(&said);
    let mut rest = said.chars();
    Ok(rest.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), rest.as_str())))
}

/// Returns the next times of a schedule after `at`.
///
/// # Errors
/// Why the schedule is invalid.
pub fn next_times(
    schedule: &AutomationSchedule,
    at: Timestamp,
    count: usize,
) -> Result<Vec<Timestamp>, String> {
    let schedule = Schedule::read(schedule)?;
    let times = std::iter::successors(schedule.after(at), |time| schedule.after(*time));
    Ok(times.take(count).collect())
}

/// Checks the protocol's grammar, which is narrower than the library's.
fn check(expression: &str) -> Result<(), String> {
    let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("must have five fields ({}), such as 0 9 * * MON-FRI", FIELDS.join(", ")));
    }
    for (at, field) in fields.into_iter().enumerate() {
        let names: &[&str] = match at {
            3 => &MONTHS,
            4 => &WEEKDAYS,
            _ => &[],
        };
        if !field.split(',').all(|item| is_item(item, names)) {
            return Err(format!("has a {} that cannot be read: {field}", FIELDS[at]));
        }
    }
    Ok(())
}

/// Whether the item is `*`, a value, a range, or a step over `*` or a range.
fn is_item(item: &str, names: &[&str]) -> bool {
    let is_value = |text: &str| {
        let number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        number || names.iter().any(|name| name.eq_ignore_ascii_case(text))
    };
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    };
    let several = match range.split_once('-') {
        Some((from, to)) if is_value(from) && is_value(to) => true,
        Some(_) => return false,
        None if range == "*" => true,
        None if is_value(range) => false,
        None => return false,
    };
    let positive = |step: &str| {
        step.bytes().all(|byte| byte.is_ascii_digit()) && step.parse::<u8>().is_ok_and(|n| n > 0)
    };
    step.is_none_or(|step| several && positive(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_said_in_words() {
        let of = |expression: &str| {
            in_words(&AutomationSchedule { expression: expression.into(), time_zone: "UTC".into() }).unwrap()
        };
        for (expression, words) in [
            ("0 9 * * MON-FRI", "at 09:00, on Monday, Tuesday, Wednesday, Thursday, and Friday"),
            // Both day fields mean that one of them is enough.
            ("0 9 1-7 * MON", "at 09:00, on day 1-7 or Monday"),
            ("*/15 * * * *", "at every 15 minutes"),
            ("0 0 1 JAN *", "at 00:00, on day 1, in January"),
            ("30 6,18 * * *", "at minute 30, of hour 6 and 18"),
            ("* * * * *", "every minute"),
        ] {
            assert_eq!(of(expression), words);
        }
    }

    fn read(expression: &str, zone: &str) -> Result<Schedule, String> {
        Schedule::read(&AutomationSchedule { expression: expression.into(), time_zone: zone.into() })
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn next(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let written = AutomationSchedule { expression: expression.into(), time_zone: zone.into() };
        let times = next_times(&written, at(from), count).expect("a schedule");
        assert_eq!(times.len(), count);
        times.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_restricted_day_fields_are_alternatives_and_a_step_is_a_restriction() {
        let days = |expression| {
            let times = next(expression, "UTC", "2026-06-01T00:00:00Z", 9);
            times.iter().map(|time| time[8..10].parse().expect("a day")).collect::<Vec<u8>>()
        };
        assert_eq!(days("0 9 1-7 * MON"), [1, 2, 3, 4, 5, 6, 7, 8, 15], "2026-06-01 is a Monday");
        assert_eq!(days("0 9 * * MON")[..3], [1, 8, 15]);
        assert_eq!(days("0 9 */10 * MON")[..5], [1, 8, 11, 15, 21]);
    }

    #[test]
    fn the_protocol_s_grammar_and_nothing_else() {
        for good in [
            "* * * * *",
            "*/15 0-23/2 1,15,20-25 jan-MAR,12 mon-fri",
            "0 0 1 1 7",
            "0 0 * * 0",
            "5 4 1-30/2 * SUN",
        ] {
            assert!(read(good, "UTC").is_ok(), "{good}: {:?}", read(good, "UTC"));
        }
        for bad in [
            "",
            "@daily",
            "* * * *",
            "* * * * * *",
            "0 0 L * *",
            "0 0 ? * *",
            "0 0 15W * *",
            "0 0 * * 5#2",
            "0 0 * * FRIL",
            "5/10 * * * *",
            "/10 * * * *",
            "*/0 * * * *",
            "60 * * * *",
            "0 24 * * *",
            "0 0 0 * *",
            "0 0 * 13 *",
            "0 0 * * 8",
            "0 0 * * MONDAY",
            "JAN 0 * * *",
            "1-2-3 * * * *",
            "1,,2 * * * *",
            "+1 * * * *",
        ] {
            assert!(read(bad, "UTC").is_err(), "{bad} was read");
        }
        let why = read("0 0 * *", "UTC").expect_err("four fields");
        assert_eq!(
            why,
            "schedule.expression must have five fields (minute, hour, day of month, month, day of week), such as 0 9 \
             * * MON-FRI"
        );
        let why = read("0 0 * * *", "Mars/Olympus").expect_err("no zone");
        assert_eq!(
            why,
            "schedule.timeZone Mars/Olympus is not a known time zone; use a name such as Europe/Berlin or UTC"
        );
    }

    #[test]
    fn two_day_fields_match_either_and_both_sundays_are_sunday() {
        assert_eq!(
            next("0 0 13 * FRI", "UTC", "2026-03-01T00:00:00Z", 4),
            ["2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z", "2026-03-20T00:00:00Z", "2026-03-27T00:00:00Z"]
        );
        assert_eq!(
            next("0 0 * * 7", "UTC", "2026-03-01T00:00:00Z", 2),
            next("0 0 * * 0", "UTC", "2026-03-01T00:00:00Z", 2)
        );
    }

    #[test]
    fn wall_clock_time_stays_where_the_clock_changes() {
        assert_eq!(
            next("0 9 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3),
            ["2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"]
        );
        // 02:30 does not exist on 29 March and happens twice on 25 October; the schedule still fires once a day.
        let spring = next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
        assert_eq!(spring.last().map(String::as_str), Some("2026-03-30T00:30:00Z"), "{spring:?}");
        assert_eq!(
            next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        // Nor is it due again for who asks between the two.
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-10-25T01:00:00Z", 1), ["2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn an_instant_is_its_own_latest_and_not_its_own_next() {
        let schedule = read("0 9 * * *", "UTC").expect("a schedule");
        let nine = at("2026-01-05T09:00:00Z");
        assert_eq!(schedule.latest(nine), Some(nine));
        assert_eq!(schedule.latest(at("2026-01-05T08:59:59Z")), Some(at("2026-01-04T09:00:00Z")));
        assert_eq!(schedule.after(nine), Some(at("2026-01-06T09:00:00Z")));
    }

    #[test]
    fn a_day_that_never_comes_is_none() {
        let started = std::time::Instant::now();
        assert_eq!(read("0 0 30 2 *", "UTC").expect("read").after(at("2026-01-01T00:00:00Z")), None);
        // The search must not step through every year to the last one.
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
    }

    proptest::proptest! {
        /// Any expression is read or rejected, and a schedule's next time is always later.
        #[test]
        fn whatever_is_written_is_read_or_refused(expression in "[0-9*/,a-zA-Z@?# -]{0,24}") {
            if let Ok(schedule) = read(&expression, "Europe/Berlin") {
                let from = at("2026-03-28T23:59:00Z");
                if let Some(next) = schedule.after(from) {
                    proptest::prop_assert!(next > from);
                }
            }
        }
    }
}
