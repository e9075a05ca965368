//! The files and variables of this computer that machines may use, and the file that pins the versions of their parts. Spec:
//! *Versioning*.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ostler_contract::{JsonObject, Value};
use ostler_engine::{Found, LocalSystem, Pinned, Stamp};
use ostler_protocol::names;

/// The file in the configuration folder that pins the parts of machines.
const VERSIONS: &str = "versions.json";
/// The part that is the daemon itself, by default with its own version.
const OWN: &str = names::HOST;

/// The local system of this host.
#[derive(Debug)]
pub struct OnDisk {
    versions: PathBuf,
}

impl OnDisk {
    /// Creates it with the versions file of a configuration folder.
    pub fn new(dir: &Path) -> Self {
        Self { versions: dir.join(VERSIONS) }
    }
}

impl LocalSystem for OnDisk {
    fn home(&self) -> Option<String> {
        std::env::var("HOME").ok().filter(|home| home.starts_with('/'))
    }

    fn look(&self, path: &str) -> Option<Found> {
        let facts = std::fs::metadata(path).ok()?;
        let real = std::fs::canonicalize(path).ok()?.to_string_lossy().into_owned();
        Some(Found { is_directory: facts.is_dir(), real })
    }

    fn stamp(&self, path: &str) -> Option<Stamp> {
        let facts = std::fs::metadata(path).ok()?;
        let written = facts.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some((written.as_nanos(), facts.len()))
    }

    fn parts(&self) -> Result<BTreeMap<String, Pinned>, String> {
        let file = self.versions.display();
        let mut parts = match std::fs::read_to_string(&self.versions) {
            Ok(text) => {
                let rows: JsonObject = serde_json::from_str(&text).map_err(|error| {
                    format!("{file} must be an object that maps parts to versions ({error})")
                })?;
                rows.iter()
                    .map(|(part, row)| Ok((part.clone(), pinned(row).ok_or(part)?)))
                    .collect::<Result<BTreeMap<_, _>, &String>>()
                    .map_err(|part| {
                        format!("{file}: {part} must be a version, or {{ version, package?, requires? }}")
                    })?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(format!("{file} could not be read: {error}")),
        };
        let own = || Pinned { version: env!("CARGO_PKG_VERSION").to_owned(), ..Pinned::default() };
        parts.entry(OWN.to_owned()).or_insert_with(own);
        Ok(parts)
    }
}

fn pinned(row: &Value) -> Option<Pinned> {
    let word = |value: &Value| Some(value.as_str()?.to_owned()).filter(|word| !word.trim().is_empty());
    match row {
        Value::String(_) => Some(Pinned { version: word(row)?, ..Pinned::default() }),
        Value::Object(fields) => Some(Pinned {
            version: word(fields.get("version")?)?,
            package: match fields.get("package") {
                Some(package) => Some(word(package)?),
                None => None,
            },
            requires: match fields.get("requires") {
                Some(Value::Array(parts)) => parts.iter().map(word).collect::<Option<_>>()?,
                Some(_) => return None,
                None => Vec::new(),
            },
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_file_pins_parts_and_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let here = OnDisk::new(dir.path());
        let own = here.parts().unwrap();
        assert_eq!(own.len(), 1);
        assert_eq!(own["ostler"].version, env!("CARGO_PKG_VERSION"));
        let write = |text: &str| std::fs::write(dir.path().join("versions.json"), text).unwrap();
        write(
            r#"{ "node": "24.1.0", "ostler": "9.9.9",
            "agent": { "version": "1.2.3", "package": "@inn/agent", "requires": ["node"] } }"#,
        );
        let parts = here.parts().unwrap();
        assert_eq!((parts["node"].version.as_str(), parts["ostler"].version.as_str()), ("24.1.0", "9.9.9"));
        let agent = Pinned {
            version: "1.2.3".into(),
            package: Some("@inn/agent".into()),
            requires: vec!["node".into()],
        };
        assert_eq!(parts["agent"], agent);
        for wrong in [
            r#"{ "a": "" }"#,
            r#"{ "a": 5 }"#,
            r#"{ "a": {} }"#,
            r#"{ "a": { "version": "1", "requires": "b" } }"#,
        ] {
            write(wrong);
            let why = here.parts().unwrap_err();
            assert!(
                why.ends_with("versions.json: a must be a version, or { version, package?, requires? }"),
                "{why}"
            );
        }
        write("[]");
        assert!(
            here.parts().unwrap_err().contains("versions.json must be an object that maps parts to versions")
        );
    }

    #[test]
    fn a_path_is_what_its_links_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let here = OnDisk::new(dir.path());
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("auth.json"), "").unwrap();
        std::os::unix::fs::symlink(path("auth.json"), path("link")).unwrap();
        let found = here.look(&path("link")).unwrap();
        assert!(!found.is_directory && found.real.ends_with("/auth.json"), "{found:?}");
        assert!(here.look(&path(".")).unwrap().is_directory);
        assert_eq!(here.look(&path("gone")), None);
    }
}
