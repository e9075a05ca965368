//! The token of a request: the client's, the configured one, or that of `gh`.

use std::collections::HashMap;
use std::time::Duration;

use ostler_contract::{PluginHost, Secret};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::failure::{Failure, FailureKind};
use crate::program::{self, NotRun};
use crate::site::{Kind, Site, TokenOption};

/// How long the answer of `gh` is used.
const GH_FRESH: Duration = Duration::from_secs(60);

/// A token and its source.
#[derive(Debug, Clone)]
pub(crate) struct Credential {
    pub token: Option<Secret<String>>,
    pub source: Source,
}

/// The source of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Lent by a client.
    Client,
    /// The option of its host.
    Configured(Option<String>),
    /// The program `gh`.
    Gh,
    /// None; contains how to make `gh` have one.
    None(Option<String>),
}

impl Source {
    pub(crate) fn named(&self, site: &Site) -> String {
        match self {
            Self::Client => "the client's token".to_owned(),
            Self::Configured(_) => format!("the token in hosts.\"{}\".token", site.name),
            Self::Gh => "the token of gh".to_owned(),
            Self::None(_) => "a request without a token".to_owned(),
        }
    }

    /// Returns what to do about a rejected token.
    pub(crate) fn renewal(&self, site: &Site) -> String {
        match self {
            Self::Client => "sign in again".to_owned(),
            Self::Configured(Some(secret)) => format!("store a new one with ostler vault set {secret}"),
            Self::Configured(None) => "replace it and restart the daemon".to_owned(),
            Self::Gh => sign_in_to_gh(site),
            Self::None(_) => "sign in".to_owned(),
        }
    }
}

fn sign_in_to_gh(site: &Site) -> String {
    format!("run gh auth login --hostname {}", site.name)
}

/// The answer of `gh` for a host: a token, or why there is none.
#[derive(Debug, Clone)]
struct CachedToken {
    at: Instant,
    token: Result<Secret<String>, String>,
}

/// The sources of tokens.
#[derive(Debug)]
pub(crate) struct Credentials {
    host: PluginHost,
    gh: bool,
    cached: Mutex<HashMap<String, CachedToken>>,
}

impl Credentials {
    pub(crate) fn new(host: PluginHost, gh: bool) -> Self {
        Self { host, gh, cached: Mutex::default() }
    }

    /// Returns the credential for a site. `lent` is the client's token, which is for one site only.
    ///
    /// # Errors
    /// The configured secret cannot be read.
    pub(crate) async fn of(&self, site: &Site, lent: Option<&str>) -> Result<Credential, Failure> {
        if let Some(token) = lent.filter(|token| site.lent && !token.is_empty()) {
            return Ok(Credential { token: Some(Secret::new(token.to_owned())), source: Source::Client });
        }
        match &site.token {
            Some(TokenOption::Plain(token)) => {
                return Ok(Credential { token: Some(token.clone()), source: Source::Configured(None) });
            }
            Some(TokenOption::Named(name)) => {
                let token = self.host.secret(name.clone(), None).await.map_err(|why| {
                    Failure::new(
                        FailureKind::Other,
                        format_args!("hosts.\"{}\".token: {}", site.name, why.message),
                    )
                })?;
                let token = Some(Secret::new(token.trim().to_owned()));
                return Ok(Credential { token, source: Source::Configured(Some(name.clone())) });
            }
            None => {}
        }
        if !self.gh || site.kind != Kind::Github {
            return Ok(Credential { token: None, source: Source::None(None) });
        }
        Ok(match self.gh_token(site).await {
            Ok(token) => Credential { token: Some(token), source: Source::Gh },
            Err(why) => Credential { token: None, source: Source::None(Some(why)) },
        })
    }

    /// Drops a rejected token of `gh`, which may have a newer one.
    pub(crate) fn refused(&self, site: &Site, credential: &Credential) {
        if credential.source == Source::Gh {
            self.cached.lock().remove(&site.name);
        }
    }

    async fn gh_token(&self, site: &Site) -> Result<Secret<String>, String> {
        let known =
            self.cached.lock().get(&site.name).filter(|cached| cached.at.elapsed() < GH_FRESH).cloned();
        if let Some(known) = known {
            return known.token;
        }
        let token = match program::gh(&["auth", "token", "--hostname", &site.name]).await {
            Ok(ended) if ended.code == Some(0) && !ended.out.trim().is_empty() => {
                Ok(Secret::new(ended.out.trim().to_owned()))
            }
            Ok(_) => Err(sign_in_to_gh(site)),
            Err(NotRun::Missing) => Err(format!("install gh and {}", sign_in_to_gh(site))),
            Err(NotRun::Other(why)) => Err(format!("{} ({why})", sign_in_to_gh(site))),
        };
        let cached = CachedToken { at: Instant::now(), token: token.clone() };
        self.cached.lock().insert(site.name.clone(), cached);
        token
    }
}
