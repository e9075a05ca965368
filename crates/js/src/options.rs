//! What a host decides about its engines.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::http::{Request, Response};
use ostler_contract::live::Pending;

/// How grave a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `console.debug`, `console.trace`
    Debug,
    /// `console.log`, `console.info`
    Info,
    /// `console.warn`
    Warn,
    /// `console.error`, and an engine that fails.
    Error,
    /// What a plugin failed to catch: an unhandled rejection, an error of a timer or a listener.
    Uncaught,
}

/// One line of a plugin's, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The plugin's id, or its spec while the id is not known.
    pub label: String,
    /// How grave.
    pub level: Level,
    /// What it says; several lines where a stack belongs to it.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "plugin {}: ", self.label)?;
        for (at, line) in self.text.split('\n').enumerate() {
            match at {
                0 => formatter.write_str(line)?,
                // No line of a plugin's begins as one of the daemon's or of another's.
                _ if line.starts_with(' ') => write!(formatter, "\n{line}")?,
                _ => write!(formatter, "\n  {line}")?,
            }
        }
        Ok(())
    }
}

/// Where a plugin's lines go.
pub type LogSink = Arc<dyn Fn(Line) + Send + Sync>;

/// Is told each file before a module is read from it, and each file that a relative import names in vain.
pub type FileSink = Arc<dyn Fn(&Path) + Send + Sync>;

/// Sends one request and answers its response, without following redirects: what stands behind `fetch`.
pub type HttpClient = Arc<dyn Fn(Request) -> Pending<Response> + Send + Sync>;

/// Whether a plugin may listen: of its spec, and of `<host>:<port>` or the path of a socket.
pub type ListenRule = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// What a host decides about its engines.
#[derive(Clone)]
pub struct JsOptions {
    /// How much memory one plugin's values may take; `None` = as much as there is.
    pub memory_limit: Option<usize>,
    /// How long a plugin may keep its thread at work without a pause. What runs longer is interrupted.
    pub busy_limit: Duration,
    /// Where console lines and uncaught errors go.
    pub log: LogSink,
    /// Is told which files plugins are read from.
    pub read: FileSink,
    /// What stands behind `fetch`.
    pub http: HttpClient,
    /// Whether a plugin may open a listener. By default none may.
    pub listen: ListenRule,
    /// The version `@ostler/sdk` says it has.
    pub sdk_version: String,
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
            sdk_version: env!("CARGO_PKG_VERSION").to_owned(),
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
