//! The rule of a trigger of the host's own types: an event in a session, how often it must happen, and which conditions
//! must hold or follow.

use std::time::Duration;

use ostler_contract::duration::{A_DURATION, read_duration};
use ostler_contract::settings::drawn;
use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::wire::state::{
    AutomationEventTrigger, AutomationTriggerDefinition, AutomationTriggerEventDefinition,
};

/// A session event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    TurnCompleted,
    TurnFailed,
    TurnCancelled,
    ToolCalled,
    ToolFailed,
    MessageQueued,
    Idle,
    ChildFinished,
}

const KINDS: [(Kind, &str, &str); 8] = [
    (Kind::TurnCompleted, "turnCompleted", "A turn finished"),
    (Kind::TurnFailed, "turnFailed", "A turn failed"),
    (Kind::TurnCancelled, "turnCancelled", "A turn was cancelled"),
    (Kind::ToolCalled, "toolCalled", "A tool call finished"),
    (Kind::ToolFailed, "toolFailed", "A tool call failed"),
    (Kind::MessageQueued, "messageQueued", "A message was queued"),
    (Kind::Idle, "idle", "The session went idle"),
    (Kind::ChildFinished, "childFinished", "A session it started finished"),
];

impl Kind {
    fn of(id: &str) -> Result<Self, String> {
        let found = KINDS.iter().find(|(_, name, _)| *name == id).map(|(kind, ..)| *kind);
        found.ok_or_else(|| unwatched(id))
    }

    /// Whether the event ends a turn.
    pub fn ends_turn(self) -> bool {
        matches!(self, Self::TurnCompleted | Self::TurnFailed | Self::TurnCancelled)
    }

    /// Whether both events are outcomes of the same thing, so that one interrupts a sequence of the other.
    pub fn is_kin(self, other: Self) -> bool {
        let is_tool = |kind| matches!(kind, Self::ToolCalled | Self::ToolFailed);
        self == other || (self.ends_turn() && other.ends_turn()) || (is_tool(self) && is_tool(other))
    }
}

fn unwatched(id: &str) -> String {
    format!("{id} is not an event this host watches for")
}

/// The trigger type of full rules, and the type of presets.
pub(super) const SESSION: &str = "session";
pub(super) const WATCH: &str = "watch";

/// A preset: a named rule with one number as its parameter.
struct Preset {
    id: &'static str,
    title: &'static str,
    number: &'static str,
    default: u64,
    rule: fn(u64) -> Rule,
}

const PRESETS: [Preset; 5] = [
    Preset {
        id: "looks-stuck",
        title: "It calls the same tool with the same input over and over",
        number: "times",
        default: 3,
        rule: |times| Rule {
            count: Count { n: times, same_input: true, ..Count::default() },
            ..Rule::on(Kind::ToolCalled)
        },
    },
    Preset {
        id: "failing-tools",
        title: "Its tool calls fail, one after the other",
        number: "times",
        default: 3,
        rule: |times| Rule {
            count: Count { n: times, consecutive: true, ..Count::default() },
            ..Rule::on(Kind::ToolFailed)
        },
    },
    Preset {
        id: "long-silent-turn",
        title: "A turn runs and says nothing",
        number: "minutes",
        default: 10,
        rule: |minutes| Rule {
            when: When { turn_longer_than: Some(minutes_of(minutes)), ..When::default() },
            ..Rule::on(Kind::TurnCompleted)
        },
    },
    Preset {
        id: "idle-after-failure",
        title: "A failed turn was not continued",
        number: "minutes",
        default: 3,
        rule: |minutes| Rule { then: Some(Then::Idle(minutes_of(minutes))), ..Rule::on(Kind::TurnFailed) },
    },
    Preset {
        id: "waiting-while-busy",
        title: "A message waits behind a turn that is busy",
        number: "toolCalls",
        default: 3,
        rule: |calls| Rule {
            when: When { running: Some(true), tool_calls_at_least: Some(calls), ..When::default() },
            ..Rule::on(Kind::MessageQueued)
        },
    },
];

