//! Checks of a request before a mount receives it.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, header};
use ostler_contract::Secret;
use ostler_engine::users::Credential;
use ostler_engine::{Gate, Principal};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;

use crate::sign_ins::SignIns;

/// The names of a listener: its loopback names and its bound address with the port, and names that an operator or a
/// plugin announced.
#[derive(Debug, Clone, Default)]
pub struct HostNames(Arc<RwLock<Names>>);

#[derive(Debug, Default)]
struct Names {
    /// The accepted values of `Host`.
    hosts: HashSet<String>,
    /// The accepted values of `Origin`, as [`origin_of`] writes them.
    origins: HashSet<String>,
}

impl Names {
    fn add(&mut self, host: &str) {
        self.hosts.insert(host.to_ascii_lowercase());
    }

    /// Adds a host of the listener itself, with its pages.
    fn add_own(&mut self, host: &str) {
        self.add(host);
        // A proxy on the same port can provide TLS.
        for scheme in ["http", "https"] {
            self.origins.extend(origin_of(&format!("{scheme}://{host}")));
        }
    }
}

impl HostNames {
    /// Creates the names of a bound address.
    pub fn of(address: SocketAddr) -> Self {
        let mut names = Names::default();
        let mut hosts = ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).to_vec();
        match address.ip() {
            ip if ip.is_unspecified() => {}
            IpAddr::V4(ip) => hosts.push(ip.to_string()),
            IpAddr::V6(ip) => hosts.push(format!("[{ip}]")),
        }
        for host in hosts {
            // Clients omit the default port.
            if address.port() == 80 {
                names.add(&host);
            }
            names.add_own(&format!("{host}:{}", address.port()));
        }
        Self(Arc::new(RwLock::new(names)))
    }

    /// Adds the host of a URL, with its port and without, and the pages of the URL's origin.
    pub fn announce(&self, url: &str) {
        let Some((host, port)) = host_of(url) else { return };
        let mut names = self.0.write();
        names.add(&host);
        if let Some(port) = port {
            names.add(&format!("{host}:{port}"));
        }
        names.origins.extend(origin_of(url));
    }

    /// Returns whether a request without a token has an allowed `Origin`: none (a program), that of VS Code, of a page of
    /// this listener, or of a URL that the operator named. Any other page or extension of a browser on this computer, also
    /// a page of another port, could otherwise talk to the host. Two `Origin` headers are contradictory and rejected.
    pub fn admits_origin(&self, headers: &HeaderMap) -> bool {
        admits_origin(headers, |origin| self.is_own_or_named(origin))
    }

    /// Like [`Self::admits_origin`], for a request that is authenticated by a token, which no other page has: websites of
    /// this computer are accepted as well.
    pub fn admits_origin_with_token(&self, headers: &HeaderMap) -> bool {
        admits_origin(headers, |origin| self.is_own_or_named(origin) || is_on_this_computer(origin))
    }

    fn is_own_or_named(&self, origin: &str) -> bool {
        origin_of(origin).is_some_and(|origin| self.0.read().origins.contains(&origin))
    }

    /// Checks that a request addresses one of the names.
    ///
    /// # Errors
    /// The name that it addresses instead.
    pub fn admits(&self, headers: &HeaderMap) -> Result<(), String> {
        let Some(host) = headers.get(header::HOST) else { return Err("a request with no Host".to_owned()) };
        let Ok(host) = host.to_str() else { return Err("that Host".to_owned()) };
        if host.is_empty() {
            return Err("a request with no Host".to_owned());
        }
        let hosts = &self.0.read().hosts;
        match hosts.contains(host) || hosts.contains(&host.to_ascii_lowercase()) {
            true => Ok(()),
            false => Err(host.to_owned()),
        }
    }
}

/// Returns whether a request has no `Origin`, that of an editor, or one for which `accepts` holds.
fn admits_origin(headers: &HeaderMap, accepts: impl Fn(&str) -> bool) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return false };
    EDITORS.contains(&origin) || accepts(origin)
}

/// Returns whether an origin is that of a website on this computer.
fn is_on_this_computer(origin: &str) -> bool {
    let Ok(url) = url::Url::parse(origin) else { return false };
    let is_loopback = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    is_loopback && matches!(url.scheme(), "http" | "https")
}

