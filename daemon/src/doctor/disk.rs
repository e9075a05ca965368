//! What a daemon finds on this machine: its directories, its port and the clock.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use jiff::Timestamp;
use ostler_ports::FileVault;

use super::Check;
use crate::client::Connection;
use crate::config::{ConfigFiles, Folders};
use crate::exit::Exit;
use crate::record::Record;
use crate::settings::{Http, Settings};

/// How far ahead of the clock a file may be.
const AHEAD: i64 = 5 * 60;

/// The configuration and state folders, and the directories served.
pub(super) fn directories(folders: &Folders, settings: Option<&Settings>) -> Vec<Check> {
    const WHAT: &str = "directories";
    let mut checks = Vec::new();
    let Folders { config, state } = folders;
    for folder in std::iter::once(config).chain(Some(state).filter(|state| *state != config)) {
        let shown = folder.display();
        if !folder.exists() {
            checks.push(Check::ok(WHAT, format!("{shown} will be created at the first start")));
            continue;
        }
        match tempfile::Builder::new().prefix(".ostler-doctor").tempfile_in(folder) {
            Ok(_) => checks.push(Check::ok(WHAT, format!("{shown} can be written"))),
            Err(error) => checks.push(Check::error(
                WHAT,
                format!("{shown} is not writable: {error}"),
                format!("take ownership: chown -R $(id -u) {shown}"),
            )),
        }
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

#[cfg(unix)]
fn others_may(path: &Path, bits: u32) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits != 0)
}

#[cfg(not(unix))]
fn others_may(_: &Path, _: u32) -> bool {
    false
}

/// The addresses a start listens on, or the daemon that runs.
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
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Check::error(
            what,
            format!("{address} is in use by another program"),
            format!(
                "stop it (find it with ss -ltnp 'sport = :{}'), or choose another port with \"port\" in the configuration or --port",
                address.port()
            ),
        ),
        Err(error) => Check::error(
            what,
            format!("cannot listen on {address}: {error}"),
            "choose another address with \"host\" and \"port\" in the configuration, or --host and --port",
        ),
    }
}

/// Whether the clock is behind what was written already: signatures and tokens depend on it.
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
