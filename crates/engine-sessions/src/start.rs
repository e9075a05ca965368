//! The input of a chat's backend, when the chat starts and when the backend is woken.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::points::{Emit, ResourceContent, Start, ToolsServerOptions, Worker, WorkerRequest};
use ostler_contract::{Func, HostFunction, JsonObject, Thrown, Value};
use ostler_engine_core::refusals::{NO_ACTION_TYPE, SESSION_ENDED, lacks_field};
use ostler_engine_core::weak::upgraded;
use ostler_protocol::RpcError;
use ostler_protocol::actions::Class;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::{actions, json};
use tokio::sync::oneshot;

use super::actor::Actor;
use super::backend::Backend;
use super::bound_tools::SessionTools;
use super::chat::Chat;
use super::emit_limit::EmitLimit;
use super::emitted_values;
use super::mailbox::{ToSession, WorkerOpened};
use super::queue::Mailbox;

impl Actor {
    /// Starts the backend of a chat that has none; `resumes` says whether it is to continue the running turn, which had failed.
    pub(super) fn wake_backend(&mut self, at: usize, resumes: bool) {
        let Some(agent) = self.agent.clone() else { return };
        let mut start = self.start_of(&self.chats[at], self.lent_to(&self.chats[at]));
        start.resume.clone_from(&self.chats[at].backend_id);
        let mut turns = self.chats[at].state.turns.clone();
        self.chats[at].resumes = false;
        self.chats[at].ended = None;
        if self.chats[at].rewind {
            start.rewind_at = turns.last().map(|turn| self.chats[at].name_of(&turn.id));
            self.chats[at].rewind = false;
        }
        if resumes {
            let duration = self.duration(at);
            turns.extend(self.chats[at].as_if_failed(duration));
        }
        start.context = self.chats[at].untold_context().map(str::to_owned);
        start.seed = Some(turns).filter(|turns| !turns.is_empty());
        let (number, ending) = (self.chats[at].number, self.chats[at].ending.take());
        let (sessions, entry) = (self.sessions.clone(), self.entry.clone());
        let plugins = self.client_plugins.settled();
        let around = async move {
            // The working tree may have been removed from disk with an archived session.
            sessions.restore_tree_of(&entry).await;
            (sessions.mcp_servers_for(&entry).await, plugins.await)
        };
        self.chats[at].toggled.clear();
        self.chats[at].backend =
            Some(Backend::waking(&agent, start, around, number, self.mailbox.clone(), ending));
    }

    /// Returns the input of a chat's backend.
    pub(super) fn start_of(&self, chat: &Chat, credentials: Option<BTreeMap<String, String>>) -> Start {
        let first = chat.uri == ostler_protocol::uri::default_chat(&self.entry.uri);
        let paths = self.paths_of(chat);
        let (number, emitted, recorded) = (chat.number, self.mailbox.clone(), self.mailbox.clone());
        let ahead = self.ahead.clone();
        let tools = self.bound_tools(&chat.uri);
        let instructions: Vec<String> =
            self.core.offered_tools().filter_map(|tool| tool.tool.instruction.clone()).collect();
        let tools_server = self.sessions.tools_server().map(|open| {
            let tools = SessionTools::new(&self.sessions, &self.entry);
            HostFunction::new(move |(options,): (Option<ToolsServerOptions>,)| {
                open.open(tools.clone(), options.unwrap_or_default())
            })
        });
        Start {
            uri: self.entry.uri.clone(),
            chat_uri: chat.uri.clone(),
            chat_id: (!first).then(|| chat.backend_id.clone().unwrap_or_else(|| chat.uri.clone())),
            settings: self.state.config.as_ref().map(|config| config.values.clone()).unwrap_or_default(),
            chosen_settings: self.entry.view().record.values.clone(),
            working_directory: paths.first().cloned(),
            additional: (paths.len() > 1).then(|| paths[1..].to_vec()),
            tools: (!tools.is_empty()).then_some(tools),
            // Their secrets are read later, so that a plugin's vault does not block the actor.
            mcp_servers: None,
            client_plugins: Some(self.client_plugins.list()).filter(|plugins| !plugins.is_empty()),
            instructions: (!instructions.is_empty()).then_some(instructions),
            client_tool_timeout_ms: self.core.options.client_tool_timeout_ms,
            emit: Func::new(move |(channel, action): (Emit, StateAction)| {
                known(&action)?;
                ahead.wait_one_more(&action)?;
                let emitted = emitted.send(ToSession::Emit { chat: number, channel, action });
                emitted.map_err(|_| Thrown::new(SESSION_ENDED))
            }),
            subagent: Some(self.subagent(number)),
            read: Some(self.read_of()),
            client_settings: Some(self.client_settings_of()),
            terminals: self.terminals_of(chat, None),
            computer: self.computer_of(&paths),
            env: self.environment(),
            tools_server,
            resume: None,
            fork_at: None,
            rewind_at: None,
            context: None,
            seed: None,
            seed_context: chat.told_context().map(str::to_owned),
            on_turn_recorded: Func::new(move |(turn, transcript): (String, String)| {
                let _ = recorded.send(ToSession::TurnRecorded { chat: number, turn, transcript });
                Ok(())
            }),
            credentials,
        }
    }

