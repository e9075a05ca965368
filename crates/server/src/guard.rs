//! What a request has to show before a mount sees it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, header};
use ostler_contract::Secret;
use ostler_engine::{Gate, Principal};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;

use crate::sign_ins::SignIns;

/// The names a listener answers to: its loopback names and its bound address with the port, and names an
/// operator or a plugin announced.
#[derive(Debug, Clone, Default)]
pub struct HostNames(Arc<RwLock<Names>>);

#[derive(Debug, Default)]
struct Names {
    hosts: HashSet<String>,
    /// `<scheme>://<host>` of announced URLs that are no websites.
    others: HashSet<String>,
}

impl HostNames {
    /// The names of a bound address.
    pub fn of(address: SocketAddr) -> Self {
        let names = Self::default();
        let port = address.port();
        for name in ["127.0.0.1", "localhost", "[::1]"] {
            names.add(&format!("{name}:{port}"));
        }
        if !address.ip().is_unspecified() {
            names.add(&address.to_string());
        }
        names
    }

    /// Adds a name as it is.
    pub fn add(&self, name: &str) {
        self.0.write().hosts.insert(name.to_ascii_lowercase());
    }

    /// Adds the host of a URL, with its port and without.
    pub fn announce(&self, url: &str) {
        let Some((host, port)) = host_of(url) else { return };
        self.add(&host);
        if let Some(port) = port {
            self.add(&format!("{host}:{port}"));
        }
        if let Some(other) = url::Url::parse(url).ok().as_ref().and_then(other_origin) {
            self.0.write().others.insert(other);
        }
    }

    /// Whether an origin that is no website was announced.
    fn is_announced(&self, origin: &url::Url) -> bool {
        other_origin(origin).is_some_and(|origin| self.0.read().others.contains(&origin))
    }

    /// Whether a request asked for one of them.
    ///
    /// # Errors
    /// What it asked for instead.
    pub fn admits(&self, headers: &HeaderMap) -> Result<(), String> {
        let Some(host) = headers.get(header::HOST) else { return Err("a request with no Host".to_owned()) };
        let Ok(host) = host.to_str() else { return Err("that Host".to_owned()) };
        if host.is_empty() {
            return Err("a request with no Host".to_owned());
        }
        if self.0.read().hosts.contains(&host.to_ascii_lowercase()) { Ok(()) } else { Err(host.to_owned()) }
    }
}

fn host_of(url: &str) -> Option<(String, Option<u16>)> {
    let url = url::Url::parse(url).ok()?;
    Some((url.host_str().filter(|host| !host.is_empty())?.to_owned(), url.port_or_known_default()))
}

/// `<scheme>://<host>` of a URL that is no website and has a host.
fn other_origin(url: &url::Url) -> Option<String> {
    let host = url.host_str().filter(|host| !host.is_empty())?;
    (!matches!(url.scheme(), "http" | "https")).then(|| format!("{}://{host}", url.scheme()))
}

/// Whether a text is a URL with a host, so that announcing it adds a name.
pub fn names_a_host(url: &str) -> bool {
    host_of(url).is_some()
}

/// Origins that are no websites and still speak for a program on this machine: the windows of VS Code.
const EDITORS: &[&str] = &["vscode-file://vscode-app"];

/// Whether a handshake without a token may come from where its `Origin` says: a program sends none, an editor its own,
/// and anything else is let in only from a website of this machine or from where the operator named. Without this any
/// page or extension of a browser here could talk to the host. Two of them are two opinions of where it comes from.
pub fn origin_is_near(headers: &HeaderMap, names: &HostNames) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return false };
    if EDITORS.contains(&origin) {
        return true;
    }
    let Ok(url) = url::Url::parse(origin) else { return false };
    if !matches!(url.scheme(), "http" | "https") {
        return names.is_announced(&url);
    }
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost" || names.0.read().hosts.contains(name),
        None => false,
    }
}

/// The token that admits a connection.
#[derive(Debug, Clone)]
pub struct Token(Arc<Secret<String>>);

impl Token {
    /// A token.
    pub fn new(token: String) -> Self {
        Self(Arc::new(Secret::new(token)))
    }

