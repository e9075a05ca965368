//! The steps of a client, encoded in a few numbers, so that a property test can choose and shrink them.

use ostler_contract::{Value, json};
use ostler_protocol::wire::state::{ChatState, ResponsePart, SessionState, ToolCallState};
use ostler_protocol::{Version, uri};

use super::{Mirror, RequestKind, State};

/// A step of a client. Its target is chosen from the state that the client has at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creates one of a few sessions.
    Create,
    /// Ends a session.
    Dispose,
    /// Sends a message that starts a turn.
    Say,
    /// Queues a message, or steers the running turn.
    Queue,
    /// Removes a queued message, or reverses the queue.
    Unqueue,
    /// Cancels a running turn.
    Cancel,
    /// Answers a request of a turn: a question, an approval, or a call of this client's tool.
    Answer,
    /// Resumes or truncates turns.
    Truncate,
    /// Opens a chat: an empty one, a fork or a side chat.
    OpenChat,
    /// Closes a chat.
    CloseChat,
    /// Moves a chat within its session, to another session or to a new one.
    MoveChat,
    /// Renames a session or a chat.
    Rename,
    /// Marks a session or a chat as read or archived.
    Mark,
    /// Writes a draft.
    Draft,
    /// Changes a setting of a session, or of the host.
    Configure,
    /// Joins a session with a tool, or leaves it.
    Attach,
    /// Writes, changes or removes an annotation.
    Annotate,
    /// Creates, changes, runs or removes an automation.
    Automate,
    /// Opens, types into, resizes, claims or closes a terminal.
    Terminal,
    /// Writes a file in a session's folder, or invokes an operation of a changeset.
    Change,
    /// Unsubscribes from a channel, or subscribes to it again.
    Watch,
    /// Disconnects.
    Drop,
    /// Reconnects.
    Return,
    /// Ends the host and starts another one with its stores. Even: immediately; odd: in order.
    Restart,
    /// Waits for some time.
    Wait,
}

/// The weights of the steps: each is chosen as often as it occurs here.
pub const ROWS: [Step; 60] = {
    use Step::*;
    [
        Wait, Say, Say, Say, Say, Say, Say, Create, Create, Create, Dispose, Queue, Queue, Queue, Unqueue,
        Cancel, Cancel, Answer, Answer, Answer, Truncate, Truncate, OpenChat, OpenChat, OpenChat, CloseChat,
        MoveChat, MoveChat, Rename, Rename, Mark, Mark, Draft, Draft, Configure, Attach, Attach, Annotate,
        Annotate, Watch, Watch, Drop, Drop, Drop, Return, Return, Return, Wait, Wait, Restart, Automate,
        Automate, Automate, Terminal, Terminal, Terminal, Terminal, Change, Change, Change,
    ]
};

/// Messages that trigger each ability of the echo backend.
const SAID: [&str; 11] = [
    "some words to say back one by one",
    "/think hard about it",
    "/fail",
    "/throw",
    "/slow 3s late",
    "/ask What?",
    "/confirm list_sessions {}",
    "/worker some words of a worker",
    "/worker /hang",
    "/tool {client}__bell {}",
    "/words 200",
];

fn pick<T: Clone>(from: &[T], at: u8) -> Option<T> {
    from.get(usize::from(at) % from.len().max(1)).cloned()
}

impl Mirror {
    fn sessions(&self) -> Vec<(String, &SessionState)> {
        let session = self.states.iter().filter_map(|(uri, state)| match state {
            State::Session(state) => Some((uri.clone(), &**state)),
            _ => None,
        });
        session.collect()
    }

    fn chats(&self) -> Vec<(String, &ChatState)> {
        let chat = self.states.iter().filter_map(|(uri, state)| match state {
            State::Chat(state) => Some((uri.clone(), &**state)),
            _ => None,
        });
        chat.collect()
    }

