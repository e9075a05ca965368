//! A measured process: its output by lines with a timeout, its memory, its end.

use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::failure::{During, Failure, Result};

/// The timeout for an expected line.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a process may take to become idle. The daemon retains a client that has disconnected for 30 seconds, and its timers
/// expire one by one.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// A process is idle if its CPU time did not grow for this long.
const QUIET: Duration = Duration::from_secs(2);
/// The interval at which that is checked.
const LOOK: Duration = Duration::from_millis(50);
/// The unit of CPU times in milliseconds, the same on all Linux systems that ostler runs on.
const TICK: u64 = 10;
/// The interval at which a peak is sampled.
const PEAK_LOOK: Duration = Duration::from_millis(5);

/// Which of its outputs is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Standard output; standard error is discarded.
    Out,
    /// Standard error; standard output is discarded.
    Err,
}

/// A process that is killed when this is dropped.
pub struct Process {
    child: Child,
    said: Vec<u8>,
    /// The time of its spawn.
    pub begun: Instant,
}

impl Process {
    /// Spawns a command and reads one of its outputs.
    ///
    /// # Errors
    /// The system's error.
    pub fn spawn(command: &mut Command, output: Output) -> Result<Self> {
        command.stdin(Stdio::null());
        match output {
            Output::Out => command.stdout(Stdio::piped()).stderr(Stdio::null()),
            Output::Err => command.stdout(Stdio::null()).stderr(Stdio::piped()),
        };
        let begun = Instant::now();
        let child = command.spawn().during(command.get_program().to_string_lossy())?;
        Ok(Self { child, said: Vec::new(), begun })
    }

    /// Reads lines until `wanted` accepts one.
    ///
    /// # Errors
    /// Its output instead, before it ended or the timeout expired.
    pub fn wait_for<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + LIMIT;
        let mut searched = 0;
        loop {
            while let Some(length) = memchr::memchr(b'\n', &self.said[searched..]) {
                let line = String::from_utf8_lossy(&self.said[searched..searched + length]).into_owned();
                searched += length + 1;
                if let Some(found) = wanted(&line) {
                    self.said.drain(..searched);
                    return Ok(found);
                }
            }
            if !self.read_more(deadline)? {
                let said = String::from_utf8_lossy(&self.said);
                return Err(Failure::new(format!(
                    "it did not say what it should have; it said: {}",
                    said.trim()
                )));
            }
        }
    }

    /// Reads more output; returns `false` after its end or at the deadline.
    fn read_more(&mut self, deadline: Instant) -> Result<bool> {
        let mut chunk = [0; 8192];
        let read = if let Some(out) = &mut self.child.stdout {
            ready(&*out, deadline)?.then(|| out.read(&mut chunk))
        } else if let Some(err) = &mut self.child.stderr {
            ready(&*err, deadline)?.then(|| err.read(&mut chunk))
        } else {
            None
        };
        let read = read.transpose()?.unwrap_or_default();
        self.said.extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }

    /// Waits until it is idle, then returns its memory.
    ///
    /// # Errors
    /// The system does not report memory, or the process is never idle.
    pub fn memory_when_idle(&self) -> Result<Memory> {
        let deadline = Instant::now() + IDLE_LIMIT;
        let (mut seen, mut since) = (self.processor_time()?, Instant::now());
        while since.elapsed() < QUIET {
            if Instant::now() > deadline {
                return Err(Failure::new("it was never idle"));
            }
            std::thread::sleep(LOOK);
            let now = self.processor_time()?;
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        self.memory()
    }

    /// Returns its memory.
    ///
    /// # Errors
    /// The system does not report memory.
    pub fn memory(&self) -> Result<Memory> {
        let file = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(&file).during(&file)?;
        Memory::read(&text)
            .ok_or_else(|| Failure::new(format!("{file} does not say how much memory is held")))
    }

    /// Pins it to one core, if the system has `taskset`.
    pub fn pin(&self, core: &str) {
        pin(&self.child.id().to_string(), "-acp", core);
    }

    /// Starts to watch the peak of its private memory.
    pub fn watch_peak(&self) -> Peak {
        Peak::watch(self.child.id())
    }

    /// Returns its CPU time, user and system together.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn processor_time(&self) -> Result<Duration> {
        let file = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&file).during(&file)?;
        let stat = Stat::read(&text);
        stat.map(|stat| stat.own).ok_or_else(|| Failure::new(format!("{file} does not say how long it ran")))
    }
}

