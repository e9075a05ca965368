//! Data that sessions share in memory: the schemas of their settings and the tools of the host. A session's own state
//! omits them; they are added when it is encoded.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use ostler_protocol::wire::state::{
    SessionConfigPropertySchema, SessionConfigSchema, SessionState, ToolDefinition,
};
use ostler_protocol::{JsonObject, Value, Version};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::client_versions;
use crate::Sessions;

/// Maximum number of schemas to compare a new one with. Sessions whose schemas all differ share none.
const COMPARED: usize = 32;

/// The schemas of the awake sessions.
#[derive(Debug, Default)]
pub struct SharedSchemas(Mutex<Vec<Weak<SharedSchema>>>);

/// The schema of the settings of a backend's sessions.
#[derive(Debug)]
struct SharedSchema {
    provider: String,
    parsed: SessionConfigSchema,
    /// As JSON, in the order of the declarations.
    ordered: Box<RawValue>,
}

impl SharedSchemas {
    /// Returns another session's schema if it is equal, otherwise the given one.
    fn share(
        &self,
        provider: &str,
        parsed: SessionConfigSchema,
        ordered: impl FnOnce(&SessionConfigSchema) -> Value,
    ) -> Arc<SharedSchema> {
        let mut known = self.0.lock();
        known.retain(|known| known.strong_count() > 0);
        let is_same = |known: &Arc<SharedSchema>| known.provider == provider && known.parsed == parsed;
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(is_same) {
            return same;
        }
        let ordered = to_raw_value(&ordered(&parsed)).unwrap_or_default();
        let schema = Arc::new(SharedSchema { provider: provider.to_owned(), parsed, ordered });
        if known.len() < COMPARED {
            known.push(Arc::downgrade(&schema));
        }
        schema
    }
}

/// The parts of a session's state that it shares with other sessions.
#[derive(Debug)]
pub(super) struct SharedState {
    schema: Option<Arc<SharedSchema>>,
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
    schema: &'a RawValue,
    values: &'a JsonObject,
}

impl SharedState {
    /// Moves the schema of a session's settings out of its state. The state does not contain the host's tools.
    pub fn take(sessions: &Sessions, state: &mut SessionState) -> Self {
        let tools = sessions.core.offered_tools();
        let schema = state.config.as_mut().map(|config| {
            let none =
                SessionConfigSchema { r#type: String::new(), properties: HashMap::new(), required: None };
            let schema = std::mem::replace(&mut config.schema, none);
            shared(sessions, &state.provider, schema)
        });
        Self { schema, tools: tools.map(|tool| tool.definition.clone()).collect() }
    }

    /// Returns the properties of the session's settings.
    pub fn properties(&self) -> Option<&HashMap<String, SessionConfigPropertySchema>> {
        self.schema.as_ref().map(|schema| &schema.parsed.properties)
    }

    /// Adds properties to the session's settings.
    pub fn add(&mut self, sessions: &Sessions, properties: HashMap<String, SessionConfigPropertySchema>) {
        if let Some(schema) = &self.schema {
            let mut parsed = schema.parsed.clone();
            parsed.properties.extend(properties);
            self.schema = Some(shared(sessions, &schema.provider.clone(), parsed));
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
                .map(|(schema, config)| ConfigFields { schema: &schema.ordered, values: &config.values }),
        };
        let fields = serde_json::to_string(&fields);
        state.config = config;
        join(own?, &fields.ok()?)
    }
}

fn shared(sessions: &Sessions, provider: &str, schema: SessionConfigSchema) -> Arc<SharedSchema> {
    sessions.schemas.shared.share(provider, schema, |schema| sessions.ordered_schema(provider, schema))
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
        let share = |title| schemas.share("p", schema(title), |schema| serde_json::json!(schema));
        let one = share("one");
        assert!(Arc::ptr_eq(&one, &share("one")));
        assert!(!Arc::ptr_eq(&one, &share("two")));
        drop(one);
        let _again = share("one");
        assert_eq!(schemas.0.lock().len(), 1);
    }
}
