//! Reads the body of a request as the type its row declares. What is wrong is said in terms of the schema.

use std::marker::PhantomData;

use ostler_contract::{JsonObject, Value};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;

use crate::exit::Exit;

/// Reads bodies of one type.
pub(super) struct Reader<B> {
    schema: Value,
    of: PhantomData<fn() -> B>,
}

impl<B: DeserializeOwned + JsonSchema> Reader<B> {
    pub(super) fn new() -> Self {
        let schema = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        Self { schema: schema.into_root_schema_for::<B>().to_value(), of: PhantomData }
    }

    /// The body, or the first member that is missing or of another type.
    pub(super) fn read(&self, fields: JsonObject) -> Result<B, Exit> {
        let required = self.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(missing) = required.into_iter().find(|key| !fields.contains_key(*key)) {
            return Err(Exit::usage(format!("{missing} is required in the body")));
        }
        let declared = self.schema["properties"].as_object().into_iter().flatten();
        for (key, node) in declared {
            if let Some(expected) = fields.get(key).and_then(|value| unlike(value, node)) {
                return Err(Exit::usage(format!("{key} must {expected}")));
            }
        }
        serde_json::from_value(Value::Object(fields))
            .map_err(|error| Exit::usage(format!("The body has an unexpected shape: {error}")))
    }
}

/// What a value has to be, where it is something else.
fn unlike(value: &Value, node: &Value) -> Option<&'static str> {
    let types: Vec<&str> = match &node["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => {
            let items = &node["items"];
            value.as_array().is_some_and(|entries| entries.iter().all(|entry| unlike(entry, items).is_none()))
        }
        _ => true,
    };
    if types.iter().any(|name| is(name)) {
        let empty = value.as_str() == Some("") && node["minLength"].as_u64().is_some_and(|least| least > 0);
        return empty.then_some("not be empty");
    }
    Some(match types.first().copied() {
        Some("string") => "be text",
        Some("boolean") => "be true or false",
        Some("array") => "be a list of strings",
        Some("object") => "be an object",
        _ => "have another type",
    })
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::super::shapes::{AddUser, ConfigurePlugin, InstallPlugin, SetOption};
    use super::*;

    fn wrong<B: DeserializeOwned + JsonSchema>(body: Value) -> String {
        let Value::Object(fields) = body else { panic!("{body}") };
        Reader::<B>::new().read(fields).err().map_or_else(String::new, |exit| exit.to_string())
    }

    #[test]
    fn what_is_wrong_in_a_body_is_named() {
        assert_eq!(wrong::<InstallPlugin>(json!({})), "name is required in the body");
        assert_eq!(wrong::<InstallPlugin>(json!({ "name": 5 })), "name must be text");
        assert_eq!(wrong::<InstallPlugin>(json!({ "name": "" })), "name must not be empty");
        assert_eq!(
            wrong::<InstallPlugin>(json!({ "name": "a", "enable": "no" })),
            "enable must be true or false"
        );
        assert_eq!(wrong::<AddUser>(json!({ "id": "a", "roles": "b" })), "roles must be a list of strings");
        assert_eq!(wrong::<AddUser>(json!({ "id": "a", "roles": [1] })), "roles must be a list of strings");
        assert_eq!(wrong::<SetOption>(json!({ "name": "a", "key": "b" })), "value is required in the body");
        assert_eq!(wrong::<SetOption>(json!({ "name": "a", "key": "b", "value": null })), "");
        let options = json!({ "name": "a", "options": [] });
        assert_eq!(wrong::<ConfigurePlugin>(options), "options must be an object");
        assert_eq!(wrong::<ConfigurePlugin>(json!({ "name": "a", "options": null, "more": 1 })), "");
    }
}
