//! `--remote <url>`: commands that use the daemon at a URL over its HTTP API or the protocol.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use ostler_contract::http::{Body, HeaderValue, Method, Request, StatusCode, header};
use ostler_contract::{Secret, Value};
use ostler_net::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::{Host, Url};

use crate::answer::Common;
use crate::api::rows::{self, ROWS};
use crate::daemon_file::Record;
use crate::exit::Exit;

/// The environment variable with the token.
pub const TOKEN: &str = "OSTLER_TOKEN";
/// The limit of a request, which may install a package.
const ANSWERS_WITHIN: Duration = Duration::from_secs(600);
/// The maximum size of an answer.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;
/// The characters that are escaped in a path segment.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Commands that are clients of the protocol. Those of the HTTP API are the commands of its rows.
pub const OVER_PROTOCOL: &[&str] = &[
    "automation list",
    "automation show",
    "automation run",
    "automation enable",
    "automation disable",
    "automation rm",
    "session send",
    "session follow",
    "session dispose",
    "agent list",
    "agent check",
    "agent logout",
    "agent sessions",
    "agent import",
];

/// Returns whether a command can use another computer's daemon.
pub fn reaches(command: &str) -> bool {
    let sends = |row: &rows::Row| row.command.is_some_and(|of| words(of) == command);
    OVER_PROTOCOL.contains(&command) || ROWS.iter().any(sends)
}

/// Returns the words of a row's command without its arguments.
pub fn words(command: &str) -> &str {
    let typed = command.find(" <").map_or(command, |at| &command[..at]);
    typed.strip_suffix(" unset").unwrap_or(typed)
}

/// A daemon at a URL.
#[derive(Debug, Clone)]
pub struct Remote {
    base: Url,
    token: Option<Secret<String>>,
}

impl Remote {
    /// Returns the daemon of `--remote`, if given.
    ///
    /// # Errors
    /// Exit 2 for an invalid URL, one that sends the token unencrypted, or a token file that cannot be read.
    pub fn of(common: &Common) -> Result<Option<Self>, Exit> {
        let Common { remote, token_file, allow_http, .. } = common;
        let Some(url) = remote else {
            return match (token_file, allow_http) {
                (Some(_), _) => Err(Exit::usage("--token-file requires --remote")),
                (None, true) => Err(Exit::usage("--allow-http requires --remote")),
                (None, false) => Ok(None),
            };
        };
        let base = checked(url, *allow_http).map_err(|why| Exit::usage(format!("--remote: {why}")))?;
        Ok(Some(Self { base, token: token(token_file.as_deref(), std::env::var(TOKEN).ok())? }))
    }

    /// Returns the daemon of this computer that left a record.
    ///
    /// # Errors
    /// Exit 1 if its record has no valid URL.
    pub fn here(record: &Record) -> Result<Self, Exit> {
        let base = checked(&record.url, true).map_err(Exit::machine)?;
        let token = Url::parse(&record.connect_url).ok().and_then(|url| {
            let token = url.query_pairs().find(|(name, _)| name == "tkn");
            token.map(|(_, token)| Secret::new(token.into_owned()))
        });
        Ok(Self { base, token })
    }

    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Returns the URL for AHP clients, with the token in the form of [`crate::client::Connection::open`].
    pub fn websocket(&self) -> String {
        let mut url = format!("ws{}/", self.url().trim_start_matches("http"));
        if let Some(token) = &self.token {
            url.push_str("?tkn=");
            url.extend(utf8_percent_encode(token.reveal(), IN_PATH));
        }
        url
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// Like [`Remote::send`].
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, Exit> {
        self.send(path, None).await
    }

    /// Sends a GET request to a path with a query.
    ///
    /// # Errors
    /// As [`Remote::send`].
    pub async fn get_selected<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<A, Exit> {
        let query = serde_json::to_value(query).map_err(|error| Exit::machine(error.to_string()))?;
        let mut pairs = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in query.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            pairs.append_pair(name, &text);
        }
        self.send(&format!("{path}?{}", pairs.finish()), None).await
    }

    /// Sends a GET request to a path that ends with a name.
    ///
    /// # Errors
    /// Like [`Remote::send`].
    pub async fn get_named<A: DeserializeOwned>(&self, path: &str, name: &str) -> Result<A, Exit> {
        self.send(&named(path, name), None).await
    }

