//! Coming in and coming back: `initialize`, `reconnect`, `authenticate`.

use std::sync::Arc;

use ostler_protocol::wire::commands as c;
use ostler_protocol::{JsonObject, RpcError, Value, Version, json, names, version};

use crate::connection::{Connection, Responder};
use crate::outbox::Closed;
use crate::sessions::ToSession;

impl Connection {
    pub(super) fn handle_initialize(self: &Arc<Self>, params: c::InitializeParams, responder: Responder) {
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
            } else if !host.keeps_schedules()
                && let Some(Value::Object(automations)) = result.get_mut("automations")
            {
                automations.shift_remove("schedules");
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

    pub(super) fn handle_reconnect(self: &Arc<Self>, params: c::ReconnectParams, responder: Responder) {
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
                Ok(channel) if self.may_subscribe(&host.sessions.channel(spelled)).is_ok() => {
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
}
