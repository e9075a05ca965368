//! `@ostler/webhook`: endpoints with a URL that external programs call to talk to a bot or fire an automation. Each
//! endpoint has its own secret, and a call passes only with that secret as its bearer token.
//!
//! An endpoint is a record of the `webhooks` collection: `<configDir>/webhooks/<id>.md`, written by hand.

mod at_last;
mod automation;
mod bot;
mod bot_call;
mod byte_order_mark;
mod callback;
mod callbacks;
mod claims;
mod cloudevents;
mod condition;
mod content_coding;
mod deliveries;
mod endpoint;
mod endpoints;
mod exact_numbers;
mod explain;
mod extras;
mod form_fields;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod heard;
mod host_connection;
mod id;
mod json_values;
mod limits;
mod log_limit;
mod multipart;
pub mod recorded_calls;
mod repeats;
mod replay;
mod reply;
mod route;
mod shared_store;
mod stored_bodies;
mod threads;
mod token;
pub mod tools;
mod turn;
mod unconfirmed;
mod verify;
mod when_values;

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::EventName;
use ostler_contract::points::{Collection, CollectionOptions, RecordChange, TriggerEvent, TriggerType};
use ostler_contract::{Bodies, Budget, Call, Options, Plugin, PluginHost, Slug, Thrown, Value, json};

use at_last::read_at_last;
use callbacks::Callbacks;
use deliveries::Deliveries;
use endpoint::Endpoint;
use endpoints::Endpoints;
use host_connection::HostConnection;
use limits::Limits;
use repeats::Repeats;
use route::Webhook;
use shared_store::SharedStore;
use stored_bodies::StoredBodies;
use threads::Threads;
use unconfirmed::UnconfirmedTurns;

/// The collection of endpoints.
pub const ENDPOINTS: &str = "webhooks";
/// The collection of recent calls, see [`recorded_calls`]: records with the endpoint's id, `deliveries` and `refused`, oldest
/// first, or, where several hosts may write, a record of each call.
pub const DELIVERIES: &str = "webhook-deliveries";
/// The collections of the threads and the first answers of endpoints, each a record with the field `endpoint`.
pub const THREADS: &str = "webhook-threads";
/// See [`THREADS`].
pub const REPEATS: &str = "webhook-repeats";
/// The collection of pending callbacks.
const CALLBACKS: &str = "webhook-callbacks";
/// The collection of turns that the host did not confirm in time, with their messages, until it has them.
const UNCONFIRMED: &str = "webhook-unconfirmed";
/// The collections of bodies that can be replayed: their index, which has the form of [`DELIVERIES`] with `bodies`, and the
/// encrypted bodies.
pub const BODY_INDEX: &str = "webhook-kept";
/// See [`BODY_INDEX`].
pub const BODIES: &str = "webhook-bodies";
/// Every collection of the plugin, for those who copy records without it. None has a body.
pub const COLLECTIONS: [&str; 8] =
    [ENDPOINTS, DELIVERIES, THREADS, REPEATS, CALLBACKS, UNCONFIRMED, BODY_INDEX, BODIES];
/// The command that replays a delivery: `{ delivery }`, answered with its row of the log, `{ id, endpoint, at, status, … }`.
pub const REPLAY: &str = "x-webhook/replay";
/// The grant that [`REPLAY`] requires.
pub const REPLAY_GRANT: &str = "webhook:replay";
/// The command that says what a call would do, without doing it: `{ endpoint, headers?, query?, body? }`, with `headers` as a list
/// of `Name: value`. It requires [`REPLAY_GRANT`].
pub const EXPLAIN: &str = "x-webhook/explain";
/// The trigger type that calls fire.
pub const TRIGGER: &str = "webhook";
/// The event of a call.
pub const CALL: &str = "call";
/// The maximum size of a body, which is that of the known sender with the largest bodies.
const BODY_LIMIT: usize = 25 * 1024 * 1024;
/// The maximum size of a body for a bot, because a chat is sent completely to its subscribers.
const TEXT_LIMIT: usize = 1024 * 1024;
/// The default limit of a `sync` call, in seconds.
const SYNC_TIMEOUT: u32 = 60;

/// The memory for the values in bodies of replayed calls, in bytes.
const REPLAYS: usize = 64 * 1024 * 1024;

/// The options of [`BODIES`], which are large and read only for replays.
pub fn bodies_options() -> CollectionOptions {
    CollectionOptions { uncached: Some(true), ..CollectionOptions::default() }
}

/// The plugin.
pub fn plugin() -> Plugin {
    plugin_with(unconfirmed::MEMORY)
}

/// The plugin, with so many bytes for the messages of unconfirmed turns. Only tests choose them.
#[doc(hidden)]
pub fn plugin_with(unconfirmed: usize) -> Plugin {
    Plugin::new("@ostler/webhook", move |host, options| {
        Box::pin(async move { apply(&host, &options, unconfirmed) })
    })
    .title("Webhooks")
    .defaults(json!({ "syncTimeoutSeconds": SYNC_TIMEOUT }))
    .options_schema(json!({
        "type": "object",
        "properties": {
            "syncTimeoutSeconds": {
                "type": "number", "exclusiveMinimum": 0,
                "description": "Timeout of sync calls, in seconds."
            }
        }
    }))
}

