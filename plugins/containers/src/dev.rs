//! Dev containers: created by the official command line from a folder's `devcontainer.json`, for sessions and for
//! clients of a host inside.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bollard::container::LogOutput;
use bytes::Bytes;
use futures::StreamExt as _;
use ostler_contract::points::{ContainerEvents, ContainerRequest, Containers, DevContainer, MachineRequest};
use ostler_contract::{Call, Thrown, Value, json};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::archive::{Packed, pack};
use crate::machines::{ADDRESS, HostContainer, Machines, label};
use crate::runtime::{Failure, Kind};

/// The source of a machine that is the dev container of a folder.
pub const SOURCE: &str = "devcontainer://";
/// The limit of the command line: less than the host waits.
const UP: Duration = Duration::from_secs(840);
/// The limit for reporting its version.
const VERSION: Duration = Duration::from_secs(8);
/// The maximum length of a line of the command line, in bytes; the rest of a longer one is dropped.
const LINE: usize = 64 << 10;
/// How many of its last lines are retained for an error.
const LINES: usize = 20;
/// The maximum size of a frame of a host inside, in bytes.
const FRAME: usize = 16 << 20;
/// The maximum number of queued frames to a host inside.
const WAITING: usize = 64;
/// The file with the variables of a session's dev container.
const VARIABLES: &str = "/var/lib/ostler/machine-env.json";
/// The configuration of the host inside.
const CONFIG: &str = "/var/lib/ostler/config.json";
/// The path of the daemon's program.
const INSTALLED: &str = "/opt/ostler/ostler/bin/ostler";

/// The result of the command line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    outcome: String,
    container_id: Option<String>,
    remote_workspace_folder: Option<String>,
    message: Option<String>,
    description: Option<String>,
}

/// A running dev container.
#[derive(Debug)]
struct Up {
    container: String,
    folder: String,
}

/// Returns whether the folder has a dev container.
fn is_described(folder: &Path) -> bool {
    folder.join(".devcontainer/devcontainer.json").exists() || folder.join(".devcontainer.json").exists()
}

/// Reads lines, each up to a limit.
async fn lines(from: impl AsyncRead + Unpin, mut line: impl FnMut(String)) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match (&mut from).take(LINE as u64).read_until(b'\n', &mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                if !text.is_empty() {
                    line(text);
                }
            }
        }
    }
}

impl Machines {
    /// Checks that the runtime and the command line answer.
    pub async fn dev_available(&self) -> bool {
        let runtime =
            self.runtime.call("ask the runtime", VERSION, |docker| async move { docker.ping().await });
        runtime.await.is_ok() && self.command_line().await.is_ok()
    }

