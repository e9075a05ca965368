//! The session that an automation is pinned to.

use std::sync::Arc;

use ostler_contract::limit;
use ostler_contract::read::Read;
use ostler_engine_sessions::SessionEntry;
use ostler_protocol::wire::state::AutomationDefinitionPatch;

use super::Automations;
use super::settings::{AutomationSettings, with_pinned};

impl Automations {
    /// Loads the session an automation is pinned to.
    pub(super) async fn load_pinned(&self, settings: &AutomationSettings) -> Read<Option<Arc<SessionEntry>>> {
        match settings.pinned_session.as_ref().filter(|_| settings.pinned) {
            Some(session) => self.sessions.session_at_here(session).await,
            None => Read::Known(None),
        }
    }

    /// Returns the session an automation is pinned to, if it still exists and is in memory.
    pub(super) fn own_pinned(
        &self,
        settings: &AutomationSettings,
        owner: Option<&str>,
    ) -> Result<Option<Arc<SessionEntry>>, String> {
        let session = settings.pinned_session.as_ref().and_then(|session| self.sessions.by_uri(session));
        let Some(session) = session.filter(|session| !session.is_gone()) else { return Ok(None) };
        match session.owner.as_deref() == owner {
            true => Ok(Some(session)),
            false => Err("This automation is set to run in a chat that belongs to somebody else".to_owned()),
        }
    }

    /// Whether a turn runs in the chat an automation is pinned to, no matter who started it.
    pub(super) fn pinned_chat_is_busy(&self, settings: &AutomationSettings) -> bool {
        let session = settings.pinned.then_some(settings.pinned_session.as_ref()).flatten();
        // A session with a running turn is in memory.
        let Some(entry) = session.and_then(|session| self.sessions.by_uri(session)) else { return false };
        entry.view().is_running()
    }

    /// Stores the session that an automation is pinned to.
    pub(super) async fn pin(&self, id: &str, session: &str) {
        let (Some(store), Some(entry)) = (self.core.automation_store(), self.entry(id)) else {
            return;
        };
        let meta = with_pinned(entry.wire.definition.meta.clone(), Some(session));
        let changes = AutomationDefinitionPatch { meta, ..AutomationDefinitionPatch::default() };
        match store.update.within(limit::STORE, (id.to_owned(), changes)).await {
            Ok(kept) => self.keep_entry(kept, None).await,
            Err(why) => self.core.log.warn(format_args!("{id} could not be pinned to {session}: {why}")),
        }
    }
}
