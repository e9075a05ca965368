//! Requests to the APIs of code hosts: conditional, paginated, within the host's limits, with bounded time and memory.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ostler_contract::http::{Body, HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use ostler_contract::{PluginHost, Value};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use crate::cache::{Cache, Cached};
use crate::credential::Credential;
use crate::failure::{Failure, FailureKind};
use crate::site::{Kind, Site};

const READ_LIMIT: Duration = Duration::from_secs(10);
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of a response, in bytes.
const BODY_LIMIT: usize = 8 << 20;
/// How many redirects are followed.
const REDIRECTS: usize = 3;
/// The default pause after a host's rate limit.
const PAUSE: Duration = Duration::from_secs(60);
/// The maximum pause after a host's rate limit.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// The maximum number of stored pauses.
const PAUSES: usize = 1024;

/// The characters that are not escaped in a segment of a path or a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A value as a part of a path, or in a query.
pub(crate) fn encoded(part: &str) -> String {
    utf8_percent_encode(part, PLAIN).to_string()
}

/// The identity of a request: a host and a token.
type RequestIdentity = (String, u64);

/// The client of all code hosts.
#[derive(Debug)]
pub(crate) struct Api {
    host: PluginHost,
    /// The key with which tokens are compared without storing them.
    hasher: RandomState,
    cache: Mutex<Cache<(String, u64)>>,
    pauses: Mutex<HashMap<RequestIdentity, Pause>>,
}

/// A pause of requests to a host.
#[derive(Debug, Clone, Copy)]
struct Pause {
    end: Instant,
    until: SystemTime,
}

/// The API of one host with one token.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    pub api: &'a Api,
    pub site: &'a Site,
    pub credential: Credential,
    /// A number of the token.
    token: u64,
}

/// A response.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Api {
    pub(crate) fn new(host: PluginHost) -> Self {
        Self { host, hasher: RandomState::new(), cache: Mutex::default(), pauses: Mutex::default() }
    }

    pub(crate) fn asking<'a>(&'a self, site: &'a Site, credential: Credential) -> Asking<'a> {
        let token = self.hasher.hash_one(credential.token.as_ref().map(|token| token.reveal().as_str()));
        Asking { api: self, site, credential, token }
    }
}

