//! The waking of sessions that are asleep: their state is restored from the store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ostler_contract::points::{KeptChat, KeptTurn};
use ostler_contract::read::Unknown;
use ostler_contract::{Thrown, Value, limit};
use ostler_engine_core::long_work::prompt_work;
use ostler_engine_core::refusals::{not_loaded, unread};
use ostler_engine_users::usage::Taken;
use ostler_protocol::RpcError;
use ostler_protocol::wire::state::{ChatInteractivity, Customization, ErrorInfo, SessionLifecycle};

use super::SessionEntry;
use super::actor::{Actor, boxed};
use super::awake_limit::stay_asleep;
use super::chat::{Chat, was_killed};
use super::create::state_of;
use super::deferred::DeferredPart;
use super::queue::{Inbox, Mailbox};
use super::reported::{ARTIFACTS, Reported};
use super::senders::sender_of;
use crate::Sessions;

/// Loads a sleeping session into memory and serves it.
pub(super) async fn wake(sessions: Arc<Sessions>, entry: Arc<SessionEntry>, mailbox: Mailbox, inbox: Inbox) {
    // Boxed, so that the task of an awake session does not retain the memory of its waking.
    let waking = Box::pin(async move {
        // Sessions wake in turn, so that each one accounts for the memory of those before it.
        let _turn = sessions.limits.waking.acquire().await;
        let stored = match sessions.room_to_wake().await {
            Ok(()) => {
                stored_state(&sessions, &entry).await.map_err(|why| unreadable(&sessions, &entry, &why))
            }
            Err(refused) => Err(refused),
        };
        match stored {
            Ok(stored) => {
                let mut actor = woken(sessions.clone(), entry, mailbox, stored).await;
                // The whole state is measured here. Other sessions wait for their turn to wake.
                prompt_work(usize::MAX, || actor.measure());
                actor.account();
                Some((actor, inbox))
            }
            Err(refused) => {
                stay_asleep(&sessions, &entry, inbox, &refused);
                None
            }
        }
    });
    if let Some((mut actor, inbox)) = waking.await {
        if !inbox.is_ending() {
            // Before the message that woke it, which would overtake them.
            boxed(&mut actor, Actor::begin_all_queued).await;
        }
        actor.run(inbox).await;
    }
}

/// Logs that a session could not be read; returns the error of the messages that wait for it.
fn unreadable(sessions: &Sessions, entry: &SessionEntry, why: &Thrown) -> RpcError {
    let refused = unread(&entry.uri, &Unknown(why.clone()));
    sessions.core.log.warn(&refused.message);
    refused
}

