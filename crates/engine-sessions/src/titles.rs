//! The titles of a session and its chats.

use ostler_engine_core::fanout::Origin;
use ostler_engine_core::titles::tidy_title;
use ostler_protocol::wire::actions::{SessionTitleChangedAction, StateAction};

use super::Place;
use super::actor::Actor;
use super::backend::Tell;

impl Actor {
    /// Renames the session and its default chat.
    pub(super) async fn rename(&mut self, title: &str, origin: Option<Origin>) {
        let (Some(title), Some(at)) = (tidy_title(title), self.chat_at(&Place::DefaultChat)) else { return };
        self.chats[at].titled = true;
        if self.state.title == title && self.chats[at].state.title == title {
            return;
        }
        self.tell_if_awake(at, Tell::SetTitle { title: title.clone() });
        self.set_title(at, title, origin).await;
    }

    /// Returns a title for a session and its first chat from the message of the running turn, if they have none.
    pub(super) fn name_after(&self, at: usize) -> Option<String> {
        let chat = &self.chats[at];
        let turn = chat.state.active_turn.as_ref().filter(|_| !chat.titled && chat.state.title.is_empty())?;
        tidy_title(&turn.message.text)
    }

    /// Sets the title of a chat; the default chat's is the session's.
    pub(super) async fn set_title(&mut self, at: usize, title: String, origin: Option<Origin>) {
        self.flush_out();
        let before = self.chats[at].before(false);
        self.show_title(at, &title, origin);
        self.chats[at].unstored = Some(before);
        self.stored_session(self.keep_titles(at, title)).await;
        self.chats[at].unstored = None;
        self.refresh_summaries();
    }

    /// Applies a title to the state and queues the action for subscribers.
    pub(super) fn show_title(&mut self, at: usize, title: &str, origin: Option<Origin>) {
        title.clone_into(&mut self.chats[at].state.title);
        self.dirty = true;
        if Some(self.chats[at].uri.as_str()) == self.state.default_chat.as_deref() {
            let changed = SessionTitleChangedAction { title: title.to_owned() };
            self.apply_session(StateAction::SessionTitleChanged(changed), origin);
        }
    }

    /// Stores a chat's title in all places that contain it, in one commit.
    pub(super) fn keep_titles(
        &self,
        at: usize,
        title: String,
    ) -> impl Future<Output = (bool, bool, bool)> + Send + use<> {
        futures::future::join3(self.keep_title(at, title), self.keep_session(), self.keep_chats())
    }
}
