//! The first message of a run: the automation's message with its placeholders filled.

use ostler_contract::Value;
use ostler_engine_core::web_links::Links;
use ostler_protocol::event_path;
use ostler_protocol::sent::{SentFields, SentValue};
use ostler_protocol::template::{TemplatePart, event_paths, parts};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState, AutomationTrigger,
};

use super::fire::{count_of, event_id_of, event_of};
use super::watching::is_watched_type;

/// The facts about a run's start that fill placeholders.
#[derive(Debug, Default)]
struct Facts<'a> {
    /// The title of the trigger.
    pub trigger: Option<&'a str>,
    /// The event's id; absent for a schedule or a run started by hand.
    pub event: Option<&'a str>,
    pub data: Option<SentFields<'a>>,
    /// Whether the data's field `event` is the event's id, which the host added to it.
    pub id_in_data: bool,
    /// The session in which the event happened, if any.
    pub session: Option<&'a str>,
    pub session_title: Option<&'a str>,
    /// How many events the run contains.
    pub count: Option<u64>,
    /// The time of the event, as ISO 8601.
    pub at: Option<&'a str>,
    /// The run's own URI; absent for an event that is added to a turn outside any run.
    pub run: Option<&'a str>,
    /// The web address of the run.
    pub run_url: Option<String>,
    /// The session that the run works in.
    pub run_session: Option<&'a str>,
}

/// The run and the session that a message belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunPlace<'a> {
    pub run: Option<&'a str>,
    pub session: &'a str,
    pub links: &'a Links,
}

/// Returns the first message of a run.
pub(super) fn opening(
    definition: &AutomationDefinition,
    run: &AutomationRunState,
    place: RunPlace<'_>,
) -> String {
    message_of(template_of(definition), &facts_of(definition, run, place))
}

/// Whether the message of a run has no text because its placeholders are empty.
pub(super) fn is_empty(
    definition: &AutomationDefinition,
    run: &AutomationRunState,
    place: RunPlace<'_>,
) -> bool {
    fill(template_of(definition), &facts_of(definition, run, place)).trim().is_empty()
}

