//! Reading and writing YAML, handed in by whoever builds the host.

use std::sync::Arc;

use ostler_contract::{Thrown, Value};

/// Reading and writing YAML, which the engine leaves to whoever builds it.
#[derive(Clone)]
pub struct Yaml {
    /// YAML text as data.
    pub parse: Arc<dyn Fn(&str) -> Result<Value, Thrown> + Send + Sync>,
    /// Data as YAML text.
    pub stringify: Arc<dyn Fn(&Value) -> Result<String, Thrown> + Send + Sync>,
}

impl Default for Yaml {
    fn default() -> Self {
        let none = || Thrown::new("this host reads and writes no YAML");
        Self { parse: Arc::new(move |_| Err(none())), stringify: Arc::new(move |_| Err(none())) }
    }
}

impl std::fmt::Debug for Yaml {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Yaml")
    }
}
