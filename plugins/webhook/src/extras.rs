//! What an endpoint record may ask for beyond the specification. All of it is off until a record asks.

use std::time::Duration;

use ostler_contract::duration::{A_DURATION, read_duration};
use ostler_contract::http::header::HeaderName;
use ostler_contract::{JsonObject, Value};

use crate::verify::Scheme;

/// What a record asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Extras {
    /// The sender's signature stands in for the bearer.
    pub verify: Option<Scheme>,
    /// The header whose value is the same when a delivery is sent again.
    pub dedupe: Option<HeaderName>,
    /// How many calls are taken.
    pub limit: Option<Limit>,
    /// How often a callback that failed is tried again.
    pub retry: Option<Retry>,
}

/// The fields, as they are written.
pub(crate) const FIELDS: &[&str] = &["verify", "dedupe", "limit", "retry"];

/// So many calls in so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub calls: usize,
    pub per: Duration,
}

/// So many more tries, the first so long after the failure and each next one twice as long after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry {
    pub times: u32,
    pub first: Duration,
}

/// The most calls a limit may count: each one is remembered.
const MOST_CALLS: u64 = 100_000;
/// The most tries after a callback failed.
const MOST_TRIES: u64 = 20;
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Default for Retry {
    fn default() -> Self {
        Self { times: 8, first: Duration::from_secs(5) }
    }
}

impl Retry {
    /// How long to wait after so many failures, the first try's included.
    pub fn wait(self, failures: u32) -> Option<Duration> {
        if failures == 0 || failures > self.times {
            return None;
        }
        let doubled = 2_u32.checked_pow(failures - 1).and_then(|factor| self.first.checked_mul(factor));
        Some(doubled.map_or(LONGEST_WAIT, |wait| wait.min(LONGEST_WAIT)))
    }
}

impl Extras {
    /// Reads what a record asks for.
    ///
    /// # Errors
    /// What makes the record no endpoint.
    pub fn read(record: &JsonObject) -> Result<Self, String> {
        let field = |name: &str| record.get(name).filter(|value| !value.is_null());
        let verify = field("verify")
            .map(|value| {
                value
                    .as_str()
                    .and_then(Scheme::parse)
                    .ok_or("verify must be github, stripe, slack or standard")
            })
            .transpose()?;
        let dedupe = field("dedupe")
            .map(|value| {
                let name = value.as_str().and_then(|name| HeaderName::try_from(name).ok());
                name.ok_or("dedupe must be the name of a header")
            })
            .transpose()?;
        Ok(Self {
            verify,
            dedupe,
            limit: field("limit").map(limit).transpose()?,
            retry: field("retry").and_then(|value| retry(value).transpose()).transpose()?,
        })
    }
}

fn limit(value: &Value) -> Result<Limit, String> {
    let wrong =
        || format!("limit must be {{ calls, per }}: a number from 1 to {MOST_CALLS} and {A_DURATION}");
    let fields = value.as_object().filter(|fields| fields.keys().all(|key| key == "calls" || key == "per"));
    let fields = fields.ok_or_else(wrong)?;
    let calls = fields.get("calls").and_then(Value::as_u64).filter(|calls| (1..=MOST_CALLS).contains(calls));
    let per = fields.get("per").and_then(Value::as_str).and_then(duration);
    match (calls.and_then(|calls| usize::try_from(calls).ok()), per) {
        (Some(calls), Some(per)) => Ok(Limit { calls, per }),
        _ => Err(wrong()),
    }
}

fn retry(value: &Value) -> Result<Option<Retry>, String> {
    let wrong = || {
        format!("retry must be true, or {{ times, first }}: a number from 1 to {MOST_TRIES} and {A_DURATION}")
    };
    let fields = match value {
        Value::Bool(on) => return Ok(on.then(Retry::default)),
        Value::Object(fields) if fields.keys().all(|key| key == "times" || key == "first") => fields,
        _ => return Err(wrong()),
    };
    let mut retry = Retry::default();
    if let Some(times) = fields.get("times") {
        let times = times.as_u64().filter(|times| (1..=MOST_TRIES).contains(times));
        retry.times = times.and_then(|times| u32::try_from(times).ok()).ok_or_else(wrong)?;
    }
    if let Some(first) = fields.get("first") {
        retry.first = first.as_str().and_then(duration).ok_or_else(wrong)?;
    }
    Ok(Some(retry))
}

/// `30s`, `5m`, `2h`, `1d`; or `second`, `minute`, `hour`, `day`.
fn duration(text: &str) -> Option<Duration> {
    let duration = match text {
        "second" => Duration::from_secs(1),
        "minute" => Duration::from_secs(60),
        "hour" => Duration::from_secs(3600),
        "day" => Duration::from_secs(86_400),
        _ => read_duration(text, &["s", "m", "h", "d"])?,
    };
    (1..=31_536_000).contains(&duration.as_secs()).then_some(duration)
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn read(record: Value) -> Result<Extras, String> {
        Extras::read(record.as_object().unwrap())
    }

    #[test]
    fn everything_is_off_until_a_record_asks() {
        assert_eq!(read(json!({})).unwrap(), Extras::default());
        assert_eq!(read(json!({ "retry": false, "limit": null })).unwrap(), Extras::default());
        let asked = read(json!({
            "verify": "github", "dedupe": "X-GitHub-Delivery", "limit": { "calls": 3, "per": "minute" }, "retry": true
        }))
        .unwrap();
        assert_eq!(asked.limit, Some(Limit { calls: 3, per: Duration::from_secs(60) }));
        assert_eq!(asked.dedupe.unwrap(), "x-github-delivery");
        assert_eq!(asked.retry, Some(Retry { times: 8, first: Duration::from_secs(5) }));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (field, value) in [
            ("verify", json!("gitlab")),
            ("verify", json!(true)),
            ("dedupe", json!("not a header")),
            ("dedupe", json!(1)),
            ("limit", json!(5)),
            ("limit", json!({ "calls": 0, "per": "1m" })),
            ("limit", json!({ "calls": 1.5, "per": "1m" })),
            ("limit", json!({ "calls": 1, "per": "soon" })),
            ("limit", json!({ "calls": 1, "per": "0s" })),
            ("limit", json!({ "calls": 1, "per": "1m", "burst": 2 })),
            ("retry", json!("yes")),
            ("retry", json!({ "times": 21 })),
            ("retry", json!({ "first": "-1s" })),
        ] {
            let why = Extras::read(&JsonObject::from_iter([(field.to_owned(), value.clone())])).unwrap_err();
            assert!(why.starts_with(&format!("{field} must be ")), "{value}: {why}");
        }
    }

    #[test]
    fn tries_back_off_and_end() {
        let retry = Retry { times: 3, first: Duration::from_secs(1000) };
        let waits: Vec<_> = (0..6).map(|failures| retry.wait(failures).map(|wait| wait.as_secs())).collect();
        assert_eq!(waits, [None, Some(1000), Some(2000), Some(3600), None, None]);
        assert_eq!(Retry { times: 20, first: LONGEST_WAIT }.wait(20), Some(LONGEST_WAIT));
    }
}
