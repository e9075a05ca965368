//! Dev containers: what makes them and carries a client's frames into them. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::{Call, Func};

/// What makes dev containers. With it the host serves its dev-container commands and says so at `initialize`; without
/// it, neither.
///
/// ```
/// use ostler_contract::{Call, points::{ContainerEvents, ContainerRequest, Containers, DevContainer}};
///
/// let none = Containers {
///     available: Call::now(|()| Ok(false)),
///     make: Call::now(|_| Err("no container can be made here".into())),
///     write: Call::now(|_| Ok(())),
///     stop: Call::now(|_| Ok(())),
///     remove: Call::now(|_| Ok(())),
///     ..Containers::default()
/// };
/// # assert!(ostler_contract::Cross::check(&none).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Containers {
    /// Whether a container can be made now.
    pub available: Call<fn() -> bool>,
    /// Makes the container of a folder, or takes the one there is, and connects to the host inside it. What that
    /// host says goes to `events`.
    pub make: Call<fn(request: ContainerRequest, events: ContainerEvents) -> DevContainer>,
    /// Writes one frame to the host inside, for a connection that `make` opened.
    pub write: Call<fn(container: String, connection: String, data: String)>,
    /// Stops a container. It is there again at the next `make` of its folder.
    pub stop: Call<fn(container: String)>,
    /// Stops a container and removes it.
    pub remove: Call<fn(container: String)>,
    /// Ends one connection; the container goes on.
    pub disconnect: Option<Call<fn(container: String, connection: String)>>,
    /// Called once when the host closes.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Containers {
    const NAME: &'static str = "containers";
}

/// A container asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ContainerRequest {
    /// The connection that is opened with it: the host's own name for it, given to `write`.
    pub connection: String,
    /// The folder on this host: a path.
    pub workspace_folder: String,
    /// Shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What the host in a container says, to be called by what made it.
#[derive(Debug, Clone, Cross)]
pub struct ContainerEvents {
    /// One frame of the host inside.
    pub message: Func<fn(data: String)>,
    /// A line that is no frame, of the making or of the host inside.
    pub output: Func<fn(data: String)>,
    /// The connection has ended.
    pub closed: Func<fn()>,
}

/// A container made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct DevContainer {
    /// Its id.
    pub id: String,
    /// What it is called, where that is not what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The folder inside: a path.
    pub remote_workspace_folder: String,
    /// The folder on this host, where it is mounted: a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_workspace_folder: Option<String>,
}
