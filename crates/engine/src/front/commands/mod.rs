//! What each client command does. The match is exhaustive over the protocol's table.

mod authenticate;
mod chats;
mod containers;
mod dispatch;
mod handshake;
mod pull_requests;
mod resources;
mod sessions;
mod subscribe;
mod terminals;
mod usage;

use std::sync::Arc;

use ostler_protocol::commands::Command;
use ostler_protocol::json;
use ostler_protocol::uri::Channel;
use ostler_protocol::wire::commands::ChatMoveDestination;
use ostler_protocol::wire::state::TerminalClaim;
use tracing::Span;

use crate::core::responder::Responder;
use crate::front::connection::Connection;

impl Connection {
    pub(crate) async fn handle(self: &Arc<Self>, command: Command, responder: Responder) {
        let front = self.front().clone();
        self.record_channel(&command);
        // What a command is of is looked for in memory from here on, until whoever takes it has it.
        let _held = front.sessions.load_channels(&channels_of(&command)).await;
        match command {
            Command::Ping(_) => responder.done(),
            Command::Initialize(params) => self.handle_initialize(params, responder),
            Command::Reconnect(params) => self.handle_reconnect(params, responder).await,
            Command::Authenticate(params) => self.handle_authenticate(params, responder),
            Command::Subscribe(params) => self.handle_subscribe(params, responder),
            Command::ListSessions(params) => {
                responder.settle(sessions::handle_list_sessions(&front, params).await);
            }
            Command::CreateSession(params) => self.handle_create_session(params, responder).await,
            Command::DisposeSession(params) => self.handle_dispose_session(&params.channel, responder),
            Command::FetchTurns(params) => self.handle_fetch_turns(params, responder),
            Command::ResolveSessionConfig(params) => {
                tokio::spawn(async move { responder.settle(front.sessions.resolve_settings(params).await) });
            }
            Command::SessionConfigCompletions(params) => {
                tokio::spawn(async move { responder.settle(front.sessions.complete_setting(params).await) });
            }
            Command::Completions(params) => {
                tokio::spawn(async move { responder.ok(&front.complete(params).await) });
            }
            Command::ListAutomationTriggerDefinitions(_) => {
                responder.settle(
                    front.automations.trigger_definitions().await.map(|items| json!({ "items": items })),
                );
            }
            Command::RunAutomation(params) => {
                let by = self.principal();
                tokio::spawn(async move {
                    let run =
                        front.automations.run_automation(&params.automation, &params.request_id, &by).await;
                    responder.settle(run.map(|resource| json!({ "resource": resource })));
                });
            }
            Command::FetchAutomationRuns(params) => {
                let loaded = front.automations.fetch_runs(&params.automation, params.cursor, self.id()).await;
                responder.settle(loaded.map(|()| json!({})));
            }
            Command::ResourceRead(params) => {
                let (connection, principal) = (self.clone(), self.principal());
                tokio::spawn(async move { connection.handle_read(params, principal, responder).await });
            }
            Command::ResourceList(_)
            | Command::ResourceResolve(_)
            | Command::ResourceWrite(_)
            | Command::ResourceMkdir(_)
            | Command::ResourceDelete(_)
            | Command::ResourceMove(_)
            | Command::ResourceCopy(_)
            | Command::ResourceRequest(_)
            | Command::CreateResourceWatch(_) => {
                let (connection, principal) = (self.clone(), self.principal());
                tokio::spawn(async move {
                    let outcome = connection.handle_resource(command, principal).await;
                    responder.settle(outcome);
                });
            }
            Command::UsageTotals(_) | Command::UsageRecords(_) | Command::UsageGroups(_) => {
                let (connection, principal) = (self.clone(), self.principal());
                tokio::spawn(async move {
                    responder.settle(connection.handle_usage(command, principal).await);
                });
            }
            Command::PullRequestCreate(params) => {
                let connection = self.clone();
                tokio::spawn(async move { responder.settle(connection.handle_pull_request(params).await) });
            }
            Command::DiagnosticsNetwork(_) | Command::DiagnosticsFetch(_) => {
                tokio::spawn(async move { responder.settle(front.channels.diagnose(command).await) });
            }
            Command::CreateChat(params) => self.handle_create_chat(params, responder),
            Command::DisposeChat(params) => self.handle_dispose_chat(params.channel, responder),
            Command::MoveChat(params) => self.handle_move_chat(params, responder),
            Command::CreateTerminal(params) => self.handle_create_terminal(params, responder),
            Command::DisposeTerminal(params) => self.handle_dispose_terminal(params.channel, responder),
            Command::DevContainersAvailable(_)
            | Command::DevContainersConnect(_)
            | Command::DevContainersRelaySend(_)
            | Command::DevContainersDisconnect(_)
            | Command::DevContainersStop(_)
            | Command::DevContainersRemove(_) => self.handle_dev_container(command, responder),
            Command::InvokeChangesetOperation(params) => {
                tokio::spawn(async move { responder.settle(front.workspace.operate(params).await) });
            }
        }
    }
}

impl Connection {
    /// Records in the command's span which session or chat it is about.
    fn record_channel(&self, command: &Command) {
        let span = Span::current();
        let Some(channel) = channels_of(command).first().copied().filter(|_| !span.is_disabled()) else {
            return;
        };
        let field = match self.front().sessions.channel(channel) {
            Channel::Session(_) => "session",
            Channel::Chat(_) | Channel::DefaultChat(_) | Channel::Worker { .. } => "chat",
            _ => return,
        };
        span.record(field, channel);
    }
}

/// The channels of sessions a command names that is served from memory.
fn channels_of(command: &Command) -> Vec<&str> {
    match command {
        Command::Initialize(params) => {
            params.initial_subscriptions.iter().flatten().map(String::as_str).collect()
        }
        Command::Reconnect(params) => params.subscriptions.iter().map(String::as_str).collect(),
        Command::Subscribe(params) => vec![&params.channel],
        Command::DisposeSession(params) => vec![&params.channel],
        Command::FetchTurns(params) => vec![&params.channel],
        Command::CreateChat(params) => vec![&params.channel, &params.chat],
        Command::DisposeChat(params) => vec![&params.channel],
        Command::MoveChat(params) => match &params.destination {
            ChatMoveDestination::Session(to) => vec![&params.channel, &to.session],
            _ => vec![&params.channel],
        },
        Command::CreateTerminal(params) => match &params.claim {
            Some(TerminalClaim::Session(claim)) => vec![&claim.session],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
