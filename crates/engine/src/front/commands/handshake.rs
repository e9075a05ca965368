//! The handshake: `initialize` and `reconnect`.

use std::sync::Arc;

use futures::FutureExt;
use ostler_contract::Charge;
use ostler_contract::Thrown;
use ostler_contract::read::{Read, Unknown};
use ostler_engine_core::outbox::Closed;
use ostler_engine_core::refusals::unread;
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_sessions::{Collected, ToSession, grants_of_command_line};
use ostler_engine_workspace::terminals::PREFIX;
use ostler_protocol::commands::Command;
use ostler_protocol::wire::commands as c;
use ostler_protocol::{JsonObject, RpcError, Value, Version, json, names, version};

use super::subscribe::COLLECT_LIMIT;
use crate::front::channels::kind_of;
use crate::front::commands::subject;
use crate::front::connection::Connection;
use crate::front::order::Prepared;

impl Connection {
    /// Records the client when its `initialize` or `reconnect` arrives, which can wait for sessions, so that its next
    /// messages are accepted. Returns `responder` unless the command is rejected.
    pub(crate) fn enter(&self, command: &Command, responder: Responder) -> Option<Responder> {
        if subject(command).introduces()
            && let Some(lost) = self.front().core.lost_lease()
        {
            responder.fail(RpcError::internal(lost));
            self.outbox.close(Closed::LostLease);
            return None;
        }
        match command {
            Command::Initialize(params) => {
                if self.client_id().is_some() {
                    responder.fail(RpcError::invalid_request(
                        "initialize was already received on this connection",
                    ));
                    return None;
                }
                match version::negotiate(&params.protocol_versions) {
                    Ok(negotiated) => {
                        self.introduce(&params.client_id, negotiated.version);
                        let clients = &self.front().access.clients;
                        clients.remember_version(&params.client_id, negotiated.version);
                    }
                    Err(error) => {
                        let close = error.data.is_some();
                        responder.fail(error);
                        if close {
                            self.outbox.close(Closed::Protocol);
                        }
                        return None;
                    }
                }
            }
            Command::Reconnect(params) if self.client_id().is_none() => {
                let spoken = self.front().access.clients.version_of(&params.client_id);
                self.introduce(&params.client_id, spoken.unwrap_or(Version::V1));
            }
            _ => {}
        }
        Some(responder)
    }

