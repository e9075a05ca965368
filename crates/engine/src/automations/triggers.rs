//! Which automations an event wakes: indexed by one of the values they ask for, so that a fire looks only at
//! those it may wake.

use std::collections::{HashMap, HashSet};

use ostler_contract::points::TriggerType;
use ostler_contract::settings::drawn;
use ostler_contract::{JsonObject, Value};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationTrigger, AutomationTriggerDefinition, AutomationTriggerEventDefinition,
};

use crate::host::Host;

/// A trigger of an automation that events may wake.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiting {
    /// The automation.
    pub automation: String,
    /// The trigger.
    pub trigger: String,
    /// What the trigger is called.
    pub title: String,
    config: JsonObject,
}

/// A trigger whose config lacks what its type asks for: no event wakes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lacking {
    /// The trigger.
    pub trigger: String,
    /// Its type.
    pub r#type: String,
    /// The key its type's `configSchema` requires.
    pub key: String,
}

impl Lacking {
    /// The line that says what to write.
    pub fn line(&self, automation: &str) -> String {
        let Self { trigger, r#type, key } = self;
        format!(
            "automation {automation}: its trigger {trigger} of type {type} names no {key}, so no event wakes it; \
             write config: {{ {key}: <{key}> }}"
        )
    }
}

/// The triggers of an automation that lack what their types ask for.
pub(super) fn lacking(host: &Host, definition: &AutomationDefinition) -> Vec<Lacking> {
    let types = host.registry().map(|registry| registry.all::<TriggerType>()).unwrap_or_default();
    let mut lacking = Vec::new();
    for trigger in &definition.triggers {
        let AutomationTrigger::Event(trigger) = trigger else { continue };
        let Some(kind) = types.iter().find(|held| *held.r#type == *trigger.r#type) else { continue };
        let required = kind.config_schema.as_ref().and_then(|schema| schema.get("required")?.as_array());
        let missing = |key: &&str| {
            let value = trigger.config.as_ref().and_then(|config| config.get(*key));
            value.is_none_or(Value::is_null)
        };
        if let Some(key) = required.into_iter().flatten().filter_map(Value::as_str).find(missing) {
            lacking.push(Lacking {
                trigger: trigger.id.clone(),
                r#type: trigger.r#type.clone(),
                key: key.to_owned(),
            });
        }
    }
    lacking
}

/// The triggers that wait for one event.
#[derive(Debug, Default)]
struct Waiters {
    /// By the first key of their config and its value.
    by_value: HashMap<(String, String), Vec<Waiting>>,
    /// The keys above.
    keys: HashMap<String, usize>,
    /// Without a config: every fire wakes them.
    any: Vec<Waiting>,
}

/// Triggers by event type and event id.
#[derive(Debug, Default)]
pub(super) struct Index {
    events: HashMap<(String, String), Waiters>,
    /// Where an automation stands above.
    of: HashMap<String, Vec<(String, String)>>,
}

impl Index {
    /// Puts an automation's triggers in place of what it had, but for those that nothing wakes.
    pub fn set(&mut self, id: &str, definition: &AutomationDefinition, lacking: &[Lacking]) {
        self.remove(id);
        if !definition.enabled {
            return;
        }
        for trigger in &definition.triggers {
            let AutomationTrigger::Event(trigger) = trigger else { continue };
            if lacking.iter().any(|lacking| lacking.trigger == trigger.id) {
                continue;
            }
            let waiting = Waiting {
                automation: id.to_owned(),
                trigger: trigger.id.clone(),
                title: trigger.title.clone(),
                config: trigger.config.clone().unwrap_or_default(),
            };
            let events: HashSet<&String> = trigger.events.iter().map(|event| &event.id).collect();
            for event in events {
                let key = (trigger.r#type.clone(), event.clone());
                self.events.entry(key.clone()).or_default().add(waiting.clone());
                self.of.entry(id.to_owned()).or_default().push(key);
            }
        }
    }

    /// Takes an automation's triggers out.
    pub fn remove(&mut self, id: &str) {
        for key in self.of.remove(id).unwrap_or_default() {
            if let Some(waiters) = self.events.get_mut(&key) {
                waiters.remove(id);
            }
        }
    }

    /// The triggers a fire wakes, one per automation, in the order of their ids.
    pub fn matching(&self, r#type: &str, event: &str, data: &JsonObject) -> Vec<Waiting> {
        // Nobody builds keys for an event nobody waits for.
        let Some(waiters) = self.events.get(&(r#type.to_owned(), event.to_owned())) else {
            return Vec::new();
        };
        let mut found: Vec<&Waiting> =
            waiters.candidates(data).filter(|waiting| matches(&waiting.config, data)).collect();
        found.sort_by(|a, b| a.automation.cmp(&b.automation));
        found.dedup_by(|later, first| later.automation == first.automation);
        found.into_iter().cloned().collect()
    }
}

impl Waiters {
    fn add(&mut self, waiting: Waiting) {
        match first_of(&waiting.config) {
            Some((key, value)) => {
                *self.keys.entry(key.clone()).or_default() += 1;
                self.by_value.entry((key, value)).or_default().push(waiting);
            }
            None => self.any.push(waiting),
        }
    }

    fn remove(&mut self, id: &str) {
        self.any.retain(|waiting| waiting.automation != id);
        let keys = &mut self.keys;
        self.by_value.retain(|(key, _), list| {
            let before = list.len();
            list.retain(|waiting| waiting.automation != id);
            if let Some(count) = keys.get_mut(key) {
                *count -= before - list.len();
            }
            !list.is_empty()
        });
        self.keys.retain(|_, count| *count > 0);
    }

    /// Every trigger that may match: those whose indexed key has this value, and those whose key the data
    /// lacks, which never blocks.
    fn candidates<'a>(&'a self, data: &'a JsonObject) -> impl Iterator<Item = &'a Waiting> {
        let by_value = self.keys.keys().flat_map(move |key| {
            let lists: Vec<&Vec<Waiting>> = match data.get(key) {
                Some(value) => self.by_value.get(&(key.clone(), canonical(value))).into_iter().collect(),
                None => {
                    self.by_value.iter().filter(|((held, _), _)| held == key).map(|(_, list)| list).collect()
                }
            };
            lists.into_iter().flatten()
        });
        self.any.iter().chain(by_value)
    }
}

fn first_of(config: &JsonObject) -> Option<(String, String)> {
    config.iter().next().map(|(key, value)| (key.clone(), canonical(value)))
}

/// A config matches data when every key both hold has the same value, compared as JSON.
pub(super) fn matches(config: &JsonObject, data: &JsonObject) -> bool {
    config.iter().all(|(key, wanted)| data.get(key).is_none_or(|given| same(wanted, given)))
}

/// JSON knows no difference between `1` and `1.0`, nor between orders of keys.
fn same(a: &Value, b: &Value) -> bool {
    a == b || canonical(a) == canonical(b)
}

/// One text for values that are the same as JSON.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => {
            number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string())
        }
        Value::Array(entries) => {
            let entries: Vec<String> = entries.iter().map(canonical).collect();
            format!("[{}]", entries.join(","))
        }
        Value::Object(fields) => {
            let mut fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            fields.sort_unstable();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}

/// The plugins' trigger types, as clients draw them.
pub(super) fn registered(host: &Host) -> Vec<AutomationTriggerDefinition> {
    let Some(registry) = host.registry() else { return Vec::new() };
    let wire = |definition: &TriggerType| AutomationTriggerDefinition {
        r#type: definition.r#type.to_string(),
        title: definition.title.to_string(),
        description: definition.description.clone(),
        events: definition
            .events
            .iter()
            .map(|event| AutomationTriggerEventDefinition {
                id: event.id.to_string(),
                title: event.title.to_string(),
                description: event.description.clone(),
            })
            .collect(),
        config_schema: definition
            .config_schema
            .clone()
            .and_then(|schema| serde_json::from_value(drawn(Value::Object(schema))).ok()),
    };
    registry.all::<TriggerType>().iter().map(|definition| wire(definition)).collect()
}

#[cfg(test)]
mod tests {
    use ostler_protocol::json;

    use super::*;

    fn definition(enabled: bool, config: Value) -> AutomationDefinition {
        serde_json::from_value(json!({
            "title": "t", "enabled": enabled, "session": {},
            "message": { "text": "m", "origin": { "kind": "automation" } },
            "triggers": [{ "id": "on", "kind": "event", "type": "webhook", "title": "T",
                "events": [{ "id": "call", "title": "C" }], "config": config }],
        }))
        .expect("a definition")
    }

    fn object(value: Value) -> JsonObject {
        value.as_object().cloned().expect("an object")
    }

    fn woken(index: &Index, data: Value) -> Vec<String> {
        index
            .matching("webhook", "call", &object(data))
            .into_iter()
            .map(|waiting| waiting.automation)
            .collect()
    }

    #[test]
    fn shared_keys_have_to_be_equal_and_nothing_else() {
        let mut index = Index::default();
        index.set("all", &definition(true, json!({})), &[]);
        index.set("deploy", &definition(true, json!({ "endpoint": "deploy" })), &[]);
        index.set("main", &definition(true, json!({ "endpoint": "deploy", "ref": "main" })), &[]);
        index.set("number", &definition(true, json!({ "n": 1 })), &[]);
        index.set("off", &definition(false, json!({})), &[]);
        assert_eq!(
            woken(&index, json!({ "endpoint": "deploy", "ref": "main", "n": 1.0 })),
            ["all", "deploy", "main", "number"]
        );
        assert_eq!(woken(&index, json!({ "endpoint": "deploy", "ref": "dev", "n": 2 })), ["all", "deploy"]);
        assert_eq!(woken(&index, json!({ "endpoint": "other", "n": "1" })), ["all"]);
        assert_eq!(
            woken(&index, json!({})),
            ["all", "deploy", "main", "number"],
            "a key the data lacks never blocks"
        );
        index.remove("all");
        index.set("deploy", &definition(false, json!({})), &[]);
        assert_eq!(woken(&index, json!({ "endpoint": "deploy", "n": 0 })), ["main"]);
        assert!(index.matching("webhook", "other", &JsonObject::new()).is_empty());
    }

    proptest::proptest! {
        /// The index wakes exactly those a look at each would.
        #[test]
        fn the_index_agrees_with_a_look_at_each(
            configs in proptest::collection::vec(proptest::collection::btree_map("[a-c]", 0..3, 0..3), 0..12),
            data in proptest::collection::btree_map("[a-c]", 0..3, 0..4),
        ) {
            let data = object(json!(data));
            let mut index = Index::default();
            for (at, config) in configs.iter().enumerate() {
                index.set(&format!("a{at:02}"), &definition(true, json!(config)), &[]);
            }
            let expected: Vec<String> = configs
                .iter()
                .enumerate()
                .filter(|(_, config)| matches(&object(json!(config)), &data))
                .map(|(at, _)| format!("a{at:02}"))
                .collect();
            proptest::prop_assert_eq!(woken(&index, Value::Object(data)), expected);
        }
    }
}