    /// Compared in constant time.
    pub(crate) fn is(&self, given: &str) -> bool {
        given.as_bytes().ct_eq(self.0.reveal().as_bytes()).into()
    }
}

/// The token a request carries: `?tkn=`, which wins, or a bearer.
fn given(query: Option<&str>, headers: &HeaderMap) -> Option<Secret<String>> {
    let in_query = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "tkn")
        .map(|(_, value)| value.into_owned());
    in_query.or_else(|| bearer(headers).map(str::to_owned)).map(Secret::new)
}

/// Why a connection is not let in.
#[derive(Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A page of somewhere else asks, and shows no token.
    ForeignOrigin,
    /// It needs a token.
    NoToken,
}

/// Who comes in: the token of the host makes a connection the host's own; a person's token admits, and says who it
/// is only where the operator takes it for that; a page that signed in is who it signed in as; nobody in particular comes
/// in where no token is asked.
///
/// # Errors
/// Why it is not let in.
pub fn admit<B>(
    request: &http::Request<B>,
    token: Option<&Token>,
    names: &HostNames,
    gate: &Gate,
    sign_ins: &SignIns,
) -> Result<Principal, Rejection> {
    let headers = request.headers();
    let given = given(request.uri().query(), headers);
    // A token that is sent says more than a cookie that the browser adds.
    if given.is_none()
        && let Some(principal) = signed_in(headers, token, gate, sign_ins)
    {
        return Ok(if principal == Principal::Root { gate.root() } else { principal });
    }
    if let (Some(token), Some(given)) = (token, &given)
        && token.is(given.reveal())
    {
        return Ok(gate.root());
    }
    let person = given.and_then(|given| gate.by_token(given.reveal()));
    match (person, token) {
        (Some(person), _) => Ok(person),
        (None, Some(_)) => Err(Rejection::NoToken),
        (None, None) if !origin_is_near(headers, names) => Err(Rejection::ForeignOrigin),
        (None, None) => Ok(Principal::Anyone),
    }
}

/// Who asks by a token alone, where each request says who it is: the token of the host is the host itself, a person's
/// is that person. A page that signed in stands for the token it signed in with. Where there is no token at all, nobody
/// in particular asks. `None` where the request carries none.
pub fn caller<B>(
    request: &http::Request<B>,
    token: Option<&Token>,
    gate: &Gate,
    sign_ins: &SignIns,
) -> Option<Principal> {
    if token.is_none() && gate.people().is_none() {
        return Some(Principal::Anyone);
    }
    match given(request.uri().query(), request.headers()) {
        Some(given) => bearer_of(given.reveal(), token, gate),
        None => signed_in(request.headers(), token, gate, sign_ins),
    }
}

/// Whose a token is.
pub fn bearer_of(given: &str, token: Option<&Token>, gate: &Gate) -> Option<Principal> {
    match token {
        Some(token) if token.is(given) => Some(Principal::Root),
        _ => gate.people()?.person_of_token(given).map(Principal::Person),
    }
}

/// Who the page of a request signed in as; nobody once the token is no token any more.
fn signed_in(
    headers: &HeaderMap,
    token: Option<&Token>,
    gate: &Gate,
    sign_ins: &SignIns,
) -> Option<Principal> {
    bearer_of(sign_ins.token(headers)?.reveal(), token, gate)
}

