//! Stamps of files: metadata that shows whether a file has changed since it was read.

use std::fs::Metadata;
use std::time::{Duration, SystemTime};

/// A clock tick of a file system, within which a second write can leave the metadata unchanged.
const TICK: Duration = Duration::from_millis(20);

/// The state of a file when it was read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    modified: Option<SystemTime>,
    size: u64,
    /// Inode and time of the last change of any kind, on systems that have them.
    identity: (u64, i64, i64),
    /// Whether it was read so soon after a write that the metadata cannot show a later one.
    young: bool,
}

impl Stamp {
    /// The stamp of a file that is about to be read.
    pub fn before_reading(found: &Metadata) -> Self {
        Self::read_at(found, SystemTime::now())
    }

    fn read_at(found: &Metadata, now: SystemTime) -> Self {
        let mut stamp = Self::of_own(found);
        stamp.young = match stamp.modified.map(|at| now.duration_since(at)) {
            Some(Ok(age)) => age < TICK,
            // A time in the future: only the metadata can show changes.
            Some(Err(_)) => false,
            None => true,
        };
        stamp
    }

    /// The stamp of a file that this process has just placed: another write creates another file, or takes longer.
    pub(crate) fn of_own(found: &Metadata) -> Self {
        #[cfg(unix)]
        let identity = {
            use std::os::unix::fs::MetadataExt as _;
            (found.ino(), found.ctime(), found.ctime_nsec())
        };
        #[cfg(not(unix))]
        let identity = (0, 0, 0);
        Self { modified: found.modified().ok(), size: found.len(), identity, young: false }
    }

    /// The stamp of a file whose metadata cannot be read.
    pub fn unknown() -> Self {
        Self { modified: None, size: 0, identity: (0, 0, 0), young: true }
    }

    /// Returns whether both are of the same file without a write in between.
    pub(crate) fn is_of_same_file(&self, other: &Self) -> bool {
        Self { young: false, ..*self } == Self { young: false, ..*other }
    }

    /// Returns whether the file is unchanged.
    pub fn still(&self, found: &Metadata) -> bool {
        !self.young && *self == Self::of_own(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_file_is_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = file.as_file().metadata().unwrap();
        assert!(Stamp::of_own(&found).still(&found));
        let written = found.modified().unwrap();
        assert!(!Stamp::read_at(&found, written + TICK / 2).still(&found));
        assert!(Stamp::read_at(&found, written + TICK).still(&found));

        file.as_file().set_modified(SystemTime::now() - Duration::from_secs(5)).unwrap();
        let found = file.as_file().metadata().unwrap();
        let stamp = Stamp::before_reading(&found);
        assert!(stamp.still(&found));

        file.as_file().set_len(1).unwrap();
        assert!(!stamp.still(&file.as_file().metadata().unwrap()));
    }
}
