//! Policies: which agents, models and machines may be used. Spec: *Policies, vault, usage stores*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;

use super::PortValue;
use crate::call::Call;

/// Where policies are kept. An id is unique in the whole store: it is one address, `policy://<id>`. The host checks
/// every row it is given with [`check_policy`](crate::policy::check_policy).
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
    /// Every row, in the order they were put.
    pub list: Call<fn() -> Vec<JsonObject>>,
    /// The row of an id, or nothing.
    pub get: Call<fn(id: String) -> Option<JsonObject>>,
    /// Keeps a row, in place of the one of its id.
    pub put: Call<fn(policy: JsonObject)>,
    /// Forgets a row; `true` when there was one.
    pub remove: Call<fn(id: String) -> bool>,
    /// Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Policies {
    const NAME: &'static str = "policies";
}
