//! Files written whole: a reader, and a start after a crash, finds what a file held before or what it holds
//! now, never half of it.

use std::borrow::Cow;
use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tempfile::{Builder, NamedTempFile};

use crate::stamp::Stamp;

const LEFTOVER: &str = ".ostler-tmp";
/// How many letters and digits make its name one nobody else has.
const RANDOM: usize = 6;
/// By when no writer is still at it, where a file cannot be locked.
const STALE: Duration = Duration::from_secs(3600);
/// How long another process may hold a file.
const HELD: Duration = Duration::from_secs(30);

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Who could before; a new file is its owner's alone.
    Usual,
    /// Its owner alone.
    Owner,
}

/// Writes a file, in place of what it held. When this returns, a crash does not lose it.
pub fn write(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    let staged = Staged::new(path, content, access)?;
    let target = staged.target.clone();
    staged.place()?;
    sync_folder(folder_of(&target))
}

/// Writes a file in place of `before`, which it held when it was read; `None` is no file. Answers `false`, with nothing
/// written, where it holds something else by now: what somebody has written in between stays.
pub fn replace(path: &Path, before: Option<&[u8]>, content: &[u8], access: Access) -> io::Result<bool> {
    let staged = Staged::new(path, content, access)?;
    let target = staged.target.clone();
    // To make the content durable took milliseconds; from here to the rename it is microseconds.
    let now = match fs::read(&target) {
        Ok(now) => Some(now),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if now.as_deref() != before {
        return Ok(false);
    }
    staged.place()?;
    sync_folder(folder_of(&target))?;
    Ok(true)
}

/// The sentence where [`replace`] found something else.
pub fn edited(path: &Path) -> String {
    format!("{} was edited at the same time, so it is left as it is; try again", path.display())
}

/// A file's new content, safe on disk beside it.
pub(crate) struct Staged {
    file: NamedTempFile,
    target: PathBuf,
}

impl Staged {
    pub(crate) fn new(path: &Path, content: &[u8], access: Access) -> io::Result<Self> {
        // A link stays one: what it leads to is written.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = fs::metadata(&target).ok().map(|found| found.permissions());
        let wanted = match access {
            Access::Owner => mode(0o600),
            Access::Usual => before.clone().or_else(|| mode(0o600)),
        };
        let mut file = beside(&target, wanted)?;
        if let (Access::Usual, Some(before)) = (access, before) {
            // The process's mask was taken off it above.
            file.as_file().set_permissions(before)?;
        }
        file.write_all(content)?;
        file.as_file().sync_all()?;
        Ok(Self { file, target })
    }

    /// Puts it in the file's place; durable once the folder is. Answers the stamp of what was put there.
    pub(crate) fn place(self) -> io::Result<(Metadata, Stamp)> {
        let before = self.file.as_file().metadata()?;
        // What the path leads to may be somebody else's file by now; this is ours.
        let file = self.file.persist(&self.target).map_err(|failed| failed.error)?;
        let found = file.metadata()?;
        let ours = before.modified().ok() == found.modified().ok() && before.len() == found.len();
        let stamp = if ours { Stamp::of_own(&found) } else { Stamp::unknown() };
        Ok((found, stamp))
    }
}

/// An empty file beside `path`, its owner's alone, which goes with the value unless it is put in a place. No sweep takes
/// it meanwhile; one that a killed process left is taken.
pub fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    beside(path, mode(0o600))
}

fn beside(target: &Path, permissions: Option<Permissions>) -> io::Result<NamedTempFile> {
    let prefix = format!(".{}.", name_of(target));
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(LEFTOVER).rand_bytes(RANDOM);
    if let Some(permissions) = permissions {
        builder.permissions(permissions);
    }
    loop {
        let file = builder.tempfile_in(folder_of(target))?;
        if claimed(file.as_file()) {
            return Ok(file);
        }
    }
}

#[cfg(unix)]
fn mode(bits: u32) -> Option<Permissions> {
    Some(std::os::unix::fs::PermissionsExt::from_mode(bits))
}

#[cfg(not(unix))]
fn mode(_: u32) -> Option<Permissions> {
    None
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Makes what was placed in a folder, or removed from it, durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder is no file to open, and renames are durable without.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Makes a folder where there is none.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    sync_folder(folder_of(folder))
}

/// Makes a folder where there is none, and those above it, for their owner alone.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    sync_folder(folder_of(folder))
}

