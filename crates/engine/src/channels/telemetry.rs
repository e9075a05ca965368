//! Telemetry for operators: logs, spans and measurements over the protocol's telemetry channels, and the host's
//! commands about the network.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_contract::points::Diagnostics;
use ostler_contract::{Call, HostFunction, JsonObject, Pending, Thrown, limit};
use ostler_engine_core::tasks;
use ostler_protocol::message::encode;
use ostler_protocol::{RpcError, Value, json};
use parking_lot::Mutex;

use crate::channels::Channels;

const LOGS: &str = "ahp-otlp://logs";
const TRACES: &str = "ahp-otlp://traces";
const METRICS: &str = "ahp-otlp://metrics";
/// The levels of OTLP.
const LEVELS: &[&str] = &["trace", "debug", "info", "warn", "error", "fatal"];

/// The running reports by channel, each with the function that stops it.
#[derive(Debug, Default)]
pub(crate) struct Exports(Mutex<HashMap<String, Option<Call<fn()>>>>);

type Export = HostFunction<fn(JsonObject)>;
/// The name of a notification, and the function that starts it.
pub(crate) type Teller = (&'static str, BeginExport);
type BeginExport = Box<dyn FnOnce(Export) -> Pending<Option<Call<fn()>>> + Send>;

impl Channels {
    fn diagnostics(&self) -> Option<&Diagnostics> {
        self.core.registry()?.port::<Diagnostics>()
    }

    /// Returns the telemetry part of the answer to `initialize`, if there is any.
    pub(crate) fn telemetry(&self) -> Option<Value> {
        let told = self.diagnostics()?;
        let mut there = JsonObject::new();
        let channels = [
            (told.logs.is_some(), "logs", format!("{LOGS}/{{level}}")),
            (told.traces.is_some(), "traces", TRACES.to_owned()),
            (told.metrics.is_some(), "metrics", METRICS.to_owned()),
        ];
        for (is_there, name, channel) in channels {
            if is_there {
                there.insert(name.to_owned(), channel.into());
            }
        }
        (!there.is_empty()).then_some(Value::Object(there))
    }

    /// Returns the report of a channel: the name of its notification, and the function that starts it.
    pub(crate) fn teller(&self, channel: &str) -> Option<Teller> {
        let diagnostics = self.diagnostics()?;
        if let Some(level) = channel.strip_prefix(LOGS) {
            let level = level.strip_prefix('/').unwrap_or("trace").to_ascii_lowercase();
            let logs = diagnostics.logs.clone().filter(|_| LEVELS.contains(&level.as_str()))?;
            return Some((
                "otlp/exportLogs",
                Box::new(move |told| Box::pin(logs.within(limit::DIAGNOSTICS, (level, told)))),
            ));
        }
        let (name, tells) = match channel {
            TRACES => ("otlp/exportTraces", diagnostics.traces.clone()?),
            METRICS => ("otlp/exportMetrics", diagnostics.metrics.clone()?),
            _ => return None,
        };
        Some((name, Box::new(move |told| Box::pin(tells.within(limit::DIAGNOSTICS, (told,))))))
    }

    /// Stops the report of a channel without subscribers.
    pub(crate) fn release_telling(&self, channel: &str) {
        if !self.core.fanout.watchers(channel).is_empty() {
            return;
        }
        let stop = self.telling.0.lock().remove(channel);
        if let Some(stop) = stop.flatten() {
            tasks::spawn(stop.unbounded(()));
        }
    }

    /// Starts the report of a channel, unless it is running.
    pub(crate) fn begin_telling(self: &Arc<Self>, channel: &str, (name, teller): Teller) {
        {
            let mut telling = self.telling.0.lock();
            if telling.contains_key(channel) {
                return;
            }
            telling.insert(channel.to_owned(), None);
        }
        let begun = teller({
            let (channels, channel) = (Arc::downgrade(self), channel.to_owned());
            HostFunction::now(move |(payload,): (JsonObject,)| {
                if let Some(channels) = channels.upgrade()
                    && let Ok(frame) =
                        encode::notification(name, &json!({ "channel": channel, "payload": payload }))
                {
                    channels.core.fanout.notify(&channel, frame);
                }
                Ok(())
            })
        });
        let (channels, channel) = (self.clone(), channel.to_owned());
        tasks::spawn(async move {
            match begun.await {
                Ok(stop) => {
                    let left = match channels.telling.0.lock().get_mut(&channel) {
                        Some(held) => {
                            *held = stop;
                            None
                        }
                        // There are no more subscribers.
                        None => stop,
                    };
                    if let Some(stop) = left {
                        let _ = stop.unbounded(()).await;
                    }
                    channels.release_telling(&channel);
                }
                Err(why) => {
                    channels.core.log.warn(format_args!("{channel} sends nothing: {}", why.for_log()))
                }
            }
        });
    }

    /// Returns facts about the host's network.
    pub(crate) async fn network(&self) -> Result<Value, RpcError> {
        let network = self.diagnostics().and_then(|diagnostics| diagnostics.network.as_ref());
        let network = network.ok_or_else(|| lacks("has no network diagnostics"))?;
        network.within(limit::DIAGNOSTICS, ()).await.map(Value::Object).map_err(Thrown::into_rpc)
    }

    /// Requests a URL and returns the outcome.
    pub(crate) async fn fetch(&self, url: String) -> Result<Value, RpcError> {
        let fetch = self.diagnostics().and_then(|diagnostics| diagnostics.fetch.as_ref());
        let fetch = fetch.ok_or_else(|| lacks("requests no URLs for diagnostics"))?;
        if !url::Url::parse(&url).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            return Err(RpcError::invalid_params(format!("{url} is not an http or https URL")));
        }
        fetch.within(limit::DIAGNOSTICS, (url,)).await.map(Value::Object).map_err(Thrown::into_rpc)
    }
}

fn lacks(what: &str) -> RpcError {
    RpcError::method_not_found(format!("this host {what}"))
}
