//! Packages, through `npm`, in the configuration folder.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ostler_contract::Value;
use ostler_processes::ChildKind;
use ostler_protocol::names;
use tokio::process::Command;

use crate::created_files::CreatedFiles;
use crate::exit::Exit;

/// The limit of npm.
const LIMIT: Duration = Duration::from_secs(600);
/// How many lines of npm's output are repeated.
const LAST_LINES: usize = 12;

/// Runs npm in a folder; returns its output.
///
/// # Errors
/// Exit 1 if npm is missing or fails, with its last output.
pub async fn npm(dir: &Path, arguments: &[&str]) -> Result<String, Exit> {
    let program = if cfg!(windows) { "npm.cmd" } else { "npm" };
    let output = Command::from(ChildKind::Helper.command(program))
        .arg("--prefix")
        .arg(dir)
        .args(arguments)
        .current_dir(dir)
        .env("npm_config_update_notifier", "false")
        .env("npm_config_fund", "false")
        .env("npm_config_audit", "false")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, output)
        .await
        .map_err(|_| Exit::machine(format!("npm did not finish within {} minutes", LIMIT.as_secs() / 60)))?
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Exit::machine(format!(
                "npm not found; install Node.js, which includes npm, or copy the package into {}",
                dir.join("node_modules").display()
            )),
            _ => Exit::machine(format!("cannot run npm: {error}")),
        })?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let said = errors(&String::from_utf8_lossy(&output.stderr));
    Err(Exit::machine(format!("npm {} failed:{said}", arguments.first().copied().unwrap_or_default())))
}

/// Returns the error lines of npm, or all lines if none is marked as an error.
fn errors(said: &str) -> String {
    let marked = said.lines().filter_map(|line| line.strip_prefix("npm error"));
    let marked: Vec<&str> = marked.filter(|line| !line.contains("A complete log of this run")).collect();
    let lines = if marked.is_empty() { said.lines().collect() } else { marked };
    let lines = lines.into_iter().map(str::trim).filter(|line| !line.is_empty()).take(LAST_LINES);
    lines.map(|line| format!("\n  {}", ostler_loader::options::without_password(line))).collect()
}

/// Returns the metadata of all versions of a package in the registry; `None` if there is none.
pub async fn view(dir: &Path, spec: &str) -> Result<Vec<Value>, Exit> {
    let fields = ["view", "--json", spec, "name", "version", names::HOST, "peerDependencies"];
    let text = npm(dir, &fields).await?;
    Ok(match serde_json::from_str(text.trim()) {
        Ok(Value::Array(versions)) => versions,
        Ok(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    })
}

/// Prepares the folder so that npm installs into it and not into a parent. Records what npm creates there.
///
/// # Errors
/// Exit 1 with the error of the system.
pub fn prepare(dir: &Path, made: &mut CreatedFiles) -> Result<(), Exit> {
    let manifest = dir.join("package.json");
    let failed = |error| Exit::machine(format!("{} could not be created: {error}", manifest.display()));
    made.folder(dir).map_err(failed)?;
    ["package.json", "package-lock.json", "node_modules"].iter().for_each(|name| made.note(dir.join(name)));
    if !manifest.exists() {
        std::fs::write(&manifest, "{\n  \"private\": true\n}\n").map_err(failed)?;
    }
    Ok(())
}

/// Returns the packages that the folder requires, by name.
pub fn asked_for(dir: &Path) -> Vec<String> {
    let manifest = std::fs::read_to_string(dir.join("package.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
    let named = manifest.get("dependencies").and_then(Value::as_object);
    named.map(|named| named.keys().cloned().collect()).unwrap_or_default()
}

/// Returns the version of an installed package.
pub fn installed(dir: &Path, name: &str) -> Option<String> {
    let manifest = std::fs::read_to_string(dir.join("node_modules").join(name).join("package.json")).ok()?;
    let manifest: Value = serde_json::from_str(&manifest).ok()?;
    Some(manifest.get("version")?.as_str()?.to_owned())
}
