//! Requests of a session that no link can answer, and the text on their pages.

use ostler_protocol::wire::state::{SessionToolAuthenticationRequest, SessionToolClientExecutionRequest};

use super::request::{CLIENT_TOOL, SIGN_IN, plain};

/// A request that only a client can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// `signIn` or `clientTool`.
    pub kind: &'static str,
    /// The name of the tool.
    pub tool: String,
    /// What the call will do.
    pub message: String,
    /// The service to sign in to, or the client that runs the tool.
    pub with: String,
}

impl Elsewhere {
    /// Creates the request for a sign-in that a tool needs.
    pub fn sign_in(request: &SessionToolAuthenticationRequest) -> Self {
        let call = &request.tool_call;
        let resource = &call.auth.resource;
        Self {
            kind: SIGN_IN,
            tool: call.display_name.clone(),
            message: plain(&call.invocation_message),
            with: resource.resource_name.clone().unwrap_or_else(|| resource.resource.clone()),
        }
    }

    /// Creates the request for a tool that a client runs.
    pub fn client_tool(request: &SessionToolClientExecutionRequest) -> Self {
        let call = &request.tool_call;
        Self {
            kind: CLIENT_TOOL,
            tool: call.display_name.clone(),
            message: plain(&call.invocation_message),
            with: request.client_id.clone(),
        }
    }

    /// Returns the request in one line.
    pub fn line(&self) -> String {
        match self.kind {
            SIGN_IN => format!("{} needs a sign-in to {}", self.tool, self.with),
            _ => format!("{} waits for the client {} to run it", self.tool, self.with),
        }
    }

    /// Returns the heading of the page.
    pub fn heading(&self) -> &'static str {
        match self.kind {
            SIGN_IN => "A sign-in is needed",
            _ => "A client has to run a tool",
        }
    }

    /// Returns why a link cannot answer, and what to do instead.
    pub fn advice(&self) -> String {
        match self.kind {
            SIGN_IN => format!(
                "A link cannot sign in: the sign-in to {} runs in a client that supports it, such as VS Code. Open the \
                 session there and sign in; the call then continues.",
                self.with
            ),
            _ => format!(
                "A link cannot run the tool: it belongs to the client {}. Open that client and look for a question of its \
                 own; the session continues once it has run the tool.",
                self.with
            ),
        }
    }
}
