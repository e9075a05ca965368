//! Presets: descriptions of agents from the ACP registry, bundled or read from a newer file or folder.

mod bundled;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::machine::Needs;

/// One agent of a registry: the members of its `agent.json` that are required to start it.
#[derive(Debug, Clone, Deserialize)]
pub struct Preset {
    id: String,
    /// Shown to users.
    pub name: String,
    /// One line.
    pub description: Option<String>,
    distribution: Distribution,
    #[serde(default, rename = "_meta")]
    meta: Meta,
}

/// What ostler adds to an entry of the registry.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Meta {
    ostler: PresetFacts,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PresetFacts {
    /// The variable with its API key.
    key: Option<String>,
    /// The method that signs in with the key.
    key_method: Option<String>,
    /// The variable that names the folder of its configuration.
    state_variable: Option<String>,
    /// The file of its configuration, in the user's home.
    seed: Option<String>,
    /// The path to the member of `_meta` for plugins.
    plugins: Option<Vec<String>>,
    /// Python packages that it requires and does not contain.
    with: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Distribution {
    npx: Option<Package>,
    uvx: Option<Package>,
    binary: BTreeMap<String, Binary>,
}

#[derive(Debug, Clone, Deserialize)]
struct Package {
    package: String,
    cmd: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Binary {
    archive: String,
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// How an agent of a preset is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program, looked up on `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside the daemon's environment.
    pub env: BTreeMap<String, String>,
    /// How to install the program, as an imperative.
    pub install: String,
}

impl Preset {
    /// Its needs in a machine.
    pub fn needs(&self) -> Needs {
        let PresetFacts { key, key_method, state_variable, seed, .. } = self.meta.ostler.clone();
        let Distribution { npx, uvx, .. } = &self.distribution;
        let part = match (npx, uvx) {
            (Some(_), _) => "node",
            (None, Some(_)) => "uv",
            (None, None) => &self.id,
        };
        Needs { part: Some(part.to_owned()), key, key_method, state_variable, seed }
    }

    /// The path to the member of `_meta` for plugins.
    pub fn plugins_at(&self) -> Option<Vec<String>> {
        self.meta.ostler.plugins.clone()
    }

    /// How the agent is started on this platform.
    ///
    /// # Errors
    /// The preset has no distribution for this platform.
    pub fn launch(&self) -> Result<Launch, String> {
        let Distribution { npx, uvx, binary } = &self.distribution;
        if let Some(package) = npx {
            let (program, from) = (["npx", "--yes"], "--package");
            return Ok(package.launch(&program, from, &[], "install Node.js, which brings npx"));
        }
        if let Some(package) = uvx {
            let with: Vec<&str> = self.meta.ostler.with.iter().flat_map(|with| ["--with", with]).collect();
            return Ok(package.launch(&["uvx"], "--from", &with, "install uv, which brings uvx"));
        }
        let platform = platform();
        let binary = binary
            .get(&platform)
            .ok_or_else(|| format!("preset {} has no distribution for {platform}", self.id))?;
        let program = Path::new(&binary.cmd).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Launch {
            install: format!("download {} and put {program} on PATH", binary.archive),
            command: program,
            args: binary.args.clone(),
            env: binary.env.clone(),
        })
    }
}

impl Package {
    /// `<runner> <with> <package> <args>`, or `<runner> <with> <from> <package> <cmd> <args>` if the program has
    /// another name.
    fn launch(&self, runner: &[&str], from: &str, with: &[&str], install: &str) -> Launch {
        let mut words: Vec<String> = runner.iter().chain(with).map(|word| (*word).to_owned()).collect();
        match &self.cmd {
            Some(cmd) => words.extend([from.to_owned(), self.package.clone(), cmd.clone()]),
            None => words.push(self.package.clone()),
        }
        words.extend(self.args.iter().cloned());
        let command = words.remove(0);
        Launch { command, args: words, env: self.env.clone(), install: install.to_owned() }
    }
}

/// Returns this platform in the form of the registry, such as `linux-x86_64`.
fn platform() -> String {
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    format!("{system}-{}", std::env::consts::ARCH)
}

/// The presets by id.
#[derive(Debug)]
pub struct Presets(BTreeMap<String, Preset>);

impl Presets {
    /// Reads the bundled presets, and over them those of a file (`{ "agents": […] }`, one agent, or a list) or of a
    /// folder with one `<id>/agent.json` for each agent. An agent, a file or a folder that cannot be read is one line in
    /// `problems`.
    pub fn read(registry: Option<&Path>, problems: &mut Vec<String>) -> Self {
        let Self(mut presets) = Self::bundled(problems);
        if let Some(path) = registry
            && let Err(why) = read_over(&mut presets, path, problems)
        {
            problems.push(format!("options.registry: {}: {why}", path.display()));
        }
        Self(presets)
    }

    /// The bundled presets alone.
    pub fn bundled(problems: &mut Vec<String>) -> Self {
        let mut presets = BTreeMap::new();
        for text in bundled::AGENTS {
            add(&mut presets, "bundled presets", serde_json::from_str(text), problems);
        }
        Self(presets)
    }

    /// The preset of that id.
    pub fn get(&self, id: &str) -> Option<&Preset> {
        self.0.get(id)
    }

    /// Every id, in order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Reads the agents of a file or folder, which replace existing ones.
fn read_over(
    presets: &mut BTreeMap<String, Preset>,
    path: &Path,
    problems: &mut Vec<String>,
) -> std::io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        for entry in std::fs::read_dir(path)?.flatten() {
            let file = entry.path().join("agent.json");
            if let Ok(text) = std::fs::read_to_string(&file) {
                add(presets, &file.display().to_string(), serde_json::from_str(&text), problems);
            }
        }
        return Ok(());
    }
    let whole: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let agents = match whole {
        serde_json::Value::Array(agents) => agents,
        whole => match whole.get("agents").and_then(|agents| agents.as_array()) {
            Some(agents) => agents.clone(),
            None => vec![whole],
        },
    };
    for agent in agents {
        add(presets, &path.display().to_string(), serde_json::from_value(agent), problems);
    }
    Ok(())
}

