//! Working trees of sessions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ostler_contract::points::{Repository as Named, Worktree, WorktreeRequest, Worktrees, worktrees_beside};
use ostler_contract::{Call, PluginHost, RpcError, Thrown};
use rustix::fs::Access;

use crate::facts::BASE;
use crate::guard::Guard;
use crate::program::{Failure, Git};
use crate::repository::Repository;
use crate::submodules;
use crate::tree::Trees;

/// The most branches that are listed.
const BRANCHES: usize = 200;
/// The most files that are copied, and folders that are linked, into a tree.
const COPIES: usize = 5_000;
/// How deep submodules are followed.
const SUPERPROJECTS: usize = 32;
/// Why git locks a tree while it creates it.
const INITIALIZING: &str = "initializing";
/// The most bytes that are copied into a tree.
const COPIED: u64 = 512 << 20;

/// What a request would create.
struct Planned {
    path: PathBuf,
    /// What it begins from.
    base: String,
    /// The branch that is created for it.
    new_branch: Option<String>,
}

/// Makes and removes trees.
pub(crate) struct Making {
    pub host: PluginHost,
    pub trees: Arc<Trees>,
    /// The folder of all trees; `None` for one beside each repository.
    pub root: Option<PathBuf>,
}

impl Making {
    pub(crate) fn into_point(self: Arc<Self>) -> Worktrees {
        let (plans, creates, removes, dirties) = (self.clone(), self.clone(), self.clone(), self);
        Worktrees {
            repository: Call::new(|(directory,): (String,)| async move {
                let found = Repository::of(Path::new(&directory)).await?;
                let Some(found) = found else { return Ok(None) };
                let root = found.main_tree().await?.to_string_lossy().into_owned();
                Ok(Some(Named { root }))
            }),
            branches: Call::new(|(repository, typed): (String, String)| async move {
                Ok(branches(Path::new(&repository), &typed).await?)
            }),
            plan: Some(Call::new(move |(request,): (WorktreeRequest,)| {
                let making = plans.clone();
                async move {
                    let Planned { path, new_branch, .. } = making.plan(&request).await?;
                    let path = path.to_string_lossy().into_owned();
                    Ok(Worktree { path, branch: new_branch, repository: None })
                }
            })),
            create: Call::new(move |(request,): (WorktreeRequest,)| {
                let making = creates.clone();
                async move { making.create(request).await }
            }),
            dirty: Call::new(move |(tree,): (String,)| {
                let making = dirties.clone();
                async move { making.dirty(Path::new(&tree)).await }
            }),
            remove: Call::new(move |(tree,): (String,)| {
                let making = removes.clone();
                async move { making.remove(Path::new(&tree)).await }
            }),
            git_dir: Some(Call::new(|(tree,): (String,)| async move {
                let found = Repository::of(Path::new(&tree)).await?;
                Ok(found.map(|found| found.git_dir.to_string_lossy().into_owned()))
            })),
            remove_branch: Some(Call::new(|(repository, branch): (String, String)| async move {
                remove_branch(Path::new(&repository), &branch).await
            })),
        }
    }

    /// Returns what a request would create. Neither the folder nor the new branch exists.
    async fn plan(&self, request: &WorktreeRequest) -> Result<Planned, Thrown> {
        let main = Path::new(&request.repository);
        let WorktreeRequest { name, branch, branch_prefix, create_new_branch, .. } = request;
        if commit_of(main, "HEAD").await?.is_none() {
            return Err(refused(format!("{} has no commits; create the first one", main.display())));
        }
        let base = match branch {
            Some(branch) => branch.clone(),
            None => current_branch(main).await?,
        };
        let path = self.place(main, name).await?;
        check_writable(main, &path).await?;
        let base = resolve(main, &base).await?;
        if path.symlink_metadata().is_ok() {
            return Err(refused(format!("{} exists already; move it away, or delete it", path.display())));
        }
        let new_branch =
            create_new_branch.then(|| format!("{}{name}", branch_prefix.as_deref().unwrap_or_default()));
        if let Some(branch) = &new_branch
            && commit_of(main, &format!("refs/heads/{branch}")).await?.is_some()
        {
            return Err(refused(format!(
                "{} has a branch {branch} already; rename or delete it",
                main.display()
            )));
        }
        Ok(Planned { path, base, new_branch })
    }

