//! Dev containers: created by the official command line from a folder's `devcontainer.json`, for sessions and for
//! clients of a host inside.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bollard::container::LogOutput;
use bytes::Bytes;
use futures::StreamExt as _;
use ostler_contract::points::{ContainerEvents, ContainerRequest, Containers, DevContainer, MachineRequest};
use ostler_contract::{Call, Thrown, Value, json};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::archive::{Packed, pack};
use crate::command_line::{LINE, Up, VERSION};
use crate::exec::{ROOT, RunAs};
use crate::hash;
use crate::machines::{ADDRESS, HostContainer, Machines, label};
use crate::runtime::{Failure, Kind};

/// The source of a machine that is the dev container of a folder.
pub const SOURCE: &str = "devcontainer://";
/// The maximum size of a frame of a host inside, in bytes.
const FRAME: usize = 16 << 20;
/// The maximum number of queued frames to a host inside.
const WAITING: usize = 64;
/// The file in a dev container that says how processes are run in it.
const PROCESSES: &str = "/var/lib/ostler/processes.json";
/// The configuration of the host inside.
const CONFIG: &str = "/var/lib/ostler/config.json";
/// The path of the daemon's program.
const INSTALLED: &str = "/opt/ostler/ostler/bin/ostler";

/// How processes of sessions are run in a dev container, by its configuration and the needs of the session's backend.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DevProcesses {
    pub user: Option<String>,
    /// The working directory if the session's directory is not mounted.
    pub workdir: Option<String>,
    /// Variables in addition to those of the container.
    pub env: BTreeMap<String, String>,
}

impl Up {
    fn processes(&self, env: BTreeMap<String, String>) -> DevProcesses {
        let mut all = self.env.clone();
        all.extend(env);
        DevProcesses { user: self.user.clone(), workdir: Some(self.folder.clone()), env: all }
    }
}

impl Machines {
    /// Checks that the runtime and the command line answer.
    pub async fn dev_available(&self) -> bool {
        let runtime =
            self.runtime.call("ask the runtime", VERSION, |docker| async move { docker.ping().await });
        runtime.await.is_ok() && self.command_line().await.is_ok()
    }

    /// Returns the labels that identify a dev container. The command line uses an existing container that has all of
    /// them, so the id distinguishes the containers of a folder.
    fn dev_labels(&self, id: &str, folder: &str) -> Vec<(&'static str, String)> {
        vec![
            (label::COMPUTER, "1".to_owned()),
            (label::HOST, self.own.clone()),
            (label::ID, id.to_owned()),
            (label::FOLDER, folder.to_owned()),
        ]
    }

