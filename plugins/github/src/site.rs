//! The code hosts of the configuration: their kind, their API and their token.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::points::Resource;
use ostler_contract::{Options, Secret, Thrown, Value, json};
use serde::Deserialize;
use tokio::sync::Semaphore;
use url::{Host, Url};

use crate::remote::Address;

/// The software of a code host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// GitHub, also GitHub Enterprise.
    Github,
    /// GitLab.
    Gitlab,
    /// Forgejo, and Gitea, whose API it has.
    Forgejo,
}

impl Kind {
    /// Returns its name for a pull request.
    pub(crate) fn pull_request(self) -> &'static str {
        match self {
            Self::Gitlab => "merge request",
            Self::Github | Self::Forgejo => "pull request",
        }
    }
}

/// The maximum number of concurrent searches on one host.
const SEARCHES: usize = 8;
/// The built-in hosts.
const KNOWN: &[(&str, Kind)] =
    &[("codeberg.org", Kind::Forgejo), ("github.com", Kind::Github), ("gitlab.com", Kind::Gitlab)];

/// The option `token` of a host.
#[derive(Debug, Clone)]
pub(crate) enum TokenOption {
    /// The token itself.
    Plain(Secret<String>),
    /// The name of a secret, which is read for each use.
    Named(String),
}

/// One code host.
#[derive(Debug)]
pub(crate) struct Site {
    /// Its name in remotes and the configuration.
    pub name: String,
    pub kind: Kind,
    /// The address of its API, without a slash at its end.
    pub api: String,
    pub token: Option<TokenOption>,
    /// Whether clients provide tokens for it.
    pub lent: bool,
    /// Limits the searches that run at a time: a slow host delays those of no other.
    pub searches: Semaphore,
}

/// A repository of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repo {
    /// The user or group, with the groups it is in.
    pub owner: String,
    pub name: String,
}

impl Repo {
    /// Reads `owner/name`.
    pub(crate) fn of(full: &str) -> Option<Self> {
        let (owner, name) = full.rsplit_once('/')?;
        (!owner.is_empty() && !name.is_empty())
            .then(|| Self { owner: owner.to_owned(), name: name.to_owned() })
    }

    pub(crate) fn full(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// Code hosts ignore case.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.owner.eq_ignore_ascii_case(&other.owner) && self.name.eq_ignore_ascii_case(&other.name)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configured {
    hosts: BTreeMap<String, HostOptions>,
    sign_in: String,
    gh: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HostOptions {
    kind: Option<Kind>,
    api: Option<String>,
    token: Option<Secretive>,
}

/// A value that is not printed with the options around it.
#[derive(Deserialize)]
#[serde(transparent)]
struct Secretive(Value);

impl std::fmt::Debug for Secretive {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(ostler_contract::secret::SET)
    }
}

impl Default for Configured {
    fn default() -> Self {
        Self { hosts: BTreeMap::new(), sign_in: "github.com".to_owned(), gh: true }
    }
}

/// The code hosts, by name.
#[derive(Debug)]
pub(crate) struct Sites {
    all: BTreeMap<String, Arc<Site>>,
    sign_in: String,
    /// Whether tokens of the program `gh` are used.
    pub gh: bool,
}

impl Sites {
    /// Reads the options.
    ///
    /// # Errors
    /// The option that is wrong, and how to write it.
    pub(crate) fn read(options: &Options) -> Result<Self, Thrown> {
        let configured = Configured::deserialize(&Value::Object((**options).clone())).map_err(Thrown::new)?;
        let mut hosts: BTreeMap<String, HostOptions> =
            KNOWN.iter().map(|(name, _)| ((*name).to_owned(), HostOptions::default())).collect();
        hosts.extend(configured.hosts.into_iter().map(|(name, host)| (name.to_ascii_lowercase(), host)));
        let mut all = BTreeMap::new();
        for (name, host) in hosts {
            let lent = name == configured.sign_in;
            let site =
                site(&name, host, lent).map_err(|why| Thrown::new(format_args!("hosts.{name}.{why}")))?;
            all.insert(name, Arc::new(site));
        }
        match all.get(&configured.sign_in) {
            Some(site) if site.kind == Kind::Github => {}
            Some(_) => {
                return Err(Thrown::new(format_args!("signIn: {} is not a GitHub host", configured.sign_in)));
            }
            None => {
                return Err(Thrown::new(format_args!(
                    "signIn: {0} is not one of the hosts; add hosts.{0} with kind github",
                    configured.sign_in
                )));
            }
        }
        Ok(Self { all, sign_in: configured.sign_in, gh: configured.gh })
    }

