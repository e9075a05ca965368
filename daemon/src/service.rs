//! The service manager (systemd): notifications to it, and the listeners that it passes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ostler_engine::{Host, Log};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::exit::Exit;
use crate::run::busy;

/// Whether a service manager started the daemon and waits for notifications.
pub fn is_managed() -> bool {
    cfg!(unix) && std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty())
}

/// A notification, which is sent only if a service manager waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The listeners serve.
    Ready(String),
    /// The daemon restarts in its process.
    Reloading,
    /// The daemon ends.
    Stopping,
    /// The text in `systemctl status`.
    Status(String),
    /// The daemon is alive.
    Alive(String),
}

/// Sends a notification. A service manager that cannot be reached is not an error of the daemon; the reason is returned for
/// the log.
///
/// # Errors
/// The socket in `NOTIFY_SOCKET` cannot be written.
#[cfg(unix)]
pub fn notify(notice: &Notice) -> Result<(), String> {
    use sd_notify::NotifyState;
    // One datagram has one status, which is one line.
    let line = |text: &String| text.lines().next().unwrap_or_default().to_owned();
    let status = match notice {
        Notice::Ready(text) | Notice::Status(text) | Notice::Alive(text) => line(text),
        Notice::Reloading => "restarting".to_owned(),
        Notice::Stopping => "stopping".to_owned(),
    };
    let mut states = match notice {
        Notice::Ready(_) => vec![NotifyState::Ready],
        Notice::Reloading => {
            let now = NotifyState::monotonic_usec_now().ok();
            std::iter::once(NotifyState::Reloading).chain(now).collect()
        }
        Notice::Stopping => vec![NotifyState::Stopping],
        Notice::Status(_) => Vec::new(),
        Notice::Alive(_) => vec![NotifyState::Watchdog],
    };
    states.push(NotifyState::Status(&status));
    sd_notify::notify(&states).map_err(|error| format!("cannot notify the service manager: {error}"))
}

/// This system has no supported service manager.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn notify(_: &Notice) -> Result<(), String> {
    Ok(())
}

/// Returns the text in `systemctl status` for a serving daemon.
fn serving(address: SocketAddr, host: &Host) -> String {
    match busy(host).len() {
        0 => format!("serving ws://{address}"),
        1 => format!("serving ws://{address}; 1 turn is running"),
        turns => format!("serving ws://{address}; {turns} turns are running"),
    }
}

/// Notifies the service manager that the listeners serve and then, at half of the interval that it expects
/// (`WATCHDOG_USEC`), that the daemon is alive: as long as the listener answers a request and the sessions can be read.
pub fn ready(address: SocketAddr, host: &Arc<Host>, log: &Log) {
    if !is_managed() {
        return;
    }
    if let Err(why) = notify(&Notice::Ready(serving(address, host))) {
        log.warn(why);
    }
    if let Some(limit) = watchdog() {
        tokio::spawn(keep_alive(limit / 2, address, host.clone(), log.clone()));
    }
}

#[cfg(unix)]
fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| *limit >= Duration::from_millis(2))
}

#[cfg(not(unix))]
fn watchdog() -> Option<Duration> {
    None
}

async fn keep_alive(period: Duration, address: SocketAddr, host: Arc<Host>, log: Log) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sessions = host.clone();
        let sent = match answers(address, period).await {
            // Both can block: one on a lock of the engine, the other on the socket of the service manager.
            Ok(()) => {
                tokio::task::spawn_blocking(move || notify(&Notice::Alive(serving(address, &sessions))))
                    .await
                    .unwrap_or_else(|error| Err(format!("the sessions cannot be read: {error}")))
            }
            Err(why) => Err(format!("the daemon does not answer itself: {why}")),
        };
        if let Err(why) = sent {
            log.warn(format_args!("watchdog: {why}"));
        }
    }
}

