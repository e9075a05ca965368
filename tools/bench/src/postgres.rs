//! A PostgreSQL server of the benchmarks: in a temporary folder on the daemon's disk, on a loopback port, with the settings that
//! PostgreSQL has by default.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::failure::{During, Failure, Result};
use super::ostler::folder_on_disk;
use super::process;

/// The variable with the folder of PostgreSQL's programs; `.ci/postgres` sets it.
const PROGRAMS: &str = "OSTLER_TEST_POSTGRES";
/// Where Debian's packages install the programs, one folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The user of the server if this process runs as root, because PostgreSQL does not run as root.
const USER: &str = "postgres";
const PASSWORD: &str = "benchmarks";
/// A key for the vault: 32 bytes as base64.
const VAULT_KEY: &str = "b3N0bGVyLW9zdGxlci1vc3RsZXItb3N0bGVyLWtleSE=";
/// The port of the server is one of these, which the system gives to no other socket by itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A running server. Dropping it stops the server.
pub struct Postgres {
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    /// The process that started all others of the server.
    parent: u32,
}

/// Finds the folder of PostgreSQL's programs.
fn programs() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(PROGRAMS) {
        return Some(folder.into());
    }
    let installed = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = installed.map(|entry| entry.path()).max_by_key(|path| version(path))?;
    let folder = newest.join("bin");
    folder.join("initdb").is_file().then_some(folder)
}

/// Returns whether this process runs as root.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Returns a command that runs as an unprivileged user.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={USER}"))
        .arg(format!("--regid={USER}"))
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}

/// Runs a command; returns its output without the last line break.
fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().during(&program)?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.success() {
        true => Ok(out.trim_end().to_owned()),
        false => Err(Failure::new(format!("{program}: {}{}", out.trim(), err.trim()))),
    }
}

impl Postgres {
    /// Creates a server and starts it; returns `None` if PostgreSQL is not installed.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(root: &Path) -> Result<Option<Self>> {
        let Some(programs) = programs() else { return Ok(None) };
        // Beside the data of the daemon.
        let folder = folder_on_disk(root)?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        if is_root() {
            run(unprivileged(Path::new("test")).arg("-w").arg(folder.path())).map_err(|_| {
                let folder = folder.path().display();
                Failure::new(format!(
                    "{folder} cannot be written by the user {USER}, as which PostgreSQL runs"
                ))
            })?;
        }
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let from = PORTS.start + (std::process::id() % u32::from(PORTS.end - PORTS.start)) as u16;
        let port = (from..PORTS.end).chain(PORTS).find(is_free);
        let port = port.ok_or_else(|| Failure::new("no port is free"))?;
        let mut server = Self { folder, programs, port, parent: 0 };
        fs::write(server.password_file(), PASSWORD)?;
        fs::write(server.vault_key_file(), VAULT_KEY)?;
        fs::write(server.token_file(), "of-the-cluster")?;
        let data = server.data();
        run(unprivileged(&server.programs.join("initdb"))
            .args([
                "--username=ostler",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ])
            .arg("--pwfile")
            .arg(server.password_file())
            .arg("--pgdata")
            .arg(&data))?;
        let settings = format!("-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories=''");
        run(server.control().arg("--log").arg(data.join("server.log")).args([
            "--options",
            &settings,
            "start",
        ]))?;
        let status = fs::read_to_string(data.join("postmaster.pid"));
        // The file belongs to the other user, but root can read it, and without root there is no other user.
        let parent = status?.lines().next().and_then(|line| line.trim().parse().ok());
        server.parent = parent.ok_or_else(|| Failure::new("PostgreSQL does not say which process it is"))?;
        server.psql("postgres", "CREATE DATABASE ostler")?;
        Ok(Some(server))
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn control(&self) -> Command {
        let mut command = unprivileged(&self.programs.join("pg_ctl"));
        command.args(["--wait", "--silent", "--pgdata"]).arg(self.data());
        command
    }

    /// Returns the URL of the database, without the password.
    pub fn url(&self) -> String {
        format!("postgresql://ostler@127.0.0.1:{}/ostler", self.port)
    }

    /// Returns the URL with the password.
    pub fn url_with_password(&self) -> String {
        format!("postgresql://ostler:{PASSWORD}@127.0.0.1:{}/ostler", self.port)
    }

    /// Returns the file with the password.
    pub fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    /// Returns the file with the key of the vault.
    pub fn vault_key_file(&self) -> PathBuf {
        self.folder.path().join("vault.key")
    }

    /// Returns the file with the token of a cluster.
    pub fn token_file(&self) -> PathBuf {
        self.folder.path().join("cluster.token")
    }

    /// Runs SQL; returns unaligned rows.
    ///
    /// # Errors
    /// The error of the database.
    pub fn sql(&self, sql: &str) -> Result<String> {
        self.psql("ostler", sql)
    }

    /// Counts what the tables contain, as the server does within a minute by itself. Before that, it reads tables as a whole that
    /// were empty when it planned a statement.
    ///
    /// # Errors
    /// The error of the database.
    pub fn analyze(&self) -> Result<()> {
        self.sql("VACUUM ANALYZE").map(drop)
    }

    fn psql(&self, database: &str, sql: &str) -> Result<String> {
        run(Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"])
            .args(["--host=127.0.0.1", "--username=ostler", "--command", sql, database])
            .arg(format!("--port={}", self.port))
            .env("PGPASSWORD", PASSWORD))
    }

    /// Returns the CPU time that all processes of the server have used.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn processor_time(&self) -> Result<Duration> {
        process::processor_time_with_children(self.parent)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.control().args(["--mode=immediate", "stop"]).stdin(Stdio::null()).output());
    }
}