    /// The site of a remote's repository.
    pub(crate) fn of(&self, address: &Address) -> Option<(Arc<Site>, Repo)> {
        let site = address.names().find_map(|name| self.all.get(&name))?.clone();
        let path = &address.path;
        let (name, owner) = path.split_last()?;
        let owner = match site.kind {
            Kind::Github if path.len() != 2 => return None,
            Kind::Gitlab => owner.join("/"),
            // It can be served below a path of its host.
            Kind::Github | Kind::Forgejo => owner.last()?.clone(),
        };
        Some((site, Repo { owner, name: name.clone() }))
    }

    /// Returns the protected resource whose tokens clients provide.
    pub(crate) fn resource(&self) -> Resource {
        match self.all.get(&self.sign_in) {
            Some(site) => site.resource(),
            None => Resource::default(),
        }
    }
}

impl Site {
    /// The protected resource of a GitHub host, as clients sign in to it.
    pub(crate) fn resource(&self) -> Resource {
        let mut resource = Resource::named(&format!("{}/repos", self.api));
        resource.0.resource_name = Some("GitHub Repository".to_owned());
        resource.0.authorization_servers = Some(vec![format!("https://{}/login/oauth", self.name)]);
        resource.0.scopes_supported = Some(vec!["repo".to_owned()]);
        resource.0.required = Some(false);
        resource
    }
}

fn site(name: &str, host: HostOptions, lent: bool) -> Result<Site, String> {
    let known = KNOWN.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    let kind = host.kind.or(known).ok_or("kind is missing; set it to github, gitlab or forgejo")?;
    let api = match host.api {
        Some(api) => checked(&api).map_err(|why| format!("api: {why}"))?,
        None => default_api(name, kind),
    };
    let token = host.token.map(|token| token_option(token.0)).transpose()?;
    let searches = Semaphore::new(SEARCHES);
    Ok(Site { name: name.to_owned(), kind, api, token, lent, searches })
}

fn default_api(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Github if name == "github.com" || name.ends_with(".ghe.com") => format!("https://api.{name}"),
        Kind::Github => format!("https://{name}/api/v3"),
        Kind::Gitlab => format!("https://{name}/api/v4"),
        Kind::Forgejo => format!("https://{name}/api/v1"),
    }
}

