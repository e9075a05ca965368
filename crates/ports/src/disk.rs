//! Whether files can be written in the folders of a host.

use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::atomic;

/// The free space below which a check writes: file systems report more than there is, as with quotas, or less.
const LOW: u64 = 4 << 20;
/// The size of the file that a check writes: a large record, or some commits of the state database.
const PROBE: usize = 256 << 10;

/// Checks whether files can be written in the folders of a host.
#[derive(Debug, Clone)]
pub struct DiskProbe {
    folders: Vec<PathBuf>,
}

impl DiskProbe {
    /// Creates a check of these folders.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut folders: Vec<PathBuf> = folders.into_iter().collect();
        folders.dedup();
        Self { folders }
    }

    /// Writes and removes a file in each folder. Blocks.
    ///
    /// # Errors
    /// Names the folder, the reason, and what to do.
    pub fn write(&self) -> Result<(), String> {
        self.folders.iter().try_for_each(|folder| written(folder))
    }

    /// Like [`Self::write`], only in folders whose file system reports little free space or is read-only. Blocks.
    ///
    /// # Errors
    /// Names the folder, the reason, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let doubtful = self.folders.iter().filter(|folder| is_doubtful(folder));
        doubtful.into_iter().try_for_each(|folder| written(folder))
    }
}

/// Returns how many bytes this process can still write in a folder, as its file system reports it; `None` if that is not known.
#[cfg(unix)]
pub fn free_space(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    // Some file systems over a network do not know.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns how many bytes this process can still write in a folder, as its file system reports it; `None` if that is not known.
#[cfg(not(unix))]
pub fn free_space(_: &Path) -> Option<u64> {
    None
}

#[cfg(unix)]
fn is_doubtful(folder: &Path) -> bool {
    let read_only = || {
        rustix::fs::statvfs(folder)
            .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    };
    free_space(folder).is_some_and(|free| free < LOW) || read_only()
}

#[cfg(not(unix))]
fn is_doubtful(_: &Path) -> bool {
    false
}

fn written(folder: &Path) -> Result<(), String> {
    write_in(folder).map_err(|error| {
        let shown = folder.display();
        match error.kind() {
            ErrorKind::StorageFull => format!("{shown} cannot be written: the disk is full; free some space"),
            ErrorKind::QuotaExceeded => {
                format!("{shown} cannot be written: the disk quota is used up; free some space, or raise the quota")
            }
            ErrorKind::ReadOnlyFilesystem => {
                format!("{shown} cannot be written: its file system is read-only; mount it for writing")
            }
            _ => format!("{shown} cannot be written: {error}"),
        }
    })
}

fn write_in(folder: &Path) -> io::Result<()> {
    let mut file = atomic::temporary(&folder.join("probe"))?;
    file.write_all(&vec![0; PROBE])?;
    // Some file systems find out only now that there is no room.
    file.as_file().sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_problem_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let probe = DiskProbe::new([folder.path().to_owned(), folder.path().to_owned()]);
        assert_eq!((probe.write(), probe.check()), (Ok(()), Ok(())));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        if cfg!(unix) {
            assert!(free_space(folder.path()).is_some());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let why = DiskProbe::new([missing.clone()]).write().unwrap_err();
        assert!(why.starts_with(&format!("{} cannot be written: ", missing.display())), "{why}");
    }
}
