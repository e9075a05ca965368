//! The recorded calls of an endpoint and the list of its stored bodies, as they are read from their collections.
//!
//! On a host with files, one record contains the whole list: its id is that of the endpoint. Where several hosts may write,
//! each row is a record with the field `endpoint`, so that no host replaces the rows of another one. A host that changed
//! its store has both for a while.

use std::collections::HashSet;

use ostler_contract::{JsonObject, Value};

/// How many accepted calls are retained per endpoint.
pub(crate) const ADMITTED: usize = 50;
/// How many rejected calls are retained, which anyone can make in any number.
pub(crate) const REFUSED: usize = 20;
/// The field of a row with its endpoint.
const ENDPOINT: &str = "endpoint";
/// The field of a row of a rejected call.
const IS_REFUSED: &str = "refused";

/// Returns the fields that the rows of an endpoint have.
pub fn rows_of(endpoint: &str) -> JsonObject {
    JsonObject::from_iter([(ENDPOINT.to_owned(), endpoint.into())])
}

pub(crate) fn row_record(endpoint: &str, mut row: JsonObject, is_refused: bool) -> JsonObject {
    row.insert(ENDPOINT.to_owned(), endpoint.into());
    if is_refused {
        row.insert(IS_REFUSED.to_owned(), true.into());
    }
    row
}

/// The recorded calls of an endpoint, oldest first.
#[derive(Debug, Default, PartialEq)]
pub struct RecordedCalls {
    /// The accepted ones.
    pub accepted: Vec<Value>,
    /// The rejected ones.
    pub refused: Vec<Value>,
    /// The ids of rows beyond the limits.
    pub(crate) excess: Vec<String>,
    /// Rows of rejected calls that have the same reason as a newer one.
    pub(crate) repeated: Vec<Repeated>,
}

/// The newest call that was rejected for a reason, and the older ones.
#[derive(Debug, PartialEq)]
pub(crate) struct Repeated {
    /// The newest, as its record is.
    pub newest: Value,
    /// The ids of the others, each with the number of calls that it stands for.
    pub older: Vec<(String, u64)>,
}

/// The status and the reason of a call.
pub(crate) fn reason(row: &Value) -> (u64, &str) {
    (row["status"].as_u64().unwrap_or_default(), row["why"].as_str().unwrap_or_default())
}

/// How many calls a row stands for.
pub(crate) fn times(row: &Value) -> u64 {
    row["times"].as_u64().unwrap_or(1)
}

impl RecordedCalls {
    /// Returns the newest calls of the list and the rows of an endpoint.
    pub fn of(list: Option<&JsonObject>, rows: Vec<JsonObject>) -> Self {
        let mut calls = Self::default();
        let ids: HashSet<String> = rows.iter().filter_map(|row| text(row, "id")).collect();
        let (mut excess, mut repeated) = (Vec::new(), Vec::new());
        for mut row in rows {
            row.shift_remove(ENDPOINT);
            match row.shift_remove(IS_REFUSED) {
                Some(_) => calls.refused.push(row.into()),
                None => calls.accepted.push(row.into()),
            }
        }
        for (of, field, most) in
            [(&mut calls.accepted, "deliveries", ADMITTED), (&mut calls.refused, IS_REFUSED, REFUSED)]
        {
            of.extend(only_listed(list, field, &ids));
            of.sort_by(|one, other| order(one).cmp(&order(other)));
            if field == IS_REFUSED {
                repeated = merge(of, &ids);
            }
            let beyond = of.len().saturating_sub(most);
            let gone = of.drain(..beyond);
            excess.extend(
                gone.filter_map(|row| row["id"].as_str().filter(|id| ids.contains(*id)).map(str::to_owned)),
            );
        }
        Self { excess, repeated, ..calls }
    }

    /// Returns accepted and rejected calls, oldest first.
    pub fn all(self) -> Vec<Value> {
        let mut all = [self.accepted, self.refused].concat();
        all.sort_by(|one, other| order(one).cmp(&order(other)));
        all
    }
}

/// Leaves the newest of the calls with the same reason, which stands for all of them. Returns the records that are merged.
fn merge(rows: &mut Vec<Value>, ids: &HashSet<String>) -> Vec<Repeated> {
    let mut merged: Vec<(Value, Repeated)> = Vec::new();
    for mut row in std::mem::take(rows).into_iter().rev() {
        match merged.iter_mut().find(|(newest, _)| reason(newest) == reason(&row)) {
            Some((newest, repeated)) => {
                newest["times"] = times(newest).saturating_add(times(&row)).into();
                if let Some(id) = row["id"].as_str().filter(|id| ids.contains(*id)) {
                    repeated.older.push((id.to_owned(), times(&row)));
                }
            }
            None => {
                let newest = row.clone();
                merged.push((row.take(), Repeated { newest, older: Vec::new() }));
            }
        }
    }
    rows.extend(merged.iter().rev().map(|(row, _)| row.clone()));
    merged.into_iter().map(|(_, repeated)| repeated).filter(|repeated| !repeated.older.is_empty()).collect()
}

