//! GitLab's API: merge requests, their pipelines, forks.

use ostler_contract::json;
use ostler_contract::points::{PullRequest, PullRequestRequest, PullRequestState};
use serde::Deserialize;

use crate::api::{Asking, encoded};
use crate::checks::{Count, Verdict};
use crate::code_host_branch::CodeHostBranch;
use crate::failure::Failure;
use crate::forge::{FoundPullRequest, Target};
use crate::site::Repo;

const PAGES: usize = 3;

#[derive(Debug, Deserialize)]
struct Project {
    id: u64,
    path_with_namespace: String,
    default_branch: Option<String>,
    forked_from_project: Option<Box<Project>>,
}

#[derive(Debug, Deserialize)]
struct Row {
    iid: u64,
    web_url: String,
    state: String,
    source_project_id: Option<u64>,
}

impl Row {
    fn found(self, base: &Repo, branch: &str) -> FoundPullRequest {
        let state = match self.state.as_str() {
            "merged" => PullRequestState::Merged,
            "closed" => PullRequestState::Closed,
            _ => PullRequestState::Open,
        };
        FoundPullRequest {
            request: PullRequest {
                owner: base.owner.clone(),
                repo: base.name.clone(),
                url: self.web_url,
                branch: branch.to_owned(),
                state,
                checks: None,
            },
            base: base.clone(),
            commit: None,
            number: Some(self.iid),
        }
    }
}

/// The merge request of the branch in one project: an open one, else the newest.
pub(crate) async fn within(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    base: &Repo,
) -> Result<Option<FoundPullRequest>, Failure> {
    let head: Project = asking.get(&path(&place.head), &place.head.full()).await?;
    let path = format!(
        "{}/merge_requests?source_branch={}&state=all&order_by=created_at&sort=desc&per_page=30",
        path(base),
        encoded(&place.branch)
    );
    let rows: Vec<Row> = asking.list(&path, PAGES, &base.full()).await?;
    let past = |row: &Row| row.state != "opened" && head.default_branch.as_deref() == Some(&place.branch);
    let mut first = None;
    for row in rows.into_iter().filter(|row| row.source_project_id == Some(head.id) && !past(row)) {
        if row.state == "opened" {
            return Ok(Some(row.found(base, &place.branch)));
        }
        first.get_or_insert(row);
    }
    Ok(first.map(|row| row.found(base, &place.branch)))
}

/// Returns the parent of a forked project.
pub(crate) async fn parent(asking: &Asking<'_>, repo: &Repo) -> Result<Option<Repo>, Failure> {
    let project: Project = asking.get(&path(repo), &repo.full()).await?;
    Ok(project.forked_from_project.and_then(|parent| Repo::of(&parent.path_with_namespace)))
}

/// Returns the target of a project's merge request.
pub(crate) async fn target(asking: &Asking<'_>, repo: &Repo) -> Result<Target, Failure> {
    let project: Project = asking.get(&path(repo), &repo.full()).await?;
    let target = project.forked_from_project.map_or(
        Target { repo: repo.clone(), branch: project.default_branch },
        |parent| Target {
            repo: Repo::of(&parent.path_with_namespace).unwrap_or_else(|| repo.clone()),
            branch: parent.default_branch,
        },
    );
    Ok(target)
}

pub(crate) async fn default_branch(asking: &Asking<'_>, repo: &Repo) -> Result<Option<String>, Failure> {
    Ok(asking.get::<Project>(&path(repo), &repo.full()).await?.default_branch)
}

/// Whether a branch is in its project.
pub(crate) async fn has_branch(asking: &Asking<'_>, repo: &Repo, branch: &str) -> Result<(), Failure> {
    let path = format!("{}/repository/branches/{}", path(repo), encoded(branch));
    asking.get::<serde::de::IgnoredAny>(&path, &repo.full()).await.map(|_| ())
}

pub(crate) async fn create(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    target: &Target,
    request: &PullRequestRequest,
) -> Result<FoundPullRequest, Failure> {
    // A draft is one by its title.
    let title = if request.draft { format!("Draft: {}", request.title) } else { request.title.clone() };
    let mut body = json!({ "title": title, "description": request.body, "source_branch": place.branch,
        "target_branch": target.branch });
    if !place.head.is(&target.repo) {
        let project: Project = asking.get(&path(&target.repo), &target.repo.full()).await?;
        body["target_project_id"] = json!(project.id);
    }
    let path = format!("{}/merge_requests", path(&place.head));
    let row: Row = asking.post(&path, &body, &place.head.full()).await?;
    Ok(row.found(&target.repo, &place.branch))
}

#[derive(Debug, Deserialize)]
struct Detailed {
    head_pipeline: Option<Pipeline>,
}

#[derive(Debug, Deserialize)]
struct Pipeline {
    status: String,
}

/// The pipeline of a merge request, as one check.
pub(crate) async fn checks(asking: &Asking<'_>, base: &Repo, number: u64) -> Result<Count, Failure> {
    let path = format!("{}/merge_requests/{number}", path(base));
    let detailed: Detailed = asking.get(&path, &base.full()).await?;
    let verdict = |pipeline: Pipeline| match pipeline.status.as_str() {
        "success" | "skipped" => Verdict::Passed,
        "failed" | "canceled" | "canceling" => Verdict::Failed,
        _ => Verdict::Pending,
    };
    Ok(detailed.head_pipeline.map(verdict).into_iter().collect())
}

fn path(repo: &Repo) -> String {
    format!("/projects/{}", encoded(&repo.full()))
}
