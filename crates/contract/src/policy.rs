//! Validation of policies, which every entry point uses, and `checkPolicy` of `@ostler/sdk`. Spec: *Policies, vault,
//! usage stores*.

use std::fmt;

use ostler_protocol::{JsonObject, RpcError, Value, json};

use crate::Thrown;

const KINDS: &[&str] = &["model", "agent", "computer"];
const EFFECTS: &[&str] = &["allow", "deny"];
const PERIODS: &[&str] = &["day", "week", "month", "total"];
const POOLS: &[&str] = &["shared", "each"];
const FIELDS: &[&str] = &[
    "id",
    "scope",
    "kind",
    "effect",
    "match",
    "limits",
    "pool",
    "cap",
    "from",
    "until",
    "title",
    "description",
];

/// The kinds that may name a type in `match`.
fn kinds_of(r#type: &str) -> &'static [&'static str] {
    match r#type {
        "model" => &["model", "agent"],
        "proxy" => &["model"],
        "agent" => &["agent"],
        "computer" => &["agent", "computer"],
        _ => &[],
    }
}

fn measures_of(kind: &str) -> &'static [&'static str] {
    match kind {
        "model" => &["usd", "tokens", "calls"],
        "agent" => &["usd", "tokens", "turns", "hours"],
        _ => &["hours", "sessions"],
    }
}

fn need(holds: bool, field: &str, what: &str) -> Result<(), RpcError> {
    match holds {
        true => Ok(()),
        false => {
            Err(RpcError::invalid_params(format!("{field} must be {what}"))
                .with_data(json!({ "field": field })))
        }
    }
}

