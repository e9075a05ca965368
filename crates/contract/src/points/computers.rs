//! Machines: where a backend's process runs, and what makes them. Spec: *Registration methods*, *Backend extensions*.

use std::collections::BTreeMap;

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::Call;

/// How a backend runs its process in a named machine. A session names one in its setting `computer`: an address,
/// `computer://<id>`, or what one is made from, `disposable:<profile>` and `devcontainer://<folder>`.
///
/// What a machine needs is the host's to find out; `make` is handed the plan.
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
    /// What to start on this host so that `process` runs in the machine, with its streams as its own.
    pub how: Call<fn(computer: String, process: MachineProcess) -> MachineProcess>,
    /// The machines there are. Without it any address is taken at its word, until `how` refuses it.
    pub list: Option<Call<fn() -> Vec<Computer>>>,
    /// What machines are made from, by name.
    pub profiles: Option<Call<fn() -> BTreeMap<String, MachineProfile>>>,
    /// Makes a machine to a plan; answers its address. Without it only machines that are there can be named.
    pub make: Option<Call<fn(request: MachineRequest) -> String>>,
    /// Stops a machine and removes it.
    pub remove: Option<Call<fn(computer: String)>>,
    /// A session that ran in a machine is gone: what was made for it alone may go too.
    pub left: Option<Call<fn(computer: String, session: String)>>,
    /// Called once when the host closes.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Computers {
    const NAME: &'static str = "computers";
}

/// A process to run: in a machine where it is asked for, on this host where it is answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineProcess {
    /// A program's name or path.
    pub program: String,
    /// Its arguments, each of them one word.
    #[serde(default)]
    pub args: Vec<String>,
    /// Where it works: a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The variables it is given. Nothing else of the host's environment reaches a machine.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// One machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct Computer {
    /// The last part of its address.
    pub id: String,
    /// Shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// One line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it runs.
    #[serde(default)]
    pub running: bool,
    /// The backends that may use it; every one where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Where work begins whose folder is not mounted: a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Which folders of this host it sees.
    #[serde(default)]
    pub mounts: Vec<MachineMount>,
}

/// What machines are made from. A plugin may keep more in it; the host reads this.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineProfile {
    /// Shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// One line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The backends its machines are for; the asking session's where it names none.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Values of their needs, by the needs' names.
    #[serde(default)]
    pub needs: BTreeMap<String, String>,
}

/// A machine asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineRequest {
    /// What it is made from: `disposable:<profile>` or `devcontainer://<folder>`.
    pub source: String,
    /// The profile's name, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The session it is made for.
    pub session: String,
    /// Whose the session is, on a host that knows people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The session's first directory on this host: a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The backends it is prepared for, to be listed with it.
    pub agents: Vec<String>,
    /// What it is given.
    pub plan: MachinePlan,
}

/// What a machine is given, every path of this host checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachinePlan {
    /// Folders and files of this host, mounted.
    pub mounts: Vec<MachineMount>,
    /// Environment variables, as `-e <name>=<value>`.
    pub env: BTreeMap<String, String>,
    /// Folders and files of this host, copied in after the machine is made and before it first starts.
    pub copies: Vec<MachineCopy>,
    /// Images of parts, mounted read-only.
    pub parts: Vec<MachinePart>,
    /// Named volumes.
    pub volumes: Vec<MachineVolume>,
}

/// A folder or file of this host seen in a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineMount {
    /// On this host: a path.
    pub source: String,
    /// In the machine: a path.
    pub target: String,
    /// Whether it may not be written to.
    #[serde(default)]
    pub read_only: bool,
}

/// A folder or file of this host copied into a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct MachineCopy {
    /// On this host: a path.
    pub source: String,
    /// In the machine: a path.
    pub target: String,
}

/// One agent command line, or the daemon itself, at the version the host's versions file pins: the machine maker
/// builds its image and mounts it, read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachinePart {
    /// Its name.
    pub part: String,
    /// The version pinned.
    pub version: String,
    /// Where in the machine: `/opt/ostler/<part>`.
    pub target: String,
    /// The package it is built from, where the versions file names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
}

/// A named volume for an agent's own configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineVolume {
    /// Its name: the same for every machine of one backend and one owner.
    pub name: String,
    /// Where in the machine: a path.
    pub target: String,
    /// Files copied into it when it is made.
    #[serde(default)]
    pub seed: Vec<MachineCopy>,
}

/// The machine a session runs in, as its backend sees it.
#[derive(Debug, Clone, Cross)]
pub struct SessionComputer {
    /// Its address.
    pub uri: String,
    /// Where a path of this host is in the machine; nothing where the machine does not see it.
    pub place: Call<fn(path: String) -> Option<String>>,
    /// What to start on this host so that a process runs in the machine, where the session works unless it says where. A backend that is handed this starts nothing
    /// of its session outside it.
    pub how: Call<fn(process: MachineProcess) -> MachineProcess>,
}
