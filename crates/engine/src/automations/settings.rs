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
}

const SESSION: &str = "session";
const OVERLAP: &str = "overlap";
const PINNED_SESSION: &str = "pinnedSession";
const HOURLY_CAP: &str = "hourlyCap";

/// How many runs events may start within an hour of an automation that does not say.
const USUAL_CAP: usize = 20;

impl Settings {
    pub fn of(definition: &AutomationDefinition) -> Self {
        let own = definition.meta.as_ref().and_then(|meta| meta.get(names::HOST)?.as_object());
        let text = |key: &str| own.and_then(|own| own.get(key)?.as_str());
        Self {
            pinned: text(SESSION) == Some("pinned"),
            overlap: match text(OVERLAP) {
                Some("steer") => Overlap::Steer,
                Some("parallel") => Overlap::Parallel,
                Some("skip") => Overlap::Skip,
                _ => Overlap::Queue,
            },
            pinned_session: text(PINNED_SESSION).map(str::to_owned),
            hourly_cap: own
                .and_then(|own| own.get(HOURLY_CAP)?.as_u64())
                .and_then(|cap| usize::try_from(cap).ok())
                .filter(|cap| *cap > 0),
        }
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

/// The metadata with the pinned session the host knows in place of whatever it says.
pub(super) fn with_pinned(meta: Option<JsonObject>, session: Option<&str>) -> Option<JsonObject> {
    let mut meta = meta.unwrap_or_default();
    match session {
        Some(session) => {
            let own = meta.entry(names::HOST).or_insert_with(|| json!({}));
            if !own.is_object() {
                *own = json!({});
            }
            own[PINNED_SESSION] = session.into();
        }
        None => {
            if let Some(Value::Object(own)) = meta.get_mut(names::HOST)
                && own.shift_remove(PINNED_SESSION).is_some()
                && own.is_empty()
            {
                meta.shift_remove(names::HOST);
            }
        }
    }
    Some(meta).filter(|meta| !meta.is_empty())
}
