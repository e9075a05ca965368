//! Atomic writes of files: a reader, and a start after a crash, finds either the old or the new content of a file,
//! never a part.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tempfile::{Builder, NamedTempFile};

use crate::stamp::Stamp;

const LEFTOVER: &str = ".ostler-tmp";
/// The number of random letters and digits in the name of a temporary file.
const RANDOM: usize = 6;
/// The age from which a temporary file has no writer, if files cannot be locked.
const STALE: Duration = Duration::from_secs(3600);
/// How long to wait for another process's lock of a file.
const HELD: Duration = Duration::from_secs(30);

/// Who can read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As before; only the owner for a new file.
    Usual,
    /// Only its owner.
    Owner,
}

/// Replaces the content of a file. The content is durable when this returns.
pub fn write(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    let staged = Staged::new(path, content, access)?;
    let target = staged.target.clone();
    staged.place()?;
    sync_folder(folder_of(&target))
}

/// Replaces the content `before` of a file; `None` means no file. Returns `false` and writes nothing if the content has
/// changed, so that concurrent changes are not overwritten.
pub fn replace(path: &Path, before: Option<&[u8]>, content: &[u8], access: Access) -> io::Result<bool> {
    let staged = Staged::new(path, content, access)?;
    let target = staged.target.clone();
    // Syncing the content took milliseconds; from here to the rename are microseconds.
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

/// The message if [`replace`] found other content.
pub fn edited(path: &Path) -> String {
    format!("{} was edited at the same time, so it is left as it is; try again", path.display())
}

/// The new content of a file, synced to a temporary file beside it.
pub(crate) struct Staged {
    file: NamedTempFile,
    target: PathBuf,
}

impl Staged {
    pub(crate) fn new(path: &Path, content: &[u8], access: Access) -> io::Result<Self> {
        // A symbolic link is retained; its target is written.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = fs::metadata(&target).ok().map(|found| found.permissions());
        let wanted = match access {
            Access::Owner => mode(0o600),
            Access::Usual => before.clone().or_else(|| mode(0o600)),
        };
        let mut file = beside(&target, wanted)?;
        if let (Access::Usual, Some(before)) = (access, before) {
            // The process's umask is applied above.
            file.as_file().set_permissions(before)?;
        }
        file.write_all(content)?;
        file.as_file().sync_all()?;
        Ok(Self { file, target })
    }

    /// Renames it to the file; durable once the folder is synced. Returns the stamp of the new file.
    pub(crate) fn place(self) -> io::Result<(Metadata, Stamp)> {
        let before = self.file.as_file().metadata()?;
        // The path can already lead to another process's file; this handle is ours.
        let file = self.file.persist(&self.target).map_err(|failed| failed.error)?;
        let found = file.metadata()?;
        let ours = before.modified().ok() == found.modified().ok() && before.len() == found.len();
        let stamp = if ours { Stamp::of_own(&found) } else { Stamp::unknown() };
        Ok((found, stamp))
    }
}

/// An empty file beside `path`, readable only by its owner, which is removed with the value unless it is placed. Sweeps
/// ignore it in the meantime and remove those of killed processes.
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

/// Syncs a folder, so that renames and removals in it are durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // On other systems a folder cannot be opened, and renames are durable without this.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Creates a folder and its parents if they do not exist, durably.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    make(folder, fs::DirBuilder::new().recursive(true))
}

/// As [`make_folder`], accessible only by their owner.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    make(folder, &builder)
}

/// Folders that this process has made and whose names are not synced, and how many threads sync each.
static UNSYNCED: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

fn unsynced() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a folder, and syncs each folder that has a new one in it.
fn make(folder: &Path, builder: &fs::DirBuilder) -> io::Result<()> {
    make_with(folder, builder, sync_folder)
}

fn make_with(
    folder: &Path,
    builder: &fs::DirBuilder,
    sync: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let above = || folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty());
    let mut unsynced = unsynced();
    let missing = above().take_while(|folder| !folder.is_dir());
    let missing: Vec<&Path> = missing.collect();
    if !missing.is_empty() {
        let created = builder.create(folder);
        // Also those that were made before one could not be.
        let made = missing.iter().filter(|folder| folder.is_dir());
        unsynced.extend(made.map(|folder| (folder.to_path_buf(), 0)));
        created?;
    }
    // Of another thread, too: a folder whose name is not synced is not there yet.
    let mut ours = Vec::new();
    for folder in above() {
        if let Some(threads) = unsynced.get_mut(folder) {
            *threads += 1;
            ours.push(folder);
        }
    }
    drop(unsynced);
    let synced = ours.iter().try_for_each(|made| sync(folder_of(made)));
    after_sync(&ours, synced.is_ok());
    synced
}

/// Notes the outcome of a sync. Removes the folders that could not be synced, innermost first, so that a later start does not
/// take them for synced. One that is in use stays, and is synced when it is asked for again.
fn after_sync(made: &[&Path], is_synced: bool) {
    let mut unsynced = unsynced();
    for folder in made {
        // Another thread may have synced it meanwhile.
        let Some(threads) = unsynced.get_mut(*folder) else { continue };
        *threads -= 1;
        if is_synced || *threads == 0 && fs::remove_dir(folder).is_ok() {
            unsynced.remove(*folder);
        }
    }
}

