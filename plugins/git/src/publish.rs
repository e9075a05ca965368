//! Pull requests: what is pushed for them, and their forms.

use ostler_contract::wire::commands::{ChangesetOperationFollowUp, InvokeChangesetOperationResult};
use ostler_contract::wire::state::ContentRef;
use ostler_contract::{JsonObject, RpcError, Thrown, Value, json};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::changes::file_uri;
use crate::commits::{Part, commit};
use crate::facts::{BASE, base_branch};
use crate::operations::{Operation, TITLE, refused, title};
use crate::repository::Repository;
use crate::status::Branch;

/// The key of an operation's `_meta` with the form of a pull request.
const PULL_REQUEST: &str = "vscode.pullRequest";
/// The maximum number of commits in the text of a pull request.
const COMMITS: usize = 50;

impl Operation<'_> {
    /// Commits the rest and pushes the branch, a new one if the work is on the base. Returns the form of the pull
    /// request, with which the host creates it.
    pub(crate) async fn publish(&self, meta: &JsonObject) -> Result<InvokeChangesetOperationResult, Thrown> {
        let status = self.tree.status().await?;
        if let Some(row) = status.rows.iter().find(|row| row.conflict) {
            return Err(refused(format!("{} has a conflict; resolve and stage it", row.path.display())));
        }
        let branch = &status.branch;
        let remote = match branch.upstream.as_deref().and_then(|upstream| upstream.split_once('/')) {
            Some((remote, _)) => remote.to_owned(),
            None => {
                let remotes = self.read().args(["remote"]).text().await?;
                let remotes: Vec<&str> = remotes.lines().collect();
                let usual = remotes.iter().find(|remote| **remote == "origin").or(remotes.first());
                let none = || {
                    refused(format!(
                        "{} has no remote to push to; add one with git remote add origin <url>",
                        self.tree.root.display()
                    ))
                };
                (*usual.ok_or_else(none)?).to_owned()
            }
        };
        let form = meta.get(PULL_REQUEST);
        let asked = form.and_then(|form| form.get("title")).and_then(Value::as_str).map(str::trim);
        let named = asked.filter(|title| !title.is_empty()).unwrap_or_else(|| title(self.of));
        // On the base itself or without a branch, the work gets a separate branch.
        let (base, own) = match (&branch.name, base_branch(&self.tree.root, branch).await?) {
            (Some(_), Some(base)) => (base, None),
            (name, base) => (name.clone().or(base).unwrap_or_default(), Some(self.branch_for(named).await?)),
        };
        let rows = self.own_rows().await?;
        if rows.is_empty() && !base.is_empty() {
            let known = format!("refs/remotes/{remote}/{base}");
            let known = self.read().args(["rev-parse", "--verify", "--quiet", &known]).maybe().await?;
            let range = format!("{}..HEAD", known.as_deref().unwrap_or(&base));
            let ahead =
                self.read().args(["rev-list", "--count", "--end-of-options", &range, "--"]).text().await?;
            if ahead == "0" {
                let why = format!("there are no commits that {base} does not have");
                return Err(RpcError::invalid_params(why).with_data(json!({ "reason": "noCommits" })).into());
            }
        }
        if let Some(own) = &own {
            self.write().args(["switch", "--quiet", "--create", own]).run().await?;
        }
        let mut committed = None;
        let work = async {
            if let Some(own) = own.as_ref().filter(|_| !base.is_empty()) {
                let key = format!("branch.{own}.{BASE}");
                self.write().args(["config", &key, &base]).run().await?;
            }
            if !rows.is_empty() {
                committed = Some(commit(self.place, Part::All, named).await?);
            }
            let current = Repository::branch(&self.tree.root).await?;
            let current = current.ok_or_else(|| refused("no branch is checked out"))?;
            let to = format!("HEAD:refs/heads/{current}");
            self.write().args(["push", "--quiet", "--set-upstream", &remote, &to]).run().await?;
            Ok::<_, Thrown>(())
        };
        if let Err(mut why) = work.await {
            let done = self.take_back(branch, own.as_deref(), committed.as_deref()).await;
            why.message.push_str(&done);
            return Err(why);
        }
        self.prepare().await
    }

    /// Leaves the branch that was created for a pull request, if nothing was committed on it. Returns a sentence about
    /// what stays.
    async fn take_back(&self, before: &Branch, own: Option<&str>, committed: Option<&str>) -> String {
        match (committed, own) {
            (Some(commit), Some(own)) => {
                format!("; committed {commit} on the new branch {own}, which is checked out and not pushed")
            }
            (Some(commit), None) => format!("; committed {commit}, which is not pushed"),
            (None, Some(own)) => {
                // Both branches are at the same commit: no file changes.
                let back = match (&before.name, &before.commit) {
                    (Some(name), _) => {
                        let head = format!("refs/heads/{name}");
                        self.write().args(["symbolic-ref", "HEAD", &head]).run().await
                    }
                    (None, Some(commit)) => {
                        self.write().args(["update-ref", "--no-deref", "HEAD", commit]).run().await
                    }
                    (None, None) => return String::new(),
                };
                let back = match back {
                    Ok(_) => self.write().args(["branch", "--quiet", "-D", "--", own]).run().await,
                    Err(why) => Err(why),
                };
                match back {
                    Ok(_) => String::new(),
                    Err(why) => {
                        format!("; the new branch {own} stays ({})", Thrown::from(why).message)
                    }
                }
            }
            (None, None) => String::new(),
        }
    }

    /// Returns an unused name of a branch.
    async fn branch_for(&self, title: &str) -> Result<String, Thrown> {
        let words: String = title
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(40)
            .collect();
        let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
        let words = if words.is_empty() { "changes".to_owned() } else { words.join("-") };
        let taken =
            self.read().args(["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes"]);
        let taken = taken.text().await?;
        let is_free = |name: &String| {
            !taken
                .lines()
                .any(|other| other == name || other.split_once('/').is_some_and(|(_, short)| short == name))
        };
        let mut names = (1..).map(|number| match number {
            1 => format!("agents/{words}"),
            number => format!("agents/{words}-{number}"),
        });
        names.find(is_free).ok_or_else(|| refused("every name of a branch is taken"))
    }

    /// The title, text and branches of a pull request for the branch.
    pub(crate) async fn prepare(&self) -> Result<InvokeChangesetOperationResult, Thrown> {
        let status = self.tree.status().await?;
        let branch = status.branch.name.clone();
        let branch =
            branch.ok_or_else(|| refused("no branch is checked out; create one for the pull request"))?;
        let base = base_branch(&self.tree.root, &status.branch).await?;
        let range = match &base {
            Some(base) => {
                let remote = format!("refs/remotes/origin/{base}");
                let known = self.read().args(["rev-parse", "--verify", "--quiet", &remote]).maybe().await?;
                format!("{}..HEAD", if known.is_some() { &remote } else { base })
            }
            None => "HEAD".to_owned(),
        };
        let log = ["log", "--no-show-signature", "--reverse", "--format=%s", "-n"];
        let log = self.read().args(log).arg(COMMITS.to_string()).args(["--end-of-options", &range, "--"]);
        let log = if base.is_some() { log.text().await.unwrap_or_default() } else { String::new() };
        let commits: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
        let title = match (&commits[..], self.of.title.as_deref().map(str::trim)) {
            (_, Some(title)) if !title.is_empty() => title,
            ([only], _) => only,
            _ => TITLE,
        };
        let body = commits.iter().map(|subject| format!("- {subject}\n")).collect::<String>();
        let form = json!({ "title": title, "body": body, "branch": branch, "base": base,
            "uncommittedChanges": status.rows.len(), "directory": file_uri(&self.tree.root) });
        let uri =
            format!("data:application/json,{}", utf8_percent_encode(&form.to_string(), NON_ALPHANUMERIC));
        let content = ContentRef {
            uri,
            size_hint: None,
            content_type: Some("application/json".to_owned()),
            nonce: None,
        };
        Ok(InvokeChangesetOperationResult {
            message: None,
            follow_up: Some(ChangesetOperationFollowUp { content, external: None }),
        })
    }
}
