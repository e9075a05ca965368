//! The contents of a release, with their paths in each package.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A platform with packages.
#[derive(Debug)]
pub(super) struct Platform {
    /// The target of the compiler.
    pub target: &'static str,
    /// Debian's name of the architecture.
    pub debian: &'static str,
    /// Node's names of system and processor.
    pub npm: (&'static str, &'static str),
    /// The block of Homebrew's formula language.
    pub homebrew: &'static str,
    /// The number of the processor in an ELF file.
    pub machine: u16,
}

pub(super) const PLATFORMS: [Platform; 2] = [
    Platform {
        target: "x86_64-unknown-linux-gnu",
        debian: "amd64",
        npm: ("linux", "x64"),
        homebrew: "on_intel",
        machine: object::elf::EM_X86_64,
    },
    Platform {
        target: "aarch64-unknown-linux-gnu",
        debian: "arm64",
        npm: ("linux", "arm64"),
        homebrew: "on_arm",
        machine: object::elf::EM_AARCH64,
    },
];

/// The source of a row's contents.
#[derive(Debug, Clone, Copy)]
enum From {
    /// The program.
    Program,
    /// A file of the repository.
    File(&'static str),
    /// A file of the repository, compressed.
    Compressed(&'static str),
    /// The output of the program with these arguments.
    Printed(&'static [&'static str]),
    /// The man pages that the program writes; the paths are folders.
    ManPages,
    /// The pages of the documentation with their images; the paths are folders.
    Pages,
    /// An empty folder.
    Folder,
}

/// A file or folder, and its path in each package; an empty path excludes it.
struct Row {
    from: From,
    mode: u32,
    archive: &'static str,
    debian: &'static str,
    /// The path in the npm package of a platform.
    npm: &'static str,
}

const fn row(from: From, mode: u32, archive: &'static str, debian: &'static str, npm: &'static str) -> Row {
    Row { from, mode, archive, debian, npm }
}

/// Every file of a release. The container image installs the Debian package, so it has the same files.
const ROWS: &[Row] = &[
    row(From::Program, 0o755, "bin/ostler", "usr/bin/ostler", "bin/ostler"),
    row(From::ManPages, 0o644, "share/man/man1", "usr/share/man/man1", ""),
    row(
        From::Printed(&["completion", "bash"]),
        0o644,
        "share/bash-completion/completions/ostler",
        "usr/share/bash-completion/completions/ostler",
        "",
    ),
    row(
        From::Printed(&["completion", "zsh"]),
        0o644,
        "share/zsh/site-functions/_ostler",
        "usr/share/zsh/vendor-completions/_ostler",
        "",
    ),
    row(
        From::Printed(&["completion", "fish"]),
        0o644,
        "share/fish/vendor_completions.d/ostler.fish",
        "usr/share/fish/vendor_completions.d/ostler.fish",
        "",
    ),
    row(
        From::File("xtask/dist/systemd/ostler.service"),
        0o644,
        "lib/systemd/system/ostler.service",
        "usr/lib/systemd/system/ostler.service",
        "",
    ),
    row(
        From::File("xtask/dist/systemd/ostler.socket"),
        0o644,
        "lib/systemd/system/ostler.socket",
        "usr/lib/systemd/system/ostler.socket",
        "",
    ),
    row(
        From::File("xtask/dist/systemd/user/ostler.service"),
        0o644,
        "lib/systemd/user/ostler.service",
        "usr/lib/systemd/user/ostler.service",
        "",
    ),
    row(
        From::File("xtask/dist/systemd/user/ostler.socket"),
        0o644,
        "lib/systemd/user/ostler.socket",
        "usr/lib/systemd/user/ostler.socket",
        "",
    ),
    // It may contain keys of agents.
    row(From::File("xtask/dist/debian/default"), 0o640, "", "etc/default/ostler", ""),
    row(From::File("LICENSE"), 0o644, "LICENSE", "usr/share/doc/ostler/copyright", "LICENSE"),
    row(
        From::File("xtask/dist/debian/lintian-overrides"),
        0o644,
        "",
        "usr/share/lintian/overrides/ostler",
        "",
    ),
    row(From::File("README.md"), 0o644, "README.md", "", ""),
    row(From::File("CHANGELOG.md"), 0o644, "CHANGELOG.md", "", ""),
    row(From::Compressed("CHANGELOG.md"), 0o644, "", "usr/share/doc/ostler/changelog.gz", ""),
    row(From::Pages, 0o644, "share/doc/ostler/docs", "usr/share/doc/ostler/docs", "docs"),
    // Their owner is set when the package is configured.
    row(From::Folder, 0o750, "", "etc/ostler", ""),
    row(From::Folder, 0o750, "", "var/lib/ostler", ""),
    row(From::Folder, 0o750, "", "var/lib/ostler/workspace", ""),
];

/// A file or folder to pack.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    /// Its contents; `None` for a folder.
    pub bytes: Option<Vec<u8>>,
    pub mode: u32,
    pub archive: String,
    pub debian: String,
    pub npm: String,
}