/// Moves a file to a free path, also on another file system. After a crash it is complete at one of the two paths or at
/// both. Only its owner can read it. Moves a symbolic link itself, not its target.
pub fn relocate(old: &Path, new: &Path) -> io::Result<()> {
    if fs::symlink_metadata(old)?.is_symlink() {
        // Its target can be relative to its folder.
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

/// Creates an empty file that only its owner can read, unless the file exists.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Locks a new file as long as it is open, so that no sweep removes it. Returns `false` if a sweep has already removed
/// it.
#[cfg(unix)]
fn claimed(file: &File) -> bool {
    let there = |found: Metadata| std::os::unix::fs::MetadataExt::nlink(&found) > 0;
    file.lock().is_err() || file.metadata().is_ok_and(there)
}

#[cfg(not(unix))]
fn claimed(_: &File) -> bool {
    true
}

/// Removes the temporary files of killed writers in a folder. Files of running writers, in any process, stay.
pub fn sweep(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        sweep_file(&file.path());
    }
}

/// Removes a file if it is the temporary file of a killed writer.
pub(crate) fn sweep_file(path: &Path) {
    let is_file = || fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    if !is_leftover(&name_of(path)) || !is_file() {
        return;
    }
    let Ok(file) = File::open(path) else { return };
    // A killed process has no locks.
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

/// Returns whether a name is that of a temporary file: `.<name>.<random>.ostler-tmp`.
pub fn is_leftover(name: &str) -> bool {
    let parts = name
        .strip_prefix('.')
        .and_then(|rest| rest.strip_suffix(LEFTOVER))
        .and_then(|rest| rest.rsplit_once('.'));
    parts.is_some_and(|(of, random)| {
        !of.is_empty() && random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Locks a file against other processes that lock it, until dropped, for reading, changing and writing it back. The
/// lock is a file beside it, because each write replaces the file.
pub fn lock(path: &Path) -> io::Result<File> {
    let lock = path.with_file_name(format!(".{}{LOCK}", name_of(path)));
    make_private(&lock)?;
    let file = File::options().write(true).open(lock)?;
    let end = Instant::now() + HELD;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process has locked it"));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The end of the name of a lock.
const LOCK: &str = ".lock";

/// Whether a file is a lock of [`lock`], by its name.
pub fn is_lock(name: &str) -> bool {
    name.strip_prefix('.').and_then(|name| name.strip_suffix(LOCK)).is_some_and(|of| !of.is_empty())
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

    fn made_by(folder: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        make_with(folder, fs::DirBuilder::new().recursive(true), sync)
    }

    #[test]
    fn a_folder_that_could_not_be_synced_is_not_there_until_it_is() {
        let root = tempfile::tempdir().unwrap();
        let (top, folder) = (root.path().join("a"), root.path().join("a/b/c"));
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
        // The sync fails of one folder after the other.
        for failing in [root.path().join("a/b"), top.clone(), root.path().to_owned()] {
            let sync = |synced: &Path| if synced == failing { full() } else { Ok(()) };
            made_by(&folder, sync).unwrap_err();
            assert!(!top.exists(), "{}", failing.display());
        }
        // One that something else uses by then stays.
        let sync = |synced: &Path| match synced == root.path() {
            true => fs::write(folder.join("file"), "x").and_then(|()| full()),
            false => Ok(()),
        };
        made_by(&folder, sync).unwrap_err();
        assert!(folder.is_dir());
        let synced = Mutex::new(Vec::new());
        let sync = |folder: &Path| {
            synced.lock().unwrap().push(folder.to_owned());
            Ok(())
        };
        for _ in 0..2 {
            made_by(&folder, sync).unwrap();
            assert_eq!(
                *synced.lock().unwrap(),
                [root.path().join("a/b"), top.clone(), root.path().to_owned()]
            );
        }
    }

    #[test]
    fn a_thread_does_not_rely_on_what_another_one_has_not_synced_yet() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a");
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (goes_on, may_go_on) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            // Dropped if an assertion fails, so that the first one ends.
            let goes_on = goes_on;
            let first = scope.spawn(|| {
                let (begun, may_go_on) = (begun, may_go_on);
                made_by(&folder, |_| {
                    begun.send(()).unwrap();
                    may_go_on.recv().unwrap();
                    Err(io::Error::from(io::ErrorKind::StorageFull))
                })
            });
            has_begun.recv().unwrap();
            made_by(&folder, |_| Err(io::Error::from(io::ErrorKind::StorageFull))).unwrap_err();
            assert!(folder.is_dir(), "the first one is not done");
            made_by(&folder, sync_folder).unwrap();
            goes_on.send(()).unwrap();
            first.join().unwrap().unwrap_err();
        });
        assert!(folder.is_dir(), "the second one relies on it");
    }
}
