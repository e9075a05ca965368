//! The npm packages: one with the launcher, and one with the program per platform, of which npm installs the matching
//! one.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::archive::{Entry, entry, save};
use super::table::{PLATFORMS, Platform, read};
use super::{Release, VERSION};

/// Writes the package of this platform and the one that users install.
pub(super) fn write(release: &Release<'_>) -> Result<Vec<PathBuf>, String> {
    let own = text(&json!({
        "name": name(release.platform),
        "version": VERSION,
        "description": format!("The program of ostler for {}", release.platform.target),
        "license": "MIT",
        "repository": { "type": "git", "url": release.repository },
        "os": [release.platform.npm.0],
        "cpu": [release.platform.npm.1],
        "preferUnplugged": true,
        "files": ["bin", "docs"],
    }));
    let mut entries: Vec<Entry<'_>> =
        release.files.iter().filter_map(|file| entry(file, "package", &file.npm)).collect();
    entries.push(Entry { path: "package/package.json".to_owned(), bytes: own.as_bytes(), mode: 0o644 });
    let (system, processor) = release.platform.npm;
    let platform = save(release, &format!("ostler-npm-{system}-{processor}-{VERSION}.tgz"), entries)?;

    let dependencies: serde_json::Map<String, Value> =
        PLATFORMS.iter().map(|platform| (name(platform), VERSION.into())).collect();
    let own = text(&json!({
        "name": "ostler",
        "version": VERSION,
        "description": "A daemon that serves AI-agent sessions to many clients over the Agent Host Protocol",
        "license": "MIT",
        "repository": { "type": "git", "url": release.repository },
        "keywords": ["ahp", "acp", "agent", "agents", "webhook"],
        "bin": { "ostler": "bin/ostler.mjs" },
        "files": ["bin"],
        "engines": { "node": ">=18" },
        "optionalDependencies": dependencies,
    }));
    let launcher = read(&release.root.join("xtask/dist/npm/launcher.mjs"))?;
    let readme = read(&release.root.join("xtask/dist/npm/README.md"))?;
    let licence = read(&release.root.join("LICENSE"))?;
    let entries = [
        ("bin/ostler.mjs", launcher.as_slice(), 0o755),
        ("README.md", &readme, 0o644),
        ("LICENSE", &licence, 0o644),
        ("package.json", own.as_bytes(), 0o644),
    ];
    let entries = entries.map(|(place, bytes, mode)| Entry { path: format!("package/{place}"), bytes, mode });
    let launcher = save(release, &format!("ostler-npm-{VERSION}.tgz"), entries.into())?;
    Ok(vec![platform, launcher])
}

fn name(platform: &Platform) -> String {
    format!("@ostler/{}-{}", platform.npm.0, platform.npm.1)
}

fn text(manifest: &Value) -> String {
    format!("{manifest:#}\n")
}
