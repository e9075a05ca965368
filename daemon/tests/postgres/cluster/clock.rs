//! A wall clock of daemons that differs from that of the computer and jumps: a library that is loaded before others. It changes
//! neither monotonic clocks nor other processes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::NamedTempFile;

/// The variable with the path of the file that has the difference in seconds.
const VARIABLE: &str = "OSTLER_TEST_CLOCK";
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int file = -1;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("OSTLER_TEST_CLOCK");
    if (path) file = open(path, O_RDONLY | O_CLOEXEC);
}

static int64_t difference(void) {
    int64_t seconds = 0;
    int before = errno;
    if (file < 0 || pread(file, &seconds, sizeof seconds, 0) != sizeof seconds) seconds = 0;
    errno = before;
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += difference();
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The compiled library.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        fs::write(&source, SOURCE).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .expect("a C compiler");
        assert!(compiled.success(), "{}", source.display());
        library
    })
}

/// A wall clock.
pub struct Clock(NamedTempFile);

impl Clock {
    /// Creates a clock that agrees with that of the computer.
    pub fn new() -> Self {
        let clock = Self(NamedTempFile::new().unwrap());
        clock.set(0);
        clock
    }

    /// Sets by how many seconds it is ahead.
    pub fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt as _;
        self.0.as_file().write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// The variables of a program that has this clock.
    pub fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("LD_PRELOAD", library().clone()), (VARIABLE, self.0.path().to_owned())]
    }

    /// A command that has this clock.
    pub fn applied(&self, mut command: Command) -> Command {
        command.envs(self.variables());
        command
    }
}
