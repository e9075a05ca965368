//! Machines: containers with labels that identify their host. Containers of other hosts or without these labels are
//! ignored.

use std::collections::{HashMap, HashSet};

use bollard::query_parameters::{
    RemoveContainerOptionsBuilder, RestartContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use futures::StreamExt as _;
use ostler_contract::points::{Computer, MachineMount, MachineProcess};
use ostler_contract::secret::is_secret_name;
use ostler_contract::{PluginHost, Thrown};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use crate::container_process::{self, ContainerProcess, Entered};
use crate::dev::DevProcesses;
use crate::exec::ROOT;
use crate::options::Configured;
use crate::parts::Parts;
use crate::runtime::{CHANGE, Failure, Kind, Runtime};

/// The scheme of machines.
pub const ADDRESS: &str = "computer://";

/// Labels of containers.
pub mod label {
    /// Marks a machine.
    pub const COMPUTER: &str = "ostler.computer";
    /// The host that created it.
    pub const HOST: &str = "ostler.host";
    /// Its id.
    pub const ID: &str = "ostler.id";
    /// Its session.
    pub const SESSION: &str = "ostler.session";
    /// Its profile.
    pub const DISPOSABLE: &str = "ostler.disposable";
    /// Its backends, comma-separated.
    pub const AGENTS: &str = "ostler.agents";
    /// Host directories and files it can access, as JSON.
    pub const MOUNTS: &str = "ostler.mounts";
    /// Its working directory.
    pub const WORKDIR: &str = "ostler.workdir";
    /// Marks a machine that a tool created in addition to that of its session.
    pub const TOOL: &str = "ostler.tool";
    /// The run of the daemon that created it.
    pub const RUN: &str = "ostler.run";
    /// The folder of a dev container.
    pub const FOLDER: &str = "ostler.devcontainer.folder";
}

/// How long a stopped container's process has to end, in seconds.
const STOP: i32 = 10;

/// In how many machines processes are ended concurrently.
const ENDED_AT_ONCE: usize = 16;

/// Creates and finds machines.
pub struct Machines {
    pub host: PluginHost,
    pub runtime: Runtime,
    pub options: Configured,
    /// The value of the label of this host.
    pub own: String,
    /// A short text in names, which is the same for each start of this host.
    pub prefix: String,
    /// This run of the daemon.
    pub run: String,
    /// The program that enters a machine.
    pub enter: Vec<String>,
    pub parts: Parts,
    /// Containers whose removal failed.
    pub leftover: Mutex<HashSet<String>>,
    /// Locked during a request of a tool for a machine.
    pub tool_requests: tokio::sync::Mutex<()>,
    /// How processes are run in dev containers, by the containers' ids.
    pub dev_processes: Mutex<HashMap<String, DevProcesses>>,
}

#[derive(Debug, Clone)]
pub struct HostContainer {
    /// The runtime's id.
    pub container: String,
    /// The last segment of its address.
    pub id: String,
    pub running: bool,
    pub labels: HashMap<String, String>,
    pub image: String,
    mounted: Vec<MachineMount>,
    /// Its environment, as `<name>=<value>`, if requested.
    env: Vec<String>,
}

impl HostContainer {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The host directories and files it can access.
    pub fn mounts(&self) -> Vec<MachineMount> {
        let labelled = self.label(label::MOUNTS).and_then(|mounts| serde_json::from_str(mounts).ok());
        labelled.unwrap_or_else(|| self.mounted.clone())
    }

    /// Returns the machine in the form for the host.
    pub fn computer(&self) -> Computer {
        let (title, description) = match (self.label(label::FOLDER), self.label(label::DISPOSABLE)) {
            (Some(folder), _) => {
                let name = folder.rsplit('/').next().unwrap_or(folder);
                (format!("{name} (dev container)"), format!("Dev container of {folder}"))
            }
            (None, Some(profile)) => {
                (self.id.clone(), format!("From profile {profile}; ends with its session"))
            }
            (None, None) => (self.id.clone(), self.image.clone()),
        };
        let agents = self.label(label::AGENTS).map(|agents| agents.split(',').map(str::to_owned).collect());
        Computer {
            id: self.id.clone(),
            title: Some(title),
            description: Some(description),
            running: self.running,
            agents,
            workdir: self.label(label::WORKDIR).map(str::to_owned),
            mounts: self.mounts(),
        }
    }
}

/// The id in an address.
pub fn id_of(computer: &str) -> &str {
    computer.strip_prefix(ADDRESS).unwrap_or(computer)
}

/// Returns whether a text is a valid id of a machine.
pub fn is_id(id: &str) -> bool {
    let sound = id.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    sound && id.len() <= 80 && id.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// The error for a machine that does not exist or belongs to another host.
pub fn no_machine(id: &str) -> Failure {
    Failure::new(Kind::Missing, format_args!("No machine at {ADDRESS}{id}"))
}

impl Machines {
    /// The name of a machine's container.
    pub fn name(&self, id: &str) -> String {
        format!("ostler-{}-{id}", self.prefix)
    }

    /// The labels of every container of this host.
    pub fn labels(&self, id: &str) -> HashMap<String, String> {
        [(label::COMPUTER, "1"), (label::HOST, &self.own), (label::ID, id), (label::RUN, &self.run)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    /// The containers of this host that have these labels too.
    pub async fn containers(&self, labels: &[(&str, &str)]) -> Result<Vec<Row>, Failure> {
        let own = [(label::COMPUTER, "1"), (label::HOST, self.own.as_str())];
        let wanted: Vec<_> =
            own.iter().chain(labels).map(|(name, value)| format!("{name}={value}")).collect();
        let filters = json!({ "label": wanted }).to_string();
        let filters = utf8_percent_encode(&filters, NON_ALPHANUMERIC);
        let path = format!("/containers/json?all=true&filters={filters}");
        let mut rows: Vec<Row> = self.runtime.get("list containers", &path).await?;
        // The runtime filters; its result is checked again.
        rows.retain(|row| {
            row.labels.as_ref().is_some_and(|found| {
                self.is_own(found)
                    && labels.iter().all(|(name, value)| found.get(*name).is_some_and(|found| found == value))
            })
        });
        Ok(rows)
    }

    pub async fn list(&self) -> Result<Vec<HostContainer>, Failure> {
        let mut found = Vec::new();
        for row in self.containers(&[]).await? {
            let labels = row.labels.unwrap_or_default();
            let container = row.id;
            let Some(id) = labels.get(label::ID).cloned() else { continue };
            let running = row.state.as_deref() == Some("running");
            let image = row.image.unwrap_or_default();
            let mut machine =
                HostContainer { container, id, running, labels, image, mounted: Vec::new(), env: Vec::new() };
            if machine.label(label::MOUNTS).is_none()
                && let Ok(whole) = self.inspect(&machine.container).await
            {
                machine.mounted = mounted(&whole);
            }
            found.push(machine);
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    fn is_own(&self, labels: &HashMap<String, String>) -> bool {
        labels.get(label::COMPUTER).is_some_and(|mark| mark == "1")
            && labels.get(label::HOST).is_some_and(|host| *host == self.own)
    }

    /// Returns the runtime's description of any container.
    pub async fn inspect(&self, container: &str) -> Result<Inspected, Failure> {
        let path = format!("/containers/{container}/json");
        self.runtime.get(&format!("inspect {container}"), &path).await
    }

    /// Finds a machine by its id.
    pub async fn find(&self, id: &str) -> Result<HostContainer, Failure> {
        if !is_id(id) {
            return Err(no_machine(id));
        }
        let whole = match self.inspect(&self.name(id)).await {
            // The dev-container command line does not choose the names of its containers.
            Err(why) if why.is_missing() => match self.containers(&[(label::ID, id)]).await?.first() {
                Some(row) => self.inspect(&row.id).await,
                None => Err(why),
            },
            other => other,
        };
        let whole = whole.map_err(|why| if why.is_missing() { no_machine(id) } else { why })?;
        let mounted = mounted(&whole);
        let labels = whole.config.labels.unwrap_or_default();
        let (container, image) = (whole.id, whole.config.image);
        let env = whole.config.env.unwrap_or_default();
        if !self.is_own(&labels) || labels.get(label::ID).is_none_or(|own| own != id) {
            return Err(no_machine(id));
        }
        let running = whole.state.running;
        let (id, image) = (id.to_owned(), image.unwrap_or_default());
        Ok(HostContainer { container, id, running, labels, image, mounted, env })
    }

    /// Starts a stopped machine.
    pub async fn start(&self, machine: &HostContainer) -> Result<(), Failure> {
        let what = format!("start {ADDRESS}{}", machine.id);
        self.runtime
            .call(
                &what,
                CHANGE,
                |docker| async move { docker.start_container(&machine.container, None).await },
            )
            .await
    }

    pub async fn stop(&self, machine: &HostContainer) -> Result<(), Failure> {
        let what = format!("stop {ADDRESS}{}", machine.id);
        let options = StopContainerOptionsBuilder::new().t(STOP).build();
        self.runtime
            .call(&what, CHANGE, |docker| async move {
                docker.stop_container(&machine.container, Some(options)).await
            })
            .await
    }

    pub async fn restart(&self, machine: &HostContainer) -> Result<(), Failure> {
        let what = format!("restart {ADDRESS}{}", machine.id);
        let options = RestartContainerOptionsBuilder::new().t(STOP).build();
        self.runtime
            .call(&what, CHANGE, |docker| async move {
                docker.restart_container(&machine.container, Some(options)).await
            })
            .await
    }

    /// Removes a container with its anonymous volumes; a missing one counts as removed.
    pub async fn remove_container(&self, container: &str) -> Result<(), Failure> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let what = format!("remove {container}");
        let removed =
            self.runtime
                .call(&what, CHANGE, |docker| async move {
                    docker.remove_container(container, Some(options)).await
                })
                .await;
        match removed {
            Err(why) if !why.is_missing() => {
                // Tried again later, so that no container remains because the runtime was busy.
                self.leftover.lock().insert(container.to_owned());
                Err(why)
            }
            _ => {
                self.leftover.lock().remove(container);
                Ok(())
            }
        }
    }

    /// Returns the process on this host that runs a process in a machine; starts a stopped machine.
    pub async fn how(&self, computer: &str, process: MachineProcess) -> Result<MachineProcess, Failure> {
        let machine = self.find(id_of(computer)).await?;
        if !machine.running {
            self.start(&machine).await?;
        }
        let DevProcesses { user, workdir, mut env } = match machine.label(label::FOLDER) {
            Some(_) => self.dev_processes(&machine).await?,
            None => DevProcesses::default(),
        };
        env.extend(process.env);
        let own = machine.env.iter().filter_map(|variable| variable.split_once('='));
        let all = own.chain(env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let secrets = all.filter(|(name, value)| is_secret_name(name) && !value.is_empty());
        let secrets = secrets.map(|(_, value)| value.to_owned()).collect();
        let entry = ContainerProcess {
            address: self.runtime.address()?,
            container: machine.container.clone(),
            run: self.run.clone(),
            cwd: process.cwd.or_else(|| machine.label(label::WORKDIR).map(str::to_owned)).or(workdir),
            user,
            env,
            command: [vec![process.program], process.args].concat(),
        };
        let (program, args) = match self.enter.split_first() {
            Some((program, args)) => (program.clone(), args.to_vec()),
            None => return Err(Failure::new(Kind::Failed, "this host has no program that enters a machine")),
        };
        // In the environment, which other users of this host cannot read, because it holds credentials.
        let entry = json!(entry).to_string();
        Ok(MachineProcess {
            program,
            args,
            cwd: Some("/".into()),
            env: [(container_process::VARIABLE.into(), entry)].into(),
            secrets,
        })
    }

    /// Removes remains of ended sessions, of earlier runs of this host, and of failed removals. Returns whether all
    /// were removed.
    pub async fn sweep(&self) -> Result<bool, Failure> {
        let mut whole = true;
        let leftover: Vec<String> = self.leftover.lock().iter().cloned().collect();
        for container in leftover {
            whole &= self.remove_container(&container).await.is_ok();
        }
        let machines = self.list().await?;
        self.end_processes(&machines, Entered::BeforeRun(&self.run)).await;
        for machine in machines {
            let Some(session) = machine.label(label::SESSION) else { continue };
            if machine.label(label::RUN) == Some(&self.run) {
                continue;
            }
            match self.host.session_kept(session.to_owned()).await {
                Ok(true) => {}
                Ok(false) => {
                    let removed = match self.remove_container(&machine.container).await {
                        Ok(()) => self.remove_own_volumes(&machine.id).await,
                        failed => failed,
                    };
                    let outcome = match &removed {
                        Ok(()) => "is removed".to_owned(),
                        Err(why) => format!("could not be removed: {why}"),
                    };
                    let _ = self
                        .host
                        .log(format!("{ADDRESS}{} of {session}, which ended, {outcome}", machine.id));
                    whole &= removed.is_ok();
                }
                Err(_) => whole = false,
            }
        }
        Ok(whole)
    }

    /// Ends processes in machines, because those of a killed host would continue unnoticed.
    async fn end_processes(&self, machines: &[HostContainer], entered: Entered<'_>) {
        let command = entered.end();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let ends = machines.iter().filter(|machine| machine.running).map(|machine| {
            let command = &command;
            async move {
                match self.output(&machine.container, command, &ROOT).await {
                    Err(why) if !why.is_missing() => {
                        self.log(&format!("cannot end the processes in {ADDRESS}{}", machine.id), why);
                    }
                    _ => {}
                }
            }
        });
        futures::stream::iter(ends).for_each_concurrent(ENDED_AT_ONCE, |end| end).await;
    }

    /// Ends the processes of this run of the host.
    pub async fn close(&self) -> Result<(), Failure> {
        if self.runtime.address().is_ok() {
            self.end_processes(&self.list().await?, Entered::InRun(&self.run)).await;
        }
        Ok(())
    }

    /// Logs a failure of work in the background.
    pub fn log(&self, what: &str, why: impl Into<Thrown>) {
        let _ = self.host.log(format!("{what}: {}", why.into().message));
    }
}

fn mounted(whole: &Inspected) -> Vec<MachineMount> {
    let binds = whole.mounts.iter().flatten().filter(|mount| mount.r#type == "bind");
    let mount = |mount: &InspectedMount| MachineMount {
        source: mount.source.clone(),
        target: mount.destination.clone(),
        read_only: !mount.rw,
    };
    binds.map(mount).collect()
}

/// A row of `GET /containers/json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Row {
    /// The runtime's id.
    pub id: String,
    image: Option<String>,
    state: Option<String>,
    labels: Option<HashMap<String, String>>,
}

/// The answer to `GET /containers/{id}/json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Inspected {
    id: String,
    state: State,
    config: Config,
    mounts: Option<Vec<InspectedMount>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    running: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    image: Option<String>,
    labels: Option<HashMap<String, String>>,
    env: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct InspectedMount {
    r#type: String,
    source: String,
    destination: String,
    #[serde(rename = "RW")]
    rw: bool,
}

#[cfg(test)]
mod tests {
    use super::{Inspected, Row};

    /// As Podman 4.3 answers while a container is removed: Docker has no such state.
    #[test]
    fn a_state_that_docker_lacks_is_read() {
        let row = r#"[{"Id":"0e02b9afe04e448c","Names":["/ostler-1-x"],"Image":"localhost/x:latest","Labels":{"ostler.computer":"1"},
            "State":"stopped","Status":"","Mounts":[]}]"#;
        let rows: Vec<Row> = serde_json::from_str(row).unwrap();
        assert_eq!(rows[0].state.as_deref(), Some("stopped"));
        let whole = r#"{"Id":"0e02b9afe04e448c","State":{"Status":"stopped","Running":false},"Config":{"Labels":null},
            "Mounts":[{"Type":"bind","Source":"/a","Destination":"/b","RW":false}]}"#;
        let whole: Inspected = serde_json::from_str(whole).unwrap();
        let mounts = super::mounted(&whole);
        assert_eq!((mounts[0].target.as_str(), mounts[0].read_only), ("/b", true));
    }
}
