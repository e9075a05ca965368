//! The settings in a definition that only this host reads, under `_meta.ostler`: the session of its runs, and the
//! overlap of runs.

use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::names;
use ostler_protocol::wire::state::AutomationDefinition;

use super::finishing::After;

/// What to do with a wake during a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Overlap {
    /// It waits; later ones are merged into the waiting run.
    #[default]
    Queue,
    /// Its message is added to the running turn.
    Steer,
    /// It runs concurrently.
    Parallel,
    /// It is dropped.
    Skip,
}

/// What happens to a run whose host stopped or was lost during it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OnHostLost {
    #[default]
    Fail,
    /// It starts its work again.
    Resume,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AutomationSettings {
    /// Whether every run is a turn of one chat.
    pub pinned: bool,
    /// What to do with a wake during a run.
    pub overlap: Overlap,
    /// The session of that chat; written by the host.
    pub pinned_session: Option<String>,
    /// How many runs events may start within an hour, if set.
    pub hourly_cap: Option<usize>,
    /// What happens to a run whose host stopped or was lost during it.
    pub on_host_lost: OnHostLost,
    /// What is done with the changes of a run whose turn completed.
    pub after: Option<After>,
    /// The user who last changed the automation, if known; written by the host.
    pub editor: Option<String>,
}

const SESSION: &str = "session";
const NEW: &str = "new";
const PINNED: &str = "pinned";
const OVERLAP: &str = "overlap";
const PINNED_SESSION: &str = "pinnedSession";
const HOURLY_CAP: &str = "hourlyCap";
const EDITOR: &str = "editor";
const ON_HOST_LOST: &str = "onHostLost";
const AFTER: &str = "after";
const ISOLATION: &str = "isolation";
const WORKTREE: &str = "worktree";
const FAIL: &str = "fail";
const RESUME: &str = "resume";

/// The values by name; the first is the default.
const OVERLAPS: [(&str, Overlap); 4] = [
    ("queue", Overlap::Queue),
    ("steer", Overlap::Steer),
    ("parallel", Overlap::Parallel),
    ("skip", Overlap::Skip),
];

/// Default number of runs that events may start within an hour.
const USUAL_CAP: usize = 20;

impl AutomationSettings {
    pub fn of(definition: &AutomationDefinition) -> Self {
        let own = own(definition).and_then(Value::as_object);
        let text = |key: &str| own.and_then(|own| own.get(key)?.as_str());
        Self {
            pinned: text(SESSION) == Some(PINNED),
            overlap: text(OVERLAP).and_then(overlap).unwrap_or_default(),
            pinned_session: text(PINNED_SESSION).map(str::to_owned),
            hourly_cap: own.and_then(|own| hourly_cap(own.get(HOURLY_CAP)?)),
            on_host_lost: match text(ON_HOST_LOST) {
                Some(RESUME) => OnHostLost::Resume,
                _ => OnHostLost::Fail,
            },
            after: text(AFTER).and_then(After::named),
            editor: text(EDITOR).map(str::to_owned),
        }
    }

    /// Returns one sentence for each setting that the host does not understand. Such a setting stays stored, and the
    /// default applies.
    pub fn unread(definition: &AutomationDefinition) -> Vec<String> {
        let at = format!("_meta.{}", names::HOST);
        let Some(own) = own(definition) else { return Vec::new() };
        let Some(own) = own.as_object() else {
            return vec![format!("{at} is not an object, so it is ignored")];
        };
        let config = definition.session.config.as_ref();
        let has_tree = config.is_some_and(|config| config.get(ISOLATION) == Some(&WORKTREE.into()));
        let of = |what: &str| Some(format!("is not one of {what}, so the first applies"));
        let wrong = |(key, value): (&String, &Value)| {
            let text = value.as_str();
            let why = match key.as_str() {
                SESSION if text.is_none_or(|text| text != NEW && text != PINNED) => {
                    of(&[NEW, PINNED].join(", "))
                }
                OVERLAP if text.and_then(overlap).is_none() => of(&OVERLAPS.map(|(name, _)| name).join(", ")),
                HOURLY_CAP if hourly_cap(value).is_none() => {
                    Some(format!("is not an integer of at least 1, so {USUAL_CAP} applies"))
                }
                ON_HOST_LOST if text.is_none_or(|text| text != FAIL && text != RESUME) => {
                    of(&[FAIL, RESUME].join(", "))
                }
                AFTER if text.and_then(After::named).is_none() => {
                    Some(format!("is not one of {}, so nothing is done after a run", After::names()))
                }
                AFTER if !has_tree => Some(format!(
                    "fails: a run has no separate working tree; set session.config.{ISOLATION} to {WORKTREE}"
                )),
                AFTER if definition.session.working_directories.as_ref().is_some_and(|all| all.len() > 1) => {
                    Some(
                        "fails with a backend that works in several directories: only the first is a working tree of the run; name one"
                            .to_owned(),
                    )
                }
                SESSION | OVERLAP | HOURLY_CAP | ON_HOST_LOST | AFTER | PINNED_SESSION | EDITOR => None,
                _ => Some(format!(
                    "is unknown and ignored; the settings are {SESSION}, {OVERLAP}, {HOURLY_CAP}, {ON_HOST_LOST}, {AFTER}"
                )),
            };
            why.map(|why| format!("{at}.{key} {why}"))
        };
        own.iter().filter_map(wrong).collect()
    }

    /// Returns how many runs events may start within an hour.
    pub fn cap(&self) -> usize {
        self.hourly_cap.unwrap_or(USUAL_CAP)
    }

    /// Returns the overlap in effect: one chat runs one turn at a time, whatever is configured.
    pub fn overlap_in_effect(&self) -> Overlap {
        match self.overlap {
            Overlap::Parallel if self.pinned => Overlap::Queue,
            overlap => overlap,
        }
    }

    /// Rejects settings that contradict each other.
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

/// Returns the metadata with the given pinned session in place of the client's value.
pub(super) fn with_pinned(meta: Option<JsonObject>, session: Option<&str>) -> Option<JsonObject> {
    with_own(meta, PINNED_SESSION, session)
}

/// Returns the metadata with the given editor in place of the client's value.
pub(super) fn with_editor(meta: Option<JsonObject>, editor: Option<&str>) -> Option<JsonObject> {
    with_own(meta, EDITOR, editor)
}

/// Returns the metadata with a fact that only the host writes.
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
