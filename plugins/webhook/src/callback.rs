//! Callbacks: the allowed URLs, and the request itself.

use std::time::Duration;

use ostler_contract::http::{Body, HeaderValue, Method, Request, StatusCode, Uri, header};
use ostler_contract::{PluginHost, Value};
use url::Url;

use crate::reply::{About, Refusal};

/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns the normalized callback URL of a call, if it starts with the endpoint's prefix.
pub(crate) fn checked(prefix: &Url, callback: Option<&str>) -> Result<Uri, Refusal> {
    let bad = |why: &str| Refusal::Bad(why.to_owned());
    let callback = callback.ok_or_else(|| bad("The call has no callback URL"))?;
    let url = Url::parse(callback).map_err(|_| bad("The callback is not a URL"))?;
    if !url.as_str().starts_with(prefix.as_str()) {
        return Err(bad("The callback is outside the endpoint's callbackPrefix"));
    }
    url.as_str().parse().map_err(|_| bad("The callback is not a valid URL to call"))
}

/// Posts a callback; returns the answer, or why it failed. A redirect is a failure. A header contains the URL of its
/// subject.
pub(crate) async fn post(
    host: &PluginHost,
    url: &Uri,
    body: &Value,
    about: &About,
) -> Result<StatusCode, String> {
    let mut request = Request::new(Body::from(body.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.clone();
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let link = |uri: &str| host.link(uri.to_owned()).ok().flatten();
    request.headers_mut().extend(about.headers(link));
    let answered = tokio::time::timeout(LIMIT, host.send(request)).await;
    let status = match answered {
        Ok(Ok(response)) => response.status(),
        Ok(Err(why)) => return Err(why.message),
        Err(_) => return Err(format!("no response within {} seconds", LIMIT.as_secs())),
    };
    match status {
        status if status.is_success() => Ok(status),
        status if status.is_redirection() => {
            Err(format!("response {}, a redirect, is not followed", status.as_u16()))
        }
        status => Err(format!("response {}", status.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(prefix: &str, callback: &str) -> bool {
        checked(&Url::parse(prefix).unwrap(), Some(callback)).is_ok()
    }

    const PREFIX: &str = "https://hooks.example/in/";

    #[test]
    fn what_starts_with_the_prefix_as_the_parser_writes_it() {
        for callback in [
            "https://hooks.example/in/",
            "https://hooks.example/in/a/b?c=d#e",
            "HTTPS://Hooks.EXAMPLE/in/a",
            "https://hooks.example:443/in/a",
            "https://hooks.example/x/../in/a",
            "https://hooks.example/in/./a",
            "https://hooks.example\\in\\a",
            "  https://hooks.example/in/a\n",
            "https:/hooks.example/in/a",
            "https://hooks.example/%69%6e/../in/a",
            "https://ho\toks.example/in/a",
            "https://%68ooks.example/in/a",
        ] {
            assert!(goes(PREFIX, callback), "{callback}");
        }
        assert!(goes("http://bücher.example/", "http://xn--bcher-kva.example/a"));
        assert!(goes("http://xn--bcher-kva.example/", "http://BÜCHER.example/a"));
        assert!(goes("http://a.example:80/", "http://a.example/x"));
        assert!(goes("http://a.example:8080/", "http://a.example:8080/x"));
        assert!(goes("http://127.0.0.1/", "http://0x7f.1/x"), "both are the same address");
    }

    #[test]
    fn what_does_not() {
        for callback in [
            "https://hooks.example.evil.example/in/",
            "https://hooks.example@evil.example/in/",
            "https://hooks.example:443@evil.example/in/",
            "https://evil.example/https://hooks.example/in/",
            "https://user@hooks.example/in/a",
            "https://user:pass@hooks.example/in/a",
            "http://hooks.example/in/a",
            "https://hooks.example:444/in/a",
            "https://hooks.example:80/in/a",
            "https://hooks.example/IN/a",
            "https://hooks.example/in",
            "https://hooks.example/inn/",
            "https://hooks.example/in/../out",
            "https://hooks.example/in/%2e%2e/out",
            "https://hooks.example/in/.%2E/out",
            "https://hooks.example/in/..\\out",
            "https://hooks.example/%69n/a",
            "https://hooks.example.:443/in/a",
            "https://sub.hooks.example/in/a",
            "https://hooksⒺexample/in/a",
            "//hooks.example/in/a",
            "/in/a",
            "javascript:https://hooks.example/in/",
            "",
        ] {
            assert!(!goes(PREFIX, callback), "{callback}");
        }
        assert!(!goes("http://bücher.example/", "http://bucher.example/a"));
        assert!(!goes("http://a.example/", "http://а.example/x"), "the same letter to the eye alone");
        let missing = checked(&Url::parse(PREFIX).unwrap(), None);
        assert_eq!(missing, Err(Refusal::Bad("The call has no callback URL".to_owned())));
    }

    proptest::proptest! {
        /// Whatever is let through is sent to the prefix's own host, port and scheme.
        #[test]
        fn what_goes_goes_to_the_prefix(
            front in "(https?:)?[/\\\\]{0,3}", user in "([a-z:]{0,4}@)?", host in "(hooks\\.example|evil\\.example)[.:@/]?[a-z0-9.]{0,12}",
            path in "/?(in|\\.\\.|%2e%2e|[a-z]){0,3}/?[ -~]{0,10}",
        ) {
            let callback = format!("{front}{user}{host}{path}");
            if let Ok(uri) = checked(&Url::parse(PREFIX).unwrap(), Some(&callback)) {
                proptest::prop_assert_eq!(uri.scheme_str(), Some("https"));
                proptest::prop_assert_eq!(uri.authority().map(|authority| authority.as_str()), Some("hooks.example"));
                proptest::prop_assert!(uri.path().starts_with("/in/"));
            }
        }
    }
}