/// Moves a file to where there is none, to another file system too. After a crash it is in one of the two places and
/// whole, or in both. Its owner alone may read it. A link is moved, not what it leads to.
pub fn relocate(old: &Path, new: &Path) -> io::Result<()> {
    if fs::symlink_metadata(old)?.is_symlink() {
        // What it leads to may be named from the folder it was in.
        relink(&fs::canonicalize(old)?, new)?;
        fs::remove_file(old)?;
    } else if let Err(error) = fs::rename(old, new) {
        if error.kind() != io::ErrorKind::CrossesDevices {
            return Err(error);
        }
        let mut builder = Builder::new();
        let prefix = format!(".{}.", name_of(new));
        builder.prefix(&prefix).suffix(LEFTOVER).rand_bytes(RANDOM);
        let mut copy = builder.tempfile_in(folder_of(new))?;
        io::copy(&mut File::open(old)?, &mut copy)?;
        copy.as_file().sync_all()?;
        copy.persist_noclobber(new).map_err(|failed| failed.error)?;
        sync_folder(folder_of(new))?;
        fs::remove_file(old)?;
    }
    sync_folder(folder_of(new))?;
    sync_folder(folder_of(old))
}

#[cfg(unix)]
fn relink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn relink(target: &Path, link: &Path) -> io::Result<()> {
    fs::copy(target, link).map(drop)
}

/// Makes an empty file only its owner may read, unless there is a file.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Holds a file just made for as long as it is open, so that no sweep takes it; `false` where one has already.
#[cfg(unix)]
fn claimed(file: &File) -> bool {
    let there = |found: Metadata| std::os::unix::fs::MetadataExt::nlink(&found) > 0;
    file.lock().is_err() || file.metadata().is_ok_and(there)
}

#[cfg(not(unix))]
fn claimed(_: &File) -> bool {
    true
}

/// Removes what killed writers left in a folder. A file a writer is at stays, whichever process it is in.
pub fn sweep(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        sweep_file(&file.path());
    }
}

/// Removes what a killed writer left, if that is what the file is.
pub(crate) fn sweep_file(path: &Path) {
    let is_file = || fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    if !is_leftover(&name_of(path)) || !is_file() {
        return;
    }
    let Ok(file) = File::open(path) else { return };
    // A killed process holds nothing any more.
    let left = match cfg!(unix).then(|| file.try_lock()) {
        Some(Ok(())) => true,
        Some(Err(TryLockError::WouldBlock)) => false,
        Some(Err(TryLockError::Error(_))) | None => {
            let modified = file.metadata().and_then(|found| found.modified()).ok();
            let age = modified.and_then(|at| SystemTime::now().duration_since(at).ok());
            age.is_some_and(|age| age > STALE)
        }
    };
    if left {
        // The next start tries again.
        let _ = fs::remove_file(path);
    }
}

/// Whether a name is that of a file that is being written: `.<name>.<random>.ostler-tmp`.
pub fn is_leftover(name: &str) -> bool {
    let parts = name
        .strip_prefix('.')
        .and_then(|rest| rest.strip_suffix(LEFTOVER))
        .and_then(|rest| rest.rsplit_once('.'));
    parts.is_some_and(|(of, random)| {
        !of.is_empty() && random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Holds a file against other processes that hold it too, until dropped: for what is read, changed and
/// written back. The lock stands beside the file, which is another one after each write.
pub fn lock(path: &Path) -> io::Result<File> {
    let lock = path.with_file_name(format!(".{}.lock", name_of(path)));
    make_private(&lock)?;
    let file = File::options().write(true).open(lock)?;
    let end = Instant::now() + HELD;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process holds it"));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_writer_is_at_and_is_named_as_ours_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let left = [".r1.md.VWC9EQ.ostler-tmp", ".vault.json.a1b2c3.ostler-tmp"];
        let others = [
            "r1.md.VWC9EQ.ostler-tmp",
            ".r1.md.VWC9E.ostler-tmp",
            ".r1.md.VWC9EQQ.ostler-tmp",
            ".r1.md.VWC-EQ.ostler-tmp",
            ".VWC9EQ.ostler-tmp",
            "..VWC9EQ.ostler-tmp",
            ".r1.md.VWC9EQ.ostler-tmp~",
            ".r1.md.VWC9EQ.tmp",
            "r1.md",
        ];
        for name in left.iter().chain(&others) {
            fs::write(path(name), "x").unwrap();
        }
        fs::create_dir(path(".dir.md.VWC9EQ.ostler-tmp")).unwrap();
        let at_it = Staged::new(&path("r2.md"), b"two", Access::Usual).unwrap();
        sweep(folder.path());
        assert_eq!(left.map(|name| path(name).exists()), [false, false]);
        assert!(path(".dir.md.VWC9EQ.ostler-tmp").is_dir());
        for name in others {
            assert!(path(name).exists(), "{name} is somebody else's");
        }
        at_it.place().unwrap();
        assert_eq!(fs::read(path("r2.md")).unwrap(), b"two");
    }

    /// Every write comes to its end, however a sweep falls into it.
    #[test]
    fn a_sweep_takes_no_write_away() {
        let folder = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                for round in 0..100 {
                    write(&folder.path().join("a"), round.to_string().as_bytes(), Access::Usual).unwrap();
                }
            });
            while !writing.is_finished() {
                sweep(folder.path());
            }
        });
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "99");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
