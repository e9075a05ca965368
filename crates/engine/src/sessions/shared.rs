//! Data that sessions share in memory: the schemas of their settings and the tools of the host. A session's own state
//! omits them; they are added when it is encoded.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use ostler_protocol::wire::state::{
    SessionConfigPropertySchema, SessionConfigSchema, SessionState, ToolDefinition,
};
use ostler_protocol::{JsonObject, Version};
use parking_lot::Mutex;
use serde::Serialize;

use super::client_versions;
use crate::core::agents::OfferedTool;

/// Maximum number of schemas to compare a new one with. Sessions whose schemas all differ share none.
const COMPARED: usize = 32;

/// The schemas of the awake sessions.
#[derive(Debug, Default)]
pub(crate) struct SharedSchemas(Mutex<Vec<Weak<SessionConfigSchema>>>);

impl SharedSchemas {
    /// Returns another session's schema if it is equal, otherwise the given one.
    fn share(&self, schema: SessionConfigSchema) -> Arc<SessionConfigSchema> {
        let mut known = self.0.lock();
        known.retain(|known| known.strong_count() > 0);
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(|known| **known == schema) {
            return same;
        }
        let schema = Arc::new(schema);
        if known.len() < COMPARED {
            known.push(Arc::downgrade(&schema));
        }
        schema
    }
}

/// The parts of a session's state that it shares with other sessions.
#[derive(Debug)]
pub(super) struct SharedState {
    schema: Option<Arc<SessionConfigSchema>>,
    /// The host's tools at the time the session was created or woken.
    tools: Box<[Arc<ToolDefinition>]>,
}

/// The shared fields of a session's state, in their encoded form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SharedFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    server_tools: Option<Vec<&'a ToolDefinition>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<ConfigFields<'a>>,
}

#[derive(Serialize)]
struct ConfigFields<'a> {
    schema: &'a SessionConfigSchema,
    values: &'a JsonObject,
}

impl SharedState {
    /// Moves the schema of a session's settings out of its state. The state does not contain the host's tools.
    pub fn take<'a>(
        schemas: &SharedSchemas,
        tools: impl Iterator<Item = &'a OfferedTool>,
        state: &mut SessionState,
    ) -> Self {
        let schema = state.config.as_mut().map(|config| {
            let none =
                SessionConfigSchema { r#type: String::new(), properties: HashMap::new(), required: None };
            schemas.share(std::mem::replace(&mut config.schema, none))
        });
        Self { schema, tools: tools.map(|tool| tool.definition.clone()).collect() }
    }

    /// Returns the properties of the session's settings.
    pub fn properties(&self) -> Option<&HashMap<String, SessionConfigPropertySchema>> {
        self.schema.as_ref().map(|schema| &schema.properties)
    }

    /// Adds properties to the session's settings.
    pub fn add(&mut self, schemas: &SharedSchemas, properties: HashMap<String, SessionConfigPropertySchema>) {
        if let Some(schema) = &self.schema {
            let mut schema = SessionConfigSchema::clone(schema);
            schema.properties.extend(properties);
            self.schema = Some(schemas.share(schema));
        }
    }

    /// Encodes a session's state as JSON for a version of the protocol.
    pub fn encode(&self, state: &mut SessionState, version: Version) -> Option<String> {
        let config = state.config.take();
        let own = match version {
            Version::V0_9 => client_versions::session(state).map(|state| state.to_string()),
            _ => serde_json::to_string(state).ok(),
        };
        let fields = SharedFields {
            // A backend may have set the session's tools itself.
            server_tools: state
                .server_tools
                .is_none()
                .then(|| self.tools.iter().map(AsRef::as_ref).collect()),
            config: self
                .schema
                .as_ref()
                .zip(config.as_ref())
                .map(|(schema, config)| ConfigFields { schema, values: &config.values }),
        };
        let fields = serde_json::to_string(&fields);
        state.config = config;
        join(own?, &fields.ok()?)
    }
}

/// Merges two objects that are JSON text into one.
fn join(mut one: String, other: &str) -> Option<String> {
    let other = other.strip_prefix('{').filter(|fields| *fields != "}");
    if let Some(other) = other {
        one.pop().filter(|last| *last == '}')?;
        if !one.ends_with('{') {
            one.push(',');
        }
        one.push_str(other);
    }
    Some(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_joined() {
        let joined = |one: &str, other| join(one.to_owned(), other);
        assert_eq!(joined("{\"a\":1}", "{\"b\":{}}").as_deref(), Some("{\"a\":1,\"b\":{}}"));
        assert_eq!(joined("{}", "{\"b\":1}").as_deref(), Some("{\"b\":1}"));
        assert_eq!(joined("{\"a\":1}", "{}").as_deref(), Some("{\"a\":1}"));
    }

    #[test]
    fn equal_schemas_are_shared_while_a_session_has_one() {
        let schema = |title: &str| SessionConfigSchema {
            r#type: title.to_owned(),
            properties: HashMap::new(),
            required: None,
        };
        let schemas = SharedSchemas::default();
        let one = schemas.share(schema("one"));
        assert!(Arc::ptr_eq(&one, &schemas.share(schema("one"))));
        assert!(!Arc::ptr_eq(&one, &schemas.share(schema("two"))));
        drop(one);
        let _again = schemas.share(schema("one"));
        assert_eq!(schemas.0.lock().len(), 1);
    }
}
