//! The store of policies, which restrict agents, models and machines. Spec: *Policies, vault, usage stores*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;

use super::PortValue;
use crate::call::Call;

/// The store of policies. An id is unique in the whole store: it is one address, `policy://<id>`. The host validates
/// every policy with [`check_policy`](crate::policy::check_policy).
///
/// ```
/// use ostler_contract::{Call, points::Policies};
///
/// let nothing = Policies {
///     list: Call::now(|()| Ok(vec![])),
///     get: Call::now(|_| Ok(None)),
///     put: Call::new(|_| async { Err("these policies are read-only".into()) }),
///     remove: Call::now(|_| Ok(false)),
///     ..Policies::default()
/// };
/// # assert!(ostler_contract::Cross::check(&nothing).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Policies {
    /// All policies, in the order of their insertion.
    pub list: Call<fn() -> Vec<JsonObject>>,
    /// One policy, or nothing.
    pub get: Call<fn(id: String) -> Option<JsonObject>>,
    /// Stores a policy, replacing the one with its id.
    pub put: Call<fn(policy: JsonObject)>,
    /// Deletes a policy; `true` if it existed.
    pub remove: Call<fn(id: String) -> bool>,
    /// Called once when the host closes, after its sessions and the plugins' close functions: writes pending data.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Policies {
    const NAME: &'static str = "policies";
}
