//! The measured daemon: its build, its configuration in a separate folder, its start.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::failure::{During, Failure, Result};
use super::process::{Output, Process};

/// The endpoint that is called.
pub const ENDPOINT: &str = "bench";
/// Its secret.
pub const SECRET: &str = "a-secret-of-forty-characters-or-thereabout";

/// The daemon's program.
pub struct Ostler {
    program: PathBuf,
}

/// A configuration folder with all files that a daemon needs.
pub struct Folder {
    dir: TempDir,
}

impl Ostler {
    /// Builds it with this profile.
    ///
    /// # Errors
    /// It does not build.
    pub fn build_with(root: &Path, profile: &str) -> Result<Self> {
        Ok(Self { program: build(root, "ostler", profile)? })
    }

    /// Uses this program.
    ///
    /// # Errors
    /// It is not there.
    pub fn at(program: &Path) -> Result<Self> {
        match program.is_file() {
            true => Ok(Self { program: program.to_owned() }),
            false => Err(Failure::new(format!("{} is not a program", program.display()))),
        }
    }

    /// Runs a command of it on a folder until it ends.
    ///
    /// # Errors
    /// Its output, if it fails.
    pub fn run(&self, folder: &Folder, arguments: &[&OsStr]) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        let ended =
            Self::on(folder, &mut command).stdin(Stdio::null()).output().during(self.program.display())?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(Failure::new(String::from_utf8_lossy(&ended.stderr).trim())),
        }
    }

    /// Starts it on a folder and reads this output.
    ///
    /// # Errors
    /// The system's error.
    pub fn spawn(&self, folder: &Folder, output: Output) -> Result<Process> {
        Process::spawn(&mut self.command(folder), output)
    }

    fn command(&self, folder: &Folder) -> Command {
        let mut command = Command::new(&self.program);
        Self::on(folder, &mut command);
        command
    }

    fn on<'a>(folder: &Folder, command: &'a mut Command) -> &'a mut Command {
        command
            .arg("--config-file")
            .arg(folder.path().join("config.json"))
            .env("XDG_STATE_HOME", folder.path().join(".state"))
            .current_dir(folder.path())
    }

    /// Starts it on a folder and waits until it prints its address.
    ///
    /// # Errors
    /// Its output instead of an address.
    pub fn start(&self, folder: &Folder) -> Result<(Process, SocketAddr)> {
        Self::listening(self.spawn(folder, Output::Out)?)
    }

    /// Like [`Ostler::start`], with another served directory than the folder.
    ///
    /// # Errors
    /// Its output instead of an address.
    pub fn start_serving(&self, folder: &Folder, directory: &Path) -> Result<(Process, SocketAddr)> {
        let mut command = self.command(folder);
        command.arg("--path").arg(directory);
        Self::listening(Process::spawn(&mut command, Output::Out)?)
    }

    fn listening(mut process: Process) -> Result<(Process, SocketAddr)> {
        let address = process
            .wait_for(|line| line.split(' ').find_map(|word| word.strip_prefix("ws://")?.parse().ok()))?;
        Ok((process, address))
    }
}

/// Builds a package's program with a profile and returns its path.
///
/// # Errors
/// It does not build.
pub fn build(root: &Path, package: &str, profile: &str) -> Result<PathBuf> {
    let built = xtask::cargo::cargo()
        .args(["build", "--profile", profile, "--locked", "--package", package])
        .current_dir(root)
        .status()
        .during("cargo build")?;
    if !built.success() {
        return Err(Failure::new(format!("{package} does not build")));
    }
    let target = xtask::cargo::target(root);
    Ok(target.join(profile).join(format!("{package}{}", std::env::consts::EXE_SUFFIX)))
}

/// Returns a call of an endpoint with this token and body.
pub fn call(address: SocketAddr, endpoint: &str, token: &str, body: &str) -> String {
    format!(
        "POST /plugins/webhook/{endpoint} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Creates a temporary folder in cargo's target folder, which is on a disk; the system's temporary folder may be in memory.
///
/// # Errors
/// The system's error.
pub fn folder_on_disk(root: &Path) -> Result<TempDir> {
    let on_disk = root.join(xtask::cargo::target(root));
    // There is none yet if this program and the one under test were compiled elsewhere.
    fs::create_dir_all(&on_disk).during(on_disk.display())?;
    tempfile::Builder::new().prefix("bench-").tempdir_in(&on_disk).during(on_disk.display())
}

impl Folder {
    /// Creates a folder with these plugins.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(root: &Path, plugins: &[Value]) -> Result<Self> {
        let folder = Self { dir: folder_on_disk(root)? };
        // Coalescing is off, so that both sides send the same number of deltas.
        let config = json!({ "port": 0, "deltaWindowMs": 0, "plugins": plugins });
        folder.write("config.json", &config.to_string())?;
        Ok(folder)
    }

    /// Creates a folder with the echo backend, an endpoint without listening automations, and a plugin in TypeScript.
    ///
    /// # Errors
    /// The system's error.
    pub fn usual(root: &Path) -> Result<Self> {
        let folder = Self::new(
            root,
            &[
                json!({ "name": "@ostler/echo" }),
                json!({ "name": "@ostler/webhook" }),
                json!({ "name": "./push-notes.ts" }),
            ],
        )?;
        folder.copy(&root.join("examples/plugins/push-notes.ts"), "push-notes.ts")?;
        folder.endpoint(ENDPOINT, "automation: true")?;
        folder.write("vault.json", &json!({ format!("host:{ENDPOINT}"): SECRET }).to_string())?;
        private(&folder.path().join("vault.json"))?;
        Ok(folder)
    }

    /// Adds an endpoint with the common secret: `fields` are further lines of its record.
    ///
    /// # Errors
    /// The system's error.
    pub fn endpoint(&self, id: &str, fields: &str) -> Result<()> {
        let record = format!("---\nid: {id}\n{fields}\nsecret: host:{ENDPOINT}\n---\n");
        self.write(&format!("webhooks/{id}.md"), &record)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Copies a file into it.
    ///
    /// # Errors
    /// The system's error.
    pub fn copy(&self, from: &Path, name: &str) -> Result<()> {
        fs::copy(from, self.path().join(name)).map(drop).during(from.display())
    }

    /// Writes a file into it.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).during(parent.display())?;
        }
        fs::write(&path, text).during(path.display())
    }
}

#[cfg(unix)]
fn private(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).during(path.display())
}

#[cfg(not(unix))]
fn private(_: &Path) -> Result<()> {
    Ok(())
}
