//! The one walk of a value beside its schema: which node describes what, through `properties`,
//! `patternProperties`, `additionalProperties` and `items`. Whatever asks about a node's marks asks here.

use ostler_contract::Value;

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into an object.
    Key(String),
    /// Into a list.
    Index(usize),
}

/// A place in a value, written as `.key[0].inner`.
pub fn path_text(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Key(key) => format!(".{key}"),
            Step::Index(index) => format!("[{index}]"),
        })
        .collect()
}

/// The schema of a member, if the schema describes it.
pub fn member<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    if let Some(found) = schema.get("properties").and_then(|properties| properties.get(key)) {
        return Some(found);
    }
    let by_pattern = schema.get("patternProperties").and_then(Value::as_object).and_then(|patterns| {
        patterns.iter().find(|(pattern, _)| matches(pattern, key)).map(|(_, node)| node)
    });
    by_pattern.or_else(|| schema.get("additionalProperties").filter(|node| node.is_object()))
}

/// The schema of a list's entry.
pub fn entry(schema: &Value, index: usize) -> Option<&Value> {
    let tuple = schema.get("prefixItems").and_then(|items| items.get(index));
    tuple.or_else(|| match schema.get("items") {
        Some(Value::Array(tuple)) => tuple.get(index),
        other => other,
    })
}

/// Whether a key fits a pattern of `patternProperties`; a pattern that does not read fits nothing.
fn matches(pattern: &str, key: &str) -> bool {
    let schema = ostler_contract::json!({ "type": "string", "pattern": pattern });
    jsonschema::validator_for(&schema).is_ok_and(|validator| validator.is_valid(&Value::from(key)))
}

/// Whether a node carries a mark, such as `writeOnly: true`.
pub fn marked(schema: Option<&Value>, mark: &str) -> bool {
    schema.and_then(|schema| schema.get(mark)) == Some(&Value::Bool(true))
}

/// Rewrites a value node by node. `visit` is handed the place, the node's schema and the value; what it
/// answers stands in its place, and `None` goes on inside.
pub fn rewrite(
    value: &Value,
    schema: Option<&Value>,
    visit: &mut impl FnMut(&[Step], Option<&Value>, &Value) -> Option<Value>,
) -> Value {
    fn go(
        value: &Value,
        schema: Option<&Value>,
        path: &mut Vec<Step>,
        visit: &mut impl FnMut(&[Step], Option<&Value>, &Value) -> Option<Value>,
    ) -> Value {
        if let Some(instead) = visit(path, schema, value) {
            return instead;
        }
        match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(key, inner)| {
                    path.push(Step::Key(key.clone()));
                    let inner = go(inner, schema.and_then(|schema| member(schema, key)), path, visit);
                    path.pop();
                    (key.clone(), inner)
                })
                .collect(),
            Value::Array(entries) => entries
                .iter()
                .enumerate()
                .map(|(index, inner)| {
                    path.push(Step::Index(index));
                    let inner = go(inner, schema.and_then(|schema| entry(schema, index)), path, visit);
                    path.pop();
                    inner
                })
                .collect(),
            other => other.clone(),
        }
    }
    go(value, schema, &mut Vec::new(), visit)
}
