//! The plugin's options: the runtime, images, profiles of machines, parts and dev containers.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_contract::points::{MachineMount, MachineProfile};
use ostler_contract::{Thrown, Value};
use serde::{Deserialize, Serialize};

/// The default image.
const IMAGE: &str = "docker.io/library/debian:bookworm-slim";

/// The members of a profile.
const MEMBERS: &[&str] = &[
    "title",
    "description",
    "agents",
    "needs",
    "disposableDelay",
    "image",
    "cpus",
    "memory",
    "user",
    "network",
    "workdir",
    "folder",
    "mounts",
];

/// The options.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configured {
    /// Address of the runtime.
    pub socket: Option<String>,
    /// The default image.
    pub image: String,
    /// Patterns of images that a manifest can name, in addition to the default and those of profiles.
    pub images: Vec<String>,
    /// Mounts of every machine.
    pub mounts: Vec<Mounted>,
    /// Whether a manifest can contain mounts.
    pub body_mounts: bool,
    /// The profiles of machines.
    pub profiles: BTreeMap<String, Profile>,
    /// The sources of parts, in addition to the known ones.
    pub parts: BTreeMap<String, PartSource>,
    /// Whether models are offered the tools for containers.
    pub tools: bool,
    pub devcontainer: DevContainers,
}

impl Default for Configured {
    fn default() -> Self {
        Self {
            socket: None,
            image: IMAGE.to_owned(),
            images: Vec::new(),
            mounts: Vec::new(),
            body_mounts: false,
            profiles: BTreeMap::new(),
            parts: BTreeMap::new(),
            tools: false,
            devcontainer: DevContainers::default(),
        }
    }
}

/// A mount of a host directory or file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mounted {
    /// Path on the host.
    pub source: String,
    /// Path in the machine.
    pub target: String,
    #[serde(default)]
    pub read_only: bool,
}

impl From<&Mounted> for MachineMount {
    fn from(mount: &Mounted) -> Self {
        Self { source: mount.source.clone(), target: mount.target.clone(), read_only: mount.read_only }
    }
}

/// A profile of machines.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// Display name.
    pub title: Option<String>,
    /// A one-line description.
    pub description: Option<String>,
    /// The backends of its machines.
    pub agents: Vec<String>,
    /// Values of needs.
    pub needs: BTreeMap<String, String>,
    /// Milliseconds that a machine stays after its session has ended.
    pub disposable_delay: u64,
    /// The description of its machines.
    #[serde(flatten)]
    pub machine: Machine,
    /// Members that a profile does not have.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
}

/// The description of a machine, from a profile or a manifest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory in bytes, or with a unit: `512m`, `2g`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// User of its processes, as the image names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Network mode of the runtime, such as `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Working directory if the session's is not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Where the session's directory is mounted. Default: at its own path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Mounts of host directories and files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mounted>,
}

/// An amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Memory {
    /// Bytes.
    Bytes(u64),
    /// A number with the unit `k`, `m` or `g`.
    Text(String),
}

impl Memory {
    /// The bytes.
    pub fn bytes(&self) -> Option<u64> {
        let text = match self {
            Self::Bytes(bytes) => return Some(*bytes),
            Self::Text(text) => text.trim().to_ascii_lowercase(),
        };
        let number = text.trim_end_matches('b').trim_end_matches('i');
        let (number, unit) = match number.strip_suffix(['k', 'm', 'g']) {
            Some(rest) => (rest, number.as_bytes()[number.len() - 1]),
            None => (number, b' '),
        };
        let shift = match unit {
            b'k' => 10,
            b'm' => 20,
            b'g' => 30,
            _ => 0,
        };
        number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
    }
}

/// The source of a part: a directory of an image.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSource {
    /// The image; `{version}` is replaced by the pinned version.
    pub image: String,
    /// The directory of the image.
    pub path: String,
}

/// Options of dev containers.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DevContainers {
    /// The program of the dev-container command line.
    pub program: String,
    /// The docker-compatible program that it runs.
    pub docker: Option<String>,
    /// Whether the daemon's program is copied into a container that has none.
    pub install: bool,
    /// The plugins of the host inside, as in a configuration. Without any, dev containers are not offered to clients.
    pub plugins: Vec<Value>,
}

impl Default for DevContainers {
    fn default() -> Self {
        Self { program: "devcontainer".to_owned(), docker: None, install: true, plugins: Vec::new() }
    }
}

