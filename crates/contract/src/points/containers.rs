//! Dev containers and the frames of clients to them. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::{Call, Func};

/// The provider of dev containers. With this port the host serves and advertises its dev-container commands.
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
    /// Whether a container can be created now.
    pub available: Call<fn() -> bool>,
    /// Creates the container of a folder, or uses the existing one, and connects to the host inside it. Frames of that
    /// host go to `events`.
    pub make: Call<fn(request: ContainerRequest, events: ContainerEvents) -> DevContainer>,
    /// Writes one frame to the host inside, on a connection that `make` opened.
    pub write: Call<fn(container: String, connection: String, data: String)>,
    /// Stops a container. The next `make` of its folder starts it again.
    pub stop: Call<fn(container: String)>,
    /// Stops and removes a container.
    pub remove: Call<fn(container: String)>,
    /// Ends one connection; the container continues to run.
    pub disconnect: Option<Call<fn(container: String, connection: String)>>,
    /// Called once when the host closes.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Containers {
    const NAME: &'static str = "containers";
}

/// A request for a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ContainerRequest {
    /// Id of the connection, used in `write`.
    pub connection: String,
    /// Path of the folder on the host.
    pub workspace_folder: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Callbacks for the host in a container.
#[derive(Debug, Clone, Cross)]
pub struct ContainerEvents {
    /// A frame of the host inside.
    pub message: Func<fn(data: String)>,
    /// A line that is not a frame, from the creation or from the host inside.
    pub output: Func<fn(data: String)>,
    /// The connection has ended.
    pub closed: Func<fn()>,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct DevContainer {
    /// Its id.
    pub id: String,
    /// Its name, if it differs from the requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path of the folder in the container.
    pub remote_workspace_folder: String,
    /// Path of the mounted folder on the host, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_workspace_folder: Option<String>,
}
