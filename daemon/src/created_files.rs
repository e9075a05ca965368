//! The files and folders a command creates, which are removed if the command fails.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files and folders created so far.
#[derive(Debug, Default)]
pub(crate) struct CreatedFiles {
    files: Vec<PathBuf>,
    /// The paths, deepest first.
    folders: Vec<PathBuf>,
}

impl CreatedFiles {
    /// Creates a folder and its parents.
    pub(crate) fn folder(&mut self, folder: &Path) -> io::Result<()> {
        let missing = folder.ancestors().filter(|above| !above.as_os_str().is_empty() && !above.exists());
        self.folders.splice(0..0, missing.map(Path::to_owned));
        fs::create_dir_all(folder)
    }

    /// Records a file, or a folder with its content, that is about to be created, unless it exists.
    pub(crate) fn note(&mut self, path: PathBuf) {
        if fs::symlink_metadata(&path).is_err() {
            self.files.push(path);
        }
    }

    /// Removes the created files. A folder with other files stays.
    pub(crate) fn undo(self) {
        for path in &self.files {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}
