//! What every benchmark needs: the programs of both sides, and servers of either.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::failure::Result;
use super::floor::{Node, Persistence, RustFloor};
use super::options::Options;
use super::ostler::{Folder, Ostler};
use super::process::Process;
use super::progress;
use super::rounds::{Bounds, Side};

/// What every benchmark needs.
pub struct Context {
    /// The repository.
    pub root: PathBuf,
    /// The daemon.
    pub ostler: Ostler,
    /// Node, where there is one.
    pub node: Option<Node>,
    /// Built where a benchmark needs it.
    rust_floor: OnceCell<RustFloor>,
    rounds: Option<usize>,
}

/// A server of either side, with its folder.
pub struct Running {
    /// The process.
    pub process: Process,
    /// Where it listens.
    pub address: SocketAddr,
    _folder: Option<Folder>,
}

impl Context {
    /// Builds the daemon and finds Node.
    ///
    /// # Errors
    /// Where the daemon does not build or the floors cannot be installed.
    pub fn prepare(root: &Path, options: &Options) -> Result<Self> {
        raise_file_limit();
        progress("building as releases are built");
        let ostler = Ostler::build_with(root, &options.profile)?;
        let node = Node::find(root)?;
        if node.is_none() {
            progress("there is no node on this machine, so ostler is measured alone");
        }
        let rust_floor = OnceCell::new();
        Ok(Self { root: root.to_owned(), ostler, node, rust_floor, rounds: options.rounds })
    }

    /// How often a benchmark runs: so many rounds unless the command line says otherwise, and none begins
    /// after the limit.
    pub fn bounds(&self, rounds: usize, limit: Duration) -> Bounds {
        Bounds { rounds: self.rounds.unwrap_or(rounds), limit, floor: self.node.is_some() }
    }

    /// Starts the Rust floor, in a folder on the daemon's disk where it keeps anything.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start_rust_floor(&self, persistence: Persistence) -> Result<Running> {
        let folder = Folder::new(&self.root, &[])?;
        let floor = match self.rust_floor.get() {
            Some(floor) => floor,
            None => {
                let built = RustFloor::build(&self.root)?;
                self.rust_floor.get_or_init(|| built)
            }
        };
        let (process, address) = floor.start(persistence, folder.path())?;
        Ok(Running { process, address, _folder: Some(folder) })
    }

    /// Starts the server of a side: the daemon on a usual folder that was used before, or the WebSocket floor.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(&self, side: Side) -> Result<Running> {
        match (side, &self.node) {
            (Side::Floor, Some(node)) => {
                let (process, address) = node.start("floor-ws.js", &[])?;
                Ok(Running { process, address, _folder: None })
            }
            _ => {
                let folder = Folder::usual(&self.root)?;
                let (process, address) = self.ostler.start(&folder)?;
                Ok(Running { process, address, _folder: Some(folder) })
            }
        }
    }
}

/// Lets this process, and the servers it starts, hold as many connections as the system allows.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, the benchmark that needs it says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
