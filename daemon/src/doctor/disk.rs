//! Checks of this machine: directories, port and clock.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use ostler_engine::users::UsersFile;
use ostler_ports::{DiskProbe, FileVault, StateDb, free_space};

use super::Check;
use crate::address_problem::AddressProblem;
use crate::api::cluster_shapes::{ClusterStatus, Ready};
use crate::client::Connection;
use crate::config::{ConfigFiles, Folders};
use crate::daemon_file::Record;
use crate::exit::Exit;
use crate::remote::Remote;
use crate::settings::{Http, Settings};
use crate::token::TokenSource;
use crate::users_file::UsersOnDisk;

/// How far a file's time can be ahead of the clock.
const AHEAD: i64 = 5 * 60;
/// The prefix of files that are created only to check that this is possible.
const PREFIX: &str = ".ostler-doctor";
/// The free space below which a warning is due.
const SCARCE: u64 = 100 << 20;
/// How long the running daemon may take to answer whether it is ready.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// Checks the configuration and state folders, and the served directories.
pub(super) fn directories(folders: &Folders, settings: Option<&Settings>) -> Vec<Check> {
    const WHAT: &str = "directories";
    let mut checks = Vec::new();
    let Folders { config, state } = folders;
    let state = Some((state, "XDG_STATE_HOME")).filter(|(state, _)| *state != config);
    for (folder, variable) in std::iter::once((config, "XDG_CONFIG_HOME")).chain(state) {
        let shown = folder.display();
        if !folder.exists() {
            checks.push(match can_be_created(folder) {
                Ok(()) => Check::ok(WHAT, format!("{shown} will be created at the first start")),
                Err(error) => Check::error(
                    WHAT,
                    format!("{shown} cannot be created: {error}"),
                    format!("choose another folder with {variable}"),
                ),
            });
            continue;
        }
        checks.push(writable(folder));
        if others_may(folder, 0o022) {
            checks.push(Check::warning(
                WHAT,
                format!("{shown} is writable by other users of this computer"),
                format!("chmod go-w {shown}"),
            ));
        }
    }
    let vault = config.join(FileVault::FILE);
    if others_may(&vault, 0o077) {
        checks.push(Check::error(
            WHAT,
            format!("{} is readable by other users of this computer", vault.display()),
            format!("chmod 600 {}", vault.display()),
        ));
    }
    if let Some(settings) = settings {
        for path in &settings.paths {
            match fs::read_dir(path) {
                Ok(_) => checks.push(Check::ok(WHAT, format!("{path} is served"))),
                Err(error) => checks.push(Check::error(
                    WHAT,
                    format!("{path} is served but cannot be read: {error}"),
                    "serve another directory with \"paths\" in the configuration, or --path",
                )),
            }
        }
    }
    checks
}

/// Checks that a file can be written in a folder, and the free space.
fn writable(folder: &Path) -> Check {
    const WHAT: &str = "directories";
    let shown = folder.display();
    if let Err(error) = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder)
        && error.kind() == ErrorKind::PermissionDenied
    {
        return Check::error(
            WHAT,
            format!("{shown} is not writable: {}", error.kind()),
            format!("take ownership: chown -R $(id -u) {shown}"),
        );
    }
    let free = free_space(folder);
    let left = free.map(|free| format!("{} MiB free", free >> 20));
    match DiskProbe::new([folder.to_owned()]).write() {
        Err(why) => {
            Check::error(WHAT, why, "nothing is stored, and the daemon does not start, until this is done")
        }
        Ok(()) if free.is_some_and(|free| free < SCARCE) => Check::warning(
            WHAT,
            format!("{shown} can be written, but has only {}", left.unwrap_or_default()),
            "free some space; nothing can be stored on a full disk",
        ),
        Ok(()) => {
            let left = left.map(|left| format!(", {left}")).unwrap_or_default();
            Check::ok(WHAT, format!("{shown} can be written{left}"))
        }
    }
}

/// Asks the running daemon whether it serves clients.
pub(super) async fn ready(record: &Record) -> Option<Check> {
    let remote = Remote::here(record).ok()?;
    let asked = tokio::time::timeout(READY_WITHIN, remote.get::<Ready>("/api/ready")).await;
    let why = match asked {
        Ok(Ok(_)) => return None,
        Ok(Err(why)) => why.to_string(),
        Err(_) => format!("no answer within {} seconds", READY_WITHIN.as_secs()),
    };
    let found = format!("the running daemon is not ready: {why}");
    Some(Check::error("state", found, "it accepts no new work until this is over; see ostler logs"))
}

/// Says which hosts of the cluster of the running daemon can be reached. Those that cannot are problems of the daemon.
pub(super) async fn cluster(record: &Record) -> Option<Check> {
    let remote = Remote::here(record).ok()?;
    let asked = tokio::time::timeout(READY_WITHIN, remote.get::<ClusterStatus>("/api/cluster")).await;
    // A host without a cluster answers with an error; one that does not answer is reported as not ready.
    let status = asked.ok()?.ok()?;
    if status.hosts.iter().any(|host| host.unreachable.is_some()) {
        return None;
    }
    let others = status.hosts.iter().filter(|host| host.alive && !host.here).count();
    let others = format!("{others} other host{}", if others == 1 { "" } else { "s" });
    Some(Check::ok("cluster", format!("{} and {others} can be reached", status.host)))
}

