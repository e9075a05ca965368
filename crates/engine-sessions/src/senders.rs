//! Who sent a message, and how it entered the host. Only the host writes both; they are stored with the message, because
//! what its sender may do is asked when its turn begins, which can be long after it was accepted.

use std::sync::Arc;

use ostler_contract::owner::Owner;
use ostler_engine_users::users::Credential;
use ostler_engine_users::users::principal::ANONYMOUS;
use ostler_protocol::grants::Grant;
use ostler_protocol::origins::{By, Effect, Rule, WayIn, rule};
use ostler_protocol::wire::state::{Message, MessageKind};
use ostler_protocol::{RpcError, names};

use super::actor::Actor;
use super::chat::Chat;
use super::command_lines::command_of;
use super::{SessionEntry, Sessions, ToSession};

/// The fact with the sender of a message: `user:<id>`, `root:<host>` or `plugin:<id>`.
const SENDER: &str = "sender";
/// The fact with the way in of a message that looks like a command line, the only effect that depends on it later.
const WAY_IN: &str = "wayIn";

/// Why a turn that has already started may not run.
#[derive(Debug)]
pub struct TurnRefusal {
    /// The type of the turn's error.
    pub error_type: &'static str,
    /// The reason.
    pub message: String,
}

impl TurnRefusal {
    /// The policies denied it.
    pub(super) fn by_policies(message: String) -> Self {
        Self { error_type: "policy", message }
    }

    /// The backend can no longer continue.
    pub(super) fn by_backend(message: String) -> Self {
        Self { error_type: "backend", message }
    }

    fn by_grants(message: String) -> Self {
        Self { error_type: "permission", message }
    }
}

impl Actor {
    /// Records the sender in a message, if the host has a users file, and how it entered the host, if a client sent it.
    /// What the client wrote there is discarded.
    pub(super) fn sign(&self, message: &mut Message, sender: Option<&str>, way: Option<WayIn>) {
        let (sender_key, way_key) = (names::meta_key(SENDER), names::meta_key(WAY_IN));
        if let Some(meta) = &mut message.meta {
            meta.shift_remove(&sender_key);
            meta.shift_remove(&way_key);
        }
        if let Some(sender) = sender
            && self.sessions.access.gate.is_guarded()
        {
            message.meta.get_or_insert_default().insert(sender_key, sender.into());
        }
        if let Some(way) = way
            && command_of(&message.text).is_some()
        {
            message.meta.get_or_insert_default().insert(way_key, way.name().into());
        }
    }

    /// Returns the command line of a message that may be one: a client sent it that was offered the prefix, and the host
    /// has terminals.
    pub(super) fn command_line_of<'a>(&self, message: &'a Message) -> Option<&'a str> {
        let command = command_of(&message.text)?;
        let is_offered = way_of(message).is_some_and(|way| grants_of_command_line(way).is_some());
        (is_offered && self.sessions.workspace.terminal_store().is_some()).then_some(command)
    }

    /// Returns why the sender of a message may not start its turn now, if that is so. The sender may have lost grants, or
    /// have been removed, since the message was accepted.
    pub(super) fn refusal_of(&self, message: &Message) -> Option<TurnRefusal> {
        let access = &self.sessions.access;
        let sender = sender_of(message);
        if let Err(refused) = self.sessions.may_send(&self.entry, &message.origin.kind, sender.as_deref()) {
            return Some(TurnRefusal::by_grants(refused.message));
        }
        self.command_line_of(message)?;
        let grants = grants_of_command_line(way_of(message)?)?;
        let who = who(sender.as_deref());
        let lacks = grants.iter().find(|grant| access.require_still(who, grant).is_err())?;
        Some(TurnRefusal::by_grants(format!(
            "{who} may not {lacks} here, which a command line (a message that begins with !) needs"
        )))
    }
}

impl Actor {
    /// Ends the running turns whose sender may no longer run them, and closes the backends that do nothing for anybody else when
    /// nobody may work for the owner.
    pub(super) async fn review_turns(&mut self) {
        self.stop_refused();
        for (chat, turn, why) in self.refused_turns() {
            // Its sender may cancel it meanwhile, and the end of another turn may close a worker's chat.
            let Some(at) = self.chat_numbered(chat) else { continue };
            if self.chats[at].running() == Some(turn.as_str()) {
                self.fail_turn(at, why.error_type, why.message).await;
            }
        }
        if self.sessions.may_work_for_owner(&self.entry).is_err() {
            self.close_idle_backends().await;
        }
    }