    async fn create(&self, request: WorktreeRequest) -> Result<Worktree, Thrown> {
        let main = Path::new(&request.repository);
        let Planned { path, base, new_branch } = self.plan(&request).await?;
        if let Some(folder) = path.parent() {
            tokio::fs::create_dir_all(folder).await.map_err(|why| not_writable(folder, &why))?;
        }
        let add = Git::write(main).args(["worktree", "add", "--quiet"]);
        // A tag can have the same name.
        let full = format!("refs/heads/{base}");
        let start = if commit_of(main, &full).await?.is_some() { &full } else { &base };
        let add = match &new_branch {
            Some(branch) => add
                .arg(if request.track { "--track" } else { "--no-track" })
                .args(["-b", branch])
                .arg(&path)
                .arg(start),
            None => add.arg(&path).arg(&base),
        };
        let made = match add.run().await {
            Ok(_) => verify(main, &path).await,
            Err(why) => Err(why.into()),
        };
        if let Err(why) = made {
            // What was begun is of no use.
            clean_up(main, &path, new_branch.as_deref()).await;
            return Err(why);
        }
        let branch = match new_branch {
            Some(branch) => {
                let short = base.strip_prefix("origin/").unwrap_or(&base);
                let set = ["config", &format!("branch.{branch}.{BASE}"), short];
                let _ = Git::write(main).args(set).run().await;
                Some(branch)
            }
            None => Repository::branch(&path).await?,
        };
        let brought = bring(main, &path, &request.symlink_folders, &request.include_files).await;
        if let Err(why) = exclude_links(&path).await {
            let _ = self.host.log(format!("{}: {}", path.display(), Thrown::from(why).message));
        }
        for line in brought.unwrap_or_else(|why| vec![Thrown::from(why).message]) {
            let _ = self.host.log(format!("{}: {line}", path.display()));
        }
        Ok(Worktree { path: path.to_string_lossy().into_owned(), branch, repository: None })
    }

    /// Where a tree of this name goes: beside the repository, or the outermost superproject of a submodule, or in the
    /// configured folder.
    async fn place(&self, main: &Path, name: &str) -> Result<PathBuf, Thrown> {
        let plain = matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
        if !plain || name.starts_with('-') {
            return Err(refused(format!("{name} is not a name of a working tree")));
        }
        let repository = main.file_name().unwrap_or_else(|| OsStr::new("root"));
        let superproject = superproject(main).await?;
        let path = match &self.root {
            Some(root) => root.join(repository).join(name),
            None => worktrees_beside(superproject.as_deref().unwrap_or(main))
                .ok_or_else(|| refused("/ has no folder beside it".to_owned()))?
                .join(name),
        };
        let there = followed(&path);
        let within = |folder: &Path| there.starts_with(followed(folder));
        let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        let why = match (Repository::of(main).await?, superproject) {
            _ if there.components().any(is_git) => "git's own folder".to_owned(),
            (Some(found), _) if within(&found.common_dir) => "git's own folder".to_owned(),
            (_, Some(superproject)) if within(&superproject) => {
                format!("the superproject {}", superproject.display())
            }
            _ => return Ok(path),
        };
        Err(refused(format!(
            "{} is in {why}; set worktreesRoot of @ostler/git to a folder outside",
            path.display()
        )))
    }

    /// Whether a tree holds what would be lost with it. One that is not there holds nothing.
    async fn dirty(&self, path: &Path) -> Result<bool, Thrown> {
        if !tokio::fs::try_exists(path).await.unwrap_or(true) {
            return Ok(false);
        }
        if let Some(repository) = Repository::of(path).await?
            && is_half_made(&repository.git_dir)
        {
            return Ok(has_other_files(&repository).await?);
        }
        let changed = submodules::has_changes(path).await?;
        // Commits on no branch are lost too.
        let detached = Git::read(path).args(["symbolic-ref", "-q", "HEAD"]).maybe().await?.is_none();
        Ok(changed || detached && !reachable(path).await?)
    }

