//! Pull requests of branches, for all code hosts.

use ostler_contract::points::{PullRequest, PullRequestRequest, PullRequestState};

use crate::api::Asking;
use crate::code_host_branch::CodeHostBranch;
use crate::failure::{Failure, FailureKind};
use crate::site::{Kind, Repo};
use crate::{forgejo, github, gitlab};

#[derive(Debug)]
pub(crate) struct FoundPullRequest {
    pub request: PullRequest,
    /// Its repository.
    pub base: Repo,
    /// Its last commit.
    pub commit: Option<String>,
    /// Its number, if checks are requested by it.
    pub number: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub repo: Repo,
    pub branch: Option<String>,
}

/// Finds the pull request of a branch: an open one, else the newest, in the repositories that it may be in.
pub(crate) async fn find(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
) -> Result<Option<PullRequest>, Failure> {
    let Some(found) = search(asking, place).await? else { return Ok(None) };
    Ok(Some(with_checks(asking, found).await))
}

async fn search(asking: &Asking<'_>, place: &CodeHostBranch) -> Result<Option<FoundPullRequest>, Failure> {
    let mut bases: Vec<Repo> = place.chosen.iter().chain(&place.others).cloned().collect();
    bases.push(place.head.clone());
    let mut failure = None;
    let mut former = None;
    let mut done: Vec<Repo> = Vec::new();
    let mut parent_is_known = false;
    while let Some(base) = next(asking, place, &mut bases, &mut parent_is_known).await {
        if done.iter().any(|done| done.is(&base)) {
            continue;
        }
        match within(asking, place, &base).await {
            Ok(Some(found)) if found.request.state == PullRequestState::Open => return Ok(Some(found)),
            Ok(Some(found)) => drop(former.get_or_insert(found)),
            Ok(None) => {}
            // An unreadable repository does not hide the others.
            Err(why) if matches!(why.kind, FailureKind::Missing | FailureKind::Forbidden) => {
                failure.get_or_insert(why);
            }
            Err(why) => return Err(why),
        }
        done.push(base);
    }
    match (former, failure) {
        (Some(found), _) => Ok(Some(found)),
        (None, Some(why)) if done.len() == 1 => Err(why),
        (None, _) => Ok(None),
    }
}

/// The next repository to look in; after those of the remotes, the one that the branch's repository is a fork of.
async fn next(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    bases: &mut Vec<Repo>,
    parent_is_known: &mut bool,
) -> Option<Repo> {
    if !bases.is_empty() {
        return Some(bases.remove(0));
    }
    if std::mem::replace(parent_is_known, true) {
        return None;
    }
    match asking.site.kind {
        Kind::Github | Kind::Forgejo => github::parent(asking, &place.head).await,
        Kind::Gitlab => gitlab::parent(asking, &place.head).await,
    }
    .ok()
    .flatten()
}

async fn within(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    base: &Repo,
) -> Result<Option<FoundPullRequest>, Failure> {
    match asking.site.kind {
        Kind::Github => github::within(asking, place, base).await,
        Kind::Gitlab => gitlab::within(asking, place, base).await,
        Kind::Forgejo => forgejo::within(asking, place, base).await,
    }
}

/// Adds the checks of an open one; a token that may not read them shows none.
async fn with_checks(asking: &Asking<'_>, found: FoundPullRequest) -> PullRequest {
    let FoundPullRequest { mut request, base, commit, number } = found;
    if request.state != PullRequestState::Open {
        return request;
    }
    let count = match (asking.site.kind, commit, number) {
        (Kind::Github, Some(commit), _) => github::checks(asking, &base, &commit).await,
        (Kind::Forgejo, Some(commit), _) => forgejo::checks(asking, &base, &commit).await,
        (Kind::Gitlab, _, Some(number)) => gitlab::checks(asking, &base, number).await,
        _ => return request,
    };
    request.checks = count.ok().and_then(|count| count.of_request());
    request
}

/// Creates a pull request, or returns the open one of the branch.
pub(crate) async fn create(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    request: &PullRequestRequest,
) -> Result<PullRequest, Failure> {
    if asking.credential.token.is_none() {
        return Err(Failure::no_token(asking.site, &asking.credential));
    }
    let target = target(asking, place, request.base.as_deref()).await?;
    let to = target.branch.as_deref().unwrap_or_default();
    if target.repo.is(&place.head) && to == place.branch {
        return Err(Failure::new(
            FailureKind::Refused,
            format_args!(
                "{to} is the branch that a {} of {} goes to; create another branch with git switch -c <name>",
                asking.site.kind.pull_request(),
                target.repo.full()
            ),
        ));
    }
    let created = match asking.site.kind {
        Kind::Github => github::create(asking, place, &target, request).await,
        Kind::Gitlab => gitlab::create(asking, place, &target, request).await,
        Kind::Forgejo => forgejo::create(asking, place, &target, request).await,
    };
    match created {
        Ok(found) => Ok(with_checks(asking, found).await),
        Err(why) if matches!(why.kind, FailureKind::Refused | FailureKind::Missing) => {
            explained(asking, place, &target, why).await
        }
        Err(why) => Err(why),
    }
}

/// Handles a rejected pull request: returns the existing one, or an error that its branch does not exist.
async fn explained(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    target: &Target,
    why: Failure,
) -> Result<PullRequest, Failure> {
    if let Ok(Some(found)) = within(asking, place, &target.repo).await
        && found.request.state == PullRequestState::Open
    {
        return Ok(with_checks(asking, found).await);
    }
    let there = match asking.site.kind {
        Kind::Github | Kind::Forgejo => github::has_branch(asking, &place.head, &place.branch).await,
        Kind::Gitlab => gitlab::has_branch(asking, &place.head, &place.branch).await,
    };
    match there {
        Err(missing) if missing.kind == FailureKind::Missing => Err(Failure::new(
            FailureKind::Refused,
            format_args!(
                "the branch {0} is not on {1} ({2}); push it with git push --set-upstream {3} {0}",
                place.branch,
                place.head.full(),
                asking.site.name,
                place.remote
            ),
        )),
        _ if why.kind == FailureKind::Refused => Err(Failure::new(
            FailureKind::Refused,
            format_args!(
                "{} does not create the {} from {} into {} of {}: {}",
                asking.site.name,
                asking.site.kind.pull_request(),
                place.branch,
                target.branch.as_deref().unwrap_or_default(),
                target.repo.full(),
                why.message
            ),
        )),
        _ => Err(why),
    }
}

/// The repository and branch that a new pull request goes to.
async fn target(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    branch: Option<&str>,
) -> Result<Target, Failure> {
    let kind = asking.site.kind;
    let mut target = match place.chosen.as_ref().or(place.others.first()) {
        Some(repo) => Target { repo: repo.clone(), branch: None },
        None => match kind {
            Kind::Github | Kind::Forgejo => github::target(asking, &place.head).await?,
            Kind::Gitlab => gitlab::target(asking, &place.head).await?,
        },
    };
    target.branch = match (branch, target.branch.take()) {
        (Some(branch), _) => Some(branch.to_owned()),
        (None, Some(default)) => Some(default),
        (None, None) => match kind {
            Kind::Github | Kind::Forgejo => github::default_branch(asking, &target.repo).await?,
            Kind::Gitlab => gitlab::default_branch(asking, &target.repo).await?,
        },
    };
    if target.branch.is_none() {
        return Err(Failure::new(
            FailureKind::Refused,
            format_args!("{} has no default branch; name the target branch", target.repo.full()),
        ));
    }
    Ok(target)
}
