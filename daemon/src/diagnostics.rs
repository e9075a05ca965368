//! The built-in diagnostics of the daemon: its log, its network environment, and requests of URLs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ostler_contract::http::{Body, Request};
use ostler_contract::live::Pending;
use ostler_contract::points::Diagnostics;
use ostler_contract::{Call, HostFunction, JsonObject, Thrown, Value, json, proxy};
use ostler_engine::clock::iso;
use ostler_js::HttpClient;
use ostler_loader::options::without_password;
use ostler_protocol::names;
use ostler_telemetry::clock;
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};

/// The number of lines queued for a slow reader; older ones are dropped for that reader.
const WAITING: usize = 1024;
/// The limit for an answer of a URL.
const FETCH_LIMIT: Duration = Duration::from_secs(10);

/// How many of the last lines are retained for new readers.
const RETAINED: usize = 200;
/// The retained length of a line.
const LONGEST: usize = 2000;

/// The lines of the log, for listeners.
#[derive(Debug, Clone)]
pub struct Lines(broadcast::Sender<Line>, Arc<Mutex<VecDeque<(String, Arc<str>)>>>);

/// A line and its time.
type Line = (Timestamp, Arc<str>);

impl Default for Lines {
    fn default() -> Self {
        Self(broadcast::channel(WAITING).0, Arc::default())
    }
}

impl Lines {
    /// Publishes a redacted line.
    pub fn tell(&self, line: &str) {
        let shown: String = line.chars().take(LONGEST).collect();
        let mut last = self.1.lock();
        if last.len() == RETAINED {
            last.pop_front();
        }
        // Readers and listeners get the same time, so that a reader who is a listener too knows a line again.
        let at = clock().now();
        last.push_back((iso(at), shown.into()));
        if self.0.receiver_count() > 0 {
            let _ = self.0.send((at, line.into()));
        }
    }
}

impl Lines {
    /// Returns the last lines with their times, oldest first.
    pub fn last(&self) -> Vec<(String, Arc<str>)> {
        self.1.lock().iter().cloned().collect()
    }
}

/// Returns the daemon's diagnostics.
pub fn own(lines: Lines, http: HttpClient) -> Diagnostics {
    Diagnostics {
        logs: Some(Call::now(move |(level, told): (String, HostFunction<fn(JsonObject)>)| {
            // Lines of the log have no level and are reported as `info`.
            let listens = matches!(level.as_str(), "trace" | "debug" | "info");
            Ok(listens.then(|| tell(lines.0.subscribe(), told)))
        })),
        traces: None,
        metrics: None,
        network: Some(Call::now(|()| Ok(network()))),
        fetch: Some(Call::new(move |(url,): (String,)| fetch(http.clone(), url))),
    }
}

/// Reports each line until the returned function is called.
fn tell(mut lines: broadcast::Receiver<Line>, told: HostFunction<fn(JsonObject)>) -> Call<fn()> {
    let task = tokio::spawn(async move {
        loop {
            match lines.recv().await {
                // A failed report does not affect the next one.
                Ok((at, line)) => drop(told.call((record(at, &line),)).await),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
    Call::now(move |()| {
        task.abort();
        Ok(())
    })
}

/// Returns a line as an OTLP `ExportLogsServiceRequest`.
fn record(at: Timestamp, line: &str) -> JsonObject {
    let at = at.as_nanosecond().to_string();
    let record = json!({ "timeUnixNano": at, "observedTimeUnixNano": at, "severityNumber": 9, "severityText": "INFO",
        "body": { "stringValue": line } });
    let service = json!({ "key": "service.name", "value": { "stringValue": names::HOST } });
    let logs = json!({ "resource": { "attributes": [service] },
        "scopeLogs": [{ "scope": { "name": names::HOST }, "logRecords": [record] }] });
    JsonObject::from_iter([("resourceLogs".to_owned(), json!([logs]))])
}

/// Returns the proxies in the environment, without their passwords.
fn network() -> JsonObject {
    let set = proxy::variables().filter_map(|name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        let value = without_password(&value.to_string_lossy()).into_owned();
        Some((name.to_owned(), Value::String(value)))
    });
    let proxies: JsonObject = set.collect();
    JsonObject::from_iter([("proxies".to_owned(), Value::Object(proxies))])
}

/// `{ url, status, milliseconds }`, or `{ url, error, milliseconds }`.
fn fetch(http: HttpClient, url: String) -> Pending<JsonObject> {
    Box::pin(async move {
        let mut request = Request::new(Body::Empty);
        *request.uri_mut() =
            url.parse().map_err(|_| Thrown::new(format_args!("{url} is not a valid URL")))?;
        let begun = Instant::now();
        let outcome = match tokio::time::timeout(FETCH_LIMIT, http(request)).await {
            Ok(Ok(response)) => ("status", Value::from(response.status().as_u16())),
            Ok(Err(why)) => ("error", Value::from(why.message)),
            Err(_) => ("error", format!("no response within {} seconds", FETCH_LIMIT.as_secs()).into()),
        };
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(JsonObject::from_iter([
            ("url".to_owned(), Value::from(without_password(&url).into_owned())),
            (outcome.0.to_owned(), outcome.1),
            ("milliseconds".to_owned(), took.into()),
        ]))
    })
}
