//! The export of traces and metrics to a collector over OTLP/HTTP, as JSON.
//!
//! It exports the same data as the log and `GET /api/metrics`: the spans of commands, plugin calls, turns and runs, and
//! the metrics. Nothing waits for the collector; spans that do not fit into the buffer are dropped and counted.

mod metrics;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};
use ostler_contract::Pending;
use ostler_contract::http::{Body, Request, Response};
use ostler_contract::{Value, json};
use ostler_engine::Log;
use ostler_loader::Hidden;
use ostler_loader::options::without_password;
use ostler_protocol::names;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use spans::Spans;

use crate::clock;

/// How often metrics, and the spans that have ended, are exported.
const INTERVAL: Duration = Duration::from_secs(5);
/// The limit for an answer of the collector.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The limit of the last export before the daemon exits.
const LAST_LIMIT: Duration = Duration::from_secs(2);

/// Sends a request and returns the response.
pub type HttpClient = Arc<dyn Fn(Request) -> Pending<Response> + Send + Sync>;

#[derive(Debug, Clone, PartialEq)]
pub struct Collector {
    traces: Uri,
    metrics: Uri,
    headers: HeaderMap,
}

impl Collector {
    /// Creates it from the configuration: the URL to which `/v1/traces` and `/v1/metrics` are appended, and the headers of
    /// each request, whose values are credentials.
    ///
    /// # Errors
    /// An endpoint that is not an HTTP URL, or an invalid header.
    pub fn new<'a>(
        url: &str,
        given: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Self, String> {
        let endpoint = url.trim_end_matches('/');
        let signal = |signal: &str| {
            let uri = format!("{endpoint}/v1/{signal}").parse::<Uri>().ok();
            let http = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
            uri.filter(http).ok_or_else(|| {
                format!(
                    "otlp.endpoint must be an http or https URL, such as http://localhost:4318, not {:?}",
                    without_password(url)
                )
            })
        };
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let parsed = name.parse::<HeaderName>().ok().zip(HeaderValue::from_str(value).ok());
            let Some((parsed, mut value)) = parsed else {
                return Err(format!("otlp.headers: {name:?} is not a valid HTTP header"));
            };
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        Ok(Self { traces: signal("traces")?, metrics: signal("metrics")?, headers })
    }

    /// Adds the values of the headers to the redacted texts.
    pub fn hide(&self, hidden: &Hidden) {
        self.headers.values().filter_map(|value| value.to_str().ok()).for_each(|value| hidden.add(value));
    }
}

/// The running export.
#[derive(Debug)]
pub struct Exporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts to export `spans` and the text that `metrics` returns to a collector.
    pub fn start(
        collector: Collector,
        spans: Spans,
        metrics: impl Fn() -> String + Send + 'static,
        http: HttpClient,
        log: Log,
    ) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let began = nanoseconds();
        let mut export = Export { collector, http, log, refused: false };
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                let is_last = tokio::select! {
                    _ = &mut stopped => true,
                    _ = ticks.tick() => false,
                    () = spans.filled() => {
                        export.spans(&spans).await;
                        continue;
                    }
                };
                export.spans(&spans).await;
                let request = metrics::request(&metrics(), &began, &nanoseconds());
                export.send(export.collector.metrics.clone(), &request).await;
                if is_last {
                    return;
                }
            }
        });
        Self { stop, task }
    }

    /// Exports the rest and stops.
    pub async fn finish(self) {
        let _ = self.stop.send(());
        let mut task = self.task;
        if tokio::time::timeout(LAST_LIMIT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

struct Export {
    collector: Collector,
    http: HttpClient,
    log: Log,
    /// Whether the last request failed.
    refused: bool,
}

impl Export {
    async fn spans(&mut self, spans: &Spans) {
        let (batches, dropped) = spans.take();
        for batch in batches {
            let request = spans::request(batch);
            self.send(self.collector.traces.clone(), &request).await;
        }
        if dropped > 0 {
            self.log
                .warn(format_args!("otlp: {dropped} spans were dropped: more ended than could be exported"));
        }
    }

    /// Sends one request. The first of several failures is logged, and the success after them.
    async fn send(&mut self, to: Uri, body: &Value) {
        let shown = without_password(&to.to_string()).into_owned();
        let failed = self.post(to, body).await.err();
        match &failed {
            Some(why) if !self.refused => {
                self.log.warn(format_args!("otlp: {shown}: {why}; what it does not accept is dropped"));
            }
            None if self.refused => self.log.info(format_args!("otlp: {shown} accepts requests again")),
            _ => {}
        }
        self.refused = failed.is_some();
    }

    async fn post(&self, to: Uri, body: &Value) -> Result<(), String> {
        let mut request = Request::new(Body::Full(body.to_string().into()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = to;
        *request.headers_mut() = self.collector.headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match tokio::time::timeout(ANSWER_LIMIT, (self.http)(request)).await {
            Ok(Ok(response)) if response.status().is_success() => Ok(()),
            Ok(Ok(response)) => Err(format!("the collector answered {}", response.status())),
            Ok(Err(why)) => Err(why.message),
            Err(_) => Err(format!("no response within {} seconds", ANSWER_LIMIT.as_secs())),
        }
    }
}

/// Returns the current time in the form of OTLP.
fn nanoseconds() -> String {
    clock().now().as_nanosecond().to_string()
}

/// The resource in every request.
fn resource() -> Value {
    json!({ "attributes": [
        attribute("service.name", &names::HOST.into()),
        attribute("service.version", &env!("CARGO_PKG_VERSION").into()),
    ] })
}

/// The instrumentation scope of spans and metrics.
fn scope() -> Value {
    json!({ "name": names::HOST, "version": env!("CARGO_PKG_VERSION") })
}

fn attribute(key: &str, value: &Value) -> Value {
    let value = match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!({ "intValue": number.to_string() }),
            None => json!({ "doubleValue": number }),
        },
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    };
    json!({ "key": key, "value": value })
}

/// A lock on memory shared between the layer and the exporter.
type Shared<T> = Arc<parking_lot::Mutex<T>>;
