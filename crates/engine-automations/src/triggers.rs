//! An index of triggers by the values they require, so that an event is compared only with the triggers it may fire.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ostler_contract::points::TriggerType;
use ostler_contract::settings::drawn;
use ostler_contract::{JsonObject, Value};
use ostler_protocol::decimal::Decimal;
use ostler_protocol::sent::{SentFields, SentObject, SentValue};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationTrigger, AutomationTriggerDefinition, AutomationTriggerEventDefinition,
};
use serde_json::Number;

use super::unheard::DeclaredTriggers;
use crate::Automations;

/// Decimal numbers with so many digits are floats with their value.
const FLOAT_DIGITS: usize = f64::DIGITS as usize;

/// A trigger of an automation that waits for an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiting {
    /// The automation's id.
    pub automation: String,
    /// The trigger's id.
    pub trigger: String,
    config: JsonObject,
}

/// A trigger whose config lacks a key that its type requires: no event fires it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lacking {
    /// The trigger's id.
    pub trigger: String,
    pub r#type: String,
    /// The key that its type's `configSchema` requires.
    pub key: String,
}

impl Lacking {
    /// Returns the log line that describes what to add.
    pub fn line(&self, automation: &str) -> String {
        let Self { trigger, r#type, key } = self;
        format!(
            "automation {automation}: its trigger {trigger} of type {type} names no {key}, so no event wakes it; \
             write config: {{ {key}: <{key}> }}"
        )
    }
}

/// Returns the triggers of an automation whose config lacks a required key.
pub(super) fn lacking(automations: &Automations, definition: &AutomationDefinition) -> Vec<Lacking> {
    let types = automations.core.registry().map(|registry| registry.all::<TriggerType>()).unwrap_or_default();
    let mut lacking = Vec::new();
    for trigger in &definition.triggers {
        let AutomationTrigger::Event(trigger) = trigger else { continue };
        let Some(kind) = types.iter().find(|held| *held.r#type == *trigger.r#type) else { continue };
        let missing = |key: &&str| {
            let value = trigger.config.as_ref().and_then(|config| config.get(*key));
            value.is_none_or(Value::is_null)
        };
        if let Some(key) = required_keys(kind).find(missing) {
            lacking.push(Lacking {
                trigger: trigger.id.clone(),
                r#type: trigger.r#type.clone(),
                key: key.to_owned(),
            });
        }
    }
    lacking
}

/// Returns the keys that a type requires of the config of each trigger.
pub(super) fn required_keys(kind: &TriggerType) -> impl Iterator<Item = &str> {
    let required = kind.config_schema.as_ref().and_then(|schema| schema.get("required")?.as_array());
    required.into_iter().flatten().filter_map(Value::as_str)
}

/// The triggers that wait for one event, by the keys of their configs.
#[derive(Debug, Default)]
struct Waiters {
    shapes: HashMap<Vec<String>, Shape>,
}

/// Triggers whose configs have the same keys.
#[derive(Debug, Default)]
struct Shape {
    /// By the whole config.
    whole: HashMap<String, Vec<Arc<Waiting>>>,
    /// By the value of each key, for data that has only some of them. A config of one key does not need this.
    by_key: Vec<HashMap<String, Vec<Arc<Waiting>>>>,
}

/// Triggers by event type and event id.
#[derive(Debug, Default)]
pub(super) struct Index {
    events: HashMap<String, HashMap<String, Waiters>>,
    /// The events and triggers of each automation.
    of: HashMap<String, Vec<((String, String), Arc<Waiting>)>>,
    /// Every trigger, also of disabled automations.
    declared: DeclaredTriggers,
}

impl Index {
    /// Replaces an automation's triggers, without those that no event can fire.
    pub fn set(&mut self, id: &str, definition: &AutomationDefinition, lacking: &[Lacking]) {
        self.remove(id);
        self.declared.add(id, definition);
        if !definition.enabled {
            return;
        }
        for trigger in &definition.triggers {
            let AutomationTrigger::Event(trigger) = trigger else { continue };
            if lacking.iter().any(|lacking| lacking.trigger == trigger.id) {
                continue;
            }
            let waiting = Arc::new(Waiting {
                automation: id.to_owned(),
                trigger: trigger.id.clone(),
                config: trigger.config.clone().unwrap_or_default(),
            });
            let events: HashSet<&String> = trigger.events.iter().map(|event| &event.id).collect();
            for event in events {
                let key = (trigger.r#type.clone(), event.clone());
                let of_type = self.events.entry(key.0.clone()).or_default();
                of_type.entry(key.1.clone()).or_default().add(&waiting);
                self.of.entry(id.to_owned()).or_default().push((key, waiting.clone()));
            }
        }
    }

    /// Removes an automation's triggers.
    pub fn remove(&mut self, id: &str) {
        self.declared.remove(id);
        for ((r#type, event), waiting) in self.of.remove(id).unwrap_or_default() {
            let Some(of_type) = self.events.get_mut(&r#type) else { continue };
            if let Some(waiters) = of_type.get_mut(&event) {
                waiters.remove(&waiting);
                if waiters.shapes.is_empty() {
                    of_type.remove(&event);
                }
            }
            if of_type.is_empty() {
                self.events.remove(&r#type);
            }
        }
    }

    /// Returns why an event fired none of the triggers that it is about.
    pub fn unheard(&self, r#type: &str, required: &[String], event: &str, data: &SentObject) -> Vec<String> {
        self.declared.unheard(r#type, required, event, data)
    }

    /// Returns each automation that an event is about, with a trigger and why it does not fire it, sorted by id.
    pub fn about(
        &self,
        r#type: &str,
        required: &[String],
        event: &str,
        data: &SentObject,
    ) -> BTreeMap<String, (String, String)> {
        self.declared.explained(r#type, required, event, data)
    }

    /// Returns the fields of an event's data that decide which triggers match.
    pub fn keys(&self, r#type: &str, event: &str) -> HashSet<String> {
        self.waiters(r#type, event)
            .into_iter()
            .flat_map(|waiters| waiters.shapes.keys().flatten())
            .cloned()
            .collect()
    }

    /// Returns the triggers that an event fires, one per automation and sorted by id, and how many were compared.
    pub fn matching(&self, r#type: &str, event: &str, data: &SentObject) -> (Vec<Arc<Waiting>>, usize) {
        // Without a trigger for the event, no keys are built.
        let Some(waiters) = self.waiters(r#type, event) else { return (Vec::new(), 0) };
        let (mut found, mut looked) = (Vec::new(), 0);
        for (keys, shape) in &waiters.shapes {
            for waiting in shape.candidates(keys, &data.fields) {
                looked += 1;
                if matches(&waiting.config, data.as_sent()) {
                    found.push(waiting.clone());
                }
            }
        }
        found.sort_by(|a, b| a.automation.cmp(&b.automation));
        found.dedup_by(|later, first| later.automation == first.automation);
        (found, looked)
    }

    /// Whether a trigger for an event has these values of keys, each as [`canonical`] writes it, whatever else its config
    /// wants.
    pub fn waits_for(&self, r#type: &str, event: &str, values: &[(String, String)]) -> bool {
        let mut shapes = self.waiters(r#type, event).into_iter().flat_map(|waiters| &waiters.shapes);
        shapes.any(|(keys, shape)| shape.waits_for(keys, values))
    }

    fn waiters(&self, r#type: &str, event: &str) -> Option<&Waiters> {
        self.events.get(r#type)?.get(event)
    }
}

impl Waiters {
    fn add(&mut self, waiting: &Arc<Waiting>) {
        let keys = keys_of(&waiting.config);
        let shape = self.shapes.entry(keys.clone()).or_default();
        shape.whole.entry(values_of(&keys, &waiting.config)).or_default().push(waiting.clone());
        if keys.len() > 1 {
            shape.by_key.resize_with(keys.len(), HashMap::new);
            for (key, by) in keys.iter().zip(&mut shape.by_key) {
                by.entry(value_of(key, &waiting.config)).or_default().push(waiting.clone());
            }
        }
    }

    fn remove(&mut self, waiting: &Arc<Waiting>) {
        let keys = keys_of(&waiting.config);
        let Some(shape) = self.shapes.get_mut(&keys) else { return };
        take(&mut shape.whole, &values_of(&keys, &waiting.config), waiting);
        for (key, by) in keys.iter().zip(&mut shape.by_key) {
            take(by, &value_of(key, &waiting.config), waiting);
        }
        if shape.whole.is_empty() {
            self.shapes.remove(&keys);
        }
    }
}

fn take(from: &mut HashMap<String, Vec<Arc<Waiting>>>, key: &str, waiting: &Arc<Waiting>) {
    if let Some(list) = from.get_mut(key) {
        list.retain(|held| !Arc::ptr_eq(held, waiting));
        if list.is_empty() {
            from.remove(key);
        }
    }
}

impl Shape {
    /// Returns the triggers that may match: of the keys present in the data, those with the rarest value. If no key is
    /// present, all of them match.
    fn candidates<'a>(&'a self, keys: &[String], data: &JsonObject) -> Vec<&'a Arc<Waiting>> {
        let held = keys.iter().filter(|key| data.contains_key(*key)).count();
        if held == 0 {
            return self.whole.values().flatten().collect();
        }
        if held == keys.len() {
            return self.whole.get(&values_of(keys, data)).into_iter().flatten().collect();
        }
        let of_key = keys.iter().zip(&self.by_key).filter(|(key, _)| data.contains_key(*key));
        let lists =
            of_key.map(|(key, by)| by.get(&value_of(key, data)).map(Vec::as_slice).unwrap_or_default());
        lists.min_by_key(|list| list.len()).unwrap_or_default().iter().collect()
    }

    /// Whether one of the triggers, whose configs have these keys, has these values.
    fn waits_for(&self, keys: &[String], values: &[(String, String)]) -> bool {
        let of_value = |(key, value): &(String, String)| {
            let at = keys.iter().position(|held| held == key)?;
            self.by_key.get(at).unwrap_or(&self.whole).get(value)
        };
        let lists: Option<Vec<&Vec<Arc<Waiting>>>> = values.iter().map(of_value).collect();
        let rarest = lists.unwrap_or_default().into_iter().min_by_key(|list| list.len());
        // A list is never empty, so the usual single value needs no comparison.
        let has_all = |waiting: &Arc<Waiting>| {
            values.len() == 1 || values.iter().all(|(key, value)| value_of(key, &waiting.config) == *value)
        };
        rarest.is_some_and(|list| list.iter().any(has_all))
    }
}

fn keys_of(config: &JsonObject) -> Vec<String> {
    let mut keys: Vec<String> = config.keys().cloned().collect();
    keys.sort_unstable();
    keys
}

fn value_of(key: &str, of: &JsonObject) -> String {
    of.get(key).map(canonical).unwrap_or_default()
}

/// Returns one text for the values of all keys.
fn values_of(keys: &[String], of: &JsonObject) -> String {
    let values: Vec<String> = keys.iter().map(|key| value_of(key, of)).collect();
    values.join(",")
}

/// Whether a config matches data: every key that both have has the same value, compared as JSON.
pub(super) fn matches(config: &JsonObject, data: SentFields<'_>) -> bool {
    config.iter().all(|(key, wanted)| same_field(key, wanted, data))
}

/// Whether the data have this value of a key, or do not have the key.
pub(super) fn same_field(key: &str, wanted: &Value, data: SentFields<'_>) -> bool {
    data.get(key).is_none_or(|given| same(wanted, given))
}

/// Whether a value of a config and a given one are equal as JSON, which does not distinguish `1` from `1.0`, nor different
/// orders of keys. Numbers are compared exactly.
fn same(wanted: &Value, given: SentValue<'_>) -> bool {
    match (wanted, given.value()) {
        (Value::Number(wanted), Value::Number(number)) => {
            let exact = Decimal::parse(&wanted.to_string());
            match exact.as_ref().is_some_and(|exact| is_as_written(wanted, exact)) {
                true => given.decimal() == exact,
                // The digits that its author wrote are not known any more.
                false => wanted.as_f64() == number.as_f64(),
            }
        }
        (Value::Array(wanted), Value::Array(entries)) => {
            let given = given.entries().into_iter().flatten();
            wanted.len() == entries.len()
                && wanted.iter().zip(given).all(|(wanted, given)| same(wanted, given))
        }
        (Value::Object(wanted), Value::Object(fields)) => {
            let same_field = |(key, wanted): (&String, &Value)| {
                given.fields().and_then(|given| given.get(key)).is_some_and(|given| same(wanted, given))
            };
            wanted.len() == fields.len() && wanted.iter().all(same_field)
        }
        (wanted, value) => wanted == value,
    }
}

/// Whether the number of a config has the value that its author wrote: a longer one was rounded to a float.
fn is_as_written(number: &Number, exact: &Decimal) -> bool {
    number.is_i64() || number.is_u64() || exact.precision() <= FLOAT_DIGITS
}

/// Returns a text for an index, which is the same for values that are equal as JSON. It can be the same for others, too:
/// numbers are rounded to floats.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => {
            // `-0` is `0`.
            number.as_f64().map_or_else(|| number.to_string(), |number| (number + 0.0).to_string())
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

/// Returns the plugins' trigger types for clients to display.
pub(super) fn registered(automations: &Automations) -> Vec<AutomationTriggerDefinition> {
    let Some(registry) = automations.core.registry() else { return Vec::new() };
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
            .matching("webhook", "call", &object(data).into())
            .0
            .into_iter()
            .map(|waiting| waiting.automation.clone())
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
        assert_eq!(index.matching("webhook", "other", &SentObject::default()), (vec![], 0));
    }

    #[test]
    fn an_event_that_fires_nothing_is_told_why() {
        let mut index = Index::default();
        index.set("off", &definition(false, json!({ "endpoint": "deploy" })), &[]);
        index.set("main", &definition(true, json!({ "endpoint": "deploy", "ref": "main", "n": 1 })), &[]);
        index.set("other", &definition(true, json!({ "endpoint": "other" })), &[]);
        index.set("tag", &definition(false, json!({ "endpoint": "deploy", "ref": "tag" })), &[]);
        index.set("far", &definition(false, json!({ "endpoint": "far", "ref": "main" })), &[]);
        let required = ["endpoint".to_owned()];
        let why = |index: &Index, event: &str, data: Value| {
            index.unheard("webhook", &required, event, &object(data).into())
        };
        let data = json!({ "ref": "dev", "n": 1, "endpoint": "deploy" });
        let disabled = "automation off: it is disabled; enable it with: ostler automation enable off";
        assert_eq!(
            why(&index, "call", data.clone()),
            [
                "automation main: its trigger on requires another value of ref",
                disabled,
                "automation tag: its trigger on requires another value of ref",
            ]
        );
        assert_eq!(
            why(&index, "cal", data.clone()),
            ["main", "off", "tag"]
                .map(|id| format!("automation {id}: its trigger on does not name the event cal"))
        );
        for of_others in
            [json!({ "endpoint": "none" }), json!({ "endpoint": "none", "ref": "main" }), json!({})]
        {
            assert_eq!(why(&index, "call", of_others), [""; 0], "they are not about this endpoint");
        }
        assert_eq!(index.unheard("else", &required, "call", &object(data.clone()).into()), [""; 0]);
        assert_eq!(
            index.unheard("webhook", &[], "call", &object(json!({ "ref": "tag" })).into()),
            ["automation tag: it is disabled; enable it with: ostler automation enable tag"],
            "a type that requires nothing"
        );
        for at in 0..20 {
            index.set(&format!("z{at}"), &definition(false, json!({ "endpoint": "deploy" })), &[]);
        }
        let many = why(&index, "call", data);
        assert_eq!((many.len(), many.last().unwrap().as_str()), (9, "15 more automations"));
    }

    #[test]
    fn a_trigger_waits_for_values_whatever_else_it_wants() {
        let mut index = Index::default();
        index.set("one", &definition(true, json!({ "endpoint": "deploy" })), &[]);
        index.set("two", &definition(true, json!({ "endpoint": "hub", "ref": "main", "n": 1 })), &[]);
        index.set("off", &definition(false, json!({ "endpoint": "off" })), &[]);
        index.set("all", &definition(true, json!({})), &[]);
        for (values, waits) in [
            (json!({ "endpoint": "deploy" }), true),
            (json!({ "endpoint": "hub" }), true),
            (json!({ "endpoint": "hub", "n": 1.0 }), true),
            (json!({ "endpoint": "hub", "n": 2 }), false),
            (json!({ "endpoint": "deploy", "n": 1 }), false),
            (json!({ "endpoint": "off" }), false),
            (json!({ "endpoint": "none" }), false),
        ] {
            let canonical: Vec<_> =
                object(values.clone()).iter().map(|(key, value)| (key.clone(), canonical(value))).collect();
            assert_eq!(index.waits_for("webhook", "call", &canonical), waits, "{values}");
        }
        assert!(!index.waits_for("webhook", "other", &[("endpoint".to_owned(), "\"hub\"".to_owned())]));
    }

    #[test]
    fn numbers_are_compared_by_value_and_exactly() {
        let woken_by = |config: Value, sent: &str| {
            let mut index = Index::default();
            index.set("a", &definition(true, json!({ "k": config })), &[]);
            let data = SentObject::read(format!("{{\"k\":{sent}}}").as_bytes()).expect("JSON");
            !index.matching("webhook", "call", &data).0.is_empty()
        };
        for (config, sent) in [
            (json!(1000), "1e3"),
            (json!(1.1), "1.10"),
            (json!(0), "-0"),
            (json!(9_007_199_254_740_993_u64), "9007199254740993"),
            (json!(9_007_199_254_740_993_u64), "9007199254740993.0"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!([1, { "a": 2 }]), "[1.0,{\"a\":2e0}]"),
            // A float has no more digits.
            (json!(12_345_678_901_234_567_890_123.0), "12345678901234567890123"),
        ] {
            assert!(woken_by(config.clone(), sent), "{config} {sent}");
        }
        for (config, sent) in [
            (json!(9_007_199_254_740_993_u64), "9007199254740992"),
            (json!(9_007_199_254_740_993_u64), "9007199254740993.5"),
            (json!(u64::MAX), "18446744073709551616"),
            (json!(1), "1.00000000000000000001"),
            (json!(1.1), "1.1000000000000000000001"),
            (json!([1, { "a": 2 }]), "[1,{\"a\":2.000000000000000000001}]"),
            (json!(1), "\"1\""),
        ] {
            assert!(!woken_by(config.clone(), sent), "{config} {sent}");
        }
    }

    /// One of 10,000 triggers, whichever key distinguishes it.
    #[test]
    fn a_fire_that_matches_one_of_many_looks_at_few() {
        let mut index = Index::default();
        for at in 0..10_000 {
            let config = json!({ "kind": "push", "repository": format!("r{at}") });
            index.set(&format!("a{at}"), &definition(true, config), &[]);
        }
        let data = object(json!({ "kind": "push", "repository": "r777", "ref": "main" })).into();
        let (found, looked) = index.matching("webhook", "call", &data);
        assert_eq!((found.len(), found[0].automation.as_str(), looked), (1, "a777", 1));
        let (found, looked) =
            index.matching("webhook", "call", &object(json!({ "repository": "r777" })).into());
        assert_eq!((found.len(), looked), (1, 1), "a key the data lacks");
        let (found, looked) = index.matching(
            "webhook",
            "call",
            &object(json!({ "kind": "pull", "repository": "r777" })).into(),
        );
        assert_eq!((found.len(), looked), (0, 0));
        for at in 0..10_000 {
            index.remove(&format!("a{at}"));
        }
        let is_empty = index.events.is_empty() && index.of.is_empty() && index.declared.is_empty();
        assert!(is_empty, "nothing is left behind");
    }

    proptest::proptest! {
        /// The index returns exactly the triggers that a comparison with each one returns.
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
                .filter(|(_, config)| matches(&object(json!(config)), SentFields::new(&data, None)))
                .map(|(at, _)| format!("a{at:02}"))
                .collect();
            proptest::prop_assert_eq!(woken(&index, Value::Object(data)), expected);
        }
    }
}
