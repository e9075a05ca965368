//! Restores files of a working tree, all of them or none: what is put back is first written completely to a temporary
//! folder, and what is replaced is kept there until everything has succeeded.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ostler_contract::{RpcError, Thrown};

use crate::program::Git;
use crate::status::{Object, SUBMODULE};
use crate::tree::Tree;

/// Files as they are to be, before anything in the tree is changed.
pub(crate) struct Restoration {
    root: PathBuf,
    /// Has the new files in `new`, by their paths, and replaced ones in `old`, by their numbers.
    folder: tempfile::TempDir,
    /// The files that get a content, then those that are removed.
    paths: Vec<(PathBuf, bool)>,
    /// The files of the source, with their contents there.
    pub sources: Vec<(PathBuf, Object)>,
}

fn refused(why: String) -> Thrown {
    RpcError::invalid_params(why).into()
}

impl Restoration {
    /// Prepares files as they are in a tree object or commit, and the removal of others. Nothing in the tree changes.
    pub(crate) async fn prepare(
        tree: &Tree,
        source: &str,
        restored: &[PathBuf],
        removed: &[PathBuf],
    ) -> Result<Self, Thrown> {
        let sources = if restored.is_empty() { Vec::new() } else { files_of(tree, source, restored).await? };
        for (path, object) in &sources {
            if object.mode == SUBMODULE {
                return Err(refused(submodule(&tree.root.join(path))));
            }
        }
        if let Some(path) = restored.iter().find(|path| !sources.iter().any(|(known, _)| known == *path)) {
            return Err(refused(format!("{} is not a file in {source}", tree.root.join(path).display())));
        }
        are_stored(tree, &sources).await?;
        let (root, git_dir) = (tree.root.clone(), tree.repository.git_dir.clone());
        let folder = tokio::task::spawn_blocking(move || folder(&root, &git_dir));
        let folder = folder.await.map_err(Thrown::new)?.map_err(|why| {
            Thrown::new(format_args!("cannot create a temporary folder for {}: {why}", tree.root.display()))
        })?;
        let paths = sources.iter().map(|(path, _)| (path.clone(), true));
        let paths = paths.chain(removed.iter().map(|path| (path.clone(), false))).collect();
        let this = Self { root: tree.root.clone(), folder, paths, sources };
        this.write(tree, source).await?;
        let (root, paths) = (this.root.clone(), this.paths.clone());
        let checked = tokio::task::spawn_blocking(move || paths.iter().try_for_each(|it| free(&root, &it.0)));
        checked.await.map_err(Thrown::new)?.map_err(refused)?;
        Ok(this)
    }

    /// Writes the new files with git's filters, which can fail.
    async fn write(&self, tree: &Tree, source: &str) -> Result<(), Thrown> {
        if self.sources.is_empty() {
            return Ok(());
        }
        let named = |why: Thrown| {
            let full: Vec<String> =
                self.sources.iter().map(|(path, _)| tree.root.join(path).display().to_string()).collect();
            refused(format!("cannot restore {}, and left it as it is: {}", full.join(", "), why.message))
        };
        let index = self.folder.path().join("index");
        let on = || {
            // Also files outside of a sparse checkout.
            let git = Git::write(&tree.root).args(["-c", "core.sparseCheckout=false"]);
            git.args(["-c", "index.sparse=false"]).env("GIT_INDEX_FILE", &index)
        };
        on().args(["read-tree", source]).run().await.map_err(|why| named(why.into()))?;
        // Its paths begin with the prefix, which names a folder.
        let mut prefix = std::ffi::OsString::from("--prefix=");
        prefix.push(self.folder.path().join("new"));
        prefix.push("/");
        let written = on().args(["checkout-index", "--quiet", "-z", "--stdin"]).arg(prefix);
        let written = written.paths(self.sources.iter().map(|(path, _)| path.as_path())).run().await;
        written.map_err(|why| named(why.into()))?;
        let new = self.folder.path().join("new");
        match self.sources.iter().find(|(path, _)| std::fs::symlink_metadata(new.join(path)).is_err()) {
            Some((path, _)) => Err(named(Thrown::new(format_args!("git did not write {}", path.display())))),
            None => Ok(()),
        }
    }

    /// Changes the files, then runs `last`. If anything fails, the files are as before.
    pub(crate) async fn apply(self, last: impl Future<Output = Result<(), Thrown>>) -> Result<(), Thrown> {
        let swapping = tokio::task::spawn_blocking(move || {
            let mut moved = Vec::new();
            for at in 0..self.paths.len() {
                if let Err(why) = self.swap(at, &mut moved) {
                    let left = self.undo(&moved);
                    let full = self.root.join(&self.paths[at].0);
                    let why = format!("cannot change {}: {why}{left}", full.display());
                    self.finish(left.is_empty());
                    return Err(Thrown::new(why));
                }
            }
            Ok((self, moved))
        });
        let (this, moved) = swapping.await.map_err(Thrown::new)??;
        let outcome = last.await;
        let ended = tokio::task::spawn_blocking(move || {
            let left = if outcome.is_err() { this.undo(&moved) } else { String::new() };
            this.finish(left.is_empty());
            outcome.map_err(|why| match left.is_empty() {
                true => why,
                false => Thrown::new(format_args!("{}{left}", why.message)),
            })
        });
        ended.await.map_err(Thrown::new)?
    }

