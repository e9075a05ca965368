//! The handlers of client commands: a row for each names its lane and its handler. A command without a row does not
//! compile.

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
use tracing::{Instrument, Span};

use crate::core::responder::Responder;
use crate::core::tasks;
use crate::front::Front;
use crate::front::connection::Connection;
use crate::front::order::Prepared;
use crate::users::principal::Principal;

/// The requester of a command that is served on a separate task, as the host knew it at the request.
struct Requester {
    connection: Arc<Connection>,
    principal: Principal,
}

impl Requester {
    fn front(&self) -> &Arc<Front> {
        self.connection.front()
    }
}

/// Runs the handler of a command in the lane its row names, once the sessions it is about are in memory (`order.rs`):
///
/// - `inline`: immediately, in the order of the connection's messages. It cannot wait.
/// - `session`: like `inline`, and a session's mailbox answers.
/// - `spawned`: on a separate task, for a [`Requester`]; with a slot of that name ([`super::command_slots`]), a few
///   concurrently.
macro_rules! lanes {
    ($connection:ident, $by:ident, $prepared:ident, $responder:ident;
        $($lane:ident $([$turn:ident])? $variant:ident($params:pat) => $handler:expr;)+) => {
        impl Connection {
            /// Serves a command.
            pub(super) fn handle(
                self: &Arc<Self>,
                command: Command,
                $prepared: Prepared,
                $responder: Responder,
            ) {
                self.record_channel(&command);
                let $connection = self;
                match command {
                    $(Command::$variant($params) => lanes!(@$lane $([$turn])? $connection, $by, $handler),)+
                }
            }
        }

        /// Returns whether a command is handled on a separate task.
        pub(super) fn is_spawned(command: &Command) -> bool {
            match command {
                $(Command::$variant(_) => lanes!(@is $lane),)+
            }
        }
    };
    (@is spawned) => {
        true
    };
    (@is $lane:ident) => {
        false
    };
    (@inline $connection:ident, $by:ident, $handler:expr) => {
        at_once(move || $handler)
    };
    (@session $connection:ident, $by:ident, $handler:expr) => {
        at_once(move || $handler)
    };
    (@spawned $connection:ident, $by:ident, $handler:expr) => {{
        let $by = Requester { connection: $connection.clone(), principal: $connection.principal() };
        tasks::spawn(async move { $handler }.in_current_span());
    }};
    (@spawned [$turn:ident] $connection:ident, $by:ident, $handler:expr) => {{
        let $by = Requester { connection: $connection.clone(), principal: $connection.principal() };
        tasks::spawn(
            async move {
                let connection = $by.connection.clone();
                let Some(_turn) = connection.turns.$turn.next(&connection.outbox).await else { return };
                $handler
            }
            .in_current_span(),
        );
    }};
}

/// Runs a handler that cannot wait.
fn at_once(handler: impl FnOnce()) {
    handler();
}

