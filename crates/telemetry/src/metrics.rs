//! The metrics of the daemon, for `GET /api/metrics`. Durations of commands, turns and runs are taken from their spans;
//! the contract measures calls of plugins' functions; sizes are read at each request.

use std::collections::{BTreeMap, HashSet};
use std::env::consts::{ARCH, OS};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use ostler_contract::call::{ENDPOINT_CALL, PLUGIN_CALL};
use ostler_contract::problems::ProblemKind;
use ostler_engine::Host;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The upper bounds of durations, in seconds.
const BUCKETS: [f64; 12] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// The label with an endpoint of webhooks.
const ENDPOINT: &str = "endpoint";
/// How many endpoints are measured by their ids; the others together, as `other`. Endpoints come and go while a daemon runs.
const MOST_ENDPOINTS: usize = 500;

type Labels = Vec<(&'static str, String)>;
type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// One kind of span that is measured.
struct Kind {
    target: &'static str,
    name: &'static str,
    help: &'static str,
    /// The fields that become labels.
    labels: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        target: "ostler::command",
        name: "ostler_command_duration",
        help: "Time from a request to its response",
        labels: &["method", "outcome"],
    },
    Kind {
        target: PLUGIN_CALL,
        name: "ostler_plugin_call_duration",
        help: "Time a function of a plugin takes; those of the built-in stores have the plugin host",
        labels: &["plugin", "method", "outcome"],
    },
    Kind {
        target: "ostler::turn",
        name: "ostler_turn_duration",
        help: "Time from the start of a turn to its end",
        labels: &["provider", "outcome"],
    },
    Kind {
        target: ENDPOINT_CALL,
        name: "ostler_webhook_call_duration",
        help: "Time from a call of a webhook endpoint to its answer",
        labels: &[ENDPOINT, "status"],
    },
    Kind {
        target: "ostler::run",
        name: "ostler_run_duration",
        help: "Time from the start of an automation's run to its end",
        labels: &["outcome"],
    },
];

/// What parts of the host use that the engine does not know.
#[derive(Debug)]
pub struct Used {
    /// The JavaScript plugins.
    pub plugins: Vec<UsedByPlugin>,
    /// The number of processes of ACP agents by provider.
    pub agents: Vec<(String, usize)>,
}

/// What a JavaScript plugin uses.
#[derive(Debug)]
pub struct UsedByPlugin {
    /// The plugin's label.
    pub plugin: String,
    /// Its CPU time so far.
    pub time: Duration,
    /// The memory of its values, in bytes.
    pub memory: usize,
}

/// The measurements.
#[derive(Clone)]
pub struct Metrics(Arc<BTreeMap<&'static str, Durations>>, Arc<Mutex<HashSet<String>>>);

impl Default for Metrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self(
            Arc::new(
                KINDS.iter().map(|kind| (kind.target, Family::new_with_constructor(histogram))).collect(),
            ),
            Arc::default(),
        )
    }
}

impl Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

impl Metrics {
    /// Replaces the id of an endpoint beyond those that are measured.
    fn bound(&self, endpoint: &mut String) {
        let mut known = self.1.lock();
        if known.contains(endpoint) {
            return;
        }
        match known.len() < MOST_ENDPOINTS {
            true => drop(known.insert(endpoint.clone())),
            false => "other".clone_into(endpoint),
        }
    }

    /// Takes the durations of calls of plugins' functions.
    pub fn measure_calls(&self) {
        let metrics = self.clone();
        ostler_contract::call::measure(move |plugin, method, outcome| {
            let values = [plugin.to_string(), method.to_owned(), outcome.to_owned()];
            let kind = KINDS.iter().find(|kind| kind.target == PLUGIN_CALL);
            let labels = kind.map(|kind| kind.labels.iter().copied().zip(values).collect());
            let histogram = labels
                .zip(metrics.0.get(PLUGIN_CALL))
                .map(|(labels, durations): (Labels, &Durations)| durations.get_or_create(&labels).clone());
            Box::new(move |took| {
                if let Some(histogram) = &histogram {
                    histogram.observe(took.as_secs_f64());
                }
            })
        });
    }

