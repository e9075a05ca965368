//! What each client command does. The match is exhaustive over the protocol's table.

use std::sync::Arc;

use ostler_protocol::commands::{Command, DispatchAction};
use ostler_protocol::grants::Grant;
use ostler_protocol::uri::{self, Channel};
use ostler_protocol::wire::actions::{RootConfigChangedAction, StateAction};
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::ResourceWatchState;
use ostler_protocol::{JsonObject, RpcError, Value, Version, actions, json, names, version};
use tokio::sync::oneshot;

use crate::connection::{Connection, Responder};
use crate::fanout::{Origin, rejection};
use crate::host::Host;
use crate::outbox::Closed;
use crate::sessions::{
    Dispatch, NewSession, Place, Snapshots, Subscription, ToSession, not_found, settings, snapshot,
};

/// The most rows a page of sessions has.
const PAGE_MAX: usize = 500;

impl Connection {
    pub(crate) async fn handle(self: &Arc<Self>, command: Command, responder: Responder) {
        let host = self.host().clone();
        match command {
            Command::Ping(_) => responder.done(),
            Command::Initialize(params) => self.handle_initialize(params, responder),
            Command::Reconnect(params) => self.handle_reconnect(params, responder),
            Command::Authenticate(params) => responder.settle(self.handle_authenticate(&params)),
            Command::Subscribe(params) => self.handle_subscribe(params, responder),
            Command::ListSessions(params) => responder.settle(handle_list_sessions(&host, &params)),
            Command::CreateSession(params) => self.handle_create_session(params, responder),
            Command::DisposeSession(params) => self.handle_dispose_session(&params.channel, responder),
            Command::FetchTurns(params) => self.handle_fetch_turns(params, responder),
            Command::ResolveSessionConfig(params) => {
                tokio::spawn(async move { responder.settle(resolve_config(&host, params).await) });
            }
            Command::SessionConfigCompletions(_) => responder.ok(&json!({ "items": [] })),
            Command::Completions(_) => responder.ok(&json!({ "items": [] })),
            Command::ListAutomationTriggerDefinitions(_) => {
                responder.settle(host.trigger_definitions().await.map(|items| json!({ "items": items })));
            }
            Command::RunAutomation(params) => {
                let sender = self.owner();
                tokio::spawn(async move {
                    let run = host.run_automation(&params.automation, &params.request_id, sender).await;
                    responder.settle(run.map(|resource| json!({ "resource": resource })));
                });
            }
            Command::FetchAutomationRuns(params) => {
                let loaded = host.fetch_runs(&params.automation, params.cursor, self.id()).await;
                responder.settle(loaded.map(|()| json!({})));
            }
            Command::ResourceRead(_)
            | Command::ResourceList(_)
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
            Command::CreateChat(_) => responder.fail(unserved("createChat")),
            Command::DisposeChat(_) => responder.fail(unserved("disposeChat")),
            Command::MoveChat(_) => responder.fail(unserved("moveChat")),
            Command::CreateTerminal(_) => responder.fail(unserved("createTerminal")),
            Command::DisposeTerminal(_) => responder.fail(unserved("disposeTerminal")),
            Command::InvokeChangesetOperation(_) => responder.fail(unserved("invokeChangesetOperation")),
        }
    }

