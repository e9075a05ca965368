//! The packages of a release, from the table in `table.rs`: an archive, a Debian package, npm packages, the build
//! folder of a container image, a Homebrew formula, and their checksums.

mod archive;
mod debian;
mod npm;
mod program;
mod table;
mod texts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use program::Linkage;
use table::{PLATFORMS, Platform};

/// The version of every package.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The options of the command.
struct DistRequest {
    platform: &'static Platform,
    /// The program, if it is already built.
    binary: Option<PathBuf>,
    /// The profile to build it with otherwise.
    profile: String,
    out: PathBuf,
    /// The download URL of the packages, for the formula.
    repository: String,
    /// Whether to package a program that is linked with the system's C library.
    dynamic: bool,
    /// The compression effort.
    effort: Effort,
    /// Whether to create only the parts that combine the packages of all platforms.
    collect: bool,
}

/// The compression effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// As small as possible.
    Best,
    /// As fast as possible, for tests.
    Fast,
}

/// A release that is being packaged.
struct Release<'a> {
    root: &'a Path,
    platform: &'static Platform,
    out: &'a Path,
    /// The contents of every row of the table.
    files: Vec<table::Packed>,
    linkage: Linkage,
    /// The modification time of every file in seconds: that of the commit, so that the same sources produce the same
    /// packages.
    time: u64,
    repository: &'a str,
    effort: Effort,
}

/// Builds the packages; returns a list of the written files.
///
/// # Errors
/// A part that cannot be built or written.
pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let wanted = wanted(root, arguments)?;
    fs::create_dir_all(&wanted.out).map_err(|error| format!("{}: {error}", wanted.out.display()))?;
    let mut written = Vec::new();
    if !wanted.collect {
        let binary = match &wanted.binary {
            Some(binary) => binary.clone(),
            None => build(root, &wanted)?,
        };
        let bytes = fs::read(&binary).map_err(|error| format!("{}: {error}", binary.display()))?;
        let linkage = program::linkage(&bytes, wanted.platform)
            .map_err(|why| format!("{}: {why}", binary.display()))?;
        if let (Linkage::Dynamic { .. }, false) = (&linkage, wanted.dynamic) {
            return Err(format!(
                "{} needs a C library; leave out --binary to build a static one, or pass --dynamic",
                binary.display()
            ));
        }
        let time = commit_time(root);
        let files = table::packed(root, &binary, bytes)?;
        let effort = wanted.effort;
        let release = Release {
            root,
            platform: wanted.platform,
            out: &wanted.out,
            files,
            linkage,
            time,
            repository: &wanted.repository,
            effort,
        };
        written.push(archive::write(&release)?);
        let package = debian::write(&release)?;
        written.extend(npm::write(&release)?);
        written.push(texts::image(&release, &package)?);
        written.push(package);
    }
    written.push(texts::formula(&wanted.out, &wanted.repository)?);
    written.push(texts::checksums(&wanted.out)?);
    let mut lines: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    lines.sort();
    Ok(lines.join("\n"))
}

fn wanted(root: &Path, arguments: &[String]) -> Result<DistRequest, String> {
    let mut wanted = DistRequest {
        platform: PLATFORMS
            .iter()
            .find(|platform| platform.target.starts_with(std::env::consts::ARCH))
            .ok_or("no packages are made for this platform; pass --target")?,
        binary: None,
        profile: "dist".to_owned(),
        out: crate::cargo::target(root).join("packages"),
        repository: repository(root)?,
        dynamic: false,
        effort: Effort::Best,
        collect: false,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--target" => {
                let target = value()?;
                let known = || PLATFORMS.map(|platform| platform.target).join(", ");
                wanted.platform = PLATFORMS
                    .iter()
                    .find(|platform| platform.target == target)
                    .ok_or_else(|| format!("no packages are made for {target}, but for {}", known()))?;
            }
            "--binary" => wanted.binary = Some(PathBuf::from(value()?)),
            "--profile" => wanted.profile = value()?,
            "--out" => wanted.out = PathBuf::from(value()?),
            "--repository" => wanted.repository = value()?,
            "--dynamic" => wanted.dynamic = true,
            "--fast" => wanted.effort = Effort::Fast,
            "--collect" => wanted.collect = true,
            other => {
                return Err(format!(
                    "unknown argument {other}; there are --target, --binary, --profile, --out, --repository, --dynamic, --fast, --collect"
                ));
            }
        }
    }
    Ok(wanted)
}

/// Builds a statically linked program with the installed toolchain, in its own target folder.
fn build(root: &Path, wanted: &DistRequest) -> Result<PathBuf, String> {
    let target_name = wanted.platform.target;
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let ended = cargo()
        .current_dir(root)
        .args([
            "build",
            "--locked",
            "--package",
            "ostler",
            "--profile",
            &wanted.profile,
            "--target",
            target_name,
        ])
        .env("RUSTFLAGS", format!("{flags} -C target-feature=+crt-static").trim())
        .status()
        .map_err(|error| format!("cargo build could not be started: {error}"))?;
    match ended.success() {
        true => Ok(crate::cargo::target(root).join(target_name).join(&wanted.profile).join("ostler")),
        false => Err(format!("the program could not be built for {target_name}")),
    }
}

/// Returns the time of the last commit, or `SOURCE_DATE_EPOCH`.
fn commit_time(root: &Path) -> u64 {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok();
    let committed = || {
        let output =
            Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    said.or_else(committed).and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Returns the repository from the workspace's metadata.
fn repository(root: &Path) -> Result<String, String> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata could not be started: {error}"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata did not answer: {error}"))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let own = packages.iter().find(|package| package["name"] == "ostler");
    own.and_then(|package| package["repository"].as_str())
        .map(str::to_owned)
        .ok_or_else(|| "Cargo.toml has no repository".to_owned())
}

impl Release<'_> {
    /// Returns `<name>-<version>-<target>`.
    fn stem(&self) -> String {
        format!("ostler-{VERSION}-{}", self.platform.target)
    }
}
