//! The MCP servers of an agent: the session's tools, and the configured servers.

use ostler_contract::{JsonObject, Value, json};

use crate::agent::AgentFacts;

/// The name of the server with the session's tools.
pub const OWN: &str = "ostler";

/// The session's tools endpoint.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Its address.
    pub url: String,
    /// Its bearer token.
    pub token: String,
}

/// The variable of the bridge with the endpoint's address.
pub const BRIDGE_URL: &str = "OSTLER_MCP_URL";
/// The variable of the bridge with the endpoint's token.
pub const BRIDGE_TOKEN: &str = "OSTLER_MCP_TOKEN";

/// Returns the servers in the form of the protocol, and a line for each that the agent cannot use. `bridge` is the
/// command that serves the endpoint on stdio, for agents that cannot connect to it.
pub fn servers(
    endpoint: Option<&Endpoint>,
    configured: Option<&JsonObject>,
    facts: &AgentFacts,
    bridge: Option<&[String]>,
) -> (Vec<Value>, Vec<String>) {
    let (mut servers, mut left_out) = (Vec::new(), Vec::new());
    let no_http =
        |name: &str| format!("MCP server {name} is left out: the agent has no support for MCP over HTTP");
    if let Some(Endpoint { url, token }) = endpoint {
        match (facts.mcp_http, bridge.and_then(<[String]>::split_first)) {
            (true, _) => servers.push(json!({ "type": "http", "name": OWN, "url": url,
                "headers": [{ "name": "Authorization", "value": format!("Bearer {token}") }] })),
            (false, Some((command, args))) => servers
                .push(json!({ "name": OWN, "command": command, "args": args,
                "env": [{ "name": BRIDGE_URL, "value": url }, { "name": BRIDGE_TOKEN, "value": token }] })),
            (false, None) => left_out.push(no_http(OWN)),
        }
    }
    for (name, server) in configured.into_iter().flatten() {
        let pairs = |key: &str| -> Value {
            let fields = server.get(key).and_then(Value::as_object).into_iter().flatten();
            fields.map(|(name, value)| json!({ "name": name, "value": value })).collect()
        };
        let text = |key: &str| server.get(key).and_then(Value::as_str).unwrap_or_default();
        match (server.get("url").is_some(), facts.mcp_http) {
            (true, true) => servers.push(
                json!({ "type": "http", "name": name, "url": text("url"), "headers": pairs("headers") }),
            ),
            (true, false) => left_out.push(no_http(name)),
            (false, _) => {
                let args = server.get("args").cloned().unwrap_or_else(|| json!([]));
                servers.push(
                    json!({ "name": name, "command": text("command"), "args": args, "env": pairs("env") }),
                );
            }
        }
    }
    (servers, left_out)
}

/// Returns the secrets of these servers: the endpoint's token, and the values of headers and variables.
pub fn secrets(endpoint: Option<&Endpoint>, configured: Option<&JsonObject>) -> Vec<String> {
    let of = |server: &Value, key: &str| -> Vec<String> {
        let fields = server.get(key).and_then(Value::as_object).into_iter().flatten();
        fields.filter_map(|(_, value)| value.as_str().map(str::to_owned)).collect()
    };
    let configured = configured.into_iter().flatten();
    let values = configured.flat_map(|(_, server)| [of(server, "headers"), of(server, "env")].concat());
    // A header contains its scheme and the credential, which can occur alone in errors.
    let credential = |value: &String| value.split_once(' ').map(|(_, credential)| credential.to_owned());
    let values: Vec<String> = values.flat_map(|value| [credential(&value), Some(value)]).flatten().collect();
    endpoint.map(|endpoint| endpoint.token.clone()).into_iter().chain(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masks::Masks;
    use crate::protocol::Update;

    #[test]
    fn what_servers_are_told_is_masked_in_errors() {
        let endpoint =
            Endpoint { url: "http://127.0.0.1:1/mcp".to_owned(), token: "endpoint-token".to_owned() };
        let configured = json!({
            "web": { "url": "https://a.example", "headers": { "Authorization": "Bearer header-token" } },
            "files": { "command": "files", "env": { "KEY": "variable-token", "MODE": "all" } },
        });
        let told = secrets(Some(&endpoint), configured.as_object());
        let masks = Masks::default().with_values(&told);
        let said = "endpoint-token, Bearer header-token, header-token, variable-token, all";
        assert_eq!(masks.hide(said), "<set>, <set>, <set>, <set>, all");
        let failed = json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "failed",
            "error": "401 for variable-token" });
        let Update::Compaction(failed) = Update::read(&failed).masked(&masks) else {
            panic!("no compaction")
        };
        assert_eq!(failed.error.as_deref(), Some("401 for <set>"));
    }

    #[test]
    fn an_agent_without_http_is_told_of_stdio_servers_alone() {
        let endpoint = Endpoint { url: "http://127.0.0.1:1/ahp-mcp/x".into(), token: "t".into() };
        let Value::Object(configured) = json!({
            "files": { "type": "stdio", "command": "mcp-files", "env": { "K": "v" } },
            "web": { "type": "http", "url": "https://x/mcp", "headers": { "Authorization": "Bearer s" } },
        }) else {
            panic!()
        };
        let names = |servers: &[Value]| {
            servers.iter().map(|server| server["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (all, none) = servers(
            Some(&endpoint),
            Some(&configured),
            &AgentFacts { mcp_http: true, ..AgentFacts::default() },
            None,
        );
        assert_eq!((names(&all), none.len()), (vec!["ostler".to_owned(), "files".into(), "web".into()], 0));
        assert_eq!(all[0]["headers"][0], json!({ "name": "Authorization", "value": "Bearer t" }));
        assert_eq!(all[1]["env"], json!([{ "name": "K", "value": "v" }]));
        let (some, left_out) = servers(Some(&endpoint), Some(&configured), &AgentFacts::default(), None);
        assert_eq!((names(&some), left_out.len()), (vec!["files".to_owned()], 2));
        let bridge = ["/bin/host".to_owned(), "bridge".to_owned()];
        let (some, left_out) =
            servers(Some(&endpoint), Some(&configured), &AgentFacts::default(), Some(&bridge));
        assert_eq!((names(&some), left_out.len()), (vec!["ostler".to_owned(), "files".into()], 1));
        assert_eq!((&some[0]["command"], &some[0]["args"]), (&json!("/bin/host"), &json!(["bridge"])));
        assert_eq!(some[0]["env"][1], json!({ "name": BRIDGE_TOKEN, "value": "t" }));
    }
}