fn host_of(url: &str) -> Option<(String, Option<u16>)> {
    let url = url::Url::parse(url).ok()?;
    Some((url.host_str().filter(|host| !host.is_empty())?.to_owned(), url.port_or_known_default()))
}

/// Returns the origin of a URL that has a host: `<scheme>://<host>`, with the port if there is one, also if it is the
/// scheme's default.
fn origin_of(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?.to_ascii_lowercase();
    let port = url.port_or_known_default().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}", url.scheme()))
}

/// Returns whether a text is a URL with a host, so that announcing it adds a name.
pub fn names_a_host(url: &str) -> bool {
    host_of(url).is_some()
}

/// Origins that are not websites and belong to a program on this machine: the windows of VS Code.
const EDITORS: &[&str] = &["vscode-file://vscode-app"];

/// The connection token.
#[derive(Debug, Clone)]
pub struct Token(Arc<Secret<String>>);

impl Token {
    pub fn new(token: String) -> Self {
        Self(Arc::new(Secret::new(token)))
    }

    /// Compared in constant time.
    pub(crate) fn is(&self, given: &str) -> bool {
        given.as_bytes().ct_eq(self.0.reveal().as_bytes()).into()
    }
}

/// Returns the token of a request: `?tkn=`, which has priority, or a bearer token.
fn given(query: Option<&str>, headers: &HeaderMap) -> Option<Secret<String>> {
    let in_query = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "tkn")
        .map(|(_, value)| value.into_owned());
    in_query.or_else(|| bearer(headers).map(str::to_owned)).map(Secret::new)
}

/// Why a connection is rejected.
#[derive(Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The request without a token addresses another host.
    ForeignHost(String),
    /// A page of another site connects without a token.
    ForeignOrigin,
    /// The token is missing or wrong.
    NoToken,
    /// The users cannot be read at the moment, so what the host knows of them may not be true any more.
    UnreadUsers(String),
}

/// How an attempt to admit a caller depends on the users of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decided {
    /// Not at all.
    WithoutUsers,
    /// By what the host knows of them.
    ByUsers,
    /// The host knows no user with this token.
    Unknown,
}

/// Admits a caller. Where the users decide, they have to be known, and are read again before a token is refused.
///
/// # Errors
/// That of the last attempt; `unread` while the users cannot be read.
pub(crate) async fn admit_known<T, E>(
    gate: &Gate,
    mut attempt: impl FnMut() -> Result<T, E>,
    decided: impl Fn(&Result<T, E>) -> Decided,
    unread: impl Fn(String) -> E,
) -> Result<T, E> {
    let first = attempt();
    if decided(&first) == Decided::WithoutUsers {
        return first;
    }
    gate.settled().await.map_err(|why| unread(why.message))?;
    let found = attempt();
    if decided(&found) != Decided::Unknown || !gate.learn().await {
        return found;
    }
    gate.settled().await.map_err(|why| unread(why.message))?;
    attempt()
}

/// Returns the principal of a token, as [`bearer_of`] does, once the users are known.
///
/// # Errors
/// The users cannot be read at the moment.
pub async fn known_bearer(
    given: &str,
    token: Option<&Token>,
    gate: &Gate,
) -> Result<Option<Admitted>, String> {
    let decided = |found: &Result<Option<Admitted>, String>| match found {
        Ok(Some(admitted)) => depends(&admitted.principal),
        _ => Decided::Unknown,
    };
    admit_known(gate, || Ok(bearer_of(given, token, gate)), decided, |why| why).await
}

/// Returns whether a caller is who it is because of the users.
pub(crate) fn depends(principal: &Principal) -> Decided {
    match principal {
        Principal::Root | Principal::Plugin { .. } => Decided::WithoutUsers,
        Principal::Person(_) | Principal::Anyone => Decided::ByUsers,
    }
}

/// Who a connection or a request is, and what it was let in by.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// Who it is.
    pub principal: Principal,
    /// What ends it, when it is no longer valid.
    pub by: Credential,
}

impl Admitted {
    /// One that nothing can sign out.
    fn lasting(principal: Principal) -> Self {
        Self { principal, by: Credential::default() }
    }
}

