//! The folder of the demonstration: a configuration, an endpoint, its secret, an automation, a plugin.

use std::fs;
use std::path::{Path, PathBuf};

use ostler_contract::json;
use ostler_ports::FileVault;

use crate::config::FILE;
use crate::exit::Exit;
use crate::token;

/// The endpoint's id.
pub(super) const ENDPOINT: &str = "github-push";
const PLUGIN: &str = include_str!("push-notes.ts");
/// A push event of GitHub.
pub(super) const PAYLOAD: &str = include_str!("github-push.json");

/// The automation, without the endpoint in its trigger.
const AUTOMATION: &str = "---
title: Note a push
enabled: true
session:
  provider: echo
triggers:
  - id: pushed
    kind: event
    type: webhook
    title: A push to the repository
    events:
      - id: call
    config:
      endpoint: ";
const PROMPT: &str = r#"/tool push_notes { "ref": "{{event.ref}}", "repository": "{{event.repository.full_name}}", "commits": {{event.commits}} }
"#;

pub(super) struct Folder {
    pub dir: PathBuf,
    /// The written files, one per line.
    pub files: Vec<String>,
    /// The endpoint's secret.
    pub secret: String,
    made: bool,
}

impl Folder {
    /// Writes everything.
    pub fn make(dir: Option<&Path>) -> Result<Self, Exit> {
        let made = dir.is_none();
        let dir = dir.map_or_else(|| std::env::temp_dir().join(unguessed()), Path::to_owned);
        // Absolute, because the working directory of the host is this folder.
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        let mut folder = Self { dir, files: Vec::new(), secret: token::fresh(), made };
        let written =
            if made { make_private(&folder.dir).and_then(|()| folder.write()) } else { folder.write() };
        written.map_err(|error| {
            Exit::machine(format!("{} could not be written: {error}", folder.dir.display()))
        })?;
        Ok(folder)
    }

    fn write(&mut self) -> std::io::Result<()> {
        let config = json!({
            "port": 0,
            "deltaWindowMs": 0,
            "plugins": [
                { "name": "@ostler/echo", "options": {} },
                { "name": "@ostler/webhook" },
                { "name": "./push-notes.ts" },
            ],
        });
        let secret = format!("host:{ENDPOINT}");
        let endpoint = format!("---\nid: {ENDPOINT}\nautomation: true\nsecret: {secret}\n---\n");
        let vault = json!({ secret: self.secret });
        for (file, text, what) in [
            (FILE, format!("{config:#}\n"), "plugins: the echo backend, webhooks, one in TypeScript"),
            ("push-notes.ts", PLUGIN.to_owned(), "the TypeScript plugin: a tool that summarizes a push"),
            (&format!("webhooks/{ENDPOINT}.md"), endpoint, "an endpoint that fires automations"),
            (FileVault::FILE, format!("{vault:#}\n"), "the endpoint's secret"),
            (
                "automations/note-a-push.md",
                format!("{AUTOMATION}{ENDPOINT}\n---\n{PROMPT}"),
                "the automation that a call starts",
            ),
        ] {
            let path = self.dir.join(file);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, text)?;
            if file == FileVault::FILE {
                private(&path)?;
            }
            self.files.push(format!("{file:<28} {what}"));
        }
        Ok(())
    }

    /// The daemon's log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("demo.log")
    }

    /// Returns the state folder: inside the folder, if that was created for the demonstration.
    pub fn state(&self) -> Option<PathBuf> {
        self.made.then(|| self.dir.join("state"))
    }

    /// Removes the folder, if it was created for the demonstration.
    pub fn clear(&self) {
        if self.made {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Returns a name that other users of this machine cannot guess.
fn unguessed() -> String {
    let mut name = format!("ostler-demo-{}", token::fresh());
    name.truncate(28);
    name
}

/// Creates a new folder that only its owner can access.
fn make_private(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(unix)]
fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn private(_: &Path) -> std::io::Result<()> {
    Ok(())
}