    /// Tells the backends to stop the turns whose sender may no longer run them.
    pub(super) fn stop_refused(&mut self) {
        for (chat, turn, _) in self.refused_turns() {
            if let Some(at) = self.chat_numbered(chat) {
                self.cancel_backend(at, turn);
            }
        }
    }

    /// The running turns whose sender may no longer run them: the number of the chat, the turn, and why.
    fn refused_turns(&self) -> Vec<(u64, String, TurnRefusal)> {
        // A worker's turn ends with that of its lead.
        let chats = self.chats.iter().filter(|chat| !chat.is_worker());
        let refused = chats.filter_map(|chat| {
            let turn = chat.state.active_turn.as_ref()?;
            Some((chat.number, turn.id.clone(), self.refusal_of(&turn.message)?))
        });
        refused.collect()
    }

    /// Closes the backends without a running turn, and with them what they do in the background. The next turn starts another.
    async fn close_idle_backends(&mut self) {
        let idle = |chat: &Chat| chat.running().is_none() && chat.backend.is_some();
        let idle: Vec<u64> = self.chats.iter().filter(|chat| idle(chat)).map(|chat| chat.number).collect();
        for lead in idle {
            let is_worker = |chat: &&Chat| chat.lead == Some(lead);
            let workers: Vec<u64> = self.chats.iter().filter(is_worker).map(|chat| chat.number).collect();
            for worker in workers {
                if let Some(at) = self.chat_numbered(worker) {
                    self.cancel_running(at).await;
                }
            }
            if let Some(at) = self.chat_numbered(lead) {
                self.restart_backend(at);
            }
        }
    }

    /// What tells, when a steering message reaches the backend, whether its sender may still send it.
    pub(super) fn may_still_send(&self, message: &Message) -> Credential {
        let (sessions, entry) = (self.sessions.clone(), self.entry.clone());
        let (kind, sender) = (message.origin.kind.clone(), sender_of(message));
        Credential::new(move || sessions.may_send(&entry, &kind, sender.as_deref()).is_ok())
    }
}

impl SessionEntry {
    /// Whether two sessions work in the names of the same owners.
    pub(super) fn works_as(&self, other: &Self) -> bool {
        (&self.owner, &self.works_for) == (&other.owner, &other.works_for)
    }
}

impl Sessions {
    /// Checks that a message may be sent now. Automations, agents and plugins, such as a bot's webhook, act for the owner of the
    /// session.
    fn may_send(
        &self,
        entry: &SessionEntry,
        kind: &MessageKind,
        sender: Option<&str>,
    ) -> Result<(), RpcError> {
        let is_of_plugin = |sender: &str| matches!(Owner::parse(sender), Some(Owner::Plugin(_)));
        match (kind, sender) {
            (MessageKind::User, Some(sender)) if !is_of_plugin(sender) => {
                self.access.require_still(sender, &Grant::of("chat", "send"))
            }
            _ => self.may_work_for_owner(entry),
        }
    }

    /// Checks that the work of a session may go on in the name of its owner and of whomever else it works for, who may have lost
    /// grants, or have been removed.
    ///
    /// # Errors
    /// `-32009` if one of them could not start the session now.
    pub(super) fn may_work_for_owner(&self, entry: &SessionEntry) -> Result<(), RpcError> {
        let mut owners = entry.owner.iter().chain(&entry.works_for);
        owners.try_for_each(|owner| self.access.require_still(owner, &Grant::of("session", "create")))
    }

    /// Ends the running turns whose sender may no longer run them, after users have changed.
    pub fn review_turns(self: &Arc<Self>) {
        for entry in self.all().into_iter().filter(|entry| entry.is_awake()) {
            self.tell(&entry, ToSession::Review);
        }
    }
}

/// Returns whom to ask for the sender of a message. On a host with users, one without a sender was accepted before it had
/// any.
pub(super) fn who(sender: Option<&str>) -> &str {
    sender.unwrap_or(ANONYMOUS)
}

/// Returns the sender that is recorded in a message.
pub(super) fn sender_of(message: &Message) -> Option<String> {
    let sender = message.meta.as_ref()?.get(&names::meta_key(SENDER))?;
    sender.as_str().map(str::to_owned)
}

/// Returns the way in that is recorded in a message.
pub(super) fn way_of(message: &Message) -> Option<WayIn> {
    WayIn::named(message.meta.as_ref()?.get(&names::meta_key(WAY_IN))?.as_str()?)
}

/// Returns the grants that a command line of a way in needs; `None` if what enters by it is never one.
pub fn grants_of_command_line(way: WayIn) -> Option<&'static [Grant]> {
    match rule(way, Effect::CommandLine) {
        Rule::Granted(grants, By::Sender) => Some(grants),
        _ => None,
    }
}