impl Asking<'_> {
    /// Reads one object; `path` is below the API's address, `about` the repository for messages.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, about: &str) -> Result<T, Failure> {
        let (body, _) = self.read(&format!("{}{path}", self.site.api), about).await?;
        self.parsed(&body)
    }

    /// Reads a list, up to a number of pages.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        pages: usize,
        about: &str,
    ) -> Result<Vec<T>, Failure> {
        let mut rows = Vec::new();
        for page in self.pages::<Vec<T>>(path, pages, about).await? {
            rows.extend(page);
        }
        Ok(rows)
    }

    /// Reads several pages, up to a number.
    pub(crate) async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        pages: usize,
        about: &str,
    ) -> Result<Vec<T>, Failure> {
        let mut all = Vec::new();
        let mut url = Some(format!("{}{path}", self.site.api));
        while let Some(next) = url.take().filter(|_| all.len() < pages) {
            let (body, following) = self.read(&next, about).await?;
            all.push(self.parsed(&body)?);
            url = following.filter(|url| *url != next);
        }
        Ok(all)
    }

    /// Creates something.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        about: &str,
    ) -> Result<T, Failure> {
        let url = format!("{}{path}", self.site.api);
        let answer = self.send(Method::POST, &url, Some(body), None).await?;
        match answer.status.is_success() {
            true => self.parsed(&answer.body),
            false => Err(self.failed(&answer, about)),
        }
    }

    /// Reads a URL, from the cache if the host reports that it is unchanged; returns also the URL of the next page.
    async fn read(&self, url: &str, about: &str) -> Result<(Bytes, Option<String>), Failure> {
        let key = (url.to_owned(), self.token);
        let known = self.api.cache.lock().get(&key);
        let answer = self.send(Method::GET, url, None, known.as_ref().map(|known| &known.etag)).await?;
        match (answer.status, known) {
            (StatusCode::NOT_MODIFIED, Some(known)) => Ok((known.body, known.next)),
            (status, _) if status.is_success() => {
                let next = next_page(&answer.headers).filter(|next| same_origin(url, next));
                if let Some(etag) = answer.headers.get(header::ETAG) {
                    let cached = Cached { etag: etag.clone(), body: answer.body.clone(), next: next.clone() };
                    self.api.cache.lock().put(key, cached);
                }
                Ok((answer.body, next))
            }
            _ => Err(self.failed(&answer, about)),
        }
    }

    fn parsed<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(body).map_err(|why| {
            // The position of the error, without the text there.
            Failure::other(format_args!(
                "{}: the response of {} is not that of a {} API (line {}, column {}); check hosts.\"{0}\".api and kind",
                self.site.name,
                self.site.api,
                match self.site.kind {
                    Kind::Github => "GitHub",
                    Kind::Gitlab => "GitLab",
                    Kind::Forgejo => "Forgejo",
                },
                why.line(),
                why.column()
            ))
        })
    }

    fn failed(&self, answer: &Answer, about: &str) -> Failure {
        if let Some(pause) = limit_of(answer) {
            let until = SystemTime::now() + pause;
            let mut pauses = self.api.pauses.lock();
            if pauses.len() >= PAUSES {
                pauses.retain(|_, pause| pause.end > Instant::now());
            }
            if pauses.len() < PAUSES {
                pauses.insert(self.whom(), Pause { end: Instant::now() + pause, until });
            }
            return Failure::limited(self.site, &self.credential, until);
        }
        Failure::of(self.site, &self.credential, about, answer.status.as_u16(), &answer.body)
    }

    fn whom(&self) -> RequestIdentity {
        (self.site.name.clone(), self.token)
    }

    /// Sends a request and follows redirects within the API; a token goes nowhere else.
    async fn send(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        etag: Option<&HeaderValue>,
    ) -> Result<Answer, Failure> {
        let pause = self.api.pauses.lock().get(&self.whom()).copied();
        if let Some(pause) = pause.filter(|pause| pause.end > Instant::now()) {
            return Err(Failure::limited(self.site, &self.credential, pause.until));
        }
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let answer = self.exchange(&method, &url, body, etag).await?;
            let moved = match answer.status {
                StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => method == Method::GET,
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
                _ => false,
            };
            let to = answer.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            let to = to.filter(|_| moved).and_then(|to| Url::parse(&url).ok()?.join(to).ok());
            match to {
                Some(to) if same_origin(&url, to.as_str()) => url = to.into(),
                _ => return Ok(answer),
            }
        }
        Err(Failure::other(format_args!("{} redirects too often", self.site.name)))
    }

    async fn exchange(
        &self,
        method: &Method,
        url: &str,
        body: Option<&Value>,
        etag: Option<&HeaderValue>,
    ) -> Result<Answer, Failure> {
        let name = &self.site.name;
        let mut request = Request::new(body.map_or(Body::Empty, |body| Body::from(body.to_string())));
        *request.method_mut() = method.clone();
        *request.uri_mut() = url
            .parse::<Uri>()
            .map_err(|why| Failure::other(format_args!("{name}: {url} is not a valid URL to call: {why}")))?;
        let headers = request.headers_mut();
        let json = HeaderValue::from_static("application/json");
        match self.site.kind {
            Kind::Github => {
                headers.insert(header::ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
                headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
            }
            Kind::Gitlab | Kind::Forgejo => drop(headers.insert(header::ACCEPT, json.clone())),
        }
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, json);
        }
        if let Some(etag) = etag {
            headers.insert(header::IF_NONE_MATCH, etag.clone());
        }
        if let Some(token) = &self.credential.token {
            let scheme = if self.site.kind == Kind::Forgejo { "token" } else { "Bearer" };
            let mut value = HeaderValue::from_str(&format!("{scheme} {}", token.reveal())).map_err(|_| {
                Failure::new(
                    FailureKind::Other,
                    format_args!(
                        "{} contains characters that a token cannot have; {}",
                        self.credential.source.named(self.site),
                        self.credential.source.renewal(self.site)
                    ),
                )
            })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        let limit = if body.is_some() { WRITE_LIMIT } else { READ_LIMIT };
        let exchange = async {
            let response = self.api.host.send(request).await.map_err(|why| {
                Failure::other(format_args!("{name} cannot be reached at {}: {}", self.site.api, why.message))
            })?;
            let (head, body) = response.into_parts();
            let body = body.read(BODY_LIMIT).await;
            let body = body.map_err(|why| Failure::other(format_args!("the response of {name}: {why}")))?;
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(answer) => answer,
            Err(_) if body.is_some() => Err(Failure::other(format_args!(
                "{name} did not respond within {} seconds; look whether the {} exists before you create it again",
                limit.as_secs(),
                self.site.kind.pull_request()
            ))),
            Err(_) => Err(Failure::other(format_args!(
                "{name} did not respond within {} seconds; it is asked again after the next turn",
                limit.as_secs()
            ))),
        }
    }
}

