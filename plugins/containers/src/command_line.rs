//! The official dev-container command line: its start, its result and its errors.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ostler_processes::ChildKind;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::machines::Machines;
use crate::options::DevContainers;
use crate::runtime::{Failure, Kind};

/// The limit of the command line: less than the host waits.
const UP: Duration = Duration::from_secs(840);
/// The limit for reporting its version.
pub const VERSION: Duration = Duration::from_secs(8);
/// The maximum length of a line of its log, in bytes; a longer one becomes several.
pub const LINE: usize = 64 << 10;
/// The maximum length of its result, in bytes: it contains the configuration of the image and of the folder.
const RESULT: usize = 4 << 20;
/// How many of its last lines are retained for an error.
const LINES: usize = 20;
/// How many of them are in an error: the command that failed, and what it printed last.
const SHOWN: usize = 2;
/// The maximum length of a text in an error, in characters.
const TEXT: usize = 400;

/// The result of the command line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    outcome: String,
    container_id: Option<String>,
    remote_user: Option<String>,
    remote_workspace_folder: Option<String>,
    #[serde(default)]
    merged_configuration: Merged,
    message: Option<String>,
    description: Option<String>,
}

/// The configuration of a dev container after its variables were replaced.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Merged {
    /// A variable without a value is not set.
    remote_env: BTreeMap<String, Option<String>>,
}

/// A running dev container.
#[derive(Debug)]
pub struct Up {
    /// The runtime's id.
    pub container: String,
    /// The folder in the container.
    pub folder: String,
    /// The user of its processes, if it is not that of the container.
    pub user: Option<String>,
    /// The variables of its processes in addition to those of the container.
    pub env: BTreeMap<String, String>,
}

/// Returns whether the folder has a dev container.
fn is_described(folder: &Path) -> bool {
    folder.join(".devcontainer/devcontainer.json").exists() || folder.join(".devcontainer.json").exists()
}

/// Reads lines; one that is longer than the limit becomes several.
async fn lines(from: impl AsyncRead + Unpin, limit: usize, mut line: impl FnMut(String)) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match (&mut from).take(limit as u64).read_until(b'\n', &mut bytes).await {
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

/// Returns whether a program can be started by its name or path.
fn is_installed(program: &str, path: &OsStr) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    std::env::split_paths(path).any(|folder| folder.join(program).is_file())
}

