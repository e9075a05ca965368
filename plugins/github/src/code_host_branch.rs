//! The branch of a directory on its code host, and the repositories to which it can be proposed.

use std::path::Path;
use std::sync::Arc;

use ostler_contract::{RpcError, Thrown};

use crate::program::git;
use crate::remote::Address;
use crate::site::{Kind, Repo, Site, Sites};

/// In how many repositories a branch is searched.
const BASES: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct CodeHostBranch {
    pub site: Arc<Site>,
    /// The repository that has the branch.
    pub head: Repo,
    /// Its name there.
    pub branch: String,
    /// The remote of that repository.
    pub remote: String,
    /// The repositories of the other remotes on this site, the likeliest target first.
    pub others: Vec<Repo>,
    /// The target that the user chose with `gh repo set-default`.
    pub chosen: Option<Repo>,
}

/// Why a branch is on no code host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoCodeHost {
    NoRepository,
    Detached,
    NoRemote,
    /// The URL to which it is pushed names no repository of a code host.
    NotOnHost(PushUrl),
    /// The host of that URL is not configured.
    UnknownHost {
        host: String,
        to: PushUrl,
    },
}

/// The URL to which a branch is pushed, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PushUrl {
    /// Without what could be a password.
    url: String,
    origin: Origin,
}

/// Where the URL for pushing comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// The URL of a remote.
    Remote(String),
    /// The URL for pushing of a remote that is fetched from another one.
    PushOnly(String),
    /// The configuration of this branch, or of all, in place of the name of a remote.
    Configuration(String),
}

impl PushUrl {
    fn of(pushed: &Pushed, remotes: &[Remote]) -> Self {
        let origin = match remotes.iter().find(|remote| remote.name == pushed.remote) {
            Some(remote) if remote.fetch == pushed.url => Origin::Remote(remote.name.clone()),
            Some(remote) => Origin::PushOnly(remote.name.clone()),
            None => Origin::Configuration(pushed.local.clone()),
        };
        Self { url: without_user(&pushed.url), origin }
    }

    /// What it is, in a sentence.
    fn described(&self, at: impl std::fmt::Display) -> String {
        let url = &self.url;
        match &self.origin {
            Origin::Remote(remote) => format!("the URL of the remote {remote} of {at}, {url},"),
            Origin::PushOnly(remote) => format!("the push URL of the remote {remote} of {at}, {url},"),
            Origin::Configuration(branch) => {
                format!("the URL to which the branch {branch} of {at} is pushed, {url},")
            }
        }
    }

    /// The command that changes it.
    fn remedy(&self) -> String {
        match &self.origin {
            Origin::Remote(remote) => format!("change it with git remote set-url {remote} <url>"),
            Origin::PushOnly(remote) => format!("change it with git remote set-url --push {remote} <url>"),
            Origin::Configuration(branch) => {
                format!("name a remote with git config branch.{branch}.pushRemote <remote>")
            }
        }
    }
}

/// A URL without its user and password.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

impl NoCodeHost {
    /// Returns the error for the creation of a pull request.
    pub(crate) fn refusal(&self, directory: &Path) -> Thrown {
        let at = directory.display();
        RpcError::invalid_params(match self {
            Self::NoRepository => format!("{at} is not in a git repository"),
            Self::Detached => format!("{at} has no branch checked out; create one with git switch -c <name>"),
            Self::NoRemote => {
                format!("the repository at {at} has no remote on a code host; add one with git remote add origin <url>")
            }
            Self::NotOnHost(to) => {
                format!("{} is not on a code host; {}", to.described(at), to.remedy())
            }
            Self::UnknownHost { host, to } => format!(
                "{} is on {host}, which is not configured; add hosts.\"{host}\" to the options of {} with kind github, gitlab or forgejo",
                to.described(at),
                crate::NAME
            ),
        })
        .into()
    }
}

/// A remote of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Remote {
    name: String,
    /// The URL for fetching.
    fetch: String,
    /// The URL for pushing.
    push: String,
}

impl CodeHostBranch {
    /// Returns the branch in the form for requests to a repository: with its owner if it is in a fork.
    pub(crate) fn head_for(&self, base: &Repo) -> String {
        match self.head.is(base) {
            true => self.branch.clone(),
            false => format!("{}:{}", self.head.owner, self.branch),
        }
    }

