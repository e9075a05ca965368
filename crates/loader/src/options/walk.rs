//! Walks a value together with its schema: which schema nodes describe which part. All queries of marks use this
//! module.
//!
//! Every applicable node describes a part: the one that its key selects through `properties`, `patternProperties`,
//! `additionalProperties` and `items`, and the nodes that those refer to or combine. A mark on any of them applies, so
//! that a schema in parts hides as much as one in a single piece.

use ostler_contract::Value;

/// Keywords that combine several nodes.
const PARTS: &[&str] = &["allOf", "anyOf", "oneOf"];
/// Keywords that add one node to another.
const ADDED: &[&str] = &["if", "then", "else"];

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into a member of an object.
    Key(String),
    /// Into an entry of a list.
    Index(usize),
}

/// Formats a path in a value as `.key[0].inner`.
pub fn path_text(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Key(key) => format!(".{key}"),
            Step::Index(index) => format!("[{index}]"),
        })
        .collect()
}

/// The nodes of a schema that describe one part of a value.
#[derive(Debug, Clone, Default)]
pub struct Nodes<'a> {
    root: Option<&'a Value>,
    nodes: Vec<&'a Value>,
    /// Whether a node has a reference that cannot be followed.
    blind: bool,
}

impl<'a> Nodes<'a> {
    /// Returns the nodes that describe the whole value.
    pub fn of(schema: Option<&'a Value>) -> Self {
        let mut nodes = Self { root: schema, ..Self::default() };
        if let Some(schema) = schema {
            nodes.add(schema);
        }
        nodes
    }

    /// Returns whether no node describes the part.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn first(&self) -> Option<&'a Value> {
        self.nodes.first().copied()
    }

    pub fn all(&self) -> &[&'a Value] {
        &self.nodes
    }

    /// Returns whether a node has a mark, such as `writeOnly: true`.
    pub fn marked(&self, mark: &str) -> bool {
        self.nodes.iter().any(|node| node.get(mark) == Some(&Value::Bool(true)))
    }

    /// Returns whether the part is or can be a credential. References that cannot be followed count as credentials.
    pub fn hidden(&self) -> bool {
        self.blind || self.marked("writeOnly")
    }

    /// Returns the members under `properties`.
    pub fn keys(&self) -> Vec<&'a str> {
        let named = self.nodes.iter().filter_map(|node| node.get("properties")?.as_object());
        let mut keys: Vec<_> = named.flat_map(|properties| properties.keys().map(String::as_str)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the nodes that describe a member of an object.
    #[must_use]
    pub fn member(&self, key: &str) -> Self {
        self.part(|node, found| {
            let named = node.get("properties").and_then(|properties| properties.get(key));
            let patterns = node.get("patternProperties").and_then(Value::as_object);
            let fitting = patterns.into_iter().flatten().filter(|(pattern, _)| matches(pattern, key));
            let before = found.len();
            found.extend(named);
            found.extend(fitting.map(|(_, node)| node));
            if found.len() == before {
                let others = ["additionalProperties", "unevaluatedProperties"];
                found.extend(others.iter().filter_map(|name| node.get(name)).filter(|node| node.is_object()));
            }
        })
    }

    /// Returns the nodes that describe an entry of a list.
    #[must_use]
    pub fn entry(&self, index: usize) -> Self {
        self.part(|node, found| {
            let tuple = node.get("prefixItems").or_else(|| node.get("items")).and_then(Value::as_array);
            let rest = match node.get("prefixItems") {
                Some(_) => node.get("items"),
                None => node.get("items").filter(|items| items.is_object()).or(node.get("additionalItems")),
            };
            let others = ["contains", "unevaluatedItems"].iter().filter_map(|name| node.get(name));
            let entry = tuple.and_then(|tuple| tuple.get(index)).or(rest);
            found.extend(entry.into_iter().chain(others).filter(|node| node.is_object()));
        })
    }

    fn part(&self, part: impl Fn(&'a Value, &mut Vec<&'a Value>)) -> Self {
        let mut found = Vec::new();
        self.nodes.iter().for_each(|node| part(node, &mut found));
        let mut nodes = Self { root: self.root, blind: self.blind, ..Self::default() };
        found.into_iter().for_each(|node| nodes.add(node));
        nodes
    }

    /// Adds a node and those that it refers to or combines.
    fn add(&mut self, node: &'a Value) {
        if self.nodes.iter().any(|known| std::ptr::eq(*known, node)) {
            return;
        }
        self.nodes.push(node);
        for reference in ["$ref", "$dynamicRef"].iter().filter_map(|name| node.get(name)) {
            let pointer = reference.as_str().and_then(|to| to.strip_prefix('#'));
            match pointer.and_then(|pointer| self.root?.pointer(pointer)) {
                Some(node) => self.add(node),
                None => self.blind = true,
            }
        }
        let parts = PARTS.iter().filter_map(|name| node.get(name)?.as_array()).flatten();
        let added = ADDED.iter().filter_map(|name| node.get(name));
        let dependent = node.get("dependentSchemas").and_then(Value::as_object);
        let dependent = dependent.into_iter().flat_map(|schemas| schemas.values());
        parts.chain(added).chain(dependent).filter(|node| node.is_object()).for_each(|node| self.add(node));
    }
}