fn minutes_of(minutes: u64) -> Duration {
    Duration::from_secs(minutes.saturating_mul(60))
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub event: Kind,
    pub filter: Filter,
    pub count: Count,
    pub then: Option<Then>,
    pub when: When,
}

/// Which sessions a rule applies to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub sessions: Option<Vec<String>>,
    pub providers: Option<Vec<String>>,
    pub owners: Option<Vec<String>>,
    pub projects: Option<Vec<String>>,
    pub folders: Option<Vec<String>>,
    pub automated: Option<bool>,
}

/// How often the event must happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Count {
    pub n: u64,
    pub consecutive: bool,
    pub within: Option<Duration>,
    pub same_input: bool,
}

impl Default for Count {
    fn default() -> Self {
        Self { n: 1, consecutive: false, within: None, same_input: false }
    }
}

/// What must follow the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    /// Another event, within the time limit if there is one.
    Event(Kind, Option<Duration>),
    /// The session is idle for this time.
    Idle(Duration),
    /// The event does not happen for this time.
    Absent(Kind, Duration),
}

/// Which conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct When {
    pub running: Option<bool>,
    pub queued_at_least: Option<u64>,
    pub tool_calls_at_least: Option<u64>,
    /// Minimum time since the turn's last activity.
    pub turn_longer_than: Option<Duration>,
}

impl Rule {
    fn on(event: Kind) -> Self {
        Self { event, filter: Filter::default(), count: Count::default(), then: None, when: When::default() }
    }

    /// Returns the time limit if the rule fires on a timer alone, during a silent turn.
    pub fn is_silence(&self) -> Option<Duration> {
        let plain = self.count == Count::default() && self.then.is_none() && self.event.ends_turn();
        self.when.turn_longer_than.filter(|_| plain)
    }

    /// Reads the rule of a trigger of the host's own types. The error names the invalid field and the expected value.
    pub fn read(trigger: &AutomationEventTrigger) -> Result<Self, String> {
        let id = trigger.events.first().map(|event| event.id.as_str()).unwrap_or_default();
        let empty = JsonObject::new();
        let config = ConfigObject { path: String::new(), fields: trigger.config.as_ref().unwrap_or(&empty) };
        if trigger.r#type == SESSION {
            config.only(&["filter", "count", "then", "when"])?;
            return Ok(Self {
                event: Kind::of(id)?,
                filter: config.object("filter")?.map_or(Ok(Filter::default()), filter)?,
                count: config.object("count")?.map_or(Ok(Count::default()), count)?,
                then: config.object("then")?.map(then).transpose()?,
                when: config.object("when")?.map_or(Ok(When::default()), when)?,
            });
        }
        let preset = PRESETS.iter().find(|preset| preset.id == id).ok_or_else(|| unwatched(id))?;
        config.only(&["filter", preset.number])?;
        let number = config.whole(preset.number)?.unwrap_or(preset.default);
        let filter = config.object("filter")?.map_or(Ok(Filter::default()), filter)?;
        Ok(Self { filter, ..(preset.rule)(number) })
    }
}

fn filter(object: ConfigObject<'_>) -> Result<Filter, String> {
    object.only(&["sessions", "providers", "owners", "projects", "folders", "automated"])?;
    Ok(Filter {
        sessions: object.texts("sessions", "session URIs")?,
        providers: object.texts("providers", "backend names")?,
        owners: object.texts("owners", "owners")?,
        projects: object.texts("projects", "projects")?,
        folders: object.texts("folders", "folders")?,
        automated: object.truth("automated")?,
    })
}

