//! Which repository a directory is in.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::program::{Failure, Git};
use ostler_processes::shared_work::SharedByKey;

/// The searches for the repositories of directories.
static SEARCHES: LazyLock<SharedByKey<PathBuf, Result<Option<Repository>, Failure>>> =
    LazyLock::new(SharedByKey::default);

/// A repository as one directory sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The top of the working tree; `None` in a bare repository and inside git's own folder.
    pub tree: Option<PathBuf>,
    /// Git's data about this working tree.
    pub git_dir: PathBuf,
    /// Git's data that all working trees share.
    pub common_dir: PathBuf,
}

impl Repository {
    /// Returns the repository of a directory; `None` outside of one.
    pub(crate) async fn of(directory: &Path) -> Result<Option<Self>, Failure> {
        let directory = directory.to_owned();
        SEARCHES.run(directory.clone(), move || async move { Self::find(&directory).await }).await
    }

    async fn find(directory: &Path) -> Result<Option<Self>, Failure> {
        // The last question fails where there is no working tree, after the others are answered.
        let asked = Git::read(directory)
            .args([
                "rev-parse",
                "--path-format=absolute",
                "--is-inside-work-tree",
                "--git-dir",
                "--git-common-dir",
            ])
            .arg("--show-toplevel");
        let (status, out, said) = asked.outcome().await?;
        let text = String::from_utf8_lossy(&out);
        let mut lines = text.lines();
        let (inside, git_dir, common) = (lines.next(), lines.next(), lines.next());
        let (Some(inside), Some(git_dir), Some(common)) = (inside, git_dir, common) else {
            if said.contains("not a git repository") || said.contains("cannot change to") {
                // A folder that looks like git's, and is not read as one, is damaged.
                return match directory.join(".git").exists() {
                    true => Err(Failure::Other(format!(
                        "{}: git does not read this repository: {}",
                        directory.display(),
                        said.strip_prefix("fatal: ").unwrap_or(&said)
                    ))),
                    false => Ok(None),
                };
            }
            let said = said.strip_prefix("fatal: ").unwrap_or(&said);
            return Err(Failure::Other(format!("{}: {said} ({status})", directory.display())));
        };
        let tree = (inside == "true").then(|| lines.next().map(PathBuf::from)).flatten();
        Ok(Some(Self { tree, git_dir: git_dir.into(), common_dir: common.into() }))
    }

    /// The top of the repository's main working tree; git's folder of a bare one.
    pub(crate) async fn main_tree(&self) -> Result<PathBuf, Failure> {
        if let Some(tree) = self.tree_of_submodule().await? {
            return Ok(tree);
        }
        let listed =
            Git::read(&self.common_dir).args(["worktree", "list", "--porcelain", "-z"]).text().await?;
        let first = listed.split('\0').find_map(|line| line.strip_prefix("worktree "));
        Ok(first.map_or_else(|| self.common_dir.clone(), PathBuf::from))
    }

    /// The working tree of a submodule, for which git itself lists its folder in that of the superproject.
    async fn tree_of_submodule(&self) -> Result<Option<PathBuf>, Failure> {
        let named = Git::read(&self.common_dir).args(["config", "--get", "core.worktree"]).maybe().await?;
        let Some(tree) = named.map(|named| self.common_dir.join(named)) else { return Ok(None) };
        let Ok(tree) = tokio::fs::canonicalize(tree).await else { return Ok(None) };
        if !tree.join(".git").exists() {
            return Ok(None);
        }
        // The configuration could name the tree of any repository.
        let found = Self::of(&tree).await?;
        Ok(found.filter(|found| found.common_dir == self.common_dir).map(|_| tree))
    }

    /// The branch that is checked out in a directory; `None` without one. `--short` would call it `heads/<name>` if there is a
    /// tag of that name.
    pub(crate) async fn branch(directory: &Path) -> Result<Option<String>, Failure> {
        let head = Git::read(directory).args(["symbolic-ref", "-q", "HEAD"]).maybe().await?;
        Ok(head.and_then(|head| head.strip_prefix("refs/heads/").map(str::to_owned)))
    }

    /// The commit that is checked out; `None` before the first one.
    pub(crate) async fn head(&self) -> Result<Option<String>, Failure> {
        let directory = self.tree.as_deref().unwrap_or(&self.git_dir);
        Git::read(directory).args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).maybe().await
    }

    /// Checks that the branch, which has no commit, is new. Git reports one whose file is damaged, for example empty after
    /// a crash, as new, and the next commit would have no parent.
    pub(crate) async fn check_new_branch(&self) -> Result<(), Failure> {
        // `git symbolic-ref` does not read a damaged branch either.
        let Ok(head) = tokio::fs::read_to_string(self.git_dir.join("HEAD")).await else { return Ok(()) };
        let Some(branch) = head.strip_prefix("ref:").map(str::trim) else { return Ok(()) };
        let file = self.common_dir.join(branch);
        let Ok(content) = tokio::fs::read(&file).await else { return Ok(()) };
        let content = content.trim_ascii();
        // The first commit can be made in the meantime.
        if content.starts_with(b"ref:") || content.len() >= 40 && content.iter().all(u8::is_ascii_hexdigit) {
            return Ok(());
        }
        Err(Failure::Other(format!(
            "the branch {} is damaged: {} contains no commit; write the last one of {} into it",
            branch.trim_start_matches("refs/heads/"),
            file.display(),
            self.common_dir.join("logs").join(branch).display()
        )))
    }
}