fn one_of(names: &[&str]) -> String {
    format!("one of {}", names.join(", "))
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn is_one_of(value: Option<&Value>, names: &[&str]) -> bool {
    value.and_then(Value::as_str).is_some_and(|value| names.contains(&value))
}

fn is_scope(scope: &str) -> bool {
    let word = |word: &str| !word.is_empty() && !word.contains(|c: char| c == ':' || c.is_whitespace());
    match scope.split_once(':') {
        None => scope == "all",
        Some(("user" | "team", id)) => word(id),
        Some(("project", rest)) => {
            rest.split_once(':').is_some_and(|(team, project)| word(team) && word(project))
        }
        Some(_) => false,
    }
}

/// Returns the instant of a moment as text that sorts by time. A date without a time covers its whole day.
fn instant(value: &Value, field: &str, end_of_day: bool) -> Result<String, RpcError> {
    let words = "a timestamp or a date, as 2026-01-31";
    let text = value.as_str().unwrap_or_default();
    let at = match text.parse::<jiff::civil::Date>() {
        Ok(_) if text.len() == "2026-01-31".len() => {
            let time = if end_of_day { "23:59:59.999" } else { "00:00:00.000" };
            format!("{text}T{time}Z").parse::<jiff::Timestamp>().ok()
        }
        _ => text.parse::<jiff::Timestamp>().ok(),
    };
    need(at.is_some(), field, words)?;
    Ok(at.map(|at| format!("{at:.3}")).unwrap_or_default())
}

fn check_limit(limit: &Value, at: &str, kind: &str) -> Result<(), RpcError> {
    need(limit.is_object(), at, "an object")?;
    let amount = limit.get("amount").and_then(Value::as_f64);
    need(amount.is_some_and(|amount| amount >= 0.0), &format!("{at}.amount"), "a number of 0 or more")?;
    for (field, names) in [("measure", measures_of(kind)), ("period", PERIODS), ("pool", POOLS)] {
        need(is_one_of(limit.get(field), names), &format!("{at}.{field}"), &one_of(names))?;
    }
    Ok(())
}

/// Parses a body as a policy.
///
/// # Errors
/// `-32602` with the invalid field.
///
/// ```
/// use ostler_contract::{json, policy::check_policy};
///
/// let row = json!({ "id": "no-bash", "scope": "all", "kind": "agent", "effect": "deny", "until": "2026-01-31" });
/// let row = check_policy(&row).unwrap();
/// assert_eq!(row["until"], "2026-01-31T23:59:59.999Z");
/// ```
pub fn check_policy(body: &Value) -> Result<JsonObject, RpcError> {
    let Some(fields) = body.as_object() else {
        need(false, "the policy", "an object")?;
        return Ok(JsonObject::new());
    };
    need(fields.get("id").is_some_and(is_text), "id", "a non-empty string")?;
    let scope = fields.get("scope").and_then(Value::as_str);
    need(scope.is_some_and(is_scope), "scope", "all, user:<id>, team:<id> or project:<team>:<project>")?;
    need(is_one_of(fields.get("kind"), KINDS), "kind", &one_of(KINDS))?;
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    need(is_one_of(fields.get("effect"), EFFECTS), "effect", &one_of(EFFECTS))?;
    for field in fields.keys() {
        need(FIELDS.contains(&field.as_str()), field, "left out: a policy has no such field")?;
    }
    if let Some(matched) = fields.get("match") {
        need(matched.is_object(), "match", "an object")?;
        for (r#type, values) in matched.as_object().into_iter().flatten() {
            let field = format!("match.{type}");
            need(kinds_of(r#type).contains(&kind), &field, &format!("left out of a policy of kind {kind}"))?;
            let texts = values.as_array().is_some_and(|values| values.iter().all(is_text));
            need(texts, &field, "a list of non-empty strings")?;
        }
    }
    if let Some(limits) = fields.get("limits") {
        need(limits.is_array(), "limits", "a list")?;
        for (at, limit) in limits.as_array().into_iter().flatten().enumerate() {
            check_limit(limit, &format!("limits[{at}]"), kind)?;
        }
    }
    let mut row = fields.clone();
    for (field, end_of_day) in [("from", false), ("until", true)] {
        if let Some(at) = fields.get(field) {
            row.insert(field.to_owned(), instant(at, field, end_of_day)?.into());
        }
    }
    if let (Some(from), Some(until)) =
        (row.get("from").and_then(Value::as_str), row.get("until").and_then(Value::as_str))
    {
        need(from <= until, "from", "before until")?;
    }
    Ok(row)
}

/// Parses a file: a JSON array of policies.
///
/// # Errors
/// The message names the file and the invalid policy.
pub fn read_policies(file: impl fmt::Display, text: &[u8]) -> Result<Vec<JsonObject>, Thrown> {
    let wrong = |why: fmt::Arguments<'_>| Thrown::new(format_args!("{file}{why}"));
    let rows: Value =
        serde_json::from_slice(text).map_err(|error| wrong(format_args!(" is not JSON: {error}")))?;
    let Value::Array(rows) = rows else {
        return Err(wrong(format_args!(" must be a JSON array of policies")));
    };
    let checked = rows.iter().enumerate().map(|(at, row)| {
        check_policy(row).map_err(|error| wrong(format_args!(": [{at}]: {}", error.message)))
    });
    checked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_holds_no_rows_says_why() {
        let why = |text: &str| read_policies("p.json", text.as_bytes()).unwrap_err().message;
        assert!(why("[").starts_with("p.json is not JSON: "), "{}", why("["));
        assert_eq!(why("{}"), "p.json must be a JSON array of policies");
        assert_eq!(why("[{}]"), "p.json: [0]: id must be a non-empty string");
        assert_eq!(read_policies("p.json", b"[]").unwrap(), Vec::<JsonObject>::new());
    }

    fn is_taken(kind: &str, field: &str, value: Value) -> bool {
        let mut body = json!({ "id": "a", "scope": "all", "kind": kind, "effect": "allow" });
        body[field] = value;
        check_policy(&body).is_ok()
    }

    /// The kinds whose policies take a value.
    fn kinds_that_take(field: &str, value: &Value) -> Vec<&'static str> {
        KINDS.iter().copied().filter(|kind| is_taken(kind, field, value.clone())).collect()
    }

    #[test]
    fn each_kind_has_its_own_matches_and_measures() {
        for (matched, kinds) in [
            ("model", &["model", "agent"][..]),
            ("proxy", &["model"]),
            ("agent", &["agent"]),
            ("computer", &["agent", "computer"]),
            ("tool", &[]),
        ] {
            assert_eq!(kinds_that_take("match", &json!({ (matched): ["x"] })), kinds, "{matched}");
        }
        for (measure, kinds) in [
            ("usd", &["model", "agent"][..]),
            ("tokens", &["model", "agent"]),
            ("calls", &["model"]),
            ("turns", &["agent"]),
            ("hours", &["agent", "computer"]),
            ("sessions", &["computer"]),
        ] {
            let limit = json!([{ "amount": 0, "measure": measure, "period": "total", "pool": "shared" }]);
            assert_eq!(kinds_that_take("limits", &limit), kinds, "{measure}");
        }
    }

    #[test]
    fn a_scope_names_everybody_a_user_a_team_or_a_project() {
        for scope in ["all", "user:a", "team:b", "project:b:c"] {
            assert!(is_taken("agent", "scope", json!(scope)), "{scope}");
        }
        for scope in [
            "",
            "everybody",
            "user",
            "user:",
            "user:a b",
            "user:a:b",
            "team:a\t",
            "project:b",
            "project::c",
            "project:b:",
            "project:b:c:d",
            "group:a",
        ] {
            assert!(!is_taken("agent", "scope", json!(scope)), "{scope}");
        }
    }

    #[test]
    fn a_date_is_written_in_full() {
        let until = |text: &str| {
            let body = json!({ "id": "a", "scope": "all", "kind": "agent", "effect": "deny", "until": text });
            check_policy(&body).map(|row| row["until"].clone()).map_err(|error| error.message)
        };
        assert_eq!(until("2026-01-31").unwrap(), "2026-01-31T23:59:59.999Z");
        assert_eq!(until("2026-01-31T08:00:00+02:00").unwrap(), "2026-01-31T06:00:00.000Z");
        // They are dates elsewhere, and would be of another length in what is compared as text.
        for text in ["20260131", "+002026-01-31", "2026-1-31"] {
            assert!(until(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_body_that_is_no_row_names_its_field() {
        let good = json!({ "id": "a", "scope": "all", "kind": "agent", "effect": "allow" });
        assert_eq!(Value::Object(check_policy(&good).unwrap()), good);
        let with = |field: &str, value: Value| {
            let mut body = good.clone();
            body[field] = value;
            let error = check_policy(&body).unwrap_err();
            assert_eq!(error.code, ostler_protocol::error::code::INVALID_PARAMS);
            error.message
        };
        let limit = |change: Value| {
            let mut limit = json!({ "amount": 1, "measure": "usd", "period": "day", "pool": "each" });
            limit.as_object_mut().unwrap().extend(change.as_object().cloned().unwrap());
            json!([limit])
        };
        for (field, value, sentence) in [
            ("id", json!(" "), "id must be a non-empty string"),
            ("scope", json!("user:"), "scope must be all, user:<id>, team:<id> or project:<team>:<project>"),
            ("scope", json!("all:x"), "scope must be all, user:<id>, team:<id> or project:<team>:<project>"),
            ("kind", json!("tool"), "kind must be one of model, agent, computer"),
            ("effect", json!(1), "effect must be one of allow, deny"),
            ("extra", json!(1), "extra must be left out: a policy has no such field"),
            ("match", json!([]), "match must be an object"),
            ("match", json!({ "proxy": ["x"] }), "match.proxy must be left out of a policy of kind agent"),
            ("match", json!({ "agent": "echo" }), "match.agent must be a list of non-empty strings"),
            ("limits", json!({}), "limits must be a list"),
            ("limits", json!([1]), "limits[0] must be an object"),
            ("limits", limit(json!({ "amount": -1 })), "limits[0].amount must be a number of 0 or more"),
            (
                "limits",
                limit(json!({ "measure": "calls" })),
                "limits[0].measure must be one of usd, tokens, turns, hours",
            ),
            (
                "limits",
                limit(json!({ "period": "year" })),
                "limits[0].period must be one of day, week, month, total",
            ),
            ("limits", limit(json!({ "pool": null })), "limits[0].pool must be one of shared, each"),
            ("from", json!("2026-02-30"), "from must be a timestamp or a date, as 2026-01-31"),
            ("until", json!(5), "until must be a timestamp or a date, as 2026-01-31"),
        ] {
            assert_eq!(with(field, value), sentence);
        }
        assert_eq!(check_policy(&json!(1)).unwrap_err().message, "the policy must be an object");
        let mut body = good;
        body["from"] = json!("2026-02-02");
        body["until"] = json!("2026-02-01");
        assert_eq!(check_policy(&body).unwrap_err().message, "from must be before until");
        body["until"] = json!("2026-02-02");
        let row = check_policy(&body).unwrap();
        assert_eq!(
            (&row["from"], &row["until"]),
            (&json!("2026-02-02T00:00:00.000Z"), &json!("2026-02-02T23:59:59.999Z"))
        );
    }
}
