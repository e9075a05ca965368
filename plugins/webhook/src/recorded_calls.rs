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

/// Returns the record of a row.
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
}

impl RecordedCalls {
    /// Returns the newest calls of the list and the rows of an endpoint.
    pub fn of(list: Option<&JsonObject>, rows: Vec<JsonObject>) -> Self {
        let mut calls = Self::default();
        let ids: HashSet<String> = rows.iter().filter_map(|row| text(row, "id")).collect();
        let mut excess = Vec::new();
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
            let beyond = of.len().saturating_sub(most);
            let gone = of.drain(..beyond);
            excess.extend(
                gone.filter_map(|row| row["id"].as_str().filter(|id| ids.contains(*id)).map(str::to_owned)),
            );
        }
        Self { excess, ..calls }
    }

    /// Returns accepted and rejected calls, oldest first.
    pub fn all(self) -> Vec<Value> {
        let mut all = [self.accepted, self.refused].concat();
        all.sort_by(|one, other| order(one).cmp(&order(other)));
        all
    }
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
        row_record("in", object(json!({ "id": id, "at": format!("{at:03}") })), is_refused)
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
    fn bodies_are_listed_once() {
        let list =
            object(json!({ "bodies": [{ "id": "a", "at": "1" }, { "id": "b", "at": "3", "bytes": 1 }] }));
        let rows = vec![object(json!({ "id": "b", "at": "3", "bytes": 2, "endpoint": "in" }))];
        let bodies = listed_bodies(Some(&list), rows);
        assert_eq!(bodies, [json!({ "id": "a", "at": "1" }), json!({ "id": "b", "at": "3", "bytes": 2 })]);
    }
}
