//! Validation of options against a plugin's schema, with messages for the author of the configuration. Messages never
//! contain values.

use std::collections::BTreeMap;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use ostler_contract::problem::Problem;
use ostler_contract::protocol::nearest::nearest;
use ostler_contract::{JsonObject, Value};

use super::walk::Nodes;

/// Checks that a value is a valid schema.
///
/// # Errors
/// What is wrong with it, as the line states it.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    validator(schema).map(drop)
}

fn validator(schema: &Value) -> Result<jsonschema::Validator, String> {
    validator_of(schema, false)
}

/// Compiles a schema, optionally with the validation of formats.
fn validator_of(schema: &Value, formats: bool) -> Result<jsonschema::Validator, String> {
    if !schema.is_object() {
        return Err("is not an object".to_owned());
    }
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        // A key that is not in the schema is passed through with a warning, even if the schema forbids it.
        if fields.get("additionalProperties") == Some(&Value::Bool(false)) {
            fields.remove("additionalProperties");
        }
        fields.entry("type").or_insert_with(|| "object".into());
    }
    let options = jsonschema::options();
    let options = if formats { options.should_validate_formats(true) } else { options };
    options.build(&schema).map_err(|error| format!("does not hold: {}", misspelt(&error)))
}

/// Describes where a schema is invalid: `properties.size.type cannot be "nmber": …`.
fn misspelt(error: &jsonschema::ValidationError<'_>) -> String {
    const TYPES: &str =
        "a type is one of array, boolean, integer, null, number, object, string, or a list of these";
    let path = path_of(error.instance_path().as_str());
    let Some(place) = path.strip_prefix('.') else { return error.masked().to_string() };
    let mut value = error.instance().to_string();
    if let Some((cut, _)) = value.char_indices().nth(60) {
        value.replace_range(cut.., "…");
    }
    let keyword = place.rsplit('.').next().unwrap_or_default();
    match error.kind() {
        _ if keyword == "type" => format!("{place} cannot be {value}: {TYPES}"),
        ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. } => {
            format!("{place} cannot be {value}")
        }
        _ => format!("{place} cannot be {value}: {}", error.masked()),
    }
}

/// Checks options; the line names the first one that does not fit.
///
/// # Errors
/// The line with the option and its requirement, or what is wrong with the schema.
pub fn check(id: &str, schema: &Value, options: &JsonObject) -> Result<(), Problem> {
    let validator = validator(schema).map_err(|why| Problem::Schema { id: id.to_owned(), why })?;
    let value = Value::Object(options.clone());
    match validator.iter_errors(&value).next() {
        None => Ok(()),
        Some(error) => {
            let (path, expected) = said(&error, schema);
            Err(Problem::Option { id: id.to_owned(), path, expected })
        }
    }
}

