//! Facts of directories: the branch and the uncommitted changes, in the `_meta.git` of sessions.

use std::path::Path;
use std::sync::Arc;

use ostler_contract::points::Directories;
use ostler_contract::{Call, HostFunction, JsonObject, Thrown, Value, json};

use crate::changes::{TRUNCATED, file_uri};
use crate::program::{Failure, Git};
use crate::refs_watch;
use crate::repository::Repository;
use crate::status::Branch;
use crate::tree::Trees;
use ostler_processes::shared_work::SharedByKey;

/// The key of a branch's configuration that names the branch it was created from.
pub(crate) const BASE: &str = "ostler-base";

pub(crate) fn point(trees: Arc<Trees>) -> Directories {
    let reads = Arc::new(SharedByKey::default());
    Directories {
        meta: Call::new(move |(directory,): (String,)| {
            let (trees, reads) = (trees.clone(), reads.clone());
            async move {
                let read = directory.clone();
                reads.run(directory, move || async move { meta(&trees, Path::new(&read)).await }).await
            }
        }),
        refresh: None,
        watch: Some(Call::new(|(directory, changed): (String, HostFunction<fn()>)| async move {
            refs_watch::watch(Path::new(&directory), changed).await
        })),
    }
}

async fn meta(trees: &Trees, directory: &Path) -> Result<JsonObject, Thrown> {
    let Some(tree) = trees.of(directory).await? else {
        // A bare repository has a branch and nothing that could be changed.
        let Some(repository) = Repository::of(directory).await? else { return Ok(JsonObject::new()) };
        let name = Repository::branch(&repository.git_dir).await?;
        let branch = name.map(|name| Branch { name: Some(name), ..Branch::default() });
        let mut facts = branch.map(|branch| facts(&branch, None)).unwrap_or_default();
        facts.insert("project".to_owned(), project(&repository).await?);
        return Ok(facts);
    };
    let status = tree.status().await?;
    let mut facts = facts(&status.branch, Some(tree.below(&status, directory).len()));
    if let Some(Value::Object(git)) = facts.get_mut("git") {
        if let Some(base) = base_branch(&tree.root, &status.branch).await? {
            git.insert("baseBranchName".to_owned(), base.into());
        }
        git.insert("hasGitHubRemote".to_owned(), on_github(&tree.root).await?.into());
        if status.is_cut {
            git.insert(TRUNCATED.to_owned(), true.into());
        }
    }
    facts.insert("project".to_owned(), project(&tree.repository).await?);
    Ok(facts)
}

/// Returns the repository as the project of its directories: its main working tree, also for directories in other
/// working trees.
async fn project(repository: &Repository) -> Result<Value, Failure> {
    let of_all = repository.common_dir.file_name().is_some_and(|name| name == ".git");
    let main = match (&repository.tree, repository.common_dir.parent()) {
        (Some(tree), _) if repository.git_dir == repository.common_dir => tree.clone(),
        (_, Some(tree)) if of_all => tree.to_owned(),
        _ => repository.main_tree().await?,
    };
    let name = main.file_name().unwrap_or(main.as_os_str()).to_string_lossy().into_owned();
    let name = name.strip_suffix(".git").filter(|name| !name.is_empty()).map_or(name.clone(), str::to_owned);
    Ok(json!({ "uri": file_uri(&main), "displayName": name }))
}

fn facts(branch: &Branch, changes: Option<usize>) -> JsonObject {
    let mut git = JsonObject::new();
    match &branch.name {
        Some(name) => drop(git.insert("branchName".to_owned(), json!(name))),
        None => drop(git.insert("isDetachedHead".to_owned(), json!(true))),
    }
    if let Some(upstream) = &branch.upstream {
        git.insert("upstreamBranchName".to_owned(), json!(upstream));
    }
    if let Some((ahead, behind)) = branch.ahead_behind {
        git.insert("outgoingChanges".to_owned(), json!(ahead));
        git.insert("incomingChanges".to_owned(), json!(behind));
    }
    if let Some(changes) = changes {
        git.insert("uncommittedChanges".to_owned(), json!(changes));
    }
    JsonObject::from_iter([("git".to_owned(), Value::Object(git))])
}

/// Returns whether a remote of the repository is on github.com, for which VS Code offers pull requests.
async fn on_github(root: &Path) -> Result<bool, Failure> {
    let remotes = Git::read(root).args(["remote", "--verbose"]).text().await?;
    Ok(remotes.lines().filter_map(|line| line.split_whitespace().nth(1)).any(is_on_github))
}

fn is_on_github(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A user and a password can precede it.
    let place = rest.split('/').next().unwrap_or_default();
    let place = place.rsplit('@').next().unwrap_or_default();
    let host = place.split(':').next().unwrap_or_default();
    ["github.com", "www.github.com", "ssh.github.com"].iter().any(|known| host.eq_ignore_ascii_case(known))
}

/// Returns the target branch: the one from which the branch was created, or the default one of its remote.
pub(crate) async fn base_branch(root: &Path, branch: &Branch) -> Result<Option<String>, Failure> {
    let Some(name) = &branch.name else { return Ok(None) };
    let recorded =
        Git::read(root).args(["config", "--get", &format!("branch.{name}.{BASE}")]).maybe().await?;
    if recorded.is_some() {
        return Ok(recorded);
    }
    let remote =
        branch.upstream.as_deref().and_then(|upstream| upstream.split_once('/')).map_or("origin", |it| it.0);
    let head = format!("refs/remotes/{remote}/HEAD");
    let default = Git::read(root).args(["symbolic-ref", "-q", &head]).maybe().await?;
    let prefix = format!("refs/remotes/{remote}/");
    let default = default.and_then(|head| head.strip_prefix(&prefix).map(str::to_owned));
    Ok(default.filter(|base| base != name))
}

#[cfg(test)]
mod tests {
    use super::is_on_github;

    #[test]
    fn a_remote_on_github_is_known_by_its_host() {
        for url in [
            "https://github.com/ada/repo.git",
            "https://ada:secret@GitHub.com/ada/repo",
            "git@github.com:ada/repo.git",
            "ssh://git@ssh.github.com:443/ada/repo.git",
            "git://github.com/ada/repo",
        ] {
            assert!(is_on_github(url), "{url}");
        }
        for url in [
            "https://github.com.example.org/ada/repo",
            "https://example.org/github.com/repo",
            "https://github.com@example.org/ada/repo",
            "/srv/github.com/repo",
            "ada@example.org:github.com/repo",
            "",
        ] {
            assert!(!is_on_github(url), "{url}");
        }
    }
}
