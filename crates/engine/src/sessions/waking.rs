//! The waking of sessions that are asleep: their state is restored from the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::limit;
use ostler_contract::points::KeptChat;
use ostler_protocol::wire::state::{ErrorInfo, SessionLifecycle, Turn};

use super::Entry;
use super::actor::Actor;
use super::awake_limit::stay_asleep;
use super::chat::Chat;
use super::create::state_of;
use super::queue::{Inbox, Mailbox};
use crate::core::long_work::long_work;
use crate::core::refusals::not_loaded;
use crate::sessions::Sessions;

/// Loads a sleeping session into memory and serves it.
pub(super) async fn wake(sessions: Arc<Sessions>, entry: Arc<Entry>, mailbox: Mailbox, inbox: Inbox) {
    // Boxed, so that the task of an awake session does not retain the memory of its waking.
    let waking = Box::pin(async move {
        // Sessions wake in turn, so that each one accounts for the memory of those before it.
        let _turn = sessions.waking.acquire().await;
        match sessions.room_to_wake().await {
            Ok(()) => {
                let mut actor = woken(sessions.clone(), entry, mailbox).await;
                // The whole state is measured here.
                long_work(usize::MAX, || actor.account());
                Some((actor, inbox))
            }
            Err(refused) => {
                stay_asleep(&sessions, &entry, inbox, &refused);
                None
            }
        }
    });
    if let Some((actor, inbox)) = waking.await {
        actor.run(inbox).await;
    }
}

/// Restores a sleeping session from the store. Its backends stay asleep until a message needs them.
async fn woken(sessions: Arc<Sessions>, entry: Arc<Entry>, mailbox: Mailbox) -> Box<Actor> {
    let agent = sessions.core.agent(&entry.provider);
    let view = entry.view();
    let chosen = &view.record.values;
    let (agent, config, missing) = match agent {
        Some(agent) => match sessions.session_settings(&agent, chosen).await {
            Ok(config) => match sessions.workspace.stranded(&agent, &config) {
                None => (Some(agent), Some(config), None),
                stranded => (None, Some(config), stranded),
            },
            Err(why) => (Some(agent), None, Some(why.message)),
        },
        None => (None, None, Some(not_loaded(&entry.provider))),
    };
    let (agent, missing) = match entry.is_away() {
        None => (agent, missing),
        away => (None, away),
    };
    let mut state = state_of(&entry, config);
    entry.bring(&state.active_clients, &sessions.memory);
    if let Some(message) = missing {
        state.lifecycle = SessionLifecycle::Failed;
        state.creation_error =
            Some(ErrorInfo { error_type: "backend".to_owned(), message, stack: None, meta: None });
    }
    let mut chats = Vec::new();
    for kept in stored_chats(&sessions, &entry).await {
        let number = chats.len() as u64;
        let audience = sessions.core.fanout.audience(&kept.uri);
        let modified = entry.view().summary.modified_at.clone();
        let mut chat = Chat::new(number, kept.uri.clone(), "", modified, audience);
        let turns = stored_turns(&sessions, &entry, &kept.uri).await;
        chat.restore(&kept, turns);
        if let Some(lender) = &kept.lender {
            entry.borrow(lender, BTreeMap::new());
        }
        if kept.default || chats.is_empty() {
            state.default_chat = Some(chat.uri.clone());
            if chat.backend_id.is_none() {
                chat.backend_id = entry.view().record.backend_id.clone();
            }
            if chat.state.title.is_empty() {
                chat.state.title.clone_from(&state.title);
            }
        }
        chats.push(chat);
    }
    for chat in &mut chats {
        chat.state.movable = (Some(&chat.uri) != state.default_chat.as_ref()).then_some(true);
    }
    state.chats = chats.iter().map(Chat::summary).collect();
    let mut actor = Actor::new(sessions, entry, agent, state, chats, mailbox);
    actor.announced = !actor.sessions.is_draft(&actor.entry);
    actor.changes.clone_from(&actor.entry.view().summary.changes);
    actor.sessions.look_around(&actor.entry, false);
    actor
}

async fn stored_chats(sessions: &Sessions, entry: &Entry) -> Vec<KeptChat> {
    let default = || vec![KeptChat { uri: entry.default_chat(), default: true, ..KeptChat::default() }];
    let Some(store) = sessions.core.session_store() else { return default() };
    match store.chats.within(limit::STORE, (entry.id.clone(),)).await {
        Ok(chats) if chats.is_empty() => default(),
        Ok(chats) => {
            chats.into_iter().filter(|chat| !chat.closed && sessions.holds(entry, &chat.uri)).collect()
        }
        Err(why) => {
            sessions.core.log.line(format_args!("{}: its chats could not be read: {why}", entry.uri));
            default()
        }
    }
}

async fn stored_turns(sessions: &Sessions, entry: &Entry, chat: &str) -> Vec<Turn> {
    let Some(turns) = sessions.core.turn_store().and_then(|store| store.turns.as_ref()) else {
        return Vec::new();
    };
    match turns.within(limit::STORE, (entry.id.clone(), chat.to_owned())).await {
        Ok(turns) => turns,
        Err(why) => {
            sessions.core.log.line(format_args!("{chat}: its turns could not be read: {why}"));
            Vec::new()
        }
    }
}
