//! Days, weeks and months in a time zone, and requested ranges.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};
use ostler_protocol::RpcError;

/// A period from an instant (inclusive) to another (exclusive).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    pub from: Timestamp,
    pub until: Timestamp,
}

/// A current period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    Day,
    Week,
    Month,
}

impl Running {
    pub const ALL: [(Self, &str); 3] = [(Self::Day, "day"), (Self::Week, "week"), (Self::Month, "month")];

    /// Returns the period from its start to now; a week starts on Monday.
    pub fn period(self, now: &Zoned) -> Period {
        let today = now.date();
        let start = match self {
            Self::Day => today,
            Self::Week => {
                let since_monday = i64::from(today.weekday().to_monday_zero_offset());
                today.saturating_sub(since_monday.days())
            }
            Self::Month => today.first_of_month(),
        };
        Period { from: midnight(start, now.time_zone()), until: after(now) }
    }
}

/// Returns the instant at which a day starts.
fn midnight(day: Date, zone: &TimeZone) -> Timestamp {
    day.to_zoned(zone.clone()).map_or(Timestamp::MIN, |start| start.timestamp())
}

/// The end of a current period, which includes entries of this millisecond.
fn after(now: &Zoned) -> Timestamp {
    now.timestamp().saturating_add(1.millisecond()).unwrap_or(Timestamp::MAX)
}

/// Parses a range of days, of which the last is included, or of instants. Default: from the first of this month to now.
pub(super) fn range(from: Option<&str>, until: Option<&str>, now: &Zoned) -> Result<Period, RpcError> {
    let zone = now.time_zone();
    let from = match from {
        None => Running::Month.period(now).from,
        Some(text) => read("from", text, |day| midnight(day, zone))?,
    };
    let until = match until {
        None => after(now),
        Some(text) => read("until", text, |day| midnight(day.saturating_add(1.day()), zone))?,
    };
    Ok(Period { from, until })
}

fn read(name: &str, text: &str, of_day: impl Fn(Date) -> Timestamp) -> Result<Timestamp, RpcError> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    let is_day = text.len() == 10;
    text.parse::<Date>().ok().filter(|_| is_day).map(of_day).ok_or_else(|| {
        RpcError::invalid_params(format!(
            "{name} must be a date or an ISO 8601 timestamp, such as 2026-01-31 or 2026-01-31T12:00:00Z, not {text}"
        ))
    })
}

impl Period {
    /// Splits the period into days, so that no more than the entries of a day are in memory.
    pub fn days(self, zone: &TimeZone) -> impl Iterator<Item = Self> + use<> {
        let zone = zone.clone();
        let mut at = self.from;
        std::iter::from_fn(move || {
            if at >= self.until {
                return None;
            }
            let day = at.to_zoned(zone.clone()).date();
            let next = midnight(day.saturating_add(1.day()), &zone);
            // The range of the calendar ends here.
            let end = if next > at { next.min(self.until) } else { self.until };
            let period = Self { from: at, until: end };
            at = end;
            Some(period)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        // A Thursday, at half past one in the morning.
        "2026-04-02T01:30:00+02:00[Europe/Berlin]".parse().expect("an instant")
    }

    fn instant(text: &str) -> Timestamp {
        text.parse().expect("an instant")
    }

    #[test]
    fn days_weeks_and_months_start_where_the_zone_says() {
        let starts: Vec<_> = Running::ALL.map(|(running, _)| running.period(&now()).from).into();
        assert_eq!(
            starts,
            [
                instant("2026-04-01T22:00:00Z"),
                instant("2026-03-29T22:00:00Z"),
                instant("2026-03-31T22:00:00Z")
            ]
        );
    }

    #[test]
    fn a_range_is_of_whole_days_or_of_instants() {
        let read = |from, until| range(from, until, &now());
        let month = read(None, None).expect("a range");
        assert_eq!(month, Running::Month.period(&now()));
        let days = read(Some("2026-03-28"), Some("2026-03-29")).expect("a range");
        assert_eq!(
            (days.from, days.until),
            (instant("2026-03-27T23:00:00Z"), instant("2026-03-29T22:00:00Z"))
        );
        let instants =
            read(Some("2026-03-28T12:00:00Z"), Some("2026-03-28T13:00:00+01:00")).expect("a range");
        assert_eq!(
            (instants.from, instants.until),
            (instant("2026-03-28T12:00:00Z"), instant("2026-03-28T12:00:00Z"))
        );
        for wrong in ["yesterday", "2026-13-01", "2026-3-1", "", "2026-03-28T12:00:00"] {
            let refused = read(Some(wrong), None).expect_err("refused");
            assert_eq!(refused.code, ostler_protocol::error::code::INVALID_PARAMS, "{wrong}");
            assert!(refused.message.contains("from"), "{}", refused.message);
        }
    }

    #[test]
    fn a_range_is_its_days() {
        let days = range(Some("2026-03-28T12:00:00Z"), Some("2026-03-30"), &now()).expect("a range");
        let days: Vec<_> = days.days(now().time_zone()).collect();
        assert_eq!(days.len(), 3);
        assert_eq!(days[0].from, instant("2026-03-28T12:00:00Z"));
        assert_eq!(days[1], Period { from: days[0].until, until: days[2].from });
        // The day the clocks went forward was an hour short.
        assert_eq!(days[1].until.duration_since(days[1].from).as_hours(), 23);
        assert_eq!(
            range(Some("2026-04-02"), Some("2026-04-01"), &now())
                .expect("a range")
                .days(now().time_zone())
                .count(),
            0
        );
    }

    proptest::proptest! {
        #[test]
        fn no_range_panics_or_goes_on_without_end(from in ".{0,30}", until in "[-0-9T:Z]{0,24}") {
            if let Ok(period) = range(Some(&from), Some(&until), &now()) {
                period.days(now().time_zone()).take(3).for_each(drop);
            }
        }
    }
}
