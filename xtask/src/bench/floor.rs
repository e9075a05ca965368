//! The synthetic floors: plain Node servers under `benches/`, and the Rust server in `benches/floor`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::failure::{During, Failure, Result};
use super::ostler;
use super::process::{Output, Process};

/// Node, with what the floors need installed.
pub struct Node {
    folder: PathBuf,
    /// As it says: `v22.0.0`.
    pub version: String,
}

impl Node {
    /// Finds Node and installs what the floors need; nothing where there is no Node.
    ///
    /// # Errors
    /// Where there is a Node and the floors' packages cannot be installed.
    pub fn find(root: &Path) -> Result<Option<Self>> {
        let Ok(said) = Command::new("node").arg("--version").output() else { return Ok(None) };
        if !said.status.success() {
            return Ok(None);
        }
        let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        let folder = root.join("benches");
        let installed = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .status()
            .during("npm ci")?;
        if !installed.success() {
            return Err(Failure::new(format!("npm ci failed in {}", folder.display())));
        }
        Ok(Some(Self { folder, version }))
    }

    /// Starts a floor, with this output kept.
    ///
    /// # Errors
    /// What the system says.
    pub fn spawn(&self, script: &str, arguments: &[&str], output: Output) -> Result<Process> {
        let mut command = Command::new("node");
        command.arg(script).args(arguments).current_dir(&self.folder).env("NODE_ENV", "production");
        Process::spawn(&mut command, output)
    }

    /// Starts a floor and waits until it says where it listens.
    ///
    /// # Errors
    /// What it said instead.
    pub fn start(&self, script: &str, arguments: &[&str]) -> Result<(Process, SocketAddr)> {
        let mut process = self.spawn(script, arguments, Output::Out)?;
        let address = process.wait_for(listens_on)?;
        Ok((process, address))
    }
}

/// The Rust server.
pub struct RustFloor {
    program: PathBuf,
}

/// Where it keeps what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// In a map.
    InMemory,
    /// In SQLite, committed before it answers.
    Durable,
}

impl RustFloor {
    /// Builds it.
    ///
    /// # Errors
    /// Where it does not build.
    pub fn build(root: &Path) -> Result<Self> {
        Ok(Self { program: ostler::build(root, "ostler-floor", "dist")? })
    }

    /// Starts it and waits until it says where it listens; what it keeps goes into `folder`.
    ///
    /// # Errors
    /// What it said instead.
    pub fn start(&self, persistence: Persistence, folder: &Path) -> Result<(Process, SocketAddr)> {
        let mut command = Command::new(&self.program);
        match persistence {
            Persistence::InMemory => command.arg("memory"),
            Persistence::Durable => command.arg("durable").arg(folder),
        };
        let mut process = Process::spawn(&mut command, Output::Out)?;
        let address = process.wait_for(listens_on)?;
        Ok((process, address))
    }
}

fn listens_on(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("floor on ")?.split_once("://")?.1.parse().ok()
}
