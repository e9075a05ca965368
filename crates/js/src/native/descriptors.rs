//! The descriptors of a child process beside its standard streams.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The descriptor after the standard streams.
pub(super) const FIRST: usize = 3;

/// What a child finds at its descriptors from [`FIRST`] on.
#[derive(Default)]
pub(super) struct Descriptors {
    given: Vec<OwnedFd>,
    /// This process's ends of the pipes, by the same positions.
    pub(super) ends: Vec<Option<UnixStream>>,
}

/// Numbers that are taken while a child starts.
pub(super) struct Reserved(#[expect(dead_code, reason = "they are closed when it is dropped")] Vec<OwnedFd>);

impl Descriptors {
    /// Adds a pipe, which both ends can read and write.
    pub(super) fn pipe(&mut self) -> io::Result<()> {
        let (end, given) = UnixStream::pair()?;
        end.set_nonblocking(true)?;
        self.given.push(given.into());
        self.ends.push(Some(end));
        Ok(())
    }

    /// Adds an open file.
    pub(super) fn file(&mut self, file: &File) -> io::Result<()> {
        self.given.push(file.try_clone()?.into());
        self.ends.push(None);
        Ok(())
    }

    /// Adds a file that is always empty.
    pub(super) fn nothing(&mut self) -> io::Result<()> {
        let file = File::options().read(true).write(true).open("/dev/null")?;
        self.given.push(file.into());
        self.ends.push(None);
        Ok(())
    }

    /// Lets the command inherit them. The result lives until the command has started: the system gives the start's own
    /// descriptors other numbers than the child's.
    pub(super) fn give(self, command: &mut Command) -> io::Result<(Vec<Option<UnixStream>>, Reserved)> {
        let mut reserved = Vec::new();
        if self.given.is_empty() {
            return Ok((self.ends, Reserved(reserved)));
        }
        let last = RawFd::try_from(FIRST + self.given.len()).unwrap_or(RawFd::MAX);
        let mut given = Vec::new();
        for (target, descriptor) in (3..).zip(&self.given) {
            given.push((target, above(descriptor.as_raw_fd(), last)?));
        }
        let nothing = File::open("/dev/null")?;
        loop {
            let next = above(nothing.as_raw_fd(), 3)?;
            if next.as_raw_fd() >= last {
                break;
            }
            reserved.push(next);
        }
        let inherit = move || {
            for (target, descriptor) in &given {
                // SAFETY: `dup2` takes two numbers and accesses no memory of ours. The copy is not closed by `exec`.
                if unsafe { libc::dup2(descriptor.as_raw_fd(), *target) } == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure only makes system calls, which neither allocate nor lock.
        unsafe { command.pre_exec(inherit) };
        Ok((self.ends, Reserved(reserved)))
    }
}

/// Returns a copy of a descriptor with a number of at least `least`, which `exec` closes.
fn above(descriptor: RawFd, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` with these arguments takes numbers and accesses no memory of ours.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, least) };
    if copy == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