    fn cli(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let mut command = Command::new(&self.options.devcontainer.program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        // Podman's program reads the second.
        let address = self.runtime.address()?;
        command.env("DOCKER_HOST", &address).env("CONTAINER_HOST", &address);
        Ok(command)
    }

    async fn command_line(&self) -> Result<(), Failure> {
        let program = &self.options.devcontainer.program;
        let asked = self.cli(&["--version"])?.stdout(Stdio::null()).stderr(Stdio::null()).status();
        match timeout(VERSION, asked).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
                Kind::Failed,
                format_args!(
                    "the dev-container command line {program} is not installed; install it with npm install -g @devcontainers/cli"
                ),
            )),
            _ => Err(Failure::new(
                Kind::Failed,
                format_args!(
                    "the dev-container command line {program} does not run; install it again with npm install -g @devcontainers/cli"
                ),
            )),
        }
    }

    /// Creates the dev container of a folder, or uses the one with the same labels.
    async fn up(
        &self,
        folder: &str,
        labels: &[(&str, String)],
        mounts: &[String],
        mut output: impl FnMut(String) + Send,
    ) -> Result<Up, Failure> {
        if !is_described(Path::new(folder)) {
            let what = format_args!("{folder} has no .devcontainer/devcontainer.json or .devcontainer.json");
            return Err(Failure::new(Kind::Invalid, what));
        }
        self.command_line().await?;
        let mut command = self.cli(&["up", "--workspace-folder", folder])?;
        for (name, value) in labels {
            command.args(["--id-label", &format!("{name}={value}")]);
        }
        for mount in mounts {
            command.args(["--mount", mount]);
        }
        if let Some(docker) = &self.options.devcontainer.docker {
            command.args(["--docker-path", docker]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("make the dev container of {folder}");
        let failed = |why: &dyn std::fmt::Display| Failure::new(Kind::Failed, format_args!("{what}: {why}"));
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let group = child.id();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed(&"it has no output"));
        };
        let (mut last, mut said) = (None, Vec::<String>::new());
        let run = async {
            let results = lines(stdout, |line| {
                if line.starts_with('{') {
                    last = Some(line);
                }
            });
            let logs = lines(stderr, |line| {
                if said.len() == LINES {
                    said.remove(0);
                }
                said.push(line.clone());
                output(line);
            });
            futures::join!(results, logs);
            child.wait().await
        };
        let ended = timeout(UP, run).await;
        if !matches!(&ended, Ok(Ok(_))) {
            end_group(group);
        }
        let status = match ended {
            Ok(status) => status.map_err(|error| failed(&error))?,
            Err(_) => return Err(failed(&format_args!("it took more than {} seconds", UP.as_secs()))),
        };
        let outcome = last.and_then(|line| serde_json::from_str::<Outcome>(&line).ok());
        match outcome {
            Some(Outcome {
                outcome,
                container_id: Some(container),
                remote_workspace_folder: Some(folder),
                ..
            }) if outcome == "success" => Ok(Up { container, folder }),
            Some(outcome) => {
                if let Some(container) = &outcome.container_id {
                    let _ = self.remove_container(container).await;
                }
                let why = outcome.description.or(outcome.message).unwrap_or_default();
                let why: String = why.chars().take(600).collect();
                Err(failed(&why))
            }
            None => {
                let code =
                    status.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
                let said: String =
                    said.last().map(String::as_str).unwrap_or_default().chars().take(600).collect();
                Err(failed(&format_args!("it ended with {code}: {said}")))
            }
        }
    }

    /// Returns the labels that identify a dev container.
    fn dev_labels(&self, folder: &str) -> Vec<(&'static str, String)> {
        vec![
            (label::COMPUTER, "1".to_owned()),
            (label::HOST, self.own.clone()),
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
        let mut labels = self.dev_labels(&folder);
        labels.push((label::ID, id.clone()));
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
                let variables = json!(request.plan.env).to_string();
                let mut filled = self.place(&up.container, VARIABLES, variables.as_bytes()).await;
                let seeds = new.iter().flat_map(|volume| &volume.seed);
                for copy in request.plan.copies.iter().chain(seeds) {
                    if filled.is_ok() {
                        filled = self.copy(&up.container, copy).await;
                    }
                }
                filled
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
        let mut labels = self.dev_labels(folder);
        labels.push((label::ID, id.to_owned()));
        Ok(self.up(folder, &labels, &[], |_| {}).await?.container)
    }

    /// Writes a file that only its owner can read, and creates its directory.
    async fn place(&self, container: &str, path: &str, data: &[u8]) -> Result<(), Failure> {
        let (above, _) = path.rsplit_once('/').unwrap_or(("/", path));
        self.upload(container, "/", pack(vec![Packed::Directory(above.to_owned())])).await?;
        self.write(container, path, data, 0o600).await
    }

    /// Returns the variables that backends need in a dev container.
    pub async fn variables(&self, machine: &HostContainer) -> Result<BTreeMap<String, String>, Failure> {
        if machine.label(label::SESSION).is_none() {
            return Ok(BTreeMap::new());
        }
        if let Some(known) = self.env.lock().get(&machine.container) {
            return Ok(known.clone());
        }
        let file = self.read_file(&machine.container, VARIABLES).await?;
        let env: BTreeMap<String, String> = serde_json::from_slice(&file.bytes)
            .map_err(|error| Failure::new(Kind::Failed, format_args!("{VARIABLES}: {error}")))?;
        self.env.lock().insert(machine.container.clone(), env.clone());
        Ok(env)
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

fn end_group(group: Option<u32>) {
    let group = group.and_then(|group| rustix::process::Pid::from_raw(i32::try_from(group).ok()?));
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
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
    let labels = machines.dev_labels(&folder);
    let output = events.output.clone();
    let up = machines.up(&folder, &labels, &[], move |line| drop(output.call((line,)))).await?;
    let program = machines.install(&up.container).await?;
    let config = json!({ "plugins": machines.options.devcontainer.plugins }).to_string();
    machines.place(&up.container, CONFIG, config.as_bytes()).await?;
    let command = [program.as_str(), "--stdio", "--path", &up.folder, "--config-file", CONFIG];
    let connected = machines.connect(&up.container, &command, true).await?;
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
        if let Ok(found) = self.output(container, &look).await {
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
