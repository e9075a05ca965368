//! Sign-ins of browsers: a random cookie represents a token, so that no page has to store the token.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use ostler_contract::Secret;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a sign-in lasts.
pub const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// The maximum number of sign-ins; one more ends the oldest of the user with the most.
const MOST: usize = 256;
/// The maximum number of sign-ins of a user; one more ends the user's oldest.
const MOST_OF_A_USER: usize = 16;
/// The prefix of the cookie's name. The port follows, because browsers send a cookie to every port of a host.
const COOKIE: &str = "ostler-sign-in-";

/// The sign-ins of a daemon, in its memory.
#[derive(Clone, Default)]
pub struct SignIns {
    all: Arc<Mutex<HashMap<String, SignIn>>>,
    /// Whether a task waits for the next one to end.
    is_watched: Arc<AtomicBool>,
}

struct SignIn {
    /// The user's name.
    user: String,
    token: Secret<String>,
    until: Instant,
}

impl fmt::Debug for SignIns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} sign-ins", self.all.lock().len())
    }
}

impl SignIns {
    /// Begins a sign-in of a user with a verified token, in place of that of the page; returns the `Set-Cookie` header for
    /// the path below which the page has the host, and whether another sign-in has ended.
    pub fn begin(
        &self,
        user: &str,
        token: String,
        headers: &HeaderMap,
        path: &str,
    ) -> Option<(HeaderValue, bool)> {
        let id = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let now = Instant::now();
        let mut all = self.all.lock();
        all.retain(|_, sign_in| sign_in.until > now);
        // The browser forgets the cookie of the earlier one, so that nothing else could end it.
        let mut has_ended = false;
        for earlier in ids(headers) {
            has_ended |= all.remove(earlier).is_some();
        }
        let of = |user: &str| all.values().filter(|sign_in| sign_in.user == user).count();
        let ending = match (of(user) >= MOST_OF_A_USER, all.len() >= MOST) {
            (true, _) => Some(user.to_owned()),
            (false, true) => all.values().map(|one| &one.user).max_by_key(|one| of(one)).cloned(),
            (false, false) => None,
        };
        if let Some(ending) = ending {
            let of_user = all.iter().filter(|(_, sign_in)| sign_in.user == ending);
            let oldest = of_user.min_by_key(|(_, sign_in)| sign_in.until).map(|(id, _)| id.clone());
            has_ended |= all.remove(&oldest?).is_some();
        }
        let sign_in = SignIn { user: user.to_owned(), token: Secret::new(token), until: now + LIFETIME };
        all.insert(id.clone(), sign_in);
        cookie(headers, &id, LIFETIME, path).map(|cookie| (cookie, has_ended))
    }

    /// Calls a function whenever a sign-in ends by itself, as long as there are any. One task waits for all of them.
    pub fn watch(&self, ended: impl Fn() + Send + 'static) {
        if self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let sign_ins = self.clone();
        tokio::spawn(async move {
            loop {
                let next = {
                    let all = sign_ins.all.lock();
                    let next = all.values().map(|sign_in| sign_in.until).min();
                    // Under the lock: whoever begins one afterwards finds no task.
                    sign_ins.is_watched.store(next.is_some(), Ordering::Release);
                    next
                };
                let Some(next) = next else { return };
                tokio::time::sleep_until(next).await;
                sign_ins.all.lock().retain(|_, sign_in| sign_in.until > Instant::now());
                ended();
            }
        });
    }

    /// Ends the sign-in of a request; returns the `Set-Cookie` header that clears its cookie of a path.
    pub fn end(&self, headers: &HeaderMap, path: &str) -> Option<HeaderValue> {
        for id in ids(headers) {
            self.all.lock().remove(id);
        }
        cookie(headers, "", Duration::ZERO, path)
    }

    /// Returns the token of a request's sign-in; none for a page of another site.
    pub(crate) fn token(&self, headers: &HeaderMap) -> Option<(String, Secret<String>)> {
        if !is_same_origin(headers) {
            return None;
        }
        let now = Instant::now();
        let mut all = self.all.lock();
        let id = ids(headers).find(|id| all.contains_key(*id))?;
        if all.get(id)?.until <= now {
            all.remove(id);
            return None;
        }
        all.get(id).map(|sign_in| (id.to_owned(), Secret::new(sign_in.token.reveal().clone())))
    }

    /// Returns whether a sign-in has neither ended by itself nor by signing out.
    pub(crate) fn lasts(&self, id: &str) -> bool {
        self.all.lock().get(id).is_some_and(|sign_in| sign_in.until > Instant::now())
    }
}

/// Returns whether the browser declares that a page of this listener sends a request. A request without this
/// declaration does not come from a trusted browser.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?.to_str().ok();
        // Two headers are contradictory.
        Some(if values.next().is_some() { None } else { value })
    };
    if let Some(site) = one("sec-fetch-site") {
        return site == Some("same-origin");
    }
    let (Some(Some(origin)), Some(Some(host))) = (one("origin"), one("host")) else { return false };
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let host = host.strip_suffix(default).unwrap_or(host);
    !host.is_empty() && authority.eq_ignore_ascii_case(host)
}

/// Returns the name of the cookie at the requested port.
fn name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
    format!("{COOKIE}{}", port.unwrap_or("0"))
}

