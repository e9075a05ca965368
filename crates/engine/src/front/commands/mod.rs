//! The handlers of client commands: a row for each contains its lane, what it is about ([`Subject`]), the provider that
//! it needs, if any, and its handler. A command without a row, or a row without a lane, subject or handler, does not
//! compile.

mod authenticate;
mod chats;
mod containers;
mod dispatch;
mod handshake;
mod pull_requests;
mod resources;
mod sessions;
mod subject;
mod subscribe;
mod terminals;
mod usage;

use std::sync::Arc;

use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_users::users::principal::Principal;
use ostler_engine_workspace::provider::Provider;
use ostler_protocol::commands::Command;
use ostler_protocol::json;
use ostler_protocol::uri::Channel;
use tracing::{Instrument, Span};

pub(super) use self::subject::Subject;
use crate::front::Front;
use crate::front::connection::Connection;
use crate::front::order::Prepared;

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

/// Runs the handler of a command in the lane its row names, once the sessions that its subject loads are in memory
/// (`order.rs`):
///
/// - `inline`: immediately, in the order of the connection's messages. It cannot wait.
/// - `session`: like `inline`, and a session's mailbox answers.
/// - `spawned`: on a separate task, for a [`Requester`]; with a slot of that name ([`super::command_slots`]), a few
///   concurrently.
macro_rules! lanes {
    ($connection:ident, $by:ident, $prepared:ident, $responder:ident;
        $($lane:ident $([$turn:ident])? $variant:ident($params:pat) of $subject:expr $(, with $provider:ident)? =>
            $handler:expr;)+) => {
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

        /// Returns what a command is about.
        #[allow(unused_variables)]
        pub(super) fn subject(command: &Command) -> Subject<'_> {
            match command {
                $(Command::$variant($params) => lanes!(@subject $lane $subject),)+
            }
        }

        /// Returns the provider without which a command is not served.
        pub(super) fn provider(command: &Command) -> Option<Provider> {
            match command {
                $(Command::$variant(_) => lanes!(@provider $($provider)?),)+
            }
        }
    };
    (@provider) => {
        None
    };
    (@provider $provider:ident) => {
        Some(Provider::$provider)
    };
    (@subject spawned $subject:expr) => {
        $subject.on_a_separate_task()
    };
    (@subject $lane:ident $subject:expr) => {
        $subject
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
    inline Ping(_) of Subject::none() => responder.done();
    inline Initialize(params) of Subject::entry(params.initial_subscriptions.iter().flatten()) =>
        connection.handle_initialize(params, responder);
    inline Reconnect(params) of Subject::entry(&params.subscriptions) =>
        connection.handle_reconnect(params, prepared, responder);
    inline Authenticate(params) of Subject::identity() => connection.handle_authenticate(params, responder);
    session Subscribe(params) of Subject::subscription(&params.channel) =>
        connection.handle_subscribe(params, responder);
    spawned [sessions] ListSessions(params) of Subject::none() => {
        sessions::handle_list_sessions(by.front(), params, responder).await;
    };
    session CreateSession(params) of Subject::new_session(&params.channel) =>
        connection.handle_create_session(params, prepared.unknown, responder);
    session DisposeSession(params) of Subject::session(&params.channel) =>
        connection.handle_dispose_session(&params.channel, responder);
    session FetchTurns(params) of Subject::session(&params.channel) =>
        connection.handle_fetch_turns(params, responder);
    session CreateChat(params) of Subject::session(&params.channel).and(&params.chat) =>
        connection.handle_create_chat(params, responder);
    session DisposeChat(params) of Subject::session(&params.channel) =>
        connection.handle_dispose_chat(params.channel, responder);
    session MoveChat(params) of Subject::moved_chat(params) => connection.handle_move_chat(params, responder);
    spawned ResolveSessionConfig(params) of Subject::none() => {
        responder.settle(by.front().sessions.resolve_settings(params).await);
    };
    spawned [completions] SessionConfigCompletions(params) of Subject::none() => {
        responder.settle(by.front().sessions.complete_setting(params).await);
    };
    spawned [completions] Completions(params) of Subject::channel(&params.channel) =>
        responder.ok(&by.front().complete(params).await);
    spawned ListAutomationTriggerDefinitions(_) of Subject::none() => {
        let listed = by.front().automations.trigger_definitions().await;
        responder.settle(listed.map(|items| json!({ "items": items })));
    };
    spawned RunAutomation(params) of Subject::none() => {
        let automations = &by.front().automations;
        let run = automations.run_automation(&params.automation, &params.request_id, &by.principal).await;
        responder.settle(run.map(|resource| json!({ "resource": resource })));
    };
    spawned [usage] FetchAutomationRuns(params) of Subject::none() => {
        let (automations, id) = (&by.front().automations, by.connection.id());
        let loaded = automations.fetch_runs(&params.automation, params.cursor, id).await;
        responder.settle(loaded.map(|()| json!({})));
    };
    spawned [usage] RunsList(filter) of Subject::none() => {
        let listed = by.front().automations.list_runs(filter).await;
        responder.settle(listed.map(|list| json!(list)));
    };
    spawned [reads] ResourceRead(params) of Subject::resource(&params.uri) =>
        by.read_resource(params, responder).await;
    spawned [lists] ResourceList(params) of Subject::none() => by.list_resources(params, responder).await;
    spawned [lists] ResourceResolve(params) of Subject::none() =>
        responder.settle(by.resolve_resource(params).await);
    spawned [changes] ResourceWrite(params) of Subject::none() =>
        responder.settle(by.write_resource(params).await);
    spawned [changes] ResourceMkdir(params) of Subject::none() =>
        responder.settle(by.make_directory(params).await);
    spawned [changes] ResourceDelete(params) of Subject::none() =>
        responder.settle(by.delete_resource(params).await);
    spawned [changes] ResourceMove(params) of Subject::none() =>
        responder.settle(by.move_resource(params).await);
    spawned [changes] ResourceCopy(params) of Subject::none() =>
        responder.settle(by.copy_resource(params).await);
    spawned ResourceRequest(params) of Subject::none() => responder.settle(by.request_resource(params).await);
    spawned CreateResourceWatch(params) of Subject::none() =>
        responder.settle(by.watch_resource(params).await);
    spawned [usage] UsageTotals(params) of Subject::none() => responder.settle(match by.reader_of_use() {
        Ok(reader) => by.front().usage.usage_totals(params, reader.as_ref()).await,
        Err(refused) => Err(refused),
    });
    spawned [usage] UsageRecords(params) of Subject::none() => responder.settle(match by.reader_of_use() {
        Ok(reader) => by.front().usage.usage_records(params, reader.as_ref()).await,
        Err(refused) => Err(refused),
    });
    spawned [usage] UsageGroups(params) of Subject::none() => responder.settle(match by.reader_of_use() {
        Ok(reader) => by.front().usage.usage_groups(params, reader.as_ref()).await,
        Err(refused) => Err(refused),
    });
    spawned PullRequestCreate(params) of Subject::channel(&params.channel) => {
        responder.settle(by.connection.handle_pull_request(params).await);
    };
    spawned DiagnosticsNetwork(_) of Subject::none() => responder.settle(by.front().channels.network().await);
    spawned UsersReload(_) of Subject::none() => {
        if let Some(people) = by.front().access.gate.stored_people() {
            people.reread().await;
        }
        responder.settle(Ok(json!({})));
    };
    spawned DiagnosticsFetch(params) of Subject::none() => {
        responder.settle(by.front().channels.fetch(params.url).await);
    };
    inline CreateTerminal(params) of Subject::terminal(params), with Terminals =>
        connection.handle_create_terminal(params, responder);
    inline DisposeTerminal(params) of Subject::channel(&params.channel), with Terminals =>
        connection.handle_dispose_terminal(params.channel, responder);
    spawned DevContainersAvailable(_) of Subject::none(), with Containers =>
        responder.settle(by.containers_available().await);
    spawned DevContainersConnect(params) of Subject::none(), with Containers =>
        responder.settle(by.connect_container(params).await);
    inline DevContainersRelaySend(params) of Subject::none(), with Containers =>
        connection.handle_relay_send(params, responder);
    inline DevContainersDisconnect(params) of Subject::none(), with Containers =>
        connection.handle_relay_end(params, responder);
    spawned DevContainersStop(params) of Subject::none(), with Containers =>
        by.end_container(params, false, responder).await;
    spawned DevContainersRemove(params) of Subject::none(), with Containers =>
        by.end_container(params, true, responder).await;
    spawned DetachedWorktreeCreate(params) of Subject::channel(&params.session), with Worktrees => {
        responder.settle(by.front().workspace.create_detached(params).await);
    };
    spawned DetachedWorktreeClaim(params) of Subject::none(), with Worktrees => {
        responder.settle(by.front().workspace.claim_detached(&params).await);
    };
    spawned DetachedWorktreeSetArchived(params) of Subject::none(), with Worktrees => {
        responder.settle(by.front().workspace.archive_detached(params).await);
    };
    spawned DetachedWorktreeDelete(params) of Subject::none(), with Worktrees => {
        responder.settle(by.front().workspace.delete_detached(&params).await);
    };
    spawned DetachedWorktreesReconcile(params) of Subject::none(), with Worktrees => {
        by.front().workspace.reconcile_detached(&params).await;
        responder.done();
    };
    spawned InvokeChangesetOperation(params) of Subject::channel(&params.channel) => {
        responder.settle(by.connection.handle_changeset_operation(params).await);
    };
}

impl Connection {
    /// Records the session or chat of a command in its span.
    fn record_channel(&self, command: &Command) {
        let span = Span::current();
        if span.is_disabled() {
            return;
        }
        let Some(&channel) = subject(command).loaded.first() else { return };
        let field = match self.front().sessions.channel(channel) {
            Channel::Session(_) => "session",
            Channel::Chat(_) | Channel::DefaultChat(_) | Channel::Worker { .. } => "chat",
            _ => return,
        };
        span.record(field, channel);
    }
}