/// Returns whether a key matches a pattern of `patternProperties`. An invalid pattern matches nothing.
fn matches(pattern: &str, key: &str) -> bool {
    let schema = ostler_contract::json!({ "type": "string", "pattern": pattern });
    jsonschema::validator_for(&schema).is_ok_and(|validator| validator.is_valid(&Value::from(key)))
}

/// Rewrites a value part by part. `visit` receives the path, the nodes and the value. It returns the replacement, or
/// `None` to descend.
pub fn rewrite(
    value: &Value,
    nodes: &Nodes<'_>,
    visit: &mut impl FnMut(&[Step], &Nodes<'_>, &Value) -> Option<Value>,
) -> Value {
    fn go(
        value: &Value,
        nodes: &Nodes<'_>,
        path: &mut Vec<Step>,
        visit: &mut impl FnMut(&[Step], &Nodes<'_>, &Value) -> Option<Value>,
    ) -> Value {
        if let Some(instead) = visit(path, nodes, value) {
            return instead;
        }
        match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(key, inner)| {
                    path.push(Step::Key(key.clone()));
                    let inner = go(inner, &nodes.member(key), path, visit);
                    path.pop();
                    (key.clone(), inner)
                })
                .collect(),
            Value::Array(entries) => entries
                .iter()
                .enumerate()
                .map(|(index, inner)| {
                    path.push(Step::Index(index));
                    let inner = go(inner, &nodes.entry(index), path, visit);
                    path.pop();
                    inner
                })
                .collect(),
            other => other.clone(),
        }
    }
    go(value, nodes, &mut Vec::new(), visit)
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn marked(schema: &Value, walk: impl Fn(Nodes<'_>) -> Nodes<'_>) -> bool {
        walk(Nodes::of(Some(schema))).marked("m")
    }

    #[test]
    fn the_node_of_an_entry_is_found_in_each_form() {
        let (node, other) = (json!({ "m": true }), json!({}));
        for (schema, at) in [
            (json!({ "items": node }), vec![0, 1]),
            (json!({ "items": [other, node] }), vec![1]),
            (json!({ "items": [other], "additionalItems": node }), vec![1, 2]),
            (json!({ "prefixItems": [node, other] }), vec![0]),
            (json!({ "prefixItems": [other], "items": node }), vec![1, 2]),
            (json!({ "contains": node }), vec![0, 1, 2]),
            (json!({ "unevaluatedItems": node }), vec![0, 1, 2]),
        ] {
            for index in 0..2 {
                assert_eq!(
                    marked(&schema, |nodes| nodes.entry(index)),
                    at.contains(&index),
                    "{schema} {index}"
                );
            }
        }
    }

    #[test]
    fn the_node_of_a_member_is_found_in_each_form() {
        let node = json!({ "m": true });
        for (schema, keys) in [
            (json!({ "properties": { "a": node } }), &["a"][..]),
            (json!({ "properties": { "a": {} }, "additionalProperties": node }), &["b"]),
            (json!({ "patternProperties": { "^a": {} }, "unevaluatedProperties": node }), &["b"]),
            (json!({ "properties": { "a": {} }, "patternProperties": { "^[ab]$": node } }), &["a", "b"]),
            (json!({ "if": { "properties": { "a": node } } }), &["a"]),
            (json!({ "dependentSchemas": { "x": { "properties": { "b": node } } } }), &["b"]),
        ] {
            for key in ["a", "b"] {
                assert_eq!(marked(&schema, |nodes| nodes.member(key)), keys.contains(&key), "{schema} {key}");
            }
        }
    }

    #[test]
    fn a_part_below_an_unknown_schema_is_hidden() {
        let schema = json!({ "properties": { "far": { "$ref": "https://elsewhere/schema" }, "near": {} } });
        let nodes = Nodes::of(Some(&schema));
        let (far, near) = (nodes.member("far"), nodes.member("near"));
        assert!(far.hidden() && far.member("x").hidden() && far.entry(0).hidden());
        assert!(!nodes.hidden() && !near.hidden() && !near.member("x").hidden());
    }

    #[test]
    fn every_node_of_a_part_is_returned() {
        let schema = json!({ "allOf": [{ "a": 1 }, { "b": 2 }] });
        let nodes = Nodes::of(Some(&schema));
        assert_eq!(nodes.all(), [&schema, &schema["allOf"][0], &schema["allOf"][1]]);
        assert_eq!((nodes.first(), nodes.is_empty()), (Some(&schema), false));
        assert_eq!((Nodes::of(None).first(), Nodes::of(None).is_empty()), (None, true));
    }
}
