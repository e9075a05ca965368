//! The embedded JavaScript engine: imports a plugin's module and speaks the contract for it.
//!
//! Every plugin has an engine and a thread of its own, so one that spins, throws or runs out of memory costs
//! itself alone. Nothing here knows a registration method, a call on the host or a member by its name: values
//! cross by their [shapes](ostler_contract::shape).
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
mod source;
mod surface;
mod tests;
mod timers;
mod typescript;
mod values;

pub use engine::Engine;
pub use http::network;
pub use native::{awaits_child, end_children};
pub use options::{FileSink, HttpClient, JsOptions, Level, Line, ListenRule, LogSink};
pub use source::JsSource;
pub use surface::{Surface, surface};
pub use tests::{Outcome, TestResult, run_tests};
