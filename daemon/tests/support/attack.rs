//! Attacks on a daemon under a memory limit, with a well-behaved client beside them.

#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ostler_testkit::attacks::Kind;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Daemon, Folder};

pub const MIB: u64 = 1024 * 1024;
/// The memory a daemon under attack may have.
const MEMORY: u64 = 512 * MIB;
/// How long an attack lasts at most.
pub const LASTS: Duration = Duration::from_secs(2);
/// An attack that lasts at least `LEAST` has all memory that it gets once the daemon's has not grown by `GROWTH` for so long.
const STEADY: Duration = Duration::from_millis(600);
const LEAST: Duration = Duration::from_secs(1);
const GROWTH: u64 = MIB;
/// How many answers the client is to receive before the attack and during it, and how long the first may take.
const ANSWERS: usize = 40;
const BEFORE: Duration = Duration::from_secs(1);
/// How many answers the client has received since it began, or since the attack began. There is one attack at a time.
static ANSWERED: AtomicUsize = AtomicUsize::new(0);
/// What the slowest but one in a hundred answers may take; more where the program is not optimized. `cargo
/// benchmarks run peaks` checks the first.
const SERVED: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 100 });
/// How many times its time without the attack an answer may take in addition, on a machine that does other things too.
const SLOWER: u32 = 3;
/// What may stay in memory of an attack once it is over: what the allocator keeps, and the recent past for clients that
/// come back.
const STAYS: u64 = 96 * MIB;
/// What sessions that an attack made and that are still awake may take in addition: half of `limits.sessionMemoryMb`.
const AWAKE: u64 = 64 * MIB;
/// How long the memory of an attack may take to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(20);

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

/// What an attack may do to what is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Nothing.
    Same,
    /// Add to it: what is accepted is stored.
    More,
}

/// How a daemon is attacked.
#[derive(Clone, Copy)]
pub struct Attack<'a> {
    pub arguments: &'a [&'a str],
    /// The memory it may map.
    pub mapped: u64,
    pub stored: Stored,
    /// What may stay in memory.
    pub stays: u64,
}

impl Attack<'_> {
    /// One that stores nothing, on a daemon with one thread for its tasks.
    pub const PLAIN: Self = Self { arguments: &[], mapped: MEMORY, stored: Stored::Same, stays: STAYS };
    /// One that what is accepted is stored of.
    pub const STORING: Self = Self { stored: Stored::More, stays: STAYS + AWAKE, ..Self::PLAIN };
}

/// Starts a daemon under a memory limit on one core, and attacks it from another one. A client on the daemon's core
/// asks one thing after the other. The daemon survives, stays within its limit, serves the client in time, gives the
/// memory back, and what was stored does not change.
pub fn attack(
    kind: Kind,
    how: Attack<'_>,
    folder: &Folder,
    attack: impl AsyncFnOnce(&Daemon) + Send,
) -> Daemon {
    // One attack at a time, in whichever process.
    let alone = File::create(concat!(env!("CARGO_TARGET_TMPDIR"), "/attack.lock")).unwrap();
    alone.lock().unwrap();
    // A process runs where the thread that starts it does: it has one thread for its tasks.
    let daemon = std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            pin_thread(OTHERS);
            folder.start_with(how.arguments)
        });
        started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    pin(&daemon.child.id().to_string(), "-acp", OTHERS);
    let pid = Pid::from_child(&daemon.child);
    // What is mapped counts, used or not: it is stricter than the same limit of a control group.
    let limit = Rlimit { current: Some(how.mapped), maximum: Some(how.mapped) };
    prlimit(Some(pid), Resource::Data, limit).unwrap();
    let before = stored(folder);
    let peak = Peak::watch(&daemon);
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    ANSWERED.store(0, Ordering::Relaxed);
    let (quiet, attacked) = std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            pin_thread(OTHERS);
            block_on(probe(&daemon, folder, &begun, &over))
        });
        let before = Instant::now();
        while ANSWERED.load(Ordering::Relaxed) < ANSWERS && before.elapsed() < BEFORE {
            std::thread::sleep(Duration::from_millis(5));
        }
        begun.store(true, Ordering::Relaxed);
        ANSWERED.store(0, Ordering::Relaxed);
        let attacked = scope.spawn(|| {
            let _over = Over(&over);
            pin_thread(ATTACKERS);
            block_on(attack(&daemon));
        });
        attacked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        probe.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    println!("{kind:?}: p99 without the attack {quiet:?}, with it {attacked:?}");
    let most = SERVED + SLOWER * quiet;
    assert!(attacked <= most, "the other client waits for {attacked:?}, and {quiet:?} without the attack");
    peak.check();
    let most = peak.begun + how.stays;
    let end = Instant::now() + GIVEN_BACK;
    let mut stays = held(daemon.child.id());
    while stays > most && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        stays = held(daemon.child.id());
    }
    println!("{} MiB before, {} MiB after", peak.begun / MIB, stays / MIB);
    assert!(stays <= most, "{} MiB stay, {} MiB were in use before", stays / MIB, peak.begun / MIB);
    let after = stored(folder);
    let lost: Vec<_> = before.difference(&after).collect();
    assert!(lost.is_empty(), "what was stored has changed: {lost:?}");
    if how.stored == Stored::Same {
        let more: Vec<_> = after.difference(&before).collect();
        assert!(more.is_empty(), "this was stored: {more:?}");
    }
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
        ANSWERED.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let [quiet, attacked] = times.map(|mut times| {
        times.sort_unstable();
        assert!(times.len() > 10, "{times:?}");
        // Of few answers, the slowest one may be slow by chance.
        times[(times.len() * 99 / 100).min(times.len() - 2)]
    });
    (quiet, attacked)
}

