//! Machines for backends' processes. Spec: *Registration methods*, *Backend extensions*.

use std::collections::BTreeMap;

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::{Call, HostFunction};

/// How a backend runs its process in a named machine. A session names one in its setting `computer`: an address
/// `computer://<id>`, or the source of a new one, `disposable:<profile>` or `devcontainer://<folder>`.
///
/// The host computes what a machine needs and passes the plan to `make`.
///
/// ```
/// use ostler_contract::{Call, points::{Computers, MachineProcess}};
///
/// let ssh = Computers {
///     how: Call::now(|(computer, process): (String, MachineProcess)| {
///         let machine = computer.trim_start_matches("computer://").to_owned();
///         let args = [vec![machine, process.program], process.args].concat();
///         Ok(MachineProcess { program: "ssh".into(), args, ..MachineProcess::default() })
///     }),
///     ..Computers::default()
/// };
/// # assert!(ostler_contract::Cross::check(&ssh).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Computers {
    /// Returns the host process that runs `process` in the machine and connects its streams.
    pub how: Call<fn(computer: String, process: MachineProcess) -> MachineProcess>,
    /// The existing machines. Without it, every address is accepted until `how` rejects it.
    pub list: Option<Call<fn() -> Vec<Computer>>>,
    /// The profiles of new machines by name.
    pub profiles: Option<Call<fn() -> BTreeMap<String, MachineProfile>>>,
    /// Creates a machine from a plan and returns its address. Without it, only existing machines can be used.
    pub make: Option<Call<fn(request: MachineRequest) -> String>>,
    /// Stops a machine and removes it.
    pub remove: Option<Call<fn(computer: String)>>,
    /// Reports that a session of the machine has ended; a machine created only for it can be removed.
    pub left: Option<Call<fn(computer: String, session: String)>>,
    /// Called once when the host closes.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Computers {
    const NAME: &'static str = "computers";
}

/// A process: the requested one in a machine, or the returned one on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineProcess {
    /// Name or path of the program.
    pub program: String,
    /// Arguments, one word each.
    #[serde(default)]
    pub args: Vec<String>,
    /// Working directory, a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables. No other variables of the host reach a machine.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Of the returned process: texts that are masked in its errors, such as keys in the machine's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct Computer {
    /// The last segment of its address.
    pub id: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A one-line description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it is running.
    #[serde(default)]
    pub running: bool,
    /// The backends that can use it. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Working directory if the session's directory is not mounted, a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The host directories it can access.
    #[serde(default)]
    pub mounts: Vec<MachineMount>,
}

/// The profile of a new machine. A plugin can store more fields; the host reads these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineProfile {
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A one-line description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The backends of its machines. Default: the session's backend.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Values of needs, by the needs' names.
    #[serde(default)]
    pub needs: BTreeMap<String, String>,
}

/// A request for a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineRequest {
    /// Source: `disposable:<profile>` or `devcontainer://<folder>`.
    pub source: String,
    /// Name of the profile, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The session that needs the machine.
    pub session: String,
    /// Owner of the session, on a host with a users file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The session's first directory on the host, a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The backends it is prepared for, to be listed with it.
    pub agents: Vec<String>,
    /// The content of the machine.
    pub plan: MachinePlan,
}

/// The content of a machine, with validated host paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachinePlan {
    /// Mounted host directories and files.
    pub mounts: Vec<MachineMount>,
    /// Environment variables, as `-e <name>=<value>`.
    pub env: BTreeMap<String, String>,
    /// Host directories and files, copied after the machine is created and before its first start.
    pub copies: Vec<MachineCopy>,
    /// Images of parts, mounted read-only.
    pub parts: Vec<MachinePart>,
    /// Named volumes.
    pub volumes: Vec<MachineVolume>,
}

/// A host directory or file mounted in a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineMount {
    /// Path on the host.
    pub source: String,
    /// Path in the machine.
    pub target: String,
    /// Whether it is read-only.
    #[serde(default)]
    pub read_only: bool,
}

/// A host directory or file copied into a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct MachineCopy {
    /// Path on the host.
    pub source: String,
    /// Path in the machine.
    pub target: String,
}

/// An agent's command-line program, or the daemon itself, at the version in the versions file. The plugin builds its
/// image and mounts it read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachinePart {
    /// Its name.
    pub part: String,
    /// Version.
    pub version: String,
    /// Path in the machine: `/opt/ostler/<part>`.
    pub target: String,
    /// The package to build it from, if the versions file names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
}

/// A named volume for an agent's own configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineVolume {
    /// Name, the same for every machine of one backend and owner.
    pub name: String,
    /// Path in the machine.
    pub target: String,
    /// Files copied into a new volume.
    #[serde(default)]
    pub seed: Vec<MachineCopy>,
}

/// The machine of a session, for its backend.
#[derive(Debug, Clone, Cross)]
pub struct SessionComputer {
    /// Its address.
    pub uri: String,
    /// Returns the path in the machine for a host path; nothing if the machine cannot access it.
    pub place: HostFunction<fn(path: String) -> Option<String>>,
    /// Returns the host process that runs a process in the machine, by default in the session's directory. A backend
    /// with this starts none of the session's processes outside the machine.
    pub how: HostFunction<fn(process: MachineProcess) -> MachineProcess>,
}
