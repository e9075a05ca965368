//! What a call would do, without its effects: it takes the way of a real call up to the point at which that begins to change
//! something.

use std::sync::Arc;

use bytes::Bytes;
use ostler_contract::host::{EventData, ExplainedAutomation};
use ostler_contract::http::{Body, HeaderMap, HeaderValue, Method, StatusCode, header::HeaderName};
use ostler_contract::points::{Description, Method as HostMethod};
use ostler_contract::protocol::RpcError;
use ostler_contract::protocol::event_path;
use ostler_contract::protocol::sent::SentObject;
use ostler_contract::{Call, JsonObject, PluginHost, Slug, Thrown, Value, json};

use crate::automation::{self, Data, Decision};
use crate::bot_call::BotCall;
use crate::endpoint::{Endpoint, Target};
use crate::reply::{Answer, Refusal};
use crate::route::{Admitted, Head, Opened, Unread, Webhook, greeting, handshake, open, success, whole};
use crate::verify::{EventName, Verify};
use crate::when_values::values;
use crate::{CALL, EXPLAIN, REPLAY_GRANT, TRIGGER};

/// Registers the command that explains a call.
pub(crate) fn register(host: &PluginHost, webhook: &Arc<Webhook>) -> Result<(), Thrown> {
    let webhook = Arc::downgrade(webhook);
    host.register_method(
        EXPLAIN.into(),
        HostMethod {
            grant: REPLAY_GRANT.into(),
            handle: Call::new(move |(params, _, _, _): (JsonObject, _, _, _)| {
                let webhook = webhook.upgrade();
                async move {
                    let webhook = webhook.ok_or_else(|| Thrown::new("the plugin is closed"))?;
                    webhook.explain(&params).await
                }
            }),
            describe: Some(Call::now(|()| {
                let description = "Says what a call of a webhook endpoint would do, without doing it.";
                Ok(Description {
                    title: Some("Explain a call".to_owned()),
                    description: Some(description.to_owned()),
                })
            })),
            ..HostMethod::default()
        },
    )
}

fn wrong(why: impl Into<String>) -> Thrown {
    Thrown::from(RpcError::invalid_params(why.into()))
}

/// Reads the call of `{ endpoint, headers?, query?, body? }`; `headers` is a list of texts `Name: value`.
fn call_of(params: &JsonObject) -> Result<(Slug, Admitted), Thrown> {
    let text = |name: &str| match params.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| wrong(format!("{name} must be text"))),
    };
    let id = Slug::parse(text("endpoint")?).ok_or_else(|| wrong("endpoint must be the id of an endpoint"))?;
    let mut headers = HeaderMap::new();
    for header in params.get("headers").and_then(Value::as_array).into_iter().flatten() {
        let (name, value) = header
            .as_str()
            .and_then(|header| header.split_once(':'))
            .ok_or_else(|| wrong(format!("header {header} has no colon; write it as 'Name: value'")))?;
        let (name, value) = (name.trim(), value.trim());
        let name =
            HeaderName::try_from(name).map_err(|_| wrong(format!("{name} is not the name of a header")))?;
        let value =
            HeaderValue::try_from(value).map_err(|_| wrong(format!("the value of {name} is invalid")))?;
        headers.append(name, value);
    }
    let query = match text("query")? {
        "" => String::new(),
        query => format!("?{query}"),
    };
    let uri = format!("/plugins/webhook/{id}{query}").parse().map_err(|_| wrong("query is invalid"))?;
    let body = Bytes::from(text("body")?.to_owned());
    Ok((id, Admitted { head: Head { uri, headers }, body }))
}

impl Webhook {
    /// Returns what a call would do.
    async fn explain(self: &Arc<Self>, params: &JsonObject) -> Result<Value, Thrown> {
        let (id, mut call) = call_of(params)?;
        let endpoint = self.endpoints.get(&id).await.known()?;
        let endpoint = endpoint.ok_or_else(|| {
            wrong(format!("no valid endpoint has the id {id}; see the endpoints with: ostler webhook list"))
        })?;
        let verify = endpoint.extras.verify.as_ref();
        let target = match &endpoint.target {
            Target::Automation => "automation".to_owned(),
            Target::Bot(target) => target.bot.clone(),
        };
        let mut said = json!({
            "endpoint": &*endpoint.id, "target": target, "sender": verify.map(|verify| verify.sender.name),
            "retries": verify.map(|verify| verify.sender.retries.said(verify.sender.name)),
        });
        let status = match Box::pin(self.explain_call(&endpoint, &mut call, &mut said)).await? {
            Ok(status) => status,
            Err(refusal) => {
                said["problem"] = refusal.message().into();
                Answer::from(refusal).status
            }
        };
        said["status"] = status.as_u16().into();
        Ok(said)
    }

    /// Adds what is known of a call. Returns the status of its answer, or how it would be refused.
    async fn explain_call(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        call: &mut Admitted,
        said: &mut Value,
    ) -> Result<Result<StatusCode, Refusal>, Thrown> {
        if let Some(greeting) = handshake(endpoint, &Method::POST, &call.head) {
            said["checksAddress"] = true.into();
            return Ok(self.greeted(endpoint, greeting).await.map(|answer| answer.status));
        }
        let bodies = &self.replays;
        let sent = std::mem::take(&mut call.body);
        let admitted = self.admit(endpoint, &call.head, Body::from(sent.clone()), bodies).await;
        // What would be refused for its sender is explained as if it were not.
        let (unread, unverified) = match admitted {
            Ok(unread) => (unread, None),
            Err(refusal) => (Unread::Read(sent), Some(refusal)),
        };
        said["verified"] = unverified.is_none().into();
        let explained = Box::pin(self.explain_admitted(endpoint, call, unread, said)).await?;
        Ok(match (unverified, explained) {
            (Some(refusal), _) => Err(refusal),
            (None, explained) => explained,
        })
    }