    /// Sends a GET request to a path that ends with a name, with a query.
    ///
    /// # Errors
    /// Like [`Remote::send`].
    pub async fn get_named_selected<A: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        query: &impl Serialize,
    ) -> Result<A, Exit> {
        self.get_selected(&named(path, name), query).await
    }

    /// Sends a change to a path.
    ///
    /// # Errors
    /// Like [`Remote::send`].
    pub async fn post<A: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<A, Exit> {
        self.send(path, Some(text(body)?)).await
    }

    /// Sends a change to a path that ends with a name.
    ///
    /// # Errors
    /// Like [`Remote::send`].
    pub async fn post_named<A: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        body: &impl Serialize,
    ) -> Result<A, Exit> {
        self.send(&named(path, name), Some(text(body)?)).await
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Exit 1 if the daemon does not respond or fails, exit 2 if it rejects the token or the request.
    async fn send<A: DeserializeOwned>(&self, path: &str, body: Option<String>) -> Result<A, Exit> {
        let url = format!("{}{path}", self.url());
        let mut request = Request::new(Body::from(body.clone().unwrap_or_default()));
        *request.method_mut() = if body.is_some() { Method::POST } else { Method::GET };
        *request.uri_mut() = url.parse().map_err(|_| Exit::usage(format!("{url} is not a valid URL")))?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
                .map_err(|_| Exit::usage("the token contains characters that are not allowed in a header"))?;
            bearer.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, bearer);
        }
        let asked = tokio::time::timeout(ANSWERS_WITHIN, asked(request));
        let (status, answer) = match asked.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(why)) => return Err(self.unreachable(&why)),
            Err(_) => {
                let seconds = ANSWERS_WITHIN.as_secs();
                return Err(self.unreachable(&format!("no response within {seconds} seconds")));
            }
        };
        if status == StatusCode::OK {
            return serde_json::from_slice(&answer).map_err(|error| {
                Exit::machine(format!("{url} did not return what a daemon of this version returns: {error}"))
            });
        }
        let said: Option<Value> = serde_json::from_slice(&answer).ok();
        let said = said.and_then(|said| Some(said.get("message")?.as_str()?.to_owned()));
        Err(self.refused(status, said))
    }

    fn unreachable(&self, why: &dyn Display) -> Exit {
        Exit::machine(format!("cannot reach the daemon at {}: {why}", self.url()))
    }

    fn refused(&self, status: StatusCode, said: Option<String>) -> Exit {
        let url = self.url();
        match (status, said) {
            (StatusCode::UNAUTHORIZED, _) if self.token.is_none() => {
                Exit::usage(format!("{url} requires a token; set {TOKEN} or pass --token-file"))
            }
            (StatusCode::UNAUTHORIZED, _) => {
                Exit::usage(format!("{url} does not accept the token of {TOKEN} or --token-file"))
            }
            (StatusCode::FORBIDDEN, Some(said)) => Exit::usage(format!("{url} denied the request: {said}")),
            (StatusCode::NOT_FOUND, Some(said)) if said.starts_with("No API at ") => Exit::machine(format!(
                "{url} serves no HTTP API, or an older one ({said}); set \"http\": true in its configuration"
            )),
            (status, Some(said)) if status.is_client_error() && status != StatusCode::CONFLICT => {
                Exit::usage(said)
            }
            (_, Some(said)) => Exit::machine(said),
            (status, None) => Exit::machine(format!("{url} is not a daemon: it returned {status}")),
        }
    }
}

async fn asked(request: Request) -> Result<(StatusCode, Vec<u8>), String> {
    let response = Client::default().send(request).await.map_err(|why| why.to_string())?;
    let status = response.status();
    let mut answer = Vec::new();
    if let Some(mut chunks) = response.into_body() {
        while let Some(chunk) = chunks.next().await {
            answer.extend_from_slice(&chunk.map_err(|why| why.to_string())?);
            if answer.len() > ANSWER_LIMIT {
                return Err("the response is too large".to_owned());
            }
        }
    }
    Ok((status, answer))
}

fn text(body: &impl Serialize) -> Result<String, Exit> {
    serde_json::to_string(body).map_err(|error| Exit::machine(error.to_string()))
}

