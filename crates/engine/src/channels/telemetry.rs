//! What the host tells those who look after it: logs, spans and measurements over the protocol's telemetry channels, and
//! its own commands about the network.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::Diagnostics;
use ostler_contract::{Call, JsonObject, Pending, Thrown};
use ostler_protocol::commands::Command;
use ostler_protocol::message::encode;
use ostler_protocol::{RpcError, Value, json};
use parking_lot::Mutex;

use crate::core::in_time::in_time;
use crate::front::connection::Connection;
use crate::host::Host;
use crate::sessions::Snapshots;

/// How long a question may take.
const LIMIT: Duration = Duration::from_secs(30);

const LOGS: &str = "ahp-otlp://logs";
const TRACES: &str = "ahp-otlp://traces";
const METRICS: &str = "ahp-otlp://metrics";
/// OTLP's levels.
const LEVELS: &[&str] = &["trace", "debug", "info", "warn", "error", "fatal"];

/// What is told to whoever watches, by channel: what stops it.
#[derive(Debug, Default)]
pub(crate) struct Exports(Mutex<HashMap<String, Option<Call<fn()>>>>);

type Export = Call<fn(JsonObject)>;
type BeginExport = Box<dyn FnOnce(Export) -> Pending<Option<Call<fn()>>> + Send>;

impl Host {
    fn diagnostics(&self) -> Option<&Diagnostics> {
        self.registry()?.port::<Diagnostics>()
    }

    /// What `initialize` says of telemetry; nothing where there is none.
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

    /// What a channel tells: its notification's name, and what begins it.
    fn teller(&self, channel: &str) -> Option<(&'static str, BeginExport)> {
        let diagnostics = self.diagnostics()?;
        if let Some(level) = channel.strip_prefix(LOGS) {
            let level = level.strip_prefix('/').unwrap_or("trace").to_ascii_lowercase();
            let logs = diagnostics.logs.clone().filter(|_| LEVELS.contains(&level.as_str()))?;
            return Some(("otlp/exportLogs", Box::new(move |told| logs.call((level, told)))));
        }
        let (name, tells) = match channel {
            TRACES => ("otlp/exportTraces", diagnostics.traces.clone()?),
            METRICS => ("otlp/exportMetrics", diagnostics.metrics.clone()?),
            _ => return None,
        };
        Some((name, Box::new(move |told| tells.call((told,)))))
    }

    /// Ends what a channel told, where nobody looks any more.
    pub(crate) fn release_telling(&self, channel: &str) {
        if !self.fanout.watchers(channel).is_empty() {
            return;
        }
        let stop = self.telling.0.lock().remove(channel);
        self.fanout.remove(channel);
        if let Some(stop) = stop.flatten() {
            tokio::spawn(stop.call(()));
        }
    }
}

impl Connection {
    /// Subscribes to a telemetry channel. It has no state, and nothing of the past is told.
    pub(crate) fn subscribe_telemetry(self: &Arc<Self>, channel: &str, answer: Snapshots) {
        let host = self.host().clone();
        let subscriber = self.subscriber(channel, channel, None);
        let Some((name, teller)) = host.teller(channel) else {
            return answer.fail(crate::core::refusals::no_channel(channel));
        };
        self.remember(channel, channel);
        host.fanout.subscribe(channel, subscriber);
        match answer {
            Snapshots::Subscribe(responder) => responder.raw("{}"),
            Snapshots::Collect(collect) => drop(collect.send(None)),
        }
        {
            let mut telling = host.telling.0.lock();
            if telling.contains_key(channel) {
                return;
            }
            telling.insert(channel.to_owned(), None);
        }
        // Only now: what is told at once has to find who asked.
        let begun = teller({
            let (host, channel) = (Arc::downgrade(&host), channel.to_owned());
            Call::now(move |(payload,): (JsonObject,)| {
                if let Some(host) = host.upgrade()
                    && let Ok(frame) =
                        encode::notification(name, &json!({ "channel": channel, "payload": payload }))
                {
                    host.fanout.notify(&channel, frame);
                }
                Ok(())
            })
        });
        let channel = channel.to_owned();
        tokio::spawn(async move {
            match in_time(LIMIT, begun).await {
                Ok(stop) => {
                    let left = match host.telling.0.lock().get_mut(&channel) {
                        Some(held) => {
                            *held = stop;
                            None
                        }
                        // Nobody looks any more.
                        None => stop,
                    };
                    if let Some(stop) = left {
                        let _ = stop.call(()).await;
                    }
                    host.release_telling(&channel);
                }
                Err(why) => host.log.line(format_args!("{channel} tells nothing: {}", why.for_log())),
            }
        });
    }

    /// Serves an `x-ostler/diagnostics/…` command.
    pub(crate) async fn handle_diagnostics(self: &Arc<Self>, command: Command) -> Result<Value, RpcError> {
        let host = self.host();
        let lacks = |what: &str| RpcError::method_not_found(format!("this host {what}"));
        let answer = match (command, host.diagnostics()) {
            (Command::DiagnosticsNetwork(_), Some(Diagnostics { network: Some(network), .. })) => {
                network.call(())
            }
            (Command::DiagnosticsFetch(asked), Some(Diagnostics { fetch: Some(fetch), .. })) => {
                let web =
                    url::Url::parse(&asked.url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
                if !web {
                    return Err(RpcError::invalid_params(format!("{} is no http or https URL", asked.url)));
                }
                fetch.call((asked.url,))
            }
            (Command::DiagnosticsNetwork(_), _) => return Err(lacks("tells nothing of its network")),
            _ => return Err(lacks("tries no URLs")),
        };
        in_time(LIMIT, answer).await.map(Value::Object).map_err(Thrown::into_rpc)
    }
}
