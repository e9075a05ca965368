//! The log: the default subscriber of the traces. It writes one line per event, and per span that ends, to
//! stderr: `<ISO time> <line>`, or a JSON object.
//!
//! Lines of the host's [`Log`] are events of the level `info`. Every text in an event or span passes [`Hidden`].

use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ostler_contract::{JsonObject, Value, json};
use ostler_engine::Log;
use ostler_loader::Hidden;
use tracing::dispatcher::{Dispatch, set_global_default};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::clock;
use crate::log_rotation::LogOutput;
use crate::metrics::{self, Metrics};
use crate::otlp::Spans;
use crate::printable::{one_line, tame};

/// Overrides `log.level`.
const VARIABLE: &str = "OSTLER_LOG";
/// The target of the host's lines.
const LINES: &str = "ostler";
/// The target of lines that other commands wait for, which are written at every level.
const SIGNALS: &str = "ostler::signals";
/// The beginning of these lines.
const RESTART: &str = "restart: ";

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// A time and a text.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The settings of the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogOptions {
    filter: Targets,
    format: Format,
}

impl LogOptions {
    /// Creates them from the configuration and the variable `OSTLER_LOG`, which has priority. `level` is a level, or
    /// `<module>=<level>`, several separated by commas; `info` by default.
    ///
    /// # Errors
    /// An invalid level, with where it is set.
    pub fn new(level: Option<&str>, format: Format) -> Result<Self, String> {
        let named = std::env::var(VARIABLE).ok().filter(|level| !level.trim().is_empty());
        let (level, of) = match (&named, level) {
            (Some(level), _) => (level.as_str(), VARIABLE),
            (None, level) => (level.unwrap_or("info"), "log.level"),
        };
        let filter = filter(level).ok_or_else(|| {
            format!(
                "{of}: invalid level {level}; use error, warn, info, debug or trace, and <module>=<level>, separated by commas"
            )
        })?;
        Ok(Self { filter, format })
    }
}

/// A level without modules applies to ostler's modules; of libraries only warnings are logged.
fn filter(text: &str) -> Option<Targets> {
    let mut filter = Targets::new().with_default(LevelFilter::WARN).with_target(LINES, LevelFilter::INFO);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        filter = match part.split_once('=') {
            Some((target, level)) if !target.is_empty() => {
                filter.with_target(target, level.parse::<LevelFilter>().ok()?)
            }
            Some(_) => return None,
            None => {
                let level: LevelFilter = part.parse().ok()?;
                filter.with_default(level.min(LevelFilter::WARN)).with_target(LINES, level)
            }
        };
    }
    Some(filter.with_target(SIGNALS, LevelFilter::INFO))
}

/// Installs the subscribers of this process: the log on stderr, the metrics and the export. Returns the host's log.
/// Collects spans for an export if `export` is set. `file` is the log that stderr was opened as, if it is one.
pub fn start(
    options: &LogOptions,
    export: bool,
    hidden: &Hidden,
    file: Option<PathBuf>,
) -> (Log, Metrics, Option<Spans>) {
    let (metrics, spans) = (Metrics::default(), export.then(Spans::default));
    // A second host in one process, as in tests, uses the first one's.
    let _ = set_global_default(subscribers(options, &metrics, spans.as_ref(), hidden, file));
    metrics.measure_calls();
    let hidden = hidden.clone();
    let log = Log::with_levels(|level, line| match level {
        _ if line.starts_with(RESTART) => tracing::info!(target: SIGNALS, "{line}"),
        Level::WARN => tracing::warn!(target: LINES, "{line}"),
        _ => tracing::info!(target: LINES, "{line}"),
    });
    (log.hiding(move |line| hidden.hide(line).into_owned()), metrics, spans)
}

/// Returns the log, the metrics and, if there is an export, its spans. Without an export nothing stands in its place: an
/// absent layer beside filtered ones makes a span of every call of a plugin's function, though no filter wants it.
fn subscribers(
    options: &LogOptions,
    metrics: &Metrics,
    export: Option<&Spans>,
    hidden: &Hidden,
    file: Option<PathBuf>,
) -> Dispatch {
    let output = LogOutput::new(file);
    let lines =
        Lines { write: move |line: &str| output.write(line), hidden: hidden.clone(), format: options.format };
    let measured = tracing_subscriber::registry()
        .with(lines.with_filter(options.filter.clone()))
        .with(metrics.layer().with_filter(metrics::measured_spans()));
    match export {
        Some(spans) => Dispatch::new(measured.with(spans.layer(hidden).with_filter(metrics::all_spans()))),
        None => Dispatch::new(measured),
    }
}

