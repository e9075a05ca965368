//! Endpoints of webhooks over HTTP, and the log: what the commands show at the daemon's computer.

use ostler_contract::Value;
use serde::de::DeserializeOwned;

use super::Refused;
use super::page_shapes::{CallEndpoint, CalledEndpoint, Endpoint, EndpointLog, LogLine};
use super::rows::Ask;
use crate::client::screen::Screen;
use crate::exit::Exit;
use crate::webhook::{Endpoints, TestFlags, WebhookVerb};

/// The endpoints in the stores of the running daemon.
fn endpoints(ask: &Ask) -> Result<Endpoints, Refused> {
    let control = &ask.control;
    let records = control.host.core.record_store().cloned();
    Ok(Endpoints {
        records: records.ok_or_else(|| Exit::machine("this host has no record store"))?,
        vault: control.vault()?,
        base: control.record()?.routes.clone(),
        public_url: control.record()?.public_url.clone(),
        folder: None,
        automations: None,
        database: None,
        daemon: None,
        screen: Screen::default(),
        problems: control.host.core.log.problems().clone(),
    })
}

async fn run<T: DeserializeOwned>(ask: &Ask, verb: WebhookVerb) -> Result<T, Refused> {
    typed(endpoints(ask)?.run(verb).await?.json)
}

fn typed<T: DeserializeOwned>(json: Value) -> Result<T, Refused> {
    Ok(serde_json::from_value(json).map_err(|error| Exit::machine(format!("an endpoint's log: {error}")))?)
}

pub(super) async fn list(ask: Ask) -> Result<Vec<Endpoint>, Refused> {
    run(&ask, WebhookVerb::List).await
}

pub(super) async fn log(ask: Ask) -> Result<EndpointLog, Refused> {
    let endpoints = endpoints(&ask)?;
    endpoints.find(&ask.name).await?.map_err(Refused::Missing)?;
    typed(endpoints.run(WebhookVerb::Log { id: ask.name.clone() }).await?.json)
}

pub(super) async fn test(ask: Ask, body: CallEndpoint) -> Result<CalledEndpoint, Refused> {
    let CallEndpoint { id, body } = body;
    endpoints(&ask)?.find(&id).await?.map_err(Refused::Missing)?;
    let body = body.map(|body| match body {
        Value::String(text) => text,
        value => value.to_string(),
    });
    run(&ask, WebhookVerb::Test(TestFlags { id, body, follow: false })).await
}

pub(super) async fn lines(ask: Ask) -> Result<Vec<LogLine>, Refused> {
    let lines = ask.control.lines.last();
    Ok(lines.into_iter().map(|(at, text)| LogLine { at, text: text.to_string() }).collect())
}
