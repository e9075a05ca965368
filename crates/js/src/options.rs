//! The options of a host for its engines.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::http::{Request, Response};
use ostler_contract::live::Pending;

use crate::profile::Profiler;

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `console.debug`, `console.trace`
    Debug,
    /// `console.log`, `console.info`
    Info,
    /// `console.warn`
    Warn,
    /// `console.error`, and failures of an engine.
    Error,
    /// An error that the plugin did not catch: an unhandled rejection, an error of a timer or a listener.
    Uncaught,
}

/// One log line of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The plugin's id, or its spec while the id is unknown.
    pub label: String,
    /// The severity.
    pub level: Level,
    /// The text; several lines if it contains a stack.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "plugin {}: ", self.label)?;
        for (at, line) in self.text.split('\n').enumerate() {
            match at {
                0 => formatter.write_str(line)?,
                // Continuation lines are indented, so that they do not look like lines of the daemon or of another
                // plugin.
                _ if line.starts_with(' ') => write!(formatter, "\n{line}")?,
                _ => write!(formatter, "\n  {line}")?,
            }
        }
        Ok(())
    }
}

/// Receives the log lines of plugins.
pub type LogSink = Arc<dyn Fn(Line) + Send + Sync>;

/// Receives each file before a module is read from it, and each file that a relative import does not find.
pub type FileSink = Arc<dyn Fn(&Path) + Send + Sync>;

/// Sends one request and returns its response, without following redirects: the HTTP client of `fetch`.
pub type HttpClient = Arc<dyn Fn(Request) -> Pending<Response> + Send + Sync>;

/// Returns whether a plugin may listen. Receives its spec, and `<host>:<port>` or the path of a socket.
pub type ListenRule = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// The options of a host for its engines.
#[derive(Clone)]
pub struct JsOptions {
    /// The memory limit of one plugin's values, in bytes; `None` sets no limit.
    pub memory_limit: Option<usize>,
    /// The maximum CPU time of a plugin without a pause. Code that exceeds it is interrupted.
    pub busy_limit: Duration,
    /// Receives console lines and uncaught errors.
    pub log: LogSink,
    /// Receives the files that plugins are read from.
    pub read: FileSink,
    /// The HTTP client of `fetch`.
    pub http: HttpClient,
    /// Returns whether a plugin may open a listener. By default none may.
    pub listen: ListenRule,
    /// What to do about a listener that is not allowed.
    pub listen_advice: String,
    /// The version that `@ostler/sdk` reports.
    pub sdk_version: String,
    /// The profiler of every engine with these options, for a profile that is started before the plugin is imported. By
    /// default each has its own.
    pub profiler: Option<Profiler>,
}

impl Default for JsOptions {
    fn default() -> Self {
        Self {
            memory_limit: Some(512 << 20),
            busy_limit: Duration::from_secs(10),
            log: Arc::new(trace),
            read: Arc::new(|_| ()),
            http: crate::http::network(),
            listen: Arc::new(|_, _| false),
            listen_advice: "add it to \"listen\" of this plugin's entry in the configuration".to_owned(),
            sdk_version: env!("CARGO_PKG_VERSION").to_owned(),
            profiler: None,
        }
    }
}

impl fmt::Debug for JsOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("JsOptions")
            .field("memory_limit", &self.memory_limit)
            .field("busy_limit", &self.busy_limit)
            .field("sdk_version", &self.sdk_version)
            .finish_non_exhaustive()
    }
}

fn trace(line: Line) {
    let Line { label, level, text } = line;
    match level {
        Level::Debug => tracing::debug!(plugin = label, "{text}"),
        Level::Info => tracing::info!(plugin = label, "{text}"),
        Level::Warn => tracing::warn!(plugin = label, "{text}"),
        Level::Error | Level::Uncaught => tracing::error!(plugin = label, "{text}"),
    }
}
