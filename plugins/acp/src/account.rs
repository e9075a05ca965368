//! Requests to an agent without a conversation: sign-in, sign-out, and the sessions that it stores itself.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{Value, json};
use tokio::sync::mpsc;

use crate::agent::{AuthMethod, Running, Surroundings};
use crate::agent_connection::{Failure, Incoming};
use crate::check;
use crate::errors::{AgentError, words};
use crate::options::{AgentOptions, Runtime};
use crate::protocol::member;
use crate::settings::Catalogue;
use crate::sign_in::SignIns;

/// The maximum number of listed sessions of an agent, and of pages.
const LISTED: usize = 1000;
const PAGES: usize = 500;

/// The inputs of these requests.
pub struct Account<'a> {
    pub agent: &'a Arc<AgentOptions>,
    /// What all agents share.
    pub runtime: &'a Arc<Runtime>,
    /// What is known of the agent.
    pub catalogue: &'a Catalogue,
}

impl Account<'_> {
    /// Signs in with one of the agent's methods. Returns the command of a method that runs in a terminal, for the
    /// caller to run, or the page that the user has to open.
    pub async fn sign_in(&self, wanted: Option<&str>, sign_ins: &SignIns) -> Result<Value, String> {
        let (running, incoming) = self.start().await?;
        let methods = running.facts.auth.clone();
        let outcome = match self.method(&methods, wanted) {
            Ok(method) => match method.command(self.agent) {
                Some(command) => Ok(json!({ "state": "terminal", "method": method.id, "command": command,
                    "program": self.agent.command, "env": method.env,
                    "args": self.agent.args.iter().chain(method.terminal.iter().flatten()).collect::<Vec<_>>() })),
                None => {
                    let name = self.agent.name.clone();
                    return sign_ins.begin(running, incoming, name, method.id.clone()).await;
                }
            },
            Err(why) => Err(why),
        };
        running.close().await;
        outcome
    }

    fn method<'m>(&self, methods: &'m [AuthMethod], wanted: Option<&str>) -> Result<&'m AuthMethod, String> {
        let name = &self.agent.name;
        let ids = || methods.iter().map(|method| method.id.as_str()).collect::<Vec<_>>().join(", ");
        match (wanted, methods) {
            (_, []) => Err(format!(
                "{name} has no method of signing in; set its API key in agents.{}.env",
                self.agent.provider
            )),
            (None, [method]) => Ok(method),
            (None, _) => {
                Err(format!("{name} has several methods of signing in; choose one with --method: {}", ids()))
            }
            (Some(wanted), _) => {
                let found = methods.iter().find(|method| method.id == wanted);
                found
                    .ok_or_else(|| format!("{name} has no method {wanted:?} of signing in; it has {}", ids()))
            }
        }
    }

    pub async fn sign_out(&self) -> Result<Value, String> {
        let (running, incoming) = self.start().await?;
        let outcome = match running.facts.logout {
            true => {
                let asked = running.wire.request("logout", json!({}));
                self.attend(asked, incoming, self.runtime.start_timeout)
                    .await
                    .map(|_| json!({ "state": "signedOut" }))
            }
            false => Err(format!("{} cannot sign out over ACP; use its own command", self.agent.name)),
        };
        running.close().await;
        outcome
    }

    /// The sessions that the agent stores itself, in its order.
    pub async fn sessions(&self, cwd: Option<&str>) -> Result<Value, String> {
        let (running, mut incoming) = self.start().await?;
        let listed = match running.facts.list {
            true => self.all_pages(&running, &mut incoming, cwd).await,
            false => Err(format!("{} does not list its sessions", self.agent.name)),
        };
        let continues = running.facts.load || running.facts.resume;
        running.close().await;
        Ok(json!({ "sessions": listed?, "continues": continues }))
    }

    /// Deletes a session that the agent stores. A missing one counts as deleted.
    pub async fn delete(&self, session: &str) -> Result<(), String> {
        let (running, incoming) = self.start().await?;
        let outcome = match running.facts.delete {
            true => {
                let asked = running.wire.request("session/delete", json!({ "sessionId": session }));
                self.attend(asked, incoming, self.runtime.start_timeout).await.map(|_| ())
            }
            false => Ok(()),
        };
        running.close().await;
        outcome
    }

    /// Reads all pages, within the limit of other requests.
    async fn all_pages(
        &self,
        running: &Running,
        incoming: &mut mpsc::Receiver<Incoming>,
        cwd: Option<&str>,
    ) -> Result<Vec<Value>, String> {
        let limit = self.runtime.start_timeout;
        let listed = tokio::time::timeout(limit, self.pages(running, incoming, cwd)).await;
        listed.unwrap_or_else(|_| {
            Err(format!("{} did not list its sessions within {} seconds", self.agent.name, limit.as_secs()))
        })
    }

    async fn pages(
        &self,
        running: &Running,
        incoming: &mut mpsc::Receiver<Incoming>,
        cwd: Option<&str>,
    ) -> Result<Vec<Value>, String> {
        let mut rows = Vec::new();
        let mut cursor: Option<String> = None;
        // An agent can name next pages without end.
        for _ in 0..PAGES {
            let mut params = json!({});
            if let Some(cwd) = cwd {
                params["cwd"] = cwd.into();
            }
            if let Some(cursor) = &cursor {
                params["cursor"] = cursor.as_str().into();
            }
            let asked = running.wire.request("session/list", params);
            let page = self.attend_with(asked, incoming, self.runtime.start_timeout).await?;
            let entries = page.get("sessions").and_then(Value::as_array).into_iter().flatten();
            rows.extend(entries.filter_map(row));
            let next = member::<String>(&page, "nextCursor").filter(|next| Some(next) != cursor.as_ref());
            match next.filter(|_| rows.len() < LISTED) {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        rows.truncate(LISTED);
        Ok(rows)
    }

    async fn start(&self) -> Result<(Running, mpsc::Receiver<Incoming>), String> {
        // The directory is that of the daemon: nothing is opened in it.
        let at = Surroundings::alone(&std::env::temp_dir());
        self.catalogue.load().await;
        let started = Running::start(self.agent, self.runtime, &at).await;
        let started = started.map_err(|why| why.what(self.agent))?;
        // Sessions of the host have the settings of what it supports.
        self.catalogue.learn_facts(self.agent, &started.0.facts);
        self.catalogue.store().await;
        Ok(started)
    }

    async fn attend(
        &self,
        asked: impl Future<Output = Result<Value, Failure>>,
        mut incoming: mpsc::Receiver<Incoming>,
        limit: Duration,
    ) -> Result<Value, String> {
        self.attend_with(asked, &mut incoming, limit).await
    }

    /// Waits for an answer. Rejects requests of the agent until then, because there is no session.
    async fn attend_with(
        &self,
        asked: impl Future<Output = Result<Value, Failure>>,
        incoming: &mut mpsc::Receiver<Incoming>,
        limit: Duration,
    ) -> Result<Value, String> {
        tokio::pin!(asked);
        let timeout = tokio::time::sleep(limit);
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                answer = &mut asked => return answer.map_err(|why| format!("{}: {}", self.agent.name, words(&why))),
                Some(message) = incoming.recv() => refuse(message),
                () = &mut timeout => {
                    return Err(format!("{} did not answer within {} seconds", self.agent.name, limit.as_secs()));
                }
            }
        }
    }
}

fn refuse(message: Incoming) {
    if let Incoming::Request(request) = message {
        request.decline("not available outside a session");
    }
}

/// Returns one session for the list.
fn row(session: &Value) -> Option<Value> {
    let id: String = member(session, "sessionId")?;
    let mut row = json!({ "id": id });
    for (from, to) in [("title", "title"), ("cwd", "directory"), ("updatedAt", "updatedAt")] {
        if let Some(text) = member::<String>(session, from) {
            row[to] = text.into();
        }
    }
    Some(row)
}

/// Returns how a user has to sign in, if an error requires that.
pub fn ways(why: &AgentError, agent: &AgentOptions) -> Option<Value> {
    match why {
        AgentError::SignIn { methods, .. } => Some(check::auth_methods(methods, agent)),
        AgentError::Starts { why, .. } => ways(why, agent),
        _ => None,
    }
}
