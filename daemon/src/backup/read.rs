//! Restores an archive. Nothing is replaced before the whole archive was checked.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use ostler_ports::{StateDb, atomic};
use serde::de::DeserializeOwned;
use tar::{Archive, Entry};
use tempfile::TempDir;

use super::{
    ArchivedFile, CONFIG, CONTENTS, Contents, FORMAT, HEADER, Hashed, Header, PROGRAM, REPLACED, STATE,
    UNPACKED, is_covered, is_state,
};
use crate::config::Folders;
use crate::exit::Exit;

/// The maximum size of the two entries that describe the archive.
const DESCRIPTION_LIMIT: u64 = 64 << 20;

/// The result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// When the backup was created.
    pub created_at: String,
    /// The version of ostler that created it.
    pub version: String,
    /// How many files of the configuration folder it had.
    pub files: usize,
    /// Whether it had a state database.
    pub state: bool,
    /// Where the replaced files are.
    pub replaced: Vec<PathBuf>,
}

/// Restores an archive into a host's folders, which the caller has locked. With `force`, existing files are moved into
/// a folder whose name ends in `stamp`. Blocks.
///
/// # Errors
/// Exit 1 if files exist, the archive is not a complete backup, or the system reports an error.
pub fn restore(folders: &Folders, source: impl Read, force: bool, stamp: &str) -> Result<Restored, Exit> {
    let Folders { config, state } = folders;
    let there = occupied(folders).map_err(|error| system(config, &error))?;
    if let (false, Some(first)) = (force, there.first()) {
        let (first, folder) = (first.display(), config.display());
        return Err(Exit::machine(format!(
            "{folder} is in use: it has {first}; --force moves what is there to a separate folder and restores"
        )));
    }
    for folder in [config, state] {
        remove_unpacked(folder);
    }
    let unpacked = Unpacked::of(folders)?;
    let (header, contents) = unpacked.read(source)?;
    if let Some(copy) = unpacked.state_db() {
        StateDb::verify(&copy)
            .map_err(|why| Exit::machine(format!("the backup is damaged: {}", why.message)))?;
    }

    let replaced = there
        .iter()
        .map(|path| set_aside(path, stamp).map_err(|error| system(path, &error)))
        .collect::<Result<Vec<_>, _>>()?;
    unpacked.place(folders)?;
    let has_state = contents.files.iter().any(|file| file.path == STATE);
    let mut asides: Vec<PathBuf> = replaced;
    asides.dedup();
    Ok(Restored {
        created_at: header.created_at,
        version: header.version,
        files: contents.files.len() - usize::from(has_state),
        state: has_state,
        replaced: asides,
    })
}

fn system(path: &Path, error: &io::Error) -> Exit {
    Exit::machine(format!("{}: {error}", path.display()))
}

fn damaged(why: impl std::fmt::Display) -> Exit {
    Exit::machine(format!("the backup is damaged or incomplete: {why}; nothing was changed"))
}

/// Returns what a restore would replace.
fn occupied(folders: &Folders) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in entries(&folders.config)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_covered(&name, is_state(&path, folders)) && !atomic::is_lock(&name) {
            found.push(path);
        }
    }
    found.sort();
    for folder in [&folders.state, &folders.config] {
        let file = StateDb::file(folder);
        for suffix in ["", "-wal", "-shm"] {
            let mut name = file.clone().into_os_string();
            name.push(suffix);
            found.extend(fs::symlink_metadata(&name).is_ok().then(|| PathBuf::from(name)));
        }
        if folders.state == folders.config {
            break;
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.collect::<Vec<_>>().into_iter()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new().into_iter()),
        Err(error) => Err(error),
    }
}

/// Moves a file or folder into a folder beside it, which is on the same file system.
fn set_aside(path: &Path, stamp: &str) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(".")).join(format!("{REPLACED}{stamp}"));
    atomic::make_private_folder(&folder)?;
    fs::rename(path, folder.join(path.file_name().unwrap_or_default()))?;
    Ok(folder)
}

