//! Moving a chat: to another place in its session's list, into another session, or into a new one. A chat in transit is
//! in no session's list of running chats. Messages to it wait, and it is returned if the other session does not accept
//! it.

use std::sync::Arc;

use ostler_contract::cluster::SessionOwner;
use ostler_contract::points::{KeptSession, SessionStore};
use ostler_contract::{Thrown, limit};
use ostler_engine_core::refusals::{NOT_MOVED, no_chat, no_chat_in, no_directory_of, nothing_at};
use ostler_engine_core::shared::Core;
use ostler_protocol::RpcError;
use ostler_protocol::wire::actions::{
    ChatMovableChangedAction, SessionChatAddedAction, SessionChatRemovedAction, SessionChatsReorderedAction,
    StateAction,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::actor::Actor;
use super::chat::Chat;
use super::chats::Opening;
use super::create::NewSession;
use super::deferred::DeferredPart;
use super::mailbox::ToSession;
use super::ownership::ask;
use super::store_writes::at_time;
use super::{Place, SessionEntry};
use crate::Sessions;

/// A chat in transit to another session, with the chats of its workers.
#[derive(Debug)]
pub struct Lent {
    /// The chats; the moved chat is the first.
    pub(super) chats: Vec<Chat>,
}

impl Lent {
    fn uri(&self) -> &str {
        self.chats.first().map_or("", |chat| &chat.uri)
    }

    /// Gives the chats numbers that are free in the session that receives them.
    pub(super) fn renumber(&mut self, from: u64) {
        for (chat, number) in self.chats.iter_mut().zip(from..) {
            chat.number = number;
            chat.modified = None;
            chat.lead = chat.lead.map(|_| from);
        }
    }
}

impl Actor {
    /// Sets whether a chat can be moved.
    pub(super) fn set_movable(&mut self, at: usize, movable: bool) {
        if self.chats[at].state.movable != Some(movable) {
            self.apply_chat(at, StateAction::ChatMovableChanged(ChatMovableChangedAction { movable }), None);
            // An update of a summary does not change this field; a whole summary does.
            let summary = self.chats[at].summary();
            self.apply_session(StateAction::SessionChatAdded(SessionChatAddedAction { summary }), None);
        }
    }

    fn movable(&self, place: &Place, spelled: &str) -> Result<usize, RpcError> {
        let at = self.chat_at(place).ok_or_else(|| no_chat(spelled))?;
        match self.chats[at].state.movable {
            Some(true) => Ok(at),
            _ => Err(RpcError::invalid_params(format!("{spelled} cannot be moved"))),
        }
    }

    /// Moves a chat within the session's list: after another chat, or to the front.
    pub(super) async fn move_within(
        &mut self,
        place: &Place,
        spelled: &str,
        after: Option<&str>,
    ) -> Result<(), RpcError> {
        let at = self.movable(place, spelled)?;
        let uri = self.chats[at].uri.clone();
        self.may_follow(&uri, after)?;
        self.put_after(&uri, after);
        self.stored_session(self.keep_chats()).await;
        Ok(())
    }

    fn may_follow(&self, uri: &str, after: Option<&str>) -> Result<(), RpcError> {
        let Some(after) = after else { return Ok(()) };
        let anchor = self.anchor(after);
        match anchor {
            Some(anchor) if anchor != uri => Ok(()),
            Some(_) => Err(RpcError::invalid_params(format!("{after} cannot be moved behind itself"))),
            None => Err(no_chat_in(after, &self.entry.uri)),
        }
    }

    /// Returns the URI of the session's chat that a URI in any spelling names.
    fn anchor(&self, spelled: &str) -> Option<&str> {
        let (entry, place) = self.sessions.locate(&self.sessions.channel(spelled))?;
        let at = Arc::ptr_eq(&entry, &self.entry).then(|| self.chat_at(&place)).flatten()?;
        Some(&self.chats[at].uri)
    }

    fn put_after(&mut self, uri: &str, after: Option<&str>) {
        let anchor = after.and_then(|after| self.anchor(after)).map(str::to_owned);
        let mut order: Vec<String> = self.state.chats.iter().map(|chat| chat.resource.clone()).collect();
        order.retain(|other| other != uri);
        let place = match &anchor {
            Some(anchor) => order.iter().position(|other| other == anchor).map_or(0, |at| at + 1),
            None => 0,
        };
        order.insert(place, uri.to_owned());
        self.chats.sort_by_key(|chat| order.iter().position(|uri| *uri == chat.uri));
        let reordered = SessionChatsReorderedAction { chats: order };
        self.apply_session(StateAction::SessionChatsReordered(reordered), None);
    }

    /// Hands a chat over for another session.
    pub(super) fn lend_chat(&mut self, place: &Place, spelled: &str) -> Result<Lent, RpcError> {
        let at = self.movable(place, spelled)?;
        let (number, uri) = (self.chats[at].number, self.chats[at].uri.clone());
        let goes = |chat: &Chat| chat.number == number || chat.lead == Some(number);
        if self.chats.iter().any(|chat| goes(chat) && chat.running().is_some()) {
            return Err(RpcError::turn_in_progress(format!("a turn is running in {spelled}")));
        }
        let (mut chats, left): (Vec<Chat>, Vec<Chat>) =
            std::mem::take(&mut self.chats).into_iter().partition(goes);
        self.chats = left;
        chats.sort_by_key(|chat| chat.number != number);
        let lead = |chat: &Chat| chat.is_worker().then_some(&*uri);
        let kept = chats.iter().map(|chat| at_time(chat.kept(false, lead(chat)), chat.listed_at())).collect();
        self.opening.push(Opening { uri, number, waiting: Vec::new(), kept });
        Ok(Lent { chats })
    }

    /// Adds a chat from another session: it is stored, then announced.
    pub(super) async fn take_chat(
        &mut self,
        mut lent: Lent,
        after: Option<&str>,
    ) -> Result<(), (RpcError, Lent)> {
        let uri = lent.uri().to_owned();
        if let Err(refused) = self.may_follow(&uri, after) {
            return Err((refused, lent));
        }
        let folders: Vec<&String> = self.state.working_directories.iter().flatten().collect();
        let own = lent.chats.iter().filter_map(|chat| chat.state.working_directories.as_ref()).flatten();
        if let Some(other) = own.into_iter().find(|folder| !folders.contains(folder)) {
            let why = no_directory_of(other, &self.entry.uri);
            return Err((RpcError::invalid_params(why), lent));
        }
        lent.renumber(self.next_chat);
        self.next_chat += lent.chats.len() as u64;
        let (at, count) = (self.chats.len(), lent.chats.len());
        self.chats.append(&mut lent.chats);
        if !self.keep_added(at).await {
            lent.chats = self.chats.split_off(at);
            return Err((RpcError::internal(NOT_MOVED), lent));
        }
        for at in at..at + count {
            self.sessions.give_chat(&self.chats[at].uri, &self.entry.id);
            let summary = self.chats[at].summary();
            self.apply_session(StateAction::SessionChatAdded(SessionChatAddedAction { summary }), None);
        }
        self.put_after(&uri, after);
        if self.chats[at..at + count].iter().any(Chat::has_reports) {
            self.deferred.add(DeferredPart::Reported);
        }
        self.stored_session(self.keep_chats()).await;
        if self.chats.iter().any(|chat| !chat.state.turns.is_empty())
            && let Some(draft) = self.begin_draft()
        {
            self.stored_session(self.keep_session()).await;
            self.announce_begun(draft);
        }
        Ok(())
    }

    /// Stores that the session is now the only one with the chats it was created for.
    pub(super) async fn made(&mut self) {
        self.revise(|record| record.draft = None);
        self.stored_session(self.keep_session()).await;
    }

    /// Completes a handover: the chat now belongs to another session, or is returned.
    pub(super) async fn loan_ended(
        &mut self,
        uri: String,
        outcome: Result<(Arc<SessionEntry>, Vec<String>), Lent>,
    ) {
        let mut waiting = match self.opening.iter().position(|opening| opening.uri == uri) {
            Some(at) => self.opening.swap_remove(at).waiting,
            None => Vec::new(),
        };
        // Later messages of its backend are for its old number, which no chat has any more.
        waiting.retain(|posted| posted.message.chat_number().is_none());
        match outcome {
            Ok((taker, chats)) => {
                for chat in &chats {
                    let removed = SessionChatRemovedAction { chat: chat.clone() };
                    self.apply_session(StateAction::SessionChatRemoved(removed), None);
                }
                self.deferred.add(DeferredPart::Reported);
                self.stored_session(self.keep_chats()).await;
                let forgotten: Vec<_> = chats.iter().map(|chat| self.forget_turns(chat)).collect();
                self.stored(futures::future::join_all(forgotten)).await;
                for posted in waiting {
                    self.sessions.tell(&taker, posted.message);
                }
            }
            Err(mut lent) => {
                lent.renumber(self.next_chat);
                self.next_chat += lent.chats.len() as u64;
                lent.chats.first_mut().into_iter().for_each(|chat| chat.state.movable = Some(true));
                self.chats.extend(lent.chats);
                let order: Vec<&str> = self.state.chats.iter().map(|chat| chat.resource.as_str()).collect();
                self.chats.sort_by_key(|chat| order.iter().position(|uri| *uri == chat.uri));
                self.again.extend(waiting);
            }
        }
        self.settle();
    }
}

/// Whether a record is not that of a session yet, because it was being created for chats of another one or with a working
/// tree, or is that of a detached working tree.
pub(super) fn is_no_session(stored: &KeptSession) -> bool {
    stored.draft.as_ref().is_some_and(|draft| draft.moving || draft.creating || draft.detached.is_some())
}

/// Completes the moves that the end of the host interrupted, for those of the given sessions that were being created.
/// Each of them is stored completely, so its chats are removed from the session they came from.
pub(super) async fn finish_moves(core: &Core, store: &SessionStore, ids: &[String]) {
    for id in ids {
        if let Err(why) = finish_move(core, store, id).await {
            core.log.warn(format_args!("{id}: the move of a chat could not be finished in the store: {why}"));
        }
    }
}

async fn finish_move(core: &Core, store: &SessionStore, id: &str) -> Result<(), Thrown> {
    let kept = store.config.read(limit::STORE, (id.to_owned(),)).await.known()?;
    let Some(mut kept) = kept.filter(|kept| kept.draft.as_ref().is_some_and(|draft| draft.moving)) else {
        return Ok(());
    };
    for chat in store.chats.read(limit::STORE, (id.to_owned(),)).await.known()? {
        let Some(other) = other_with(store, id, &chat.uri).await? else { continue };
        if let Some(cluster) = core.cluster()
            && ask(cluster.claim(other.clone())).await? != SessionOwner::Here
        {
            return Err(Thrown::new(format_args!("session {other} is served by another host")));
        }
        let mut left = store.chats.read(limit::STORE, (other.clone(),)).await.known()?;
        left.retain(|held| held.uri != chat.uri);
        store.set_chats.within(limit::STORE, (other.clone(), left)).await?;
        if let Some(drop_turns) = &store.drop_turns {
            drop_turns.within(limit::STORE, (other, chat.uri, 0)).await?;
        }
    }
    kept.draft = None;
    store.set_config.within(limit::STORE, (id.to_owned(), kept)).await
}

/// Returns another session that is stored with a chat.
async fn other_with(store: &SessionStore, id: &str, chat: &str) -> Result<Option<String>, Thrown> {
    if let Some(session_of_chat) = &store.session_of_chat {
        let first = session_of_chat.read(limit::STORE, (chat.to_owned(),)).await.known()?;
        return Ok(first.filter(|first| first != id));
    }
    for other in store.sessions.read(limit::STORE_SCAN, ()).await.known()? {
        let chats = store.chats.read(limit::STORE, (other.clone(),)).await.known()?;
        if other != id && chats.iter().any(|held| !held.closed && held.uri == chat) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

impl SessionEntry {
    /// Whether the session is being created for chats of another one.
    fn is_being_made(&self) -> bool {
        self.view().record.draft.as_ref().is_some_and(|draft| draft.moving)
    }
}

/// The destination of a chat that is moved.
#[derive(Debug)]
pub enum Destination {
    /// An existing session, after one of its chats or at the front.
    Session(Arc<SessionEntry>, Option<String>),
    /// A new session.
    New,
}

impl Sessions {
    /// Moves a chat. Returns the URI of the session that it is in afterwards.
    pub async fn move_chat(
        self: &Arc<Self>,
        (from, place, spelled): (Arc<SessionEntry>, Place, String),
        to: Destination,
    ) -> Result<String, RpcError> {
        let gone = || nothing_at(&from.uri);
        if let Destination::Session(taker, after) = &to {
            if Arc::ptr_eq(taker, &from) {
                let (answer, wait) = oneshot::channel();
                self.tell(&from, ToSession::MoveWithin { spelled, place, after: after.clone(), answer });
                return wait.await.unwrap_or_else(|_| Err(gone())).map(|()| from.uri.clone());
            }
            if taker.provider != from.provider {
                let why = format!(
                    "cannot move a chat of {} to a session of {}: the providers differ",
                    from.provider, taker.provider
                );
                return Err(RpcError::invalid_params(why));
            }
            if !taker.works_as(&from) {
                return Err(RpcError::permission_denied(format!("{} belongs to another user", taker.uri)));
            }
        }
        let (answer, wait) = oneshot::channel();
        self.tell(&from, ToSession::LendChat { spelled, place, answer });
        let mut lent = wait.await.unwrap_or_else(|_| Err(gone()))?;
        let uri = lent.uri().to_owned();
        let chats = lent.chats.iter().map(|chat| chat.uri.clone()).collect();
        // The conversation resumes in the other session with the tokens of the same client.
        let lender = from.lender().map(Box::new);
        for chat in &mut lent.chats {
            chat.lender = chat.lender.take().or_else(|| lender.clone());
            if let Some(backend) = chat.backend.take() {
                backend.close(false).await;
            }
        }
        let lenders: Vec<_> = lent.chats.iter().filter_map(|chat| chat.lender.as_deref().cloned()).collect();
        let taken = match to {
            Destination::Session(taker, after) => self.give_to(taker, lent, after).await,
            Destination::New => self.give_a_session(&from, lent).await,
        };
        let (answer, ended) = match taken {
            Ok(taker) => {
                lenders.iter().for_each(|lender| taker.borrow_from(&from, lender));
                (Ok(taker.uri.clone()), Ok((taker, chats)))
            }
            Err((refused, lent)) => (Err(refused), Err(lent)),
        };
        let made = ended.as_ref().ok().map(|(taker, _)| taker.clone()).filter(|taker| taker.is_being_made());
        let (done, wait) = oneshot::channel();
        self.tell(&from, ToSession::LoanEnded { uri, outcome: Box::new(ended), done });
        let _ = wait.await;
        if let Some(made) = made {
            let (done, wait) = oneshot::channel();
            self.tell(&made, ToSession::Made { done });
            let _ = wait.await;
        }
        answer
    }

    async fn give_to(
        self: &Arc<Self>,
        taker: Arc<SessionEntry>,
        lent: Lent,
        after: Option<String>,
    ) -> Result<Arc<SessionEntry>, (RpcError, Lent)> {
        // If the chat is not accepted after all, they stay with the session until it is deleted.
        if !self.adopt_attachments(&taker, &lent.chats).await {
            return Err((RpcError::internal(NOT_MOVED), lent));
        }
        let (answer, wait) = oneshot::channel();
        let lent = Arc::new(Mutex::new(Some(lent)));
        self.tell(&taker, ToSession::TakeChat { lent: lent.clone(), after, answer });
        match wait.await {
            Ok(Ok(())) => Ok(taker),
            Ok(Err(refused)) => Err(*refused),
            Err(_) => {
                let left = lent.lock().take().unwrap_or_else(|| Lent { chats: Vec::new() });
                Err((nothing_at(&taker.uri), left))
            }
        }
    }

    async fn give_a_session(
        self: &Arc<Self>,
        from: &Arc<SessionEntry>,
        lent: Lent,
    ) -> Result<Arc<SessionEntry>, (RpcError, Lent)> {
        let view = from.view();
        let new = NewSession {
            id: self.core.new_id(),
            provider: Some(from.provider.clone()),
            owner: from.owner.clone(),
            works_for: from.works_for.clone(),
            working_directories: view.directories().to_vec(),
            config: view.record.values.clone(),
            title: lent.chats.first().map(|chat| chat.state.title.clone()).filter(|title| !title.is_empty()),
            ..NewSession::default()
        };
        match self.claim_session(new) {
            Ok(claimed) => claimed.adopt(self, lent).await,
            Err(refused) => Err((refused, lent)),
        }
    }
}
