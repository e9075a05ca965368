//! A PostgreSQL server for tests: in a temporary folder, on a loopback port, with a password.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Environment variable with the folder of PostgreSQL's programs (`initdb`, `pg_ctl`, `psql`).
pub const PROGRAMS: &str = "OSTLER_TEST_POSTGRES";
/// The password of the database user, which no output may contain.
pub const PASSWORD: &str = "pass-7Qd2-word";
/// A key for the vault: 32 bytes as base64.
pub const VAULT_KEY: &str = "b3N0bGVyLW9zdGxlci1vc3RsZXItb3N0bGVyLWtleSE=";

/// A running server. Dropping it stops the server.
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

/// Returns a command that runs as the user `postgres` if this process runs as root, because PostgreSQL does not run as
/// root.
fn unprivileged(program: &Path) -> Command {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

/// Returns a free port that the system gives to no other socket by itself, because the server is stopped and started again.
fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let any = || u16::try_from(20_000 + RandomState::new().hash_one(()) % 12_000).unwrap();
    std::iter::repeat_with(any).find(is_free).unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.trim_end().to_owned()
}

impl Postgres {
    /// Creates a cluster with the user and the database `ostler`, and starts it.
    ///
    /// # Panics
    /// PostgreSQL is not installed or does not start.
    pub fn start() -> Self {
        Self::start_in(Path::new("/tmp"))
    }

    /// As [`Self::start`], with a certificate of `localhost`, and another one that is not the server's.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_encrypted() -> Self {
        Self::create(Path::new("/tmp"), true)
    }

    /// As [`Self::start`], with its data in a folder.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_in(folder: &Path) -> Self {
        Self::create(folder, false)
    }

    fn create(folder: &Path, is_encrypted: bool) -> Self {
        let programs =
            std::env::var_os(PROGRAMS).unwrap_or_else(|| panic!("run this test with .ci/postgres"));
        let folder = tempfile::Builder::new().prefix("ostler-postgres").tempdir_in(folder).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let password = folder.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::write(folder.path().join("vault.key"), VAULT_KEY).unwrap();
        let port = free_port();
        let server = Self { folder, programs: programs.into(), port };
        run(unprivileged(&server.programs.join("initdb"))
            .args([
                "--username=ostler",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                // Tests end processes, not computers.
                "--no-sync",
                "--pwfile",
            ])
            .arg(&password)
            .arg("--pgdata")
            .arg(server.data()));
        if is_encrypted {
            server.create_certificates();
        }
        let mut settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{0}'\nmax_connections = 60\n\
             shared_buffers = 32MB\nlog_min_messages = fatal\n",
            server.folder.path().display()
        );
        if is_encrypted {
            let certificate = server.folder.path().join("server.crt");
            settings.push_str(&format!("ssl = on\nssl_cert_file = '{}'\n", certificate.display()));
        }
        let mut file =
            fs::OpenOptions::new().append(true).open(server.data().join("postgresql.conf")).unwrap();
        std::io::Write::write_all(&mut file, settings.as_bytes()).unwrap();
        server.control(&["start"]);
        server.psql("postgres", "CREATE DATABASE ostler");
        server
    }

    /// Creates a streaming standby of this server, and starts it.
    ///
    /// # Panics
    /// It does not start.
    pub fn standby(&self) -> Self {
        let folder = tempfile::Builder::new().prefix("ostler-standby").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let standby = Self { folder, programs: self.programs.clone(), port: free_port() };
        let password = standby.password_file();
        fs::write(&password, PASSWORD).unwrap();
        run(unprivileged(&self.programs.join("pg_basebackup"))
            .args([
                "--host=127.0.0.1",
                "--username=ostler",
                "--checkpoint=fast",
                "--no-sync",
                "--write-recovery-conf",
            ])
            .arg(format!("--port={}", self.port))
            .arg("--pgdata")
            .arg(standby.data())
            .env("PGPASSWORD", PASSWORD));
        // It looks for the log of the server again after 100 ms instead of 5 seconds.
        let settings = format!(
            "port = {}\nunix_socket_directories = '{}'\nwal_retrieve_retry_interval = 100ms\n",
            standby.port,
            standby.folder.path().display()
        );
        let mut file =
            fs::OpenOptions::new().append(true).open(standby.data().join("postgresql.conf")).unwrap();
        std::io::Write::write_all(&mut file, settings.as_bytes()).unwrap();
        standby.control(&["start"]);
        standby
    }

    fn create_certificates(&self) {
        for (name, key) in [("server", "data/server.key"), ("other", "other.key")] {
            // Each certificate has a single name and is not an authority.
            run(unprivileged(Path::new("openssl"))
                .args([
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-subj",
                    "/CN=localhost",
                    "-days",
                    "30",
                ])
                .args([
                    "-addext",
                    "subjectAltName=DNS:localhost",
                    "-addext",
                    "basicConstraints=critical,CA:FALSE",
                ])
                .arg("-keyout")
                .arg(self.folder.path().join(key))
                .arg("-out")
                .arg(self.folder.path().join(format!("{name}.crt"))));
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn control(&self, arguments: &[&str]) {
        let log = self.folder.path().join("data/server.log");
        run(unprivileged(&self.programs.join("pg_ctl"))
            .arg("--pgdata")
            .arg(self.data())
            .arg("--log")
            .arg(log)
            .args(["--wait", "--silent"])
            .args(arguments));
    }

    /// Kills the server's processes as a power failure would, and starts it again.
    pub fn restart_immediately(&self) {
        self.control(&["restart", "--mode=immediate"]);
    }

    /// Stops the server.
    pub fn stop(&self) {
        self.control(&["stop", "--mode=immediate"]);
    }

    /// Starts a stopped server.
    pub fn start_again(&self) {
        self.control(&["start"]);
    }

    /// Starts the server if it has ended by itself.
    pub fn start_unless_running(&self) {
        let status = unprivileged(&self.programs.join("pg_ctl"))
            .args(["status", "--silent", "--pgdata"])
            .arg(self.data())
            .stdin(Stdio::null())
            .output();
        if !status.unwrap().status.success() {
            self.control(&["start"]);
        }
    }

    /// Returns the URL of the database `ostler`, without the password.
    pub fn url(&self) -> String {
        format!("postgresql://ostler@127.0.0.1:{}/ostler", self.port)
    }

    /// Returns the URL over the Unix socket.
    pub fn socket_url(&self) -> String {
        format!("postgresql://ostler@/ostler?host={}&port={}", self.folder.path().display(), self.port)
    }

    /// Returns the file with the password.
    pub fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    /// Returns the file with a key for the vault.
    pub fn key_file(&self) -> PathBuf {
        self.folder.path().join("vault.key")
    }

    /// Runs SQL with `psql`. Returns unaligned rows.
    ///
    /// # Panics
    /// The SQL fails.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        run(&mut self.psql_command(database, sql))
    }

    /// Returns the command that runs SQL.
    pub fn psql_command(&self, database: &str, sql: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"])
            .args(["--host=127.0.0.1", "--username=ostler", "--command", sql, database])
            .arg(format!("--port={}", self.port))
            .env("PGPASSWORD", PASSWORD);
        psql
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = unprivileged(&self.programs.join("pg_ctl"))
            .args(["stop", "--mode=immediate", "--silent", "--pgdata"])
            .arg(self.data())
            .stdin(Stdio::null())
            .output();
    }
}

