//! Durations as text: `30s`, `5m`, `2h`.

use std::time::Duration;

/// The description of a duration in error messages.
pub const A_DURATION: &str = "a duration such as 30s, 5m or 2h";

/// The units, in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 3600 * 1000), ("d", 86_400 * 1000)];

/// Parses a whole number and one of `units`, which are some of `ms`, `s`, `m`, `h` and `d`; anything else is `None`.
pub fn read_duration(text: &str, units: &[&str]) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, milliseconds) = UNITS.into_iter().find(|(known, _)| *known == unit && units.contains(known))?;
    number.parse::<u64>().ok()?.checked_mul(milliseconds).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit_taken_there() {
        let all = ["ms", "s", "m", "h", "d"];
        for (text, milliseconds) in [
            ("250ms", 250),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(read_duration(text, &all), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in
            ["", "5", "s", "-1s", "+1s", "1.5s", " 5s", "5 s", "5S", "5w", "٥s", "99999999999999999999s"]
        {
            assert_eq!(read_duration(text, &all), None, "{text}");
        }
        assert_eq!(read_duration(&format!("{}d", u64::MAX), &all), None);
        assert_eq!(read_duration("1d", &["s", "m", "h"]), None);
    }
}
