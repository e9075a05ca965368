//! GitHub's API: pull requests, their checks, forks.

use ostler_contract::json;
use ostler_contract::points::{PullRequest, PullRequestRequest, PullRequestState};
use serde::Deserialize;

use crate::api::{Asking, encoded};
use crate::checks::{Count, Verdict};
use crate::code_host_branch::CodeHostBranch;
use crate::failure::Failure;
use crate::forge::{FoundPullRequest, Target};
use crate::site::Repo;

/// How many pages of pull requests, and of checks, are read.
const PAGES: usize = 3;
const CHECK_PAGES: usize = 5;

/// A repository; Forgejo has the same fields.
#[derive(Debug, Deserialize)]
pub(crate) struct Repository {
    full_name: String,
    default_branch: Option<String>,
    parent: Option<Box<Repository>>,
}

impl Repository {
    /// Returns the target of a repository's pull requests: its parent if it is a fork, otherwise itself.
    pub(crate) fn target(self, own: &Repo) -> Target {
        let of = |repository: Self| Target {
            repo: Repo::of(&repository.full_name).unwrap_or_else(|| own.clone()),
            branch: repository.default_branch,
        };
        match self.parent {
            Some(parent) => of(*parent),
            None => of(self),
        }
    }

    pub(crate) fn parent(self) -> Option<Repo> {
        Repo::of(&self.parent?.full_name)
    }

    pub(crate) fn default_branch(self) -> Option<String> {
        self.default_branch
    }
}

/// A pull request; Forgejo has the same fields.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    html_url: String,
    state: String,
    merged_at: Option<String>,
    pub head: End,
    pub base: End,
}

/// One of the two branches of a pull request.
#[derive(Debug, Deserialize)]
pub(crate) struct End {
    #[serde(rename = "ref")]
    pub branch: String,
    pub label: Option<String>,
    pub sha: String,
    /// `None` if it was deleted.
    pub repo: Option<Repository>,
}

impl Row {
    /// Returns whether it proposes a branch, as far as it is known.
    pub(crate) fn is_of(&self, place: &CodeHostBranch, base: &Repo) -> bool {
        let repo = |end: &End| end.repo.as_ref().and_then(|repo| Repo::of(&repo.full_name));
        let (head, target) = (repo(&self.head), repo(&self.base));
        let within = match (&head, &target) {
            (Some(head), Some(target)) => head.is(target),
            // A fork that was deleted.
            _ => false,
        };
        match base.is(&place.head) {
            true => within,
            // A fork may have been renamed; its owner is the same.
            false => !within && head.is_none_or(|head| head.owner.eq_ignore_ascii_case(&place.head.owner)),
        }
    }

    /// Returns whether it is an old one of a reused branch.
    fn is_past(&self) -> bool {
        let default = |end: &End| end.repo.as_ref().and_then(|repo| repo.default_branch.clone());
        self.state != "open" && default(&self.head).is_some_and(|default| default == self.head.branch)
    }

    pub(crate) fn found(self, base: &Repo, branch: &str) -> FoundPullRequest {
        let repo = self.base.repo.and_then(|repo| Repo::of(&repo.full_name)).unwrap_or_else(|| base.clone());
        let state = match (self.state.as_str(), self.merged_at) {
            ("open", _) => PullRequestState::Open,
            (_, Some(_)) => PullRequestState::Merged,
            (_, None) => PullRequestState::Closed,
        };
        FoundPullRequest {
            request: PullRequest {
                owner: repo.owner.clone(),
                repo: repo.name.clone(),
                url: self.html_url,
                branch: branch.to_owned(),
                state,
                checks: None,
            },
            base: repo,
            commit: Some(self.head.sha),
            number: None,
        }
    }
}

/// The pull request of the branch in one repository: an open one, else the newest.
pub(crate) async fn within(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    base: &Repo,
) -> Result<Option<FoundPullRequest>, Failure> {
    let head = encoded(&format!("{}:{}", place.head.owner, place.branch));
    let path = format!("{}/pulls?head={head}&state=all&sort=created&direction=desc&per_page=30", path(base));
    let rows: Vec<Row> = asking.list(&path, PAGES, &base.full()).await?;
    let rows = rows.into_iter().filter(|row| row.head.branch == place.branch && row.is_of(place, base));
    Ok(first(rows.filter(|row| !row.is_past())).map(|row| row.found(base, &place.branch)))
}