    async fn remove(&self, path: &Path) -> Result<(), Thrown> {
        if !tokio::fs::try_exists(path).await.unwrap_or(true) {
            self.trees.forget(path);
            return Ok(());
        }
        let repository = Repository::of(path).await?;
        let repository =
            repository.ok_or_else(|| refused(format!("{} is not a working tree", path.display())))?;
        if repository.git_dir == repository.common_dir {
            return Err(refused(format!("{} is the main working tree and is not removed", path.display())));
        }
        let main = repository.main_tree().await?;
        let links = linked(path).await;
        for link in &links {
            let _ = tokio::fs::remove_file(path.join(link)).await;
        }
        let remove = async || {
            let git = Git::housekeeping(&main).await?;
            Ok::<_, Failure>(git.args(["worktree", "remove", "--force"]).arg(path))
        };
        if is_half_made(&repository.git_dir) {
            remove().await?.arg("--force").run().await?;
        } else {
            // Without --force, git would look into the files with the filters that the repository names.
            if let Some(work) = submodules::work_in(path, &repository.git_dir).await? {
                return Err(refused(work));
            }
            if submodules::has_changes(path).await? {
                return Err(refused(format!("{} contains modified or untracked files", path.display())));
            }
            remove().await?.run().await?;
        }
        self.trees.forget(path);
        Ok(())
    }
}

fn not_writable(folder: &Path, why: &std::io::Error) -> Thrown {
    refused(format!(
        "cannot create a working tree in {}: {why}; set worktreesRoot of @ostler/git to a folder that the host can write",
        folder.display()
    ))
}

/// Checks that the host can write where a tree will be, and in git's folder, which records it. The folder above a repository
/// can belong to another user, or be read-only in the sandbox of a service.
async fn check_writable(main: &Path, path: &Path) -> Result<(), Thrown> {
    let common = Repository::of(main).await?.map(|repository| repository.common_dir);
    let folder = path.parent().unwrap_or(path).to_owned();
    let check = move || {
        let writable = |path: &Path| rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK);
        let there = folder.ancestors().find(|above| above.symlink_metadata().is_ok()).unwrap_or(&folder);
        let found = match std::fs::metadata(there) {
            Ok(found) if !found.is_dir() => Err(std::io::ErrorKind::NotADirectory.into()),
            found => found.and_then(|_| Ok(writable(there)?)),
        };
        found.map_err(|why| not_writable(&folder, &why))?;
        common.map_or(Ok(()), |common| {
            writable(&common).map_err(|why| {
                refused(format!(
                    "the host cannot write in {}, where git records working trees: {}; change its owner or rights, or the restrictions of the service",
                    common.display(),
                    std::io::Error::from(why)
                ))
            })
        })
    };
    tokio::task::spawn_blocking(check).await.map_err(Thrown::new)?
}

/// Follows the links in the existing part of a path.
fn followed(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|part| Some((part, std::fs::canonicalize(part).ok()?)));
    let rest = there.and_then(|(part, real)| Some(real.join(path.strip_prefix(part).ok()?)));
    rest.unwrap_or_else(|| path.to_owned())
}

/// The outermost superproject of a submodule; `None` for other repositories.
async fn superproject(main: &Path) -> Result<Option<PathBuf>, Failure> {
    let mut found: Option<PathBuf> = None;
    for _ in 0..SUPERPROJECTS {
        let of = found.as_deref().unwrap_or(main);
        let above = Git::read(of).args(["rev-parse", "--show-superproject-working-tree"]).maybe().await?;
        match above.filter(|above| !above.is_empty()) {
            Some(above) => found = Some(above.into()),
            None => break,
        }
    }
    Ok(found)
}