    /// Creates the dev container of a session, with the needs of its backend.
    pub async fn make_session_dev_container(
        &self,
        request: MachineRequest,
    ) -> Result<(String, String), Thrown> {
        let folder = request.source.strip_prefix(SOURCE).unwrap_or_default();
        let folder = percent_encoding::percent_decode_str(folder).decode_utf8_lossy().into_owned();
        let random = uuid::Uuid::new_v4().simple().to_string();
        let id = format!("dev-{}", &random[..8]);
        let mut labels = self.dev_labels(&id, &folder);
        labels.push((label::SESSION, request.session));
        labels.push((label::AGENTS, request.agents.join(",")));
        labels.push((label::RUN, self.run.clone()));
        let mut mounts = Vec::new();
        for mount in &request.plan.mounts {
            if mount.read_only {
                let what = format!(
                    "a dev container cannot have the read-only mount {}; use a profile",
                    mount.target
                );
                return Err(Failure::new(Kind::Invalid, what).into());
            }
            mounts.push(written("bind", &mount.source, &mount.target)?);
        }
        let mut new = Vec::new();
        for volume in &request.plan.volumes {
            let name = self.name(&volume.name);
            if self.volume(&name).await? {
                new.push(volume);
            }
            mounts.push(written("volume", &name, &volume.target)?);
        }
        // The command line supports no read-only mounts, so each dev container has separate volumes for its parts.
        let parts = self.part_volumes(&request.plan.parts, &format!("-{id}")).await?;
        for part in &parts {
            let (source, target) = (part.source.as_deref(), part.target.as_deref());
            mounts.push(written("volume", source.unwrap_or_default(), target.unwrap_or_default())?);
        }
        let up = self.up(&folder, &labels, &mounts, |_| {}).await;
        let filled = match &up {
            Ok(up) => {
                let plan = &request.plan;
                let seeds: Vec<_> = new.iter().flat_map(|volume| &volume.seed).collect();
                let mut filled = self.record(up, plan.env.clone()).await;
                for copy in plan.copies.iter().chain(seeds) {
                    if filled.is_ok() {
                        filled = self.copy(&up.container, copy).await;
                    }
                }
                let copied = plan.copies.iter().map(|copy| copy.target.as_str());
                let owned: Vec<_> =
                    plan.volumes.iter().map(|volume| volume.target.as_str()).chain(copied).collect();
                match filled {
                    Ok(()) => self.give(&up.container, up.user.as_deref(), &owned).await,
                    failed => failed,
                }
            }
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = filled {
            if let Ok(up) = &up {
                let _ = self.remove_container(&up.container).await;
            }
            for part in parts.iter().filter_map(|part| part.source.as_deref()) {
                let _ = self.remove_volume(part).await;
            }
            return Err(why.into());
        }
        Ok((up?.container, format!("{ADDRESS}{id}")))
    }

    /// Creates a dev container with a name; returns its container.
    pub async fn make_named_dev_container(&self, id: &str, folder: &str) -> Result<String, Failure> {
        let up = self.up(folder, &self.dev_labels(id, folder), &[], |_| {}).await?;
        match self.record(&up, BTreeMap::new()).await {
            Ok(()) => Ok(up.container),
            Err(why) => {
                let _ = self.remove_container(&up.container).await;
                Err(why)
            }
        }
    }

    /// Records how processes are run in a dev container.
    async fn record(&self, up: &Up, env: BTreeMap<String, String>) -> Result<(), Failure> {
        let processes = up.processes(env);
        self.place(&up.container, PROCESSES, json!(processes).to_string().as_bytes()).await?;
        self.dev_processes.lock().insert(up.container.clone(), processes);
        Ok(())
    }

    /// Makes a user of a container the owner of files, which are created as those of root.
    async fn give(&self, container: &str, user: Option<&str>, paths: &[&str]) -> Result<(), Failure> {
        let Some(user) = user.filter(|user| !["root", "0"].contains(user) && !paths.is_empty()) else {
            return Ok(());
        };
        let command = [&["chown", "-R", "--", user], paths].concat();
        self.output(container, &command, &ROOT).await.map(drop)
    }

    /// Writes a file that only its owner can read, and creates its directory.
    async fn place(&self, container: &str, path: &str, data: &[u8]) -> Result<(), Failure> {
        let (above, _) = path.rsplit_once('/').unwrap_or(("/", path));
        self.upload(container, "/", pack(vec![Packed::Directory(above.to_owned())])).await?;
        self.write(container, path, data, 0o600).await
    }

    /// Returns how processes are run in a dev container.
    pub async fn dev_processes(&self, machine: &HostContainer) -> Result<DevProcesses, Failure> {
        if let Some(known) = self.dev_processes.lock().get(&machine.container) {
            return Ok(known.clone());
        }
        let file = self.read_file(&machine.container, PROCESSES).await?;
        let processes: DevProcesses = serde_json::from_slice(&file.bytes)
            .map_err(|error| Failure::new(Kind::Failed, format_args!("{PROCESSES}: {error}")))?;
        self.dev_processes.lock().insert(machine.container.clone(), processes.clone());
        Ok(processes)
    }
}

/// Formats a mount for the command line.
fn written(kind: &str, source: &str, target: &str) -> Result<String, Failure> {
    if source.contains(',') || target.contains(',') {
        let what =
            format_args!("{source} at {target}: a path with a comma cannot be mounted in a dev container");
        return Err(Failure::new(Kind::Invalid, what));
    }
    let external = if kind == "volume" { ",external=true" } else { "" };
    Ok(format!("type={kind},source={source},target={target}{external}"))
}

/// Connections of clients to hosts inside, by their ids.
#[derive(Default)]
struct Relays(Mutex<HashMap<String, mpsc::Sender<Bytes>>>);

/// The provider of dev containers for clients.
pub fn point(machines: &Arc<Machines>) -> Containers {
    let relays = Arc::new(Relays::default());
    let of = || (machines.clone(), relays.clone());
    let ((available, _), (makes, making)) = (of(), of());
    let ((stops, _), (removes, _)) = (of(), of());
    let (writing, ending, closing) = (relays.clone(), relays.clone(), relays.clone());
    Containers {
        available: Call::new(move |()| {
            let machines = available.clone();
            async move { Ok(machines.dev_available().await) }
        }),
        make: Call::new(move |(request, events): (ContainerRequest, ContainerEvents)| {
            let (machines, relays) = (makes.clone(), making.clone());
            async move { Ok(connect(&machines, relays, request, events).await?) }
        }),
        write: Call::new(move |(_, connection, data): (String, String, String)| {
            let send = writing.0.lock().get(&connection).cloned();
            async move {
                let send = send.ok_or_else(|| Thrown::new("the host inside has ended"))?;
                let mut data = data.into_bytes();
                data.push(b'\n');
                send.send(data.into()).await.map_err(|_| Thrown::new("the host inside has ended"))
            }
        }),
        stop: Call::new(move |(container,): (String,)| {
            let machines = stops.clone();
            async move {
                let machine = machines.find_container(&container).await?;
                Ok(machines.stop(&machine).await?)
            }
        }),
        remove: Call::new(move |(container,): (String,)| {
            let machines = removes.clone();
            async move {
                let machine = machines.find_container(&container).await?;
                Ok(machines.remove_container(&machine.container).await?)
            }
        }),
        disconnect: Some(Call::now(move |(_, connection): (String, String)| {
            ending.0.lock().remove(&connection);
            Ok(())
        })),
        close: Some(Call::now(move |()| {
            closing.0.lock().clear();
            Ok(())
        })),
    }
}

async fn connect(
    machines: &Arc<Machines>,
    relays: Arc<Relays>,
    request: ContainerRequest,
    events: ContainerEvents,
) -> Result<DevContainer, Failure> {
    let folder = request.workspace_folder;
    let id = format!("folder-{:016x}", hash(&folder));
    let labels = machines.dev_labels(&id, &folder);
    let output = events.output.clone();
    let up = machines.up(&folder, &labels, &[], move |line| drop(output.call((line,)))).await?;
    machines.record(&up, BTreeMap::new()).await?;
    let program = machines.install(&up.container).await?;
    let config = json!({ "plugins": machines.options.devcontainer.plugins }).to_string();
    machines.place(&up.container, CONFIG, config.as_bytes()).await?;
    machines.give(&up.container, up.user.as_deref(), &[CONFIG]).await?;
    let run_as = RunAs { user: up.user.as_deref(), env: &up.env };
    let command = [program.as_str(), "--stdio", "--path", &up.folder, "--config-file", CONFIG];
    let connected = machines.connect(&up.container, &command, true, &run_as).await?;
    let (send, mut receive) = mpsc::channel::<Bytes>(WAITING);
    relays.0.lock().insert(request.connection.clone(), send);
    let (mut input, mut frames) = (connected.input, connected.output);
    let connection = request.connection;
    tokio::spawn(async move {
        let written = async {
            while let Some(frame) = receive.recv().await {
                if input.write_all(&frame).await.is_err() || input.flush().await.is_err() {
                    break;
                }
            }
            // The host inside ends with its input.
            let _ = input.shutdown().await;
        };
        let shown = async {
            let mut line = Line::default();
            while let Some(Ok(piece)) = frames.next().await {
                let is_output = matches!(piece, LogOutput::StdErr { .. });
                if line.take(&piece.into_bytes(), is_output, &events).is_err() {
                    break;
                }
            }
        };
        tokio::pin!(written);
        tokio::select! {
            () = shown => {}
            // Output after its end is awaited only for a short time.
            () = &mut written => {}
        }
        relays.0.lock().remove(&connection);
        let _ = events.closed.call(());
    });
    Ok(DevContainer {
        id: up.container.chars().take(12).collect(),
        name: request.name,
        remote_workspace_folder: up.folder,
        host_workspace_folder: Some(folder),
    })
}

impl Machines {
    /// Finds a container of this host by the clients' id.
    async fn find_container(&self, container: &str) -> Result<HostContainer, Failure> {
        let found = self.list().await?.into_iter().find(|machine| machine.container.starts_with(container));
        found.ok_or_else(|| {
            Failure::new(Kind::Missing, format_args!("No container at devcontainer:{container}"))
        })
    }