/// Returns which of these parts of options do not fit, in order, and what is wrong with each: `agents.one.command must
/// be text`.
pub(super) fn misfits(schema: &Value, options: &JsonObject, parts: &[String]) -> Vec<(usize, String)> {
    let Ok(validator) = validator(schema) else { return Vec::new() };
    let value = Value::Object(options.clone());
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    for error in validator.iter_errors(&value) {
        let place = error.instance_path().as_str();
        let holds = |part: &String| {
            place.strip_prefix(part.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some(at) = parts.iter().position(holds) {
            let (path, expected) = said(&error, schema);
            found.entry(at).or_insert_with(|| format!("{} must {expected}", path.trim_start_matches('.')));
        }
    }
    found.into_iter().collect()
}

/// Returns what is wrong with options before their secrets are read: `.key must be text`. Checks only values at or
/// below `keys`, and no references.
pub fn wrong(schema: &Value, options: &JsonObject, keys: &[&str]) -> Option<String> {
    let validator = validator(schema).ok()?;
    let value = Value::Object(options.clone());
    let judged = validator.iter_errors(&value).find(|error| {
        let pointer = error.instance_path().as_str().to_owned();
        let key = pointer.split('/').nth(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
        let named = key.is_some_and(|key| keys.contains(&key.as_str()));
        named && !value.pointer(&pointer).is_some_and(super::is_reference)
    })?;
    let (path, expected) = said(&judged, schema);
    Some(format!("{path} must {expected}"))
}

/// Returns the requirement of a member that does not fit its schema, including formats: `be text of at least 2
/// characters`. It does not contain the value.
///
/// # Errors
/// What is wrong with the schema.
pub fn misfit(schema: &Value, member: &JsonObject) -> Result<Option<String>, String> {
    let validator = validator_of(schema, true)?;
    let value = Value::Object(member.clone());
    let error = validator.iter_errors(&value).next();
    Ok(error.map(|error| said(&error, schema).1))
}

/// Returns the path of an error and the requirement there.
fn said(error: &jsonschema::ValidationError<'_>, schema: &Value) -> (String, String) {
    let mut path = path_of(error.instance_path().as_str());
    let expected = match error.kind() {
        ValidationErrorKind::Required { property } => {
            path.push_str(&format!(".{}", property.as_str().unwrap_or_default()));
            "be given".to_owned()
        }
        kind => expected(kind, schema, error.instance_path().as_str()),
    };
    (path, expected)
}

/// An option that the schema of a plugin does not have. It is passed through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownOption {
    pub key: String,
    /// What the log says of it.
    pub line: String,
    /// What to do.
    pub fix: String,
}

/// Returns the configured options that a plugin's schema does not have.
pub fn unknown_options(id: &str, schema: Option<&Value>, configured: &JsonObject) -> Vec<UnknownOption> {
    let Some(schema) = schema else { return Vec::new() };
    let known = || schema.get("properties").and_then(Value::as_object).into_iter().flat_map(JsonObject::keys);
    let unknown = unknown_keys(schema, configured).into_iter().map(|key| UnknownOption {
        key: key.to_owned(),
        line: Problem::UnknownOption { id: id.to_owned(), key: key.to_owned() }.to_string(),
        fix: match nearest(key, known().map(String::as_str)) {
            Some(meant) => format!("did you mean {meant}? Otherwise remove the option"),
            None => "remove the option, or correct its name".to_owned(),
        },
    });
    unknown.collect()
}

/// Returns the keys of the configuration that are not in the schema.
fn unknown_keys<'a>(schema: &Value, configured: &'a JsonObject) -> Vec<&'a str> {
    let whole = Nodes::of(Some(schema));
    configured.keys().filter(|key| whole.member(key).is_empty()).map(String::as_str).collect()
}

/// Formats `/a/0/b` as `.a[0].b`.
fn path_of(pointer: &str) -> String {
    let parts = pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
    parts
        .map(|part| {
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("[{part}]")
            } else {
                format!(".{part}")
            }
        })
        .collect()
}

fn expected(kind: &ValidationErrorKind, schema: &Value, pointer: &str) -> String {
    use ValidationErrorKind as Kind;
    let node = node_at(schema, pointer);
    let number = |name: &str| node.and_then(|node| node.get(name)).map(Value::to_string);
    match kind {
        Kind::Type { kind } => format!("be {}", of_type(kind, node)),
        Kind::Enum { options } => {
            let words =
                options.as_array().map(|options| options.iter().map(word).collect::<Vec<_>>().join(", "));
            format!("be one of {}", words.unwrap_or_default())
        }
        Kind::Constant { expected_value } => format!("be {}", word(expected_value)),
        Kind::Minimum { .. }
        | Kind::Maximum { .. }
        | Kind::ExclusiveMinimum { .. }
        | Kind::ExclusiveMaximum { .. } => {
            format!("be {}", ranged(node))
        }
        Kind::MinLength { limit } => format!("be text of at least {limit} {}", plural(*limit, "character")),
        Kind::MaxLength { limit } => format!("be text of at most {limit} {}", plural(*limit, "character")),
        Kind::MinItems { limit } => format!("be a list of at least {limit} {}", plural(*limit, "entry")),
        Kind::MaxItems { limit } => format!("be a list of at most {limit} {}", plural(*limit, "entry")),
        Kind::Pattern { pattern } => format!("be text that matches {pattern}"),
        Kind::Format { format } => match format.as_str() {
            "email" => "be an email address".to_owned(),
            "uri" => "be a URI, such as https://example.com/hay".to_owned(),
            "date" => "be a date, such as 2026-11-23".to_owned(),
            "date-time" => "be a date and a time with its offset, such as 2026-11-23T17:30:00Z".to_owned(),
            other => format!("be text of the form {other}"),
        },
        Kind::MultipleOf { .. } => format!("be a multiple of {}", number("multipleOf").unwrap_or_default()),
        Kind::UniqueItems => "be a list without repeats".to_owned(),
        Kind::AdditionalProperties { unexpected } => format!("not hold {}", unexpected.join(", ")),
        _ => "have one of the forms its schema allows".to_owned(),
    }
}