/// Checks that git uses a new tree as created: settings of the repository can move its top elsewhere, for example into
/// git's own folder, or make git refuse it.
async fn verify(main: &Path, path: &Path) -> Result<(), Thrown> {
    let because = "check core.worktree, core.bare and extensions.worktreeConfig of the repository";
    let top = Git::read(path).args(["rev-parse", "--show-toplevel"]).text().await.map_err(|why| {
        let why = Thrown::from(why).message;
        refused(format!("git refuses the new working tree {}: {why}; {because}", path.display()))
    })?;
    if followed(Path::new(&top)) != followed(path) {
        let path = path.display();
        return Err(refused(format!("git uses {top} as the top of the new working tree {path}; {because}")));
    }
    let (own, new) = (Repository::of(main).await?, Repository::of(path).await?);
    match (own, new) {
        (Some(own), Some(new)) if own.common_dir == new.common_dir => Ok(()),
        _ => {
            Err(refused(format!("git considers {} a tree of another repository; {because}", path.display())))
        }
    }
}

/// Removes a tree that could not be created, the folder that was created for it, and its new branch.
async fn clean_up(main: &Path, path: &Path, new_branch: Option<&str>) {
    let remove = ["worktree", "remove", "--force", "--force"];
    let git = async |arguments: &[&OsStr]| Git::housekeeping(main).await?.args(arguments).run().await;
    if git(&[&remove.map(OsStr::new)[..], &[path.as_os_str()]].concat()).await.is_err() {
        // Nothing was there before.
        let _ = tokio::fs::remove_dir_all(path).await;
        let _ = git(&["worktree", "prune"].map(OsStr::new)).await;
    }
    if let Some(branch) = new_branch {
        let _ = remove_branch(main, branch).await;
    }
    if let Some(folder) = path.parent() {
        // Only an empty one.
        let _ = tokio::fs::remove_dir(folder).await;
    }
}

/// Whether git was ended while it created a tree: it locks the tree until then.
fn is_half_made(git_dir: &Path) -> bool {
    std::fs::read_to_string(git_dir.join("locked")).is_ok_and(|reason| reason.trim() == INITIALIZING)
}

/// Whether a half-made tree, which may have no index, has other files than those of its commit.
async fn has_other_files(repository: &Repository) -> Result<bool, Failure> {
    let index = repository.git_dir.join("ostler-index");
    let guard = Guard::of(repository).await?;
    let at = || guard.git().env("GIT_INDEX_FILE", &index);
    let listed = async {
        at().args(["read-tree", "HEAD"]).run().await?;
        let status = ["status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty"];
        at().args(status).run().await
    };
    let listed = listed.await;
    let _ = tokio::fs::remove_file(&index).await;
    let listed = listed?;
    // What git has not written yet is missing.
    Ok(listed.split(|byte| *byte == 0).any(|row| !row.is_empty() && !row.starts_with(b" D ")))
}

/// The commit that a name stands for.
async fn commit_of(repository: &Path, name: &str) -> Result<Option<String>, Failure> {
    let commit = format!("{name}^{{commit}}");
    Git::read(repository).args(["rev-parse", "--verify", "--quiet", &commit]).maybe().await
}

fn refused(why: String) -> Thrown {
    RpcError::invalid_params(why).into()
}

/// Whether a branch or tag has the commit that is checked out.
async fn reachable(path: &Path) -> Result<bool, Failure> {
    let holds =
        ["for-each-ref", "--count=1", "--contains", "HEAD", "refs/heads", "refs/remotes", "refs/tags"];
    Git::read(path).args(holds).text().await.map(|refs| !refs.is_empty())
}

