//! The folders of a host: one for its configuration and what users edit, one for what the host itself writes.

use std::path::{Path, PathBuf};

use ostler_protocol::names;
use ring::digest::{SHA256, digest};

use super::files::Environment;

/// The number of bytes of a hash that distinguishes configuration folders of the same name.
const HASH_BYTES: usize = 6;

/// The folders of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// The configuration and what users edit beside it: records, vault, policies, automations.
    pub config: PathBuf,
    /// What the host itself writes: the state database, the daemon's record, its log.
    pub state: PathBuf,
}

impl Folders {
    /// Returns the folders of the user's configuration file, otherwise of the named one.
    pub(super) fn of(own: &Option<PathBuf>, named: &Option<PathBuf>, environment: &Environment) -> Self {
        // Made absolute first, because the folder of a bare file name would be empty.
        let file = own.as_ref().or(named.as_ref()).cloned().unwrap_or_default();
        let file = std::path::absolute(&file).unwrap_or(file);
        let config = file.parent().map(Path::to_owned).unwrap_or_default();
        let state = state_folder(&config, own.is_some(), environment);
        Self { config, state }
    }
}

/// The state folder of a configuration folder. The user's has `$XDG_STATE_HOME/ostler`. Every other one has a folder
/// inside it, and so does the user's if `$XDG_CONFIG_HOME` moved it without the state home, so that no two
/// configurations share a state.
fn state_folder(config: &Path, is_own: bool, environment: &Environment) -> PathBuf {
    let Environment { config_home, home, state_home, .. } = environment;
    // The XDG Base Directory Specification requires that a relative path is ignored.
    let state_home = state_home.as_ref().filter(|home| home.is_absolute());
    let usual = home.as_ref().map(|home| home.join(".local/state"));
    let Some(root) = state_home.cloned().or(usual) else { return config.to_owned() };
    let root = root.join(names::HOST);
    let usual_config = home.as_ref().map(|home| home.join(".config"));
    let moved_alone = state_home.is_none() && config_home.is_some() && *config_home != usual_config;
    if is_own && !moved_alone {
        return root;
    }
    let real = real(config);
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let hash = digest(&SHA256, real.as_os_str().as_encoded_bytes());
    root.join(format!("{name}-{}", hex::encode(&hash.as_ref()[..HASH_BYTES])))
}

/// Follows the links in the existing part of a path.
fn real(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(parent), Some(name)) => real(parent).join(name),
        (Err(_), _, _) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(only: Option<&str>, variables: [Option<&str>; 3]) -> String {
        let [home, config_home, state_home] = variables.map(|path| path.map(PathBuf::from));
        let own = only.is_none().then(|| {
            let config = config_home.clone().unwrap_or_else(|| home.clone().unwrap().join(".config"));
            config.join("ostler/config.json")
        });
        let environment = Environment { home, config_home, state_home, named: None };
        Folders::of(&own, &only.map(PathBuf::from), &environment).state.display().to_string()
    }

    #[test]
    fn the_users_own_configuration_has_the_state_home_and_every_other_one_a_folder_in_it() {
        let home = Some("/home/ada");
        assert_eq!(state(None, [home, None, None]), "/home/ada/.local/state/ostler");
        assert_eq!(state(None, [home, Some("/home/ada/.config"), None]), "/home/ada/.local/state/ostler");
        assert_eq!(state(None, [home, None, Some("/var/state")]), "/var/state/ostler");
        assert_eq!(state(None, [home, None, Some("state")]), "/home/ada/.local/state/ostler");
        assert_eq!(state(None, [home, Some("/etc/inn"), Some("/var/state")]), "/var/state/ostler");
        let moved = state(None, [home, Some("/etc/inn"), None]);
        assert!(moved.starts_with("/home/ada/.local/state/ostler/ostler-"), "{moved}");
        let named = state(Some("/srv/inn/c.json"), [home, None, None]);
        assert!(named.starts_with("/home/ada/.local/state/ostler/inn-"), "{named}");
        assert_eq!(state(Some("/srv/inn/other.json"), [home, None, None]), named, "one folder, one host");
        assert_ne!(state(Some("/srv/2/inn/c.json"), [home, None, None]), named);
        assert_eq!(state(Some("/srv/inn/c.json"), [None, None, None]), "/srv/inn");
    }

    #[test]
    fn a_configuration_reached_through_a_link_has_the_same_state() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("inn")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("inn"), dir.path().join("link")).unwrap();
        let state = |name: &str| {
            let file = dir.path().join(name).join("config.json");
            state(Some(&file.display().to_string()), [Some("/home/ada"), None, None])
        };
        assert_eq!(state("link"), state("inn"));
        assert_eq!(state("link/new"), state("inn/new"));
    }
}
