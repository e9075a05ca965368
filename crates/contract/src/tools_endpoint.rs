//! Constants and messages of the tools endpoint, for the daemon and for `toolServers` of the SDK. Spec: *Tools MCP
//! endpoint*.

/// The supported version of MCP.
pub const REVISION: &str = "2025-06-18";
/// The path of all endpoints.
pub const PREFIX: &str = "/ahp-mcp";
/// The message that the stream sends when the list of tools has changed.
pub const CHANGED: &str =
    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

/// A request without its token, or with a wrong one.
pub const NOT_ITS_TOKEN: &str = "This endpoint needs its own token as bearer";
/// A request for a stream by a client that lists the tools anew.
pub const NO_STREAM: &str = "This endpoint has no stream; list its tools again instead";
/// An invalid body; details may follow.
pub const NOT_ONE_MESSAGE: &str = "The body must be exactly one JSON-RPC message";

/// A call without the name of a tool.
pub const NO_NAME: &str = "tools/call needs name, the name of a tool";

/// A path without an open endpoint.
pub fn no_endpoint(path: &str) -> String {
    format!("No tools at {path}")
}

/// An HTTP or JSON-RPC method that the endpoint does not have.
pub fn no_method(method: &str) -> String {
    format!("{method} is not served here")
}

/// A call of a tool that is not in the list.
pub fn no_tool(name: &str) -> String {
    format!("there is no tool {name}")
}

/// A call of a client's tool from a backend without `runClient`.
pub fn no_client(name: &str) -> String {
    format!("{name} is a client's tool, and this backend calls no tools of clients")
}
