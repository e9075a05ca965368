//! The proxy of a session's editors, as variables of its agent.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use ostler_contract::{JsonObject, Value, proxy};
use percent_encoding::percent_decode_str;
use url::Url;

/// Makes Node's own `fetch` read these variables.
const NODE: &str = "NODE_USE_ENV_PROXY";
/// The maximum length of the exceptions, in bytes. The system limits a variable to 128 KiB.
const EXCEPTIONS_MAX: usize = 64 * 1024;

/// Returns the variables for the settings `http.proxy` and `http.noProxy` of a session's editors. `endpoint` is the
/// address of the session's tools endpoint, which is always reached directly, like loopback addresses. `operator`
/// returns a variable that the operator set. There are no variables if the operator chose a proxy, for a proxy on the
/// editor's own computer, where the agent cannot connect, and for one that is not HTTP: Node rejects others.
pub fn variables(
    settings: &JsonObject,
    endpoint: Option<&str>,
    operator: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let address = settings.get(proxy::SETTING).and_then(Value::as_str).and_then(|text| Url::parse(text).ok());
    let address = address.filter(|url| matches!(url.scheme(), "http" | "https") && !is_loopback(url));
    let Some(address) = address else { return BTreeMap::new() };
    if proxy::address_variables().any(|name| operator(name).is_some()) {
        return BTreeMap::new();
    }
    let exceptions = exceptions(settings, endpoint, &operator);
    let proxies = proxy::HTTP_VARIABLES.into_iter().map(|name| (name, address.to_string()));
    let others = proxy::EXCEPTIONS_VARIABLES.into_iter().map(|name| (name, exceptions.clone()));
    let node = operator(NODE).unwrap_or_else(|| "1".to_owned());
    let all = proxies.chain(others).chain([(NODE, node)]);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the addresses without the proxy, the operator's before the editor's.
fn exceptions(
    settings: &JsonObject,
    endpoint: Option<&str>,
    operator: impl Fn(&str) -> Option<String>,
) -> String {
    let set: Vec<String> = proxy::EXCEPTIONS_VARIABLES.into_iter().filter_map(&operator).collect();
    let set = set.iter().flat_map(|names| names.split(|c: char| c == ',' || c.is_whitespace()));
    let listed = settings.get(proxy::EXCEPTIONS_SETTING).and_then(Value::as_array).into_iter().flatten();
    let listed = set.chain(listed.filter_map(Value::as_str).map(str::trim)).filter(|name| is_name(name));
    let endpoint = endpoint.and_then(|endpoint| Url::parse(endpoint).ok());
    let host = endpoint.as_ref().and_then(Url::host_str);
    // Programs differ in how they write an IPv6 address.
    let bare = host.map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    let (mut all, mut seen) = (String::new(), HashSet::new());
    for name in ["localhost", "127.0.0.1", "::1"].into_iter().chain(host).chain(bare).chain(listed) {
        // Programs know it only without other names.
        if name == "*" {
            return name.to_owned();
        }
        if all.len() + name.len() >= EXCEPTIONS_MAX {
            break;
        }
        if seen.insert(name) {
            let separator = if all.is_empty() { "" } else { "," };
            all.push_str(separator);
            all.push_str(name);
        }
    }
    all
}

/// Returns the secrets in the variables, as they are written and decoded: the password, or a user name without one,
/// which can be a token.
pub fn secrets(variables: &BTreeMap<String, String>) -> Vec<String> {
    let Some(proxy) = proxy::HTTP_VARIABLES.iter().find_map(|name| Url::parse(variables.get(*name)?).ok())
    else {
        return Vec::new();
    };
    let secret = proxy.password().unwrap_or(proxy.username());
    let decoded = percent_decode_str(secret).decode_utf8_lossy().into_owned();
    [secret.to_owned(), decoded].into_iter().filter(|secret| !secret.is_empty()).collect()
}

fn is_loopback(proxy: &Url) -> bool {
    let Some(host) = proxy.host_str() else { return true };
    let host = host.trim_end_matches('.').trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Whether a text can be one of the names in a list that commas separate.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c == ',' || c.is_control() || c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn variables_of(settings: &Value, set: &[(&str, &str)]) -> BTreeMap<String, String> {
        let operator =
            |name: &str| set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        variables(settings.as_object().unwrap(), Some("http://10.0.0.2:4000/ahp-mcp/1"), operator)
    }

    #[test]
    fn a_proxy_of_an_editor_is_the_agents() {
        let settings = json!({ "http.proxy": "http://me:s%40cret@proxy.example:3128",
            "http.noProxy": ["example.org", "localhost", "a,b", "a\0", 1] });
        let variables = variables_of(&settings, &[("no_proxy", ".corp, example.org"), ("NO_PROXY", "a b")]);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            assert_eq!(variables[name], "http://me:s%40cret@proxy.example:3128/");
        }
        for name in ["NO_PROXY", "no_proxy"] {
            assert_eq!(variables[name], "localhost,127.0.0.1,::1,10.0.0.2,a,b,.corp,example.org");
        }
        assert_eq!(variables["NODE_USE_ENV_PROXY"], "1");
        assert_eq!(secrets(&variables), ["s%40cret", "s@cret"]);
        let token = variables_of(&json!({ "http.proxy": "https://token@proxy.example" }), &[]);
        assert_eq!(secrets(&token)[0], "token");
    }

    #[test]
    fn everything_is_an_exception_if_the_editor_or_the_operator_says_so() {
        let settings =
            json!({ "http.proxy": "http://proxy.example:3128", "http.noProxy": ["example.org", "*"] });
        assert_eq!(variables_of(&settings, &[])["NO_PROXY"], "*");
        let settings = json!({ "http.proxy": "http://proxy.example:3128" });
        assert_eq!(variables_of(&settings, &[("NO_PROXY", "*")])["no_proxy"], "*");
    }

    #[test]
    fn an_endpoint_with_an_ipv6_address_is_an_exception_in_both_forms() {
        let settings = json!({ "http.proxy": "http://proxy.example:3128" });
        let variables =
            variables(settings.as_object().unwrap(), Some("http://[fd00::2]:4000/ahp-mcp/1"), |_| None);
        assert_eq!(variables["NO_PROXY"], "localhost,127.0.0.1,::1,[fd00::2],fd00::2");
    }

    #[test]
    fn long_exceptions_are_cut() {
        let many: Vec<String> = (0..9000).map(|number| format!("{number}.example.org")).collect();
        let settings = json!({ "http.proxy": "http://proxy.example:3128", "http.noProxy": many });
        let exceptions = &variables_of(&settings, &[])["NO_PROXY"];
        assert!(exceptions.len() <= EXCEPTIONS_MAX && exceptions.len() > EXCEPTIONS_MAX - 30);
    }

    #[test]
    fn what_the_operator_chose_stays() {
        let settings = json!({ "http.proxy": "http://proxy.example:3128" });
        for name in ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"] {
            for value in ["http://other.example", ""] {
                assert_eq!(variables_of(&settings, &[(name, value)]), BTreeMap::new(), "{name}");
            }
        }
        assert_eq!(variables_of(&settings, &[("NODE_USE_ENV_PROXY", "0")])["NODE_USE_ENV_PROXY"], "0");
    }

    #[test]
    fn a_proxy_on_the_editors_computer_is_not_used_and_only_http() {
        for proxy in [
            "http://127.0.0.1:3128",
            "http://127.1",
            "http://LOCALHOST:1",
            "http://localhost.:1",
            "http://[::1]:1",
            "http://[::ffff:127.0.0.1]:1",
            "http://0.0.0.0:1",
            "socks5://proxy.example:1080",
            "proxy",
            "",
        ] {
            assert_eq!(variables_of(&json!({ "http.proxy": proxy }), &[]), BTreeMap::new(), "{proxy}");
        }
        assert_eq!(variables_of(&json!({}), &[]), BTreeMap::new());
    }
}
