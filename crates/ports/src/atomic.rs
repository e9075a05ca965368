//! Files written whole: a reader, and a start after a crash, finds what a file held before or what it holds
//! now, never half of it.

use std::borrow::Cow;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::{Builder, NamedTempFile};

const LEFTOVER: &str = ".ostler-tmp";
/// By when no writer is still at it.
const STALE: Duration = Duration::from_secs(3600);

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Whoever could before; a new file is as the process makes files.
    Usual,
    /// Its owner alone.
    Owner,
}

/// Writes a file, in place of what it held. When this returns, a crash does not lose it.
pub fn write(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    let placed = Staged::new(path, content, access)?.place()?;
    sync_folder(folder_of(&placed))
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
        let prefix = format!(".{}.", name_of(&target));
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(LEFTOVER);
        let before = fs::metadata(&target).ok().map(|found| found.permissions());
        let wanted = match access {
            Access::Owner => mode(0o600),
            Access::Usual => before.clone().or_else(|| mode(0o666)),
        };
        if let Some(wanted) = wanted {
            builder.permissions(wanted);
        }
        let mut file = builder.tempfile_in(folder_of(&target))?;
        if let (Access::Usual, Some(before)) = (access, before) {
            // The process's mask was taken off it above.
            file.as_file().set_permissions(before)?;
        }
        file.write_all(content)?;
        file.as_file().sync_all()?;
        Ok(Self { file, target })
    }

    /// Puts it in the file's place. Durable once the folder is.
    pub(crate) fn place(self) -> io::Result<PathBuf> {
        self.file.persist(&self.target).map_err(|failed| failed.error)?;
        Ok(self.target)
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
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder is no file to open, and renames are durable without.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Makes a folder where there is none.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    sync_folder(folder_of(folder))
}

/// Makes an empty file only its owner may read, unless there is a file.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Removes what a killed writer left, if that is what the file is.
pub(crate) fn sweep(path: &Path) {
    let left = name_of(path).ends_with(LEFTOVER);
    let age = || SystemTime::now().duration_since(fs::metadata(path).ok()?.modified().ok()?).ok();
    if left && age().is_some_and(|age| age > STALE) {
        // The next start tries again.
        let _ = fs::remove_file(path);
    }
}

/// Holds a file against other processes that hold it too, until dropped: for what is read, changed and
/// written back. The lock stands beside the file, which is another one after each write.
pub(crate) fn hold(path: &Path) -> io::Result<File> {
    let lock = path.with_file_name(format!(".{}.lock", name_of(path)));
    make_private(&lock)?;
    let file = File::options().write(true).open(lock)?;
    file.lock()?;
    Ok(file)
}