/// The bearer token a request carries.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn a_listener_answers_to_its_own_names() {
        let names = HostNames::of("0.0.0.0:9187".parse().unwrap());
        names.announce("https://hooks.example.org/in");
        for good in
            ["127.0.0.1:9187", "LOCALHOST:9187", "[::1]:9187", "hooks.example.org", "hooks.example.org:443"]
        {
            assert!(names.admits(&headers(header::HOST, good)).is_ok(), "{good}");
        }
        for bad in ["127.0.0.1", "localhost:1", "0.0.0.0:9187", "evil.org", "hooks.example.org.evil.org"] {
            assert_eq!(names.admits(&headers(header::HOST, bad)), Err(bad.to_owned()));
        }
        for none in [HeaderMap::new(), headers(header::HOST, "")] {
            assert_eq!(names.admits(&none), Err("a request with no Host".to_owned()));
        }
    }

    #[test]
    fn a_page_from_elsewhere_is_not_near() {
        let names = HostNames::of("127.0.0.1:9187".parse().unwrap());
        names.announce("https://console.example.org");
        names.announce("tauri://console.example");
        let near = |origin: &str| origin_is_near(&headers(header::ORIGIN, origin), &names);
        for two in [["http://localhost", "https://evil.org"], ["https://evil.org", "http://localhost"]] {
            let origins = two.map(|origin| (header::ORIGIN, origin.parse().unwrap()));
            assert!(!origin_is_near(&HeaderMap::from_iter(origins), &names), "{two:?}");
        }
        assert!(origin_is_near(&HeaderMap::new(), &names));
        for good in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:1",
            "vscode-file://vscode-app",
            "https://console.example.org",
            "tauri://console.example",
        ] {
            assert!(near(good), "{good}");
        }
        for bad in [
            "https://evil.org",
            "http://localhost.evil.org",
            "null",
            "nonsense",
            "https://console.example.org.evil.org",
            "chrome-extension://abcdefghijklmnop",
            "moz-extension://5d7e",
            "file://",
            "file:///home/ann/page.html",
            "vscode-file://elsewhere",
            "vscode-webview://1a2b",
            "chrome-extension://console.example.org",
            "data:text/html,x",
            "tauri://localhost",
            "",
        ] {
            assert!(!near(bad), "{bad}");
        }
    }

    #[test]
    fn a_token_admits_by_query_or_bearer() {
        let token = Token::new("a b&c".to_owned());
        let asks = |query: &str, authorization: Option<&str>| {
            let mut request = http::Request::builder().uri(format!("/api/status?{query}"));
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            caller(&request.body(()).unwrap(), Some(&token), &Gate::default(), &SignIns::default())
        };
        assert_eq!(asks("x=1&tkn=a%20b%26c", None), Some(Principal::Root));
        assert_eq!(asks("", Some("bearer a b&c")), Some(Principal::Root));
        assert_eq!(asks("tkn=wrong", Some("Bearer a b&c")), None, "the query wins");
        assert_eq!(asks("", Some("Basic a b&c")), None);
        assert_eq!(asks("", None), None);
        assert!(!format!("{token:?}").contains("a b&c"));
    }

    #[test]
    fn a_bound_address_and_announced_urls_are_names() {
        let names = HostNames::of("192.0.2.7:80".parse().unwrap());
        assert!(names.admits(&headers(header::HOST, "192.0.2.7:80")).is_ok());
        for url in ["https://a.example", "http://a.example:8080/x", "tauri://console.example"] {
            assert!(names_a_host(url), "{url}");
        }
        for none in ["nonsense", "", "data:text/html,x", "file:///home"] {
            assert!(!names_a_host(none), "{none}");
            names.announce(none);
        }
        assert_eq!(names.0.read().hosts.len(), 4, "the loopback names and the address");
    }

    #[test]
    fn a_connection_is_admitted_by_the_token_or_without_one_by_its_origin() {
        let names = HostNames::of("127.0.0.1:9187".parse().unwrap());
        let token = Token::new("right".to_owned());
        let admitted = |token: Option<&Token>, query: &str, origin: Option<&str>| {
            let mut request = http::Request::builder().uri(format!("/?{query}"));
            if let Some(origin) = origin {
                request = request.header(header::ORIGIN, origin);
            }
            admit(&request.body(()).unwrap(), token, &names, &Gate::default(), &SignIns::default())
        };
        let (near, foreign) = (Some("http://localhost"), Some("https://evil.org"));
        assert_eq!(
            admitted(Some(&token), "tkn=right", foreign),
            Ok(Gate::default().root()),
            "whatever the origin"
        );
        for query in ["tkn=wrong", "tkn=", ""] {
            assert_eq!(admitted(Some(&token), query, near), Err(Rejection::NoToken), "{query}");
        }
        for origin in [None, near] {
            assert_eq!(admitted(None, "", origin), Ok(Principal::Anyone));
        }
        assert_eq!(admitted(None, "", foreign), Err(Rejection::ForeignOrigin));
    }
}