fn facts_of<'a>(
    definition: &'a AutomationDefinition,
    run: &'a AutomationRunState,
    place: RunPlace<'a>,
) -> Facts<'a> {
    let run_url = place.run.and_then(|run| place.links.of(run));
    let own = Facts { run: place.run, run_url, run_session: Some(place.session), ..Facts::default() };
    let AutomationRunOrigin::Trigger(origin) = &run.origin else { return own };
    let trigger = definition.triggers.iter().find_map(|trigger| match trigger {
        AutomationTrigger::Event(trigger) if trigger.id == origin.trigger_id => Some(trigger),
        _ => None,
    });
    let data = event_of(run);
    let text = |key: &str| data.and_then(|data| data.get(key)?.value().as_str());
    let own_id = event_id_of(run).and_then(Value::as_str);
    let event = own_id.or_else(|| text("event"));
    // Only the host's own events are about a session; a plugin's data may have a field of that name.
    let watched = trigger.is_some_and(|trigger| is_watched_type(&trigger.r#type));
    let created = match &run.lifecycle {
        AutomationRunLifecycle::Pending(pending) => Some(pending.created_at.as_str()),
        _ => None,
    };
    Facts {
        trigger: trigger.map(|trigger| trigger.title.as_str()),
        event,
        data,
        id_in_data: !watched && own_id.is_none(),
        session: text("session").filter(|_| watched),
        session_title: text("sessionTitle").filter(|_| watched),
        count: event.map(|_| count_of(run)),
        at: text("at").filter(|_| watched).or(created),
        ..own
    }
}

/// Returns the template of an automation's message: without a message, its title.
fn template_of(definition: &AutomationDefinition) -> &str {
    match definition.message.text.trim() {
        "" => &definition.title,
        _ => &definition.message.text,
    }
}

/// Fills the placeholders. An unknown name stays as it is written; a missing fact becomes an empty string.
fn fill(template: &str, facts: &Facts<'_>) -> String {
    let mut text = String::with_capacity(template.len());
    for part in parts(template) {
        match part {
            TemplatePart::Text(part) => text.push_str(part),
            TemplatePart::Placeholder { written, name } => match value_of(name, facts) {
                Some(value) => text.push_str(&value),
                None => text.push_str(written),
            },
        }
    }
    text
}

/// Fills the template, and adds what woke the run.
fn message_of(template: &str, facts: &Facts<'_>) -> String {
    let mut text = fill(template, facts);
    if facts.event.is_some() {
        text.push_str(&summary(facts));
    }
    text
}

fn value_of(name: &str, facts: &Facts<'_>) -> Option<String> {
    let text = |value: Option<&str>| Some(value.unwrap_or_default().to_owned());
    match name {
        "trigger" => text(facts.trigger),
        "event" => text(facts.event),
        // An event that a plugin fired belongs to no session.
        "session" => text(facts.session),
        "sessionTitle" => text(facts.session_title),
        "count" => Some(facts.count.map(|count| count.to_string()).unwrap_or_default()),
        "at" => text(facts.at),
        "run.uri" => text(facts.run),
        "run.url" => text(facts.run_url.as_deref()),
        "run.session" => text(facts.run_session),
        _ => {
            let path = event_path::of_placeholder(name)?;
            if facts.id_in_data && event_path::within(path, "event").is_some() {
                return Some(String::new());
            }
            let value = facts.data.and_then(|data| event_path::find(data, path));
            Some(value.map(SentValue::text).unwrap_or_default())
        }
    }
}

/// Returns the paths of the event's fields that the message of an automation reads.
pub(super) fn fields_read(definition: &AutomationDefinition) -> impl Iterator<Item = &str> {
    event_paths(template_of(definition))
}

fn summary(facts: &Facts<'_>) -> String {
    let mut block = format!("\n\nWhat woke this run: {}", facts.event.unwrap_or_default());
    match (facts.session, facts.session_title.filter(|title| !title.is_empty())) {
        (Some(session), Some(title)) => block.push_str(&format!("\nSession: {title} ({session})")),
        (Some(session), None) => block.push_str(&format!("\nSession: {session}")),
        (None, _) => {}
    }
    if let Some(count) = facts.count {
        block.push_str(&format!("\nCount: {count}"));
    }
    if let Some(at) = facts.at {
        block.push_str(&format!("\nAt: {at}"));
    }
    block
}

#[cfg(test)]
mod tests {
    use ostler_protocol::json;

    use super::*;

    fn fields(data: &Value) -> Option<SentFields<'_>> {
        data.as_object().map(|data| SentFields::new(data, None))
    }

    #[test]
    fn numbers_are_filled_with_the_digits_of_their_sender() {
        let sent =
            br#"{"id":12345678901234567890123,"n":1e3,"z":1.10,"list":[1.50,{"a":-0}],"head":{"id":1E400}}"#;
        let data = ostler_protocol::sent::SentObject::read(sent).expect("JSON");
        let facts = Facts { data: Some(data.as_sent()), ..Facts::default() };
        let filled = fill(
            "{{event.id}} {{event.n}} {{event.z}} {{event.list}} {{event.head}} {{event.head.id}}",
            &facts,
        );
        assert_eq!(filled, r#"12345678901234567890123 1e3 1.10 [1.50,{"a":-0}] {"id":1E400} 1E400"#);
    }

    #[test]
    fn fields_are_filled_as_the_spec_says() {
        let data = json!({ "ref": "main", "n": 3, "list": [1, "a"], "head": { "id": "abc" }, "none": null });
        let facts = Facts { data: fields(&data), trigger: Some("A push"), ..Facts::default() };
        let filled = fill(
            "{{event.ref}}|{{event.n}}|{{event.list}}|{{event.head}}|{{ event.head.id }}|{{event.missing}}|{{event.none}}|{{session}}{{sessionTitle}}|{{other}}|{{trigger}}|{{",
            &facts,
        );
        assert_eq!(filled, r#"main|3|[1,"a"]|{"id":"abc"}|abc||null||{{other}}|A push|{{"#);
    }

    #[test]
    fn a_placeholder_in_braces_is_filled() {
        let data = json!({ "a": "x", "b": { "c": 1 } });
        let facts = Facts { data: fields(&data), ..Facts::default() };
        for (template, filled) in [
            ("{{{event.a}}}", "{x}"),
            ("{{{{event.a}}}}", "{{x}}"),
            (r#"{"n":{{event.b.c}}}"#, r#"{"n":1}"#),
            (r#"{"o":{"a":"{{event.a}}"}}"#, r#"{"o":{"a":"x"}}"#),
            ("{{ a {{event.a}} b }}", "{{ a x b }}"),
            ("{{event.a}}}} {{{{ {{event.a}}", "x}} {{{{ x"),
            ("{{}} {{{}}} {{{{}}}}", "{{}} {{{}}} {{{{}}}}"),
        ] {
            assert_eq!(fill(template, &facts), filled, "{template}");
        }
    }

    #[test]
    fn the_id_the_host_added_is_no_field_of_the_data() {
        let data = json!({ "event": "call", "ref": "main" });
        let added = Facts { data: fields(&data), id_in_data: true, ..Facts::default() };
        assert_eq!(fill("{{event.event}}|{{event.ref}}", &added), "|main");
        assert_eq!(fill("{{event.event}}", &Facts { id_in_data: false, ..added }), "call");
    }

    #[test]
    fn a_run_an_event_woke_says_so() {
        let facts = Facts {
            event: Some("call"),
            count: Some(1),
            at: Some("2026-01-01T00:00:00.000Z"),
            ..Facts::default()
        };
        assert_eq!(
            message_of("Look.", &facts),
            "Look.\n\nWhat woke this run: call\nCount: 1\nAt: 2026-01-01T00:00:00.000Z"
        );
        assert_eq!(message_of("Look.", &Facts::default()), "Look.");
        let own =
            Facts { run: Some("ahp-automation-run:/7"), run_session: Some("echo:/2"), ..Facts::default() };
        assert_eq!(
            message_of("{{run.uri}} {{ run.session }} {{run}} {{run.url}}", &own),
            "ahp-automation-run:/7 echo:/2 {{run}} "
        );
        let open = Facts { run_url: Some("https://a.example/7".to_owned()), ..Facts::default() };
        assert_eq!(message_of("{{run.url}}", &open), "https://a.example/7");
        let named = Facts { session: Some("echo:/1"), session_title: Some("Mine"), ..facts };
        assert_eq!(
            message_of("{{sessionTitle}} {{session}}", &named),
            "Mine echo:/1\n\nWhat woke this run: call\nSession: Mine (echo:/1)\nCount: 1\nAt: 2026-01-01T00:00:00.000Z"
        );
        let unnamed = Facts { session: Some("echo:/1"), event: Some("idle"), ..Facts::default() };
        assert_eq!(message_of("x", &unnamed), "x\n\nWhat woke this run: idle\nSession: echo:/1");
    }

    #[test]
    fn the_fields_a_template_reads_are_those_that_are_filled() {
        for (template, fields) in [
            ("{{event.a}} {{ event.b.c }}{{at}}{{event}} {{event.d", &["a", "b.c"][..]),
            (r#"{"n":{{event.a}}} {{{event.b.c}}}{{{{event.d}}}}"#, &["a", "b.c", "d"]),
            ("{{ x {{event.a}} }}", &["a"]),
        ] {
            let read: Vec<&str> = event_paths(template).collect();
            assert_eq!(read, fields, "{template}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_template_panics(template in "[{}a-z. é]{0,60}") {
            let _ = fill(&template, &Facts::default());
        }
    }
}
