//! Staging: a changed file that is named is that entry alone, also where the index or the tree has a folder of its name. A
//! folder that is named is everything below it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ostler_contract::Thrown;

use crate::operations::{Operation, files, refused};
use crate::program::{Failure, Git};
use crate::raw_diff::{self, RAW, RawEntry};
use crate::status::Row;

/// What some paths name.
struct Named<'a> {
    /// The changed files among them.
    entries: Vec<&'a Row>,
    folders: Vec<PathBuf>,
    /// The changed files below the folders.
    below: Vec<&'a Row>,
}

impl<'a> Named<'a> {
    fn of(rows: &'a [Row], paths: &[PathBuf]) -> Self {
        let (mut entries, mut folders) = (Vec::new(), Vec::new());
        for path in paths {
            let mut found: Vec<&Row> = rows.iter().filter(|row| row.path == *path).collect();
            if found.is_empty() {
                let from = |row: &&Row| !row.is_copy() && row.origin.as_ref() == Some(path);
                found.extend(rows.iter().filter(from));
            }
            match found.is_empty() {
                true => folders.push(path.clone()),
                false => entries.extend(found),
            }
        }
        let below = |row: &&Row| folders.iter().any(|folder| row.concerns(folder));
        let below = rows.iter().filter(below).collect();
        Self { entries, folders, below }
    }

    fn count(&self, counts: impl Fn(&Row) -> bool) -> usize {
        self.entries.iter().chain(&self.below).filter(|row| counts(row)).count()
    }
}

impl Operation<'_> {
    pub(crate) async fn stage(&self, paths: &[PathBuf]) -> Result<String, Thrown> {
        let rows = self.changed(paths).await?;
        let named = Named::of(&rows, paths);
        // Git refuses paths that it does not find: what is absent from the tree is removed from the index.
        let looked = named.entries.iter().map(|row| (self.tree.root.clone(), (*row).clone()));
        let looked: Vec<(PathBuf, Row)> = looked.collect();
        let looked = tokio::task::spawn_blocking(move || {
            looked.into_iter().partition::<Vec<_>, _>(|(root, row)| is_in_tree(root, row))
        });
        let (present, absent) = looked.await.map_err(Thrown::new)?;
        let mut removed: Vec<PathBuf> = absent.into_iter().map(|(_, row)| row.path).collect();
        let renamed = named.entries.iter().filter(|row| row.unstaged == 'R');
        removed.extend(renamed.filter_map(|row| row.origin.clone()));
        if !removed.is_empty() {
            let remove = self.write().args(["update-index", "--force-remove", "-z", "--stdin"]);
            remove.paths(removed.iter().map(PathBuf::as_path)).run().await?;
        }
        let mut added: Vec<PathBuf> = present.into_iter().map(|(_, row)| row.path).collect();
        // Git rejects a folder without known or changed files.
        let changed =
            named.folders.iter().filter(|folder| named.below.iter().any(|row| row.concerns(folder)));
        added.extend(Self::spelled(&changed.cloned().collect::<Vec<_>>()));
        if !added.is_empty() {
            self.write().args(["add", "--all", "--"]).args(&added).run().await?;
        }
        Ok(format!("Staged {}", files(named.count(|_| true))))
    }

    pub(crate) async fn unstage(&self, paths: &[PathBuf]) -> Result<String, Thrown> {
        let rows = self.changed(paths).await?;
        let named = Named::of(&rows, paths);
        if let Some(row) = named.entries.iter().find(|row| row.conflict) {
            let full = self.tree.root.join(&row.path);
            return Err(refused(format!("{} has a conflict; resolve and stage it", full.display())));
        }
        // Both ends of a rename are one change.
        let ends = |row: &&Row| {
            let origin = row.origin.clone().filter(|_| row.staged == 'R');
            [Some(row.path.clone()), origin].into_iter().flatten()
        };
        let mut wanted: HashSet<PathBuf> = named.entries.iter().flat_map(ends).collect();
        wanted.extend(named.below.iter().filter(|row| row.staged == 'R').flat_map(ends));
        let is_wanted = |path: &Path| {
            wanted.contains(path) || named.folders.iter().any(|folder| path.starts_with(folder))
        };
        let staged = self.staged().await?;
        // Removals first: the index has no file where another file needs a folder.
        let (old, new): (Vec<RawEntry>, Vec<RawEntry>) =
            staged.into_iter().filter(|entry| is_wanted(&entry.path)).partition(|entry| entry.old.exists());
        let mut entries = Vec::new();
        for RawEntry { old, path, .. } in new.iter().chain(&old) {
            raw_diff::add_index_line(&mut entries, old, path);
        }
        if !entries.is_empty() {
            let update = self.write().args(["update-index", "-z", "--index-info"]);
            update.input(entries).run().await?;
            crate::commits::refresh(self.tree).await;
        }
        Ok(format!("Unstaged {}", files(named.count(Row::is_staged))))
    }

    /// The entries of the index that differ from the last commit, as this has them. Conflicts are left out.
    async fn staged(&self) -> Result<Vec<RawEntry>, Failure> {
        let commit = match self.tree.repository.head().await? {
            Some(commit) => commit,
            None => raw_diff::empty_tree(&self.tree.root).await?,
        };
        let compared = Git::read(&self.tree.root).args(["diff-index", "--cached", "--no-renames"]).args(RAW);
        let out = compared.args([&commit, "--"]).run().await?;
        Ok(raw_diff::entries(&out).filter(|entry| entry.kind != b'U').collect())
    }
}

/// Whether the file of a row is in the tree: no folder that has taken its place, and not below a link.
fn is_in_tree(root: &Path, row: &Row) -> bool {
    let is_folder =
        |path: &Path| std::fs::symlink_metadata(root.join(path)).is_ok_and(|found| found.is_dir());
    let mut above = row.path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    if !above.all(is_folder) {
        return false;
    }
    let full = root.join(&row.path);
    match std::fs::symlink_metadata(&full) {
        Ok(found) if found.is_dir() => row.submodule || full.join(".git").exists(),
        found => found.is_ok(),
    }
}