/// Returns the message of a line of the log, in either format.
pub fn message(line: &str) -> String {
    match serde_json::from_str::<JsonObject>(line) {
        Ok(fields) => fields.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
        Err(_) => line.to_owned(),
    }
}

/// Writes events and ended spans as lines.
struct Lines<W> {
    write: W,
    hidden: Hidden,
    format: Format,
}

/// The fields of a span or event, and its start.
pub(crate) struct Fields {
    began: Instant,
    fields: JsonObject,
}

impl Default for Fields {
    fn default() -> Self {
        Self { began: Instant::now(), fields: JsonObject::new() }
    }
}

impl Fields {
    /// Returns the time since its start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The fields by name.
    pub fn into_values(self) -> JsonObject {
        self.fields
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}").into());
    }
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&str) + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut all = JsonObject::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                all.extend(fields.fields.clone());
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.fields.shift_remove("message").unwrap_or_default();
        all.extend(fields.fields);
        self.line(event.metadata(), message.as_str().unwrap_or_default(), all);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Fields { began, mut fields }) = span.extensions_mut().remove::<Fields>() else { return };
        let milliseconds = began.elapsed().as_secs_f64() * 1000.0;
        fields.insert("ms".to_owned(), json!((milliseconds * 1000.0).round() / 1000.0));
        self.line(span.metadata(), span.name(), fields);
    }
}

impl<W: Fn(&str)> Lines<W> {
    fn line(&self, of: &Metadata<'_>, message: &str, fields: JsonObject) {
        let (time, message) = (clock().iso(), self.hidden.hide(message));
        let fields = fields.into_iter().map(|(name, value)| (name, without_secrets(&self.hidden, value)));
        let mut line = match self.format {
            Format::Text => {
                let mut line = format!("{time} ");
                // The message of a host's line contains all facts, so its fields are not written.
                let plain = *of.level() <= Level::INFO && [LINES, SIGNALS].contains(&of.target());
                if !plain {
                    let _ = write!(line, "{} ", of.level());
                }
                line.push_str(&tame(&message));
                for (name, value) in fields.filter(|_| !plain) {
                    let value = value.as_str().map_or_else(|| value.to_string(), one_line);
                    let _ = write!(line, " {name}={value}");
                }
                line
            }
            Format::Json => {
                let level = of.level().as_str().to_lowercase();
                let mut object =
                    json!({ "time": time, "level": level, "target": of.target(), "message": message });
                if let Some(object) = object.as_object_mut() {
                    for (name, value) in fields {
                        object.entry(name).or_insert(value);
                    }
                }
                object.to_string()
            }
        };
        line.push('\n');
        (self.write)(&line);
    }
}