/// Returns the list of stored bodies of an endpoint, oldest first.
pub fn listed_bodies(list: Option<&JsonObject>, rows: Vec<JsonObject>) -> Vec<Value> {
    let ids: HashSet<String> = rows.iter().filter_map(|row| text(row, "id")).collect();
    let mut all: Vec<Value> = only_listed(list, "bodies", &ids).collect();
    all.extend(rows.into_iter().map(|mut row| {
        row.shift_remove(ENDPOINT);
        Value::from(row)
    }));
    // A row that was found without its call has no time.
    let expires = |row: &Value| row["expires"].as_i64();
    all.sort_by(|one, other| (expires(one), order(one)).cmp(&(expires(other), order(other))));
    all
}

/// Returns the rows of a list that are no records.
fn only_listed(list: Option<&JsonObject>, field: &str, ids: &HashSet<String>) -> impl Iterator<Item = Value> {
    let listed = list.and_then(|list| list.get(field)).and_then(Value::as_array);
    let is_missing = move |row: &&Value| !row["id"].as_str().is_some_and(|id| ids.contains(id));
    listed.into_iter().flatten().filter(is_missing).cloned()
}

fn text(row: &JsonObject, field: &str) -> Option<String> {
    row.get(field).and_then(Value::as_str).map(str::to_owned)
}

/// By time, and then by id, so that all hosts have the same order.
fn order(row: &Value) -> (&str, &str) {
    (row["at"].as_str().unwrap_or_default(), row["id"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        value.as_object().cloned().unwrap_or_default()
    }

    fn row(id: &str, at: usize, is_refused: bool) -> JsonObject {
        let mut row = object(json!({ "id": id, "at": format!("{at:03}") }));
        if is_refused {
            row.insert("why".to_owned(), id.into());
        }
        row_record("in", row, is_refused)
    }

    fn ids(rows: &[Value]) -> Vec<&str> {
        rows.iter().filter_map(|row| row["id"].as_str()).collect()
    }

    #[test]
    fn rows_and_a_list_are_merged_by_time() {
        let list = object(json!({
            "id": "in", "deliveries": [{ "at": "001" }, { "id": "b", "at": "002" }, { "id": "c", "at": "003", "old": 1 }],
            "refused": [{ "id": "r", "at": "004" }],
        }));
        let rows = vec![row("d", 5, false), row("c", 3, false), row("a", 1, false), row("s", 0, true)];
        let calls = RecordedCalls::of(Some(&list), rows);
        assert_eq!(calls.accepted[0], json!({ "at": "001" }), "earlier versions stored no ids");
        assert_eq!((ids(&calls.accepted), ids(&calls.refused)), (vec!["a", "b", "c", "d"], vec!["s", "r"]));
        assert_eq!(calls.accepted[1], json!({ "id": "a", "at": "001" }), "without what only the record has");
        assert_eq!(calls.accepted[3].get("old"), None, "the record is newer");
        assert!(calls.excess.is_empty());
        assert_eq!(ids(&calls.all()), ["s", "a", "b", "c", "r", "d"]);
        assert_eq!(RecordedCalls::of(None, vec![]), RecordedCalls::default());
    }

    #[test]
    fn only_the_newest_are_retained() {
        let of = |kind: &str, count: usize, is_refused| {
            (0..count).map(|at| row(&format!("{kind}{at:03}"), at, is_refused)).collect::<Vec<_>>()
        };
        let list = object(json!({ "deliveries": [{ "id": "listed", "at": "000" }], "refused": [] }));
        let calls = RecordedCalls::of(Some(&list), [of("a", 52, false), of("r", 21, true)].concat());
        assert_eq!((calls.accepted.len(), calls.refused.len()), (ADMITTED, REFUSED));
        assert_eq!(calls.excess, ["a000", "a001", "r000"], "and the list is no row");
        assert_eq!(ids(&calls.accepted)[0], "a002");
    }

    #[test]
    fn rejected_calls_with_one_reason_are_one() {
        let row = |id: &str, why: &str, times: Option<u64>| {
            let mut row = object(json!({ "id": id, "at": id, "status": 401, "why": why }));
            if let Some(times) = times {
                row.insert("times".to_owned(), times.into());
            }
            row_record("in", row, true)
        };
        let list = object(json!({ "refused": [{ "at": "0", "status": 401, "why": "no token" }] }));
        let rows = vec![
            row("1", "no token", Some(3)),
            row("2", "wrong", None),
            row("3", "no token", None),
            row("4", "no token", Some(5)),
        ];
        let calls = RecordedCalls::of(Some(&list), rows);
        let shown: Vec<(&str, u64)> =
            calls.refused.iter().map(|row| (row["id"].as_str().unwrap(), times(row))).collect();
        assert_eq!(shown, [("2", 1), ("4", 10)]);
        // The row of the list has no record, and is counted when it becomes one.
        let older = vec![("3".to_owned(), 1), ("1".to_owned(), 3)];
        let newest = json!({ "id": "4", "at": "4", "status": 401, "why": "no token", "times": 5 });
        assert_eq!(calls.repeated, [Repeated { newest, older }]);
        assert!(calls.excess.is_empty());
    }

    #[test]
    fn bodies_are_listed_once() {
        let list =
            object(json!({ "bodies": [{ "id": "a", "at": "1" }, { "id": "b", "at": "3", "bytes": 1 }] }));
        let rows = vec![object(json!({ "id": "b", "at": "3", "bytes": 2, "endpoint": "in" }))];
        let bodies = listed_bodies(Some(&list), rows);
        assert_eq!(bodies, [json!({ "id": "a", "at": "1" }), json!({ "id": "b", "at": "3", "bytes": 2 })]);
    }
}