/// Returns the CPU time of a process and its children, also of those that have ended.
///
/// # Errors
/// The system does not report it.
pub fn processor_time_with_children(parent: u32) -> Result<Duration> {
    let (mut total, mut found) = (Duration::ZERO, false);
    for entry in std::fs::read_dir("/proc").during("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // One that has just ended is counted by its parent.
        let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        match Stat::read(&text) {
            Some(stat) if id == parent => {
                total += stat.own + stat.ended_children;
                found = true;
            }
            Some(stat) if stat.parent == parent => total += stat.own,
            _ => {}
        }
    }
    match found {
        true => Ok(total),
        false => Err(Failure::new(format!("there is no process {parent}"))),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pins the calling thread to one core, if the system has `taskset`.
pub fn pin_thread(core: &str) {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(thread) = thread.file_name().and_then(|name| name.to_str()) {
        pin(thread, "-cp", core);
    }
}

/// Allows the calling thread to run on every core again.
pub fn unpin_thread() {
    // The affinity mask of the calling thread only contains its one core.
    if let Ok(cores) = std::fs::read_to_string("/sys/devices/system/cpu/online") {
        pin_thread(cores.trim());
    }
}

fn pin(task: &str, threads: &str, core: &str) {
    let mut command = Command::new("taskset");
    let _ = command.args([threads, core, task]).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// The peak memory of a process since the watch started.
pub struct Peak {
    kilobytes: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Peak {
    fn watch(id: u32) -> Self {
        let peak = Self { kilobytes: Arc::default(), over: Arc::default() };
        let (seen, over) = (peak.kilobytes.clone(), peak.over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
                seen.fetch_max(anonymous(&text).unwrap_or_default(), Ordering::Relaxed);
                std::thread::sleep(PEAK_LOOK);
            }
        });
        peak
    }

    /// Returns the peak in MB.
    ///
    /// # Errors
    /// The system does not report memory.
    pub fn megabytes(&self) -> Result<f64> {
        match self.kilobytes.load(Ordering::Relaxed) {
            0 => Err(Failure::new("the system does not say how much memory a process holds")),
            kilobytes => Ok(kilobytes as f64 * 1.024 / 1000.0),
        }
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Returns the anonymous memory in kB, from `status`.
fn anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Waits until data can be read; returns `false` at the deadline.
fn ready(file: &impl AsFd, deadline: Instant) -> Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(|_| Failure::new("a deadline too far away"))?;
    let mut watched = [PollFd::new(file, PollFlags::IN)];
    Ok(poll(&mut watched, Some(&left))? > 0)
}

/// The memory of a process, in kB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Its resident pages; shared pages count proportionally.
    pub pss: f64,
    /// Its private dirty pages.
    pub written: f64,
}

impl Memory {
    /// Parses `smaps_rollup`.
    fn read(text: &str) -> Option<Self> {
        let field = |name: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse().ok()
        };
        Some(Self { pss: field("Pss")?, written: field("Private_Dirty")? })
    }
}

/// Fields of `stat` of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// The CPU time of the process.
    own: Duration,
    /// The CPU time of its children that have ended.
    ended_children: Duration,
}

impl Stat {
    /// Parses `stat`; the second field may contain spaces and parentheses.
    fn read(stat: &str) -> Option<Self> {
        // From the third one on.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let time = |at: usize| Some(Duration::from_millis((ticks(at)? + ticks(at + 1)?) * TICK));
        Some(Self { parent: fields.get(1)?.parse().ok()?, own: time(11)?, ended_children: time(13)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_whole_names() {
        let text = "55-7f ---p 00 00:00 0 [rollup]\nRss:               25976 kB\nPss:               24636 kB\n\
                    Pss_Dirty:          3104 kB\nPrivate_Clean:     21280 kB\nPrivate_Dirty:      3104 kB\n";
        assert_eq!(Memory::read(text), Some(Memory { pss: 24636.0, written: 3104.0 }));
        assert_eq!(Memory::read("Pss: 1 kB\n"), None);
    }

    #[test]
    fn a_peak_is_of_memory_of_no_file() {
        assert_eq!(anonymous("VmRSS:\t 9 kB\nRssAnon:\t    5312 kB\nRssFile:\t 7 kB\n"), Some(5312));
        assert_eq!(anonymous("VmRSS: 9 kB\n"), None);
        let peak = Peak::watch(std::process::id());
        let deadline = Instant::now() + LIMIT;
        while peak.megabytes().is_err() && Instant::now() < deadline {
            std::thread::sleep(PEAK_LOOK);
        }
        assert!(peak.megabytes().unwrap() > 0.1);
    }

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "42 (a) b 1) S 1 2 3 0 -1 4194560 100 0 0 0 7 5 3 6 20 0 1 0 99";
        let time = Duration::from_millis;
        let read = Stat { parent: 1, own: time(120), ended_children: time(90) };
        assert_eq!(Stat::read(stat), Some(read));
        assert_eq!(Stat::read("42 (short) S"), None);
        assert!(processor_time_with_children(std::process::id()).is_ok());
    }

    #[test]
    fn lines_are_read_until_one_is_wanted() {
        let mut process =
            Process::spawn(Command::new("sh").args(["-c", "echo one; echo two 2; echo three"]), Output::Out)
                .unwrap();
        let two = process.wait_for(|line| line.strip_prefix("two ").map(str::to_owned)).unwrap();
        assert_eq!(two, "2");
        assert_eq!(process.wait_for(|line| (line == "three").then_some(3)).unwrap(), 3);
        let why = process.wait_for(|line| (line == "one").then_some(())).unwrap_err();
        assert!(why.to_string().contains("did not say"), "{why}");
    }
}