fn apply(host: &PluginHost, options: &Options, unconfirmed: usize) -> Result<(), Thrown> {
    host.register_trigger_type(TriggerType {
        r#type: TRIGGER.into(),
        title: "A webhook call".into(),
        description: Some("Another program called an endpoint of this host.".to_owned()),
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
    let records = host.records(ENDPOINTS.to_owned(), None)?;
    let endpoints = Arc::new(Endpoints::new(records.clone()));
    report_edits(host, &records, endpoints.clone())?;
    let collection = |name: &str| {
        debug_assert!(COLLECTIONS.contains(&name), "{name} is in COLLECTIONS");
        host.records(name.to_owned(), None)
    };
    let seconds = options.get("syncTimeoutSeconds").and_then(Value::as_f64).unwrap_or(SYNC_TIMEOUT.into());
    let store = SharedStore::new(host.clone());
    let webhook = Arc::new(Webhook {
        host: host.clone(),
        endpoints,
        connection: HostConnection::new(host.clone()),
        threads: Threads::new(collection(THREADS)?),
        callbacks: Callbacks::new(host.clone(), collection(CALLBACKS)?),
        unconfirmed: UnconfirmedTurns::new(host.clone(), collection(UNCONFIRMED)?, unconfirmed),
        deliveries: Arc::new(Deliveries::new(collection(DELIVERIES)?, store.clone())),
        repeats: Arc::new(Repeats::new(collection(REPEATS)?)),
        limits: Limits::default(),
        stored_bodies: StoredBodies::new(
            collection(BODY_INDEX)?,
            host.records(BODIES.to_owned(), Some(bodies_options()))?,
            store,
        ),
        replays: Bodies::new(Budget::new(REPLAYS), 0),
        told: Default::default(),
        sync_timeout: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
    });
    tokio::spawn(webhook.deliveries.clone().store_periodically(host.clone()));
    let deliveries = webhook.deliveries.clone();
    host.register_close(Call::new(move |()| {
        let deliveries = deliveries.clone();
        async move { deliveries.flush().await }
    }))?;
    replay::register(host, &webhook)?;
    explain::register(host, &webhook)?;
    let resumed = webhook.clone();
    host.on(
        EventName::Listening,
        Call::new(move |_| {
            tokio::spawn(resume(resumed.clone()));
            tokio::spawn(resumed.clone().tend_bodies());
            async { Ok(()) }
        }),
    )?;
    host.register_route(Call::new(move |(request,)| webhook.clone().serve(request)))
}

/// Continues what remained when the host ended: unconfirmed turns, pending callbacks and queued turns.
async fn resume(webhook: Arc<Webhook>) {
    // First, so that each of them has its callback.
    webhook.resume_unconfirmed().await;
    webhook.resume_callbacks().await;
    tokio::spawn(webhook.clone().take_over_callbacks());
    let chats = || async { webhook.threads.chats().await };
    for chat in read_at_last(&webhook.host, "the chats of an earlier start", chats).await {
        webhook.connection.load(&chat).await;
    }
}

/// Returns the current time, ISO 8601.
fn now() -> String {
    iso(jiff::Timestamp::now())
}

fn iso(at: jiff::Timestamp) -> String {
    format!("{at:.3}")
}

/// Logs the problems of a record when it is first read and after edits, and forgets the endpoint of a removed one. Calls to
/// either are answered with 404.
fn report_edits(host: &PluginHost, records: &Collection, endpoints: Arc<Endpoints>) -> Result<(), Thrown> {
    let (changed, read) = (host.clone(), records.get.clone());
    records.watch.call((Call::new(move |(change,): (RecordChange,)| {
        let (host, record, endpoints) = (changed.clone(), read.read((change.id.clone(),)), endpoints.clone());
        async move {
            match record.await.known()? {
                Some(record) => report(&host, &change.id, &record),
                None => Slug::parse(&change.id).iter().for_each(|id| endpoints.forget(id)),
            }
            Ok(())
        }
    }),))?;
    let (host, list) = (host.clone(), records.list.clone());
    tokio::spawn(async move {
        let records = || async { list.read(()).await };
        for record in read_at_last(&host, "the endpoints", records).await {
            let id = record.get("id").and_then(|id| id.as_str()).unwrap_or_default().to_owned();
            report(&host, &id, &record);
        }
    });
    Ok(())
}

fn report(host: &PluginHost, id: &str, record: &ostler_contract::JsonObject) {
    let problems = match Endpoint::read(record) {
        Ok((_, warnings)) => warnings,
        Err(why) => vec![tools::no_endpoint(&why)],
    };
    for problem in problems {
        say(host, id, &problem);
    }
}

/// Logs a problem of an endpoint.
fn say(host: &PluginHost, endpoint: &str, what: &str) {
    let _ = host.log(format!("{}: {what}", named(endpoint)));
}

/// Returns the name of an endpoint in the log.
fn named(endpoint: &str) -> String {
    format!("endpoint {ENDPOINTS}/{endpoint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_exports() {
        let module = plugin().module;
        assert_eq!(module.name, Some("webhook".into()));
        assert_eq!(module.defaults, Some(json!({ "syncTimeoutSeconds": 60 })));
        let schema = module.options_schema.unwrap_or_default();
        assert_eq!(schema["properties"]["syncTimeoutSeconds"]["type"], "number");
    }

    #[test]
    fn a_time_is_written_with_milliseconds() {
        assert_eq!(iso(jiff::Timestamp::new(0, 5_600_000).unwrap()), "1970-01-01T00:00:00.005Z");
        let now: jiff::Timestamp = now().parse().unwrap();
        assert!(jiff::Timestamp::now().duration_since(now).as_secs() < 60);
    }
}