impl Packed {
    /// Creates a file that is only in the Debian package.
    pub fn of_debian(place: &str, mode: u32, bytes: Vec<u8>) -> Self {
        Self {
            bytes: Some(bytes),
            mode,
            archive: String::new(),
            debian: place.to_owned(),
            npm: String::new(),
        }
    }
}

/// Returns the contents of every row.
pub(super) fn packed(root: &Path, binary: &Path, program: Vec<u8>) -> Result<Vec<Packed>, String> {
    let binary = binary.canonicalize().map_err(|error| format!("{}: {error}", binary.display()))?;
    let mut all = Vec::new();
    for Row { from, mode, archive, debian, npm } in ROWS {
        let one = |bytes| Packed {
            bytes,
            mode: *mode,
            archive: (*archive).to_owned(),
            debian: (*debian).to_owned(),
            npm: (*npm).to_owned(),
        };
        match from {
            From::Program => all.push(one(Some(program.clone()))),
            From::File(file) => all.push(one(Some(read(&root.join(file))?))),
            From::Compressed(file) => all.push(one(Some(compressed(&read(&root.join(file))?)?))),
            From::Printed(arguments) => {
                let printed = printed(&binary, arguments)?;
                // Without a script, a shell silently completes file names instead.
                if printed.is_empty() {
                    return Err(format!("{} {}: printed nothing", binary.display(), arguments.join(" ")));
                }
                all.push(one(Some(printed)));
            }
            From::ManPages => all.extend(man_pages(&binary, &one(None))?),
            From::Pages => all.extend(pages(root, &one(None))?),
            From::Folder => all.push(one(None)),
        }
    }
    Ok(all)
}

fn pages(root: &Path, folder: &Packed) -> Result<Vec<Packed>, String> {
    let docs = root.join("docs");
    let files = crate::tidy::sources(&docs, &["md", "json", "png"]);
    let page = |file: &PathBuf| {
        let name = file.strip_prefix(&docs).map_err(|error| format!("{}: {error}", file.display()))?;
        let place = |folder: &str| format!("{folder}/{}", name.display());
        Ok(Packed {
            bytes: Some(read(file)?),
            archive: place(&folder.archive),
            debian: place(&folder.debian),
            npm: place(&folder.npm),
            ..folder.clone()
        })
    };
    files.iter().map(page).collect()
}

fn man_pages(binary: &Path, folder: &Packed) -> Result<Vec<Packed>, String> {
    let written = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let path = written.path().display().to_string();
    printed(binary, &["man-pages", &path])?;
    let mut pages = Vec::new();
    for file in crate::tidy::sources(written.path(), &["1"]) {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = read(&file)?;
        pages.push(Packed {
            bytes: Some(text.clone()),
            archive: format!("{}/{name}", folder.archive),
            debian: String::new(),
            ..folder.clone()
        });
        pages.push(Packed::of_debian(
            &format!("{}/{name}.gz", folder.debian),
            folder.mode,
            compressed(&text)?,
        ));
    }
    match pages.is_empty() {
        true => Err(format!("{} wrote no man pages", binary.display())),
        false => Ok(pages),
    }
}

/// Runs the program without this computer's configuration.
fn printed(binary: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let shown = format!("{} {}", binary.display(), arguments.join(" "));
    let output = Command::new(binary)
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .map_err(|error| format!("{shown}: {error}; the program has to run on this computer"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

pub(super) fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Compresses at the best level, without a name or a time.
pub(super) fn compressed(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|error| format!("compression: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_package_has_the_documentation() {
        let root = crate::tidy::root();
        let row = ROWS.iter().find(|row| matches!(row.from, From::Pages)).expect("a row");
        let folder = Packed {
            bytes: None,
            mode: row.mode,
            archive: row.archive.to_owned(),
            debian: row.debian.to_owned(),
            npm: row.npm.to_owned(),
        };
        let all = pages(&root, &folder).expect("the pages can be read");
        let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).expect("a summary");
        let linked = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let mut count = 0;
        for page in linked.filter(|page| !page.contains("..") && !page.contains("://")) {
            let page = page.trim_start_matches("./");
            for (package, place) in [
                ("archive", format!("share/doc/ostler/docs/{page}")),
                ("debian", format!("usr/share/doc/ostler/docs/{page}")),
                ("npm", format!("docs/{page}")),
            ] {
                let is_there = |one: &Packed| [&one.archive, &one.debian, &one.npm].contains(&&place);
                assert!(all.iter().any(|one| is_there(one) && one.bytes.is_some()), "{package}: {place}");
            }
            count += 1;
        }
        assert!(count > 20, "{count} pages");
        assert!(all.iter().any(|one| one.npm.starts_with("docs/images/")));
    }

    #[test]
    fn every_place_is_used_once_and_every_file_exists() {
        let root = crate::tidy::root();
        let mut places = BTreeSet::new();
        for row in ROWS {
            for (package, place) in [("archive", row.archive), ("debian", row.debian), ("npm", row.npm)] {
                assert!(place.is_empty() || places.insert((package, place)), "{package}: {place}");
                assert!(!place.starts_with('/'), "{place}");
            }
            if let From::File(file) | From::Compressed(file) = row.from {
                assert!(root.join(file).is_file(), "{file}");
            }
        }
    }
}