fn count(object: ConfigObject<'_>) -> Result<Count, String> {
    object.only(&["n", "consecutive", "within", "sameInput"])?;
    Ok(Count {
        n: object.whole("n")?.unwrap_or(1),
        consecutive: object.truth("consecutive")?.unwrap_or_default(),
        within: object.duration("within")?,
        same_input: object.truth("sameInput")?.unwrap_or_default(),
    })
}

fn then(object: ConfigObject<'_>) -> Result<Then, String> {
    let kind = object.text("kind")?;
    let event = |object: &ConfigObject<'_>| match object.text("event")? {
        Some(event) => Kind::of(event),
        None => Err(format!("{} has to be text", object.at("event"))),
    };
    let lasting =
        |object: &ConfigObject<'_>| object.duration("for")?.ok_or_else(|| object.not("for", A_DURATION));
    match kind {
        Some("event") => {
            object.only(&["kind", "event", "within"])?;
            Ok(Then::Event(event(&object)?, object.duration("within")?))
        }
        Some("idle") => {
            object.only(&["kind", "for"])?;
            Ok(Then::Idle(lasting(&object)?))
        }
        Some("absent") => {
            object.only(&["kind", "event", "for"])?;
            Ok(Then::Absent(event(&object)?, lasting(&object)?))
        }
        _ => Err(object.not("kind", "one of event, idle, absent")),
    }
}

fn when(object: ConfigObject<'_>) -> Result<When, String> {
    object.only(&["running", "queuedAtLeast", "toolCallsAtLeast", "turnLongerThan"])?;
    Ok(When {
        running: object.truth("running")?,
        queued_at_least: object.number("queuedAtLeast")?,
        tool_calls_at_least: object.number("toolCallsAtLeast")?,
        turn_longer_than: object.duration("turnLongerThan")?,
    })
}

/// The units of durations in rules.
const UNITS: [&str; 3] = ["s", "m", "h"];
/// The most digits before the unit.
const DIGITS: usize = 9;

/// An object of a config, and its path.
struct ConfigObject<'a> {
    path: String,
    fields: &'a JsonObject,
}

impl<'a> ConfigObject<'a> {
    fn at(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    fn not(&self, key: &str, expected: &str) -> String {
        format!("{} has to be {expected}", self.at(key))
    }

    fn only(&self, keys: &[&str]) -> Result<(), String> {
        match self.fields.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => Err(format!("{} is not part of a rule here", self.at(key))),
            None => Ok(()),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// Returns a value that `read` accepts, or an error that names the expected value.
    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        self.get(key).map(|value| read(value).ok_or_else(|| self.not(key, expected))).transpose()
    }

    fn object(&self, key: &str) -> Result<Option<ConfigObject<'a>>, String> {
        let fields = self.read(key, "an object", Value::as_object)?;
        Ok(fields.map(|fields| ConfigObject { path: self.at(key), fields }))
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        self.read(key, "text", Value::as_str)
    }

    fn truth(&self, key: &str) -> Result<Option<bool>, String> {
        self.read(key, "true or false", Value::as_bool)
    }

    fn number(&self, key: &str) -> Result<Option<u64>, String> {
        self.read(key, "a number", |value| {
            value.as_f64().filter(|number| *number >= 0.0).map(|number| number.ceil() as u64)
        })
    }

    fn whole(&self, key: &str) -> Result<Option<u64>, String> {
        let whole = |value: &Value| {
            let number = value.as_f64()?;
            (number.fract() == 0.0 && (1.0..=1e9).contains(&number)).then_some(number as u64)
        };
        self.read(key, "a whole number of 1 or more", whole)
    }

    fn texts(&self, key: &str, of: &str) -> Result<Option<Vec<String>>, String> {
        let list = self.read(key, "a list", Value::as_array)?;
        let texts = |list: &Vec<Value>| -> Option<Vec<String>> {
            list.iter().map(|one| one.as_str().map(str::to_owned)).collect()
        };
        list.map(|list| texts(list).ok_or_else(|| self.not(key, &format!("a list of {of}")))).transpose()
    }

