//! The API of Forgejo and Gitea. Repositories and pull requests have the fields of GitHub's.

use ostler_contract::json;
use ostler_contract::points::PullRequestRequest;
use serde::Deserialize;

use crate::api::{Asking, encoded};
use crate::checks::{Count, Verdict};
use crate::code_host_branch::CodeHostBranch;
use crate::failure::Failure;
use crate::forge::{FoundPullRequest, Target};
use crate::github::{Row, first, path};
use crate::site::Repo;

/// How many pages of open pull requests are read; only the first of the others.
const OPEN_PAGES: usize = 6;
const CHECK_PAGES: usize = 3;

/// The pull request of the branch in one repository. Most releases cannot select by branch, so the list is read, the
/// ones that changed last first.
pub(crate) async fn within(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    base: &Repo,
) -> Result<Option<FoundPullRequest>, Failure> {
    for (state, pages) in [("open", OPEN_PAGES), ("closed", 1)] {
        let path = format!("{}/pulls?state={state}&sort=recentupdate&limit=50", path(base));
        let rows: Vec<Row> = asking.list(&path, pages, &base.full()).await?;
        let of_branch = |row: &Row| {
            row.head.branch == place.branch || row.head.label.as_deref() == Some(place.branch.as_str())
        };
        let found = first(rows.into_iter().filter(|row| of_branch(row) && row.is_of(place, base)));
        if let Some(row) = found {
            return Ok(Some(row.found(base, &place.branch)));
        }
    }
    Ok(None)
}

pub(crate) async fn create(
    asking: &Asking<'_>,
    place: &CodeHostBranch,
    target: &Target,
    request: &PullRequestRequest,
) -> Result<FoundPullRequest, Failure> {
    let base = &target.repo;
    let head = place.head_for(base);
    // A draft is one by its title.
    let title = if request.draft { format!("WIP: {}", request.title) } else { request.title.clone() };
    let body = json!({ "title": title, "body": request.body, "head": head, "base": target.branch });
    let row: Row = asking.post(&format!("{}/pulls", path(base)), &body, &base.full()).await?;
    Ok(row.found(base, &place.branch))
}

#[derive(Debug, Deserialize)]
struct Statuses {
    #[serde(default)]
    statuses: Option<Vec<Status>>,
}

#[derive(Debug, Deserialize)]
struct Status {
    status: String,
}

/// The checks of a commit.
pub(crate) async fn checks(asking: &Asking<'_>, base: &Repo, commit: &str) -> Result<Count, Failure> {
    let path = format!("{}/commits/{}/status?limit=50", path(base), encoded(commit));
    let pages = asking.pages::<Statuses>(&path, CHECK_PAGES, &base.full()).await?;
    let statuses = pages.into_iter().flat_map(|page| page.statuses.unwrap_or_default());
    let verdict = |status: Status| match status.status.as_str() {
        "success" | "skipped" | "warning" => Verdict::Passed,
        "pending" => Verdict::Pending,
        _ => Verdict::Failed,
    };
    Ok(statuses.map(verdict).collect())
}
