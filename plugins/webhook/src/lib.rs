//! `@ostler/webhook`: endpoints that let a program outside the host call a URL that talks to a bot or fires
//! an automation. Each endpoint has its own secret, and a call passes only with that secret as its bearer
//! token.
//!
//! An endpoint is a record of the `webhooks` collection: `<configDir>/webhooks/<id>.md`, written by hand.

mod automation;
mod endpoint;
mod reply;
mod route;
mod token;

use std::sync::Arc;

use ostler_contract::points::{RecordChange, TriggerEvent, TriggerType};
use ostler_contract::{Call, Plugin, PluginHost, Thrown, json};

use endpoint::Endpoint;
use route::Webhook;

/// The collection endpoints are kept in.
const ENDPOINTS: &str = "webhooks";
/// The trigger type a call fires, and its one event.
const TRIGGER: &str = "webhook";
const CALL: &str = "call";

/// The plugin.
pub fn plugin() -> Plugin {
    Plugin::new("@ostler/webhook", |host, _options| Box::pin(async move { apply(&host) }))
        .title("Webhooks")
        .defaults(json!({ "syncTimeoutSeconds": 60 }))
        .options_schema(json!({
            "type": "object",
            "properties": {
                "syncTimeoutSeconds": {
                    "type": "number", "exclusiveMinimum": 0,
                    "description": "How long a sync call waits for its turn to end, in seconds."
                }
            }
        }))
}

fn apply(host: &PluginHost) -> Result<(), Thrown> {
    host.register_trigger_type(TriggerType {
        r#type: TRIGGER.into(),
        title: "A webhook call".into(),
        description: Some("A program outside called one of this host's endpoints.".to_owned()),
        events: vec![TriggerEvent {
            id: CALL.into(),
            title: "A call".into(),
            description: Some("An endpoint was called with its secret and a JSON object.".to_owned()),
        }],
        config_schema: json!({
            "type": "object",
            "properties": {
                "endpoint": { "type": "string", "title": "Endpoint", "description": "The endpoint's id." }
            },
            "required": ["endpoint"]
        })
        .as_object()
        .cloned(),
    })?;
    let endpoints = host.records(ENDPOINTS.to_owned(), None)?;
    report_edits(host, &endpoints)?;
    let webhook = Arc::new(Webhook { host: host.clone(), endpoints });
    host.register_route(Call::new(move |(request,)| {
        let webhook = webhook.clone();
        async move { webhook.serve(request).await }
    }))
}

/// Says what is wrong with a record when it is read first and whenever it is edited. A call to it answers
/// 404.
fn report_edits(host: &PluginHost, endpoints: &ostler_contract::points::Collection) -> Result<(), Thrown> {
    let (changed, read) = (host.clone(), endpoints.get.clone());
    endpoints.watch.call((Call::new(move |(change,): (RecordChange,)| {
        let (host, record) = (changed.clone(), read.call((change.id.clone(),)));
        async move {
            if let Some(record) = record.await? {
                report(&host, &change.id, &record);
            }
            Ok(())
        }
    }),))?;
    let (host, list) = (host.clone(), endpoints.list.clone());
    tokio::spawn(async move {
        for record in list.call(()).await.unwrap_or_default() {
            let id = record.get("id").and_then(|id| id.as_str()).unwrap_or_default().to_owned();
            report(&host, &id, &record);
        }
    });
    Ok(())
}

fn report(host: &PluginHost, id: &str, record: &ostler_contract::JsonObject) {
    let problems = match Endpoint::read(record) {
        Ok((_, warnings)) => warnings,
        Err(why) => vec![format!("{why}; a call to it answers 404")],
    };
    for problem in problems {
        let _ = host.log(format!("endpoint {ENDPOINTS}/{id}: {problem}"));
    }
}
