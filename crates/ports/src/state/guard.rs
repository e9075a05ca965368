//! Checks that the database's files are still the ones that were opened. SQLite continues to write to a removed file
//! and over a truncated one; such commits are lost at the next start.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::reserve::{FRAME_HEADER, HEADER};
use super::{index_of, log_of};

/// The opened files of one database.
pub(super) struct Guard {
    files: Vec<Watched>,
    log: Option<Log>,
    /// A truncated or replaced file does not become valid again.
    lost: Option<String>,
}

/// The write-ahead log, which SQLite shortens, but never below the length in its index.
struct Log {
    path: PathBuf,
    /// Stays open, because closing a file ends the locks of this process on it, including those of SQLite.
    index: File,
}

struct Watched {
    path: PathBuf,
    identity: Identity,
    /// The greatest length so far, if the file does not get shorter by itself.
    length: Option<u64>,
}

impl Guard {
    /// Opens the database at `path` and its write-ahead log.
    pub fn of(path: &Path) -> Self {
        let watched = |path: PathBuf, measured: bool| {
            let FileFacts { identity, length } = facts_of(&path).ok()?;
            Some(Watched { identity, path, length: measured.then_some(length) })
        };
        let files = [watched(path.to_owned(), true), watched(log_of(path), false)];
        let log = File::open(index_of(path)).ok().map(|index| Log { path: log_of(path), index });
        Self { files: files.into_iter().flatten().collect(), log, lost: None }
    }

    /// Checks the files.
    ///
    /// # Errors
    /// What happened to a file, and what to do.
    pub fn look(&mut self) -> Result<(), String> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let mut log_length = None;
        for file in &mut self.files {
            let happened = match facts_of(&file.path) {
                Ok(found) if found.identity != file.identity => "was replaced by another file",
                Ok(found) => match file.length {
                    Some(length) if found.length < length && !is_whole(&file.path, found.length) => {
                        "was truncated"
                    }
                    Some(_) => {
                        file.length = Some(found.length);
                        continue;
                    }
                    None => {
                        log_length = Some(found.length);
                        continue;
                    }
                },
                // It can be moved back.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(sentence(&file.path, "was removed"));
                }
                // If the folder cannot be read, nothing is known of the file.
                Err(_) => continue,
            };
            let lost = sentence(&file.path, happened);
            self.lost = Some(lost.clone());
            return Err(lost);
        }
        if let Some(log) = self.log.as_ref().filter(|log| log.is_cut(log_length)) {
            let lost = sentence(&log.path, "was truncated");
            self.lost = Some(lost.clone());
            return Err(lost);
        }
        Ok(())
    }

    /// Returns whether a file was truncated or replaced.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }
}

impl Log {
    /// Returns whether the log, whose length was just read, is shorter than in its index. SQLite changes the index
    /// before it shortens the log and after it extends it, so the length is read first. Another process can do both in
    /// between, so it is read again.
    fn is_cut(&self, just_read: Option<u64>) -> bool {
        let length =
            |read_before: Option<u64>| read_before.or_else(|| Some(facts_of(&self.path).ok()?.length));
        [just_read, None, None].into_iter().all(|read_before| {
            let Some(length) = length(read_before) else { return false };
            self.counted().is_some_and(|counted| length < counted)
        })
    }

    /// Returns the minimum length of the log from the header of its index (*The WAL-Index File Format* in SQLite's
    /// documentation).
    #[cfg(unix)]
    fn counted(&self) -> Option<u64> {
        use std::os::unix::fs::FileExt as _;
        const COPY: usize = 48;
        let mut header = [0; 2 * COPY];
        self.index.read_exact_at(&mut header, 0).ok()?;
        let (first, second) = header.split_at(COPY);
        let is_initialized = first[12] == 1;
        // If the copies differ, it is being written.
        if !is_initialized || first != second {
            return None;
        }
        let page = match u16::from_ne_bytes([first[14], first[15]]) {
            1 => 65_536,
            size => u64::from(size),
        };
        let frames = u64::from(u32::from_ne_bytes([first[16], first[17], first[18], first[19]]));
        (frames > 0).then_some(HEADER + frames * (FRAME_HEADER + page))
    }

    #[cfg(not(unix))]
    fn counted(&self) -> Option<u64> {
        let _ = &self.index;
        None
    }
}

fn sentence(path: &Path, happened: &str) -> String {
    format!(
        "{} {happened} while the host runs, so nothing more is stored; stop the host, restore the file or a backup \
         of it, and start it again",
        path.display()
    )
}

/// Returns whether a shorter file contains every page of its header, as after a `VACUUM`.
fn is_whole(path: &Path, length: u64) -> bool {
    let mut header = [0; 32];
    if File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_err() {
        return false;
    }
    let size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u64::from(u32::from_be_bytes([header[28], header[29], header[30], header[31]]));
    header.starts_with(b"SQLite format 3\0") && pages > 0 && length >= size * pages
}

/// The device of a file and its number there, where files have them.
type Identity = Option<(u64, u64)>;

/// The facts of a file that the guard compares.
struct FileFacts {
    identity: Identity,
    length: u64,
}

/// Reads the facts of a file, but not its times. Since Linux 6.13, the first write after a process has read a file's times
/// always changes them; other writes change them once per tick of the clock. On a file system without a journal, `fdatasync`
/// then writes the file's inode in addition to its data.
#[cfg(target_os = "linux")]
fn facts_of(path: &Path) -> io::Result<FileFacts> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let wanted = StatxFlags::INO | StatxFlags::SIZE;
    match statx(CWD, path, AtFlags::empty(), wanted) {
        Ok(found) if StatxFlags::from_bits_retain(found.stx_mask).contains(wanted) => Ok(FileFacts {
            identity: Some((makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)),
            length: found.stx_size,
        }),
        // An older system, a sandbox that does not allow the call, or a file system without these fields.
        Ok(_) | Err(_) => facts_with_times(path),
    }
}

#[cfg(not(target_os = "linux"))]
fn facts_of(path: &Path) -> io::Result<FileFacts> {
    facts_with_times(path)
}

fn facts_with_times(path: &Path) -> io::Result<FileFacts> {
    let found = std::fs::metadata(path)?;
    Ok(FileFacts { identity: identity(&found), length: found.len() })
}

#[cfg(unix)]
fn identity(found: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> Identity {
    None
}
