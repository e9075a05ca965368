//! Parsing and formatting of YAML, passed in by the builder of the host.

use std::sync::Arc;

use ostler_contract::{Thrown, Value};

/// Parses and formats YAML, implemented by the builder of the host.
#[derive(Clone)]
pub struct Yaml {
    pub parse: Arc<dyn Fn(&str) -> Result<Value, Thrown> + Send + Sync>,
    /// Formats data as YAML text.
    pub stringify: Arc<dyn Fn(&Value) -> Result<String, Thrown> + Send + Sync>,
}

impl Default for Yaml {
    fn default() -> Self {
        let none = || Thrown::new("this host has no YAML parser");
        Self { parse: Arc::new(move |_| Err(none())), stringify: Arc::new(move |_| Err(none())) }
    }
}

impl std::fmt::Debug for Yaml {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Yaml")
    }
}