/// Returns why a missing folder cannot be created in its nearest existing parent, if it cannot.
fn can_be_created(folder: &Path) -> Result<(), ErrorKind> {
    let above = folder.ancestors().find(|above| fs::symlink_metadata(above).is_ok()).unwrap_or(folder);
    let created = tempfile::Builder::new().prefix(PREFIX).tempdir_in(above);
    // Without the name of the test file.
    created.map(drop).map_err(|error| error.kind())
}

/// Checks the state database that a start opens.
pub(super) fn state(folders: &Folders, settings: &Settings) -> Option<Check> {
    const WHAT: &str = "state";
    if !settings.needs_state_db() {
        return None;
    }
    match StateDb::examine(&folders.config, &folders.state) {
        Ok(found) => found.map(|path| Check::ok(WHAT, format!("{} can be opened", path.display()))),
        Err(why) => {
            Some(Check::error(WHAT, why.message, "the daemon will refuse to start until this is done"))
        }
    }
}

/// Checks the file of the connection token.
pub(super) fn token(source: &TokenSource) -> Option<Check> {
    const WHAT: &str = "token";
    let TokenSource::File(file) = source else { return None };
    let fix = "correct connectionTokenFile in the configuration";
    let created = |missing: &Path| match can_be_created(missing.parent().unwrap_or(missing)) {
        Ok(()) => Check::ok(WHAT, format!("{} will be created at the first start", missing.display())),
        Err(error) => Check::error(WHAT, format!("{} cannot be created: {error}", missing.display()), fix),
    };
    Some(match source.missing() {
        Ok(Some(missing)) => created(missing),
        Ok(None) => Check::ok(WHAT, format!("{} has one", file.display())),
        Err(why) => Check::error(WHAT, why.to_string(), format!("remove the file, or {fix}")),
    })
}

/// Checks the users file, and reports ignored values.
pub(super) fn users(file: &Path) -> Vec<Check> {
    const WHAT: &str = "users";
    let (users, shown) = (UsersOnDisk::new(file.to_owned()), file.display());
    if let Some(absent) = users.absent() {
        return vec![Check::warning(WHAT, absent, "create it, or correct \"users\" in the configuration")];
    }
    content(&shown.to_string(), users.read(), "correct the file")
}

/// Reports ignored values of users from a place.
pub(super) fn content(place: &str, read: Result<UsersFile, String>, fix: &str) -> Vec<Check> {
    const WHAT: &str = "users";
    match read.and_then(|read| read.directory()) {
        Ok((_, ignored)) if ignored.is_empty() => vec![Check::ok(WHAT, format!("{place} can be read"))],
        Ok((_, ignored)) => {
            ignored.into_iter().map(|line| Check::warning(WHAT, format!("{place}: {line}"), fix)).collect()
        }
        Err(why) => vec![Check::error(WHAT, format!("{why}; no user can sign in"), fix)],
    }
}

#[cfg(unix)]
fn others_may(path: &Path, bits: u32) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits != 0)
}

#[cfg(not(unix))]
fn others_may(_: &Path, _: u32) -> bool {
    false
}

/// Checks the addresses of a start, or the running daemon.
pub(super) async fn port(
    settings: Option<&Settings>,
    running: Option<&Record>,
    daemon: Option<&Result<Connection, Exit>>,
) -> Vec<Check> {
    const WHAT: &str = "port";
    if let Some(record) = running {
        return vec![match daemon {
            Some(Err(why)) => Check::error(
                WHAT,
                format!("pid {} is running but does not respond: {why}", record.pid),
                "check it with ostler logs, or restart it with ostler restart",
            ),
            _ => Check::ok(WHAT, format!("{} (pid {}) responds", record.url, record.pid)),
        }];
    }
    let Some(settings) = settings else { return Vec::new() };
    let mut addresses = vec![settings.address];
    addresses.extend(settings.routes);
    addresses.extend(match settings.http {
        Some(Http::At(address)) => Some(address),
        _ => None,
    });
    let mut checks = Vec::new();
    for address in addresses {
        checks.push(free(WHAT, address).await);
    }
    checks
}

async fn free(what: &'static str, address: SocketAddr) -> Check {
    match tokio::net::TcpListener::bind(address).await {
        Ok(_) if address.port() == 0 => Check::ok(what, format!("a free port on {}", address.ip())),
        Ok(_) => Check::ok(what, format!("{address} is free")),
        Err(error) => {
            let AddressProblem { found, fix } = AddressProblem::of(address, &error);
            Check::error(what, format!("cannot listen on {found}"), fix)
        }
    }
}

/// Checks that the clock is not behind existing files, because signatures and tokens depend on it.
pub(super) fn clock(files: Option<&ConfigFiles>) -> Check {
    const WHAT: &str = "clock";
    let now = Timestamp::now();
    let own = std::env::current_exe().ok();
    let known = files.into_iter().flat_map(|files| &files.files).chain(&own);
    let ahead = known.into_iter().find_map(|file| {
        let written = Timestamp::try_from(fs::metadata(file).ok()?.modified().ok()?).ok()?;
        (written.as_second() > now.as_second() + AHEAD).then(|| (file.display().to_string(), written))
    });
    match ahead {
        None => Check::ok(WHAT, now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        Some((file, written)) => Check::warning(
            WHAT,
            format!(
                "the clock shows {now}, but {file} was written at {written}; signature checks and sign-ins may fail"
            ),
            "set the clock: timedatectl set-ntp true",
        ),
    }
}