impl Configured {
    /// Checks what cannot be checked by the schema.
    pub fn check(&mut self) -> Result<(), Thrown> {
        if self.profiles.is_empty() {
            let title = Some("Disposable container".to_owned());
            self.profiles.insert("default".to_owned(), Profile { title, ..Profile::default() });
        }
        check_mounts("mounts", &self.mounts).map_err(Thrown::new)?;
        check_image("image", &self.image).map_err(Thrown::new)?;
        for pattern in &self.images {
            let parts = pattern.split('/');
            if parts.clone().any(|part| part.is_empty() || part.contains('*') && part != "*" && part != "**")
            {
                return Err(Thrown::new(format_args!(
                    "images: {pattern} is invalid; a component is a name, * for any one, or ** for any number"
                )));
            }
        }
        for (name, profile) in &self.profiles {
            let known = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
            if !known || name.is_empty() || name.len() > 40 {
                return Err(Thrown::new(format_args!(
                    "profiles: {name:?} is not a name of a profile; use letters, digits, - _ and ., at most 40"
                )));
            }
            if let Some(unknown) = profile.unknown.keys().next() {
                return Err(Thrown::new(format_args!(
                    "profiles.{name}.{unknown}: a profile has no such member; it has {}",
                    MEMBERS.join(", ")
                )));
            }
            profile.machine.check().map_err(|why| Thrown::new(format_args!("profiles.{name}.{why}")))?;
        }
        for (part, source) in &self.parts {
            check_image("image", &source.image)
                .map_err(|why| Thrown::new(format_args!("parts.{part}.{why}")))?;
            check_path("path", &source.path)
                .map_err(|why| Thrown::new(format_args!("parts.{part}.{why}")))?;
        }
        Ok(())
    }

    /// Returns the profiles in the form for the host.
    pub fn shown(&self) -> BTreeMap<String, MachineProfile> {
        let shown = |profile: &Profile| MachineProfile {
            title: profile.title.clone(),
            description: profile.description.clone(),
            agents: profile.agents.clone(),
            needs: profile.needs.clone(),
        };
        self.profiles.iter().map(|(name, profile)| (name.clone(), shown(profile))).collect()
    }

    /// Returns how long a machine of a profile stays after its session has ended.
    pub fn delay(&self, profile: Option<&str>) -> Duration {
        let profile = profile.and_then(|name| self.profiles.get(name));
        Duration::from_millis(profile.map_or(0, |profile| profile.disposable_delay))
    }

    /// Returns whether a manifest can name an image.
    pub fn allows(&self, image: &str) -> bool {
        let own = self.profiles.values().filter_map(|profile| profile.machine.image.as_deref());
        own.chain([self.image.as_str()]).any(|own| own == image)
            || self.images.iter().any(|pattern| matches(pattern, image))
    }
}

impl Machine {
    /// Checks the fields; the error begins with the name of one.
    pub fn check(&self) -> Result<(), String> {
        if let Some(image) = &self.image {
            check_image("image", image)?;
        }
        if let Some(cpus) = self.cpus
            && !(cpus > 0.0 && cpus <= 4096.0)
        {
            return Err(format!("cpus: {cpus} is not a number of processors"));
        }
        if let Some(memory) = &self.memory
            && memory.bytes().is_none_or(|bytes| bytes < 4 << 20)
        {
            return Err("memory: not an amount of at least 4 MiB, as 2g or 2147483648".to_owned());
        }
        for (name, path) in [("workdir", &self.workdir), ("folder", &self.folder)] {
            if let Some(path) = path {
                check_path(name, path)?;
            }
        }
        check_mounts("mounts", &self.mounts)
    }
}

fn check_mounts(name: &str, mounts: &[Mounted]) -> Result<(), String> {
    for mount in mounts {
        check_path(&format!("{name}.source"), &mount.source)?;
        check_path(&format!("{name}.target"), &mount.target)?;
        if mount.target == "/" {
            return Err(format!("{name}.target: / cannot be mounted over"));
        }
    }
    Ok(())
}

fn check_path(name: &str, path: &str) -> Result<(), String> {
    let sound = path.starts_with('/') && !path.contains('\0') && !path.split('/').any(|part| part == "..");
    sound.then_some(()).ok_or_else(|| format!("{name}: {path} is not an absolute path"))
}