/// Deletes a branch if other branches or tags have its commits; returns whether it did.
async fn remove_branch(repository: &Path, branch: &str) -> Result<bool, Thrown> {
    let name = format!("refs/heads/{branch}");
    let commit = Git::read(repository).args(["rev-parse", "--verify", "--quiet", &name]).maybe().await?;
    let Some(commit) = commit else { return Ok(true) };
    let holds = ["for-each-ref", "--format=%(refname)", "--contains", &commit];
    let holds = Git::read(repository).args(holds).args(["refs/heads", "refs/remotes", "refs/tags"]);
    if !holds.text().await?.lines().any(|other| other != name) {
        return Ok(false);
    }
    // The tree of an interrupted creation may be registered and not exist.
    let trees = Git::read(repository).args(["worktree", "list", "--porcelain", "-z"]).text().await?;
    for tree in trees.split("\0\0") {
        let value = |key: &str| tree.split('\0').find_map(|line| line.strip_prefix(key));
        if let (Some(path), Some(branch), Some(INITIALIZING)) =
            (value("worktree "), value("branch "), value("locked "))
            && branch == name
            && !Path::new(path).exists()
        {
            let remove = ["worktree", "remove", "--force", "--force", path];
            Git::housekeeping(repository).await?.args(remove).run().await?;
        }
    }
    // Git itself refuses a branch that is checked out somewhere.
    let remove = ["branch", "--quiet", "-D", "--", branch];
    Git::housekeeping(repository).await?.args(remove).run().await?;
    Ok(true)
}

/// The branch that is checked out in the main tree.
async fn current_branch(main: &Path) -> Result<String, Failure> {
    let name = Repository::branch(main).await?;
    Ok(name.unwrap_or_else(|| "HEAD".to_owned()))
}

/// A revision as `git worktree add` takes it: a local branch, one of a remote, or any commit.
async fn resolve(main: &Path, named: &str) -> Result<String, Thrown> {
    let unknown = || refused(format!("{named} is not a branch or commit of {}", main.display()));
    if named.starts_with('-') || named.is_empty() {
        return Err(unknown());
    }
    for candidate in [named.to_owned(), format!("origin/{named}")] {
        let commit = format!("{candidate}^{{commit}}");
        let found = Git::read(main)
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])
            .maybe()
            .await;
        // A name that git does not accept as one is unknown too.
        if matches!(found, Ok(Some(_))) {
            return Ok(candidate);
        }
    }
    Err(unknown())
}

/// The branches that contain the typed text, those with the newest commits first; local ones before those of remotes.
pub(crate) async fn branches(repository: &Path, typed: &str) -> Result<Vec<String>, Failure> {
    let listed = Git::read(repository)
        .args(["for-each-ref", "--sort=-committerdate", "--format=%(refname)", "refs/heads", "refs/remotes"])
        .text()
        .await?;
    let typed = typed.to_lowercase();
    let local: Vec<&str> = listed.lines().filter_map(|name| name.strip_prefix("refs/heads/")).collect();
    let remote = listed.lines().filter_map(|name| name.strip_prefix("refs/remotes/"));
    // A remote's branch with a local one of the same name would be listed twice.
    let remote = remote.filter(|name| match name.split_once('/') {
        Some((_, short)) => short != "HEAD" && !local.contains(&short),
        None => false,
    });
    let all = local.iter().copied().chain(remote);
    Ok(all.filter(|name| name.to_lowercase().contains(&typed)).take(BRANCHES).map(str::to_owned).collect())
}

/// Ignored files and folders of a tree that match patterns of gitignore.
async fn ignored(main: &Path, patterns: &[String], folders: bool) -> Result<Vec<PathBuf>, Failure> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let paths = |out: &[u8]| -> Vec<PathBuf> {
        let paths = out.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        paths.map(|path| PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"/").unwrap_or(path)))).collect()
    };
    let matching = patterns.iter().map(|pattern| format!("--exclude={pattern}"));
    let mut list = Git::read(main).args(["ls-files", "--others", "--ignored", "-z"]).args(matching);
    if folders {
        list = list.arg("--directory");
    }
    let found = paths(&list.run().await?);
    if found.is_empty() {
        return Ok(found);
    }
    // Of those, what git itself ignores.
    let asked = Git::read(main)
        .args(["check-ignore", "-z", "--stdin"])
        .env("GIT_LITERAL_PATHSPECS", "0")
        .paths(found.iter().map(PathBuf::as_path));
    let kept = asked.maybe().await?.unwrap_or_default();
    Ok(paths(kept.as_bytes()))
}

