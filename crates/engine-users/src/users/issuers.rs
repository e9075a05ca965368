//! Sign-in through issuers: GitHub or an OpenID Connect provider identifies the user of a token.

use std::fmt;
use std::time::Duration;

use ostler_contract::http::{Body, HeaderValue, Request, header};
use ostler_engine_core::outbound::Outbound;
use ostler_protocol::{JsonObject, Value};

/// The limit for an answer of an issuer.
const LIMIT: Duration = Duration::from_secs(10);
/// The maximum size of an answer.
const LONGEST: usize = 256 * 1024;

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Issuer {
    /// GitHub; its subjects are logins.
    GitHub,
    /// An OpenID Connect provider, by its URL.
    OpenId(String),
}

/// An issuer's statement about a token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verified {
    /// The subject of the token.
    pub subject: String,
    /// All other claims.
    pub claims: JsonObject,
}

impl fmt::Display for Issuer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GitHub => formatter.write_str("github"),
            Self::OpenId(url) => formatter.write_str(url),
        }
    }
}

impl Issuer {
    /// Parses an issuer: `github`, or the URL of an OpenID Connect provider.
    ///
    /// # Errors
    /// The valid forms.
    pub fn parse(name: &str) -> Result<Self, String> {
        if name == "github" {
            return Ok(Self::GitHub);
        }
        match is_safe(name) {
            true => Ok(Self::OpenId(name.trim_end_matches('/').to_owned())),
            false => Err("must be github or the https URL of an OpenID Connect provider".to_owned()),
        }
    }

    /// Returns the URL at which clients get tokens.
    pub fn server(&self) -> &str {
        match self {
            Self::GitHub => "https://github.com/login/oauth",
            Self::OpenId(url) => url,
        }
    }

    /// Returns the scopes that clients have to request.
    pub const fn scope(&self) -> &'static str {
        match self {
            Self::GitHub => "read:user",
            Self::OpenId(_) => "openid",
        }
    }

    /// Returns whether a subject is the user of an id. Ignores the case of logins.
    pub(super) fn means(&self, subject: &str, id: &str) -> bool {
        match self {
            Self::GitHub => subject.eq_ignore_ascii_case(id),
            Self::OpenId(_) => subject == id,
        }
    }

    /// Requests the identity of a token.
    ///
    /// # Errors
    /// Why it is unknown: the issuer does not know the token, or could not be reached. Never contains the token.
    pub async fn verify(&self, outbound: &Outbound, token: &str) -> Result<Verified, String> {
        let (asked, field) = match self {
            Self::GitHub => ("https://api.github.com/user".to_owned(), "login"),
            Self::OpenId(url) => (userinfo(outbound, url).await?, "sub"),
        };
        let claims = get(outbound, &asked, Some(token)).await?;
        let subject = claims.get(field).and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.ok_or_else(|| format!("{asked} returned no {field}"))?.to_owned();
        Ok(Verified { subject, claims })
    }
}

/// Returns the URL at which a provider identifies tokens.
async fn userinfo(outbound: &Outbound, issuer: &str) -> Result<String, String> {
    let discovery = format!("{issuer}/.well-known/openid-configuration");
    let found = get(outbound, &discovery, None).await?;
    match found.get("userinfo_endpoint").and_then(Value::as_str) {
        Some(endpoint) if is_safe(endpoint) => Ok(endpoint.to_owned()),
        Some(_) => Err(format!("{discovery} has a userinfo_endpoint that is not an https URL")),
        None => Err(format!("{discovery} has no userinfo_endpoint")),
    }
}

/// Returns whether a token can be sent to a URL: over TLS, or to this machine.
fn is_safe(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    match (url.scheme(), url.host()) {
        ("https", Some(_)) => true,
        ("http", Some(url::Host::Domain(name))) => name == "localhost",
        ("http", Some(url::Host::Ipv4(ip))) => ip.is_loopback(),
        ("http", Some(url::Host::Ipv6(ip))) => ip.is_loopback(),
        _ => false,
    }
}

/// Requests a JSON object from a URL, with a token if there is one.
async fn get(outbound: &Outbound, url: &str, token: Option<&str>) -> Result<JsonObject, String> {
    let mut request = Request::new(Body::Empty);
    *request.uri_mut() = url.parse().map_err(|_| format!("{url} cannot be asked"))?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(token) = token {
        let bearer = HeaderValue::try_from(format!("Bearer {token}"));
        let mut bearer = bearer.map_err(|_| "the token contains invalid characters".to_owned())?;
        bearer.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
    let answer = async {
        let response = outbound.send(request).await.map_err(|why| format!("{url}: {}", why.message))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("{url} returned {}", status.as_u16()));
        }
        let body = response.into_body().read(LONGEST).await.map_err(|why| format!("{url}: {why}"))?;
        match serde_json::from_slice(&body) {
            Ok(Value::Object(fields)) => Ok(fields),
            _ => Err(format!("{url} did not return a JSON object")),
        }
    };
    match tokio::time::timeout(LIMIT, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("{url} did not respond within {} seconds", LIMIT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_github_or_a_url_no_one_can_listen_to() {
        assert_eq!(Issuer::parse("github"), Ok(Issuer::GitHub));
        for good in
            ["https://id.example.org", "http://127.0.0.1:8080", "http://[::1]:1", "http://localhost:1"]
        {
            assert_eq!(Issuer::parse(good), Ok(Issuer::OpenId(good.to_owned())));
        }
        assert_eq!(
            Issuer::parse("https://id.example.org/realm/"),
            Ok(Issuer::OpenId("https://id.example.org/realm".to_owned()))
        );
        for bad in [
            "GitHub",
            "",
            "id.example.org",
            "http://id.example.org",
            "ftp://localhost",
            "http://localhost.evil.org",
        ] {
            assert!(Issuer::parse(bad).is_err(), "{bad}");
        }
    }
}