    /// The layer that measures spans.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        Measure(self.clone())
    }

    /// Returns the metrics as text, with what is used by plugins and agents.
    pub fn text(&self, host: &Host, used: Used) -> String {
        let mut registry = Registry::default();
        for kind in KINDS {
            if let Some(durations) = self.0.get(kind.target) {
                registry.register_with_unit(kind.name, kind.help, Unit::Seconds, durations.clone());
            }
        }
        let mut gauge = |name: &str, help: &str, count: usize| {
            let gauge: Gauge = Gauge::default();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        };
        let now = host.gauges();
        gauge("ostler_connections", "Open connections", now.connections);
        gauge("ostler_sessions", "Listed sessions", now.sessions);
        gauge("ostler_awake_sessions", "Awake sessions", now.awake_sessions);
        gauge("ostler_session_messages", "Messages in the mailboxes of sessions", now.session_messages);
        gauge(
            "ostler_session_memory_used_bytes",
            "Memory in use for the states of sessions and for what waits for their backends",
            now.session_memory,
        );
        gauge("ostler_pending_requests", "Requests without a response", now.pending_requests);
        gauge("ostler_outbox_messages", "Messages that wait in outboxes", now.outbox_messages);
        gauge("ostler_outbox_bytes", "Size of the messages that wait in outboxes", now.outbox_bytes);
        gauge("ostler_open_runs", "Runs that have not ended", now.open_runs);
        gauge("ostler_waiting_runs", "Runs that wait for earlier runs of their automation", now.waiting_runs);
        gauge(
            "ostler_budget_used_bytes",
            "Memory in use for messages, bodies and responses",
            now.budget_used,
        );
        if let Some(cluster) = host.core.cluster() {
            let measured = cluster.gauges();
            gauge("ostler_cluster_lease_held", "Whether the host has its lease", measured.has_lease.into());
            gauge("ostler_cluster_draining", "Whether the host drains", cluster.is_draining().into());
            gauge("ostler_cluster_owned_sessions", "Sessions that the host owns", host.sessions.all().len());
            let mut seconds = |name: &str, help: &str, duration: Duration| {
                let gauge = Gauge::<f64, AtomicU64>::default();
                gauge.set(duration.as_secs_f64());
                registry.register_with_unit(name, help, Unit::Seconds, gauge);
            };
            seconds("ostler_cluster_lease_age", "Time since the lease was renewed", measured.lease_age);
            seconds(
                "ostler_cluster_database_latency",
                "Time that the last renewal of the lease took",
                measured.database_latency,
            );
        }
        let mut gauge = |name: &str, help: &str, count: usize| {
            let gauge: Gauge = Gauge::default();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        };
        let runtime = tokio::runtime::Handle::current().metrics();
        gauge("ostler_tasks", "Tasks of the runtime", runtime.num_alive_tasks());
        gauge("ostler_queued_tasks", "Tasks that wait for a thread", runtime.global_queue_depth());
        let agents = Family::<Labels, Gauge>::default();
        for (provider, count) in used.agents {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            agents.get_or_create(&vec![("provider", provider)]).set(count);
        }
        registry.register("ostler_agent_processes", "Running processes of ACP agents", agents);
        if let Some(bytes) = resident_memory() {
            let gauge: Gauge = Gauge::default();
            gauge.set(bytes);
            let help = "Memory of the daemon's process, without those that it starts";
            registry.register_with_unit("ostler_resident_memory", help, Unit::Bytes, gauge);
        }
        let build = [("version", env!("CARGO_PKG_VERSION")), ("os", OS), ("arch", ARCH)];
        let build: Labels = build.map(|(label, value)| (label, value.to_owned())).to_vec();
        registry.register(
            "ostler_build",
            "The version of the daemon and what it was built for",
            Info::new(build),
        );
        let cpu = Family::<Labels, Counter<f64, AtomicU64>>::default();
        let memory = Family::<Labels, Gauge>::default();
        for plugin in used.plugins {
            let labels = vec![("plugin", plugin.plugin)];
            cpu.get_or_create(&labels).inc_by(plugin.time.as_secs_f64());
            memory.get_or_create(&labels).set(i64::try_from(plugin.memory).unwrap_or(i64::MAX));
        }
        let problems = Family::<Labels, Gauge>::default();
        for kind in ProblemKind::ALL {
            let _ = problems.get_or_create(&vec![("kind", kind.name().to_owned())]);
        }
        for problem in host.known_problems() {
            problems.get_or_create(&vec![("kind", problem.kind.name().to_owned())]).inc();
        }
        registry.register("ostler_problems", "What is wrong now, as GET /api/problems lists it", problems);
        registry.register_with_unit(
            "ostler_plugin_cpu",
            "CPU time of JavaScript plugins",
            Unit::Seconds,
            cpu,
        );
        registry.register_with_unit(
            "ostler_plugin_memory",
            "Memory of JavaScript plugins' values",
            Unit::Bytes,
            memory,
        );
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

/// Returns the size of this process in memory, in bytes, on systems that have it in `/proc`.
fn resident_memory() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The spans of everything that is measured.
pub fn all_spans() -> Targets {
    KINDS.iter().fold(Targets::new(), |filter, kind| filter.with_target(kind.target, LevelFilter::DEBUG))
}

/// The spans that are measured. Of calls of plugins' functions there are no spans unless somebody asks for them.
pub fn measured_spans() -> Targets {
    all_spans().with_target(PLUGIN_CALL, LevelFilter::OFF)
}

/// Measures spans.
struct Measure(Metrics);

/// A span that is being measured.
struct Measured {
    began: Instant,
    labels: Labels,
}

impl Measured {
    fn set(&mut self, name: &str, value: impl FnOnce() -> String) {
        if let Some((_, label)) = self.labels.iter_mut().find(|(label, _)| *label == name) {
            *label = value();
        }
    }
}

impl Visit for Measured {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), || value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field.name(), || format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Measure {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let kind = KINDS.iter().find(|kind| kind.target == attributes.metadata().target());
        let Some((span, kind)) = context.span(id).zip(kind) else { return };
        let labels = kind.labels.iter().map(|label| (*label, String::new())).collect();
        let mut measured = Measured { began: Instant::now(), labels };
        attributes.record(&mut measured);
        span.extensions_mut().insert(measured);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(measured) = span.extensions_mut().get_mut::<Measured>()
        {
            values.record(measured);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Measured { began, mut labels }) = span.extensions_mut().remove::<Measured>() else { return };
        let Some(durations) = self.0.0.get(span.metadata().target()) else { return };
        // A request with an unknown method has none; only its failure is recorded.
        for (label, value) in labels.iter_mut().filter(|(_, value)| value.is_empty()) {
            *value = if *label == "outcome" { "ok" } else { "unknown" }.to_owned();
        }
        if let Some((_, endpoint)) = labels.iter_mut().find(|(label, _)| *label == ENDPOINT) {
            self.0.bound(endpoint);
        }
        durations.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
    }
}
