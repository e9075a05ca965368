//! The agent's process in a conversation: opened with the first turn, put to sleep when idle, and ended.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use ostler_contract::events::TurnStatus;
use ostler_contract::points::{ClientPlugin, ToolsChanged, ToolsServerOptions};
use ostler_contract::{Call, JsonObject, Thrown, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Command, Conversation, Live};
use crate::agent::Surroundings;
use crate::agent_connection::Failure;
use crate::errors::AgentError;
use crate::mcp::{self, Endpoint};
use crate::opening::{self, Opened, Plan, Unopened};
use crate::proxy;

/// The maximum number of waiting requests of an agent that opens its session.
const QUESTIONS: usize = 8;
/// The maximum number of starts of an agent for one turn: for its session with either request, and for a new one.
pub(super) const STARTS: u32 = 3;
/// How long the agent can take to close its session before its process is stopped.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

impl Conversation {
    /// Starts the agent and opens its session on a separate task.
    pub(super) async fn open(&mut self) {
        let imported = self.imported.clone();
        let resume = self.stored.lock().id.clone().or_else(|| imported.clone());
        self.failed_at.clear();
        self.open_with(resume, imported.is_some()).await;
    }

    /// Opens the session that is continued, or a new one.
    async fn open_with(&mut self, resume: Option<String>, imported: bool) {
        let fork = self.fork.take();
        self.starts += 1;
        self.outdated = false;
        self.plugins_left();
        let (ask, asked) = mpsc::channel(QUESTIONS);
        self.asked_while_opening = Some(asked);
        let endpoint = self.endpoint().await;
        let settings = match self.start.client_settings.clone() {
            Some(settings) => settings.call(()).await.unwrap_or_default(),
            None => JsonObject::new(),
        };
        let proxy = self.proxy(&settings, endpoint.as_ref());
        let plan = Plan {
            fork,
            questions: Some(ask),
            agent: self.shared.agent.clone(),
            runtime: self.shared.runtime.clone(),
            at: Surroundings {
                cwd: self.cwd.clone(),
                env: self.start.env.clone(),
                lent: self.lent(),
                proxy,
                told: mcp::secrets(endpoint.as_ref(), self.start.mcp_servers.as_ref()),
                computer: self.start.computer.clone(),
            },
            additional: self.start.additional.iter().flatten().map(Into::into).collect(),
            plugins: self.start.client_plugins.clone().unwrap_or_default(),
            endpoint,
            mcp_servers: self.start.mcp_servers.clone(),
            resume,
            failed_at: self.failed_at.clone(),
            imported,
        };
        self.opening = Some(opening::open(plan).boxed());
    }

