//! What a host says about itself: the lines of its log, the metrics, and the export of both to a collector. The engine and the
//! contract make traces ([`tracing`]) and know none of this.
//!
//! ```no_run
//! use ostler_loader::Hidden;
//! use ostler_telemetry::log::{self, Format, LogOptions};
//!
//! let options = LogOptions::new(Some("info,ostler::command=debug"), Format::Json)?;
//! let (log, metrics, spans) = log::start(&options, false, &Hidden::default(), None);
//! log.info("ready");
//! assert!(spans.is_none());
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]

pub mod log;
pub mod log_rotation;
pub mod metrics;
pub mod otlp;
pub mod printable;

use ostler_engine::Clock;

/// The system's clock.
pub fn clock() -> Clock {
    Clock::new(jiff::Timestamp::now)
}