fn named(path: &str, name: &str) -> String {
    format!("{path}{}", utf8_percent_encode(name, IN_PATH))
}

/// Returns the base of a daemon's URLs. It receives a token, so it must be encrypted or local.
fn checked(url: &str, allow_http: bool) -> Result<Url, String> {
    // Users can paste URLs that the daemon prints.
    let plain = url.strip_prefix("ws").map_or_else(|| url.to_owned(), |rest| format!("http{rest}"));
    let mut base = Url::parse(&plain).map_err(|why| format!("{url} is not a URL: {why}"))?;
    // Not shown, because a URL can contain a token.
    if !base.username().is_empty() || base.password().is_some() || base.query().is_some() {
        return Err(format!("the URL must not contain credentials; set {TOKEN} or pass --token-file"));
    }
    if !matches!(base.scheme(), "http" | "https") {
        return Err(format!("{url} is not an http or https URL"));
    }
    let loopback = match base.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => return Err(format!("{url} has no host")),
    };
    if base.scheme() == "http" && !loopback && !allow_http {
        return Err(format!(
            "{url} is not encrypted, so the token could be read on the way; use https, or pass --allow-http"
        ));
    }
    base.set_fragment(None);
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/api").unwrap_or(path).to_owned();
    base.set_path(&path);
    Ok(base)
}

fn token(file: Option<&Path>, variable: Option<String>) -> Result<Option<Secret<String>>, Exit> {
    let text = match file {
        None => variable,
        Some(file) => {
            let shown = file.display();
            let text = std::fs::read_to_string(file)
                .map_err(|error| Exit::usage(format!("{shown} could not be read: {error}")))?;
            match text.trim().is_empty() {
                true => return Err(Exit::usage(format!("{shown} is empty; write the daemon's token to it"))),
                false => Some(text),
            }
        }
    };
    Ok(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).map(Secret::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_encrypted_or_stays_at_this_computer() {
        for (url, base) in [
            ("http://127.0.0.1:9187", "http://127.0.0.1:9187/"),
            ("http://localhost:9187/api", "http://localhost:9187/"),
            ("ws://[::1]:9187/", "http://[::1]:9187/"),
            ("https://agents.example.org/ostler/", "https://agents.example.org/ostler"),
            ("wss://agents.example.org", "https://agents.example.org/"),
        ] {
            assert_eq!(checked(url, false).unwrap().as_str(), base);
        }
        for (url, says) in [
            ("http://agents.example.org", "is not encrypted"),
            ("ws://192.0.2.1", "is not encrypted"),
            ("http://localhost.example.org", "is not encrypted"),
            ("https://agents.example.org/?tkn=SECRET", "must not contain credentials"),
            ("https://me:SECRET@agents.example.org", "must not contain credentials"),
            ("ftp://agents.example.org", "is not an http or https URL"),
            ("agents.example.org", "is not a URL"),
        ] {
            let why = checked(url, false).unwrap_err();
            assert!(why.contains(says) && !why.contains("SECRET"), "{why}");
        }
        assert!(checked("http://agents.example.org", true).is_ok());
    }

    #[test]
    fn a_path_before_the_api_stays() {
        let base = checked("https://agents.example.org/ostler/api/", false).unwrap();
        let token = Some(Secret::new("a b".to_owned()));
        let remote = Remote { base, token };
        assert_eq!(remote.url(), "https://agents.example.org/ostler");
        assert_eq!(remote.websocket(), "wss://agents.example.org/ostler/?tkn=a%20b");
    }

    #[test]
    fn a_token_file_takes_precedence_over_the_variable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "of-file\n").unwrap();
        let read = |file: Option<&Path>, variable: Option<&str>| {
            token(file, variable.map(str::to_owned)).map(|token| token.map(|token| token.reveal().clone()))
        };
        assert_eq!(read(Some(&file), Some("of-variable")).unwrap().as_deref(), Some("of-file"));
        assert_eq!(read(None, Some("of-variable")).unwrap().as_deref(), Some("of-variable"));
        assert_eq!(read(None, Some("")).unwrap(), None);
        std::fs::write(&file, "\n").unwrap();
        assert!(read(Some(&file), None).unwrap_err().to_string().contains("is empty"));
    }
}
