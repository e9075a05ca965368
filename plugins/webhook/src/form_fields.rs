//! The fields of forms, whose names can say where a value belongs: `user[name]` is the field `name` of `user`, and each `labels[]` an
//! element of the list `labels`.

use ostler_contract::{JsonObject, Value};

/// The maximum number of bracketed parts of a name. A name with more is a field of its own.
const DEEPEST: usize = 8;

/// A bracketed part of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    /// `[name]`
    Field(&'a str),
    /// `[]`
    Element,
}

/// Sets the value of a field. Of several values with the same name, the last one counts.
pub(crate) fn put(fields: &mut JsonObject, name: &str, value: Value) {
    let Some((first, steps)) = read(name) else {
        fields.insert(name.to_owned(), value);
        return;
    };
    let mut place = fields.entry(first.to_owned()).or_insert(Value::Null);
    for step in steps {
        place = inside(place, step);
    }
    *place = value;
}

/// Returns the first part of a name and the bracketed ones; `None` for a name that has none or is written differently.
fn read(name: &str) -> Option<(&str, Vec<Step<'_>>)> {
    let (first, rest) =
        name.split_once('[').filter(|(first, _)| !first.is_empty() && !first.contains(']'))?;
    let rest = rest.strip_suffix(']')?;
    let steps: Vec<Step<'_>> = rest
        .split("][")
        .map(|part| match part {
            "" => Some(Step::Element),
            part => (!part.contains(['[', ']'])).then_some(Step::Field(part)),
        })
        .collect::<Option<_>>()?;
    (steps.len() <= DEEPEST).then_some((first, steps))
}

/// Returns a place in a value, which becomes an object or a list if it is something else.
fn inside<'a>(value: &'a mut Value, step: Step<'_>) -> &'a mut Value {
    match step {
        Step::Field(name) => {
            if !value.is_object() {
                *value = Value::Object(JsonObject::new());
            }
            match value {
                Value::Object(fields) => fields.entry(name.to_owned()).or_insert(Value::Null),
                other => other,
            }
        }
        Step::Element => {
            if !value.is_array() {
                *value = Value::Array(Vec::new());
            }
            match value {
                Value::Array(list) => list.push_mut(Value::Null),
                other => other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Value {
        let mut fields = JsonObject::new();
        for (name, value) in pairs {
            put(&mut fields, name, (*value).into());
        }
        Value::Object(fields)
    }

    #[test]
    fn a_name_says_where_a_value_belongs() {
        assert_eq!(
            of(&[("a[b][c]", "1"), ("a[b][d]", "2")]),
            json!({ "a": { "b": { "c": "1", "d": "2" } } })
        );
        assert_eq!(of(&[("a[]", "1"), ("a[]", "2")]), json!({ "a": ["1", "2"] }));
        assert_eq!(of(&[("a[][b]", "1"), ("a[][b]", "2")]), json!({ "a": [{ "b": "1" }, { "b": "2" }] }));
        assert_eq!(of(&[("a[0]", "1"), ("a[x y]", "2")]), json!({ "a": { "0": "1", "x y": "2" } }));
    }

    #[test]
    fn the_last_value_of_a_name_counts() {
        assert_eq!(of(&[("a", "1"), ("a", "2")]), json!({ "a": "2" }));
        assert_eq!(of(&[("a[b]", "1"), ("a[b]", "2")]), json!({ "a": { "b": "2" } }));
        assert_eq!(of(&[("a", "1"), ("a[b]", "2")]), json!({ "a": { "b": "2" } }));
        assert_eq!(of(&[("a[b]", "1"), ("a", "2")]), json!({ "a": "2" }));
        assert_eq!(of(&[("a[]", "1"), ("a[b]", "2")]), json!({ "a": { "b": "2" } }));
    }

    #[test]
    fn a_name_that_is_written_differently_is_a_field_of_its_own() {
        for name in ["[a]", "a[", "a]", "a[b", "a[b]c", "a[[b]]", "a]b[c]", "", "[]"] {
            assert_eq!(of(&[(name, "1")]), json!({ name: "1" }), "{name}");
        }
        let deep = format!("a{}", "[b]".repeat(DEEPEST + 1));
        assert_eq!(of(&[(&deep, "1")]), json!({ deep.as_str(): "1" }));
        let mut deepest = &of(&[(&format!("a{}", "[b]".repeat(DEEPEST)), "1")])["a"];
        for _ in 0..DEEPEST {
            deepest = &deepest["b"];
        }
        assert_eq!(*deepest, "1");
    }

    proptest::proptest! {
        /// Any names are taken, and the last pair has its value.
        #[test]
        fn any_names_are_taken(names in proptest::collection::vec("[ab\\[\\]]{0,12}", 1..8)) {
            let mut fields = JsonObject::new();
            for (at, name) in names.iter().enumerate() {
                put(&mut fields, name, at.into());
            }
            let last = (names.len() - 1).to_string();
            proptest::prop_assert!(Value::Object(fields).to_string().contains(&last));
        }
    }
}