/// Authenticates a connection. The connection token makes it the host itself. A personal token authenticates the
/// connection, but as that user only if the operator has configured this. A signed-in page acts as its user. Without a
/// required token, the `Host` has to be one of the host's, and a connection that sends no token is anonymous, if its
/// `Origin` is accepted.
///
/// # Errors
/// Why it is rejected.
pub fn admit<'a, B>(
    request: &http::Request<B>,
    token: Option<&'a Token>,
    names: &'a HostNames,
    gate: &'a Gate,
    sign_ins: &'a SignIns,
) -> impl Future<Output = Result<Admitted, Rejection>> + use<'a, B> {
    // Bodies cannot be shared with the task that waits.
    let mut head = http::Request::new(());
    *head.uri_mut() = request.uri().clone();
    *head.headers_mut() = request.headers().clone();
    async move {
        let attempt = || admit_now(&head, token, names, gate, sign_ins);
        let decided = |found: &Result<Admitted, Rejection>| match found {
            Ok(admitted) => depends(&admitted.principal),
            Err(Rejection::NoToken) => Decided::Unknown,
            Err(_) => Decided::WithoutUsers,
        };
        admit_known(gate, attempt, decided, Rejection::UnreadUsers).await
    }
}

/// As [`admit`], by what is known of the users.
fn admit_now<B>(
    request: &http::Request<B>,
    token: Option<&Token>,
    names: &HostNames,
    gate: &Gate,
    sign_ins: &SignIns,
) -> Result<Admitted, Rejection> {
    let headers = request.headers();
    if token.is_none() {
        names.admits(headers).map_err(Rejection::ForeignHost)?;
    }
    let given = given(request.uri().query(), headers);
    // A sent token has priority over a cookie that the browser adds.
    if given.is_none()
        && let Some(Admitted { principal, by }) = signed_in(headers, token, gate, sign_ins)
    {
        let principal = if principal == Principal::Root { gate.root() } else { principal };
        return Ok(Admitted { principal, by });
    }
    if let (Some(token), Some(given)) = (token, &given)
        && token.is(given.reveal())
    {
        return Ok(Admitted::lasting(gate.root()));
    }
    if let Some(given) = &given
        && let Some(principal) = gate.by_token(given.reveal())
        && let Some(Admitted { by, .. }) = bearer_of(given.reveal(), None, gate)
    {
        return Ok(Admitted { principal, by });
    }
    if token.is_some() {
        return Err(Rejection::NoToken);
    }
    match names.admits_origin(headers) {
        false => Err(Rejection::ForeignOrigin),
        true => Ok(Admitted::lasting(Principal::Anyone)),
    }
}

/// Authenticates a single request by its token: the connection token is the host itself, a personal token is its user.
/// A signed-in page uses the token of its sign-in. If the host has no token, the caller is anonymous. `None` if the
/// request has no token.
pub fn caller<B>(
    request: &http::Request<B>,
    token: Option<&Token>,
    gate: &Gate,
    sign_ins: &SignIns,
) -> Option<Admitted> {
    if token.is_none() && gate.people().is_none() {
        return Some(Admitted::lasting(Principal::Anyone));
    }
    match given(request.uri().query(), request.headers()) {
        Some(given) => bearer_of(given.reveal(), token, gate),
        None => signed_in(request.headers(), token, gate, sign_ins),
    }
}

/// Returns whether a request is authenticated by the token that it has, or not at all: a host without tokens accepts any.
pub(crate) fn sends_token<B>(request: &http::Request<B>, token: Option<&Token>, gate: &Gate) -> bool {
    (token.is_some() || gate.people().is_some()) && given(request.uri().query(), request.headers()).is_some()
}

/// Returns the principal of a token.
fn bearer_of(given: &str, token: Option<&Token>, gate: &Gate) -> Option<Admitted> {
    if token.is_some_and(|token| token.is(given)) {
        return Some(Admitted::lasting(Principal::Root));
    }
    let people = gate.people()?;
    let person = people.person_of_token(given)?;
    let by = people.credential_of(&person, given);
    Some(Admitted { principal: Principal::Person(person), by })
}

