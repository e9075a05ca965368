//! The directories of sessions: each must exist, and one that a client names must be served.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ostler_contract::points::served_trees;
use ostler_contract::problem::outside;
use ostler_contract::{Thrown, in_time};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::local_system::LocalSystem;
use ostler_protocol::RpcError;

use crate::Workspace;

/// The limit for checking directories, because one on a network may not answer.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// The valid directories of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Directories {
    /// All existing ones.
    #[default]
    Existing,
    /// Those in a served directory.
    Served,
}

impl Workspace {
    /// Checks the directories of a session. Without access to a local system, checks nothing.
    ///
    /// # Errors
    /// `-32009` for one that is not served, `-32602` for one that does not exist or is not a directory.
    pub async fn check_directories(&self, named: &[String], which: Directories) -> Result<(), RpcError> {
        let Some(here) = self.core.local_system.get().cloned().filter(|_| !named.is_empty()) else {
            return Ok(());
        };
        let (named, served) = (named.to_vec(), self.core.options.paths.clone());
        let served = match which {
            Directories::Served => served,
            Directories::Existing => Vec::new(),
        };
        let looked = tokio::task::spawn_blocking(move || {
            named.iter().try_for_each(|directory| check(&*here, directory, &served))
        });
        let looked = in_time(LOOK_LIMIT, async { looked.await.map_err(Thrown::new) }).await;
        looked.unwrap_or_else(|why| {
            Err(RpcError::internal(format!("workingDirectories could not be checked: {}", why.message)))
        })
    }
}

/// Checks one directory. Reveals nothing about directories that are not served, not even whether they exist.
fn check(here: &dyn LocalSystem, directory: &str, served: &[String]) -> Result<(), RpcError> {
    let path = file_path(directory);
    let found = here.look(&path);
    let real = real(here, Path::new(&path));
    let holds = |root: &String| {
        let root = here.look(root).map_or_else(|| root.clone(), |found| found.real);
        real.as_ref().is_some_and(|real| real.starts_with(&root) || is_in_tree_of(here, real, &root))
    };
    if !served.is_empty() && !served.iter().any(holds) {
        return Err(RpcError::permission_denied(format!("workingDirectories: {}", outside(directory))));
    }
    let wrong = match found {
        Some(found) if found.is_directory => return Ok(()),
        Some(_) => "is not a directory",
        None => "does not exist",
    };
    Err(RpcError::invalid_params(format!("workingDirectories: {directory} {wrong}")))
}

/// Returns whether a path is in a working tree of a served directory.
fn is_in_tree_of(here: &dyn LocalSystem, path: &Path, served: &str) -> bool {
    let is_repository = |folder: &Path| here.look(&folder.join(".git").to_string_lossy()).is_some();
    served_trees(Path::new(served), path, is_repository).is_some()
}

/// Returns a path with the links in its existing part followed; `None` if that is unknown.
fn real(here: &dyn LocalSystem, path: &Path) -> Option<PathBuf> {
    let (existing, found) =
        path.ancestors().find_map(|part| Some((part, here.look(&part.to_string_lossy())?)))?;
    let rest = path.strip_prefix(existing).ok()?;
    let goes_back = rest.components().any(|part| part == Component::ParentDir);
    (!goes_back).then(|| Path::new(&found.real).join(rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use ostler_engine_core::local_system::{Found, Pinned};

    struct Disk;

    impl LocalSystem for Disk {
        fn home(&self) -> Option<String> {
            None
        }

        fn look(&self, path: &str) -> Option<Found> {
            let found = |is_directory, real: &str| Some(Found { is_directory, real: real.to_owned() });
            match path {
                "/" | "/srv" | "/srv/inn" | "/etc" => found(true, path),
                "/srv/file" => found(false, path),
                "/srv/out" => found(true, "/etc"),
                "/link" => found(true, "/srv"),
                _ => None,
            }
        }

        fn parts(&self) -> Result<BTreeMap<String, Pinned>, String> {
            Ok(BTreeMap::new())
        }
    }

    #[test]
    fn a_directory_has_to_exist_and_to_be_served() {
        let outcome = |directory: &str, served: &[&str]| {
            let served: Vec<String> = served.iter().map(|&root| root.to_owned()).collect();
            check(&Disk, directory, &served).map_err(|error| error.code)
        };
        assert_eq!(outcome("file:///srv/inn", &["/srv"]), Ok(()));
        assert_eq!(outcome("/srv", &["/link"]), Ok(()), "a root may be a link");
        assert_eq!(outcome("/srv/gone", &["/srv"]), Err(-32602));
        assert_eq!(outcome("/srv/file", &["/srv"]), Err(-32602));
        assert_eq!(outcome("/etc", &["/srv"]), Err(-32009));
        assert_eq!(outcome("/srv/out", &["/srv"]), Err(-32009), "a link may lead out");
        assert_eq!(outcome("/srv/../etc/gone", &["/srv"]), Err(-32009));
        assert_eq!(outcome("/srv/out/gone", &["/srv"]), Err(-32009), "nothing is said of what is there");
        assert_eq!(outcome("/etc", &[]), Ok(()));
        assert_eq!(outcome("/gone", &[]), Err(-32602));
    }
}