/// Returns a value without credentials. A number can be one.
pub(crate) fn without_secrets(hidden: &Hidden, value: Value) -> Value {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match hidden.hide(&text) {
        std::borrow::Cow::Borrowed(_) => value,
        std::borrow::Cow::Owned(hidden) => hidden.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;

    /// The lines that something logs at the level `trace`.
    fn logged(format: Format, secret: &str, log: impl FnOnce()) -> String {
        let (hidden, written) = (Hidden::default(), Arc::new(Mutex::new(String::new())));
        hidden.add(secret);
        let writes = written.clone();
        let write = move |line: &str| writes.lock().unwrap().push_str(line);
        let filter = filter("trace").unwrap();
        let lines = Lines { write, hidden, format }.with_filter(filter);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        written.lock().unwrap().clone()
    }

    #[test]
    fn a_line_has_the_fields_of_its_spans() {
        let log = || {
            let span = tracing::debug_span!(target: "ostler::command", "command", method = "ping", outcome = tracing::field::Empty);
            span.in_scope(|| tracing::info!(target: LINES, count = 2, "a line"));
            span.in_scope(|| tracing::warn!(target: "ostler_engine", count = 2, "a warning"));
            span.record("outcome", "failed");
        };
        let text = logged(Format::Text, "no secret", log);
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(lines[..2], ["a line", "WARN a warning method=ping count=2"]);
        assert!(lines[2].starts_with("DEBUG command method=ping outcome=failed ms="), "{}", lines[2]);
        let json = logged(Format::Json, "no secret", log);
        let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut line = lines[0].clone();
        assert!(line["time"].take().is_string());
        let expected = json!({ "time": null, "level": "info", "target": "ostler", "message": "a line", "method": "ping", "count": 2 });
        assert_eq!(line, expected);
        assert_eq!((&lines[2]["message"], &lines[2]["outcome"]), (&json!("command"), &json!("failed")));
    }

    #[test]
    fn a_call_of_a_plugins_function_is_a_span_only_where_somebody_wants_it() {
        let hidden = Hidden::default();
        // The subscribers are asked themselves: whether a span is made depends on those of all tests in this process.
        let every_span = Dispatch::new(tracing_subscriber::registry());
        let span = tracing::dispatcher::with_default(
            &every_span,
            || tracing::debug_span!(target: ostler_contract::call::PLUGIN_CALL, "plugin_call"),
        );
        let metadata = span.metadata().unwrap();
        let is_span = |level: &str, export: Option<&Spans>| {
            let options = LogOptions { filter: filter(level).unwrap(), ..LogOptions::default() };
            let subscribers = subscribers(&options, &Metrics::default(), export, &hidden, None);
            !subscribers.register_callsite(metadata).is_never()
        };
        assert!(!is_span("info", None));
        assert!(is_span("ostler::plugin=debug", None));
        assert!(is_span("info", Some(&Spans::default())));
    }

    #[test]
    fn levels_are_those_of_the_modules_they_name() {
        for (text, target, level, enabled) in [
            ("info", "ostler_engine::host", Level::INFO, true),
            ("info", "ostler::command", Level::DEBUG, false),
            ("debug", "ostler::command", Level::DEBUG, true),
            ("debug", "hyper", Level::DEBUG, false),
            ("warn", LINES, Level::INFO, false),
            ("error", SIGNALS, Level::INFO, true),
            ("warn,ostler_js=trace", "ostler_js::source", Level::TRACE, true),
            ("warn,hyper=debug", "hyper", Level::DEBUG, true),
        ] {
            assert_eq!(
                filter(text).unwrap().would_enable(target, &level),
                enabled,
                "{text}: {target} {level}"
            );
        }
        for wrong in ["loud", "ostler=loud", "=debug"] {
            assert_eq!(filter(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_field_of_a_line_holds_a_secret(
            secret in prop_oneof!["[a-z\"\\\\é=<> ]{6,12}", "[1-9][0-9]{5,9}"],
            before in ".{0,6}",
            after in ".{0,6}",
            json: bool,
        ) {
            // What it is hidden as, and a credential's blanks, are no part of it.
            prop_assume!(secret.trim().chars().count() >= 6 && !"<set>".contains(secret.trim()));
            let secret = secret.trim().to_owned();
            let text = format!("{before}{secret}{after}");
            let number = secret.parse::<u64>().unwrap_or_default();
            let error = std::io::Error::other(text.clone());
            let format = if json { Format::Json } else { Format::Text };
            let log = || {
                let span = tracing::info_span!(
                    target: "ostler::run", "run", run = text.as_str(), shown = %text, dbg = ?secret, number, outcome = tracing::field::Empty
                );
                span.record("outcome", text.as_str());
                let _in = span.enter();
                tracing::info!(target: LINES, "{text}");
                let error: &dyn std::error::Error = &error;
                tracing::error!(target: "ostler_engine", text, shown = %text, number, signed = number as i64, error, "{text}");
            };
            let written = logged(format, &secret, log);
            let encoded = Value::from(secret.as_str()).to_string();
            for shown in [secret.as_str(), encoded.trim_matches('"')] {
                prop_assert!(!written.contains(shown), "{written}");
            }
            if json {
                for line in written.lines() {
                    let fields: JsonObject = serde_json::from_str(line).unwrap();
                    for value in fields.values() {
                        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                        prop_assert!(!text.contains(&secret), "{line}");
                    }
                }
            }
        }
    }
}