    fn duration(&self, key: &str) -> Result<Option<Duration>, String> {
        self.read(key, A_DURATION, |value| {
            read_duration(value.as_str().filter(|text| text.len() <= DIGITS + 1)?, &UNITS)
        })
    }
}

/// Returns the host's own trigger types for clients to display.
pub(super) fn definitions() -> Vec<AutomationTriggerDefinition> {
    let event = |id: &str, title: &str| AutomationTriggerEventDefinition {
        id: id.to_owned(),
        title: title.to_owned(),
        description: None,
    };
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let span = json!({ "type": "string", "pattern": format!("^[0-9]{{1,{DIGITS}}}[{}]$", UNITS.concat()) });
    let whole = json!({ "type": "integer", "minimum": 1 });
    let filter = json!({ "type": "object", "title": "Sessions", "properties": {
        "sessions": texts, "providers": texts, "owners": texts, "projects": texts, "folders": texts,
        "automated": { "type": "boolean" },
    } });
    let session = json!({ "type": "object", "properties": {
        "filter": filter,
        "count": { "type": "object", "title": "How often", "properties": {
            "n": whole, "consecutive": { "type": "boolean" }, "within": span, "sameInput": { "type": "boolean" },
        } },
        "then": { "type": "object", "title": "What follows", "properties": {
            "kind": { "type": "string", "enum": ["event", "idle", "absent"] }, "event": { "type": "string" },
            "within": span, "for": span,
        } },
        "when": { "type": "object", "title": "What holds", "properties": {
            "running": { "type": "boolean" }, "queuedAtLeast": { "type": "number" },
            "toolCallsAtLeast": { "type": "number" }, "turnLongerThan": span,
        } },
    } });
    let watch = json!({ "type": "object", "properties": {
        "times": whole, "minutes": whole, "toolCalls": whole, "filter": filter,
    } });
    let schema = |schema: Value| serde_json::from_value(drawn(schema)).ok();
    vec![
        AutomationTriggerDefinition {
            r#type: SESSION.to_owned(),
            title: "What a session does".to_owned(),
            description: None,
            events: KINDS.iter().map(|(_, id, title)| event(id, title)).collect(),
            config_schema: schema(session),
        },
        AutomationTriggerDefinition {
            r#type: WATCH.to_owned(),
            title: "A pattern worth watching".to_owned(),
            description: None,
            events: PRESETS.iter().map(|preset| event(preset.id, preset.title)).collect(),
            config_schema: schema(watch),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(r#type: &str, event: &str, config: Value) -> Result<Rule, String> {
        let trigger = json!({ "id": "t", "type": r#type, "title": "T", "events": [{ "id": event, "title": "E" }],
            "config": config });
        Rule::read(&serde_json::from_value(trigger).expect("a trigger"))
    }

    #[test]
    fn a_whole_rule_reads() {
        let rule = read(
            "session",
            "toolFailed",
            json!({
                "filter": { "providers": ["echo"], "automated": false }, "count": { "n": 2, "within": "5m" },
                "then": { "kind": "absent", "event": "turnCompleted", "for": "30s" },
                "when": { "running": true, "queuedAtLeast": 1, "turnLongerThan": "2h" },
            }),
        )
        .expect("a rule");
        assert_eq!(rule.event, Kind::ToolFailed);
        assert_eq!(rule.filter.providers, Some(vec!["echo".to_owned()]));
        assert_eq!(rule.count, Count { n: 2, within: Some(Duration::from_secs(300)), ..Count::default() });
        assert_eq!(rule.then, Some(Then::Absent(Kind::TurnCompleted, Duration::from_secs(30))));
        assert_eq!(rule.when.turn_longer_than, Some(Duration::from_secs(7200)));
    }

    #[test]
    fn every_preset_reads_with_its_number_and_a_filter() {
        for preset in &PRESETS {
            let rule = read("watch", preset.id, json!({ preset.number: 7, "filter": { "folders": ["/a"] } }));
            assert_eq!(
                rule.as_ref().map(|rule| rule.filter.folders.clone()),
                Ok(Some(vec!["/a".to_owned()]))
            );
            assert_ne!(
                rule,
                read("watch", preset.id, json!({ "filter": { "folders": ["/a"] } })),
                "{}",
                preset.id
            );
        }
        assert_eq!(
            read("watch", "long-silent-turn", json!({})).expect("read").is_silence(),
            Some(minutes_of(10))
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |event, config| read("session", event, config).expect_err("refused");
        assert_eq!(why("dreamt", json!({})), "dreamt is not an event this host watches for");
        assert_eq!(why("idle", json!({ "counts": {} })), "counts is not part of a rule here");
        assert_eq!(why("idle", json!({ "count": { "m": 1 } })), "count.m is not part of a rule here");
        assert_eq!(why("idle", json!({ "count": 3 })), "count has to be an object");
        assert_eq!(
            why("idle", json!({ "count": { "n": 0 } })),
            "count.n has to be a whole number of 1 or more"
        );
        assert_eq!(
            why("idle", json!({ "count": { "n": 1.5 } })),
            "count.n has to be a whole number of 1 or more"
        );
        assert_eq!(
            why("idle", json!({ "count": { "sameInput": "x" } })),
            "count.sameInput has to be true or false"
        );
        assert_eq!(
            why("idle", json!({ "count": { "within": "soon" } })),
            "count.within has to be a duration such as 30s, 5m or 2h"
        );
        assert_eq!(why("idle", json!({ "filter": { "sessions": "x" } })), "filter.sessions has to be a list");
        assert_eq!(
            why("idle", json!({ "filter": { "folders": [1] } })),
            "filter.folders has to be a list of folders"
        );
        assert_eq!(
            why("idle", json!({ "then": { "kind": "x" } })),
            "then.kind has to be one of event, idle, absent"
        );
        assert_eq!(why("idle", json!({ "then": { "kind": 1 } })), "then.kind has to be text");
        assert_eq!(
            why("idle", json!({ "then": { "kind": "event", "event": "x" } })),
            "x is not an event this host watches for"
        );
        assert_eq!(
            why("idle", json!({ "then": { "kind": "idle" } })),
            "then.for has to be a duration such as 30s, 5m or 2h"
        );
        assert_eq!(
            why("idle", json!({ "when": { "queuedAtLeast": "x" } })),
            "when.queuedAtLeast has to be a number"
        );
        let why = |config| read("watch", "looks-stuck", config).expect_err("refused");
        assert_eq!(why(json!({ "times": 0 })), "times has to be a whole number of 1 or more");
        assert_eq!(why(json!({ "minutes": 1 })), "minutes is not part of a rule here");
    }

    #[test]
    fn the_types_are_drawn() {
        let drawn = definitions();
        assert_eq!(drawn.iter().map(|one| one.r#type.as_str()).collect::<Vec<_>>(), ["session", "watch"]);
        assert!(drawn.iter().all(|one| one.config_schema.is_some()));
        assert_eq!(drawn[0].events.len(), 8);
        assert_eq!(drawn[1].events.len(), 5);
    }

    proptest::proptest! {
        /// Any config is read or rejected with a message.
        #[test]
        fn no_config_panics(text in "[0-9a-zé]{0,6}[smh]?", n in proptest::num::f64::ANY, deep in 0..4) {
            let value = match deep { 0 => json!(n), 1 => json!(text), 2 => json!([text]), _ => json!({ "n": n }) };
            for key in ["filter", "count", "then", "when"] {
                let _ = read("session", "idle", json!({ key: value }));
            }
            let config = json!({ "count": { "n": n, "within": text }, "when": { "toolCallsAtLeast": n } });
            let _ = read("session", "idle", config);
        }
    }
}
