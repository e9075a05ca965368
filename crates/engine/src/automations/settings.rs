//! What a definition says to this host alone, under `_meta.ostler`: where its runs go, and what happens to a wake
//! while one is going.

use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::names;
use ostler_protocol::wire::state::AutomationDefinition;

/// What becomes of a wake while a run is going.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Overlap {
    /// It waits; those that come later are counted into the one that waits.
    #[default]
    Queue,
    /// It is said in the turn that runs.
    Steer,
    /// It runs beside the other.
    Parallel,
    /// Nothing comes of it.
    Skip,
}

/// The settings of one automation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Every run is a turn of one chat.
    pub pinned: bool,
    /// What becomes of a wake while a run is going.
    pub overlap: Overlap,
    /// The session whose chat that is; the host writes it.
    pub pinned_session: Option<String>,
    /// How many runs events may start within an hour, where it says.
    pub hourly_cap: Option<usize>,
    /// Who changed it last, of those the host knew; the host writes it.
    pub editor: Option<String>,
}

const SESSION: &str = "session";
const NEW: &str = "new";
const PINNED: &str = "pinned";
const OVERLAP: &str = "overlap";
const PINNED_SESSION: &str = "pinnedSession";
const HOURLY_CAP: &str = "hourlyCap";
const EDITOR: &str = "editor";

/// By name, the usual one first.
const OVERLAPS: [(&str, Overlap); 4] = [
    ("queue", Overlap::Queue),
    ("steer", Overlap::Steer),
    ("parallel", Overlap::Parallel),
    ("skip", Overlap::Skip),
];

/// How many runs events may start within an hour of an automation that does not say.
const USUAL_CAP: usize = 20;

impl Settings {
    pub fn of(definition: &AutomationDefinition) -> Self {
        let own = own(definition).and_then(Value::as_object);
        let text = |key: &str| own.and_then(|own| own.get(key)?.as_str());
        Self {
            pinned: text(SESSION) == Some(PINNED),
            overlap: text(OVERLAP).and_then(overlap).unwrap_or_default(),
            pinned_session: text(PINNED_SESSION).map(str::to_owned),
            hourly_cap: own.and_then(|own| hourly_cap(own.get(HOURLY_CAP)?)),
            editor: text(EDITOR).map(str::to_owned),
        }
    }

    /// What a definition says that means nothing here, a sentence each. It is kept, and the usual holds in its place.
    pub fn unread(definition: &AutomationDefinition) -> Vec<String> {
        let at = format!("_meta.{}", names::HOST);
        let Some(own) = own(definition) else { return Vec::new() };
        let Some(own) = own.as_object() else { return vec![format!("{at} is no object, so it is not read")] };
        let of = |what: &str| Some(format!("is not one of {what}, so the first holds"));
        let wrong = |(key, value): (&String, &Value)| {
            let text = value.as_str();
            let why = match key.as_str() {
                SESSION if text.is_none_or(|text| text != NEW && text != PINNED) => {
                    of(&[NEW, PINNED].join(", "))
                }
                OVERLAP if text.and_then(overlap).is_none() => of(&OVERLAPS.map(|(name, _)| name).join(", ")),
                HOURLY_CAP if hourly_cap(value).is_none() => {
                    Some(format!("is no whole number of 1 or more, so it is {USUAL_CAP}"))
                }
                SESSION | OVERLAP | HOURLY_CAP | PINNED_SESSION | EDITOR => None,
                _ => Some(format!("is not read; what is are {SESSION}, {OVERLAP}, {HOURLY_CAP}")),
            };
            why.map(|why| format!("{at}.{key} {why}"))
        };
        own.iter().filter_map(wrong).collect()
    }

    /// How many runs events may start within an hour.
    pub fn cap(&self) -> usize {
        self.hourly_cap.unwrap_or(USUAL_CAP)
    }

    /// What overlap comes to: one chat runs one turn at a time, whatever a file says.
    pub fn overlap_in_effect(&self) -> Overlap {
        match self.overlap {
            Overlap::Parallel if self.pinned => Overlap::Queue,
            overlap => overlap,
        }
    }

    /// Refuses settings that contradict each other.
    pub fn check(&self) -> Result<(), String> {
        match self.pinned && self.overlap == Overlap::Parallel {
            true => Err("A pinned automation runs one turn at a time in its own chat, so overlap cannot be \
                         parallel"
                .to_owned()),
            false => Ok(()),
        }
    }
}

fn own(definition: &AutomationDefinition) -> Option<&Value> {
    definition.meta.as_ref()?.get(names::HOST)
}

fn overlap(name: &str) -> Option<Overlap> {
    OVERLAPS.iter().find(|(known, _)| *known == name).map(|(_, overlap)| *overlap)
}

fn hourly_cap(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|cap| *cap > 0)
}

/// The metadata with the pinned session the host knows in place of whatever it says.
pub(super) fn with_pinned(meta: Option<JsonObject>, session: Option<&str>) -> Option<JsonObject> {
    with_own(meta, PINNED_SESSION, session)
}

/// The metadata with the editor the host knows in place of whatever it says.
pub(super) fn with_editor(meta: Option<JsonObject>, editor: Option<&str>) -> Option<JsonObject> {
    with_own(meta, EDITOR, editor)
}

/// The metadata with a fact that the host alone writes.
fn with_own(meta: Option<JsonObject>, key: &str, fact: Option<&str>) -> Option<JsonObject> {
    let mut meta = meta.unwrap_or_default();
    match fact {
        Some(fact) => {
            let own = meta.entry(names::HOST).or_insert_with(|| json!({}));
            if !own.is_object() {
                *own = json!({});
            }
            own[key] = fact.into();
        }
        None => {
            if let Some(Value::Object(own)) = meta.get_mut(names::HOST)
                && own.shift_remove(key).is_some()
                && own.is_empty()
            {
                meta.shift_remove(names::HOST);
            }
        }
    }
    Some(meta).filter(|meta| !meta.is_empty())
}
