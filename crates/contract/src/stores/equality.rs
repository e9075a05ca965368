//! Equality of JSON by value: `1` equals `1.0`, and the order of fields is irrelevant.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use ostler_protocol::{JsonObject, Value};

/// Returns whether two values are equal.
pub fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.as_f64() == other.as_f64() && is_float(one, other))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => equal_objects(one, other),
        _ => one == other,
    }
}

/// Returns whether two objects are equal.
pub fn equal_objects(one: &JsonObject, other: &JsonObject) -> bool {
    one.len() == other.len() && contains_fields(one, other)
}

/// Returns whether an object's fields equal each field of `wanted`.
pub fn contains_fields(object: &JsonObject, wanted: &JsonObject) -> bool {
    wanted.iter().all(|(key, value)| object.get(key).is_some_and(|held| equal(held, value)))
}

/// Two large integers may be one float and yet differ.
fn is_float(one: &serde_json::Number, other: &serde_json::Number) -> bool {
    one.is_f64() || other.is_f64()
}

/// Returns a number that is the same for equal values, in this process.
pub fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    match value {
        Value::Null => 0_u8.hash(&mut hasher),
        Value::Bool(value) => value.hash(&mut hasher),
        // Adding zero turns `-0.0` into `0.0`.
        Value::Number(value) => (value.as_f64().unwrap_or_default() + 0.0).to_bits().hash(&mut hasher),
        Value::String(value) => value.hash(&mut hasher),
        Value::Array(values) => values.iter().for_each(|value| digest(value).hash(&mut hasher)),
        Value::Object(fields) => {
            let digests = fields.iter().map(|(key, value)| {
                let mut hasher = DefaultHasher::new();
                (key, digest(value)).hash(&mut hasher);
                hasher.finish()
            });
            digests.fold(1_u64, u64::wrapping_add).hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use ostler_protocol::json;

    use super::*;

    #[test]
    fn alike_by_value() {
        let alike = [
            (json!(1), json!(1.0)),
            (json!(0.0), json!(-0.0)),
            (json!({ "a": 1, "b": [1, { "c": null }] }), json!({ "b": [1.0, { "c": null }], "a": 1 })),
        ];
        for (one, other) in alike {
            assert!(equal(&one, &other), "{one} {other}");
            assert_eq!(digest(&one), digest(&other), "{one} {other}");
        }
        let different = [
            (json!(1), json!("1")),
            (json!(null), json!(false)),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64)),
            (json!([1, 2]), json!([2, 1])),
            (json!({ "a": 1 }), json!({ "a": 1, "b": null })),
            (json!({ "a": 1 }), json!({ "b": 1 })),
        ];
        for (one, other) in different {
            assert!(!equal(&one, &other) && !equal(&other, &one), "{one} {other}");
        }
    }
}