    /// Finds a directory's branch on its code host.
    ///
    /// # Errors
    /// Git cannot be run, or cannot read the repository.
    pub(crate) async fn of(
        sites: &Sites,
        directory: &Path,
        branch: Option<&str>,
    ) -> Result<Result<Self, NoCodeHost>, Thrown> {
        let Some(remotes) = git(directory, &["remote", "--verbose"]).await? else {
            return Ok(Err(NoCodeHost::NoRepository));
        };
        let remotes = remotes_of(&remotes);
        let branch = match branch {
            Some(branch) => branch.to_owned(),
            // `--short` would call it `heads/<name>` if there is a tag of that name.
            None => match git(directory, &["symbolic-ref", "-q", "HEAD"]).await? {
                Some(head) if head.starts_with("refs/heads/") => head["refs/heads/".len()..].to_owned(),
                _ => return Ok(Err(NoCodeHost::Detached)),
            },
        };
        if remotes.is_empty() {
            return Ok(Err(NoCodeHost::NoRemote));
        }
        let format = "%(push:remotename)%09%(push:remoteref)%09%(push)%09%(upstream:remotename)%09%(upstream:remoteref)";
        let (format, reference) = (format!("--format={format}"), format!("refs/heads/{branch}"));
        let asked = ["for-each-ref", "--count=1", &format, &reference];
        let (tracked, resolved) = futures::join!(
            git(directory, &asked),
            git(directory, &["config", "--get-regexp", r"^remote\..*\.gh-resolved$"]),
        );
        let tracked = tracked?.unwrap_or_default();
        let pushed = Pushed::of(&branch, &tracked, &remotes);
        Ok(Self::among(sites, &remotes, pushed, &resolved?.unwrap_or_default()))
    }

    fn among(sites: &Sites, remotes: &[Remote], pushed: Pushed, resolved: &str) -> Result<Self, NoCodeHost> {
        let at = |url: &str| Address::parse(url).and_then(|address| sites.of(&address));
        let Some((site, head)) = at(&pushed.url) else {
            let to = PushUrl::of(&pushed, remotes);
            let host = Address::parse(&pushed.url).and_then(|address| address.names().next());
            return Err(match host {
                Some(host) => NoCodeHost::UnknownHost { host, to },
                None => NoCodeHost::NotOnHost(to),
            });
        };
        let mut ranked: Vec<&Remote> = remotes.iter().collect();
        let rank = |name: &str| match name {
            "upstream" => 0,
            "origin" => 1,
            _ => 2,
        };
        ranked.sort_by_key(|remote| rank(&remote.name));
        let here = |url: &str| at(url).filter(|(other, _)| other.name == site.name).map(|(_, repo)| repo);
        let mut others: Vec<Repo> = Vec::new();
        for repo in ranked.iter().filter_map(|remote| here(&remote.fetch)) {
            if !repo.is(&head) && !others.iter().any(|other| other.is(&repo)) {
                others.push(repo);
            }
        }
        others.truncate(BASES - 1);
        // `remote.<name>.gh-resolved base`, or `… owner/name`.
        let chosen = resolved.lines().find_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            let name = key.strip_prefix("remote.")?.strip_suffix(".gh-resolved")?;
            match value {
                "base" => here(&remotes.iter().find(|remote| remote.name == name)?.fetch),
                full => Repo::of(full),
            }
        });
        Ok(Self { site, head, branch: pushed.branch, remote: pushed.remote, others, chosen })
    }
}

/// Returns whether a remote of a directory's repository is on GitHub.
///
/// # Errors
/// Git cannot be run, or cannot read the repository.
pub(crate) async fn is_on_github(sites: &Sites, directory: &Path) -> Result<bool, Thrown> {
    let remotes = git(directory, &["remote", "--verbose"]).await?.unwrap_or_default();
    Ok(remotes_of(&remotes)
        .iter()
        .any(|remote| is_github(sites, &remote.fetch) || is_github(sites, &remote.push)))
}

fn is_github(sites: &Sites, url: &str) -> bool {
    let site = Address::parse(url).and_then(|address| sites.of(&address));
    site.is_some_and(|(site, _)| site.kind == Kind::Github)
}

/// The target of pushes of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pushed {
    remote: String,
    url: String,
    /// The branch in that repository.
    branch: String,
    /// The branch here.
    local: String,
}