    fn handle_initialize(self: &Arc<Self>, params: c::InitializeParams, responder: Responder) {
        if self.client_id().is_some() {
            return responder.fail(RpcError::invalid_request("initialize came a second time"));
        }
        let negotiated = match version::negotiate(&params.protocol_versions) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                let close = error.data.is_some();
                responder.fail(error);
                if close {
                    self.outbox.close(Closed::Protocol);
                }
                return;
            }
        };
        self.introduce(&params.client_id, negotiated.version);
        self.host().remember_client(&params.client_id, negotiated.version);
        // Whatever happens to a channel once its snapshot is taken waits behind the answer.
        self.outbox.hold();
        let wanted = params.initial_subscriptions.unwrap_or_default();
        let snapshots = self.collect(&wanted);
        let connection = self.clone();
        tokio::spawn(async move {
            let host = connection.host();
            let snapshots = snapshots.await;
            let mut result = match json!({
                "protocolVersion": negotiated.offered,
                "serverSeq": host.fanout.seq(),
                "serverInfo": { "name": names::HOST, "version": host.options.version },
                "completionTriggerCharacters": ["/", "@"],
                "automations": { "create": {}, "schedules": { "minIntervalMinutes": 1 }, "runHistoryLimit": 20 },
            }) {
                Value::Object(fields) => fields,
                _ => JsonObject::new(),
            };
            if host.automation_store().is_none() {
                result.remove("automations");
            }
            if let Some(path) = host.options.paths.first() {
                result.insert("defaultDirectory".to_owned(), crate::host::file_uri(path).into());
            }
            let mut meta = host.advertised().await;
            if let Some(principal) = host.principal_fact(&connection.principal()) {
                meta.insert(names::meta_key("principal"), principal.into());
            }
            result.insert("_meta".to_owned(), Value::Object(meta));
            let mut text = Value::Object(result).to_string();
            text.pop();
            text.push_str(r#","snapshots":["#);
            text.push_str(&snapshots.join(","));
            text.push_str("]}");
            responder.release(&text);
        });
    }

    fn handle_reconnect(self: &Arc<Self>, params: c::ReconnectParams, responder: Responder) {
        let host = self.host().clone();
        if self.client_id().is_none() {
            let spoken = host.spoken_by(&params.client_id).unwrap_or(Version::V1);
            self.introduce(&params.client_id, spoken);
        }
        let seen = u64::try_from(params.last_seen_server_seq).unwrap_or_default();
        let mut known = Vec::new();
        let mut missing = Vec::new();
        for spelled in &params.subscriptions {
            match self.channel_of(spelled) {
                Ok(channel) if self.may_subscribe(&Channel::parse(spelled)).is_ok() => {
                    known.push((spelled.clone(), channel));
                }
                _ => missing.push(spelled.clone()),
            }
        }
        let subscriptions: Vec<_> = known
            .iter()
            .map(|(spelled, channel)| (channel.clone(), self.subscriber(spelled, channel, None)))
            .collect();
        match host.fanout.resume(seen, &subscriptions) {
            Some(replay) => {
                for (spelled, channel) in &known {
                    self.remember(spelled, channel);
                }
                let missing = json!(missing);
                responder.raw(&format!(
                    r#"{{"type":"replay","actions":[{}],"missing":{missing}}}"#,
                    replay.envelopes.join(",")
                ));
            }
            None => {
                self.outbox.hold();
                let wanted: Vec<String> = known.into_iter().map(|(spelled, _)| spelled).collect();
                let snapshots = self.collect(&wanted);
                tokio::spawn(async move {
                    let snapshots = snapshots.await;
                    responder
                        .release(&format!(r#"{{"type":"snapshot","snapshots":[{}]}}"#, snapshots.join(",")));
                });
            }
        }
        // A session the client no longer names has lost it.
        let client = params.client_id;
        for entry in host.sessions.all().into_iter().filter(|entry| entry.is_awake()) {
            host.tell(&entry, ToSession::Left { client: client.clone() });
        }
    }

    /// Subscribes to several channels; what cannot be is left out.
    fn collect(self: &Arc<Self>, wanted: &[String]) -> impl Future<Output = Vec<String>> + use<> {
        let pending: Vec<_> = wanted
            .iter()
            .map(|spelled| {
                let (answer, wait) = oneshot::channel();
                if self.may_subscribe(&Channel::parse(spelled)).is_ok() {
                    self.subscribe(spelled, None, None, Snapshots::Collect(answer));
                }
                wait
            })
            .collect();
        async move {
            let snapshots = futures::future::join_all(pending).await;
            snapshots.into_iter().filter_map(|snapshot| snapshot.ok().flatten()).collect()
        }
    }

    fn handle_subscribe(self: &Arc<Self>, params: c::SubscribeParams, responder: Responder) {
        let channel = Channel::parse(&params.channel);
        if let Err(error) = self.may_subscribe(&channel) {
            return responder.fail(error);
        }
        let latency = params.delivery.and_then(|delivery| delivery.max_latency_ms);
        let latency = latency.map(|ms| u64::try_from(ms).unwrap_or_default());
        let turns = params.view.and_then(|view| view.turns);
        let turns = turns.map(|turns| usize::try_from(turns).unwrap_or_default());
        self.subscribe(&params.channel, latency, turns, Snapshots::Subscribe(responder));
    }

    /// Whether the connection may watch a channel.
    fn may_subscribe(&self, channel: &Channel) -> Result<(), RpcError> {
        let asked = match channel {
            Channel::Session(_) | Channel::Changeset { .. } | Channel::Annotations(_) => {
                Grant::of("session", "state")
            }
            Channel::Chat(_) | Channel::DefaultChat(_) | Channel::Worker { .. } => Grant::of("chat", "turns"),
            Channel::Automations | Channel::AutomationRun(_) => Grant::of("automation", "list"),
            Channel::Terminal(_) => Grant::of("terminal", "output"),
            Channel::ResourceWatch(_) | Channel::Root | Channel::Plugin { .. } | Channel::Other => {
                return Ok(());
            }
        };
        self.host().gate.require(&self.principal(), &asked)
    }

    /// The channel's own name.
    fn channel_of(&self, spelled: &str) -> Result<String, RpcError> {
        let host = self.host();
        let channel = Channel::parse(spelled);
        if let Some((entry, place)) = host.sessions.locate(&channel) {
            return Ok(match place {
                Place::Session => entry.uri.clone(),
                Place::DefaultChat => entry.default_chat(),
                Place::Chat(chat) => chat,
            });
        }
        match channel {
            Channel::Root => Ok(uri::ROOT.to_owned()),
            Channel::Automations if host.automation_store().is_some() => Ok(uri::AUTOMATIONS.to_owned()),
            Channel::AutomationRun(id) => {
                let run = uri::automation_run(&id);
                match host.automations.has_run(&run) {
                    true => Ok(run),
                    false => Err(RpcError::not_found(format!("No run at {spelled}"))),
                }
            }
            Channel::ResourceWatch(_) if host.watched(spelled).is_some() => Ok(spelled.to_owned()),
            Channel::Session(_) | Channel::Chat(_) | Channel::DefaultChat(_) | Channel::Worker { .. } => {
                Err(RpcError::session_not_found(not_found(spelled)))
            }
            Channel::Automations => Err(RpcError::method_not_found("this host keeps no automations")),
            Channel::Plugin { scheme } => {
                Err(RpcError::method_not_found(format!("nothing here serves {scheme}:")))
            }
            _ => Err(RpcError::not_found(format!("there is no channel {spelled}"))),
        }
    }

    /// Subscribes to one channel; the snapshot goes where it is wanted.
    fn subscribe(
        self: &Arc<Self>,
        spelled: &str,
        latency: Option<u64>,
        turns: Option<usize>,
        answer: Snapshots,
    ) {
        let host = self.host();
        let parsed = Channel::parse(spelled);
        let channel = match self.channel_of(spelled) {
            Ok(channel) => channel,
            Err(error) => {
                // A run may have ended long ago: the store still knows it.
                if let Channel::AutomationRun(_) = parsed {
                    return self.subscribe_kept_run(spelled, latency, answer);
                }
                return answer.fail(error);
            }
        };
        let subscriber = self.subscriber(spelled, &channel, latency);
        self.remember(spelled, &channel);
        if let Some((entry, place)) = host.sessions.locate(&parsed) {
            let client = self.client_id().unwrap_or_else(|| "anonymous".to_owned());
            let subscription =
                Subscription { spelled: spelled.to_owned(), place, subscriber, turns, client, answer };
            host.tell(&entry, ToSession::Subscribe(Box::new(subscription)));
            return;
        }
        let (state, seq) = match parsed {
            Channel::Root => {
                let (state, seq) = host.root.subscribe(&host.fanout, subscriber);
                (state.to_string(), seq)
            }
            Channel::Automations => host.automations.subscribe(&host.fanout, subscriber),
            Channel::AutomationRun(_) => {
                match host.automations.subscribe_run(&host.fanout, &channel, subscriber) {
                    Some(seen) => seen,
                    None => return self.subscribe_kept_run(spelled, latency, answer),
                }
            }
            Channel::ResourceWatch(_) => match host.watched(spelled) {
                Some(state) => {
                    let state: ResourceWatchState = state;
                    let text = serde_json::to_string(&state).unwrap_or_else(|_| "{}".to_owned());
                    (text, host.fanout.subscribe(&channel, subscriber))
                }
                None => return answer.fail(RpcError::not_found(format!("there is no channel {spelled}"))),
            },
            _ => return answer.fail(RpcError::not_found(format!("there is no channel {spelled}"))),
        };
        answer.give(snapshot(spelled, &state, seq));
    }

    /// A run that ended before this host started.
    fn subscribe_kept_run(self: &Arc<Self>, spelled: &str, latency: Option<u64>, answer: Snapshots) {
        let (connection, spelled) = (self.clone(), spelled.to_owned());
        tokio::spawn(async move {
            let host = connection.host();
            match host.kept_run(&spelled).await {
                Some(run) => {
                    let subscriber = connection.subscriber(&spelled, &spelled, latency);
                    connection.remember(&spelled, &spelled);
                    let seq = host.fanout.subscribe(&spelled, subscriber);
                    let state = serde_json::to_string(&run).unwrap_or_else(|_| "{}".to_owned());
                    answer.give(snapshot(&spelled, &state, seq));
                }
                None => answer.fail(RpcError::not_found(format!("No run at {spelled}"))),
            }
        });
    }

    fn handle_create_session(self: &Arc<Self>, params: c::CreateSessionParams, responder: Responder) {
        let host = self.host().clone();
        let Some(id) = uri::session_id(&params.channel) else {
            let error = format!("{} is not a session URI: <scheme>:/<id>", params.channel);
            return responder.fail(RpcError::invalid_params(error));
        };
        if let Channel::Root | Channel::Other | Channel::Plugin { .. } = Channel::parse(&params.channel) {
            let error = format!("{} is not a session URI: its scheme is not free", params.channel);
            return responder.fail(RpcError::invalid_params(error));
        }
        let client = self.client_id();
        let mut active_client = params.active_client;
        if let (Some(active), Some(client)) = (&mut active_client, &client) {
            active.client_id.clone_from(client);
        }
        let new = NewSession {
            id: id.to_owned(),
            provider: params.provider,
            owner: self.owner(),
            working_directories: params.working_directories.unwrap_or_default(),
            config: params.config.unwrap_or_default(),
            active_client,
            client,
            credentials: self.credentials(),
            ..NewSession::default()
        };
        let claimed = match host.claim_session(new) {
            Ok(claimed) => claimed,
            Err(error) => return responder.fail(error),
        };
        let progress = params.progress_token.map(|token| Progress { token, connection: self.clone() });
        tokio::spawn(async move {
            if let Some(progress) = &progress {
                progress.say(0, "Starting the session");
                progress.say(1, "Starting the agent");
            }
            match claimed.start(&host).await {
                Ok(_) => {
                    if let Some(progress) = &progress {
                        progress.say(2, "Ready");
                    }
                    responder.done();
                }
                Err(error) => responder.fail(error),
            }
        });
    }

    fn handle_dispose_session(self: &Arc<Self>, channel: &str, responder: Responder) {
        let host = self.host().clone();
        let Some(entry) = host.sessions.by_uri(channel) else {
            return responder.fail(RpcError::session_not_found(not_found(channel)));
        };
        if host.gate.guarded && !self.owns(entry.owner.as_deref()) {
            return responder.fail(RpcError::permission_denied("Only the session's owner can delete it."));
        }
        tokio::spawn(async move {
            match host.dispose_session(&entry).await {
                Ok(()) => responder.done(),
                Err(error) => responder.fail(error),
            }
        });
    }

    /// Whether what an owner made is this connection's to remove.
    fn owns(&self, owner: Option<&str>) -> bool {
        let principal = self.principal();
        owner.is_none()
            || principal.owner(&self.host().options.host_name).as_deref() == owner
            || principal.is_administrator()
    }

    fn handle_fetch_turns(self: &Arc<Self>, params: c::FetchTurnsParams, responder: Responder) {
        let host = self.host();
        let Some((entry, place)) = host.sessions.locate(&Channel::parse(&params.channel)) else {
            return responder.fail(match Channel::parse(&params.channel) {
                Channel::Session(_) | Channel::Chat(_) | Channel::DefaultChat(_) => {
                    RpcError::session_not_found(not_found(&params.channel))
                }
                _ => RpcError::invalid_params(format!("{} is not a session or a chat", params.channel)),
            });
        };
        let place = if place == Place::Session { Place::DefaultChat } else { place };
        let message = ToSession::FetchTurns {
            spelled: params.channel,
            place,
            cursor: params.cursor,
            connection: self.reference(),
            responder,
        };
        host.tell(&entry, message);
    }

    /// Takes a dispatched action to its channel. An action that cannot be is refused, never dropped.
    pub(crate) fn handle_dispatch(self: &Arc<Self>, dispatch: DispatchAction) {
        let host = self.host();
        let origin =
            Origin { client_id: self.client_id().unwrap_or_default(), client_seq: dispatch.client_seq };
        let refuse = |why: &str| {
            let action = dispatch.action.to_string();
            self.outbox.send(rejection(&dispatch.channel, &action, host.fanout.seq(), &origin, why));
        };
        let Some(name) = dispatch.action.get("type").and_then(Value::as_str) else {
            return refuse("an action needs a type");
        };
        let channel = Channel::parse(&dispatch.channel);
        if matches!(channel, Channel::Plugin { .. }) {
            return refuse("nothing is dispatched to a plugin's channel");
        }
        let Some(row) = actions::action(name) else {
            return refuse(&format!("{name} is not an action this host serves"));
        };
        let Some(asked) = row.client.as_ref() else {
            return refuse(&format!("{name} is for the host to say"));
        };
        if let Err(error) = self.may_dispatch(name, asked, &dispatch.action) {
            return refuse(&error.message);
        }
        match (host.sessions.locate(&channel), &channel) {
            (Some((entry, place)), _) => {
                let message = Dispatch {
                    spelled: dispatch.channel.clone(),
                    place,
                    row,
                    action: dispatch.action.clone(),
                    origin: origin.clone(),
                    connection: self.reference(),
                    sender: self.owner(),
                };
                if !host.tell(&entry, ToSession::Dispatch(Box::new(message))) {
                    refuse(&not_found(&dispatch.channel));
                }
            }
            (None, Channel::Root) => {
                let Ok(StateAction::RootConfigChanged(RootConfigChangedAction { config, replace })) =
                    serde_json::from_value(dispatch.action.clone())
                else {
                    return refuse(&format!("{name} does not belong on the root channel"));
                };
                let origin = Some(origin.clone());
                let taken =
                    host.root.set_config(&host.fanout, self.id(), origin, config, replace == Some(true));
                if let Err(why) = taken {
                    refuse(&why);
                }
            }
            (None, Channel::Automations | Channel::AutomationRun(_)) => {
                let (host, owner) = (host.clone(), self.owner());
                let (outbox, spelled, action) =
                    (self.outbox.clone(), dispatch.channel.clone(), dispatch.action.clone());
                tokio::spawn(async move {
                    if let Err(why) = host.automation_action(&action, origin.clone(), owner).await {
                        let seq = host.fanout.seq();
                        outbox.send(rejection(&spelled, &action.to_string(), seq, &origin, &why));
                    }
                });
            }
            _ => refuse(&match channel {
                Channel::Session(_) | Channel::Chat(_) | Channel::DefaultChat(_) | Channel::Worker { .. } => {
                    not_found(&dispatch.channel)
                }
                _ => format!("there is no channel {}", dispatch.channel),
            }),
        }
    }

    /// Whether the connection may dispatch an action. Settings it keeps to itself ask less than the host's.
    fn may_dispatch(&self, name: &str, asked: &Grant, action: &Value) -> Result<(), RpcError> {
        let asked = match name {
            "root/configChanged" => {
                let own = |key: &str| matches!(key, "defaultShell" | "workspaceTrust");
                let replace = action.get("replace") == Some(&Value::Bool(true));
                let keys = action.get("config").and_then(Value::as_object);
                match keys {
                    Some(keys) if !replace && keys.keys().all(|key| own(key)) => {
                        match keys.contains_key("workspaceTrust") {
                            true => Grant::of("trust", "push"),
                            false => return Ok(()),
                        }
                    }
                    _ => asked.clone(),
                }
            }
            _ => asked.clone(),
        };
        self.host().gate.require(&self.principal(), &asked)
    }

    fn handle_authenticate(&self, params: &c::AuthenticateParams) -> Result<Value, RpcError> {
        let advertised = self.host().root.agents().iter().any(|agent| {
            agent.protected_resources.iter().flatten().any(|resource| resource.resource == params.resource)
        });
        if !advertised {
            return Err(RpcError::invalid_params(format!(
                "{} is not a resource this host asks for",
                params.resource
            )));
        }
        self.keep_credential(&params.resource, &params.token);
        Ok(json!({}))
    }
}

/// The progress of a session that is being made, told to whoever asked for it.
struct Progress {
    token: String,
    connection: Arc<Connection>,
}

impl Progress {
    fn say(&self, progress: u8, message: &str) {
        let params = json!({ "channel": uri::ROOT, "progressToken": self.token, "progress": progress,
            "total": 2, "message": message });
        if let Ok(frame) = ostler_protocol::message::encode::notification("root/progress", &params) {
            self.connection.outbox.send(frame);
        }
    }
}

fn unserved(command: &str) -> RpcError {
    RpcError::method_not_found(format!("This host does not serve {command} yet"))
}

fn handle_list_sessions(
    host: &Host,
    params: &c::ListSessionsParams,
) -> Result<c::ListSessionsResult, RpcError> {
    let rows = host.session_rows();
    let start = match &params.cursor {
        None => 0,
        Some(cursor) => {
            let unknown = || RpcError::invalid_params(format!("Unrecognised cursor {cursor}"));
            let (modified, uri) = cursor.split_once('|').ok_or_else(unknown)?;
            if modified.parse::<jiff::Timestamp>().is_err() {
                return Err(unknown());
            }
            // The row itself may have moved; what was behind it has not.
            rows.iter()
                .position(|row| {
                    (row.modified_at.as_str(), modified).0 < modified
                        || row.modified_at == modified && row.resource.as_str() > uri
                })
                .unwrap_or(rows.len())
        }
    };
    let limit = match params.limit {
        None => rows.len(),
        Some(limit) => usize::try_from(limit).unwrap_or_default().clamp(1, PAGE_MAX),
    };
    let end = (start + limit).min(rows.len());
    let next_cursor = (end < rows.len())
        .then(|| rows[..end].last().map(|row| format!("{}|{}", row.modified_at, row.resource)))
        .flatten();
    Ok(c::ListSessionsResult { items: rows[start..end].to_vec(), next_cursor })
}

async fn resolve_config(
    host: &Host,
    params: c::ResolveSessionConfigParams,
) -> Result<c::ResolveSessionConfigResult, RpcError> {
    let agent = match &params.provider {
        Some(provider) => host.agent(provider),
        None => host.first_agent(),
    };
    let agent = agent.ok_or_else(|| {
        let provider = params.provider.as_deref().unwrap_or("default");
        RpcError::provider_not_found(format!("No provider called {provider}"))
    })?;
    let config = settings(&agent, &params.config.unwrap_or_default()).await.map_err(|why| why.into_rpc())?;
    Ok(c::ResolveSessionConfigResult { schema: config.schema, values: config.values })
}

impl Snapshots {
    pub(crate) fn fail(self, error: RpcError) {
        match self {
            Self::Subscribe(responder) => responder.fail(error),
            Self::Collect(collect) => {
                let _ = collect.send(None);
            }
        }
    }

    pub(crate) fn give(self, snapshot: String) {
        match self {
            Self::Subscribe(responder) => responder.raw(&format!(r#"{{"snapshot":{snapshot}}}"#)),
            Self::Collect(collect) => {
                let _ = collect.send(Some(snapshot));
            }
        }
    }
}