    /// Performs one step. `number` is unique among all steps; `at` selects the target and `how` the variant. Steps that
    /// concern connections, the host and time do nothing here.
    pub fn step(&mut self, step: Step, number: usize, at: u8, how: u8) {
        if !self.ready {
            return;
        }
        let session = pick(&self.sessions(), at).map(|(uri, state)| (uri, state.clone()));
        let chat = pick(&self.chats(), at).map(|(uri, state)| (uri, state.clone()));
        let message = |text: &str| json!({ "text": text, "origin": { "kind": "user" } });
        match (step, session, chat) {
            (Step::Create, ..) => {
                let session = format!("echo:/s{}", at % 4);
                let mut params = json!({ "channel": session, "provider": "echo",
                    "config": { "delayMs": if how.is_multiple_of(3) { 0 } else { 20 } } });
                if how.is_multiple_of(2) {
                    params["activeClient"] = self.active_client();
                }
                self.request("createSession", params, RequestKind::CreateSession(session));
            }
            (Step::Dispose, Some((session, _)), _) => {
                self.request(
                    "disposeSession",
                    json!({ "channel": session }),
                    RequestKind::DisposeSession(session),
                );
            }
            (Step::Say, _, Some((chat, _))) => {
                let text = SAID[usize::from(how) % SAID.len()].replace("{client}", &self.name);
                self.dispatch(&chat, json!({ "type": "chat/turnStarted", "turnId": format!("t{number}"),
                    "startedAt": "2026-01-01T00:00:00Z", "message": message(&text) }));
            }
            (Step::Queue, _, Some((chat, _))) => {
                let kind = if how.is_multiple_of(4) { "steering" } else { "queued" };
                let id = if how.is_multiple_of(5) { "q".to_owned() } else { format!("q{number}") };
                let text = SAID[usize::from(how) % 3];
                self.dispatch(
                    &chat,
                    json!({ "type": "chat/pendingMessageSet", "kind": kind, "id": id, "message": message(text) }),
                );
            }
            (Step::Unqueue, _, Some((chat, state))) => {
                let queued: Vec<String> =
                    state.queued_messages.into_iter().flatten().map(|message| message.id).collect();
                let action = match (how % 2, pick(&queued, how)) {
                    (0, Some(id)) => json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": id }),
                    (_, _) => {
                        let order: Vec<_> = queued.iter().rev().collect();
                        json!({ "type": "chat/queuedMessagesReordered", "order": order })
                    }
                };
                self.dispatch(&chat, action);
            }
            (Step::Cancel, _, Some((chat, state))) => {
                let turn = state.active_turn.map_or_else(|| "none".to_owned(), |turn| turn.id);
                self.dispatch(&chat, json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 1 }));
            }
            (Step::Answer, ..) => self.answer_something(at, how),
            (Step::Truncate, _, Some((chat, state))) => {
                let turns: Vec<String> = state.turns.iter().map(|turn| turn.id.clone()).collect();
                let action = match (how % 3, pick(&turns, how / 3), turns.last()) {
                    (0, _, Some(last)) => json!({ "type": "chat/turnResume", "turnId": last }),
                    (1, Some(turn), _) => json!({ "type": "chat/truncated", "turnId": turn }),
                    _ => json!({ "type": "chat/truncated" }),
                };
                self.dispatch(&chat, action);
            }
            (Step::OpenChat, Some((session, state)), _) => {
                let chat = format!("ahp-chat:/c{}", if how.is_multiple_of(4) { usize::from(at) } else { number });
                let mut params = json!({ "channel": session, "chat": chat });
                let of = pick(&state.chats, how).map(|row| row.resource);
                let turns = of.as_ref().and_then(|of| match self.states.get(of) {
                    Some(State::Chat(state)) => pick(&state.turns, how / 3).map(|turn| turn.id),
                    _ => None,
                });
                if let (Some(of), Some(turn)) = (of, turns) {
                    let source = match how % 3 {
                        0 => None,
                        1 => Some(json!({ "kind": "fork", "chat": of, "turnId": turn })),
                        _ => Some(json!({ "kind": "sideChat", "chat": of, "turnId": turn })),
                    };
                    if let Some(source) = source {
                        params["source"] = source;
                    }
                }
                if how.is_multiple_of(5) {
                    params["initialMessage"] = message(SAID[usize::from(how) % 5]);
                }
                self.request("createChat", params, RequestKind::Other);
            }
            (Step::CloseChat, _, Some((chat, _))) => {
                self.request("disposeChat", json!({ "channel": chat }), RequestKind::Other);
            }
            (Step::MoveChat, Some((session, state)), Some((chat, _))) => {
                let after = pick(&state.chats, how).map(|row| row.resource).filter(|_| how.is_multiple_of(2));
                let destination = match how % 5 {
                    0 => json!({ "kind": "newSession" }),
                    _ => json!({ "kind": "session", "session": session, "after": after }),
                };
                self.request("moveChat", json!({ "channel": chat, "destination": destination }), RequestKind::Other);
            }
            (Step::Rename, Some((session, _)), chat) => {
                let action = json!({ "type": "session/titleChanged", "title": format!("Title {how}") });
                match chat.filter(|_| how.is_multiple_of(2)) {
                    Some((chat, _)) => self.dispatch(&chat, action),
                    None => self.dispatch(&session, action),
                }
            }
            (Step::Mark, Some((session, _)), chat) => {
                let on = how.is_multiple_of(2);
                let (read, archived) = (json!({ "isRead": on }), json!({ "isArchived": on }));
                let (name, mut action) =
                    if how % 4 < 2 { ("isReadChanged", read) } else { ("isArchivedChanged", archived) };
                match chat.filter(|_| how.is_multiple_of(3) && self.version == Version::V1) {
                    Some((chat, _)) => {
                        action["type"] = format!("chat/{name}").into();
                        self.dispatch(&chat, action);
                    }
                    None => {
                        action["type"] = format!("session/{name}").into();
                        self.dispatch(&session, action);
                    }
                }
            }
            (Step::Draft, _, Some((chat, _))) => {
                let action = match how % 3 {
                    0 => json!({ "type": "chat/draftChanged" }),
                    _ => json!({ "type": "chat/draftChanged", "draft": message(&format!("draft {how}")) }),
                };
                self.dispatch(&chat, action);
            }
            (Step::Configure, Some((session, _)), _) => match how % 3 {
                0 => self.dispatch(
                    uri::ROOT,
                    json!({ "type": "root/configChanged", "config": { "globalAutoApproveEnabled": at.is_multiple_of(2) } }),
                ),
                _ => self.dispatch(
                    &session,
                    json!({ "type": "session/configChanged", "config": { "delayMs": how % 4 * 10 } }),
                ),
            },
            (Step::Attach, Some((session, _)), _) => {
                let action = match how % 3 {
                    0 => json!({ "type": "session/activeClientRemoved", "clientId": self.name }),
                    _ => json!({ "type": "session/activeClientSet", "activeClient": self.active_client() }),
                };
                self.dispatch(&session, action);
            }
            (Step::Annotate, Some((session, _)), _) => {
                let id = format!("a{}", how % 3);
                let annotation = json!({ "id": id, "origin": { "session": session }, "resource": "file:///yard/oats",
                    "resolved": false, "entries": [{ "id": "1", "text": format!("Why {how}?") }] });
                let action = match how % 7 {
                    0 => json!({ "type": "annotations/removed", "annotationId": id }),
                    1 => json!({ "type": "annotations/updated", "annotationId": id, "resolved": at.is_multiple_of(2) }),
                    2 => json!({ "type": "annotations/entrySet", "annotationId": id,
                        "entry": { "id": format!("e{}", at % 3), "text": "Because." } }),
                    3 => json!({ "type": "annotations/entryRemoved", "annotationId": id, "entryId": "1" }),
                    _ => json!({ "type": "annotations/set", "annotation": annotation }),
                };
                self.dispatch(&uri::annotations(&session), action);
            }
            (Step::Automate, ..) if self.beside.automations => self.automate(number, at, how),
            (Step::Terminal, ..) if self.beside.terminals => self.use_terminal(number, at, how),
            (Step::Change, Some((_, state)), _) if self.beside.changesets => self.change_files(&state, at, how),
            (Step::Watch, ..) => {
                let channels: Vec<String> = match how % 2 {
                    0 => self.muted.iter().cloned().collect(),
                    _ => self.states.keys().filter(|channel| *channel != uri::ROOT).cloned().collect(),
                };
                if let Some(channel) = pick(&channels, at)
                    && !self.muted.remove(&channel)
                {
                    self.muted.insert(channel);
                }
                self.follow();
            }
            _ => {}
        }
    }

    fn automate(&mut self, number: usize, at: u8, how: u8) {
        let resource = uri::automation(&format!("m{}", at % 3));
        let action = match how % 6 {
            0 | 1 => {
                let message = json!({ "text": "some words of a run", "origin": { "kind": "automation" } });
                json!({ "type": "automation/createRequested", "resource": resource, "definition": {
                    "title": "By a client", "enabled": true, "session": { "provider": "echo" }, "triggers": [],
                    "message": message } })
            }
            2 => json!({ "type": "automation/updateRequested", "resource": resource,
                "changes": { "title": format!("Title {how}") } }),
            3 => json!({ "type": "automation/removed", "resource": resource }),
            _ => {
                let params = json!({ "channel": uri::AUTOMATIONS, "automation": resource,
                    "requestId": format!("r{number}") });
                return self.request("runAutomation", params, RequestKind::Other);
            }
        };
        self.dispatch(uri::AUTOMATIONS, action);
    }

    fn use_terminal(&mut self, number: usize, at: u8, how: u8) {
        let terminals: Vec<String> = match self.states.get(uri::ROOT) {
            Some(State::Root(state)) => {
                state.terminals.iter().flatten().map(|terminal| terminal.resource.clone()).collect()
            }
            _ => Vec::new(),
        };
        let (Some(terminal), false) = (pick(&terminals, at), how.is_multiple_of(7) && terminals.len() < 3)
        else {
            let params = json!({ "channel": format!("ahp-terminal:/t{number}") });
            return self.request("createTerminal", params, RequestKind::Other);
        };
        let action = match how % 6 {
            0 => return self.request("disposeTerminal", json!({ "channel": terminal }), RequestKind::Other),
            1 => json!({ "type": "terminal/resized", "cols": 40 + i64::from(how), "rows": 20 }),
            2 => json!({ "type": "terminal/claimed", "claim": { "kind": "client", "clientId": self.name } }),
            3 if how.is_multiple_of(5) => json!({ "type": "terminal/input", "data": "exit 3\r" }),
            _ => json!({ "type": "terminal/input", "data": format!("echo {number}; seq {how}\r") }),
        };
        self.dispatch(&terminal, action);
    }

    fn change_files(&mut self, session: &SessionState, at: u8, how: u8) {
        let operations = self.states.iter().filter_map(|(channel, state)| match state {
            State::Changeset(state) => Some((channel.clone(), state.operations.clone()?)),
            _ => None,
        });
        let operations: Vec<(String, String)> = operations
            .flat_map(|(channel, all)| all.into_iter().map(move |one| (channel.clone(), one.id)))
            .collect();
        match (how % 4, pick(&operations, how / 4)) {
            (0, Some((channel, operation))) => {
                let params = json!({ "channel": channel, "operationId": operation });
                self.request("invokeChangesetOperation", params, RequestKind::Other);
            }
            _ => {
                let Some(directory) = session.working_directories.iter().flatten().next() else { return };
                let params = json!({ "channel": uri::ROOT, "uri": format!("{directory}/f{}", at % 4),
                    "data": format!("{how}\n"), "encoding": "utf-8" });
                self.request("resourceWrite", params, RequestKind::Other);
            }
        }
    }

    fn active_client(&self) -> Value {
        let tool = json!({ "name": "bell", "inputSchema": { "type": "object" } });
        json!({ "clientId": self.name, "displayName": "A client", "tools": [tool] })
    }

    /// Answers a pending request in one of the chats.
    fn answer_something(&mut self, at: u8, how: u8) {
        let mut waiting = Vec::new();
        for (chat, state) in self.chats() {
            let Some(turn) = &state.active_turn else { continue };
            for part in &turn.response_parts {
                match part {
                    ResponsePart::InputRequest(part) if part.response.is_none() => {
                        let id = &part.request.id;
                        let action = match how % 4 {
                            0 => {
                                json!({ "type": "chat/inputCompleted", "requestId": id, "response": "decline" })
                            }
                            1 => {
                                json!({ "type": "chat/inputAnswerChanged", "requestId": id, "questionId": "answer",
                                "answer": { "state": "draft", "value": { "kind": "text", "value": "half" } } })
                            }
                            _ => {
                                json!({ "type": "chat/inputCompleted", "requestId": id, "response": "accept",
                                "answers": { "answer": { "state": "submitted",
                                    "value": { "kind": "text", "value": "whole" } } } })
                            }
                        };
                        waiting.push((chat.clone(), action));
                    }
                    ResponsePart::ToolCall(part) => match &part.tool_call {
                        ToolCallState::PendingConfirmation(call) => {
                            let approved = !how.is_multiple_of(3);
                            let mut action = json!({ "type": "chat/toolCallConfirmed", "turnId": turn.id,
                                "toolCallId": call.tool_call_id, "approved": approved });
                            match approved {
                                true => action["confirmed"] = "user-action".into(),
                                false => action["reason"] = "denied".into(),
                            }
                            waiting.push((chat.clone(), action));
                        }
                        ToolCallState::Running(call) => {
                            let action = json!({ "type": "chat/toolCallComplete", "turnId": turn.id,
                                "toolCallId": call.tool_call_id,
                                "result": { "success": true, "pastTenseMessage": "Rang",
                                    "content": [{ "type": "text", "text": "ding" }] } });
                            waiting.push((chat.clone(), action));
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
        if let Some((chat, action)) = pick(&waiting, at) {
            self.dispatch(&chat, action);
        }
    }
}
