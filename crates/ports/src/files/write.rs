//! Writing: a file is complete at any time, and a link at the end of a path is never followed. A change is durable when its call
//! returns.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write as _};

use cap_std::fs::{Dir, Metadata, OpenOptions};
use cap_tempfile::TempFile;
use ostler_contract::RpcError;
use ostler_contract::points::{ResourceTransfer, ResourceWrite, WriteMode};

use super::git_folder::alone_for;
use super::read::{LARGEST, etag, read_whole};
use super::served_path::{NamedFile, Roots, refusal};

impl NamedFile {
    /// Returns the metadata of what has the name, if it exists.
    fn found(&self) -> io::Result<Option<Metadata>> {
        match self.folder.symlink_metadata(&self.name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Roots {
    pub fn write(&self, uri: &str, content: &ResourceWrite) -> Result<(), RpcError> {
        let bytes = content.decoded()?;
        let place = self.locate(uri)?;
        let named = self.changed(&place)?;
        let failed = |error: io::Error| refusal(uri, &error);
        let found = named.found().map_err(failed)?;
        if let Some(found) = &found {
            if content.create_only {
                return Err(refusal(uri, &ErrorKind::AlreadyExists.into()));
            }
            if !found.is_file() {
                return Err(RpcError::invalid_params(format!(
                    "{uri} is {}; only files can be written",
                    if found.is_dir() { "a directory" } else { "a link or a device" }
                )));
            }
        }
        if let Some(wanted) = &content.if_match
            && found.as_ref().map(etag).as_ref() != Some(wanted)
        {
            return Err(RpcError::conflict(format!("{uri} has changed since {wanted} was read")));
        }
        let before = match (&found, content.mode.unwrap_or(WriteMode::Truncate), content.position) {
            // No part of it remains.
            (None, ..) | (_, WriteMode::Truncate, 0) => Vec::new(),
            _ => read_whole(&named.folder, named.name.as_ref())
                .map_err(failed)?
                .map_err(|why| RpcError::invalid_params(format!("{uri} {why}")))?,
        };
        let bytes = placed(before, bytes, content)
            .map_err(|why| RpcError::invalid_params(format!("{uri}: {why}")))?;
        if bytes.len() as u64 > LARGEST {
            let why = format!("{uri} would be larger than {} MiB, the limit of a write", LARGEST >> 20);
            return Err(RpcError::invalid_params(why));
        }
        if content.create_only {
            // Created first, so that a concurrently created file is not overwritten.
            let new = named.folder.open_with(&named.name, OpenOptions::new().write(true).create_new(true));
            new.map_err(failed)?;
        }
        put(&named, &bytes, found.as_ref()).map_err(failed)
    }

    pub fn delete(&self, uri: &str, recursive: bool) -> Result<(), RpcError> {
        let place = self.locate(uri)?;
        self.holds_nothing_private(&place)?;
        let named = self.changed(&place)?;
        let failed = |error: io::Error| refusal(uri, &error);
        let found = named.found().map_err(failed)?;
        let found = found.ok_or_else(|| refusal(uri, &ErrorKind::NotFound.into()))?;
        remove(&named, &found, recursive).map_err(failed)?;
        sync(&named.folder).map_err(failed)
    }

    pub fn mkdir(&self, uri: &str) -> Result<(), RpcError> {
        let place = self.locate(uri)?;
        // Of each folder that may be made on the way.
        let path = place.path();
        let _alone: Vec<_> = path.iter().filter_map(alone_for).collect();
        self.is_changeable(&place)?;
        self.at(&place, |root, path| {
            let missing = path.ancestors().take_while(|path| !root.exists(path)).count();
            match root.create_dir_all(path) {
                Err(error) if root.metadata(path).is_ok_and(|found| found.is_dir()) => drop(error),
                Err(error) if error.kind() == ErrorKind::NotADirectory => {
                    return Err(ErrorKind::AlreadyExists.into());
                }
                made => made?,
            }
            // The folders in which one was created.
            path.ancestors().skip(1).take(missing).try_for_each(|path| match path.as_os_str().is_empty() {
                true => sync(root),
                false => sync(&root.open_dir(path)?),
            })
        })
    }

    pub fn transfer(
        &self,
        source: &str,
        destination: &str,
        options: ResourceTransfer,
        keep: bool,
    ) -> Result<(), RpcError> {
        let (from, to) = (self.locate(source)?, self.locate(destination)?);
        if from.holds(&to) || to.holds(&from) {
            return Err(RpcError::invalid_params(format!(
                "one of {source} and {destination} contains the other"
            )));
        }
        self.holds_nothing_private(&from)?;
        self.holds_nothing_private(&to)?;
        // What is copied is only read.
        let from = if keep { self.named(&from)? } else { self.changed(&from)? };
        let to = self.changed(&to)?;
        let (at_source, at_destination) =
            (|error: io::Error| refusal(source, &error), |error: io::Error| refusal(destination, &error));
        let found = from.found().map_err(at_source)?;
        let found = found.ok_or_else(|| refusal(source, &ErrorKind::NotFound.into()))?;
        if let Some(there) = to.found().map_err(at_destination)? {
            if options.fail_if_exists {
                return Err(refusal(destination, &ErrorKind::AlreadyExists.into()));
            }
            // A directory does not replace a file or the reverse, so that nothing is lost by mistake.
            if there.is_dir() != found.is_dir() {
                return Err(refusal(destination, &ErrorKind::AlreadyExists.into()));
            }
            // Renaming replaces a file; a directory has to be removed first.
            if there.is_dir() {
                remove(&to, &there, true).map_err(at_destination)?;
            }
        }
        if !keep {
            match from.folder.rename(&from.name, &to.folder, &to.name) {
                Err(error) if error.kind() == ErrorKind::CrossesDevices => {}
                done => {
                    done.and_then(|()| sync(&to.folder)).map_err(at_destination)?;
                    return sync(&from.folder).map_err(at_source);
                }
            }
        }
        copy(&from.folder, &from.name, &to.folder, &to.name)
            .and_then(|()| sync_copy(&to, &found))
            .map_err(at_destination)?;
        if keep {
            return Ok(());
        }
        remove(&from, &found, true).and_then(|()| sync(&from.folder)).map_err(at_source)
    }
}

/// Returns the content of a file after a write.
fn placed(mut before: Vec<u8>, bytes: Vec<u8>, content: &ResourceWrite) -> Result<Vec<u8>, String> {
    let length = before.len() as u64;
    if content.position > length {
        return Err(format!("position is {}, and the file has {length} bytes", content.position));
    }
    let position = usize::try_from(content.position).unwrap_or(usize::MAX);
    match content.mode.unwrap_or(WriteMode::Truncate) {
        WriteMode::Truncate => {
            before.truncate(position);
            before.extend(bytes);
        }
        WriteMode::Append => {
            let at = before.len() - position;
            before.splice(at..at, bytes);
        }
        WriteMode::Insert => {
            before.splice(position..position, bytes);
        }
    }
    Ok(before)
}

/// Replaces the content of a name. The content is durable when this returns.
fn put(named: &NamedFile, bytes: &[u8], before: Option<&Metadata>) -> io::Result<()> {
    let mut file = TempFile::new(&named.folder)?;
    file.write_all(bytes)?;
    if let Some(before) = before {
        file.as_file().set_permissions(before.permissions())?;
    }
    file.as_file().sync_all()?;
    file.replace(&named.name)?;
    sync(&named.folder)
}

/// Syncs a folder, so that changes of its names are durable.
fn sync(folder: &Dir) -> io::Result<()> {
    // On other systems a folder cannot be opened, and renames are durable without this.
    if !cfg!(unix) {
        return Ok(());
    }
    // Some file systems over a network sync no folders.
    let unneeded =
        |error: &io::Error| matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported);
    // The folder itself may be open without the right to sync it.
    match folder.open(".")?.sync_all() {
        Err(error) if unneeded(&error) => Ok(()),
        synced => synced,
    }
}

/// Syncs what was copied to a name, and the name.
fn sync_copy(to: &NamedFile, copied: &Metadata) -> io::Result<()> {
    if copied.is_file() {
        to.folder.open(&to.name)?.sync_all()?;
    } else if copied.is_dir() {
        sync_tree(&to.folder.open_dir(&to.name)?)?;
    }
    sync(&to.folder)
}

/// Syncs everything in a folder.
#[cfg(target_os = "linux")]
fn sync_tree(folder: &Dir) -> io::Result<()> {
    // One sync of the file system takes less time than one of each file.
    Ok(rustix::fs::syncfs(folder.open(".")?)?)
}

/// Syncs everything in a folder.
#[cfg(not(target_os = "linux"))]
fn sync_tree(folder: &Dir) -> io::Result<()> {
    let mut left = vec![folder.try_clone()?];
    while let Some(folder) = left.pop() {
        for entry in folder.entries()? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_dir() {
                left.push(entry.open_dir()?);
            } else if found.is_file() {
                entry.open()?.sync_all()?;
            }
        }
        sync(&folder)?;
    }
    Ok(())
}

fn remove(named: &NamedFile, found: &Metadata, recursive: bool) -> io::Result<()> {
    match (found.is_dir(), recursive) {
        (false, _) => named.folder.remove_file(&named.name),
        (true, false) => named.folder.remove_dir(&named.name),
        (true, true) => named.folder.remove_dir_all(&named.name),
    }
}

/// Copies a file, or a directory with everything below. Links are copied as links if they do not lead outside,
/// otherwise omitted, like devices.
fn copy(from: &Dir, name: &OsStr, to: &Dir, new: &OsStr) -> io::Result<()> {
    let mut left: Vec<(Dir, OsString, Dir, OsString)> =
        vec![(from.try_clone()?, name.to_owned(), to.try_clone()?, new.to_owned())];
    while let Some((from, name, to, new)) = left.pop() {
        let found = from.symlink_metadata(&name)?;
        if found.is_dir() {
            to.create_dir(&new)?;
            let (inside, copied) = (from.open_dir(&name)?, to.open_dir(&new)?);
            for entry in inside.entries()? {
                let name = entry?.file_name();
                left.push((inside.try_clone()?, name.clone(), copied.try_clone()?, name));
            }
        } else if found.is_file() {
            from.copy(&name, &to, &new)?;
        } else if found.is_symlink()
            && let Ok(leads) = from.read_link(&name)
        {
            match to.symlink(leads, &new) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                made => made?,
            }
        }
    }
    Ok(())
}
