//! Diagnostics of the host. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;

use super::PortValue;
use crate::call::{Call, HostFunction};

/// Sources of diagnostics. Every member is optional; existing ones are advertised.
///
/// ```
/// use ostler_contract::{Cross, points::Diagnostics};
///
/// assert!(Diagnostics::default().check().is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Diagnostics {
    /// Reports log records at or above a level (`trace`, `debug`, `info`, `warn`, `error` or `fatal`), each as an OTLP
    /// `ExportLogsServiceRequest` in JSON, until the returned function is called.
    pub logs:
        Option<Call<fn(level: String, told: HostFunction<fn(payload: JsonObject)>) -> Option<Call<fn()>>>>,
    /// Reports spans, each as an OTLP `ExportTraceServiceRequest` in JSON, until the returned function is called.
    pub traces: Option<Call<fn(told: HostFunction<fn(payload: JsonObject)>) -> Option<Call<fn()>>>>,
    /// Reports metrics, each as an OTLP `ExportMetricsServiceRequest` in JSON, until the returned function is called.
    pub metrics: Option<Call<fn(told: HostFunction<fn(payload: JsonObject)>) -> Option<Call<fn()>>>>,
    /// Facts about the host's network.
    pub network: Option<Call<fn() -> JsonObject>>,
    /// Requests a URL and returns the outcome.
    pub fetch: Option<Call<fn(url: String) -> JsonObject>>,
}

impl PortValue for Diagnostics {
    const NAME: &'static str = "diagnostics";
}