impl Pushed {
    /// Parses the output of `for-each-ref` for a branch, which is empty before its first commit.
    fn of(branch: &str, tracked: &str, remotes: &[Remote]) -> Self {
        let local = branch.to_owned();
        let mut fields = tracked.split('\t').map(str::trim);
        let mut next = || fields.next().unwrap_or_default();
        let (push_remote, push_ref, push, upstream_remote, upstream_ref) =
            (next(), next(), next(), next(), next());
        let named = |name: &str| remotes.iter().find(|remote| remote.name == name);
        let heads = |name: &str| name.strip_prefix("refs/heads/").map(str::to_owned);
        // The branch's configuration can contain a URL as remote.
        if !push_remote.is_empty() && named(push_remote).is_none() && Address::parse(push_remote).is_some() {
            let tracked = (upstream_remote == push_remote).then(|| heads(upstream_ref)).flatten();
            let branch = heads(push_ref).or(tracked).unwrap_or_else(|| branch.to_owned());
            let remote = push_remote.to_owned();
            return Self { url: remote.clone(), remote, branch, local };
        }
        let remote = named(push_remote).or_else(|| named("origin")).unwrap_or(&remotes[0]);
        let tracking = format!("refs/remotes/{}/", remote.name);
        let there = heads(push_ref).or_else(|| push.strip_prefix(&tracking).map(str::to_owned));
        Self {
            remote: remote.name.clone(),
            url: remote.push.clone(),
            branch: there.unwrap_or_else(|| branch.to_owned()),
            local,
        }
    }
}

