//! JSON Schemas of settings in the form of the protocol.

use serde_json::{Map, Value};

/// Adds what the protocol requires beyond JSON Schema: the schema describes an object, and each property has a type and
/// a title, by default its key.
pub fn drawn(schema: Value) -> Value {
    let mut schema = schema;
    if let Value::Object(fields) = &mut schema {
        fields.entry("type").or_insert_with(|| "object".into());
        fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    title(&mut schema);
    schema
}

fn title(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        for (key, property) in properties {
            named(property, key);
        }
    }
    for member in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(member) {
            named(inner, member);
        }
    }
}

fn named(schema: &mut Value, key: &str) {
    if let Value::Object(fields) = schema {
        fields.entry("title").or_insert_with(|| key.into());
        fields.entry("type").or_insert_with(|| "string".into());
        title(schema);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_title_has_its_keys() {
        let plain = json!({ "properties": {
            "branch": { "type": "string" },
            "tags": { "type": "array", "title": "Tags", "items": { "enum": ["a"] } },
        } });
        assert_eq!(
            drawn(plain),
            json!({ "type": "object", "properties": {
                "branch": { "type": "string", "title": "branch" },
                "tags": { "type": "array", "title": "Tags", "items": { "enum": ["a"], "title": "items", "type": "string" } },
            } })
        );
        assert_eq!(drawn(json!(5)), json!(5));
    }
}
