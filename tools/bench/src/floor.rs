//! The synthetic floors: plain Node servers under `benches/`, and the Rust server in `benches/floor`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::failure::{During, Failure, Result};
use super::ostler;
use super::process::{Output, Process};

/// Node, with the packages of the floors installed.
pub struct Node {
    folder: PathBuf,
    /// As Node prints it: `v22.0.0`.
    pub version: String,
}

impl Node {
    /// Finds Node and installs the packages of the floors; returns `None` without Node.
    ///
    /// # Errors
    /// Node exists, but the packages cannot be installed.
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

    /// Starts a floor and reads this output.
    ///
    /// # Errors
    /// The system's error.
    pub fn spawn(&self, script: &str, arguments: &[&str], output: Output) -> Result<Process> {
        let mut command = Command::new("node");
        command.arg(script).args(arguments).current_dir(&self.folder).env("NODE_ENV", "production");
        Process::spawn(&mut command, output)
    }

    /// Starts a floor and waits until it prints its address.
    ///
    /// # Errors
    /// Its output instead of an address.
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

/// Where the Rust server stores its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// In a map.
    InMemory,
    /// In SQLite, committed before the response.
    Durable,
}

impl RustFloor {
    /// Builds it.
    ///
    /// # Errors
    /// It does not build.
    pub fn build(root: &Path) -> Result<Self> {
        Ok(Self { program: ostler::build(root, "ostler-floor", "dist")? })
    }

    /// Starts it and waits until it prints its address; it stores its data in `folder`.
    ///
    /// # Errors
    /// Its output instead of an address.
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