lanes! { connection, by, prepared, responder;
    inline Ping(_) => responder.done();
    inline Initialize(params) => connection.handle_initialize(params, responder);
    inline Reconnect(params) => connection.handle_reconnect(params, prepared, responder);
    inline Authenticate(params) => connection.handle_authenticate(params, responder);
    session Subscribe(params) => connection.handle_subscribe(params, responder);
    spawned [sessions] ListSessions(params) => {
        sessions::handle_list_sessions(by.front(), params, responder).await;
    };
    session CreateSession(params) => connection.handle_create_session(params, prepared.unknown, responder);
    session DisposeSession(params) => connection.handle_dispose_session(&params.channel, responder);
    session FetchTurns(params) => connection.handle_fetch_turns(params, responder);
    session CreateChat(params) => connection.handle_create_chat(params, responder);
    session DisposeChat(params) => connection.handle_dispose_chat(params.channel, responder);
    session MoveChat(params) => connection.handle_move_chat(params, responder);
    spawned ResolveSessionConfig(params) => {
        responder.settle(by.front().sessions.resolve_settings(params).await);
    };
    spawned [completions] SessionConfigCompletions(params) => {
        responder.settle(by.front().sessions.complete_setting(params).await);
    };
    spawned [completions] Completions(params) => responder.ok(&by.front().complete(params).await);
    spawned ListAutomationTriggerDefinitions(_) => {
        let listed = by.front().automations.trigger_definitions().await;
        responder.settle(listed.map(|items| json!({ "items": items })));
    };
    spawned RunAutomation(params) => {
        let automations = &by.front().automations;
        let run = automations.run_automation(&params.automation, &params.request_id, &by.principal).await;
        responder.settle(run.map(|resource| json!({ "resource": resource })));
    };
    spawned [usage] FetchAutomationRuns(params) => {
        let (automations, id) = (&by.front().automations, by.connection.id());
        let loaded = automations.fetch_runs(&params.automation, params.cursor, id).await;
        responder.settle(loaded.map(|()| json!({})));
    };
    spawned [usage] RunsList(filter) => {
        let listed = by.front().automations.list_runs(filter).await;
        responder.settle(listed.map(|list| json!(list)));
    };
    spawned [reads] ResourceRead(params) => by.read_resource(params, responder).await;
    spawned [lists] ResourceList(params) => by.list_resources(params, responder).await;
    spawned [lists] ResourceResolve(params) => responder.settle(by.resolve_resource(params).await);
    spawned [changes] ResourceWrite(params) => responder.settle(by.write_resource(params).await);
    spawned [changes] ResourceMkdir(params) => responder.settle(by.make_directory(params).await);
    spawned [changes] ResourceDelete(params) => responder.settle(by.delete_resource(params).await);
    spawned [changes] ResourceMove(params) => responder.settle(by.move_resource(params).await);
    spawned [changes] ResourceCopy(params) => responder.settle(by.copy_resource(params).await);
    spawned ResourceRequest(params) => responder.settle(by.request_resource(params).await);
    spawned CreateResourceWatch(params) => responder.settle(by.watch_resource(params).await);
    spawned [usage] UsageTotals(params) => responder.settle(match by.reader_of_use() {
        Ok(reader) => by.front().usage.usage_totals(params, reader.as_ref()).await,
        Err(refused) => Err(refused),
    });
    spawned [usage] UsageRecords(params) => responder.settle(match by.reader_of_use() {
        Ok(reader) => by.front().usage.usage_records(params, reader.as_ref()).await,
        Err(refused) => Err(refused),
    });
    spawned [usage] UsageGroups(params) => responder.settle(match by.reader_of_use() {
        Ok(reader) => by.front().usage.usage_groups(params, reader.as_ref()).await,
        Err(refused) => Err(refused),
    });
    spawned PullRequestCreate(params) => {
        responder.settle(by.connection.handle_pull_request(params).await);
    };
    spawned DiagnosticsNetwork(_) => responder.settle(by.front().channels.network().await);
    spawned UsersReload(_) => {
        if let Some(people) = by.front().access.gate.stored_people() {
            people.reread().await;
        }
        responder.settle(Ok(json!({})));
    };
    spawned DiagnosticsFetch(params) => {
        responder.settle(by.front().channels.fetch(params.url).await);
    };
    inline CreateTerminal(params) => connection.handle_create_terminal(params, responder);
    inline DisposeTerminal(params) => connection.handle_dispose_terminal(params.channel, responder);
    spawned DevContainersAvailable(_) => responder.settle(by.containers_available().await);
    spawned DevContainersConnect(params) => responder.settle(by.connect_container(params).await);
    inline DevContainersRelaySend(params) => connection.handle_relay_send(params, responder);
    inline DevContainersDisconnect(params) => connection.handle_relay_end(params, responder);
    spawned DevContainersStop(params) => by.end_container(params, false, responder).await;
    spawned DevContainersRemove(params) => by.end_container(params, true, responder).await;
    spawned DetachedWorktreeCreate(params) => {
        responder.settle(by.front().workspace.create_detached(params).await);
    };
    spawned DetachedWorktreeClaim(params) => {
        responder.settle(by.front().workspace.claim_detached(&params).await);
    };
    spawned DetachedWorktreeSetArchived(params) => {
        responder.settle(by.front().workspace.archive_detached(params).await);
    };
    spawned DetachedWorktreeDelete(params) => {
        responder.settle(by.front().workspace.delete_detached(&params).await);
    };
    spawned DetachedWorktreesReconcile(params) => {
        by.front().workspace.reconcile_detached(&params).await;
        responder.done();
    };
    spawned InvokeChangesetOperation(params) => {
        responder.settle(by.connection.handle_changeset_operation(params).await);
    };
}

impl Connection {
    /// Records the session or chat of a command in its span.
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

/// Returns the channels of a command, in whose order it is handled.
pub(super) fn concerned(command: &Command) -> Vec<&str> {
    match command {
        Command::CreateSession(params) => vec![&params.channel],
        Command::Completions(params) => vec![&params.channel],
        Command::InvokeChangesetOperation(params) => vec![&params.channel],
        Command::DetachedWorktreeCreate(params) => vec![&params.session],
        Command::PullRequestCreate(params) => vec![&params.channel],
        Command::ResourceRead(params) => vec![&params.uri],
        Command::CreateTerminal(params) => {
            let mut channels = channels_of(command);
            channels.push(&params.channel);
            channels
        }
        Command::DisposeTerminal(params) => vec![&params.channel],
        command => channels_of(command),
    }
}

/// Returns the sessions' channels of a command that is served from memory.
pub(super) fn channels_of(command: &Command) -> Vec<&str> {
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
        // Their handlers look up the session, or they concern none.
        Command::Ping(_)
        | Command::Authenticate(_)
        | Command::ListSessions(_)
        | Command::CreateSession(_)
        | Command::Completions(_)
        | Command::ResolveSessionConfig(_)
        | Command::SessionConfigCompletions(_)
        | Command::ResourceRead(_)
        | Command::ResourceList(_)
        | Command::ResourceResolve(_)
        | Command::ResourceWrite(_)
        | Command::ResourceMkdir(_)
        | Command::ResourceDelete(_)
        | Command::ResourceMove(_)
        | Command::ResourceCopy(_)
        | Command::ResourceRequest(_)
        | Command::CreateResourceWatch(_)
        | Command::DisposeTerminal(_)
        | Command::DevContainersAvailable(_)
        | Command::DevContainersConnect(_)
        | Command::DevContainersRelaySend(_)
        | Command::DevContainersDisconnect(_)
        | Command::DevContainersStop(_)
        | Command::DevContainersRemove(_)
        | Command::DetachedWorktreeCreate(_)
        | Command::DetachedWorktreeClaim(_)
        | Command::DetachedWorktreeSetArchived(_)
        | Command::DetachedWorktreeDelete(_)
        | Command::DetachedWorktreesReconcile(_)
        | Command::InvokeChangesetOperation(_)
        | Command::ListAutomationTriggerDefinitions(_)
        | Command::RunAutomation(_)
        | Command::UsageTotals(_)
        | Command::UsageRecords(_)
        | Command::UsageGroups(_)
        | Command::PullRequestCreate(_)
        | Command::DiagnosticsNetwork(_)
        | Command::DiagnosticsFetch(_)
        | Command::UsersReload(_)
        | Command::RunsList(_)
        | Command::FetchAutomationRuns(_) => Vec::new(),
    }
}