    async fn explain_admitted(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        call: &mut Admitted,
        unread: Unread,
        said: &mut Value,
    ) -> Result<Result<StatusCode, Refusal>, Thrown> {
        let bodies = &self.replays;
        let Opened { body, key, .. } = match open(endpoint, &mut call.head, unread, bodies).await {
            Ok(opened) => opened,
            Err(refusal) => return Ok(Err(refusal)),
        };
        said["delivery"] = key.clone().into();
        if let Some(key) = key
            && let Some(first) = self.repeats.known(&endpoint.id, &key).await.known()?
        {
            said["repeats"] = first.delivery.unwrap_or(key).into();
            return Ok(Ok(first.status));
        }
        if let Some(limit) = endpoint.extras.limit
            && let Some(wait) = self.limits.wait(&endpoint.id, limit)
        {
            return Ok(Err(Refusal::TooMany { wait, is_unavailable: limit.is_unavailable }));
        }
        call.body = match whole(endpoint, &mut call.head, body, bodies).await {
            Ok(body) => body,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Some(greeting) = greeting(endpoint, call) {
            said["checksAddress"] = true.into();
            let answer = self.greeted(endpoint, greeting).await;
            return Ok(answer.map(|answer| answer.of_sender(success(endpoint)).status));
        }
        match &endpoint.target {
            Target::Automation => self.explain_event(endpoint, call, said).await,
            Target::Bot(_) => {
                let read = BotCall::read(&call.head.headers, call.head.uri.query(), &call.body);
                Ok(read.map(|BotCall { thread, text, .. }| {
                    said["bot"] = json!({ "thread": thread, "text": text });
                    StatusCode::ACCEPTED
                }))
            }
        }
    }

    async fn explain_event(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        call: &Admitted,
        said: &mut Value,
    ) -> Result<Result<StatusCode, Refusal>, Thrown> {
        let (data, holds) = match automation::decide(endpoint, call, &self.replays).await? {
            Decision::Fires(event) => (fields_of(event.data), Some(true)),
            Decision::LeftOut(data) => (fields_of_data(data), Some(false)),
            Decision::Refused(refusal) => return Ok(Err(refusal)),
            Decision::Failed(why) => {
                said["when"] = json!({ "holds": null, "why": why });
                return Ok(Err(Refusal::NoFilter));
            }
        };
        let data = match data {
            Ok(data) => data,
            Err(why) => return Ok(Err(Refusal::Bad(format!("The body is {why}")))),
        };
        said["event"] = event_name(endpoint.extras.verify.as_ref(), &call.head, &data);
        if let Some(when) = &endpoint.extras.when {
            let read = values(when.text(), data.as_sent(), &call.head);
            let read: Vec<Value> =
                read.into_iter().map(|(path, value)| json!({ "path": path, "value": value })).collect();
            said["when"] = json!({ "expression": when.text(), "holds": holds, "values": read });
        }
        let accepted = automation::accepted(endpoint).of_sender(success(endpoint)).status;
        if holds == Some(false) {
            return Ok(Ok(accepted));
        }
        let routing = endpoint.extras.routing.clone();
        let all = self.host.explain_event(TRIGGER.to_owned(), CALL.to_owned(), data, routing).await?;
        said["automations"] = all.into_iter().map(explained).collect();
        Ok(Ok(accepted))
    }
}

/// Returns the name of the event, where its sender has one.
fn event_name(verify: Option<&Verify>, head: &Head, data: &SentObject) -> Value {
    match verify.and_then(|verify| verify.sender.event) {
        Some(EventName::Header(name)) => {
            head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned).into()
        }
        Some(EventName::Field(path)) => {
            event_path::find(data.as_sent(), path).map_or(Value::Null, |value| value.value().clone())
        }
        None => Value::Null,
    }
}

fn fields_of(data: EventData) -> Result<SentObject, String> {
    match data {
        EventData::Fields(fields) => Ok(fields),
        EventData::Text { text, over } => {
            let mut fields = read(&text)?;
            over.into_iter().for_each(|(name, value)| fields.insert(&name, value));
            Ok(fields)
        }
    }
}

fn fields_of_data(data: Data) -> Result<SentObject, String> {
    match data {
        Data::Fields(fields) => Ok(Arc::unwrap_or_clone(fields)),
        Data::Text(text) => read(&text),
    }
}

fn read(text: &[u8]) -> Result<SentObject, String> {
    SentObject::read(text).map_err(|error| ostler_contract::protocol::surrogates::what_it_is(&error))
}

fn explained(automation: ExplainedAutomation) -> Value {
    let ExplainedAutomation { automation, trigger, outcome } = automation;
    match outcome {
        Ok(run) => json!({
            "automation": automation, "trigger": trigger, "starts": true, "begins": run.begins,
            "agent": run.agent, "session": run.session, "message": run.message, "fails": run.fails,
        }),
        Err(why) => json!({ "automation": automation, "trigger": trigger, "starts": false, "why": why }),
    }
}