/// Returns the user as whom the page of a request signed in; `None` once its token is no longer valid.
fn signed_in(
    headers: &HeaderMap,
    token: Option<&Token>,
    gate: &Gate,
    sign_ins: &SignIns,
) -> Option<Admitted> {
    let (page, given) = sign_ins.token(headers)?;
    let Admitted { principal, by } = bearer_of(given.reveal(), token, gate)?;
    let sign_ins = sign_ins.clone();
    Some(Admitted { principal, by: Credential::new(move || sign_ins.lasts(&page) && by.is_valid()) })
}

/// Returns the bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ostler_engine::People;
    use ostler_engine::users::UsersFile;

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
    fn only_own_named_and_editor_pages_are_accepted() {
        let names = HostNames::of("127.0.0.1:9187".parse().unwrap());
        names.announce("https://console.example.org");
        names.announce("http://localhost:3000/page");
        names.announce("tauri://console.example");
        let admits = |origin: &str| names.admits_origin(&headers(header::ORIGIN, origin));
        for two in
            [["http://localhost:9187", "https://evil.org"], ["https://evil.org", "http://localhost:9187"]]
        {
            let origins = two.map(|origin| (header::ORIGIN, origin.parse().unwrap()));
            assert!(!names.admits_origin(&HeaderMap::from_iter(origins)), "{two:?}");
        }
        assert!(names.admits_origin(&HeaderMap::new()));
        for good in [
            "http://localhost:9187",
            "http://127.0.0.1:9187",
            "https://127.0.0.1:9187",
            "http://[::1]:9187",
            "vscode-file://vscode-app",
            "https://console.example.org",
            "https://console.example.org:443",
            "http://localhost:3000",
            "tauri://console.example",
        ] {
            assert!(admits(good), "{good}");
        }
        let with_token = |origin: &str| names.admits_origin_with_token(&headers(header::ORIGIN, origin));
        for of_computer in ["http://localhost", "http://127.0.0.2:1", "https://[::1]:3000"] {
            assert!(with_token(of_computer) && !admits(of_computer), "{of_computer}");
        }
        for elsewhere in
            ["https://evil.org", "null", "chrome-extension://localhost", "http://localhost.evil.org"]
        {
            assert!(!with_token(elsewhere), "{elsewhere}");
        }
        assert!(with_token("https://console.example.org") && with_token("vscode-file://vscode-app"));
        for bad in [
            // Other ports of this computer.
            "http://localhost",
            "http://127.0.0.1",
            "https://127.0.0.1",
            "http://127.0.0.1:9188",
            "http://127.0.0.2:9187",
            "http://[::1]:1",
            "http://localhost:3001",
            "http://127.0.0.1:3000",
            "https://localhost:3000",
            // A page of a named host on another port or without TLS.
            "http://console.example.org",
            "https://console.example.org:8443",
            "https://evil.org",
            "http://localhost.evil.org:9187",
            "http://localhost:9187.evil.org",
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
            "chrome-extension://localhost:9187",
            "data:text/html,x",
            "tauri://localhost",
            "",
        ] {
            assert!(!admits(bad), "{bad}");
        }
    }

    #[test]
    fn the_default_port_is_omitted() {
        let names = HostNames::of("192.0.2.7:80".parse().unwrap());
        for host in ["localhost", "localhost:80", "192.0.2.7", "[::1]"] {
            assert!(names.admits(&headers(header::HOST, host)).is_ok(), "{host}");
        }
        for origin in ["http://localhost", "http://192.0.2.7", "http://[::1]"] {
            assert!(names.admits_origin(&headers(header::ORIGIN, origin)), "{origin}");
        }
        for origin in ["https://localhost", "http://localhost:8080"] {
            assert!(!names.admits_origin(&headers(header::ORIGIN, origin)), "{origin}");
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
                .map(|admitted| admitted.principal)
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
        assert_eq!(
            names.0.read().hosts.len(),
            8,
            "the loopback names and the address, with the port and without"
        );
    }

    #[test]
    fn a_connection_is_admitted_by_the_token_or_without_one_by_its_host_and_origin() {
        let names = HostNames::of("127.0.0.1:9187".parse().unwrap());
        let token = Token::new("right".to_owned());
        let admitted_at = |token: Option<&Token>, query: &str, host: &str, origin: Option<&str>| {
            let mut request = http::Request::builder().uri(format!("/?{query}")).header(header::HOST, host);
            if let Some(origin) = origin {
                request = request.header(header::ORIGIN, origin);
            }
            admit_now(&request.body(()).unwrap(), token, &names, &Gate::default(), &SignIns::default())
                .map(|admitted| admitted.principal)
        };
        let admitted = |token: Option<&Token>, query: &str, origin: Option<&str>| {
            admitted_at(token, query, "localhost:9187", origin)
        };
        let (near, foreign) = (Some("http://localhost:9187"), Some("https://evil.org"));
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
        for foreign in [foreign, Some("http://localhost:9188")] {
            assert_eq!(admitted(None, "", foreign), Err(Rejection::ForeignOrigin));
        }
        for host in ["evil.org", "evil.org:9187", "localhost:9188"] {
            let refused = Err(Rejection::ForeignHost(host.to_owned()));
            assert_eq!(admitted_at(None, "", host, None), refused, "a name that leads to this computer");
            assert_eq!(admitted_at(None, "tkn=wrong", host, None), refused);
            assert_eq!(admitted_at(Some(&token), "tkn=right", host, None), Ok(Gate::default().root()));
        }
    }

    /// Its page could not know the token, but nothing needs to be let in there.
    #[test]
    fn a_personal_token_does_not_admit_to_a_foreign_name() {
        let names = HostNames::of("127.0.0.1:9187".parse().unwrap());
        let people = People::new("https://host.example", "inn").trusting(true);
        let hash = ostler_engine::users::hash_of("ada's");
        let file = format!(r#"{{ "users": [{{ "id": "ada", "token": "{hash}" }}] }}"#);
        people.set(UsersFile::parse(&file).unwrap()).unwrap();
        let gate = Gate::of(Arc::new(people));
        let admitted = |host: &str| {
            let request = http::Request::builder().uri("/?tkn=ada's").header(header::HOST, host);
            let admitted = admit_now(&request.body(()).unwrap(), None, &names, &gate, &SignIns::default());
            admitted.map(|admitted| admitted.principal.owner("inn"))
        };
        assert_eq!(admitted("127.0.0.1:9187"), Ok(Some("user:ada".to_owned())));
        assert_eq!(admitted("evil.org"), Err(Rejection::ForeignHost("evil.org".to_owned())));
    }

    #[test]
    fn a_signed_in_page_acts_with_its_token_unless_it_sends_another() {
        let names = HostNames::of("127.0.0.1:9187".parse().unwrap());
        let (token, gate, sign_ins) = (Token::new("right".to_owned()), Gate::default(), SignIns::default());
        let host = headers(header::HOST, "127.0.0.1:9187");
        let (cookie, _) = sign_ins.begin("ada", "right".to_owned(), &host, "/").unwrap();
        let request = |query: &str, site: &str| {
            let (cookie, _) = cookie.to_str().unwrap().split_once(';').unwrap();
            let request = http::Request::builder().uri(format!("/?{query}"));
            let request = request.header(header::HOST, "127.0.0.1:9187").header(header::COOKIE, cookie);
            request.header("sec-fetch-site", site).body(()).unwrap()
        };
        let admitted = |query: &str, site: &str| {
            let admitted = admit_now(&request(query, site), Some(&token), &names, &gate, &sign_ins);
            admitted.map(|admitted| admitted.principal)
        };
        let called = |query: &str, site: &str| {
            caller(&request(query, site), Some(&token), &gate, &sign_ins).map(|admitted| admitted.principal)
        };
        assert_eq!(admitted("", "same-origin"), Ok(gate.root()));
        assert_eq!(called("", "same-origin"), Some(Principal::Root));
        for (query, site) in [("", "cross-site"), ("tkn=wrong", "same-origin")] {
            assert_eq!(admitted(query, site), Err(Rejection::NoToken), "{query} {site}");
            assert_eq!(called(query, site), None, "{query} {site}");
        }
        let page = request("", "same-origin");
        let opened = admit_now(&page, Some(&token), &names, &gate, &sign_ins).unwrap();
        assert!(opened.by.is_valid());
        sign_ins.end(page.headers(), "/");
        assert!(!opened.by.is_valid(), "what the page opened ends with its sign-in");
    }
}
