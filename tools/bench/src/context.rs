//! The common setup of all benchmarks: the programs of both sides, and their servers.

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

/// The common setup of all benchmarks.
pub struct Context {
    /// The root of the repository.
    pub root: PathBuf,
    /// The daemon.
    pub ostler: Ostler,
    /// Node, if it is installed.
    pub node: Option<Node>,
    /// The Rust floor, built at its first use.
    rust_floor: OnceCell<RustFloor>,
    rounds: Option<usize>,
    /// A part of the names of the attacks to make; all if absent.
    pub attack: Option<String>,
}

/// A running server of either side, with its folder.
pub struct Running {
    /// The process.
    pub process: Process,
    /// The address on which it listens.
    pub address: SocketAddr,
    _folder: Option<Folder>,
}

impl Context {
    /// Builds the daemon, unless its program is given, and finds Node.
    ///
    /// # Errors
    /// The daemon does not build or the packages of the floors cannot be installed.
    pub fn prepare(root: &Path, options: &Options) -> Result<Self> {
        raise_file_limit();
        let ostler = match &options.program {
            Some(program) => Ostler::at(program)?,
            None => {
                progress(format_args!("building with the profile {}", options.profile));
                Ostler::build_with(root, &options.profile)?
            }
        };
        let node = Node::find(root)?;
        if node.is_none() {
            progress("there is no node on this machine, so ostler is measured alone");
        }
        let rust_floor = OnceCell::new();
        Ok(Self {
            root: root.to_owned(),
            ostler,
            node,
            rust_floor,
            rounds: options.rounds,
            attack: options.attack.clone(),
        })
    }

    /// Returns the bounds of a benchmark: `rounds`, unless the command line sets another number; no round begins after
    /// the limit.
    pub fn bounds(&self, rounds: usize, limit: Duration) -> Bounds {
        Bounds { rounds: self.rounds.unwrap_or(rounds), limit, floor: self.node.is_some() }
    }

    /// Starts the Rust floor; a durable one stores its data in a folder on the daemon's disk.
    ///
    /// # Errors
    /// It does not start.
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
    /// It does not start.
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

/// Raises the limit of open files for this process and the servers it starts to the system's maximum.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, the benchmark that needs it reports an error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
