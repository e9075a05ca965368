//! Probes the agents of the presets: stores what `ostler agent check` reports for each, which is the source of the
//! table in `docs/agents.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

/// The stored reports of the agents, by preset.
pub const PROBES: &str = "plugins/acp/probes.json";
/// The folder of the presets.
pub const PRESETS: &str = "plugins/acp/presets";

/// The time limits for the start of an agent in seconds: installed, and downloaded first.
const INSTALLED_LIMIT: u32 = 120;
const DOWNLOAD_LIMIT: u32 = 600;

/// Probes presets and writes their reports; with `--check`, compares them instead. It probes every preset whose package
/// is installed below the folder at the preset's version; with `--download`, every preset, by npx or uvx as a user
/// starts it.
///
/// # Errors
/// Nothing is installed, an agent does not start, or an agent reports something else.
pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (check, download) = (has("--check"), has("--download"));
    let folder = arguments.iter().find(|argument| !argument.starts_with("--")).map(Path::new);
    if folder.is_some() == download {
        return Err("name the folder of the installed agents, or --download: \
                    cargo xtask agents [--check] FOLDER|--download"
            .to_owned());
    }
    let mut known = read(root)?;
    let (mut probed, mut differ, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for preset in presets(root)? {
        let id = preset["id"].as_str().unwrap_or_default().to_owned();
        let command = match folder.map(|folder| installed(folder, &preset)) {
            Some(Some(command)) => Some(command),
            Some(None) => continue,
            None => None,
        };
        let report = match probe(root, &id, command, &preset) {
            Ok(report) => report,
            Err(why) => {
                failed.push(why);
                continue;
            }
        };
        if known.get(&id) != Some(&report) {
            differ.push(format!(
                "{id} reports {report}, {PROBES} has {}",
                known.get(&id).unwrap_or(&Value::Null)
            ));
        }
        known.insert(id.clone(), report);
        probed.push(id);
    }
    if let Some(folder) = folder.filter(|_| probed.is_empty() && failed.is_empty()) {
        return Err(format!("no preset's package is installed in {}", folder.display()));
    }
    let outcome = match (check, differ.is_empty()) {
        (true, false) => {
            let again = folder.map_or_else(|| "--download".to_owned(), |folder| folder.display().to_string());
            Err(format!("{}\nRun: cargo xtask agents {again}", differ.join("\n")))
        }
        (true, true) => Ok(format!("as reported: {}", probed.join(", "))),
        (false, _) => {
            let text = serde_json::to_string_pretty(&known).map_err(|error| error.to_string())?;
            fs::write(root.join(PROBES), text + "\n").map_err(|error| format!("{PROBES}: {error}"))?;
            Ok(format!("probed {}", probed.join(", ")))
        }
    };
    match failed.is_empty() {
        true => outcome,
        false => Err([failed.join("\n"), outcome.unwrap_or_else(|why| why)].join("\n")),
    }
}

/// Reads the stored probes.
pub(crate) fn read(root: &Path) -> Result<BTreeMap<String, Value>, String> {
    let text = fs::read_to_string(root.join(PROBES)).map_err(|error| format!("{PROBES}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{PROBES}: {error}"))
}

/// Reads the presets, in order.
pub(crate) fn presets(root: &Path) -> Result<Vec<Value>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{PRESETS}: {error}");
    let folders = fs::read_dir(root.join(PRESETS)).map_err(|error| failed(&error))?;
    let mut files: Vec<PathBuf> =
        folders.filter_map(|entry| Some(entry.ok()?.path().join("agent.json"))).collect();
    files.sort_unstable();
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
        serde_json::from_str(&text).map_err(|error| failed(&error))
    };
    files.iter().map(read).collect()
}

/// Returns the command line of a preset's package in one of the npm projects and virtual environments below a folder.
fn installed(folder: &Path, preset: &Value) -> Option<(PathBuf, Vec<Value>)> {
    let distribution = &preset["distribution"];
    let (package, program): (&Value, fn(&Path, &Value) -> Option<PathBuf>) =
        match distribution["npx"].is_object() {
            true => (&distribution["npx"], in_npm_project),
            false => (&distribution["uvx"], in_virtual_environment),
        };
    let program =
        fs::read_dir(folder).ok()?.flatten().find_map(|project| program(&project.path(), package))?;
    let args = package["args"].as_array().cloned().unwrap_or_default();
    let runs_with_node = distribution["npx"].is_object() && fs::read(&program).ok()?.starts_with(b"#!");
    Some(match runs_with_node {
        true => (PathBuf::from("node"), [vec![json!(program)], args].concat()),
        false => (program, args),
    })
}