fn check_image(name: &str, image: &str) -> Result<(), String> {
    let sound = !image.is_empty()
        && !image.starts_with('-')
        && image.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./:@{}".contains(letter));
    sound.then_some(()).ok_or_else(|| format!("{name}: {image} is not a name of an image"))
}

/// Returns whether an image matches a pattern, component by component.
fn matches(pattern: &str, image: &str) -> bool {
    fn from(pattern: &[&str], image: &[&str]) -> bool {
        match pattern.split_first() {
            None => image.is_empty(),
            Some((&"**", rest)) => (0..=image.len()).any(|taken| from(rest, &image[taken..])),
            Some((first, rest)) => match image.split_first() {
                Some((part, images)) => (*first == "*" || first == part) && from(rest, images),
                None => false,
            },
        }
    }
    from(&pattern.split('/').collect::<Vec<_>>(), &image.split('/').collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{Configured, Memory, matches};

    #[test]
    fn patterns_match_by_component() {
        for (pattern, image, yes) in [
            ("docker.io/library/*", "docker.io/library/debian:12", true),
            ("docker.io/library/*", "docker.io/library/a/b", false),
            ("ghcr.io/**", "ghcr.io/acme/deep/image:1", true),
            ("ghcr.io/**/image:1", "ghcr.io/acme/deep/image:1", true),
            ("**", "anything", true),
            ("ghcr.io/acme", "ghcr.io/acme-evil", false),
            ("*", "a/b", false),
        ] {
            assert_eq!(matches(pattern, image), yes, "{pattern} {image}");
        }
    }

    #[test]
    fn memory_has_units() {
        for (text, bytes) in [
            ("512m", Some(512 << 20)),
            ("2GiB", Some(2 << 30)),
            ("64k", Some(64 << 10)),
            ("7", Some(7)),
            ("x", None),
        ] {
            assert_eq!(Memory::Text(text.into()).bytes(), bytes, "{text}");
        }
    }

    #[test]
    fn a_profile_has_the_members_of_its_schema() {
        let schema = crate::schema();
        let profile = &schema["properties"]["profiles"]["additionalProperties"];
        let mut members: Vec<_> = profile["properties"].as_object().unwrap().keys().cloned().collect();
        let mut known = super::MEMBERS.to_vec();
        members.sort();
        known.sort_unstable();
        assert_eq!(members, known);
        assert_eq!(profile["additionalProperties"], false);
        let all = members.iter().map(|member| {
            let value = match member.as_str() {
                "agents" | "mounts" => serde_json::json!([]),
                "needs" => serde_json::json!({}),
                "cpus" | "disposableDelay" => 1.into(),
                _ => "64m".into(),
            };
            (member.clone(), value)
        });
        let profile: super::Profile = serde_json::from_value(all.collect()).unwrap();
        assert!(profile.unknown.is_empty(), "{:?}", profile.unknown);
    }

    #[test]
    fn a_machine_stays_as_long_as_its_profile_says() {
        let options = r#"{"profiles":{"a":{"disposableDelay":1500},"b":{}}}"#;
        let configured: Configured = serde_json::from_str(options).unwrap();
        let delay = |profile| configured.delay(profile).as_millis();
        assert_eq!((delay(Some("a")), delay(Some("b")), delay(Some("c")), delay(None)), (1500, 0, 0, 0));
    }

    #[test]
    fn what_cannot_work_is_named() {
        for (options, says) in [
            (r#"{"images":["ghcr.io/a*"]}"#, "images: ghcr.io/a* is invalid"),
            (r#"{"image":"-v"}"#, "image: -v is not a name of an image"),
            (r#"{"profiles":{"a b":{}}}"#, "\"a b\" is not a name of a profile"),
            (r#"{"profiles":{"a":{"memory":"much"}}}"#, "profiles.a.memory: "),
            (r#"{"profiles":{"a":{"imagee":"x"}}}"#, "profiles.a.imagee: a profile has no such member"),
            (
                r#"{"profiles":{"a":{"mounts":[{"source":"x","target":"/x"}]}}}"#,
                "profiles.a.mounts.source: x is not",
            ),
            (r#"{"mounts":[{"source":"/x","target":"/"}]}"#, "mounts.target: / cannot"),
        ] {
            let mut configured: Configured = serde_json::from_str(options).unwrap();
            let why = configured.check().unwrap_err().message;
            assert!(why.contains(says), "{why}");
        }
    }
}