/// Every file and every row, with its content, but the index of words, which SQLite arranges anew as it grows.
fn stored(folder: &Folder) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            let name = entry.path().strip_prefix(folder.path()).unwrap().display().to_string();
            match entry.file_type().unwrap().is_dir() {
                true if name != ".state" => folders.push(entry.path()),
                false if name != "log" => {
                    let text = std::fs::read(entry.path()).unwrap();
                    all.insert(format!("{name}: {} bytes, {:x}", text.len(), hash(&text)));
                }
                _ => {}
            }
        }
    }
    let file = folder.state_file("state.db");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = rusqlite::Connection::open_with_flags(&file, flags).unwrap();
    let of_content = "type = 'table' AND name NOT LIKE 'automation_run_words%'";
    let mut tables = db.prepare(&format!("SELECT name FROM sqlite_schema WHERE {of_content}")).unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for table in tables {
        let mut rows = db.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
        let columns = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap()));
            let row = values.collect::<Vec<_>>().join(", ");
            let shown: String = row.chars().take(100).collect();
            all.insert(format!("{table}: {shown}, {:x}", hash(row.as_bytes())));
        }
    }
    all
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The most memory that is a process's own.
pub struct Peak {
    /// At the beginning.
    begun: u64,
    bytes: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Peak {
    pub fn watch(daemon: &Daemon) -> Self {
        let (bytes, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, ends, pid) = (bytes.clone(), over.clone(), daemon.child.id());
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                seen.fetch_max(held(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { begun: held(pid), bytes, over }
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

/// The memory that is a process's own.
fn held(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let held = field.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    held.unwrap_or_default() * 1024
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A connection that sends what it likes and reads nothing.
pub async fn greedy(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(daemon.address()).await.unwrap();
    let url = format!("{}/", daemon.url);
    tokio_tungstenite::client_async(url, stream).await.unwrap().0.into_inner()
}

/// Writes and then leaves the connection open, until the daemon closes it.
pub async fn write_on(stream: &mut TcpStream, bytes: &[u8], times: usize) {
    for _ in 0..times {
        if stream.write_all(bytes).await.is_err() {
            return;
        }
    }
    std::future::pending().await
}

/// Continues an attack until the daemon's memory is steady and its other client was answered often enough to compare
/// times, or for as long as an attack lasts.
pub async fn lasting(daemon: &Daemon, attack: impl Future) {
    let (begun, pid) = (Instant::now(), daemon.child.id());
    let steady = async {
        let (mut most, mut since) = (held(pid), begun);
        while begun.elapsed() < LASTS {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let now = held(pid);
            if now > most + GROWTH {
                (most, since) = (now, Instant::now());
            }
            if begun.elapsed() > LEAST
                && since.elapsed() > STEADY
                && ANSWERED.load(Ordering::Relaxed) >= ANSWERS
            {
                return;
            }
        }
    };
    tokio::select! {
        _ = attack => {}
        () = steady => {}
    }
}

/// Waits until the memory that an attack takes is steady.
pub async fn settled(daemon: &Daemon) {
    lasting(daemon, std::future::pending::<()>()).await;
}
