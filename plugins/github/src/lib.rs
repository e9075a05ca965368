//! `@ostler/github`: the pull request of a session's branch on GitHub, GitLab or Forgejo, its checks, and new ones.
//!
//! [`code_host_branch`] finds a directory's branch on its code host, from the repository's remotes; [`site`] is the
//! configuration of code hosts. [`forge`] finds and creates pull requests, with the APIs in [`github`], [`gitlab`] and
//! [`forgejo`]; [`api`] sends their requests through the host's client, with a token of [`credential`].

#![forbid(unsafe_code)]

mod api;
mod cache;
mod checks;
mod code_host_branch;
mod credential;
mod failure;
mod forge;
mod forgejo;
mod github;
mod gitlab;
mod program;
mod remote;
mod site;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{BranchAsked, PullRequest, PullRequestRequest, PullRequests};
use ostler_contract::{Call, Options, Plugin, PluginHost, Thrown, json};
use parking_lot::Mutex;

use api::Api;
use code_host_branch::{CodeHostBranch, NoCodeHost, is_on_github};
use credential::{Credential, Credentials};
use failure::{Failure, FailureKind};
use site::Sites;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/github";

/// The limit of a search, including its wait: less than the host waits, so that it can report the reason.
const LOOK_LIMIT: Duration = Duration::from_secs(28);
/// The maximum number of directories whose reported problems are stored.
const REPORTED: usize = 1024;

/// The plugin.
pub fn plugin() -> Plugin {
    Plugin::new(NAME, |host, options| Box::pin(async move { apply(&host, &options) }))
        .title("Pull requests")
        .defaults(json!({ "signIn": "github.com", "gh": true }))
        .options_schema(json!({
            "type": "object",
            "properties": {
                "hosts": {
                    "type": "object",
                    "description": "Code hosts, by the host name in the URLs of remotes. Known without an entry: github.com, gitlab.com and codeberg.org.",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {
                            "kind": {
                                "type": "string", "enum": ["github", "gitlab", "forgejo"],
                                "description": "API of the host; forgejo includes Gitea. Required for hosts that are not known."
                            },
                            "api": {
                                "type": "string",
                                "description": "URL of the API [default: https://<host>/api/v3, /api/v4 or /api/v1]"
                            },
                            "token": {
                                "type": "string", "writeOnly": true, "secretAtUse": true,
                                "description": "Token, or a secret: { \"$secret\": \"host:<name>\" }"
                            }
                        },
                        "additionalProperties": false
                    }
                },
                "signIn": {
                    "type": "string",
                    "description": "GitHub host whose tokens clients lend [default: github.com]"
                },
                "gh": {
                    "type": "boolean",
                    "description": "Whether the token of the program gh is used where no other is available [default: true]"
                }
            }
        }))
}

fn apply(host: &PluginHost, options: &Options) -> Result<(), Thrown> {
    let sites = Sites::read(options)?;
    let resource = sites.resource();
    let pulls = Arc::new(Pulls {
        credentials: Credentials::new(host.clone(), sites.gh),
        sites,
        api: Api::new(host.clone()),
        reported: Mutex::default(),
    });
    let (creating, finding) = (pulls.clone(), pulls.clone());
    host.register_github(
        PullRequests {
            resource,
            for_branch: Call::new(move |(asked,): (BranchAsked,)| {
                let pulls = pulls.clone();
                async move { pulls.for_branch(asked).await }
            }),
            create: Call::new(move |(request,): (PullRequestRequest,)| {
                let pulls = creating.clone();
                async move { pulls.create(request).await }
            }),
            is_on_github: Some(Call::new(move |(directory,): (String,)| {
                let pulls = finding.clone();
                async move { is_on_github(&pulls.sites, Path::new(&directory)).await }
            })),
        },
        None,
    )
}

/// The state of the plugin.
struct Pulls {
    sites: Sites,
    credentials: Credentials,
    api: Api,
    /// The last reported problem, by directory.
    reported: Mutex<HashMap<String, String>>,
}

impl Pulls {
    /// The pull request of a branch; a problem is an error once, and nothing as long as it is the same.
    async fn for_branch(&self, asked: BranchAsked) -> Result<Option<PullRequest>, Thrown> {
        let looked = match tokio::time::timeout(LOOK_LIMIT, self.look(&asked)).await {
            Ok(looked) => looked,
            Err(_) => Err(Thrown::new(format_args!(
                "the pull request of {} was not found out within {} seconds; it is asked for again after the next turn",
                asked.directory,
                LOOK_LIMIT.as_secs()
            ))),
        };
        let mut reported = self.reported.lock();
        match looked {
            Ok(found) => {
                reported.remove(&asked.directory);
                Ok(found)
            }
            Err(why) if reported.get(&asked.directory).is_some_and(|last| *last == why.message) => Ok(None),
            Err(why) => {
                if reported.len() >= REPORTED {
                    reported.clear();
                }
                reported.insert(asked.directory, why.message.clone());
                Err(why)
            }
        }
    }

    async fn look(&self, asked: &BranchAsked) -> Result<Option<PullRequest>, Thrown> {
        let directory = Path::new(&asked.directory);
        let place = match CodeHostBranch::of(&self.sites, directory, asked.branch.as_deref()).await? {
            Ok(place) => place,
            Err(_) => return Ok(None),
        };
        let _turn = place.site.searches.acquire().await;
        let credential = self.credentials.of(&place.site, asked.token.as_deref()).await?;
        let asking = self.api.asking(&place.site, credential);
        let found = forge::find(&asking, &place).await;
        Ok(self.noticed(&place, &asking.credential, found)?)
    }

    async fn create(&self, request: PullRequestRequest) -> Result<PullRequest, Thrown> {
        let directory = Path::new(&request.directory);
        let place = CodeHostBranch::of(&self.sites, directory, request.branch.as_deref()).await?;
        let place = place.map_err(|no_code_host: NoCodeHost| no_code_host.refusal(directory))?;
        let credential = self.credentials.of(&place.site, request.token.as_deref()).await?;
        let asking = self.api.asking(&place.site, credential);
        let created = forge::create(&asking, &place, &request).await;
        Ok(self.noticed(&place, &asking.credential, created)?)
    }

    fn noticed<T>(
        &self,
        place: &CodeHostBranch,
        credential: &Credential,
        outcome: Result<T, Failure>,
    ) -> Result<T, Failure> {
        if outcome.as_ref().is_err_and(|why| why.kind == FailureKind::SignIn) {
            self.credentials.refused(&place.site, credential);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_exports() {
        let module = plugin().module;
        assert_eq!(module.name, Some("github".into()));
        let schema = module.options_schema.unwrap_or_default();
        let token = &schema["properties"]["hosts"]["additionalProperties"]["properties"]["token"];
        assert_eq!((&token["writeOnly"], &token["secretAtUse"]), (&json!(true), &json!(true)));
    }
}
