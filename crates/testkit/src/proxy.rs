//! A TCP proxy between two parties, which can cut, stall and delay what passes through it.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, Default)]
struct Network {
    /// The port on 127.0.0.1 that connections lead to; none are accepted without one.
    target: Option<u16>,
    /// How often the connections were cut.
    cuts: u64,
    /// How often the connections were dropped without notice.
    drops: u64,
    refuses: bool,
    is_stalled: bool,
    delay: Duration,
}

/// A proxy on a loopback port. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    /// Its port on 127.0.0.1.
    pub port: u16,
    network: watch::Sender<Network>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy to a port on 127.0.0.1, or to none yet.
    ///
    /// # Panics
    /// No port is free.
    pub async fn start(target: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (network, changes) = watch::channel(Network { target, ..Network::default() });
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(serve(near, changes.clone()));
            }
        });
        Self { port, network, accepting }
    }

    /// Leads new connections to another port.
    pub fn lead_to(&self, target: u16) {
        self.network.send_modify(|network| network.target = Some(target));
    }

    /// Closes all connections. New ones are accepted.
    pub fn cut(&self) {
        self.network.send_modify(|network| network.cuts += 1);
    }

    /// Closes all connections and refuses new ones, until [`Self::restore`].
    pub fn refuse(&self) {
        self.network.send_modify(|network| {
            network.cuts += 1;
            network.refuses = true;
        });
    }

    /// Passes nothing on, in both directions, until [`Self::restore`]. Connections stay open.
    pub fn stall(&self) {
        self.network.send_modify(|network| network.is_stalled = true);
    }

    /// Passes nothing on over the open connections from now on, and does not close them, as a firewall that has forgotten them.
    pub fn forget(&self) {
        self.network.send_modify(|network| network.drops += 1);
    }

    /// Passes each piece of data on after a delay.
    pub fn delay(&self, delay: Duration) {
        self.network.send_modify(|network| network.delay = delay);
    }

    /// Ends refusals, stalls and delays.
    pub fn restore(&self) {
        self.network.send_modify(|network| {
            network.refuses = false;
            network.is_stalled = false;
            network.delay = Duration::ZERO;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

/// Passes a connection on until one end closes it or it is cut.
async fn serve(near: TcpStream, mut changes: watch::Receiver<Network>) {
    let born = *changes.borrow();
    let Some(target) = born.target.filter(|_| !born.refuses) else { return };
    let Ok(far) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    for stream in [&near, &far] {
        drop(stream.set_nodelay(true));
    }
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let (there, back) = (changes.clone(), changes.clone());
    tokio::select! {
        () = pass(near_in, far_out, there, born) => {}
        () = pass(far_in, near_out, back, born) => {}
        _ = changes.wait_for(|network| network.cuts > born.cuts) => {}
    }
}

/// Passes data on in one direction.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut changes: watch::Receiver<Network>,
    born: Network,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let open = |network: &Network| network.drops == born.drops && !network.is_stalled;
        let Ok(delay) = changes.wait_for(open).await.map(|network| network.delay) else { break };
        if !delay.is_zero() {
            // The slow network that the test asked for.
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}