    /// Returns the variables with the proxy of the session's editors. The operator's variables are those of the agent,
    /// of the session and of the daemon.
    fn proxy(&self, settings: &JsonObject, endpoint: Option<&Endpoint>) -> BTreeMap<String, String> {
        if self.start.computer.is_some() {
            return BTreeMap::new();
        }
        let operator = |name: &str| {
            let own = self.shared.agent.env.get(name).or_else(|| self.start.env.get(name)).cloned();
            own.or_else(|| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
        };
        proxy::variables(settings, endpoint.map(|endpoint| &*endpoint.url), operator)
    }

    /// Returns the tokens from the client that created the session, by the agent's variables.
    fn lent(&self) -> BTreeMap<String, String> {
        let tokens = self.start.credentials.iter().flatten();
        let variable = |resource: &String| self.shared.agent.credentials.get(resource).cloned();
        tokens.filter_map(|(resource, token)| Some((variable(resource)?, token.clone()))).collect()
    }

    /// Stores a token from a client. An agent reads its environment only once, so it is restarted for the next turn.
    pub(super) fn take_token(&mut self, resource: String, token: String) {
        if !self.shared.agent.credentials.contains_key(&resource) {
            return;
        }
        let before = self.start.credentials.get_or_insert_default().insert(resource, token.clone());
        if before == Some(token) || self.live.is_none() && self.opening.is_none() {
            return;
        }
        self.log("a client lent another token; the agent is started again with it for the next turn");
        self.outdate();
    }

    /// Sets the current plugins of clients. An agent receives plugins when its session is opened, so it is restarted
    /// for the next turn. Until it has ended, it can use the folders of its earlier plugins.
    pub(super) fn take_plugins(&mut self, plugins: Vec<ClientPlugin>, done: oneshot::Sender<()>) {
        let before = self.start.client_plugins.replace(plugins).unwrap_or_default();
        if self.start.client_plugins.as_deref() == Some(&before)
            || self.live.is_none() && self.opening.is_none()
        {
            let _ = done.send(());
            return;
        }
        self.log("the plugins of clients changed; the agent is started again with them for the next turn");
        self.leaving.push(done);
        self.outdate();
    }

    /// Marks the running agent for a restart that does not count as a failure.
    fn outdate(&mut self) {
        self.outdated = true;
        self.starts = 0;
    }

    /// Ends an idle agent with plugins that are about to be removed.
    pub(super) async fn let_go(&mut self) {
        let busy = self.turn.is_some()
            || self.waiting.is_some()
            || self.prompting.is_some()
            || self.opening.is_some()
            || self.changing.is_some();
        if self.leaving.is_empty() || busy {
            return;
        }
        self.retire().await;
        self.plugins_left();
    }

    /// Reports that no running agent has earlier plugins.
    fn plugins_left(&mut self) {
        for done in self.leaving.drain(..) {
            let _ = done.send(());
        }
    }

    /// Ends the agent, if it runs.
    pub(super) async fn retire(&mut self) {
        if let Some(Live { running, .. }) = self.live.take() {
            self.terminals.close().await;
            running.close().await;
        }
    }

    /// Fails a turn for which the agent was started too often, with the agent's last failure.
    pub(super) async fn give_up(&mut self) {
        let why = self.ended_by.take().unwrap_or(AgentError::Ended {
            status: None,
            broken: None,
            stderr: String::new(),
            noise: None,
        });
        self.fail_start(why).await;
    }

    /// Ends the turn that the agent was started for.
    async fn fail_start(&mut self, why: AgentError) {
        let starts = self.starts;
        if starts < 2 {
            return self.fail_with(&why).await;
        }
        self.log(format_args!("the agent was started {starts} times for one turn, which fails"));
        self.fail_with(&AgentError::Starts { starts, why: Box::new(why) }).await;
    }

    /// Returns the session's tools endpoint, opened once.
    async fn endpoint(&mut self) -> Option<Endpoint> {
        if !self.shared.agent.host_tools {
            return None;
        }
        if self.start.computer.is_some() {
            self.log("the session's tools are not offered: the agent runs in a machine");
            return None;
        }
        if self.endpoint.is_none()
            && let Some(open) = &self.start.tools_server
        {
            let own = self.own.clone();
            let run_client = Call::new(move |(name, input): (String, Value)| {
                let (done, wait) = oneshot::channel();
                let sent = own.upgrade().map(|own| own.send(Command::RunByClient { name, input, done }));
                async move {
                    let ended = || Thrown::new("the conversation has ended");
                    let Some(Ok(())) = sent else { return Err(ended()) };
                    wait.await.map_err(|_| ended())?.map_err(Thrown::new)
                }
            });
            let options = ToolsServerOptions {
                tools_changed: Some(ToolsChanged::Notify),
                run_client: Some(run_client),
            };
            match open.call((Some(options),)).await {
                Ok(server) => self.endpoint = server,
                Err(why) => self.log(format_args!("the session's tools are not offered: {why}")),
            }
        }
        let server = self.endpoint.as_ref()?;
        Some(Endpoint { url: self.tool_list.address(&server.url), token: server.token.clone() })
    }

    /// Handles the result of opening the agent's session.
    pub(super) async fn opened(&mut self, opened: Result<Opened, Unopened>) {
        let asked = self.asked_while_opening.take();
        let Opened { running, incoming, session, settings, early, continued, notes, replayed } = match opened
        {
            Ok(opened) => opened,
            Err(unopened) => return self.unopened(unopened).await,
        };
        let facts = &running.facts;
        let named = |of: &Option<String>| of.clone().unwrap_or_default();
        self.log(format_args!("agent {} {} runs", named(&facts.name), named(&facts.version)));
        notes.iter().for_each(|note| self.log(note));
        {
            let mut stored = self.stored.lock();
            stored.id = Some(session.clone());
            stored.untold |= !continued;
        }
        if self.imported.take().is_some()
            && let Some(turn) = &mut self.turn
            && let Some(earlier) = replayed.markdown()
        {
            turn.notification(earlier).await;
        }
        self.cost = (!continued).then_some(0.0);
        self.shared.catalogue.learn_facts(&self.shared.agent, facts);
        let known = self.shared.catalogue.settings().into_iter().map(|setting| setting.option.id).collect();
        match continued {
            false => self.shared.catalogue.learn_defaults(&settings),
            true => self.shared.catalogue.learn_more(&settings),
        }
        self.children.clear();
        let exited = running.ended().boxed();
        let of_session = session.clone();
        self.live = Some(Live {
            running,
            incoming,
            early: early.into(),
            session,
            settings,
            exited: Some(exited),
            closed: false,
        });
        self.cancel_requests_of_others(&of_session).await;
        if let Some(mut asked) = asked {
            while let Ok(request) = asked.try_recv() {
                self.request(request).await;
            }
        }
        self.show_unchosen(&known).await;
        self.apply_chosen().await;
        self.advance().await;
    }

    /// Handles a failure to open a session, after which no process of the agent runs. An agent that failed to continue
    /// its session is restarted: first with the other request to continue it, if supported, then for a new session,
    /// which receives the conversation. If that fails as well, its own is tried again.
    async fn unopened(&mut self, unopened: Unopened) {
        self.terminals.close().await;
        match unopened {
            Unopened::Resuming { method, other, why } if self.waiting.is_some() && self.starts < STARTS => {
                let what = why.what(&self.shared.agent);
                let next = match other {
                    Some(other) => format!("{other} is tried"),
                    None => "a new session is opened".to_owned(),
                };
                self.log(format_args!("{method} failed, and {next}: {what}"));
                self.cancel_questions();
                self.failed_at.push(method);
                let resume = self.stored.lock().id.clone().filter(|_| other.is_some());
                self.open_with(resume, false).await;
            }
            unopened => self.fail_start(unopened.into()).await,
        }
    }

    /// Handles a closed output of the agent. A waiting prompt fails by itself; without one the agent is dropped.
    pub(super) async fn hung_up(&mut self) {
        let Some(live) = &mut self.live else { return };
        live.closed = true;
        if self.prompting.is_none()
            && let Some(live) = self.live.take()
        {
            if self.waiting.is_some() {
                self.ended_by = Some(live.running.error("session/prompt", Failure::Closed).await);
            }
            live.running.kill().await;
            self.terminals.close().await;
            // No answer could be delivered, and a turn of the agent itself would wait for it.
            self.cancel_questions();
        }
    }

    /// Handles the end of the agent's process, and kills its remaining processes, which keep its output open.
    pub(super) fn exited(&mut self) {
        if let Some(live) = &self.live {
            live.running.kill_leftovers();
        }
    }

    /// Stops an agent that exceeds its memory limit.
    pub(super) async fn check_memory(&mut self) {
        if let Some(why) = self.live.as_ref().and_then(|live| live.running.over_memory()) {
            self.stop(why).await;
        }
    }

    /// Stops an agent that exceeds a limit, which ends its turn. The next turn starts it again.
    pub(super) async fn stop(&mut self, why: AgentError) {
        let sentence = self.sentence(&why);
        self.log(&sentence);
        self.prompting = None;
        self.cancel_by = None;
        if let Some(live) = self.live.take() {
            live.running.kill().await;
        }
        self.terminals.close().await;
        match self.turn.is_some() && self.waiting.is_none() {
            true => self.fail(why.kind(), sentence).await,
            false => {
                self.ended_by = Some(why);
                self.advance().await;
            }
        }
    }

    /// Stops an idle agent. The next turn starts it again.
    pub(super) fn sleep(&mut self) {
        let Some(Live { running, .. }) = self.live.take() else { return };
        let terminals = self.terminals.close();
        tokio::spawn(async move {
            terminals.await;
            running.close().await;
        });
    }

    /// Ends the conversation.
    pub(super) async fn close(&mut self, removing: bool) {
        self.opening = None;
        self.abandon_changes();
        self.shared.buffers.forget(&self.start.uri);
        if removing {
            self.shared.standing.forget(&self.start.uri).await;
        }
        self.end_workers(TurnStatus::Cancelled).await;
        self.cancel_questions();
        if let Some(turn) = self.turn.take() {
            turn.cancelled().await;
        }
        if let Some(Live { running, session, incoming, .. }) = self.live.take() {
            // Further messages of the agent are discarded, so that it can answer.
            drop(incoming);
            let facts = running.facts.clone();
            let (wire, params) = (running.wire.clone(), json!({ "sessionId": session }));
            let deleted = self.shared.deleted.clone();
            let parting = async move {
                if facts.close {
                    let _ = wire.request("session/close", params.clone()).await;
                }
                if removing && facts.delete && wire.request("session/delete", params).await.is_ok() {
                    deleted.lock().insert(session);
                }
            };
            let _ = tokio::time::timeout(CLOSE_LIMIT, parting).await;
            self.prompting = None;
            self.terminals.close().await;
            running.close().await;
        }
        if let Some(server) = self.endpoint.take() {
            let _ = server.close.call(());
        }
        self.idle_since = Instant::now();
    }
}