fn ids(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let name = name(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split(';')).filter_map(move |pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

fn cookie(headers: &HeaderMap, id: &str, lifetime: Duration, path: &str) -> Option<HeaderValue> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encrypted =
        text("origin").starts_with("https://") || text("x-forwarded-proto").eq_ignore_ascii_case("https");
    let secure = if encrypted { "; Secure" } else { "" };
    let (name, seconds) = (name(headers), lifetime.as_secs());
    let mut value = HeaderValue::try_from(format!(
        "{name}={id}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    ))
    .ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        values
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn only_a_page_of_this_listener_is_of_the_same_origin() {
        let host = ("host", "localhost:9187");
        for good in [
            &[host, ("origin", "http://localhost:9187")][..],
            &[("host", "a.example"), ("origin", "https://a.example")],
            &[("host", "a.example:443"), ("origin", "https://A.example")],
            // A proxy wrote the host, the browser has the last word.
            &[host, ("origin", "https://a.example"), ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "same-origin")],
        ] {
            assert!(is_same_origin(&headers(good)), "{good:?}");
        }
        for bad in [
            &[host][..],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://localhost:9188")],
            &[host, ("origin", "http://localhost")],
            &[host, ("origin", "https://evil.org")],
            &[host, ("origin", "http://localhost:9187"), ("sec-fetch-site", "same-site")],
            &[host, ("origin", "http://localhost:9187"), ("sec-fetch-site", "none")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("origin", "http://localhost:9187"), ("origin", "https://evil.org")],
            &[("origin", "http://localhost:9187")],
        ] {
            assert!(!is_same_origin(&headers(bad)), "{bad:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_in_ends_by_itself_and_by_signing_out() {
        let (sign_ins, page) =
            (SignIns::default(), [("host", "localhost:1"), ("sec-fetch-site", "same-origin")]);
        let begin = || {
            let (set, _) = sign_ins.begin("ada", "right".to_owned(), &headers(&page), "/").unwrap();
            let set = set.to_str().unwrap().to_owned();
            assert!(set.contains("; HttpOnly; SameSite=Strict") && !set.contains("right"), "{set}");
            let cookie = set.split(';').next().unwrap().to_owned();
            assert!(cookie.starts_with("ostler-sign-in-1="));
            cookie
        };
        let token = |cookie: &str| {
            let with = [page[0], page[1], ("cookie", cookie)];
            sign_ins.token(&headers(&with)).map(|(_, token)| token.reveal().clone())
        };
        let first = begin();
        assert_eq!(token(&format!("other=1; {first}")).as_deref(), Some("right"));
        assert_eq!(token("ostler-sign-in-1=guess"), None);
        let foreign = [page[0], ("sec-fetch-site", "cross-site"), ("cookie", first.as_str())];
        assert!(sign_ins.token(&headers(&foreign)).is_none());
        tokio::time::advance(LIFETIME).await;
        assert_eq!(token(&first), None);

        let second = begin();
        sign_ins.end(&headers(&[page[0], ("cookie", second.as_str())]), "/");
        assert_eq!(token(&second), None);
    }

    #[tokio::test(start_paused = true)]
    async fn sign_ins_of_a_user_end_no_others() {
        let sign_ins = SignIns::default();
        let page = [("host", "localhost:1"), ("sec-fetch-site", "same-origin")];
        let begin = async |user: &str| {
            tokio::time::advance(Duration::from_millis(1)).await;
            let (set, _) = sign_ins.begin(user, user.to_owned(), &headers(&page), "/").unwrap();
            set.to_str().unwrap().split(';').next().unwrap().to_owned()
        };
        let lasts = |cookie: &str| {
            let with = [page[0], page[1], ("cookie", cookie)];
            sign_ins.token(&headers(&with)).is_some()
        };
        let ada = begin("ada").await;
        let oldest = begin("ben").await;
        for _ in 0..MOST {
            begin("ben").await;
        }
        assert!(lasts(&ada) && !lasts(&oldest));
        assert_eq!(format!("{sign_ins:?}"), format!("{} sign-ins", MOST_OF_A_USER + 1));
        // A page that signs in again ends its own.
        let with = [page[0], page[1], ("cookie", ada.as_str())];
        let (_, has_ended) = sign_ins.begin("ada", "ada".to_owned(), &headers(&with), "/").unwrap();
        assert!(has_ended && !lasts(&ada));
        let ada = begin("ada").await;
        // Many users with one sign-in each end one of the user with the most.
        for user in 0..MOST {
            begin(&format!("user-{user}")).await;
        }
        assert!(lasts(&ada));
        assert_eq!(format!("{sign_ins:?}"), format!("{MOST} sign-ins"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_sign_in_is_noticed() {
        let (sign_ins, ended) = (SignIns::default(), Arc::new(AtomicBool::new(false)));
        let page = headers(&[("host", "localhost:1"), ("sec-fetch-site", "same-origin")]);
        for _ in 0..2 {
            sign_ins.begin("ada", "right".to_owned(), &page, "/").unwrap();
            let noticed = ended.clone();
            sign_ins.watch(move || noticed.store(true, Ordering::Release));
            tokio::time::sleep(LIFETIME - Duration::from_secs(1)).await;
            assert!(!ended.load(Ordering::Acquire));
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(ended.swap(false, Ordering::AcqRel));
        }
    }

    #[test]
    fn a_cookie_over_tls_is_secure() {
        let sign_ins = SignIns::default();
        for (name, value) in [("origin", "https://a.example"), ("x-forwarded-proto", "https")] {
            let set = sign_ins
                .begin("ada", String::new(), &headers(&[("host", "a.example"), (name, value)]), "/ostler")
                .unwrap();
            assert!(set.0.to_str().unwrap().ends_with("; Secure"));
            assert!(set.0.to_str().unwrap().contains("; Path=/ostler; "));
        }
    }
}