fn plural(count: u64, word: &str) -> String {
    match (count, word.strip_suffix('y')) {
        (1, _) => word.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{word}s"),
    }
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn of_type(kind: &TypeKind, node: Option<&Value>) -> String {
    use jsonschema::JsonType;
    let one = |kind: JsonType| match kind {
        JsonType::String => "text".to_owned(),
        JsonType::Boolean => "true or false".to_owned(),
        JsonType::Integer | JsonType::Number => ranged(node),
        JsonType::Array => "a list".to_owned(),
        JsonType::Object => "an object".to_owned(),
        JsonType::Null => "null".to_owned(),
    };
    match kind {
        TypeKind::Single(kind) => one(*kind),
        TypeKind::Multiple(kinds) => kinds.iter().map(one).collect::<Vec<_>>().join(" or "),
    }
}

/// `an integer between 1 and 10`, `a number of 0 or more`.
fn ranged(node: Option<&Value>) -> String {
    let of = |name: &str| node.and_then(|node| node.get(name)).filter(|value| value.is_number());
    let kind = match node.and_then(|node| node.get("type")).and_then(Value::as_str) {
        Some("integer") => "an integer",
        _ => "a number",
    };
    match (of("minimum"), of("maximum"), of("exclusiveMinimum"), of("exclusiveMaximum")) {
        (Some(low), Some(high), _, _) => format!("{kind} between {low} and {high}"),
        (Some(low), None, _, None) => format!("{kind} of {low} or more"),
        (None, Some(high), None, _) => format!("{kind} of {high} or less"),
        (_, _, Some(low), None) => format!("{kind} above {low}"),
        (_, _, None, Some(high)) => format!("{kind} below {high}"),
        (_, _, Some(low), Some(high)) => format!("{kind} above {low} and below {high}"),
        (None, None, None, None) => kind.to_owned(),
    }
}

/// Returns the schema at a pointer.
fn node_at<'a>(schema: &'a Value, pointer: &str) -> Option<&'a Value> {
    let place = pointer.split('/').skip(1).fold(Nodes::of(Some(schema)), |nodes, part| {
        let part = part.replace("~1", "/").replace("~0", "~");
        let member = nodes.member(&part);
        match part.parse() {
            Ok(index) if member.is_empty() => nodes.entry(index),
            _ => member,
        }
    });
    place.first()
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn line(schema: Value, options: Value) -> String {
        match check("notes", &schema, options.as_object().unwrap()) {
            Ok(()) => "fits".to_owned(),
            Err(problem) => problem.to_string().replace("plugin notes skipped: ", ""),
        }
    }

    #[test]
    fn what_an_option_must_be_is_said_in_words() {
        let one = |node: Value, value: Value| {
            line(json!({ "properties": { "key": node } }), json!({ "key": value }))
        };
        insta::assert_snapshot!(one(json!({ "type": "string" }), json!(5)), @"plugins.notes.options.key must be text");
        insta::assert_snapshot!(one(json!({ "type": "integer" }), json!(1.5)), @"plugins.notes.options.key must be an integer");
        insta::assert_snapshot!(one(json!({ "type": "integer", "minimum": 0, "maximum": 9 }), json!(10)), @"plugins.notes.options.key must be an integer between 0 and 9");
        insta::assert_snapshot!(one(json!({ "type": "integer", "minimum": 0, "maximum": 9 }), json!("x")), @"plugins.notes.options.key must be an integer between 0 and 9");
        insta::assert_snapshot!(one(json!({ "type": "number", "exclusiveMinimum": 0 }), json!(0)), @"plugins.notes.options.key must be a number above 0");
        insta::assert_snapshot!(one(json!({ "type": "boolean" }), json!("yes")), @"plugins.notes.options.key must be true or false");
        insta::assert_snapshot!(one(json!({ "enum": ["a", "b", 3] }), json!("c")), @"plugins.notes.options.key must be one of a, b, 3");
        insta::assert_snapshot!(one(json!({ "type": "array", "items": { "type": "string" } }), json!(["a", 5])), @"plugins.notes.options.key[1] must be text");
        insta::assert_snapshot!(one(json!({ "type": "object", "additionalProperties": { "type": "string" } }), json!({ "A B": 5 })), @"plugins.notes.options.key.A B must be text");
        insta::assert_snapshot!(one(json!({ "type": ["string", "null"] }), json!(5)), @"plugins.notes.options.key must be null or text");
        insta::assert_snapshot!(one(json!({ "type": "string", "minLength": 1 }), json!("")), @"plugins.notes.options.key must be text of at least 1 character");
        insta::assert_snapshot!(one(json!({ "type": "string", "pattern": "^a" }), json!("b")), @"plugins.notes.options.key must be text that matches ^a");
        insta::assert_snapshot!(one(json!({ "type": "object", "properties": {}, "additionalProperties": false }), json!({ "x": 1 })), @"plugins.notes.options.key must not hold x");
        insta::assert_snapshot!(line(json!({ "required": ["key"] }), json!({})), @"plugins.notes.options.key must be given");
        insta::assert_snapshot!(line(json!({ "properties": { "key": { "type": 5 } } }), json!({ "key": 1 })), @r#"its optionsSchema does not hold: properties.key.type cannot be 5: a type is one of array, boolean, integer, null, number, object, string, or a list of these"#);
        let schema = |node: Value| line(json!({ "properties": { "key": node } }), json!({ "key": 1 }));
        insta::assert_snapshot!(schema(json!({ "type": "strng" })), @r#"its optionsSchema does not hold: properties.key.type cannot be "strng": a type is one of array, boolean, integer, null, number, object, string, or a list of these"#);
        insta::assert_snapshot!(schema(json!({ "minimum": "1" })), @r#"its optionsSchema does not hold: properties.key.minimum cannot be "1": value is not of type "number""#);
        insta::assert_snapshot!(schema(json!({ "items": 5 })), @r#"its optionsSchema does not hold: properties.key.items cannot be 5: value is not of types "boolean", "object""#);
        insta::assert_snapshot!(schema(json!("text")), @r#"its optionsSchema does not hold: properties.key cannot be "text": value is not of types "boolean", "object""#);
        insta::assert_snapshot!(schema(json!({ "pattern": "(" })), @r#"its optionsSchema does not hold: properties.key.pattern cannot be "(": value is not a "regex""#);
        insta::assert_snapshot!(schema(json!({ "properties": { "in": { "enum": "x".repeat(90) } } })), @r#"its optionsSchema does not hold: properties.key.properties.in.enum cannot be "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…: value is not of type "array""#);
        insta::assert_snapshot!(line(json!([]), json!({})), @"its optionsSchema is not an object");
    }

    #[test]
    fn each_requirement_has_its_words() {
        for (node, value, words) in [
            (json!({ "const": "a" }), json!("b"), "be a"),
            (json!({ "minimum": 1 }), json!(0), "be a number of 1 or more"),
            (json!({ "maximum": 1 }), json!(2), "be a number of 1 or less"),
            (json!({ "exclusiveMinimum": 1 }), json!(1), "be a number above 1"),
            (json!({ "exclusiveMaximum": 1 }), json!(1), "be a number below 1"),
            (
                json!({ "exclusiveMinimum": 1, "exclusiveMaximum": 3 }),
                json!(3),
                "be a number above 1 and below 3",
            ),
            (json!({ "maxLength": 2 }), json!("abc"), "be text of at most 2 characters"),
            (json!({ "minItems": 1 }), json!([]), "be a list of at least 1 entry"),
            (json!({ "maxItems": 2 }), json!([1, 2, 3]), "be a list of at most 2 entries"),
            (json!({ "multipleOf": 5 }), json!(6), "be a multiple of 5"),
            (json!({ "uniqueItems": true }), json!([1, 1]), "be a list without repeats"),
            (json!({ "not": {} }), json!(1), "have one of the forms its schema allows"),
            (json!({ "format": "email" }), json!("x"), "be an email address"),
            (json!({ "format": "uri" }), json!("x"), "be a URI, such as https://example.com/hay"),
            (json!({ "format": "date" }), json!("x"), "be a date, such as 2026-11-23"),
            (
                json!({ "format": "date-time" }),
                json!("x"),
                "be a date and a time with its offset, such as 2026-11-23T17:30:00Z",
            ),
            (json!({ "format": "uuid" }), json!("x"), "be text of the form uuid"),
        ] {
            let schema = json!({ "properties": { "key": node } });
            let member = json!({ "key": value });
            let found = misfit(&schema, member.as_object().unwrap());
            assert_eq!(found, Ok(Some(words.to_owned())), "{schema}");
            assert_eq!(misfit(&schema, &JsonObject::new()), Ok(None));
            if schema["properties"]["key"].get("format").is_some() {
                assert_eq!(line(schema, member), "fits", "options are not checked for formats");
            }
        }
        assert_eq!(misfit(&json!([]), &JsonObject::new()), Err("is not an object".to_owned()));
    }

    #[test]
    fn the_range_of_a_nested_number_is_in_the_message() {
        let entry = json!({ "type": "integer", "minimum": 1 });
        for node in [
            json!({ "type": "array", "items": entry }),
            json!({ "type": "array", "prefixItems": [{}, entry] }),
        ] {
            let schema = json!({ "properties": { "key": node } });
            assert_eq!(
                line(schema, json!({ "key": [1, 0] })),
                "plugins.notes.options.key[1] must be an integer of 1 or more"
            );
        }
        let schema = json!({ "properties": { "key": { "properties": { "1": entry }, "items": {} } } });
        assert_eq!(
            line(schema, json!({ "key": { "1": 0 } })),
            "plugins.notes.options.key[1] must be an integer of 1 or more"
        );
    }

    #[test]
    fn only_the_named_options_are_checked_before_secrets_are_read() {
        let schema = json!({ "required": ["must"], "properties": {
            "a/b": { "type": "string" }, "c": { "properties": { "d": { "type": "string" } } }
        } });
        let of = |options: Value, keys: &[&str]| wrong(&schema, options.as_object().unwrap(), keys);
        let both = json!({ "a/b": 1, "c": { "d": 2 } });
        assert_eq!(of(both.clone(), &["a/b", "c"]).as_deref(), Some(".a/b must be text"));
        assert_eq!(of(both.clone(), &["c"]).as_deref(), Some(".c.d must be text"));
        assert_eq!(of(both, &["must"]), None);
        assert_eq!(of(json!({ "a/b": { "$secret": "host:k" } }), &["a/b"]), None);
        assert_eq!(of(json!({ "a/b": "text" }), &["a/b"]), None);
        assert_eq!(wrong(&json!([]), &JsonObject::new(), &["a"]), None);
    }

    #[test]
    fn a_schema_is_checked_by_itself() {
        assert_eq!(check_schema(&json!({ "properties": { "a": { "type": "string" } } })), Ok(()));
        assert_eq!(check_schema(&json!(true)), Err("is not an object".to_owned()));
        let old = "http://json-schema.org/draft-07/schema#";
        let schema = json!({ "$schema": old, "properties": { "a": { "items": 5 } } });
        assert_eq!(check_schema(&schema), Err("does not hold: properties.a.items cannot be 5".to_owned()));
    }

    #[test]
    fn a_key_the_schema_does_not_name_is_no_failure() {
        let schema = json!({ "properties": { "a": {} }, "patternProperties": { "^x-": {} }, "additionalProperties": false });
        let options = json!({ "a": 1, "b": 2, "x-c": 3 });
        assert_eq!(line(schema.clone(), options.clone()), "fits");
        assert_eq!(unknown_keys(&schema, options.as_object().unwrap()), ["b"]);
    }

    proptest::proptest! {
        /// Whatever is wrong, the line does not hold the value.
        #[test]
        fn a_value_is_never_repeated(secret in "[a-z]{12}") {
            for node in [json!({ "type": "integer" }), json!({ "enum": [1] }), json!({ "type": "string", "maxLength": 3 }),
                json!({ "pattern": "^[0-9]+$" }), json!({ "type": "object" }), json!({ "const": 4 }), json!({ "not": {} }),
                json!({ "oneOf": [{ "type": "integer" }, { "type": "boolean" }] }), json!({ "format": "uuid" })] {
                let schema = json!({ "properties": { "key": node } });
                let said = line(schema, json!({ "key": secret }));
                proptest::prop_assert!(!said.contains(&secret), "{said}");
            }
        }
    }
}
