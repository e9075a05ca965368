//! Settings of endpoint records beyond the specification. All are off by default.

use std::time::Duration;

use ostler_contract::duration::{A_DURATION, read_duration};
use ostler_contract::host::Routing;
use ostler_contract::http::header::HeaderName;
use ostler_contract::protocol::event_path;
use ostler_contract::{JsonObject, Value};

use crate::condition::Condition;
use crate::stored_bodies::BodyRetention;
use crate::verify::{Delivery, Verify};

/// The settings of a record.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Extras {
    /// The sender's signature, in place of a bearer token.
    pub verify: Option<Verify>,
    /// The format of bodies.
    pub format: Option<Format>,
    /// The value that identifies a repeated delivery.
    pub dedupe: Option<Dedupe>,
    /// The rate limit of calls.
    pub limit: Option<Limit>,
    /// The retries of failed callbacks.
    pub retry: Option<Retry>,
    /// The condition under which calls fire automations.
    pub when: Option<Condition>,
    /// How long bodies are stored, so that deliveries can be replayed.
    pub body_retention: Option<BodyRetention>,
    /// The order and the sessions of the runs of its calls.
    pub routing: Option<Routing>,
}

/// The names of the fields.
pub(crate) const FIELDS: &[&str] =
    &["verify", "format", "dedupe", "limit", "retry", "when", "keepBodies", ORDER_BY, SESSION];

const ORDER_BY: &str = "orderBy";
const SESSION: &str = "session";
/// The fields that are only valid for endpoints that fire automations.
const OF_AUTOMATIONS: &[&str] = &[ORDER_BY, SESSION];
/// The maximum length of the name of a field of a call, in bytes.
const LONGEST_FIELD: usize = 256;

/// The format of bodies, if it is not the default of the endpoint's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    CloudEvents,
}

/// The id of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dedupe {
    /// In the first of these headers that a call has.
    Headers(Vec<HeaderName>),
    /// In the body, as the sender defines.
    Body,
    /// The source and the id of a CloudEvent.
    Event,
}

/// A number of calls in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub calls: usize,
    pub per: Duration,
    /// Whether calls beyond it get 503, because their sender does not repeat a 429.
    pub is_unavailable: bool,
}

/// A number of retries; the first after a delay, each following one after twice the previous delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry {
    pub times: u32,
    pub first: Duration,
}

/// The maximum number of calls in a limit, because the time of each is stored.
const MOST_CALLS: u64 = 100_000;
/// The maximum number of retries of a callback.
const MOST_TRIES: u64 = 20;
/// The maximum delay between retries.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Default for Retry {
    fn default() -> Self {
        Self { times: 8, first: Duration::from_secs(5) }
    }
}

impl Retry {
    /// Returns the delay after a number of failures, including the first attempt.
    pub fn wait(self, failures: u32) -> Option<Duration> {
        if failures == 0 || failures > self.times {
            return None;
        }
        let doubled = 2_u32.checked_pow(failures - 1).and_then(|factor| self.first.checked_mul(factor));
        Some(doubled.map_or(LONGEST_WAIT, |wait| wait.min(LONGEST_WAIT)))
    }
}

impl Extras {
    /// Parses the settings of a record.
    ///
    /// # Errors
    /// Why the record is not an endpoint.
    pub fn read(record: &JsonObject) -> Result<Self, String> {
        let field = |name: &str| record.get(name).filter(|value| !value.is_null());
        let verify = field("verify").map(Verify::read).transpose()?;
        let format = match field("format").map(Value::as_str) {
            None => None,
            Some(Some("cloudevents")) => Some(Format::CloudEvents),
            Some(_) => return Err("format must be cloudevents".to_owned()),
        };
        let dedupe = match field("dedupe") {
            Some(value) => dedupe(value, verify.as_ref(), format)?,
            None => None,
        };
        Ok(Self {
            verify,
            format,
            dedupe,
            limit: field("limit").map(limit).transpose()?,
            retry: field("retry").and_then(|value| retry(value).transpose()).transpose()?,
            when: field("when").map(Condition::read).transpose()?,
            body_retention: field("keepBodies").map(BodyRetention::read).transpose()?,
            routing: routing(field(ORDER_BY), field(SESSION))?,
        })
    }
}

