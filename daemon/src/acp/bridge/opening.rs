//! Sessions that the editor creates, loads, resumes and closes.

use std::collections::HashMap;

use ostler_contract::{Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{AgentInfo, ResponsePart, SnapshotState};

use super::{Bridge, Open, REPLAYED, TaskEvent};
use crate::acp::editor_connection::{Failure, Request, take_back};
use crate::acp::{content, options};
use crate::exit::Exit;

impl Bridge {
    pub(super) fn create(&self, request: Request) {
        let backend =
            self.provider.clone().or_else(|| Some(self.root.as_ref()?.agents.first()?.provider.clone()));
        let Some(provider) = backend else {
            return request.answer(Err(Failure::internal("the daemon has no backend")));
        };
        let directories = [&request.params["cwd"]].into_iter();
        let directories =
            directories.chain(request.params["additionalDirectories"].as_array().into_iter().flatten());
        let directories: Option<Vec<String>> =
            directories.map(|directory| content::file_uri(directory.as_str()?)).collect();
        let Some(directories) = directories else {
            return request
                .answer(Err(Failure::bad_params("cwd and additionalDirectories must be absolute paths")));
        };
        let session = uri::session(&provider, &uuid::Uuid::new_v4().to_string());
        let (daemon, sender) = (self.daemon.clone(), self.task_event_sender.clone());
        tokio::spawn(async move {
            let params =
                json!({ "channel": session, "provider": provider, "workingDirectories": directories });
            let outcome = daemon.request("createSession", params).await.map(|_| ());
            let _ = sender.send(TaskEvent::Created { request, session, outcome });
        });
    }

    /// Follows a session, and replays its turns if requested.
    pub(super) async fn open(&mut self, request: Request, session: &str, replay: bool) {
        match self.open.get(session) {
            Some(Open { loading: Some(_), .. }) => {
                return request.answer(Err(Failure::bad_params(format!("{session} is being loaded"))));
            }
            // It is followed already, and prompts may wait in it.
            Some(_) => {}
            None => match self.follow(session).await {
                Ok(opened) => {
                    self.chats.insert(opened.chat_uri.clone(), session.to_owned());
                    self.open.insert(session.to_owned(), opened);
                    self.announce_files(session);
                }
                Err(why) => {
                    return request.answer(Err(Failure::not_found(format!("{session}: {why}"))));
                }
            },
        }
        match replay {
            true => self.load(session, request).await,
            false => self.opened(session, request),
        }
    }

    pub(super) async fn follow(&self, session: &str) -> Result<Open, Exit> {
        let (state, session_from) = self.subscribe(session).await?;
        let SnapshotState::Session(state) = state else {
            return Err(Exit::usage(format!("{session} is not a session")));
        };
        let chat_uri = state.default_chat.clone().unwrap_or_else(|| uri::default_chat(session));
        let (chat, chat_from) = self.subscribe(&chat_uri).await?;
        let SnapshotState::Chat(chat) = chat else {
            return Err(Exit::machine(format!("{session} has no chat")));
        };
        Ok(Open {
            session: state,
            session_from,
            chat_uri,
            chat,
            chat_from,
            prompts: HashMap::new(),
            asked: HashMap::new(),
            loading: None,
            model: None,
        })
    }

    /// Requests older turns, or replays those in the state.
    pub(super) async fn load(&mut self, session: &str, request: Request) {
        let Some(open) = self.open.get_mut(session) else { return };
        let cursor = open.chat.turns_next_cursor.clone().filter(|_| open.chat.turns.len() < REPLAYED);
        if let Some(cursor) = cursor {
            let params = json!({ "channel": open.chat_uri, "cursor": cursor });
            open.loading = Some(request);
            if self.daemon.request("fetchTurns", params).await.is_ok() {
                return;
            }
            let Some(request) = self.open.get_mut(session).and_then(|open| open.loading.take()) else {
                return;
            };
            return self.replay(session, request);
        }
        self.replay(session, request);
    }

    pub(super) fn replay(&mut self, session: &str, request: Request) {
        let Some(open) = self.open.get(session) else { return };
        let turns = &open.chat.turns;
        for turn in &turns[turns.len().saturating_sub(REPLAYED)..] {
            content::user(&turn.message).iter().for_each(|update| self.update(session, update));
            self.parts(session, &turn.response_parts);
        }
        self.opened(session, request);
    }

    pub(super) fn parts(&self, session: &str, parts: &[ResponsePart]) {
        parts
            .iter()
            .filter_map(|part| content::part(part, self.editor.notices))
            .for_each(|update| self.update(session, &update));
    }

    /// Answers a request that opened a session, and reports its running turn.
    pub(super) fn opened(&mut self, session: &str, request: Request) {
        let created = request.method == "session/new";
        let mut answer = self.settings_of(session);
        if created {
            answer["sessionId"] = session.into();
        }
        request.answer(Ok(answer));
        let Some(open) = self.open.get(session) else { return };
        let commands = options::commands(&open.session);
        if !commands.is_empty() {
            self.update(
                session,
                &json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }),
            );
        }
        if let Some(turn) = &open.chat.active_turn {
            content::user(&turn.message).iter().for_each(|update| self.update(session, update));
            self.parts(session, &turn.response_parts);
        }
        self.ask_waiting(session);
    }

    pub(super) fn backend(&self, provider: &str) -> Option<&AgentInfo> {
        self.root.as_ref()?.agents.iter().find(|agent| agent.provider == provider)
    }

    pub(super) fn config_options(&self, open: &Open) -> Vec<Value> {
        let backend = self.backend(&open.session.provider);
        options::config_options(&open.session, backend, open.model.as_deref(), self.editor.booleans)
    }

    /// Returns the settings of a session in the form of the answers that open it.
    pub(super) fn settings_of(&self, session: &str) -> Value {
        let Some(open) = self.open.get(session) else { return json!({}) };
        let options = self.config_options(open);
        let mut answer = json!({});
        if let Some(modes) = options::modes(&options) {
            answer["modes"] = modes;
        }
        if !options.is_empty() {
            answer["configOptions"] = options.into();
        }
        answer
    }

    pub(super) async fn close(&mut self, session: &str) {
        self.cancel(session, |_| true).await;
        let Some(open) = self.open.get(session) else { return };
        let channels = [session.to_owned(), open.chat_uri.clone()];
        self.forget(session, &format!("{session} was closed"), || Ok(json!({ "stopReason": "cancelled" })));
        for channel in channels {
            let _ = self.daemon.client().unsubscribe(channel).await;
        }
    }

    /// Another client has deleted a session.
    pub(super) fn removed(&mut self, session: &str) {
        let why = format!("{session} was deleted");
        self.forget(session, &why, || Err(Failure::not_found(&why)));
    }

    /// Forgets a session, and answers what waits in it.
    fn forget(&mut self, session: &str, why: &str, prompted: impl Fn() -> Result<Value, Failure>) {
        let Some(open) = self.open.remove(session) else { return };
        self.chats.remove(&open.chat_uri);
        open.asked.values().for_each(|(_, asked)| take_back(asked));
        open.loading.into_iter().for_each(|request| request.answer(Err(Failure::not_found(why))));
        open.prompts.into_values().for_each(|prompt| prompt.request.answer(prompted()));
        self.fail_settings_of(session, why);
    }

    /// Continues with another chat of a session, because the one that the editor used was closed. What waits in that one
    /// is answered.
    pub(super) async fn default_chat_changed(&mut self, session: &str, chat: &str) {
        if self.open.get(session).is_none_or(|open| open.chat_uri == chat) {
            return;
        }
        let Some(mut before) = self.open.remove(session) else { return };
        self.chats.remove(&before.chat_uri);
        let _ = self.daemon.client().unsubscribe(before.chat_uri.clone()).await;
        for (_, prompt) in std::mem::take(&mut before.prompts) {
            prompt.request.answer(match prompt.cancelled {
                true => Ok(json!({ "stopReason": "cancelled" })),
                false => Err(Failure::not_found(format!("the chat of {session} was closed"))),
            });
        }
        self.follow_again(session.to_owned(), before).await;
    }
}
