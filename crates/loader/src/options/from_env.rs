//! Options taken from the process environment: `fromEnv: true`. Spec: *Options and credentials*, 12.

use ostler_contract::{JsonObject, Value};

use super::walk::Nodes;

/// The maximum depth of options, because a schema can be recursive.
const DEEPEST: usize = 4;

/// Fills options marked `fromEnv` that are not configured from the variables of their names: unchanged
/// (`OPENAI_API_KEY`), or in capitals (`apiKey` becomes `API_KEY`). An empty variable counts as missing.
pub fn fill(
    merged: &mut JsonObject,
    configured: &JsonObject,
    schema: Option<&Value>,
    environment: &dyn Fn(&str) -> Option<String>,
) {
    fill_at(merged, Some(configured), &Nodes::of(schema), environment, DEEPEST);
}

fn fill_at(
    merged: &mut JsonObject,
    configured: Option<&JsonObject>,
    nodes: &Nodes<'_>,
    environment: &dyn Fn(&str) -> Option<String>,
    deep: usize,
) {
    for key in nodes.keys() {
        let node = nodes.member(key);
        let said = configured.and_then(|configured| configured.get(key));
        if node.marked("fromEnv") {
            let read =
                || environment(key).or_else(|| environment(&capitals(key))).filter(|text| !text.is_empty());
            if said.is_none()
                && let Some(text) = read()
            {
                merged.insert(key.to_owned(), typed(text, &node));
            }
        } else if deep > 1 {
            let mut inner = match merged.get(key) {
                None => JsonObject::new(),
                Some(Value::Object(inner)) => inner.clone(),
                Some(_) => continue,
            };
            let before = inner.len();
            fill_at(&mut inner, said.and_then(Value::as_object), &node, environment, deep - 1);
            if inner.len() != before || merged.contains_key(key) {
                merged.insert(key.to_owned(), Value::Object(inner));
            }
        }
    }
}

/// A variable is text; the value of an option with another type is parsed from it.
fn typed(text: String, node: &Nodes<'_>) -> Value {
    let kind = node.first().and_then(|node| node.get("type")).and_then(Value::as_str);
    match kind {
        None | Some("string") => Value::String(text),
        Some(_) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    }
}

/// Formats `apiKey` as `API_KEY`.
fn capitals(key: &str) -> String {
    let mut name = String::new();
    let mut small = false;
    for letter in key.chars() {
        if letter.is_uppercase() && small {
            name.push('_');
        }
        small = letter.is_lowercase() || letter.is_ascii_digit();
        name.extend(if letter == '-' { '_'.to_uppercase() } else { letter.to_uppercase() });
    }
    name
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn what_the_configuration_leaves_out_comes_from_the_environment() {
        let schema = json!({ "properties": {
            "apiKey": { "type": "string", "fromEnv": true, "writeOnly": true },
            "OPENAI_API_KEY": { "fromEnv": true },
            "retries": { "type": "integer", "fromEnv": true },
            "empty": { "fromEnv": true }, "said": { "fromEnv": true }, "HOME": { "type": "string" },
            "env": { "properties": { "TOKEN": { "fromEnv": true } } },
            "digits": { "type": "string", "fromEnv": true },
            "loop": { "$ref": "#" }
        }});
        let variables = |name: &str| match name {
            "API_KEY" => Some("a".to_owned()),
            "OPENAI_API_KEY" => Some("o".to_owned()),
            "RETRIES" => Some("3".to_owned()),
            "DIGITS" => Some("007".to_owned()),
            "EMPTY" => Some(String::new()),
            "SAID" | "HOME" | "TOKEN" => Some("from the environment".to_owned()),
            _ => None,
        };
        let configured = json!({ "said": "by the file", "loop": 1 }).as_object().unwrap().clone();
        let mut merged =
            json!({ "apiKey": "default", "said": "by the file", "loop": 1 }).as_object().unwrap().clone();
        fill(&mut merged, &configured, Some(&schema), &variables);
        assert_eq!(
            Value::Object(merged),
            json!({
                "apiKey": "a", "said": "by the file", "loop": 1, "OPENAI_API_KEY": "o", "retries": 3,
                "digits": "007",
                "env": { "TOKEN": "from the environment" }
            })
        );
    }

    #[test]
    fn a_recursive_schema_is_filled_to_a_fixed_depth() {
        let schema = json!({ "properties": { "key": { "fromEnv": true }, "loop": { "$ref": "#" } } });
        let mut merged = JsonObject::new();
        fill(&mut merged, &JsonObject::new(), Some(&schema), &|name| (name == "KEY").then(|| "k".to_owned()));
        assert_eq!(
            Value::Object(merged),
            json!({ "key": "k", "loop": { "key": "k", "loop": { "key": "k", "loop": { "key": "k" } } } })
        );
    }

    #[test]
    fn an_inner_default_is_replaced_and_no_empty_object_is_added() {
        let inner = json!({ "properties": { "key": { "fromEnv": true } } });
        let schema = json!({ "properties": { "set": inner, "unset": { "properties": { "other": { "fromEnv": true } } } } });
        let mut merged = json!({ "set": { "key": "default" } }).as_object().unwrap().clone();
        fill(&mut merged, &JsonObject::new(), Some(&schema), &|name| (name == "KEY").then(|| "k".to_owned()));
        assert_eq!(Value::Object(merged), json!({ "set": { "key": "k" } }));
    }

    #[test]
    fn names_in_capitals() {
        for (key, name) in
            [("apiKey", "API_KEY"), ("APIKey", "APIKEY"), ("max-turns", "MAX_TURNS"), ("x2Y", "X2_Y")]
        {
            assert_eq!(capitals(key), name);
        }
    }
}