/// Brings ignored files of the main tree into a new one: folders as links, then files as copies. Returns a line for each
/// that could not be brought.
async fn bring(
    main: &Path,
    tree: &Path,
    links: &[String],
    copies: &[String],
) -> Result<Vec<String>, Failure> {
    if links.is_empty() && copies.is_empty() {
        return Ok(Vec::new());
    }
    let folders = ignored(main, links, true).await?;
    let files = ignored(main, copies, false).await?;
    let (main, tree) = (main.to_owned(), tree.to_owned());
    let work = move || {
        let mut lines = Vec::new();
        let mut linked: Vec<PathBuf> = Vec::new();
        for folder in folders.into_iter().take(COPIES) {
            let (from, to) = (main.join(&folder), tree.join(&folder));
            if !from.is_dir() || to.symlink_metadata().is_ok() {
                continue;
            }
            let made = to.parent().map_or(Ok(()), std::fs::create_dir_all);
            match made.and_then(|()| std::os::unix::fs::symlink(&from, &to)) {
                Ok(()) => linked.push(folder),
                Err(why) => lines.push(format!("cannot link {}: {why}", folder.display())),
            }
        }
        let mut copied = 0;
        for (count, file) in files.into_iter().enumerate() {
            let (from, to) = (main.join(&file), tree.join(&file));
            let Ok(found) = from.symlink_metadata() else { continue };
            // Below a link it is there already.
            if !found.is_file()
                || to.symlink_metadata().is_ok()
                || linked.iter().any(|link| file.starts_with(link))
            {
                continue;
            }
            copied += found.len();
            if count >= COPIES || copied > COPIED {
                lines.push(format!("copied only the first {COPIES} files and {} MiB", COPIED >> 20));
                break;
            }
            let made = to.parent().map_or(Ok(()), std::fs::create_dir_all);
            if let Err(why) = made.and_then(|()| std::fs::copy(&from, &to).map(drop)) {
                lines.push(format!("cannot copy {}: {why}", file.display()));
            }
        }
        lines
    };
    Ok(tokio::task::spawn_blocking(work).await.unwrap_or_default())
}

/// Excludes the links of a tree that are not ignored: a pattern such as `node_modules/` is of folders only, and a link to
/// one would be a change.
async fn exclude_links(tree: &Path) -> Result<(), Failure> {
    let list = ["ls-files", "--others", "--exclude-standard", "-z"];
    let out = Git::read(tree).args(list).run().await?;
    let links: Vec<String> = out
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty() && tree.join(OsStr::from_bytes(path)).is_symlink())
        .filter_map(|path| std::str::from_utf8(path).ok().map(|path| format!("/{path}")))
        .collect();
    let Some(repository) = Repository::of(tree).await?.filter(|_| !links.is_empty()) else { return Ok(()) };
    let file = repository.common_dir.join("info/exclude");
    let mut text = tokio::fs::read_to_string(&file).await.unwrap_or_default();
    for link in links.iter().filter(|link| !link.contains('\n')) {
        let escaped: String = link
            .chars()
            .flat_map(|c| ['*', '?', '[', '\\', ' '].contains(&c).then_some('\\').into_iter().chain([c]))
            .collect();
        if !text.lines().any(|line| *line == escaped) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&escaped);
            text.push('\n');
        }
    }
    let written = async {
        tokio::fs::create_dir_all(repository.common_dir.join("info")).await?;
        tokio::fs::write(&file, text).await
    };
    written.await.map_err(|why| Failure::Other(format!("cannot write {}: {why}", file.display())))
}

/// The ignored links of a tree that lead out of it: git would refuse to remove a folder's link.
async fn linked(tree: &Path) -> Vec<PathBuf> {
    let list = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
    let Ok(out) = Git::read(tree).args(list).run().await else { return Vec::new() };
    let paths = out.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths
        .map(|path| PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"/").unwrap_or(path))))
        .filter(|path| tree.join(path).is_symlink())
        .collect()
}
