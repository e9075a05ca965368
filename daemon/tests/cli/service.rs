//! The service manager: what it is notified of, and the listeners that it passes, with the real program.

#![cfg(unix)]

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, LIMIT, Signal, ended, wait_for};
use serde_json::json;

fn echo() -> Folder {
    Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }))
}

/// A socket that receives notifications, as a service manager has one.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, folder }
    }

    fn managed(&self, mut command: Command) -> Command {
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("a notification in time");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// The next notification that has this line.
    fn next_with(&self, line: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let seen = self.next();
            if seen.lines().any(|seen| seen == line) {
                return seen;
            }
            assert!(Instant::now() < end, "{line} never comes");
        }
    }
}

#[tokio::test]
async fn it_notifies_of_readiness_and_of_the_end() {
    let (folder, manager) = (echo(), Manager::new());
    let daemon = folder.started(manager.managed(folder.command(&[])));
    let ready = manager.next();
    let serves = format!("STATUS=serving {}", daemon.url);
    assert_eq!(ready.lines().collect::<Vec<_>>(), ["READY=1", serves.as_str()]);
    drop(daemon.initialized("client").await);
    daemon.signal(Signal::TERM);
    assert_eq!(manager.next().lines().collect::<Vec<_>>(), ["STOPPING=1", "STATUS=stopping"]);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_start_that_fails_is_the_status() {
    let (folder, manager) = (Folder::new(json!({})), Manager::new());
    assert_eq!(ended(&mut manager.managed(folder.command(&[]))).code, Some(1));
    let status = manager.next();
    assert!(status.starts_with("STATUS=No backend is loaded"), "{status}");
}

#[test]
fn the_watchdog_is_fed_at_half_of_its_interval() {
    let (folder, manager) = (echo(), Manager::new());
    let mut command = manager.managed(folder.command(&[]));
    command.env("WATCHDOG_USEC", "1000000");
    let daemon = folder.started(command);
    manager.next_with("READY=1");
    manager.next_with("WATCHDOG=1");
    let begun = Instant::now();
    for _ in 0..4 {
        manager.next_with("WATCHDOG=1");
    }
    assert!(begun.elapsed() >= Duration::from_millis(1500), "too often: {:?}", begun.elapsed());
    // Of another process: nothing is sent for it.
    drop(daemon);
    let manager = Manager::new();
    let mut command = manager.managed(folder.command(&[]));
    command.env("WATCHDOG_USEC", "20000").env("WATCHDOG_PID", "1");
    let daemon = folder.started(command);
    manager.next_with("READY=1");
    daemon.signal(Signal::TERM);
    assert_eq!(manager.next().lines().next(), Some("STOPPING=1"));
}

#[test]
fn a_reload_restarts_in_the_same_process() {
    let (folder, manager) = (echo(), Manager::new());
    let daemon = folder.started(manager.managed(folder.command(&[])));
    manager.next_with("READY=1");
    daemon.signal(Signal::HUP);
    let reloading = manager.next();
    let mut lines = reloading.lines();
    assert_eq!(lines.next(), Some("RELOADING=1"));
    assert!(lines.next().is_some_and(|line| line.starts_with("MONOTONIC_USEC=")), "{reloading}");
    manager.next_with("READY=1");
    assert_eq!(daemon.stop(), Some(0));
}

/// A command that has a descriptor as number 3, as a service manager passes it.
fn with_descriptor(command: &Command, descriptor: OwnedFd, names: Option<&str>) -> Command {
    let script = r#"export LISTEN_PID=$$ LISTEN_FDS=1; exec 3<&0 0</dev/null; exec "$@""#;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(command.get_current_dir().unwrap());
    if let Some(names) = names {
        shell.env("LISTEN_FDNAMES", names);
    }
    shell.stdin(Stdio::from(descriptor)).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[tokio::test]
async fn a_passed_listener_takes_the_place_of_the_address() {
    let (folder, manager) = (echo(), Manager::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A client that comes before the daemon waits in the socket.
    let early = TcpStream::connect(address).unwrap();
    // Another program has the port that is configured.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let command = manager.managed(folder.command(&["--port", &port]));
    let daemon = folder.started_as_is(with_descriptor(&command, listener.into(), Some("ostler.socket")));
    assert_eq!(daemon.url, format!("ws://{address}"));
    drop(early);
    drop(daemon.initialized("client").await);
    // It is there after a restart in the process, too.
    manager.next_with("READY=1");
    daemon.signal(Signal::HUP);
    manager.next_with("RELOADING=1");
    manager.next_with("READY=1");
    drop(daemon.initialized("client").await);
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_listener_is_passed_by_name() {
    let folder = echo();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let command = folder.command(&["--connection-token", "secret"]);
    let refused = ended_as_is(with_descriptor(&command, listener.into(), Some("http")));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("a listener for the HTTP API, which is off"), "{}", refused.err);
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }], "http": true }));
    // Another port: a test beside this one may have taken the first.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let command = folder.command(&["--connection-token", "secret"]);
    let daemon = folder.started_as_is(with_descriptor(&command, listener.into(), Some("http")));
    assert_ne!(daemon.url, format!("ws://{address}"));
    let line = format!("http on http://{address}/api");
    assert!(daemon.block.contains(&line), "{:?}", daemon.block);
}

#[test]
fn a_wrong_descriptor_is_an_error() {
    let folder = echo();
    let refused = |descriptor: OwnedFd, arguments: &[&str]| {
        let command = with_descriptor(&folder.command(arguments), descriptor, None);
        let ended = ended_as_is(command);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.err
    };
    let tells = "descriptor 3 (unknown) from the service manager is not a listening TCP socket";
    let file = std::fs::File::open("/dev/null").unwrap();
    let said = refused(file.into(), &[]);
    assert!(said.contains(tells) && said.contains("ListenStream="), "{said}");
    let local = UnixListener::bind(folder.path().join("socket")).unwrap();
    let said = refused(local.into(), &[]);
    assert!(said.contains(tells), "{said}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let said = refused(connected.into(), &[]);
    assert!(said.contains(tells) && said.contains("it does not listen"), "{said}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = refused(listener.into(), &["--stdio"]);
    assert!(said.contains("--stdio serves no listener"), "{said}");
    // The socket for plugin routes must not become that of everything because of a mistyped name.
    for name in ["routs", "Http", "socket"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ended = ended_as_is(with_descriptor(&folder.command(&[]), listener.into(), Some(name)));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let says = format!(
            "descriptor 3 from the service manager has the unknown name {name}; set FileDescriptorName"
        );
        assert!(ended.err.contains(&says), "{ended:?}");
    }
    // The address decides whether a token is needed, as a configured one does.
    let reachable = TcpListener::bind("0.0.0.0:0").unwrap();
    let said = refused(reachable.into(), &[]);
    assert!(said.contains("is reachable from other computers, so connections need a token"), "{said}");
}

/// Runs a command whose input is set, until it ends.
fn ended_as_is(mut command: Command) -> crate::support::Ended {
    let mut child = command.spawn().unwrap();
    if wait_for(|| child.try_wait().unwrap()).is_none() {
        let _ = child.kill();
    }
    let output = child.wait_with_output().unwrap();
    crate::support::Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn listeners_for_another_process_are_not_taken() {
    let folder = echo();
    let mut command = folder.command(&[]);
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let daemon = folder.started(command);
    assert_eq!(daemon.stop(), Some(0));
}
