//! The embedded JavaScript engine: imports a plugin's module and implements the contract for it.
//!
//! Every plugin has a separate engine and thread, so a plugin that spins, throws or runs out of memory affects only
//! itself. This crate knows no registration method, host call or member by name: values are converted by their
//! [shapes](ostler_contract::shape).
//!
//! ```no_run
//! use std::path::Path;
//!
//! use ostler_contract::{PluginSource, Thrown};
//! use ostler_js::{JsOptions, JsSource};
//!
//! # async fn load() -> Result<(), Thrown> {
//! let source = JsSource::new(JsOptions::default());
//! let module = source.import(Path::new("/plugins/notes/index.ts"), "./notes").await?;
//! assert!(module.apply.is_some());
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

mod callees;
mod engine;
mod errors;
mod functions;
mod globals;
mod http;
mod modules;
mod native;
mod options;
mod profile;
mod source;
mod surface;
mod tests;
mod timers;
mod typescript;
mod values;

pub use engine::{Engine, HeapSummary, HeapUse};
pub use http::network;
pub use native::{awaits_child, end_children};
pub use options::{FileSink, HttpClient, JsOptions, Level, Line, ListenRule, LogSink};
pub use profile::{CpuProfile, ProfileNode, Profiler, Profiling};
pub use source::JsSource;
pub use surface::{Surface, surface};
pub use tests::{Outcome, TestResult, TestRun, Tested, run_tests};
