//! The summary of a run in its automation's entry.

use std::io;

use ostler_protocol::wire::state::{
    AutomationRunOrigin, AutomationRunState, AutomationRunSummary, AutomationTriggeredRunOrigin,
};
use ostler_protocol::{JsonObject, Value, names};
use serde::Serialize;

use super::run::{LATEST, LITERALS};

/// The longest event that an entry contains, in bytes of its JSON. Every subscriber of the catalogue receives an entry
/// with its runs on each change, so a larger event is only in the run's own channel.
const EVENT_SHOWN: usize = 4 << 10;

/// Returns the summary of a run for its automation's entry.
pub(super) fn summary_of(run: &AutomationRunState) -> AutomationRunSummary {
    AutomationRunSummary {
        resource: run.resource.clone(),
        automation: run.automation.clone(),
        origin: origin_of(&run.origin),
        lifecycle: run.lifecycle.clone(),
        primary_session: run.primary_session.clone(),
        session_count: i64::try_from(run.sessions.len()).unwrap_or(i64::MAX),
        meta: run.meta.as_ref().map(meta_of),
    }
}

fn origin_of(origin: &AutomationRunOrigin) -> AutomationRunOrigin {
    match origin {
        AutomationRunOrigin::Trigger(origin) => AutomationRunOrigin::Trigger(AutomationTriggeredRunOrigin {
            trigger_id: origin.trigger_id.clone(),
            scheduled_for: origin.scheduled_for.clone(),
            catch_up: origin.catch_up,
            event: origin.event.as_ref().filter(is_shown).cloned(),
        }),
        AutomationRunOrigin::Manual(_) => origin.clone(),
    }
}

fn meta_of(meta: &JsonObject) -> JsonObject {
    let of_event = [LATEST, LITERALS].map(names::meta_key);
    let shown = |(key, value): &(&String, &Value)| !of_event.contains(*key) || is_shown(value);
    meta.iter().filter(shown).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn is_shown(event: &impl Serialize) -> bool {
    serde_json::to_writer(Left(EVENT_SHOWN), event).is_ok()
}

/// A writer that accepts this many bytes and fails on the next one.
struct Left(usize);

impl io::Write for Left {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