fn dedupe(value: &Value, verify: Option<&Verify>, format: Option<Format>) -> Result<Option<Dedupe>, String> {
    let header = |name: &str| Some(Dedupe::Headers(vec![HeaderName::try_from(name).ok()?]));
    let first_of = |names: &[&str]| {
        let names: Option<Vec<_>> = names.iter().map(|name| HeaderName::try_from(*name).ok()).collect();
        names.map(Dedupe::Headers)
    };
    let of_sender = || match verify?.sender.delivery {
        Delivery::Header(name) => header(name),
        Delivery::FirstOf(names) => first_of(names),
        Delivery::Body(_) => Some(Dedupe::Body),
        Delivery::Unknown => None,
    };
    let (found, wrong) = match value {
        Value::Bool(false) => return Ok(None),
        Value::Bool(true) if format == Some(Format::CloudEvents) => (Some(Dedupe::Event), ""),
        Value::Bool(true) => {
            (of_sender(), "dedupe must be the name of a header: no verify names the place of the sender's id")
        }
        value => (value.as_str().and_then(header), "dedupe must be the name of a header, or true"),
    };
    found.map(Some).ok_or_else(|| wrong.to_owned())
}

/// Returns a field of a record that is only valid for endpoints that fire automations.
pub(crate) fn of_automations(record: &JsonObject) -> Option<&'static str> {
    let is_set = |field: &&&str| record.get(**field).is_some_and(|value| !value.is_null());
    OF_AUTOMATIONS.iter().find(is_set).copied()
}

fn routing(order_by: Option<&Value>, session: Option<&Value>) -> Result<Option<Routing>, String> {
    let field = |value: &Value| {
        let name = value.as_str().filter(|name| {
            !name.is_empty()
                && name.len() <= LONGEST_FIELD
                && name.trim() == *name
                && !name.contains(['{', '}'])
                && event_path::check(name).is_ok()
        });
        name.map(str::to_owned)
    };
    let ordered = order_by.map(|value| {
        field(value).ok_or("orderBy must be the name of a field of the call, such as repository.full_name")
    });
    let shared = session.map(|value| {
        let fields = value.as_object().filter(|fields| fields.len() == 1);
        let by = fields.and_then(|fields| field(fields.get("by")?));
        by.ok_or("session must be { by: <field> }: the name of a field of the call, such as data.thread.id")
    });
    match (ordered.transpose()?, shared.transpose()?) {
        (Some(order), Some(session)) if order != session => Err(format!(
            "orderBy must be {session} too, or be left out: the calls that share a session run in that order"
        )),
        (_, Some(by)) => Ok(Some(Routing { by, session: true })),
        (Some(by), None) => Ok(Some(Routing { by, session: false })),
        (None, None) => Ok(None),
    }
}

