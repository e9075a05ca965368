//! What a host tells those who look after it. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;

use super::PortValue;
use crate::call::Call;

/// Tells how the host is. Every member is optional, and what is there is advertised.
///
/// ```
/// use ostler_contract::{Cross, points::Diagnostics};
///
/// assert!(Diagnostics::default().check().is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Diagnostics {
    /// Tells log records of a level (`trace`, `debug`, `info`, `warn`, `error` or `fatal`) and above, each as an OTLP
    /// `ExportLogsServiceRequest` in JSON, until the answer is called.
    pub logs: Option<Call<fn(level: String, told: Call<fn(payload: JsonObject)>) -> Option<Call<fn()>>>>,
    /// Tells spans, each as an OTLP `ExportTraceServiceRequest` in JSON, until the answer is called.
    pub traces: Option<Call<fn(told: Call<fn(payload: JsonObject)>) -> Option<Call<fn()>>>>,
    /// Tells measurements, each as an OTLP `ExportMetricsServiceRequest` in JSON, until the answer is called.
    pub metrics: Option<Call<fn(told: Call<fn(payload: JsonObject)>) -> Option<Call<fn()>>>>,
    /// Facts about the network as the host sees it.
    pub network: Option<Call<fn() -> JsonObject>>,
    /// Tries to reach a URL; answers what came of it.
    pub fetch: Option<Call<fn(url: String) -> JsonObject>>,
}

impl PortValue for Diagnostics {
    const NAME: &'static str = "diagnostics";
}