/// Returns the open one of several, otherwise the first.
pub(crate) fn first(rows: impl Iterator<Item = Row>) -> Option<Row> {
    let mut first = None;
    for row in rows {
        if row.state == "open" {
            return Some(row);
        }
        first.get_or_insert(row);
    }
    first
}

/// Returns the parent of a fork.
pub(crate) async fn parent(asking: &Asking<'_>, repo: &Repo) -> Result<Option<Repo>, Failure> {
    Ok(asking.get::<Repository>(&path(repo), &repo.full()).await?.parent())
}

/// Returns the target of a repository's pull request.
pub(crate) async fn target(asking: &Asking<'_>, repo: &Repo) -> Result<Target, Failure> {
    Ok(asking.get::<Repository>(&path(repo), &repo.full()).await?.target(repo))
}

pub(crate) async fn default_branch(asking: &Asking<'_>, repo: &Repo) -> Result<Option<String>, Failure> {
    Ok(asking.get::<Repository>(&path(repo), &repo.full()).await?.default_branch())
}

/// Whether a branch is in its repository.
pub(crate) async fn has_branch(asking: &Asking<'_>, repo: &Repo, branch: &str) -> Result<(), Failure> {
    let path = format!("{}/branches/{}", path(repo), encoded(branch));
    asking.get::<serde::de::IgnoredAny>(&path, &repo.full()).await.map(|_| ())
}

pub(crate) async fn create(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    target: &Target,
    request: &PullRequestRequest,
) -> Result<FoundPullRequest, Failure> {
    let (base, own) = (&target.repo, place.head.is(&target.repo));
    let head = place.head_for(base);
    let mut body = json!({ "title": request.title, "body": request.body, "head": head, "base": target.branch,
        "draft": request.draft });
    if !own && place.head.owner.eq_ignore_ascii_case(&base.owner) {
        body["head_repo"] = json!(place.head.name);
    }
    let row: Row = asking.post(&format!("{}/pulls", path(base)), &body, &base.full()).await?;
    Ok(row.found(base, &place.branch))
}

#[derive(Debug, Deserialize)]
struct CheckRuns {
    check_runs: Vec<CheckRun>,
}

#[derive(Debug, Deserialize)]
struct CheckRun {
    status: String,
    conclusion: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Statuses {
    statuses: Vec<Status>,
}

#[derive(Debug, Deserialize)]
struct Status {
    state: String,
}

/// The checks of a commit: those of apps, and those that are reported as a status.
pub(crate) async fn checks(asking: &Asking<'_>, base: &Repo, commit: &str) -> Result<Count, Failure> {
    let (at, about) = (format!("{}/commits/{}", path(base), encoded(commit)), base.full());
    let (runs, statuses) = (format!("{at}/check-runs?per_page=100"), format!("{at}/status?per_page=100"));
    let (runs, statuses) = futures::join!(
        asking.pages::<CheckRuns>(&runs, CHECK_PAGES, &about),
        asking.pages::<Statuses>(&statuses, CHECK_PAGES, &about),
    );
    let runs =
        runs?.into_iter().flat_map(|page| page.check_runs).map(|run| match run.conclusion.as_deref() {
            _ if run.status != "completed" => Verdict::Pending,
            Some("success" | "neutral" | "skipped") => Verdict::Passed,
            _ => Verdict::Failed,
        });
    let statuses = statuses?.into_iter().flat_map(|page| page.statuses);
    let statuses = statuses.map(|status| match status.state.as_str() {
        "success" => Verdict::Passed,
        "pending" => Verdict::Pending,
        _ => Verdict::Failed,
    });
    Ok(runs.chain(statuses).collect())
}

pub(crate) fn path(repo: &Repo) -> String {
    format!("/repos/{}/{}", encoded(&repo.owner), encoded(&repo.name))
}
