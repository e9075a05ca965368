//! The working trees that contain the directories of a session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::points::ChangesOf;

use crate::program::Failure;
use crate::status::{Row, Status};
use crate::tree::{Tree, Trees};

/// One working tree of a session, with the session's directories in it.
pub(crate) struct SessionTree {
    pub tree: Arc<Tree>,
    /// The directories, in the session's order.
    pub directories: Vec<PathBuf>,
    /// Their paths in the tree.
    pub prefixes: Vec<PathBuf>,
}

impl SessionTree {
    /// Whether a path, from the top of the tree, is in one of the directories.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }

    /// The rows in the directories.
    pub(crate) fn rows<'a>(&self, status: &'a Status) -> Vec<&'a Row> {
        status.rows.iter().filter(|row| self.holds(&row.path)).collect()
    }
}

impl Trees {
    /// The working trees of a session, that of its first directory first; none outside of repositories.
    pub(crate) async fn of_session(&self, of: &ChangesOf) -> Result<Vec<SessionTree>, Failure> {
        let mut places: Vec<SessionTree> = Vec::new();
        for directory in of.directories().map(PathBuf::from) {
            let Some(tree) = self.of(&directory).await? else { continue };
            let prefix = tree.prefix(&directory);
            match places.iter_mut().find(|place| place.tree.root == tree.root) {
                Some(place) => {
                    place.directories.push(directory);
                    place.prefixes.push(prefix);
                }
                None => {
                    places.push(SessionTree { tree, directories: vec![directory], prefixes: vec![prefix] });
                }
            }
        }
        Ok(places)
    }
}