fn in_npm_project(project: &Path, package: &Value) -> Option<PathBuf> {
    let (name, version) = package["package"].as_str()?.rsplit_once('@')?;
    let package = project.join("node_modules").join(name);
    let manifest = fs::read_to_string(package.join("package.json")).ok()?;
    let manifest: Value = serde_json::from_str(&manifest).ok()?;
    if manifest["version"] != version {
        return None;
    }
    let own = name.rsplit('/').next().unwrap_or(name);
    let program = match &manifest["bin"] {
        Value::String(path) => path.as_str(),
        programs => programs.get(own).or_else(|| programs.as_object()?.values().next())?.as_str()?,
    };
    Some(package.join(program))
}

fn in_virtual_environment(environment: &Path, package: &Value) -> Option<PathBuf> {
    let (name, version) = package["package"].as_str()?.split_once("==")?;
    let name = name.split('[').next().unwrap_or(name).replace('-', "_");
    let facts = format!("{name}-{version}.dist-info");
    let mut libraries = fs::read_dir(environment.join("lib")).ok()?.flatten();
    libraries.find(|python| python.path().join("site-packages").join(&facts).is_dir())?;
    Some(environment.join("bin").join(package["cmd"].as_str().unwrap_or(&name)))
}

/// Starts an agent with the built program and returns its report. Without a command line, the preset's own command is
/// used.
fn probe(
    root: &Path,
    id: &str,
    command: Option<(PathBuf, Vec<Value>)>,
    preset: &Value,
) -> Result<Value, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{id} could not be checked: {error}");
    let home = tempfile::tempdir().map_err(|error| failed(&error))?;
    let (entry, limit) = match command {
        Some((command, args)) => (json!({ "preset": id, "command": command, "args": args }), INSTALLED_LIMIT),
        None => (json!({ "preset": id }), DOWNLOAD_LIMIT),
    };
    let options = json!({ "agents": { id: entry }, "startTimeoutSeconds": limit });
    let config =
        json!({ "paths": [home.path()], "plugins": [{ "name": "@ostler/acp", "options": options }] });
    let file = home.path().join("config.json");
    fs::write(&file, config.to_string()).map_err(|error| failed(&error))?;
    let target = crate::cargo::target(root);
    let output = Command::new(target.join("debug/ostler"))
        .args(["agent", "check", id, "--json", "--config-file"])
        .arg(&file)
        .env("HOME", home.path())
        // Agents report different features with and without a browser.
        .env_remove("NO_BROWSER")
        .envs([("OPENCODE_DISABLE_MODELS_FETCH", "1"), ("OPENCODE_DISABLE_AUTOUPDATE", "1")])
        // This agent does not start without a model; `passthrough` is its built-in test model.
        .env("FAST_AGENT_MODEL", "passthrough")
        .envs(
            ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"]
                .map(|name| (name, home.path())),
        )
        .output()
        .map_err(|error| failed(&error))?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| failed(&String::from_utf8_lossy(&output.stderr)))?;
    if !report["supports"].is_object() {
        return Err(failed(&report["problem"]));
    }
    let supported = |names: &[&str]| -> Value {
        names.iter().filter(|name| report["supports"][**name] == true).copied().collect()
    };
    let mut probe = Map::new();
    probe.insert("version".to_owned(), preset["version"].clone());
    probe.insert("sessions".to_owned(), supported(&["list", "close", "resume", "load", "fork", "delete"]));
    probe.insert("mcp".to_owned(), supported(&["mcpHttp", "mcpSse"]));
    probe.insert("prompts".to_owned(), supported(&["image", "audio", "embedded"]));
    let methods = report["authMethods"].as_array().into_iter().flatten();
    probe.insert("signIn".to_owned(), methods.map(|method| method["id"].clone()).collect());
    Ok(probe.into())
}