    /// Puts one file in place. `moved` gets what was kept of it.
    fn swap(&self, at: usize, moved: &mut Vec<(usize, bool)>) -> std::io::Result<()> {
        let (path, restored) = &self.paths[at];
        let full = self.root.join(path);
        free(&self.root, path).map_err(std::io::Error::other)?;
        let kept = match std::fs::symlink_metadata(&full) {
            // Empty: `free` accepts no other folder.
            Ok(found) if found.is_dir() => {
                std::fs::remove_dir(&full)?;
                false
            }
            Ok(_) => {
                std::fs::rename(&full, self.old(at))?;
                true
            }
            Err(why) if why.kind() == ErrorKind::NotFound => false,
            Err(why) => return Err(why),
        };
        moved.push((at, kept));
        if *restored {
            if let Some(above) = full.parent() {
                std::fs::create_dir_all(above)?;
            }
            std::fs::rename(self.folder.path().join("new").join(path), &full)?;
        }
        Ok(())
    }

    /// Puts back what was replaced. Returns a sentence about what could not be put back.
    fn undo(&self, moved: &[(usize, bool)]) -> String {
        let mut left = String::new();
        for &(at, kept) in moved.iter().rev() {
            let (path, restored) = &self.paths[at];
            let full = self.root.join(path);
            let undone = match (kept, restored) {
                (true, _) => std::fs::rename(self.old(at), &full),
                (false, true) => std::fs::remove_file(&full),
                (false, false) => Ok(()),
            };
            if let Err(why) = undone
                && kept
            {
                left.push_str(&format!("; {} is in {} ({why})", full.display(), self.old(at).display()));
            }
        }
        left
    }

    /// Removes the folder, unless it has what could not be put back.
    fn finish(self, remove: bool) {
        if !remove {
            drop(self.folder.keep());
        }
    }

    fn old(&self, at: usize) -> PathBuf {
        self.folder.path().join("old").join(at.to_string())
    }
}

/// A folder on the file system of the tree, so that files can be renamed.
fn folder(root: &Path, git_dir: &Path) -> std::io::Result<tempfile::TempDir> {
    let same = std::fs::metadata(root)?.dev() == std::fs::metadata(git_dir)?.dev();
    let place = if same { git_dir } else { root };
    let folder = tempfile::Builder::new().prefix(".ostler-restore-").tempdir_in(place)?;
    for name in ["new", "old"] {
        std::fs::create_dir(folder.path().join(name))?;
    }
    Ok(folder)
}

/// Whether a file can be put at a path: no folder with files, and no link or file above it.
fn free(root: &Path, path: &Path) -> Result<(), String> {
    let full = root.join(path);
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        let above = root.join(above);
        if std::fs::symlink_metadata(&above).is_ok_and(|found| !found.is_dir()) {
            return Err(format!(
                "{} is in a folder that is now a file or a link; discard {} first",
                full.display(),
                above.display()
            ));
        }
    }
    let is_folder = std::fs::symlink_metadata(&full).is_ok_and(|found| found.is_dir());
    match is_folder && std::fs::read_dir(&full).map_or(true, |mut entries| entries.next().is_some()) {
        true => Err(format!("{} is a folder now; move or delete what is in it first", full.display())),
        false => Ok(()),
    }
}

/// Why a submodule is left alone.
pub(crate) fn submodule(path: &Path) -> String {
    format!("{} is a submodule; restore it with git in its own repository", path.display())
}

/// The files at some paths of a tree object.
async fn files_of(tree: &Tree, source: &str, paths: &[PathBuf]) -> Result<Vec<(PathBuf, Object)>, Thrown> {
    use std::os::unix::ffi::OsStrExt as _;
    let listed = Git::read(&tree.root).args(["ls-tree", "--full-tree", "-z", source, "--"]).args(paths);
    let out = listed.run().await?;
    let read = |entry: &[u8]| {
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        let words = std::str::from_utf8(&entry[..tab]).ok()?;
        let mut words = words.split(' ');
        let (mode, kind, id) = (words.next()?, words.next()?, words.next()?);
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&entry[tab + 1..]));
        let object = Object::new(id, u32::from_str_radix(mode, 8).ok()?)?;
        (kind != "tree").then_some((path, object))
    };
    Ok(out.split(|byte| *byte == 0).filter_map(read).collect())
}

/// Checks that the repository has the contents.
async fn are_stored(tree: &Tree, files: &[(PathBuf, Object)]) -> Result<(), Thrown> {
    if files.is_empty() {
        return Ok(());
    }
    let ids: String = files.iter().map(|(_, object)| format!("{}\n", object.id)).collect();
    let known = Git::read(&tree.root).args(["cat-file", "--batch-check"]).input(ids.into_bytes());
    let known = known.text().await?;
    let missing = files.iter().zip(known.lines()).find(|(_, line)| !line.contains(" blob "));
    match missing {
        Some(((path, _), _)) => Err(refused(format!(
            "{} cannot be restored: its earlier content is not stored, as it was too large or is missing in the repository; the file is as it was",
            tree.root.join(path).display()
        ))),
        None => Ok(()),
    }
}