fn add(
    presets: &mut BTreeMap<String, Preset>,
    place: &str,
    read: serde_json::Result<Preset>,
    problems: &mut Vec<String>,
) {
    match read {
        Ok(preset) => drop(presets.insert(preset.id.clone(), preset)),
        Err(why) => problems.push(format!("{place}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(text: &str) -> Preset {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_bundled_preset_can_be_started() {
        let mut problems = Vec::new();
        let presets = Presets::read(None, &mut problems);
        assert_eq!((problems, presets.0.len()), (Vec::new(), bundled::AGENTS.len()));
        for preset in presets.0.values() {
            preset.launch().unwrap();
        }
    }

    #[test]
    fn each_distribution_is_one_command_line() {
        let line = |text: &str| {
            let launch = preset(text).launch().unwrap();
            format!("{} {}", launch.command, launch.args.join(" "))
        };
        let npx = r#"{ "id": "a", "name": "A", "distribution": { "npx": { "package": "a@1", "args": ["--acp"] } } }"#;
        assert_eq!(line(npx), "npx --yes a@1 --acp");
        let named =
            r#"{ "id": "a", "name": "A", "distribution": { "npx": { "package": "a@1", "cmd": "b" } } }"#;
        assert_eq!(line(named), "npx --yes --package a@1 b");
        let uvx = r#"{ "id": "a", "name": "A", "distribution": { "uvx": { "package": "a==1", "cmd": "b", "args": ["c"] } } }"#;
        assert_eq!(line(uvx), "uvx --from a==1 b c");
        let with = r#"{ "id": "a", "name": "A", "distribution": { "uvx": { "package": "a==1", "cmd": "b" } },
            "_meta": { "ostler": { "with": ["c", "d"] } } }"#;
        assert_eq!(line(with), "uvx --with c --with d --from a==1 b");
        let binary = format!(
            r#"{{ "id": "a", "name": "A", "distribution": {{ "binary": {{ "{}": {{ "archive": "https://x", "cmd": "./bin/a", "args": ["acp"] }} }} }} }}"#,
            platform()
        );
        assert_eq!(line(&binary), "a acp");
        let elsewhere = r#"{ "id": "a", "name": "A", "distribution": { "binary": { "plan9-mips": { "archive": "x", "cmd": "a" } } } }"#;
        assert!(preset(elsewhere).launch().unwrap_err().starts_with("preset a has no distribution for "));
    }

    #[test]
    fn a_newer_registry_goes_over_the_bundled_one() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |id: &str| {
            format!(
                r#"{{ "id": "{id}", "name": "Newer", "distribution": {{ "npx": {{ "package": "n@2" }} }} }}"#
            )
        };
        let file = folder.path().join("registry.json");
        std::fs::write(
            &file,
            format!(r#"{{ "version": "1.0.0", "agents": [{}, {{ "id": "broken" }}] }}"#, entry("gemini")),
        )
        .unwrap();
        let mut problems = Vec::new();
        let presets = Presets::read(Some(&file), &mut problems);
        assert_eq!(presets.get("gemini").unwrap().name, "Newer");
        assert!(presets.get("opencode").is_some());
        assert_eq!(problems.len(), 1, "{problems:?}");
        std::fs::create_dir_all(folder.path().join("folder/brand-new")).unwrap();
        std::fs::write(folder.path().join("folder/brand-new/agent.json"), entry("brand-new")).unwrap();
        let presets = Presets::read(Some(&folder.path().join("folder")), &mut problems);
        assert_eq!(presets.get("brand-new").unwrap().launch().unwrap().args, ["--yes", "n@2"]);
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        for name in ["missing", "broken.json"] {
            let (mut problems, path) = (Vec::new(), folder.path().join(name));
            let presets = Presets::read(Some(&path), &mut problems);
            assert!(presets.get("gemini").is_some(), "the bundled ones are there");
            let begins = format!("options.registry: {}: ", path.display());
            assert!(problems.len() == 1 && problems[0].starts_with(&begins), "{problems:?}");
        }
    }
}
