//! The Debian package: a tree and its control files, packed by `dpkg-deb`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use md5::{Digest, Md5};

use super::program::Linkage;
use super::table::{Packed, compressed, read};
use super::{Effort, Release, VERSION};

/// The maintainer in the package.
const MAINTAINER: &str = "The ostler authors <ostler@packages.example>";
/// The revision of the package.
const REVISION: &str = "1";

/// Writes `ostler_<version>_<architecture>.deb`.
pub(super) fn write(release: &Release<'_>) -> Result<PathBuf, String> {
    let tree = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let failed = |error: std::io::Error| format!("the tree of the Debian package: {error}");
    let mut files: Vec<Packed> =
        release.files.iter().filter(|file| !file.debian.is_empty()).cloned().collect();
    files.push(Packed::of_debian(
        "usr/share/doc/ostler/changelog.Debian.gz",
        0o644,
        compressed(changelog(release.time).as_bytes())?,
    ));
    for file in &mut files {
        if file.debian == "usr/share/doc/ostler/copyright" {
            let licence = file.bytes.take().unwrap_or_default();
            file.bytes = Some(copyright(release.repository, &String::from_utf8_lossy(&licence)).into_bytes());
        }
    }
    let mut sums = String::new();
    let mut size = 0;
    files.sort_by(|one, other| one.debian.cmp(&other.debian));
    for file in &files {
        let path = tree.path().join(&file.debian);
        match &file.bytes {
            Some(bytes) => {
                put(&path, bytes, file.mode).map_err(failed)?;
                size += bytes.len().div_ceil(1024);
                if !is_configuration(file) {
                    let sum = hex::encode(Md5::digest(bytes));
                    sums.push_str(&format!("{sum}  {}\n", file.debian));
                }
            }
            None => fs::create_dir_all(&path).and_then(|()| set_mode(&path, file.mode)).map_err(failed)?,
        }
    }
    let configuration: String = files
        .iter()
        .filter(|file| is_configuration(file))
        .map(|file| format!("/{}\n", file.debian))
        .collect();
    let control = tree.path().join("DEBIAN");
    for (name, mode, text) in [
        ("control", 0o644, control_file(release, size)),
        ("md5sums", 0o644, sums),
        ("conffiles", 0o644, configuration),
    ] {
        put(&control.join(name), text.as_bytes(), mode).map_err(failed)?;
    }
    for script in ["postinst", "prerm", "postrm"] {
        let text = read(&release.root.join("xtask/dist/debian").join(script))?;
        put(&control.join(script), &text, 0o755).map_err(failed)?;
    }
    let path = release.out.join(format!("ostler_{VERSION}-{REVISION}_{}.deb", release.platform.debian));
    let output = Command::new("dpkg-deb")
        .args(["--root-owner-group"])
        .args(if release.effort == Effort::Best { ["-Zxz", "-z6"] } else { ["-Zgzip", "-z1"] })
        .arg("--build")
        .args([tree.path(), &path])
        .env("SOURCE_DATE_EPOCH", release.time.to_string())
        .output()
        .map_err(|error| format!("dpkg-deb could not be started: {error}; install dpkg"))?;
    match output.status.success() {
        true => Ok(path),
        false => Err(format!("dpkg-deb: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Returns whether administrators edit a file: dpkg asks before it replaces a changed one.
fn is_configuration(file: &Packed) -> bool {
    file.bytes.is_some() && file.debian.starts_with("etc/")
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        make_folders(folder)?;
    }
    fs::write(path, bytes)?;
    set_mode(path, mode)
}

/// Creates folders that every user can read, regardless of the umask.
fn make_folders(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folders(above)?;
    }
    fs::create_dir(folder)?;
    set_mode(folder, 0o755)
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: u32) -> std::io::Result<()> {
    Err(std::io::Error::other("a Debian package can only be built where files have modes"))
}

fn control_file(release: &Release<'_>, kilobytes: usize) -> String {
    let depends = match &release.linkage {
        Linkage::Static => "adduser".to_owned(),
        Linkage::Dynamic { glibc } => format!("adduser, libc6 (>= {glibc}), libgcc-s1"),
    };
    format!(
        "Package: ostler\nVersion: {VERSION}-{REVISION}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nInstalled-Size: {kilobytes}\n\
         Depends: {depends}\nRecommends: ca-certificates, git\nSuggests: podman\nSection: net\nPriority: optional\nHomepage: {}\n\
         Description: daemon that serves AI-agent sessions to many clients\n \
         Agents of the Agent Client Protocol, such as Claude Code, Codex and Gemini CLI,\n \
         become backends of the Agent Host Protocol. Other programs start them with\n \
         webhooks, and several clients can watch and continue a session.\n .\n \
         The service is neither enabled nor started by the installation, because a host\n \
         has to be given an agent first: sudo -u ostler -H ostler init\n",
        release.platform.debian, release.repository
    )
}

fn changelog(time: u64) -> String {
    let date = jiff::Timestamp::from_second(i64::try_from(time).unwrap_or_default())
        .unwrap_or_default()
        .strftime("%a, %d %b %Y %H:%M:%S +0000")
        .to_string();
    format!(
        "ostler ({VERSION}-{REVISION}) unstable; urgency=medium\n\n  * Release {VERSION}; changes are in changelog.gz.\n\n \
         -- {MAINTAINER}  {date}\n"
    )
}

/// Returns the license in Debian's format.
fn copyright(repository: &str, licence: &str) -> String {
    let mut lines = licence.lines().filter(|line| !line.is_empty());
    let holder = lines.clone().find(|line| line.starts_with("Copyright")).unwrap_or_default();
    let text: String = lines
        .by_ref()
        .filter(|line| !line.starts_with("Copyright") && *line != "MIT License")
        .map(|line| format!(" {line}\n"))
        .collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: ostler\nSource: {repository}\n\n\
         Files: *\nCopyright: {}\nLicense: Expat\n{text}",
        holder.trim_start_matches("Copyright (c) ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licence_is_in_the_format_of_debian() {
        let text = copyright(
            "https://host.example/o",
            "MIT License\n\nCopyright (c) 2026 A\n\nOne\ntwo.\n\nThree.\n",
        );
        assert!(text.contains("Source: https://host.example/o\n"));
        assert!(
            text.ends_with("Files: *\nCopyright: 2026 A\nLicense: Expat\n One\n two.\n Three.\n"),
            "{text}"
        );
    }

    #[test]
    fn the_date_is_that_of_the_commit() {
        assert!(changelog(0).contains(">  Thu, 01 Jan 1970 00:00:00 +0000\n"), "{}", changelog(0));
    }
}