/// Restores a sleeping session from what is stored. Its backends stay asleep until a message needs them.
async fn woken(
    sessions: Arc<Sessions>,
    entry: Arc<SessionEntry>,
    mailbox: Mailbox,
    Stored { chats: stored, discards, reported, artifacts }: Stored,
) -> Box<Actor> {
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
    let (clients, identities): (Vec<_>, Vec<_>) = entry.wake_clients().into_iter().unzip();
    state.active_clients = clients;
    entry.bring(&state.active_clients, &identities, &sessions.limits.states);
    if let Some(message) = missing {
        state.lifecycle = SessionLifecycle::Failed;
        state.creation_error =
            Some(ErrorInfo { error_type: "backend".to_owned(), message, stack: None, meta: None });
    }
    let position = |is: fn(&KeptChat) -> bool| stored.iter().position(|(kept, _)| is(kept));
    let default = position(|kept| kept.default).or_else(|| position(|kept| kept.worker_of.is_none()));
    let numbers: HashMap<String, u64> = stored.iter().map(|(kept, _)| kept.uri.clone()).zip(0..).collect();
    let (mut chats, mut has_changed, mut is_killed) = (Vec::new(), discards, false);
    let mut broken = Vec::new();
    for (kept, turns) in stored {
        let number = chats.len() as u64;
        let audience = sessions.core.fanout.audience(&kept.uri);
        let modified = entry.view().summary.modified_at.clone();
        let mut chat = Chat::new(number, kept.uri.clone(), "", modified, audience);
        let at = chats.len();
        for (place, turn) in turns.iter().enumerate() {
            if place + 1 == turns.len() && was_killed(turn) {
                let charged = sessions.charged_before(&entry, &kept.uri, turn).await;
                broken.push(Broken { at, place, charged });
            } else if turn.unended {
                broken.push(Broken { at, place, charged: Taken::default() });
            }
        }
        let was_killed = turns.last().is_some_and(was_killed);
        chat.restore(&kept, turns);
        if let Some(lead) = &kept.worker_of {
            chat.lead = numbers.get(lead).copied();
            chat.state.interactivity = Some(ChatInteractivity::ReadOnly);
        }
        let queued = chat.state.queued_messages.as_ref().map_or(0, Vec::len);
        is_killed |= was_killed;
        has_changed |=
            chat.has_failed() != kept.failed || kept.starting.is_some() || kept.queued.len() != queued;
        if let Some(lender) = &kept.lender {
            entry.borrow(lender, BTreeMap::new());
        }
        if Some(chats.len()) == default {
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
        let moves = !chat.is_worker() && Some(&chat.uri) != state.default_chat.as_ref();
        chat.state.movable = moves.then_some(true);
    }
    reported.restore(&mut state, &mut chats);
    if let Some(artifacts) = artifacts {
        state.meta.get_or_insert_default().insert(ARTIFACTS.to_owned(), artifacts);
    }
    state.chats = chats.iter().map(Chat::summary).collect();
    let mut actor = Actor::new(sessions, entry, agent, state, chats, mailbox);
    if !identities.is_empty() {
        actor.active_clients = identities;
        actor.remove_disconnected();
        actor.sync_client_plugins();
    }
    if is_killed && actor.state.activity.take().is_some() {
        actor.deferred.add(DeferredPart::Session);
    }
    for turn in broken {
        actor.end_broken(&turn);
    }
    if has_changed {
        // The host was killed in a turn, the messages of runs waited, which start anew, or stored chats are no longer the session's.
        actor.deferred.add(DeferredPart::Chats);
        // Those who list the session have what was stored.
        actor.dirty = true;
    }
    actor.reports_changesets = actor.state.changesets.is_some();
    actor.announced = !actor.sessions.is_draft(&actor.entry);
    actor.changes.clone_from(&actor.entry.view().summary.changes);
    actor.sessions.look_around(&actor.entry, false);
    actor
}

/// A turn that had not ended when its host was killed.
struct Broken {
    /// The chat.
    at: usize,
    /// The turn.
    place: usize,
    /// What was charged of it.
    charged: Taken,
}

impl Actor {
    /// Charges a turn that had not ended, and stores that it has.
    fn end_broken(&mut self, turn: &Broken) {
        let &Broken { at, place, ref charged } = turn;
        // Another version of ostler may have added turns after it.
        if place + 1 < self.chats[at].state.turns.len() {
            let kept = self.keep_named_turn(at, place);
            return self.write_unwaited(kept);
        }
        let chat = &mut self.chats[at];
        let Some(last) = chat.state.turns.last() else { return };
        chat.sender = sender_of(&last.message);
        let charged = self.charge_broken(at, charged);
        self.write_unwaited(charged);
        let kept = self.keep_last_turn(at);
        self.write_unwaited(kept);
    }
}

/// What is stored of a session beside its record.
struct Stored {
    chats: Vec<(KeptChat, Vec<KeptTurn>)>,
    /// Whether other chats are listed, which belong to another session, or to workers of chats that are not there.
    discards: bool,
    reported: Reported,
    artifacts: Option<Value>,
}

/// Reads what a session needs to wake. Without it, the session would overwrite it.
async fn stored_state(sessions: &Sessions, entry: &SessionEntry) -> Result<Stored, Thrown> {
    let ((chats, discards), reported, artifacts) = futures::try_join!(
        stored_chats(sessions, entry),
        reported(sessions, entry),
        artifacts(sessions, entry)
    )?;
    Ok(Stored { chats, discards, reported, artifacts })
}

impl Sessions {
    /// Returns the customizations that the backend of a session that is asleep has reported, if any, as far as they can be read.
    pub async fn customizations_asleep(&self, entry: &SessionEntry) -> Option<Vec<Customization>> {
        reported(self, entry).await.ok()?.customizations()
    }
}

/// Reads what the session's backend reported.
async fn reported(sessions: &Sessions, entry: &SessionEntry) -> Result<Reported, Thrown> {
    let read = sessions.core.report_store().and_then(|store| store.reported.as_ref());
    let Some(read) = read else { return Ok(Reported::default()) };
    let stored = read.read(limit::STORE, (entry.id.clone(),)).await.known()?;
    Ok(Reported::parse(stored).unwrap_or_else(|wrong| {
        // The backend reports it again.
        sessions.core.log.warn(format_args!("{}: {wrong}", entry.uri));
        Reported::default()
    }))
}

async fn artifacts(sessions: &Sessions, entry: &SessionEntry) -> Result<Option<Value>, Thrown> {
    let Some(store) = sessions.core.session_store() else { return Ok(None) };
    let artifacts = store.artifacts.read(limit::STORE, (entry.id.clone(),)).await.known()?;
    Ok((!artifacts.is_empty()).then_some(Value::Array(artifacts)))
}

/// Reads the chats of a session, their titles and their turns. Returns also whether it discards some.
async fn stored_chats(
    sessions: &Sessions,
    entry: &SessionEntry,
) -> Result<(Vec<(KeptChat, Vec<KeptTurn>)>, bool), Thrown> {
    let default = KeptChat { uri: entry.default_chat(), default: true, ..KeptChat::default() };
    let mut chats = match sessions.core.session_store() {
        Some(store) => store.chats.read(limit::STORE, (entry.id.clone(),)).await.known()?,
        None => Vec::new(),
    };
    if chats.is_empty() {
        chats.push(default);
    }
    let turns = sessions.core.turn_store().and_then(|store| store.turns.as_ref());
    let mut state = Vec::new();
    chats.retain(|chat| !chat.closed);
    let listed = chats.len();
    chats.retain(|chat| sessions.holds(entry, &chat.uri));
    let leads: HashSet<String> = chats.iter().map(|chat| chat.uri.clone()).collect();
    chats.retain(|chat| chat.worker_of.as_ref().is_none_or(|lead| leads.contains(lead)));
    let discards = chats.len() < listed;
    for mut chat in chats {
        let of_chat = || (entry.id.clone(), chat.uri.clone());
        let turns = async {
            match turns {
                Some(turns) => turns.read(limit::STORE, of_chat()).await.known(),
                None => Ok(Vec::new()),
            }
        };
        let title = async {
            match sessions.core.session_store() {
                Some(store) if chat.title.is_none() => {
                    store.chat_title.read(limit::STORE, of_chat()).await.known()
                }
                _ => Ok(chat.title.clone()),
            }
        };
        let (turns, title) = futures::try_join!(turns, title)?;
        chat.title = title;
        state.push((chat, turns));
    }
    Ok((state, discards))
}
