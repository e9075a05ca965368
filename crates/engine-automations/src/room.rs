//! Whether automations have room for the runs of an event with an order.

use std::collections::HashMap;
use std::sync::Arc;

use super::catalogue::CatalogueEntry;
use super::lanes::Lane;
use super::order::Order;
use super::triggers::Waiting;
use crate::Automations;

impl Automations {
    /// Whether each automation that an event wakes has room for its runs.
    pub(super) fn have_room(&self, matching: &[Arc<Waiting>], order: &Order) -> bool {
        let mut wakes: HashMap<&str, usize> = HashMap::new();
        for waiting in matching {
            *wakes.entry(&waiting.automation).or_default() += 1;
        }
        for (id, wakes) in wakes {
            let Some(entry) = self.entry(id) else { continue };
            if self.may_be_woken(entry.owner.as_deref(), None).is_ok()
                && !self.has_room(id, &entry, order, wakes)
            {
                return false;
            }
        }
        true
    }

    /// Whether an automation has room for so many more runs in this order.
    pub(super) fn has_room(&self, id: &str, entry: &CatalogueEntry, order: &Order, wakes: usize) -> bool {
        let chat_busy = self.pinned_chat_is_busy(&entry.settings);
        let runs = self.runs.lock();
        let room = |lane: &Lane| lane.has_room(order, wakes, &entry.settings, chat_busy);
        runs.lanes.get(id).is_none_or(room)
    }
}
