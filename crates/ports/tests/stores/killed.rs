//! Runs a test of this binary as a process of its own, and kills it at a random moment.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The variable with the folder of a child.
pub const FOLDER: &str = "OSTLER_PORTS_CHILD_FOLDER";
const MARK: &str = "acknowledged ";

/// Where the child works; nothing in the process that starts it.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// The child says that something is kept.
pub fn acknowledge(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// How many words it is waited for at most before it is killed.
const WORDS: u64 = 16;

/// Starts the child, kills it some words and some time after its first one, and answers what it acknowledged.
pub fn run_and_kill(test: &str, folder: &Path) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            // The harness writes `test child ... ` before the first word.
            if let Some((_, line)) = line.split_once(MARK)
                && send.send(line.to_owned()).is_err()
            {
                return;
            }
        }
    });
    let random = RandomState::new();
    // However slow the machine is, there is something that can be lost.
    let words = WORDS / 2 + random.hash_one(1) % (WORDS / 2);
    let mut acknowledged: Vec<String> = (0..words)
        .map(|_| lines.recv_timeout(Duration::from_secs(60)).expect("the child says something"))
        .collect();
    let end = Instant::now() + Duration::from_micros(random.hash_one(0) % 60_000);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        acknowledged.extend(lines.recv_timeout(left));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    acknowledged.extend(lines.try_iter());
    acknowledged
}