/// Returns the docker-compatible program for a runtime: the configured one, or the one that belongs to the runtime.
///
/// # Errors
/// It is not installed.
fn docker_program(options: &DevContainers, address: &str, path: &OsStr) -> Result<String, Failure> {
    let is_podman = address.rsplit('/').next().is_some_and(|name| name.contains("podman"));
    let by_preference = if is_podman { ["podman", "docker"] } else { ["docker", "podman"] };
    let missing = match &options.docker {
        Some(program) if is_installed(program, path) => return Ok(program.clone()),
        Some(program) => {
            format!("the program {program} of the option devcontainer.docker is not installed; install it")
        }
        None => match by_preference.iter().find(|program| is_installed(program, path)) {
            Some(program) => return Ok((*program).to_owned()),
            None => format!(
                "the dev-container command line runs a program docker or podman, and neither is installed; install {}, or \
                 name a program in the option devcontainer.docker",
                by_preference[0]
            ),
        },
    };
    Err(Failure::new(Kind::Failed, missing))
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

/// Returns a line of the log without its time.
fn without_time(line: &str) -> &str {
    line.strip_prefix('[').and_then(|rest| rest.split_once("Z] ")).map_or(line, |(_, text)| text).trim()
}

/// Returns the reason of a failure: what the command line reports, and the last lines of its log before that.
fn reason(outcome: &Outcome, log: &[String]) -> String {
    let description = outcome.description.as_deref().unwrap_or_default().trim_end_matches('.');
    let message = outcome.message.as_deref().unwrap_or_default();
    let first = message.lines().next().unwrap_or_default();
    let reported = format!("Error: {first}");
    let end = log.iter().rposition(|line| *line == reported).unwrap_or(log.len());
    let mut texts = vec![description.to_owned()];
    if first.trim_end_matches('.') != description {
        texts.push(shortened(first));
    }
    let shown = log[..end].iter().map(|line| without_time(line)).filter(|line| {
        let is_said = texts.iter().any(|text| line.starts_with(text.as_str()));
        !is_said && line.contains(char::is_alphabetic) && !line.starts_with("@devcontainers/cli ")
    });
    let shown: Vec<&str> = shown.collect();
    let shown: Vec<String> =
        shown[shown.len().saturating_sub(SHOWN)..].iter().map(|l| shortened(l)).collect();
    if !shown.is_empty() {
        texts.push(shown.join("; "));
    }
    texts.retain(|text| !text.is_empty());
    texts.join(": ")
}

fn end_group(group: Option<u32>) {
    let group = group.and_then(|group| rustix::process::Pid::from_raw(i32::try_from(group).ok()?));
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

impl Machines {
    fn cli(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let mut command = Command::from(ChildKind::Helper.command(&self.options.devcontainer.program));
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        // Podman's program reads the second.
        let address = self.runtime.address()?;
        command.env("DOCKER_HOST", &address).env("CONTAINER_HOST", &address);
        Ok(command)
    }

    /// Checks that the command line and the program that it runs are installed, and returns that program.
    pub async fn command_line(&self) -> Result<String, Failure> {
        let program = &self.options.devcontainer.program;
        let asked = self.cli(&["--version"])?.stdout(Stdio::null()).stderr(Stdio::null()).status();
        match timeout(VERSION, asked).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Failure::new(
                    Kind::Failed,
                    format_args!(
                        "the dev-container command line {program} is not installed; install it with npm install -g @devcontainers/cli"
                    ),
                ));
            }
            _ => {
                return Err(Failure::new(
                    Kind::Failed,
                    format_args!(
                        "the dev-container command line {program} does not run; install it again with npm install -g @devcontainers/cli"
                    ),
                ));
            }
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        docker_program(&self.options.devcontainer, &self.runtime.address()?, &path)
    }

    /// Creates the dev container of a folder, or uses the one with the same labels.
    pub async fn up(
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
        let docker = self.command_line().await?;
        let before = self.containers(&[]).await?;
        let mut command = self.cli(&["up", "--workspace-folder", folder, "--docker-path", &docker])?;
        command.arg("--include-merged-configuration");
        for (name, value) in labels {
            command.args(["--id-label", &format!("{name}={value}")]);
        }
        for mount in mounts {
            command.args(["--mount", mount]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("make the dev container of {folder}");
        let failed = |why: &dyn std::fmt::Display| Failure::new(Kind::Failed, format_args!("{what}: {why}"));
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let group = child.id();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed(&"it has no output"));
        };
        let (mut last, mut log) = (None, Vec::<String>::new());
        let run = async {
            let results = lines(stdout, RESULT, |line| {
                if line.starts_with('{') {
                    last = Some(line);
                }
            });
            let logs = lines(stderr, LINE, |line| {
                // A stack trace would displace the reason.
                if !line.starts_with("    at ") {
                    if log.len() == LINES {
                        log.remove(0);
                    }
                    log.push(line.clone());
                }
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
                remote_user: user,
                merged_configuration,
                ..
            }) if outcome == "success" => {
                let set = merged_configuration.remote_env.into_iter();
                let env = set.filter_map(|(name, value)| Some((name, value?))).collect();
                Ok(Up { container, folder, user, env })
            }
            Some(outcome) => {
                // A container that existed before contains what its users made.
                if let Some(container) = &outcome.container_id
                    && !before.iter().any(|row| row.id == *container)
                {
                    let _ = self.remove_container(container).await;
                }
                Err(failed(&reason(&outcome, &log)))
            }
            None => {
                let code =
                    status.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
                let said = shortened(log.last().map(|line| without_time(line)).unwrap_or_default());
                Err(failed(&format_args!("it ended with {code}: {said}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(message: &str, description: &str, log: &str) -> String {
        let outcome =
            serde_json::json!({ "outcome": "error", "message": message, "description": description });
        let log: Vec<String> = log.lines().map(str::to_owned).collect();
        reason(&serde_json::from_value(outcome).unwrap(), &log)
    }

    /// As version 0.89.0 reports them.
    #[test]
    fn an_error_contains_its_cause() {
        let log = "[2026-11-26T20:52:10.595Z] about to fail\n\
                   [2026-11-26T20:52:10.761Z] Error: building at STEP \"RUN exit 3\": exit status 3\n\
                   Error: Command failed: podman build -f x\ntrap \"exit 0\" 15";
        assert_eq!(
            failure(
                "Command failed: podman build -f x\ntrap \"exit 0\" 15",
                "An error occurred building the image.",
                log
            ),
            "An error occurred building the image: Command failed: podman build -f x: about to fail; Error: building at STEP \
             \"RUN exit 3\": exit status 3"
        );
        let log = "[2026-11-26T20:52:23.253Z] @devcontainers/cli 0.89.0. Node.js v20.20.2. linux x64.\n\
                   Error: x is missing one of \"image\" properties.";
        let message = "x is missing one of \"image\" properties.";
        assert_eq!(failure(message, message, log), "x is missing one of \"image\" properties");
        assert_eq!(failure("", "", ""), "");
    }

    #[test]
    fn the_program_is_that_of_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().as_os_str();
        let options = |docker: Option<&str>| DevContainers {
            docker: docker.map(str::to_owned),
            ..DevContainers::default()
        };
        let program = |docker, address| docker_program(&options(docker), address, path);
        let (of_docker, of_podman) = ("unix:///var/run/docker.sock", "unix:///run/podman/podman.sock");
        let none = program(None, of_podman).unwrap_err().message;
        assert!(none.contains("neither is installed; install podman"), "{none}");
        std::fs::write(folder.path().join("podman"), "").unwrap();
        assert_eq!(program(None, of_docker).unwrap(), "podman");
        std::fs::write(folder.path().join("docker"), "").unwrap();
        assert_eq!(program(None, of_docker).unwrap(), "docker");
        assert_eq!(program(None, of_podman).unwrap(), "podman");
        assert_eq!(program(Some("docker"), of_podman).unwrap(), "docker");
        let named = program(Some("nerdctl"), of_docker).unwrap_err().message;
        assert!(named.contains("nerdctl of the option devcontainer.docker is not installed"), "{named}");
    }
}
