//! The build folder of a container image, the Homebrew formula, and the checksums.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::table::{PLATFORMS, read};
use super::{Release, VERSION};

/// Writes `ostler-<version>-<architecture>-image/`: the Containerfile and the Debian package that it installs.
pub(super) fn image(release: &Release<'_>, package: &Path) -> Result<PathBuf, String> {
    let folder = release.out.join(format!("ostler-{VERSION}-{}-image", release.platform.debian));
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let text = read(&release.root.join("xtask/dist/image/Containerfile"))?;
    fs::write(folder.join("Containerfile"), text).map_err(failed)?;
    fs::copy(package, folder.join(package.file_name().unwrap_or_default())).map_err(failed)?;
    Ok(folder)
}

/// Writes `ostler.rb` for the existing archives.
pub(super) fn formula(out: &Path, repository: &str) -> Result<PathBuf, String> {
    let mut downloads = String::new();
    for platform in &PLATFORMS {
        let name = format!("ostler-{VERSION}-{}.tar.gz", platform.target);
        let Ok(bytes) = fs::read(out.join(&name)) else { continue };
        downloads.push_str(&format!(
            "    {} do\n      url \"{repository}/releases/download/v{VERSION}/{name}\"\n      sha256 \"{}\"\n    end\n",
            platform.homebrew,
            sum(&bytes)
        ));
    }
    if downloads.is_empty() {
        return Err(format!("{} has no archive for the formula", out.display()));
    }
    let text = include_str!("../../dist/homebrew/ostler.rb")
        .replace("{{repository}}", repository)
        .replace("{{version}}", VERSION)
        .replace("{{downloads}}", &format!("  on_linux do\n{downloads}  end\n"));
    let path = out.join("ostler.rb");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Writes `SHA256SUMS` of all existing files.
pub(super) fn checksums(out: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", out.display());
    let mut lines = Vec::new();
    for entry in fs::read_dir(out).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && name != "SHA256SUMS" {
            lines.push(format!("{}  {name}\n", sum(&read(&path)?)));
        }
    }
    lines.sort_by(|one, other| one[64..].cmp(&other[64..]));
    let path = out.join("SHA256SUMS");
    fs::write(&path, lines.concat()).map_err(failed)?;
    Ok(path)
}

fn sum(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_has_the_sums_of_the_archives_that_are_there() {
        let out = tempfile::tempdir().unwrap();
        assert!(formula(out.path(), "https://host.example/o").is_err());
        fs::write(out.path().join(format!("ostler-{VERSION}-x86_64-unknown-linux-gnu.tar.gz")), "abc")
            .unwrap();
        let text = fs::read_to_string(formula(out.path(), "https://host.example/o").unwrap()).unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(text.contains(&format!("sha256 \"{known}\"")) && !text.contains("{{"), "{text}");
        assert!(!text.contains("on_arm"), "{text}");
        let sums = fs::read_to_string(checksums(out.path()).unwrap()).unwrap();
        assert_eq!(sums.lines().count(), 2);
        assert!(sums.starts_with(&format!("{known}  ostler-{VERSION}-x86_64")), "{sums}");
    }
}
