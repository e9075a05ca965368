//! Reads the query of a request as the type its row declares.

use std::marker::PhantomData;
use std::sync::LazyLock;

use ostler_contract::{JsonObject, Value};
use ostler_protocol::run_list::RunFilter;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;

use super::list_shapes::{SessionDetail, SessionFilter};
use crate::exit::Exit;

/// The parameter of a query that is the caller's token.
const TOKEN: &str = "tkn";

/// A type that a query is read as.
pub trait Query: DeserializeOwned + JsonSchema + Send + 'static {
    /// The schemas of its parameters, by name. Each is optional, and never `null`.
    fn parameters() -> &'static JsonObject;
}

macro_rules! queries {
    ($($query:ty),*) => {
        $(impl Query for $query {
            fn parameters() -> &'static JsonObject {
                static PARAMETERS: LazyLock<JsonObject> = LazyLock::new(parameters::<$query>);
                &PARAMETERS
            }
        })*
    };
}

queries!(RunFilter, SessionFilter, SessionDetail);

fn parameters<Q: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let generator = settings.with(|with| with.inline_subschemas = true).into_generator();
    let mut schema = generator.into_root_schema_for::<Q>().to_value();
    let Value::Object(mut properties) = schema["properties"].take() else { return JsonObject::new() };
    for node in properties.values_mut() {
        let first = node["type"].as_array().and_then(|types| types.first()).cloned();
        if let Some(first) = first {
            node["type"] = first;
        }
        // A parameter without a value is a mistake of its sender, not one that is left out.
        if node["type"] == "string" && node.get("enum").is_none() {
            node["minLength"] = 1.into();
        }
    }
    properties
}

/// Reads queries of one type.
pub(super) struct Reader<Q>(PhantomData<fn() -> Q>);

impl<Q: Query> Reader<Q> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }

    /// The parameters, or the first one that is unknown, repeated or has an unexpected value.
    pub(super) fn read(&self, query: Option<&str>) -> Result<Q, Exit> {
        let mut fields = JsonObject::new();
        for (name, text) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if name == TOKEN {
                continue;
            }
            let node = Q::parameters().get(&*name).ok_or_else(|| {
                let known: Vec<&str> = Q::parameters().keys().map(String::as_str).collect();
                Exit::usage(format!("unknown parameter {name}; the parameters are {}", known.join(", ")))
            })?;
            let value =
                value(&text, node).map_err(|expected| Exit::usage(format!("{name} must be {expected}")))?;
            if fields.insert(name.to_string(), value).is_some() {
                return Err(Exit::usage(format!("{name} is given more than once")));
            }
        }
        serde_json::from_value(Value::Object(fields))
            .map_err(|error| Exit::usage(format!("The query has an unexpected shape: {error}")))
    }
}

/// A value of a parameter, or what it has to be.
pub(crate) fn value(text: &str, node: &Value) -> Result<Value, String> {
    match node["type"].as_str() {
        Some("integer") => {
            let (least, most) =
                (node["minimum"].as_u64().unwrap_or(0), node["maximum"].as_u64().unwrap_or(u64::MAX));
            let number = text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
            number.map(Value::from).ok_or_else(|| format!("an integer between {least} and {most}"))
        }
        Some("boolean") => text.parse::<bool>().map(Value::from).map_err(|_| "true or false".to_owned()),
        _ => {
            if text.is_empty() && node["minLength"].as_u64().is_some_and(|least| least > 0) {
                return Err("text that is not empty".to_owned());
            }
            if let Some(choices) = node["enum"].as_array() {
                let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
                if !choices.contains(&text) {
                    return Err(format!("one of {}", choices.join(", ")));
                }
            }
            if node["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
                return Err("a time such as 2027-01-01T00:00:00Z".to_owned());
            }
            Ok(text.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong<Q: Query>(query: &str) -> String {
        Reader::<Q>::new().read(Some(query)).err().map_or_else(String::new, |exit| exit.to_string())
    }

    #[test]
    fn a_query_is_read_as_its_type() {
        let read = |query: &str| Reader::<RunFilter>::new().read(Some(query)).unwrap();
        let all =
            read("automation=a%20b&state=failed&limit=3&since=2027-01-01T00:00:00Z&text=x+y&tkn=secret");
        assert_eq!((all.automation.as_deref(), all.state.as_deref()), (Some("a b"), Some("failed")));
        assert_eq!((all.limit, all.text.as_deref()), (Some(3), Some("x y")));
        assert_eq!(Reader::<RunFilter>::new().read(None).unwrap().limit, None);
        let waiting = Reader::<SessionFilter>::new().read(Some("waiting=true&archived=false")).unwrap();
        assert_eq!((waiting.waiting, waiting.archived), (Some(true), Some(false)));
    }

    #[test]
    fn what_is_wrong_in_a_query_is_named() {
        for (query, says) in [
            ("limit=0", "limit must be an integer between 1 and 500"),
            ("limit=", "limit must be an integer between 1 and 500"),
            ("cursor=", "cursor must be text that is not empty"),
            ("text=", "text must be text that is not empty"),
            ("automation=", "automation must be text that is not empty"),
            ("limit=501", "limit must be an integer between 1 and 500"),
            ("limit=1&limit=2", "limit is given more than once"),
            ("state=ended", "state must be one of pending, running, completed, failed, cancelled"),
            ("since=yesterday", "since must be a time such as 2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(wrong::<RunFilter>(query), says, "{query}");
        }
        assert_eq!(wrong::<SessionFilter>("waiting=maybe"), "waiting must be true or false");
        assert!(
            wrong::<SessionFilter>("state=failed")
                .starts_with("unknown parameter state; the parameters are ")
        );
    }
}