/// A running PgBouncer in front of a server. Dropping it ends the process.
pub struct Pooler {
    folder: TempDir,
    process: Child,
    psql: PathBuf,
    server: u16,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

impl Pooler {
    /// Starts PgBouncer with the defaults of its package and these lines of its configuration. Returns `None` where it is not
    /// installed.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(server: &Postgres, settings: &str) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .map(Path::new)
            .into_iter()
            .find(|path| path.exists())?;
        let folder = tempfile::Builder::new().prefix("ostler-pgbouncer").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let port = free_port();
        Self::configure(folder.path(), (server.port, port), settings);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = unprivileged(program)
            .arg(folder.path().join("pgbouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let pooler = Self { folder, process, psql: server.programs.join("psql"), server: server.port, port };
        let end = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(pooler.folder.path().join("log")).unwrap();
            assert!(Instant::now() < end, "PgBouncer does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(pooler)
    }

    fn configure(folder: &Path, (server, port): (u16, u16), settings: &str) {
        let text = format!(
            "[databases]\nostler = host=127.0.0.1 port={server} dbname=ostler user=ostler password={PASSWORD}\n\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\nadmin_users = any\n{settings}\n"
        );
        let (file, new) = (folder.join("pgbouncer.ini"), folder.join("new.ini"));
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Replaces the lines of its configuration while it runs.
    ///
    /// # Panics
    /// It has ended.
    pub fn reload(&self, settings: &str) {
        Self::configure(self.folder.path(), (self.server, self.port), settings);
        let port = format!("--port={}", self.port);
        run(Command::new(&self.psql).args([
            "--host=127.0.0.1",
            &port,
            "--command=RELOAD",
            "--username=any",
            "pgbouncer",
        ]));
    }

    /// Returns the URL of the database `ostler` through it.
    pub fn url(&self) -> String {
        format!("postgresql://ostler@127.0.0.1:{}/ostler", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
