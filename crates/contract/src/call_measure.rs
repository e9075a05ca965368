//! The measurement of calls of plugins' functions: a span, and a duration by plugin, function and outcome.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tracing::Span;
use tracing::field::Empty;

use crate::cross::Cross;
use crate::id::PluginId;
use crate::live::Pending;
use crate::thrown::Thrown;

/// The target of the spans of calls of plugins' functions.
pub const PLUGIN_CALL: &str = "ostler::plugin";

/// The target of the spans of calls of webhook endpoints.
pub const ENDPOINT_CALL: &str = "ostler::endpoint";

/// The plugin that a function belongs to, and its name there.
pub(crate) struct Maker {
    pub(crate) plugin: PluginId,
    pub(crate) method: &'static str,
    /// The meters of the function, by outcome.
    meters: [OnceLock<Meter>; 3],
}

/// Records the durations of the calls of one function with one outcome.
pub type Meter = Box<dyn Fn(Duration) + Send + Sync>;

/// Creates the meter of a plugin's function for one outcome.
type MakeMeter = Box<dyn Fn(&PluginId, &'static str, &'static str) -> Meter + Send + Sync>;

/// The factory of the meters of this process.
static MAKE_METER: OnceLock<MakeMeter> = OnceLock::new();

/// Measures every call of a plugin's function from now on. `make` is called once for each plugin, function and outcome
/// (`ok`, `failed`, or `abandoned` if the caller dropped the call before its answer). This costs less than a subscriber
/// that measures spans, and calls are frequent. Only the first measurement of a process counts.
pub fn measure(make: impl Fn(&PluginId, &'static str, &'static str) -> Meter + Send + Sync + 'static) {
    let _ = MAKE_METER.set(Box::new(make));
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Ok,
    Failed,
    Abandoned,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// A call that is measured.
pub(crate) struct Timing {
    maker: &'static Maker,
    began: Instant,
    pub(crate) outcome: Outcome,
}

impl Timing {
    /// Starts a measurement, if calls are measured.
    pub(crate) fn begin(maker: &'static Maker) -> Option<Self> {
        MAKE_METER.get().map(|_| Self { maker, began: Instant::now(), outcome: Outcome::Abandoned })
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        let Self { maker, began, outcome } = self;
        let Some(make) = MAKE_METER.get() else { return };
        let meter =
            maker.meters[*outcome as usize].get_or_init(|| make(&maker.plugin, maker.method, outcome.name()));
        meter(began.elapsed());
    }
}

impl Maker {
    /// Returns the shared origin of a plugin's function. Functions of the same name and plugin share one, so that each
    /// of the many functions of a backend's session needs only a pointer.
    pub(crate) fn of(plugin: &PluginId, method: &'static str) -> &'static Self {
        static MAKERS: OnceLock<Mutex<HashMap<PluginId, HashMap<&'static str, &'static Maker>>>> =
            OnceLock::new();
        let mut makers = MAKERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let methods = makers.entry(plugin.clone()).or_default();
        methods.entry(method).or_insert_with(|| {
            Box::leak(Box::new(Self { plugin: plugin.clone(), method, meters: Default::default() }))
        })
    }
}

/// The span of a call of a plugin's function. Its outcome is recorded if it fails.
pub(crate) fn plugin_call(maker: &Maker) -> Span {
    let Maker { plugin, method, .. } = maker;
    tracing::debug_span!(target: PLUGIN_CALL, "plugin_call", %plugin, method, outcome = Empty)
}

/// The span of a call of a webhook endpoint that exists. The status of its answer is recorded as `status`.
pub fn endpoint_call(endpoint: &str) -> Span {
    tracing::debug_span!(target: ENDPOINT_CALL, "endpoint_call", endpoint, status = Empty)
}

/// An answer with the span and the measurement of its call. A type of its own and not an async block, which the compiler
/// would generate for each signature in place of each answer.
pub(crate) struct Measured<T> {
    answer: Option<Pending<T>>,
    maker: &'static Maker,
    span: Span,
    timing: Option<Timing>,
}

impl<T> Measured<T> {
    pub(crate) fn new(answer: Pending<T>, maker: &'static Maker, span: Span, timing: Option<Timing>) -> Self {
        Self { answer: Some(answer), maker, span, timing }
    }
}

impl<T: Cross> Future for Measured<T> {
    type Output = Result<T, Thrown>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(answer) = &mut this.answer else { return Poll::Pending };
        // Entering a span that nobody subscribes to still costs a little.
        let _entered = (!this.span.is_disabled()).then(|| this.span.enter());
        let mut answered = std::task::ready!(answer.as_mut().poll(context));
        this.answer = None;
        record(&mut answered, this.maker, &this.span, this.timing.take());
        Poll::Ready(answered)
    }
}

/// Records the outcome of a call, and to whom the functions of its answer belong.
pub(crate) fn record<T: Cross>(
    answered: &mut Result<T, Thrown>,
    maker: &'static Maker,
    span: &Span,
    timing: Option<Timing>,
) {
    let outcome = match answered {
        Ok(answered) => {
            answered.made_by(&maker.plugin, maker.method);
            Outcome::Ok
        }
        Err(_) => {
            span.record("outcome", Outcome::Failed.name());
            Outcome::Failed
        }
    };
    if let Some(mut timing) = timing {
        timing.outcome = outcome;
    }
}

impl<T> Drop for Measured<T> {
    /// A call that is cancelled also ends within its span.
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        let _entered = self.span.enter();
        drop(answer);
    }
}