    /// Returns the function that returns the settings of the session's active clients.
    fn client_settings_of(&self) -> HostFunction<fn() -> JsonObject> {
        // A backend can keep the function after its end.
        let (sessions, entry) = (Arc::downgrade(&self.sessions), Arc::downgrade(&self.entry));
        HostFunction::now(move |()| {
            let entry = entry.upgrade().ok_or_else(|| Thrown::new(SESSION_ENDED))?;
            Ok(upgraded(&sessions)?.client_settings(&entry))
        })
    }

    /// Returns the function that reads resources as the session's owner.
    fn read_of(&self) -> HostFunction<fn(uri: String) -> ResourceContent> {
        let (sessions, session) = (Arc::downgrade(&self.sessions), self.entry.uri.clone());
        HostFunction::new(move |(uri,): (String,)| {
            let (sessions, session) = (upgraded(&sessions), session.clone());
            async move { sessions?.content_for_session(&session, &uri).await }
        })
    }

    fn subagent(
        &self,
        parent: u64,
    ) -> HostFunction<fn(tool_call_id: String, request: WorkerRequest) -> Worker> {
        let (mailbox, ahead, clock) = (self.mailbox.clone(), self.ahead.clone(), self.core.clock.clone());
        HostFunction::new(move |(call, request): (String, WorkerRequest)| {
            let (mailbox, ahead, clock) = (mailbox.clone(), ahead.clone(), clock.clone());
            async move {
                if call.trim().is_empty() {
                    let why = "subagent needs the id of the tool call that opens the worker";
                    return Err(RpcError::invalid_params(why).into());
                }
                let (answer, wait) = oneshot::channel();
                let ended = || Thrown::new(SESSION_ENDED);
                let opened = WorkerOpened { parent, call, request, answer };
                mailbox.send(ToSession::Worker(Box::new(opened))).map_err(|_| ended())?;
                let (chat, uri, turn_id) = wait.await.map_err(|_| ended())??;
                Ok(worker(mailbox, ahead, clock, chat, uri, turn_id))
            }
        })
    }
}

/// Returns the handle with which a backend acts in a worker chat.
fn worker(
    mailbox: Mailbox,
    ahead: EmitLimit,
    clock: ostler_engine_core::clock::Clock,
    chat: u64,
    uri: String,
    turn_id: String,
) -> Worker {
    let (emitted, ended, turn) = (mailbox.clone(), mailbox, turn_id.clone());
    let (emits, ends) = (ahead.clone(), ahead);
    let begun = clock.now();
    let done = std::sync::atomic::AtomicBool::new(false);
    Worker {
        uri,
        turn_id,
        emit: Func::new(move |(action,): (StateAction,)| {
            known(&action)?;
            emits.wait_one_more(&action)?;
            let _ = emitted.send(ToSession::WorkerEmit { chat, action });
            Ok(())
        }),
        end: Func::new(move |(status, why)| {
            if done.swap(true, std::sync::atomic::Ordering::AcqRel) {
                return Ok(());
            }
            let duration = (clock.now().as_millisecond() - begun.as_millisecond()).max(0);
            let action = ending(&turn, status, why, duration);
            let action = actions::read(action).map_err(Thrown::new)?;
            ends.wait_last(&action);
            let _ = ended.send(ToSession::WorkerEmit { chat, action });
            Ok(())
        }),
    }
}

fn ending(
    turn: &str,
    status: ostler_contract::events::TurnStatus,
    why: Option<String>,
    duration: i64,
) -> Value {
    use ostler_contract::events::TurnStatus;
    match status {
        TurnStatus::Complete => json!({ "type": "chat/turnComplete", "turnId": turn, "duration": duration }),
        TurnStatus::Cancelled => {
            json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": duration })
        }
        TurnStatus::Error => json!({ "type": "chat/error", "turnId": turn, "duration": duration,
            "part": { "kind": "error", "error": { "errorType": "worker", "message": why.unwrap_or_else(|| "the worker failed".to_owned()) } } }),
    }
}

/// Rejects an action with what is not in the protocol while the backend can still receive the exception.
fn known(action: &StateAction) -> Result<(), Thrown> {
    let sentence = match (action, actions::row(action)) {
        (StateAction::Unknown(value), row) => match (value.get("type").and_then(Value::as_str), row) {
            (None, _) => NO_ACTION_TYPE.to_owned(),
            (Some(name), Some(_)) => lacks_field(name, value),
            (Some(name), None) => format!("{name} is not an action of the protocol"),
        },
        // The text of a turn has no other members, and there is much of it.
        (_, Some(row)) if row.class == Class::Streamed => return Ok(()),
        (_, row) => match emitted_values::foreign(action) {
            Some(foreign) => format!("{}: {foreign}", row.map_or("action", |row| row.name)),
            None => return Ok(()),
        },
    };
    Err(Thrown { name: "TypeError".to_owned(), ..Thrown::new(sentence) })
}
