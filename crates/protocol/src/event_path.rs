//! Paths to a field of an event: `{{event.<path>}}` of a message, and the fields by which a webhook endpoint orders runs.
//!
//! A dot reaches into an object or a list: `a.b`, `a.0.b`. Brackets do the same, with an index or a quoted name: `a[0].b`,
//! `a["x.y"]`. At each place, a field whose name is the whole rest of the path comes first, so that names with dots and
//! brackets, as forms have them, need no quotes.

use std::borrow::Cow;

use crate::sent::{SentFields, SentValue};

/// The largest index of a list. The entries before it are in memory.
const LARGEST_INDEX: usize = 9_999;

/// One name or index of a path.
struct Step<'a> {
    name: Cow<'a, str>,
    is_quoted: bool,
    /// The path after it.
    rest: Option<&'a str>,
}

/// Where a path leads from a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within<'a> {
    /// To the field itself.
    Here,
    /// Into the field, along this path.
    Below(&'a str),
}

/// Returns the path of a placeholder's name: `event.<path>`, or `event` and brackets.
pub fn of_placeholder(name: &str) -> Option<&str> {
    let after = name.strip_prefix("event")?;
    after.strip_prefix('.').or_else(|| after.starts_with('[').then_some(after))
}

/// Returns the value at a path.
pub fn find<'a>(fields: SentFields<'a>, path: &str) -> Option<SentValue<'a>> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let step = first_step(path)?;
    inside(fields.get(&step.name)?, step.rest)
}

fn inside<'a>(value: SentValue<'a>, path: Option<&str>) -> Option<SentValue<'a>> {
    let Some(path) = path else { return Some(value) };
    if let Some(fields) = value.fields() {
        return find(fields, path);
    }
    let step = first_step(path)?;
    inside(value.entry(index(&step.name)?)?, step.rest)
}

/// Returns where a path leads from a field of this name, or from the entry with this index; `None` for a path to another one.
pub fn within<'a>(path: &'a str, name: &str) -> Option<Within<'a>> {
    if path == name {
        return Some(Within::Here);
    }
    let step = first_step(path)?;
    (step.name == name).then(|| step.rest.map_or(Within::Here, Within::Below))
}

/// Returns the index with which a path begins.
pub fn first_index(path: &str) -> Option<usize> {
    index(&first_step(path)?.name)
}

/// Checks that a path can lead to a field.
///
/// # Errors
/// What is wrong with it, after the path.
pub fn check(path: &str) -> Result<(), &'static str> {
    let mut rest = Some(path);
    while let Some(path) = rest {
        let step = first_step(path).ok_or("has text after a bracket; write a dot or another bracket")?;
        if !step.is_quoted {
            if step.name.is_empty() {
                return Err("has an empty name");
            }
            if step.name.contains("[\"") || step.name.contains("['") {
                return Err("has a quoted name without its end, such as [\"x.y\"]");
            }
            if step.name.len() > 4 && step.name.bytes().all(|byte| byte.is_ascii_digit()) && path != step.name
            {
                return Err("has an index above 9999");
            }
        }
        rest = step.rest;
    }
    Ok(())
}

/// Returns the first name or index of a path; `None` if text follows its bracket.
fn first_step(path: &str) -> Option<Step<'_>> {
    if let Some((name, is_quoted, after)) = bracket(path) {
        return Some(Step { name, is_quoted, rest: rest_of(after)? });
    }
    let ends = |(at, byte): (usize, u8)| byte == b'.' || byte == b'[' && bracket(&path[at..]).is_some();
    let end = path.bytes().enumerate().find(|at| ends(*at)).map_or(path.len(), |(at, _)| at);
    let (name, after) = path.split_at(end);
    Some(Step { name: name.into(), is_quoted: false, rest: rest_of(after)? })
}

/// Returns the path after a step: none at the end, and no path if other text follows.
#[allow(clippy::option_option)]
fn rest_of(after: &str) -> Option<Option<&str>> {
    match after.strip_prefix('.') {
        Some(rest) => Some(Some(rest)),
        None if after.is_empty() => Some(None),
        None => after.starts_with('[').then_some(Some(after)),
    }
}

/// Returns the name or index in the bracket with which a path begins, whether it is quoted, and what follows. Any other bracket
/// is part of a name.
fn bracket(path: &str) -> Option<(Cow<'_, str>, bool, &str)> {
    let inner = path.strip_prefix('[')?;
    if inner.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(inner).into_iter::<String>();
        let name = names.next()?.ok()?;
        let after = inner.get(names.byte_offset()..)?.strip_prefix(']')?;
        return Some((name.into(), true, after));
    }
    if let Some(quoted) = inner.strip_prefix('\'') {
        let (name, after) = quoted.split_once("']")?;
        return Some((name.into(), true, after));
    }
    let (name, after) = inner.split_once(']')?;
    let is_index = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    is_index.then(|| (name.into(), false, after))
}

