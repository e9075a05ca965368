//! The archive of a platform, and how archives are written.

use std::fs;
use std::path::PathBuf;

use super::Release;
use super::table::{Packed, compressed};

/// A file of an archive.
pub(super) struct Entry<'a> {
    pub path: String,
    pub bytes: &'a [u8],
    pub mode: u32,
}

/// Writes `ostler-<version>-<target>.tar.gz`.
pub(super) fn write(release: &Release<'_>) -> Result<PathBuf, String> {
    let stem = release.stem();
    let entries = release.files.iter().filter_map(|file| entry(file, &stem, &file.archive)).collect();
    save(release, &format!("{stem}.tar.gz"), entries)
}

/// A file with its place in an archive, if it has one.
pub(super) fn entry<'a>(file: &'a Packed, folder: &str, place: &str) -> Option<Entry<'a>> {
    let bytes = file.bytes.as_deref().filter(|_| !place.is_empty())?;
    Some(Entry { path: format!("{folder}/{place}"), bytes, mode: file.mode })
}

/// Writes a compressed archive. The same entries always give the same bytes.
pub(super) fn save(
    release: &Release<'_>,
    name: &str,
    mut entries: Vec<Entry<'_>>,
) -> Result<PathBuf, String> {
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let mut archive = tar::Builder::new(Vec::new());
    for Entry { path, bytes, mode } in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_mtime(release.time);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, &path, bytes).map_err(|error| format!("{name}: {path}: {error}"))?;
    }
    let bytes = archive.into_inner().map_err(|error| format!("{name}: {error}"))?;
    let path = release.out.join(name);
    fs::write(&path, compressed(&bytes)?).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