/// Returns the pause that a host requests after too many requests.
fn limit_of(answer: &Answer) -> Option<Duration> {
    let number = |name: &str| answer.headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let after = number("retry-after");
    let exhausted = number("x-ratelimit-remaining").or_else(|| number("ratelimit-remaining")) == Some(0);
    let is_limit = match answer.status {
        StatusCode::TOO_MANY_REQUESTS => true,
        // GitHub also reports limits as a missing permission.
        StatusCode::FORBIDDEN => after.is_some() || exhausted || told_as_limit(&answer.body),
        StatusCode::SERVICE_UNAVAILABLE => after.is_some(),
        _ => false,
    };
    if !is_limit {
        return None;
    }
    let reset = number("x-ratelimit-reset").or_else(|| number("ratelimit-reset")).filter(|_| exhausted);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let pause = after.or_else(|| reset.map(|reset| reset.saturating_sub(now))).map(Duration::from_secs);
    Some(pause.unwrap_or(PAUSE).clamp(Duration::from_secs(1), LONGEST_PAUSE))
}

fn told_as_limit(body: &[u8]) -> bool {
    let message = serde_json::from_slice::<Value>(body).ok();
    message.is_some_and(|body| {
        body["message"].as_str().is_some_and(|text| text.to_ascii_lowercase().contains("rate limit"))
    })
}

/// The URL of the next page, from `Link: <url>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(header::LINK).into_iter().filter_map(|link| link.to_str().ok());
    links.flat_map(|links| links.split(',')).find_map(|link| {
        let (url, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = |part: &str| matches!(part.trim(), "rel=\"next\"" | "rel=next");
        rest.split(';').any(is_next).then(|| url.to_owned())
    })
}

/// Whether two URLs are of one server.
fn same_origin(one: &str, other: &str) -> bool {
    match (Url::parse(one), Url::parse(other)) {
        (Ok(one), Ok(other)) => one.origin().is_tuple() && one.origin() == other.origin(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &'static str) -> Answer {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, HeaderValue::from_str(value).unwrap());
        }
        Answer { status: StatusCode::from_u16(status).unwrap(), headers: all, body: body.into() }
    }

    #[test]
    fn the_next_page_is_named_in_a_header() {
        let next = |link: &str| next_page(&answer(200, &[("link", link)], "").headers);
        let both = "<https://a.example/x?page=1>; rel=\"prev\", <https://a.example/x?page=3>; rel=\"next\"";
        assert_eq!(next(both), Some("https://a.example/x?page=3".to_owned()));
        assert_eq!(next("<https://a.example/x?page=9>; rel=\"last\""), None);
        assert_eq!(next("nothing"), None);
        assert!(same_origin("https://a.example/x", "https://a.example:443/y"));
        assert!(!same_origin("https://a.example/x", "http://a.example/x"));
        assert!(!same_origin("https://a.example/x", "https://a.example.evil.example/x"));
        assert!(!same_origin("data:,x", "data:,x"));
    }

    #[test]
    fn limits_are_told_in_several_ways() {
        let seconds = |status, headers: &[(&'static str, &str)], body| {
            limit_of(&answer(status, headers, body)).map(|pause| pause.as_secs())
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let reset = (now + 600).to_string();
        assert_eq!(seconds(429, &[("retry-after", "7")], ""), Some(7));
        assert_eq!(seconds(429, &[("retry-after", "999999999999")], ""), Some(3600));
        assert_eq!(seconds(429, &[("retry-after", "soon")], ""), Some(60));
        assert_eq!(seconds(503, &[("retry-after", "30")], ""), Some(30));
        assert_eq!(seconds(503, &[], ""), None);
        let exhausted = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset.as_str())];
        assert!((598..=600).contains(&seconds(403, &exhausted, "").unwrap()));
        let past = [("ratelimit-remaining", "0"), ("ratelimit-reset", "1")];
        assert_eq!(seconds(429, &past, ""), Some(1));
        let secondary = r#"{ "message": "You have exceeded a secondary rate limit." }"#;
        assert_eq!(seconds(403, &[("x-ratelimit-remaining", "12")], secondary), Some(60));
        assert_eq!(seconds(403, &[("x-ratelimit-remaining", "12")], r#"{ "message": "no" }"#), None);
        assert_eq!(seconds(200, &exhausted, ""), None, "the last one of those allowed");
    }
}