fn limit(value: &Value) -> Result<Limit, String> {
    let wrong = || {
        format!(
            "limit must be {{ calls, per }}: a number from 1 to {MOST_CALLS} and {A_DURATION}; optionally status: 429 or 503"
        )
    };
    let is_field = |key: &String| ["calls", "per", "status"].contains(&key.as_str());
    let fields = value.as_object().filter(|fields| fields.keys().all(is_field));
    let fields = fields.ok_or_else(wrong)?;
    let calls = fields.get("calls").and_then(Value::as_u64).filter(|calls| (1..=MOST_CALLS).contains(calls));
    let per = fields.get("per").and_then(Value::as_str).and_then(duration);
    let is_unavailable = match fields.get("status").map(Value::as_u64) {
        None | Some(Some(429)) => Some(false),
        Some(Some(503)) => Some(true),
        Some(_) => None,
    };
    match (calls.and_then(|calls| usize::try_from(calls).ok()), per, is_unavailable) {
        (Some(calls), Some(per), Some(is_unavailable)) => Ok(Limit { calls, per, is_unavailable }),
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

/// Parses `30s`, `5m`, `2h`, `1d`; or `second`, `minute`, `hour`, `day`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
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
        let limit = Limit { calls: 3, per: Duration::from_secs(60), is_unavailable: false };
        assert_eq!(asked.limit, Some(limit));
        let of = |status: u16| read(json!({ "limit": { "calls": 3, "per": "1m", "status": status } }));
        assert_eq!(of(429).unwrap().limit, Some(limit));
        assert_eq!(of(503).unwrap().limit, Some(Limit { is_unavailable: true, ..limit }));
        let by_header = Some(Dedupe::Headers(vec![HeaderName::from_static("x-github-delivery")]));
        assert_eq!(asked.dedupe, by_header);
        let of_sender = |verify: &str| read(json!({ "verify": verify, "dedupe": true })).unwrap().dedupe;
        assert_eq!(of_sender("github"), by_header, "the sender's own");
        assert_eq!(of_sender("stripe"), Some(Dedupe::Body));
        assert_eq!(read(json!({ "dedupe": false })).unwrap().dedupe, None);
        let events = read(json!({ "format": "cloudevents", "dedupe": true, "verify": "github" })).unwrap();
        assert_eq!((events.format, events.dedupe), (Some(Format::CloudEvents), Some(Dedupe::Event)));
        assert_eq!(asked.retry, Some(Retry { times: 8, first: Duration::from_secs(5) }));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (field, value) in [
            ("verify", json!("nobody")),
            ("verify", json!(true)),
            ("format", json!("xml")),
            ("format", json!(true)),
            ("dedupe", json!("not a header")),
            ("dedupe", json!(1)),
            ("dedupe", json!(true)),
            ("limit", json!(5)),
            ("limit", json!({ "calls": 0, "per": "1m" })),
            ("limit", json!({ "calls": 1.5, "per": "1m" })),
            ("limit", json!({ "calls": 1, "per": "soon" })),
            ("limit", json!({ "calls": 1, "per": "0s" })),
            ("limit", json!({ "calls": 1, "per": "1m", "burst": 2 })),
            ("limit", json!({ "calls": 1, "per": "1m", "status": 500 })),
            ("limit", json!({ "calls": 1, "per": "1m", "status": "503" })),
            ("retry", json!("yes")),
            ("retry", json!({ "times": 21 })),
            ("retry", json!({ "times": 3, "last": "1m" })),
            ("retry", json!({ "first": "-1s" })),
            ("orderBy", json!(true)),
            ("orderBy", json!("")),
            ("orderBy", json!(" ref")),
            ("orderBy", json!("a..b")),
            ("orderBy", json!("a[\"x.y\"")),
            ("orderBy", json!("a[10000]")),
            ("orderBy", json!("{{event.ref}}")),
            ("orderBy", json!("x".repeat(LONGEST_FIELD + 1))),
            ("session", json!("ref")),
            ("session", json!({})),
            ("session", json!({ "by": 1 })),
            ("session", json!({ "by": "a[\"x\"]y" })),
            ("session", json!({ "by": "ref", "title": "x" })),
        ] {
            let why = Extras::read(&JsonObject::from_iter([(field.to_owned(), value.clone())])).unwrap_err();
            assert!(why.starts_with(&format!("{field} must be ")), "{value}: {why}");
        }
    }

    #[test]
    fn a_retry_and_a_period_are_written_in_each_form() {
        let of = |value: Value| read(json!({ "retry": value })).unwrap().retry.unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(of(json!({ "times": 3, "first": "2m" })), Retry { times: 3, first: seconds(120) });
        assert_eq!(of(json!({ "times": 20 })), Retry { times: 20, first: seconds(5) });
        assert_eq!(of(json!({ "first": "hour" })), Retry { times: 8, first: seconds(3600) });
        for (text, expected) in [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400), ("30s", 30)]
        {
            assert_eq!(duration(text), Some(seconds(expected)), "{text}");
        }
        assert_eq!((duration("365d"), duration("366d")), (Some(seconds(31_536_000)), None));
        let set = |record: Value| of_automations(record.as_object().unwrap());
        assert_eq!(set(json!({ "orderBy": null, "session": {} })), Some("session"));
        assert_eq!(set(json!({ "orderBy": "ref" })), Some("orderBy"));
        assert_eq!(set(json!({ "orderBy": null, "retry": true })), None);
    }

    #[test]
    fn an_order_and_a_session_are_by_one_field() {
        let by = |session| Some(Routing { by: "issue.id".to_owned(), session });
        assert_eq!(read(json!({ "orderBy": "issue.id", "session": null })).unwrap().routing, by(false));
        assert_eq!(read(json!({ "session": { "by": "issue.id" } })).unwrap().routing, by(true));
        for path in ["commits.0.id", "commits[0].id", "labels[\"app.kubernetes.io/name\"]", "payload[name]"] {
            let of = Routing { by: path.to_owned(), session: false };
            assert_eq!(read(json!({ "orderBy": path })).unwrap().routing, Some(of));
        }
        let both = read(json!({ "orderBy": "issue.id", "session": { "by": "issue.id" } }));
        assert_eq!(both.unwrap().routing, by(true));
        assert_eq!(
            read(json!({ "orderBy": "ref", "session": { "by": "issue.id" } })).unwrap_err(),
            "orderBy must be issue.id too, or be left out: the calls that share a session run in that order"
        );
    }

    #[test]
    fn tries_back_off_and_end() {
        let retry = Retry { times: 3, first: Duration::from_secs(1000) };
        let waits: Vec<_> = (0..6).map(|failures| retry.wait(failures).map(|wait| wait.as_secs())).collect();
        assert_eq!(waits, [None, Some(1000), Some(2000), Some(3600), None, None]);
        assert_eq!(Retry { times: 20, first: LONGEST_WAIT }.wait(20), Some(LONGEST_WAIT));
    }
}