    pub(super) fn handle_initialize(self: &Arc<Self>, params: c::InitializeParams, responder: Responder) {
        let negotiated = match version::negotiate(&params.protocol_versions) {
            Ok(negotiated) => negotiated,
            Err(error) => return responder.fail(error),
        };
        // Actions of a channel after its snapshot wait behind the answer.
        self.outbox.hold();
        let wanted = params.initial_subscriptions.unwrap_or_default();
        let snapshots = self.collect(&wanted);
        let elsewhere = self.collect_elsewhere();
        let connection = self.clone();
        tasks::spawn(async move {
            let front = connection.front();
            let mut snapshots = snapshots.await;
            if let Some(elsewhere) = elsewhere {
                snapshots.extend(elsewhere.await);
            }
            let mut result = match json!({
                "protocolVersion": negotiated.offered,
                "serverSeq": front.core.fanout.seq(),
                "serverInfo": { "name": names::HOST, "version": front.core.options.version },
                "completionTriggerCharacters": ["/", "@"],
                "automations": { "create": {}, "schedules": { "minIntervalMinutes": 1 }, "runHistoryLimit": 20 },
            }) {
                Value::Object(fields) => fields,
                _ => JsonObject::new(),
            };
            if front.core.automation_store().is_none() {
                result.remove("automations");
            } else if !front.automations.keeps_schedules()
                && let Some(Value::Object(automations)) = result.get_mut("automations")
            {
                automations.shift_remove("schedules");
            }
            if front.workspace.terminal_store().is_some()
                && grants_of_command_line(connection.way()).is_some()
            {
                result.insert("terminalCommandPrefix".to_owned(), PREFIX.into());
            }
            if let Some(path) = front.core.options.paths.first() {
                result.insert(
                    "defaultDirectory".to_owned(),
                    ostler_engine_core::file_uris::file_uri(path).into(),
                );
            }
            let mut meta = front.advertised().await;
            if let Some(principal) = front.access.principal_fact(&connection.principal()) {
                meta.insert(names::meta_key("principal"), principal.into());
            }
            if let Some(telemetry) = front.channels.telemetry() {
                result.insert("telemetry".to_owned(), telemetry);
            }
            result.insert("_meta".to_owned(), Value::Object(meta));
            let mut text = Value::Object(result).to_string();
            text.pop();
            text.push_str(r#","snapshots":["#);
            responder.release_parts(&text, parts(snapshots), "]}");
        });
    }

    pub(super) fn handle_reconnect(
        self: &Arc<Self>,
        params: c::ReconnectParams,
        prepared: Prepared,
        responder: Responder,
    ) {
        let front = self.front().clone();
        let mut known = Vec::new();
        let mut missing = Vec::new();
        let mut asked = Vec::new();
        for spelled in &params.subscriptions {
            let kind = kind_of(&front, spelled);
            match kind.resolve(&front, spelled) {
                Ok(channel) if kind.may_watch(self).is_ok() => {
                    if kind.asks_plugin() {
                        asked.push((known.len(), kind, spelled.clone()));
                    }
                    known.push((spelled.clone(), channel));
                }
                _ => missing.push(spelled.clone()),
            }
        }
        let back = Back {
            client: params.client_id,
            seen: params.last_seen_server_seq,
            known,
            missing,
            _sessions: prepared,
        };
        if asked.is_empty() {
            return self.resume(back, responder);
        }
        let connection = self.clone();
        tasks::spawn(async move {
            let asked = asked.into_iter().map(|(at, kind, spelled)| {
                let connection = connection.clone();
                async move {
                    let asked = kind.may_resume(&connection, &spelled);
                    let timed_out = |_| Read::Unknown(Unknown(Thrown::timed_out(COLLECT_LIMIT)));
                    (at, tokio::time::timeout(COLLECT_LIMIT, asked).await.unwrap_or_else(timed_out))
                }
            });
            let mut back = back;
            let mut refused = Vec::new();
            for (at, may) in futures::future::join_all(asked).await {
                match may {
                    Read::Known(true) => {}
                    Read::Known(false) => refused.push((at, ())),
                    // A client drops what it is told is missing.
                    Read::Unknown(why) => return responder.fail(unread(&back.known[at].0, &why)),
                }
            }
            // From the end, so that earlier indexes stay valid.
            for (at, ()) in refused.into_iter().rev() {
                back.missing.push(back.known.remove(at).0);
            }
            connection.resume(back, responder);
        });
    }

    /// Restores the subscriptions that a client can still have, with the missed actions or new snapshots.
    fn resume(self: &Arc<Self>, back: Back, responder: Responder) {
        let front = self.front().clone();
        let Back { client, seen, known, missing, _sessions } = back;
        let subscriptions: Vec<_> = known
            .iter()
            .map(|(spelled, channel)| (channel.clone(), self.subscriber(spelled, channel, None)))
            .collect();
        // Actions on these channels from now on wait behind the answer.
        self.outbox.hold();
        // One answer has either the missed actions or snapshots, and those of other hosts are not retained here.
        let elsewhere = self.collect_elsewhere();
        let replay = match &elsewhere {
            Some(_) => None,
            None => front.core.fanout.resume(u64::try_from(seen).unwrap_or_default(), &subscriptions),
        };
        match replay {
            Some(replay) => {
                for (spelled, channel) in &known {
                    kind_of(&front, spelled).resume(self, spelled, channel);
                }
                if self.is_closed() {
                    for (_, channel) in &known {
                        front.sessions.unsubscribe(channel, self.id());
                    }
                }
                let missing = json!(missing);
                let replayed = move |envelopes: Vec<String>| {
                    let actions = envelopes.join(",");
                    responder.release(&format!(
                        r#"{{"type":"replay","actions":[{actions}],"missing":{missing}}}"#
                    ));
                };
                match replay.is_asked() {
                    true => drop(tasks::spawn(async move { replayed(replay.answered().await) })),
                    false => replayed(replay.answered().now_or_never().unwrap_or_default()),
                }
            }
            None => {
                let wanted: Vec<String> = known.into_iter().map(|(spelled, _)| spelled).collect();
                let snapshots = self.collect(&wanted);
                tasks::spawn(async move {
                    let mut snapshots = snapshots.await;
                    if let Some(elsewhere) = elsewhere {
                        snapshots.extend(elsewhere.await);
                    }
                    responder.release_parts(r#"{"type":"snapshot","snapshots":["#, parts(snapshots), "]}");
                });
            }
        }
        // The client has left a session that it no longer names.
        for entry in front.sessions.all().into_iter().filter(|entry| entry.is_awake()) {
            front.sessions.tell(&entry, ToSession::Left { client: client.clone() });
        }
        front.sessions.drafts_left_out(&client);
    }
}

fn parts(snapshots: Vec<Collected>) -> Vec<(String, Option<Charge>)> {
    snapshots.into_iter().map(|Collected { text, charge }| (text, charge)).collect()
}

/// A reconnecting client with the subscriptions that it can restore.
struct Back {
    client: String,
    seen: i64,
    /// The URI from the client's request, and the canonical URI.
    known: Vec<(String, String)>,
    missing: Vec<String>,
    /// Keeps the sessions of these channels in memory.
    _sessions: Prepared,
}
