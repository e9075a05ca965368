//! The archive of a platform, and the writer of archives.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::table::Packed;
use super::{Effort, Release};

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

/// Returns a file with its path in an archive, if it has one.
pub(super) fn entry<'a>(file: &'a Packed, folder: &str, place: &str) -> Option<Entry<'a>> {
    let bytes = file.bytes.as_deref().filter(|_| !place.is_empty())?;
    Some(Entry { path: format!("{folder}/{place}"), bytes, mode: file.mode })
}

/// Compresses with `gzip`, without a name or a time. The archives have tens of megabytes; a library in an unoptimized
/// build would take longer than everything else.
fn compressed(effort: Effort, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("gzip: {error}");
    let level = if effort == Effort::Best { "-9n" } else { "-1n" };
    let mut child = Command::new("gzip")
        .args([level, "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut input = child.stdin.take().ok_or("gzip has no input")?;
    let writes = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().map_err(failed)?;
    match writes.join() {
        Ok(Ok(())) if output.status.success() => Ok(output.stdout),
        Ok(Err(error)) => Err(failed(error)),
        _ => Err("gzip failed".to_owned()),
    }
}

/// Writes a compressed archive. The same entries always produce the same bytes.
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
    fs::write(&path, compressed(release.effort, bytes)?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
