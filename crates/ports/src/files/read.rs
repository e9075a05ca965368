//! Reading: lists, contents, facts.

use std::io::{self, Read as _};
use std::path::Path;

use cap_std::fs::{Dir, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use jiff::Timestamp;
use ostler_contract::RpcError;
use ostler_contract::points::{ResourceContent, ResourceFacts, ResourceResolving};
use ostler_contract::wire::commands::DirectoryEntry;

use super::served_path::{Roots, uri_of};

/// The largest file that is read or written, in bytes.
pub(super) const LARGEST: u64 = 32 << 20;
/// The longest directory that is listed.
const LONGEST: usize = 50_000;
/// The flag that opens a pipe without waiting for a writer.
const NONBLOCK: i32 = 0o4000;

impl Roots {
    pub fn list(&self, uri: &str) -> Result<Vec<DirectoryEntry>, RpcError> {
        let place = self.locate(uri)?;
        let folder = self.at(&place, |root, path| root.open_dir(path))?;
        let mut entries = Vec::new();
        let failed = |error: io::Error| super::served_path::refusal(uri, &error);
        for entry in folder.entries().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A name that is not UTF-8 cannot be in a URI.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let directory = match link {
                true => self.leads_to_directory(uri, &name),
                false => entry.file_type().is_ok_and(|kind| kind.is_dir()),
            };
            let r#type = if directory { "directory" } else { "file" }.to_owned();
            entries.push(DirectoryEntry { name, r#type });
            if entries.len() > LONGEST {
                let why = format!("{uri} has more than {LONGEST} entries, the limit of a listing");
                return Err(RpcError::invalid_params(why));
            }
        }
        Ok(entries)
    }

    fn leads_to_directory(&self, folder: &str, name: &str) -> bool {
        let Ok(place) = self.locate(folder) else { return false };
        self.at(&place.inside(name), |root, path| root.metadata(path)).is_ok_and(|found| found.is_dir())
    }

    pub fn read(&self, uri: &str) -> Result<ResourceContent, RpcError> {
        let place = self.locate(uri)?;
        let bytes = self.at(&place, read_whole)?;
        bytes.map(ResourceContent::bytes).map_err(|why| RpcError::invalid_params(format!("{uri} {why}")))
    }

    pub fn resolve(&self, uri: &str, options: ResourceResolving) -> Result<ResourceFacts, RpcError> {
        let place = self.locate(uri)?;
        let follow = options.follow_symlinks;
        let (found, real) = match follow {
            true => (self.at(&place, |root, path| root.metadata(path))?, Some(uri_of(&self.real(&place)?))),
            false => (self.at(&place, |root, path| root.symlink_metadata(path))?, None),
        };
        let instant = |at: io::Result<cap_std::time::SystemTime>| {
            Timestamp::try_from(at.ok()?.into_std()).ok().map(|at| format!("{at:.3}"))
        };
        let r#type = match found.file_type() {
            kind if kind.is_symlink() => "symlink",
            kind if kind.is_dir() => "directory",
            _ => "file",
        };
        Ok(ResourceFacts {
            uri: real,
            r#type: r#type.to_owned(),
            size: (!found.is_dir()).then(|| i64::try_from(found.len()).ok()).flatten(),
            mtime: instant(found.modified()),
            ctime: instant(found.created()),
            content_type: None,
            etag: found.is_file().then(|| etag(&found)),
        })
    }
}

/// Returns the bytes of a file, or why it cannot be read.
pub(super) fn read_whole(root: &Dir, path: &Path) -> io::Result<Result<Vec<u8>, String>> {
    let file = root.open_with(path, OpenOptions::new().read(true).custom_flags(NONBLOCK))?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Ok(Err("is a directory".to_owned()));
    }
    if !found.is_file() {
        return Ok(Err("is not a regular file".to_owned()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(LARGEST)).unwrap_or_default());
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LARGEST {
        true => Ok(Err(format!("is larger than {} MiB, the limit of a read", LARGEST >> 20))),
        false => Ok(Ok(bytes)),
    }
}

/// Returns a value that changes with the content, from all metadata that the system changes with it.
pub(super) fn etag(found: &Metadata) -> String {
    format!("W/\"{:x}-{:x}-{:x}.{:x}\"", found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}