/// Waits until the listener has answered a request of HTTP.
async fn answers(address: SocketAddr, limit: Duration) -> Result<(), String> {
    let asked = async {
        let mut stream = match TcpStream::connect(own(address)).await {
            Ok(stream) => stream,
            // Without a descriptor for a connection the check is impossible, which does not mean that the daemon hangs.
            Err(error) if is_out_of_files(&error) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut begin = [0; 5];
        stream.read_exact(&mut begin).await.map_err(|error| error.to_string())?;
        match &begin {
            b"HTTP/" => Ok(()),
            _ => Err("the answer is not HTTP".to_owned()),
        }
    };
    timeout(limit, asked).await.unwrap_or_else(|_| Err(format!("no answer in {} ms", limit.as_millis())))
}

/// The address at which this computer reaches its own listener.
fn own(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn is_out_of_files(error: &std::io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// The listeners that the service manager passed (`LISTEN_FDS`), which take the place of configured addresses. They stay open
/// as long as this exists, so that a restart in the process loses no connection.
#[derive(Debug, Default)]
pub struct Passed {
    listeners: Vec<(Place, std::net::TcpListener)>,
}

/// The name of the listener for the protocol.
const MAIN: &str = "main";
/// What a service manager that names no descriptors is taken to have said.
const UNNAMED: &str = "unknown";

/// The purpose of a passed listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The protocol and everything else on the main listener.
    Main,
    /// Routes of plugins.
    Routes,
    /// The HTTP API.
    Http,
}

impl Place {
    /// Returns the purpose of a name in `LISTEN_FDNAMES`; `None` for an unknown one. systemd names a descriptor after its
    /// socket unit unless `FileDescriptorName=` is set.
    fn of(name: &str) -> Option<Self> {
        match name {
            "routes" => Some(Self::Routes),
            "http" => Some(Self::Http),
            MAIN | UNNAMED => Some(Self::Main),
            unit if unit.ends_with(".socket") => Some(Self::Main),
            _ => None,
        }
    }
}

impl Passed {
    /// Takes over the listeners. Call it once, before threads start, because it changes the environment.
    ///
    /// # Errors
    /// Exit 2: a descriptor that is not a listening TCP socket, or two for one purpose.
    pub fn take() -> Result<Self, Exit> {
        let mut passed = listenfd::ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut listeners: Vec<(Place, std::net::TcpListener)> = Vec::new();
        for at in 0..passed.len() {
            let name = names.next().filter(|name| !name.is_empty()).unwrap_or(UNNAMED);
            let number = at + 3;
            let not_one = |why: String| {
                Exit::usage(format!(
                    "descriptor {number} ({name}) from the service manager is not a listening TCP socket: {why}; set \
                     ListenStream=<address>:<port> and Accept=no in the socket unit"
                ))
            };
            let listener = match passed.take_tcp_listener(at) {
                Ok(Some(listener)) => listener,
                Ok(None) => return Err(not_one("it was taken before".to_owned())),
                Err(error) => return Err(not_one(error.to_string())),
            };
            if !is_listening(&listener) {
                return Err(not_one("it does not listen".to_owned()));
            }
            let place = Place::of(name).ok_or_else(|| {
                Exit::usage(format!(
                    "descriptor {number} from the service manager has the unknown name {name}; set FileDescriptorName to \
                     routes, http or {MAIN} in its socket unit, or leave it out for the protocol"
                ))
            })?;
            if listeners.iter().any(|(other, _)| *other == place) {
                return Err(Exit::usage(format!(
                    "the service manager passed two sockets for one listener (the second is descriptor {number}, {name}); \
                     pass one for the protocol, and set FileDescriptorName=routes or FileDescriptorName=http for those of \
                     plugin routes and the HTTP API"
                )));
            }
            listeners.push((place, listener));
        }
        Ok(Self { listeners })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Returns whether there is one for a purpose.
    pub fn has(&self, place: Place) -> bool {
        self.listeners.iter().any(|(other, _)| *other == place)
    }

    /// Returns the listener for a purpose, if there is one.
    ///
    /// # Errors
    /// Exit 1: the system does not allow its use.
    pub fn listener(&self, place: Place) -> Result<Option<ostler_server::Listener>, Exit> {
        let Some((_, listener)) = self.listeners.iter().find(|(other, _)| *other == place) else {
            return Ok(None);
        };
        listener.try_clone().and_then(ostler_server::Listener::passed).map(Some).map_err(|error| {
            Exit::machine(format!("cannot use the listener from the service manager: {error}"))
        })
    }

    /// Passes the listeners to the program that replaces this one in the process.
    #[cfg(unix)]
    pub fn pass_on(&self, command: &mut std::process::Command) {
        for (_, listener) in &self.listeners {
            let _ = rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty());
        }
        if !self.is_empty() {
            command.env("LISTEN_FDS", self.listeners.len().to_string());
            command.env("LISTEN_PID", std::process::id().to_string());
        }
    }
}

#[cfg(unix)]
fn is_listening(listener: &std::net::TcpListener) -> bool {
    rustix::net::sockopt::socket_acceptconn(listener).unwrap_or(false)
}

#[cfg(not(unix))]
fn is_listening(_: &std::net::TcpListener) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_does_not_answer_is_not_alive() {
        // The system completes the connection; nothing reads from it.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = answers(listener.local_addr().unwrap(), Duration::from_millis(200)).await;
        assert_eq!(silent, Err("no answer in 200 ms".to_owned()));
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(answers(address, Duration::from_secs(20)).await.is_err());
    }

    #[test]
    fn a_daemon_reaches_itself_where_it_listens_on_every_address() {
        assert_eq!(own("0.0.0.0:5".parse().unwrap()), "127.0.0.1:5".parse().unwrap());
        assert_eq!(own("[::]:5".parse().unwrap()), "[::1]:5".parse().unwrap());
        assert_eq!(own("192.0.2.1:5".parse().unwrap()), "192.0.2.1:5".parse().unwrap());
    }
}
