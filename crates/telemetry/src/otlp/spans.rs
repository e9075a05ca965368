//! The spans that have ended and are not exported yet, and the layer that collects them.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_contract::{Value, json};
use ostler_loader::Hidden;
use tokio::sync::Notify;
use tracing::Subscriber;
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;
use uuid::Uuid;

use super::{Shared, attribute, resource, scope};
use crate::clock;
use crate::log::{Fields, without_secrets};

/// Spans in one request.
const BATCH: usize = 512;
/// The maximum number of spans that wait for an export.
const WAITING: usize = 8 * BATCH;
/// The maximum length of an attribute's text.
const LONGEST: usize = 1024;

/// OTLP's numbers of server spans and internal spans.
const SERVER: u8 = 2;
const INTERNAL: u8 = 1;
/// OTLP's number of the error status.
const FAILED: u8 = 2;

/// The spans that wait for an export.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    ended: Shared<Ended>,
    filled: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Ended {
    spans: Vec<Value>,
    dropped: usize,
}

impl Spans {
    /// The layer that collects spans.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self, hidden: &Hidden) -> impl Layer<S> + use<S> {
        Collect { spans: self.clone(), hidden: hidden.clone() }
    }

    /// Removes the spans, in batches; returns also how many were dropped since the last call.
    pub(super) fn take(&self) -> (Vec<Vec<Value>>, usize) {
        let Ended { mut spans, dropped } = std::mem::take(&mut *self.ended.lock());
        let mut batches = Vec::new();
        while !spans.is_empty() {
            let rest = spans.split_off(spans.len().min(BATCH));
            batches.push(std::mem::replace(&mut spans, rest));
        }
        (batches, dropped)
    }

    /// Resolves when there are enough spans for a request.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    fn add(&self, span: Value) {
        let mut ended = self.ended.lock();
        if ended.spans.len() >= WAITING {
            ended.dropped += 1;
            return;
        }
        ended.spans.push(span);
        if ended.spans.len() == BATCH {
            self.filled.notify_one();
        }
    }
}

/// The request that exports spans.
pub(super) fn request(spans: Vec<Value>) -> Value {
    let scoped = json!([{ "scope": scope(), "spans": spans }]);
    json!({ "resourceSpans": [{ "resource": resource(), "scopeSpans": scoped }] })
}

struct Open {
    place: SpanIds,
    parent: Option<u64>,
    began: Timestamp,
    fields: Fields,
}

/// The ids of a trace and of a span in it.
#[derive(Clone, Copy)]
struct SpanIds {
    trace: u128,
    span: u64,
}

struct Collect {
    spans: Spans,
    hidden: Hidden,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collect {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent =
            span.parent().and_then(|parent| parent.extensions().get::<Open>().map(|open| open.place));
        let trace = parent.map_or_else(|| Uuid::new_v4().as_u128(), |parent| parent.trace);
        let place = SpanIds { trace, span: Uuid::new_v4().as_u64_pair().1 };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let open = Open { place, parent: parent.map(|parent| parent.span), began: clock().now(), fields };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else { return };
        self.spans.add(self.encoded(span.name(), open));
    }
}

impl Collect {
    fn encoded(&self, name: &str, open: Open) -> Value {
        let Open { place, parent, began, fields } = open;
        let began = began.as_nanosecond();
        let took = i128::try_from(fields.elapsed().as_nanos()).unwrap_or_default();
        let (mut method, mut status) = (None, json!({}));
        let mut attributes = Vec::new();
        for (key, value) in fields.into_values() {
            let value = match without_secrets(&self.hidden, value) {
                Value::String(text) => text.chars().take(LONGEST).collect::<String>().into(),
                other => other,
            };
            match (key.as_str(), value.as_str()) {
                ("method", Some(text)) => method = Some(text.to_owned()),
                ("outcome", Some("failed")) => status = json!({ "code": FAILED }),
                _ => {}
            }
            attributes.push(attribute(&key, &value));
        }
        json!({
            "traceId": format!("{:032x}", place.trace),
            "spanId": format!("{:016x}", place.span),
            "parentSpanId": parent.map(|parent| format!("{parent:016x}")).unwrap_or_default(),
            "name": method.map_or_else(|| name.to_owned(), |method| format!("{name} {method}")),
            "kind": if name == "command" { SERVER } else { INTERNAL },
            "startTimeUnixNano": began.to_string(),
            "endTimeUnixNano": (began + took).to_string(),
            "attributes": attributes,
            "status": status,
        })
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn collected(work: impl FnOnce()) -> (Vec<Value>, usize) {
        let (spans, hidden) = (Spans::default(), Hidden::default());
        hidden.add("a secret");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(spans.layer(&hidden)), work);
        let (batches, dropped) = spans.take();
        (batches.into_iter().flatten().collect(), dropped)
    }

    #[test]
    fn a_span_within_another_belongs_to_its_trace() {
        let (spans, _) = collected(|| {
            let outer = tracing::debug_span!("command", method = "ping", outcome = tracing::field::Empty);
            outer.in_scope(|| drop(tracing::debug_span!("plugin_call", plugin = "a secret")));
            outer.record("outcome", "failed");
            drop(outer);
            drop(tracing::debug_span!("turn"));
        });
        let [inner, outer, other] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(outer["name"], "command ping");
        assert_eq!((&inner["traceId"], &inner["parentSpanId"]), (&outer["traceId"], &outer["spanId"]));
        assert_eq!((&outer["parentSpanId"], &outer["status"]), (&json!(""), &json!({ "code": 2 })));
        assert_ne!(other["traceId"], outer["traceId"]);
        assert_eq!(inner["attributes"], json!([{ "key": "plugin", "value": { "stringValue": "<set>" } }]));
        let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time(outer, "startTimeUnixNano") <= time(inner, "startTimeUnixNano"));
        assert!(time(outer, "startTimeUnixNano") <= time(outer, "endTimeUnixNano"));
        assert_eq!(outer["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(outer["spanId"].as_str().unwrap().len(), 16);
    }

    #[test]
    fn spans_beyond_the_buffer_are_dropped_and_counted() {
        let (spans, dropped) = collected(|| {
            for _ in 0..WAITING + 3 {
                drop(tracing::debug_span!("turn"));
            }
        });
        assert_eq!((spans.len(), dropped), (WAITING, 3));
    }
}
