//! What senders do with a call that failed: how long they wait for an answer, when they repeat the call, and what they do with
//! an endpoint that fails often.

/// What a sender does with a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retries {
    /// How long it waits for an answer, in seconds, if it says so.
    pub waits: Option<u64>,
    /// When it repeats the call.
    pub pauses: Pauses,
    /// What it does with an endpoint that fails often, as the end of "the sender …"; empty if it says nothing of that.
    pub failures: &'static str,
}

/// When a sender repeats a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pauses {
    /// It does not say.
    Unknown,
    /// Never by itself.
    Never,
    /// After each of these pauses, in seconds.
    After(&'static [u64]),
    /// So often within these seconds, and it does not say when; 0 if it does not say how often.
    Within(u64, u64),
}

impl Retries {
    /// A sender that says nothing of it.
    pub const UNKNOWN: Self = Self { waits: None, pauses: Pauses::Unknown, failures: "" };

    /// Returns the time from a delivery's first call to its last one, in seconds. A day, if the sender does not say.
    pub fn span(&self) -> u64 {
        match self.pauses {
            Pauses::Unknown => DAY,
            Pauses::Never => 0,
            Pauses::After(pauses) => pauses.iter().sum(),
            Pauses::Within(_, seconds) => seconds,
        }
    }

    /// Returns in one sentence what the sender of this name does.
    pub fn said(&self, name: &str) -> String {
        let waits =
            self.waits.map_or_else(String::new, |_| format!("waits {} for an answer and ", self.wait()));
        let repeats = match self.pauses {
            Pauses::Unknown => "does not state whether it repeats a failed call".to_owned(),
            Pauses::Never => "never repeats a failed call".to_owned(),
            Pauses::After(_) | Pauses::Within(..) => format!("repeats a failed call {}", self.repeats()),
        };
        let failures = if self.failures.is_empty() { "" } else { "; if that happens often, it " };
        format!("{name} {waits}{repeats}{failures}{}", self.failures)
    }

    /// Returns when the sender repeats a call, as the end of "it repeats a failed call …".
    pub fn repeats(&self) -> String {
        match self.pauses {
            Pauses::Unknown => "not stated".to_owned(),
            Pauses::Never => "never".to_owned(),
            Pauses::After(pauses) => {
                let times: Vec<String> = pauses.iter().map(|pause| time(*pause)).collect();
                format!("after {}", times.join(", "))
            }
            Pauses::Within(0, seconds) => format!("for {}", time(seconds)),
            Pauses::Within(times, seconds) => format!("{times} times in {}", time(seconds)),
        }
    }

    /// Returns how long the sender waits for an answer.
    pub fn wait(&self) -> String {
        self.waits.map_or_else(|| "not stated".to_owned(), time)
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Returns a time in its largest whole unit.
fn time(seconds: u64) -> String {
    match seconds {
        0 => "0 s".to_owned(),
        days if days.is_multiple_of(DAY) => format!("{} d", days / DAY),
        hours if hours.is_multiple_of(HOUR) => format!("{} h", hours / HOUR),
        minutes if minutes.is_multiple_of(MINUTE) => format!("{} min", minutes / MINUTE),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sender_does_is_said_in_words() {
        let of = |pauses| Retries { waits: Some(90), pauses, failures: "" };
        assert_eq!(of(Pauses::After(&[60, HOUR, 6 * HOUR])).repeats(), "after 1 min, 1 h, 6 h");
        assert_eq!(of(Pauses::Within(3, 36 * HOUR)).repeats(), "3 times in 36 h");
        assert_eq!(of(Pauses::Never).repeats(), "never");
        assert_eq!(
            (of(Pauses::Unknown).repeats(), of(Pauses::Unknown).wait()),
            ("not stated".into(), "90 s".into())
        );
        assert_eq!(of(Pauses::After(&[60, HOUR])).span(), 3660);
        let said = Retries { failures: "disables the webhook", ..of(Pauses::Within(0, DAY)) }.said("acme");
        assert_eq!(
            said,
            "acme waits 90 s for an answer and repeats a failed call for 1 d; if that happens often, it disables the webhook"
        );
        assert_eq!(Retries::UNKNOWN.said("acme"), "acme does not state whether it repeats a failed call");
    }
}
