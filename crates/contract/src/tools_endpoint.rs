//! The tools endpoint in words: what the daemon's own and the SDK's `toolServers` both say. Spec: *Tools MCP
//! endpoint*.

/// The revision of MCP spoken there.
pub const REVISION: &str = "2025-06-18";
/// Where every endpoint is.
pub const PREFIX: &str = "/ahp-mcp";
/// What the one stream carries whenever the list of tools has moved.
pub const CHANGED: &str =
    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

/// A request without its token, or with a wrong one.
pub const NOT_ITS_TOKEN: &str = "This endpoint needs its own token as bearer";
/// A stream asked for by who lists the tools anew.
pub const NO_STREAM: &str = "This endpoint has no stream; list its tools again instead";
/// A body that is something else; what is wrong with it may stand behind.
pub const NOT_ONE_MESSAGE: &str = "The body must be exactly one JSON-RPC message";

/// A call that names no tool.
pub const NO_NAME: &str = "tools/call needs name, the name of a tool";

/// A path under which no endpoint is open.
pub fn no_endpoint(path: &str) -> String {
    format!("No tools at {path}")
}

/// An HTTP method, or a JSON-RPC one, that is none of the endpoint's.
pub fn no_method(method: &str) -> String {
    format!("{method} is not served here")
}

/// A call of a tool that is not in the list.
pub fn no_tool(name: &str) -> String {
    format!("there is no tool {name}")
}

/// A call of a client's tool from a backend without `runClient`.
pub fn no_client(name: &str) -> String {
    format!("{name} is run by a client, and this backend asks none")
}