fn index(name: &str) -> Option<usize> {
    let is_decimal = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_shortest = name == "0" || !name.starts_with('0');
    let index = (is_decimal && is_shortest).then(|| name.parse().ok()).flatten();
    index.filter(|index| *index <= LARGEST_INDEX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_path_reaches_into_objects_and_lists() {
        let data = json!({
            "a": { "b": { "c": 1 }, "x.y": 2, "0": "zero", "it's": { "\"": 3 } },
            "a.b": "whole", "list": [{ "id": "c1" }, [10, [11]], "text"], "payload[name]": "form", "items[]": "last",
            "k[0]": "own", "k": ["entry"], "": { "": 4 }, "labels": { "app.kubernetes.io/name": "web" },
        });
        let fields = SentFields::new(data.as_object().unwrap(), None);
        for (path, expected) in [
            ("a.b", json!("whole")),
            ("a.b.c", json!(1)),
            ("a[\"b\"].c", json!(1)),
            ("a['b']['c']", json!(1)),
            ("[\"a\"].b", json!({ "c": 1 })),
            ("a.x.y", json!(2)),
            ("a[\"x.y\"]", json!(2)),
            ("labels[\"app.kubernetes.io/name\"]", json!("web")),
            ("labels.app.kubernetes.io/name", json!("web")),
            ("a[\"it's\"][\"\\\"\"]", json!(3)),
            ("a.0", json!("zero")),
            ("a[0]", json!("zero")),
            ("list.0.id", json!("c1")),
            ("list[0].id", json!("c1")),
            ("list[0][\"id\"]", json!("c1")),
            ("list.1.1.0", json!(11)),
            ("list[1][1][0]", json!(11)),
            ("payload[name]", json!("form")),
            ("items[]", json!("last")),
            ("k[0]", json!("own")),
            ("k.0", json!("entry")),
            (".", json!(4)),
        ] {
            assert_eq!(find(fields, path).map(SentValue::value), Some(&expected), "{path}");
        }
        for path in [
            "list.3",
            "list.00",
            "list[-1]",
            "list.id",
            "list[0].id.x",
            "a[\"x",
            "a[\"b\"]c",
            "a..b",
            "list[99999999999999999999]",
            "text.0",
            "",
        ] {
            let found = find(fields, path).map(SentValue::value);
            assert!(found.is_none() || path.is_empty(), "{path}: {found:?}");
        }
    }

    #[test]
    fn a_path_that_leads_nowhere_is_refused() {
        for good in
            ["a", "a.b", "a.0.b", "a[0].b", "a[\"x.y\"]", "['x']", "payload[name]", "items[]", "12345678"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (wrong, why) in [
            ("", "an empty name"),
            ("a..b", "an empty name"),
            ("a.", "an empty name"),
            ("a[0].", "an empty name"),
            ("a[\"x.y\"", "a quoted name without its end"),
            ("a['x", "a quoted name without its end"),
            ("a[\"x\"]y", "text after a bracket"),
            ("a[10000]", "an index above 9999"),
        ] {
            assert!(check(wrong).unwrap_err().contains(why), "{wrong}: {:?}", check(wrong));
        }
    }

    #[test]
    fn a_placeholder_names_a_path_after_event() {
        for (name, path) in [
            ("event.a.b", Some("a.b")),
            ("event[\"a\"]", Some("[\"a\"]")),
            ("event", None),
            ("events.a", None),
            ("trigger", None),
        ] {
            assert_eq!(of_placeholder(name), path, "{name}");
        }
        assert_eq!(within("a.b", "a"), Some(Within::Below("b")));
        assert_eq!(within("a.b", "a.b"), Some(Within::Here));
        assert_eq!(within("[0].b", "0"), Some(Within::Below("b")));
        assert_eq!(within("a[1]", "b"), None);
        assert_eq!((first_index("[7].a"), first_index("7"), first_index("a")), (Some(7), Some(7), None));
    }

    proptest::proptest! {
        #[test]
        fn no_path_panics(path in "[\\[\\]\"'.a0é\\\\]{0,20}") {
            let data = json!({ "a": [{ "0": { "a": 1 } }], "é": { "a": [0] } });
            let Value::Object(fields) = &data else { unreachable!() };
            let found = find(SentFields::new(fields, None), &path);
            // A path that is refused leads to no field but one of exactly that name.
            proptest::prop_assert!(check(&path).is_ok() || found.is_none(), "{}", path);
        }
    }
}