    /// Returns the daemon's program in a container, after copying it if it is missing.
    async fn install(&self, container: &str) -> Result<String, Failure> {
        let look =
            ["/bin/sh", "-c", "command -v ostler || { [ -x \"$1\" ] && echo \"$1\"; }", "look", INSTALLED];
        if let Ok(found) = self.output(container, &look, &ROOT).await {
            return Ok(String::from_utf8_lossy(&found.bytes).trim().to_owned());
        }
        if !self.options.devcontainer.install {
            let what = "the container has no program ostler, and the option devcontainer.install is false";
            return Err(Failure::new(Kind::Failed, what));
        }
        let none = || Failure::new(Kind::Failed, "this host has no program that runs in a container");
        let program = self.enter.first().ok_or_else(none)?;
        let target = INSTALLED.to_owned();
        let copy = ostler_contract::points::MachineCopy { source: program.clone(), target };
        self.copy(container, &copy).await?;
        Ok(INSTALLED.to_owned())
    }
}

/// The line that is being received: a frame or output.
#[derive(Default)]
struct Line {
    frame: Vec<u8>,
    output: Vec<u8>,
}

impl Line {
    /// Handles a piece of output; an error ends the connection.
    fn take(&mut self, piece: &[u8], is_output: bool, events: &ContainerEvents) -> Result<(), Thrown> {
        let (held, limit) = if is_output { (&mut self.output, LINE) } else { (&mut self.frame, FRAME) };
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            held.extend_from_slice(part);
            if held.len() > limit && !is_output {
                return Err(Thrown::new("a frame is too long"));
            }
            if part.ends_with(b"\n") || held.len() > limit {
                let text = String::from_utf8_lossy(held).trim_end().to_owned();
                held.clear();
                let is_frame =
                    !is_output && serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object());
                if is_frame {
                    events.message.call((text,))?;
                } else if !text.is_empty() {
                    events.output.call((text,))?;
                }
            }
        }
        Ok(())
    }
}
