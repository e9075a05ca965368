//! Events that wake automations, and the runs that they start.

use std::sync::Arc;

use ostler_protocol::names;
use ostler_protocol::sent::SentObject;
use ostler_protocol::wire::state::{AutomationRunOrigin, AutomationRunState, AutomationTriggeredRunOrigin};

use super::catalogue::CatalogueEntry;
use super::order::Order;
use super::run::{EVENT, LITERALS};
use super::triggers::Waiting;
use crate::Automations;

/// An event that wakes an automation.
#[derive(Debug, Clone, Copy)]
pub(super) struct WakeEvent<'a> {
    /// The trigger that waited for it.
    pub trigger: &'a str,
    /// The event's id.
    pub event: &'a str,
    /// Whether its data has a field `event` that is not the event's id.
    pub own_field: bool,
    /// The source of the event, unless it is the host itself.
    pub by: Option<&'a str>,
    /// The owner of the session in which it happened, if it happened in one.
    pub of_session: Option<Option<&'a str>>,
    /// The order of its runs, if they are ordered.
    pub order: Option<&'a Order>,
}

/// Returns the facts of an event of a plugin for each automation that it matched, and whether its data has its own field
/// `event`, which takes precedence over the event's id. Most events match one automation, so the data are not copied.
pub(super) fn facts_for<'a>(
    matching: &'a [Arc<Waiting>],
    event: &str,
    mut data: SentObject,
) -> impl Iterator<Item = (&'a Arc<Waiting>, bool, SentObject)> + use<'a> {
    let own_field = data.fields.contains_key("event");
    if !own_field {
        data.insert("event", event.into());
    }
    let mut data = Some(data);
    matching.iter().enumerate().filter_map(move |(at, waiting)| {
        let facts = if at + 1 == matching.len() { data.take() } else { data.clone() };
        Some((waiting, own_field, facts?))
    })
}

/// Returns the event of a plugin that fired a trigger.
pub(super) fn of_plugin<'a>(
    by: &'a str,
    waiting: &'a Waiting,
    event: &'a str,
    own_field: bool,
) -> WakeEvent<'a> {
    let by = Some(by);
    WakeEvent { trigger: &waiting.trigger, event, own_field, by, of_session: None, order: None }
}

impl Automations {
    pub(super) fn run_of_event(
        &self,
        entry: &CatalogueEntry,
        happened: &WakeEvent<'_>,
        facts: SentObject,
        count: u64,
    ) -> AutomationRunState {
        let SentObject { fields, literals } = facts;
        let origin = AutomationRunOrigin::Trigger(AutomationTriggeredRunOrigin {
            trigger_id: happened.trigger.to_owned(),
            scheduled_for: None,
            catch_up: None,
            event: Some(fields),
        });
        let mut run = self.new_run(&entry.wire.resource, origin, entry.owner.as_deref(), happened.by, count);
        if !literals.is_empty() {
            run.meta.get_or_insert_default().insert(names::meta_key(LITERALS), literals.into_value());
        }
        if happened.own_field {
            run.meta.get_or_insert_default().insert(names::meta_key(EVENT), happened.event.into());
        }
        run
    }
}
