//! Writes an archive, also while the host runs.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ostler_ports::{StateDb, atomic};
use serde::Serialize;
use tar::{Builder, EntryType};
use walkdir::WalkDir;

use super::{
    CONFIG, CONTENTS, Contents, FORMAT, HEADER, Hashed, Header, PROGRAM, STATE, is_covered, is_state,
};
use crate::config::Folders;
use crate::exit::Exit;

/// The result of a backup.
#[derive(Debug)]
pub struct BackupSummary {
    /// How many files of the configuration folder it has.
    pub files: usize,
    /// The size of all its files, uncompressed.
    pub bytes: u64,
    /// The included state database, if there is one.
    pub state: Option<PathBuf>,
    /// Paths that are not in it because they could not be read as files.
    pub left_out: Vec<String>,
}

/// Writes an archive of a host's folders to `out`. Blocks.
///
/// The configuration folder comes first and the state database last: of a webhook call that changes both, at worst the
/// record is missing, so that a repeated call is handled twice rather than never.
///
/// # Errors
/// Exit 1 if a file cannot be read, or the archive cannot be written.
pub fn write(folders: &Folders, created_at: String, out: impl Write) -> Result<BackupSummary, Exit> {
    let failed = |error: io::Error| Exit::machine(format!("the backup could not be written: {error}"));
    let mut archive = Archive {
        tar: Builder::new(GzEncoder::new(out, Compression::default())),
        contents: Contents::default(),
        modified: jiff::Timestamp::now().as_second().unsigned_abs(),
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let header = Header { program: PROGRAM.to_owned(), format: FORMAT, version, created_at };
    archive.add_json(HEADER, &header).map_err(failed)?;

    let mut left_out = Vec::new();
    for found in files(folders) {
        let path = match found {
            Ok(path) => path,
            // It was removed since, or is a dangling link.
            Err((path, _)) if !path.exists() => {
                left_out.extend(path.is_symlink().then(|| format!("{} is a broken link", path.display())));
                continue;
            }
            Err((path, why)) => {
                return Err(Exit::machine(format!("{} could not be read: {why}", path.display())));
            }
        };
        let name = path.strip_prefix(&folders.config).ok().and_then(Path::to_str);
        let Some(name) = name else {
            left_out.push(format!("{} has a name that is not valid UTF-8", path.display()));
            continue;
        };
        let unread = |error| Exit::machine(format!("{} could not be read: {error}", path.display()));
        match File::open(&path) {
            Ok(file) => archive.add(&format!("{CONFIG}/{name}"), &file).map_err(unread)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unread(error)),
        }
    }
    let files = archive.contents.files.len();

    let state = copied(folders)?;
    if let Some((_, copy)) = &state {
        archive.add(STATE, copy.as_file()).map_err(failed)?;
    }
    let bytes = archive.contents.files.iter().map(|file| file.size).sum();
    archive.finish().map_err(failed)?;
    Ok(BackupSummary { files, bytes, state: state.map(|(path, _)| path), left_out })
}

/// Creates a copy of the state database beside it; returns also the copied file.
fn copied(folders: &Folders) -> Result<Option<(PathBuf, tempfile::NamedTempFile)>, Exit> {
    let Folders { config, state } = folders;
    if ![state, config].iter().any(|folder| StateDb::file(folder).exists()) {
        return Ok(None);
    }
    let unwritten = |error| {
        Exit::machine(format!("the state database could not be copied in {}: {error}", state.display()))
    };
    atomic::make_private_folder(state).map_err(unwritten)?;
    atomic::sweep(state);
    let copy = atomic::temporary(&StateDb::file(state)).map_err(unwritten)?;
    let found = StateDb::copy_to(config, state, copy.path()).map_err(|why| Exit::machine(why.message))?;
    Ok(found.map(|path| (path, copy)))
}

/// The files of the configuration folder that a backup has, in the order of their names.
fn files(folders: &Folders) -> impl Iterator<Item = Result<PathBuf, (PathBuf, String)>> {
    let walk = WalkDir::new(&folders.config).min_depth(1).follow_links(true).sort_by_file_name().into_iter();
    let covered = walk.filter_entry(|entry| {
        let name = entry.file_name().to_string_lossy();
        let own = entry.depth() > 1 || is_covered(&name, is_state(entry.path(), folders));
        own && !atomic::is_leftover(&name) && !atomic::is_lock(&name)
    });
    covered.filter_map(|entry| match entry {
        Ok(entry) => entry.file_type().is_file().then(|| Ok(entry.into_path())),
        Err(error) => {
            let path = error.path().map(Path::to_owned).unwrap_or_default();
            // A link to a folder above itself contains nothing that is not already stored.
            error.loop_ancestor().is_none().then(|| Err((path, error.to_string())))
        }
    })
}

struct Archive<W: Write> {
    tar: Builder<GzEncoder<W>>,
    contents: Contents,
    modified: u64,
}

impl<W: Write> Archive<W> {
    fn add(&mut self, name: &str, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        let mut head = head(found.len(), mode(&found));
        head.set_mtime(found.modified().ok().and_then(seconds).unwrap_or(self.modified));
        // Data that is added to a file in the meantime is not included; a file that became shorter has fewer bytes than
        // its entry.
        let mut content = Hashed::new(file.take(found.len()));
        self.tar.append_data(&mut head, name, &mut content)?;
        if content.size < found.len() {
            return Err(io::Error::other("it became shorter while it was read; try again"));
        }
        self.contents.files.push(content.stored(name.to_owned()));
        Ok(())
    }

    fn add_json(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value)? + "\n";
        let mut head = head(text.len() as u64, 0o600);
        head.set_mtime(self.modified);
        self.tar.append_data(&mut head, name, text.as_bytes())
    }

    fn finish(mut self) -> io::Result<()> {
        let contents = std::mem::take(&mut self.contents);
        self.add_json(CONTENTS, &contents)?;
        self.tar.into_inner()?.finish()?.flush()
    }
}

fn head(size: u64, mode: u32) -> tar::Header {
    let mut head = tar::Header::new_gnu();
    head.set_entry_type(EntryType::Regular);
    head.set_size(size);
    head.set_mode(mode);
    head
}

fn seconds(at: std::time::SystemTime) -> Option<u64> {
    at.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(unix)]
fn mode(found: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777
}

#[cfg(not(unix))]
fn mode(_: &std::fs::Metadata) -> u32 {
    0o600
}