/// The address of an API: tokens are sent there, so it is encrypted or does not leave this machine.
fn checked(api: &str) -> Result<String, String> {
    let url = Url::parse(api).map_err(|why| format!("{api} is not a URL: {why}"))?;
    let loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let shown = format!("{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path());
    match url.scheme() {
        "https" => {}
        "http" if loopback => {}
        _ => return Err(format!("{shown} is not an https URL")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("{shown} contains a user name or password; set token instead"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("{shown} contains a query or fragment"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn token_option(token: Value) -> Result<TokenOption, String> {
    match token {
        Value::String(token) if !token.trim().is_empty() => {
            Ok(TokenOption::Plain(Secret::new(token.trim().to_owned())))
        }
        Value::Object(fields) => match fields.get("$secret").and_then(Value::as_str) {
            Some(name) => Ok(TokenOption::Named(name.to_owned())),
            None => Err(format!("token: write a secret as {}", json!({ "$secret": "host:<name>" }))),
        },
        _ => Err("token is empty; leave it out to use none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: Value) -> Result<Sites, String> {
        let Value::Object(options) = options else { panic!("no object") };
        Sites::read(&options.into()).map_err(|why| why.message)
    }

    fn of(sites: &Sites, remote: &str) -> Option<(String, String)> {
        let (site, repo) = sites.of(&Address::parse(remote).unwrap())?;
        Some((site.api.clone(), repo.full()))
    }

    #[test]
    fn hosts_have_the_api_of_their_kind() {
        let sites = read(json!({ "hosts": {
            "ghe.example": { "kind": "github" }, "inn.ghe.com": { "kind": "github" }, "Lab.example": { "kind": "gitlab" },
            "forge.example:3000": { "kind": "forgejo", "api": "http://127.0.0.1:3000/git/api/v1/" },
            "work": { "kind": "github", "api": "https://api.github.com" }
        } }))
        .unwrap();
        for (remote, api, repo) in [
            ("git@github.com:inn/stable.git", "https://api.github.com", "inn/stable"),
            ("https://gitlab.com/a/b/c.git", "https://gitlab.com/api/v4", "a/b/c"),
            ("ssh://git@codeberg.org/inn/stable", "https://codeberg.org/api/v1", "inn/stable"),
            ("git@ghe.example:inn/stable.git", "https://ghe.example/api/v3", "inn/stable"),
            ("git@inn.ghe.com:inn/stable.git", "https://api.inn.ghe.com", "inn/stable"),
            ("git@lab.example:inn/stable.git", "https://lab.example/api/v4", "inn/stable"),
            ("https://forge.example:3000/git/inn/stable", "http://127.0.0.1:3000/git/api/v1", "inn/stable"),
            ("work:inn/stable.git", "https://api.github.com", "inn/stable"),
        ] {
            assert_eq!(of(&sites, remote), Some((api.to_owned(), repo.to_owned())), "{remote}");
        }
        assert_eq!(of(&sites, "https://forge.example/inn/stable"), None, "another port is another host");
        assert_eq!(of(&sites, "https://elsewhere.example/inn/stable"), None);
        assert_eq!(of(&sites, "https://github.com/a/b/c"), None, "GitHub has no groups");
        assert_eq!(sites.resource().0.resource, "https://api.github.com/repos");
        let own = read(json!({ "signIn": "ghe.example", "hosts": { "ghe.example": { "kind": "github" } } }))
            .unwrap();
        assert_eq!(own.resource().0.resource, "https://ghe.example/api/v3/repos");
        let servers = own.resource().0.authorization_servers;
        assert_eq!(servers, Some(vec!["https://ghe.example/login/oauth".to_owned()]));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_shown() {
        for (options, why) in [
            (
                json!({ "hosts": { "a.example": {} } }),
                "hosts.a.example.kind is missing; set it to github, gitlab or forgejo",
            ),
            (
                json!({ "hosts": { "github.com": { "api": "http://api.example" } } }),
                "hosts.github.com.api: http://api.example/ is not an https URL",
            ),
            (
                json!({ "hosts": { "github.com": { "api": "https://me:SECRET@api.example" } } }),
                "hosts.github.com.api: https://api.example/ contains a user name or password; set token instead",
            ),
            (
                json!({ "hosts": { "github.com": { "token": " " } } }),
                "hosts.github.com.token is empty; leave it out to use none",
            ),
            (json!({ "signIn": "gitlab.com" }), "signIn: gitlab.com is not a GitHub host"),
            (
                json!({ "signIn": "a.example" }),
                "signIn: a.example is not one of the hosts; add hosts.a.example with kind github",
            ),
        ] {
            assert_eq!(read(options).unwrap_err(), why);
        }
        let sites = read(json!({ "hosts": { "github.com": { "token": "SECRET" } } })).unwrap();
        assert!(!format!("{sites:?}").contains("SECRET"));
    }
}
