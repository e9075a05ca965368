//! The proxy of a session's editors, as variables of its agent.

use std::collections::BTreeMap;

use ostler_contract::{JsonObject, Value};
use url::{Host, Url};

/// The variables that name a proxy, in the spellings that programs read: curl ignores `HTTP_PROXY`.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// The variables that name the addresses without it.
const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Makes Node's own `fetch` read these variables.
const NODE: &str = "NODE_USE_ENV_PROXY";

/// Returns the variables for the settings `http.proxy` and `http.noProxy` of a session's editors. `endpoint` is the
/// address of the session's tools endpoint, which is reached directly. Without variables if the operator chose a proxy
/// (`is_set`), and for one on the editor's own computer, where the agent cannot connect.
pub fn variables(
    settings: &JsonObject,
    endpoint: Option<&str>,
    is_set: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let proxy = settings.get("http.proxy").and_then(Value::as_str).and_then(|proxy| Url::parse(proxy).ok());
    let Some(proxy) = proxy.filter(|proxy| !is_loopback(proxy)) else { return BTreeMap::new() };
    if PROXIES.iter().chain(&["ALL_PROXY", "all_proxy"]).any(|name| is_set(name)) {
        return BTreeMap::new();
    }
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let endpoint = endpoint.and_then(|endpoint| Url::parse(endpoint).ok()?.host_str().map(str::to_owned));
    let listed = settings.get("http.noProxy").and_then(Value::as_array).into_iter().flatten();
    let listed = listed.filter_map(Value::as_str).map(str::to_owned);
    let mut exceptions: Vec<String> = Vec::new();
    for name in own.into_iter().chain(endpoint).chain(listed) {
        if !exceptions.contains(&name) {
            exceptions.push(name);
        }
    }
    let exceptions = exceptions.join(",");
    let proxies = PROXIES.iter().map(|name| (*name, proxy.to_string()));
    let others = EXCEPTIONS.iter().map(|name| (*name, exceptions.clone()));
    let all = proxies.chain(others).chain([(NODE, "1".to_owned())]);
    all.filter(|(name, _)| !is_set(name)).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the secrets in the variables.
pub fn secrets(variables: &BTreeMap<String, String>) -> Vec<String> {
    let proxy = PROXIES.iter().find_map(|name| Url::parse(variables.get(*name)?).ok());
    proxy.and_then(|proxy| proxy.password().map(str::to_owned)).into_iter().collect()
}

fn is_loopback(proxy: &Url) -> bool {
    match proxy.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
        Some(Host::Ipv6(address)) => address.is_loopback() || address.is_unspecified(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn variables_of(settings: &Value, set: &[&str]) -> BTreeMap<String, String> {
        variables(settings.as_object().unwrap(), Some("http://10.0.0.2:4000/ahp-mcp/1"), |name| {
            set.contains(&name)
        })
    }

    #[test]
    fn a_proxy_of_an_editor_is_the_agents() {
        let settings = json!({ "http.proxy": "http://me:s3cret@proxy.example:3128",
            "http.noProxy": ["example.org", "localhost"] });
        let variables = variables_of(&settings, &[]);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            assert_eq!(variables[name], "http://me:s3cret@proxy.example:3128/");
        }
        for name in ["NO_PROXY", "no_proxy"] {
            assert_eq!(variables[name], "localhost,127.0.0.1,::1,10.0.0.2,example.org");
        }
        assert_eq!(variables["NODE_USE_ENV_PROXY"], "1");
        assert_eq!(secrets(&variables), ["s3cret"]);
        assert!(!variables_of(&settings, &["NO_PROXY"]).contains_key("NO_PROXY"));
    }

    #[test]
    fn what_the_operator_chose_stays() {
        let settings = json!({ "http.proxy": "http://proxy.example:3128" });
        for name in ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"] {
            assert_eq!(variables_of(&settings, &[name]), BTreeMap::new(), "{name}");
        }
    }

    #[test]
    fn a_proxy_on_the_editors_computer_is_not_used() {
        for proxy in [
            "http://127.0.0.1:3128",
            "http://localhost:1",
            "socks5://[::1]:1",
            "http://0.0.0.0:1",
            "proxy",
            "",
        ] {
            assert_eq!(variables_of(&json!({ "http.proxy": proxy }), &[]), BTreeMap::new(), "{proxy}");
        }
        assert_eq!(variables_of(&json!({}), &[]), BTreeMap::new());
    }
}
