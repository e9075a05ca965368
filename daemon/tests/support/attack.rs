//! Attacks on a daemon under a memory limit, with a well-behaved client beside them.

#![allow(clippy::print_stdout)]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Daemon, Folder};

pub const MIB: u64 = 1024 * 1024;
/// The memory a daemon under attack may have.
const MEMORY: u64 = 512 * MIB;
/// How long an attack lasts at most.
pub const LASTS: Duration = Duration::from_secs(4);
/// How long the client is served before the attack.
const BEFORE: Duration = Duration::from_secs(1);
/// What the slowest but one in a hundred answers of a debug build may take; one that starves the client exceeds it many
/// times. The limit of the program as it is released is 100 ms, which `cargo xtask bench peaks` checks.
const SERVED: Duration = Duration::from_millis(500);
/// How many times its time without the attack an answer of a debug build may take in addition.
const SLOWER: u32 = 20;

/// The core of attackers.
const ATTACKERS: &str = "0";
/// The core of the daemon and its other client.
const OTHERS: &str = "1";

/// Has a process, or a thread, run on one core, where there is another and the system has the program for it.
fn pin(task: &str, threads: &str, core: &str) {
    let mut command = Command::new("taskset");
    let _ = command.args([threads, core, task]).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

fn pin_thread(core: &str) {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    pin(thread.file_name().unwrap().to_str().unwrap(), "-cp", core);
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Starts a daemon under a memory limit on one core, and attacks it from another one. A client on the daemon's core
/// asks one thing after the other. The daemon survives, stays within its limit, serves the client in time, and what
/// the user wrote does not change.
pub fn attack(folder: &Folder, arguments: &[&str], attack: impl AsyncFnOnce(&Daemon) + Send) -> Daemon {
    attack_mapping(MEMORY, folder, arguments, attack)
}

/// The same where the daemon may map more than it may use: the WebSocket library reserves the announced length of a
/// frame, which takes no memory before it is read.
pub fn attack_mapping(
    mapped: u64,
    folder: &Folder,
    arguments: &[&str],
    attack: impl AsyncFnOnce(&Daemon) + Send,
) -> Daemon {
    // One attack at a time, in whichever process.
    let alone = File::create(concat!(env!("CARGO_TARGET_TMPDIR"), "/attack.lock")).unwrap();
    alone.lock().unwrap();
    let daemon = folder.start_with(arguments);
    pin(&daemon.child.id().to_string(), "-acp", OTHERS);
    let pid = Pid::from_child(&daemon.child);
    // What is mapped counts, used or not: it is stricter than the same limit of a control group.
    let limit = Rlimit { current: Some(mapped), maximum: Some(mapped) };
    prlimit(Some(pid), Resource::Data, limit).unwrap();
    let before = written(folder.path());
    let peak = Peak::watch(&daemon);
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (quiet, attacked) = std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            pin_thread(OTHERS);
            block_on(probe(&daemon, folder, &begun, &over))
        });
        std::thread::sleep(BEFORE);
        begun.store(true, Ordering::Relaxed);
        let attacked = scope.spawn(|| {
            let _over = Over(&over);
            pin_thread(ATTACKERS);
            block_on(attack(&daemon));
        });
        attacked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        probe.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    println!("p99 without the attack {quiet:?}, with it {attacked:?}");
    let most = SERVED + SLOWER * quiet;
    assert!(attacked <= most, "the other client waits for {attacked:?}, and {quiet:?} without the attack");
    peak.check();
    assert_eq!(written(folder.path()), before, "what the user wrote has changed");
    daemon
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks one thing after the other; returns how long the slowest but one in a hundred takes before and during the attack.
async fn probe(
    daemon: &Daemon,
    folder: &Folder,
    begun: &AtomicBool,
    over: &AtomicBool,
) -> (Duration, Duration) {
    let mut client = daemon.initialized("probe").await;
    let mut times = [Vec::new(), Vec::new()];
    while !over.load(Ordering::Relaxed) {
        let attacked = usize::from(begun.load(Ordering::Relaxed));
        let asked = Instant::now();
        let answer = client.try_request("listSessions", json!({ "channel": "ahp-root://" })).await;
        answer.unwrap_or_else(|| panic!("the daemon ended: {}", folder.read("log"))).unwrap();
        times[attacked].push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let [quiet, attacked] = times.map(|mut times| {
        times.sort_unstable();
        assert!(times.len() > 10, "{times:?}");
        times[times.len() * 99 / 100]
    });
    (quiet, attacked)
}

/// Every file the user wrote, with its text.
fn written(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            let name = entry.path().strip_prefix(folder).unwrap().display().to_string();
            match entry.file_type().unwrap().is_dir() {
                true if name != ".state" && name != "webhook-deliveries" => folders.push(entry.path()),
                false if name != "log" => {
                    let text = std::fs::read(entry.path()).unwrap();
                    files.push((name, format!("{} bytes, {:x}", text.len(), hash(&text))));
                }
                _ => {}
            }
        }
    }
    files.sort();
    files
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The most memory that is a process's own.
pub struct Peak {
    bytes: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Peak {
    pub fn watch(daemon: &Daemon) -> Self {
        let (bytes, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, ends, file) = (bytes.clone(), over.clone(), format!("/proc/{}/status", daemon.child.id()));
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                let field = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
                let held = field.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
                seen.fetch_max(held.unwrap_or_default() * 1024, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { bytes, over }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn check(&self) {
        let peak = self.bytes();
        println!("peak {} MiB", peak / MIB);
        assert!(peak > 0 && peak <= MEMORY, "the daemon takes {} MiB", peak / MIB);
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A client's frame; the mask is of zeros.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        long => {
            frame.push(0xff);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// A connection that sends what it likes and reads nothing.
pub async fn greedy(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(daemon.address()).await.unwrap();
    let url = format!("{}/", daemon.url);
    tokio_tungstenite::client_async(url, stream).await.unwrap().0.into_inner()
}

/// Writes for as long as the attack lasts, or until the daemon hangs up.
pub async fn write_on(stream: &mut TcpStream, bytes: &[u8], times: usize) {
    let writing = async {
        for _ in 0..times {
            if stream.write_all(bytes).await.is_err() {
                return;
            }
        }
        std::future::pending().await
    };
    let _ = tokio::time::timeout(LASTS, writing).await;
}