/// Reads `git remote --verbose`, which applies `url.<base>.insteadOf`.
fn remotes_of(listed: &str) -> Vec<Remote> {
    let mut remotes: Vec<Remote> = Vec::new();
    for line in listed.lines() {
        let Some((name, rest)) = line.split_once('\t') else { continue };
        let (url, push) = match (rest.rsplit_once(" (fetch)"), rest.rsplit_once(" (push)")) {
            (Some((url, _)), _) => (url, false),
            (None, Some((url, _))) => (url, true),
            (None, None) => continue,
        };
        match remotes.iter_mut().find(|remote| remote.name == name) {
            // The branch is searched in the first of several.
            Some(remote) if push && remote.push.is_empty() => url.clone_into(&mut remote.push),
            Some(_) => {}
            None => {
                let push = if push { url.to_owned() } else { String::new() };
                remotes.push(Remote { name: name.to_owned(), fetch: url.to_owned(), push });
            }
        }
    }
    for remote in &mut remotes {
        if remote.push.is_empty() {
            remote.push.clone_from(&remote.fetch);
        }
    }
    remotes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ostler_contract::{Value, json};

    fn sites() -> Sites {
        let hosts = json!({ "lab.example": { "kind": "gitlab" }, "ghe.example": { "kind": "github" } });
        let Value::Object(options) = json!({ "hosts": hosts }) else { panic!("no object") };
        Sites::read(&options.into()).unwrap()
    }

    fn listed(remotes: &[(&str, &str)]) -> Vec<Remote> {
        let lines =
            remotes.iter().map(|(name, url)| format!("{name}\t{url} (fetch)\n{name}\t{url} (push)\n"));
        remotes_of(&lines.collect::<String>())
    }

    fn place(
        remotes: &[(&str, &str)],
        tracked: &str,
        resolved: &str,
    ) -> Result<(String, Vec<String>), NoCodeHost> {
        let remotes = listed(remotes);
        let place =
            CodeHostBranch::among(&sites(), &remotes, Pushed::of("work", tracked, &remotes), resolved)?;
        let chosen = place.chosen.iter().map(|repo| format!("={}", repo.full()));
        let others = place.others.iter().map(Repo::full);
        Ok((format!("{}:{}", place.head.full(), place.branch), chosen.chain(others).collect()))
    }

    const UPSTREAM: (&str, &str) = ("upstream", "https://github.com/inn/stable.git");
    const FORK: (&str, &str) = ("origin", "git@github.com:ada/stable.git");

    #[test]
    fn a_branch_is_where_it_is_pushed() {
        let of = |tracked: &str| place(&[FORK, UPSTREAM], tracked, "").unwrap().0;
        assert_eq!(of(""), "ada/stable:work", "before the first commit");
        assert_eq!(of("origin\t\t\t\t"), "ada/stable:work");
        assert_eq!(of("upstream\t\t\t\t"), "inn/stable:work", "remote.pushDefault");
        let tracks_main = "origin\t\t\torigin\trefs/heads/main";
        assert_eq!(of(tracks_main), "ada/stable:work", "a branch that was created from another");
        assert_eq!(
            of("origin\t\trefs/remotes/origin/theirs\torigin\trefs/heads/theirs"),
            "ada/stable:theirs"
        );
        assert_eq!(
            of("origin\trefs/heads/users/ada/work\t\t\t"),
            "ada/stable:users/ada/work",
            "a push refspec"
        );
        let url = "git@github.com:eve/stable.git";
        assert_eq!(
            of(&format!("{url}\t\t\t{url}\trefs/heads/patch-1")),
            "eve/stable:patch-1",
            "gh pr checkout"
        );
    }

    #[test]
    fn the_other_remotes_are_possible_targets() {
        let mirror = ("mirror", "https://gitlab.com/inn/stable.git");
        let third = ("eve", "https://github.com/eve/stable");
        let again = ("again", "ssh://git@github.com/INN/stable");
        let (_, others) = place(&[third, FORK, again, mirror, UPSTREAM], "origin\t\t\t\t", "").unwrap();
        assert_eq!(others, ["inn/stable", "eve/stable"], "on the same host, each once");
        let resolved = "remote.upstream.gh-resolved base";
        assert_eq!(place(&[FORK, UPSTREAM], "", resolved).unwrap().1, ["=inn/stable", "inn/stable"]);
        let resolved = "remote.origin.gh-resolved far/away";
        assert_eq!(place(&[FORK], "", resolved).unwrap().1, ["=far/away"]);
    }

    #[test]
    fn a_place_may_be_nowhere() {
        let refusal = |fetch: &str, push: &str, tracked: &str| {
            let remotes = remotes_of(&format!("origin\t{fetch} (fetch)\norigin\t{push} (push)\n"));
            let pushed = Pushed::of("work", tracked, &remotes);
            let nowhere = CodeHostBranch::among(&sites(), &remotes, pushed, "").unwrap_err();
            nowhere.refusal(Path::new("/inn")).message
        };
        let hub = "https://github.com/inn/stable";
        let configure = "which is not configured; add hosts.\"code.example:8443\" to the options of @ostler/github with kind github, gitlab or forgejo";
        for (fetch, push, expected) in [
            // The push URL is named where it is not that for fetching, which may be on a code host.
            (hub, "/srv/git/stable.git", "the push URL of the remote origin of /inn, /srv/git/stable.git, is not on a code host; change it with git remote set-url --push origin <url>".to_owned()),
            (hub, "file:///srv/stable", "the push URL of the remote origin of /inn, file:///srv/stable, is not on a code host; change it with git remote set-url --push origin <url>".to_owned()),
            (hub, "no-push", "the push URL of the remote origin of /inn, no-push, is not on a code host; change it with git remote set-url --push origin <url>".to_owned()),
            (hub, "https://ada:secret@code.example:8443/a/b", format!("the push URL of the remote origin of /inn, https://code.example:8443/a/b, is on code.example:8443, {configure}")),
            (hub, "https://ada:s@cret@github.com/stable", "the push URL of the remote origin of /inn, https://github.com/stable, is not on a code host; change it with git remote set-url --push origin <url>".to_owned()),
            // One URL for both.
            ("/srv/stable", "/srv/stable", "the URL of the remote origin of /inn, /srv/stable, is not on a code host; change it with git remote set-url origin <url>".to_owned()),
            ("https://code.example:8443/a/b", "https://code.example:8443/a/b", format!("the URL of the remote origin of /inn, https://code.example:8443/a/b, is on code.example:8443, {configure}")),
        ] {
            assert_eq!(refusal(fetch, push, ""), expected);
        }
        // The branch names a URL in place of a remote.
        let url = "https://ada:secret@code.example/a/b";
        let tracked = format!("{url}\trefs/heads/theirs\t\t\t");
        let message = refusal(hub, hub, &tracked);
        assert!(message.starts_with("the URL to which the branch work of /inn is pushed, https://code.example/a/b, is on code.example, which"), "{message}");
        // Fetching from elsewhere does not matter.
        let remotes = remotes_of(&format!("origin\t/srv/stable (fetch)\norigin\t{hub} (push)\n"));
        let pushed = Pushed::of("work", "", &remotes);
        let place = CodeHostBranch::among(&sites(), &remotes, pushed, "").unwrap();
        assert_eq!(place.head.full(), "inn/stable");
    }

    #[test]
    fn github_is_known_by_its_hosts() {
        let sites = sites();
        for (url, yes) in [
            ("https://github.com/inn/stable", true),
            ("git@ghe.example:inn/stable.git", true),
            ("https://ghe.example/inn/stable", true),
            ("https://lab.example/inn/stable", false),
            ("https://other.example/inn/stable", false),
            ("/srv/github.com/stable", false),
        ] {
            assert_eq!(is_github(&sites, url), yes, "{url}");
        }
    }

    #[test]
    fn remotes_have_two_urls() {
        let listed = "a\thttps://x/a b (fetch) [blob:none]\na\tssh://y/p (push)\na\tssh://z/q (push)\nb\th:c/d (push)\n";
        let remote = |name: &str, fetch: &str, push: &str| Remote {
            name: name.to_owned(),
            fetch: fetch.to_owned(),
            push: push.to_owned(),
        };
        assert_eq!(
            remotes_of(listed),
            [remote("a", "https://x/a b", "ssh://y/p"), remote("b", "h:c/d", "h:c/d")]
        );
    }
}