/// Removes what a killed restore had unpacked.
fn remove_unpacked(folder: &Path) {
    for entry in entries(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNPACKED) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The files of an archive, in folders beside their places.
struct Unpacked {
    config: TempDir,
    state: TempDir,
}

impl Unpacked {
    fn of(folders: &Folders) -> Result<Self, Exit> {
        let within = |folder: &Path| {
            atomic::make_private_folder(folder)
                .and_then(|()| tempfile::Builder::new().prefix(UNPACKED).tempdir_in(folder))
                .map_err(|error| system(folder, &error))
        };
        Ok(Self { config: within(&folders.config)?, state: within(&folders.state)? })
    }

    /// Unpacks and checks an archive.
    fn read(&self, source: impl Read) -> Result<(Header, Contents), Exit> {
        let mut archive = Archive::new(GzDecoder::new(source));
        let mut entries = archive.entries().map_err(damaged)?;
        let foreign = || Exit::usage("the file is not a backup of ostler");
        let mut first = entries.next().and_then(Result::ok).ok_or_else(foreign)?;
        if name_of(&first).ok().as_deref() != Some(HEADER) {
            return Err(foreign());
        }
        let header: Header = described(&mut first).map_err(|_| foreign())?;
        if header.program != PROGRAM {
            return Err(foreign());
        }
        if header.format > FORMAT {
            return Err(Exit::machine(format!(
                "the backup was written by ostler {}, in a format that this version ({}) cannot read; update ostler",
                header.version,
                env!("CARGO_PKG_VERSION")
            )));
        }
        let mut found = Contents::default();
        for entry in entries {
            let mut entry = entry.map_err(damaged)?;
            let name = name_of(&entry)?;
            if name == CONTENTS {
                let told: Contents = described(&mut entry).map_err(damaged)?;
                return match told == found {
                    true => Ok((header, told)),
                    false => Err(damaged("its files are not those it lists")),
                };
            }
            found.files.push(self.unpack(name, &mut entry)?);
        }
        Err(damaged("its end is missing"))
    }

    fn unpack(&self, name: String, entry: &mut Entry<'_, impl Read>) -> Result<ArchivedFile, Exit> {
        if !entry.header().entry_type().is_file() {
            return Err(damaged(format_args!("{name} is not a file")));
        }
        let target =
            self.target(&name).ok_or_else(|| damaged(format_args!("{name} is not a file of a host")))?;
        let unwritten = |error| system(&target, &error);
        if let Some(folder) = target.parent() {
            atomic::make_private_folder(folder).map_err(unwritten)?;
        }
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, entry.header().mode().unwrap_or(0o600) & 0o777);
        let mut written = Hashed::new(options.open(&target).map_err(unwritten)?);
        let size = entry.size();
        io::copy(entry, &mut written).map_err(damaged)?;
        if written.size != size {
            return Err(damaged(format_args!("{name} was cut short")));
        }
        written.inner.sync_all().map_err(unwritten)?;
        Ok(written.stored(name))
    }

    /// Returns where an entry is unpacked; only names of a backup have a place.
    fn target(&self, name: &str) -> Option<PathBuf> {
        if name == STATE {
            return Some(StateDb::file(self.state.path()));
        }
        let below = Path::new(name).strip_prefix(CONFIG).ok()?;
        let mut parts = below.components();
        let Component::Normal(first) = parts.next()? else { return None };
        let plain = parts.all(|part| matches!(part, Component::Normal(_)));
        (plain && is_covered(first.to_str()?, false)).then(|| self.config.path().join(below))
    }

    fn state_db(&self) -> Option<PathBuf> {
        Some(StateDb::file(self.state.path())).filter(|file| file.exists())
    }

    /// Moves everything to its place, the state database last.
    fn place(&self, folders: &Folders) -> Result<(), Exit> {
        for (from, to) in [(self.config.path(), &folders.config), (self.state.path(), &folders.state)] {
            for entry in entries(from).map_err(|error| system(from, &error))? {
                let entry = entry.map_err(|error| system(from, &error))?;
                let target = to.join(entry.file_name());
                fs::rename(entry.path(), &target).map_err(|error| system(&target, &error))?;
            }
            atomic::sync_folder(to).map_err(|error| system(to, &error))?;
        }
        Ok(())
    }
}

fn name_of(entry: &Entry<'_, impl Read>) -> Result<String, Exit> {
    let path = entry.path().map_err(damaged)?;
    path.to_str().map(str::to_owned).ok_or_else(|| damaged("a name in it is not valid UTF-8"))
}

fn described<T: DeserializeOwned>(entry: &mut Entry<'_, impl Read>) -> io::Result<T> {
    let mut text = Vec::new();
    entry.take(DESCRIPTION_LIMIT).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
