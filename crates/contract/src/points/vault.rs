//! The vault: secrets by name. Spec: *Policies, vault, usage stores*.

use ostler_contract_derive::Cross;

use super::PortValue;
use crate::call::Call;

/// The store of secrets. A plugin that provides one must be listed first in the configuration, and its own options
/// cannot name a secret.
///
/// ```
/// use ostler_contract::{Call, points::Vault};
///
/// let empty = Vault {
///     get: Call::new(|(_name,)| async { Ok(None) }),
///     set: Call::new(|(_name, _value)| async { Err("this vault is read-only".into()) }),
///     delete: Call::new(|(_name,)| async { Ok(false) }),
///     list: Call::new(|()| async { Ok(vec![]) }),
///     ..Vault::default()
/// };
/// # assert!(ostler_contract::Cross::check(&empty).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Vault {
    /// The value under `host:<name>`, `team:<team>/<name>` or `user:<id>/<name>`, or nothing.
    pub get: Call<fn(name: String) -> Option<String>>,
    /// Stores a value.
    pub set: Call<fn(name: String, value: String)>,
    /// Deletes a name; `true` if it existed.
    pub delete: Call<fn(name: String) -> bool>,
    /// All names, never values.
    pub list: Call<fn() -> Vec<String>>,
    /// Called once when the host closes, after its sessions and the plugins' close functions: writes pending data.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Vault {
    const NAME: &'static str = "vault";
}
