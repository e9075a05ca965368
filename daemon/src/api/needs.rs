//! What a caller needs for a request.

use ostler_engine::users::Kind;

/// The grant that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// No grant.
    Nothing,
    /// `config:<operation>`
    Config(&'static str),
    /// `diagnostics:<operation>`
    Diagnostics(&'static str),
    /// What clients of the protocol need for the same: `<subject>:<operation>`.
    Client(&'static str, &'static str),
    /// `<kind>:<operation>`, on a host that knows people.
    People(Kind, &'static str),
    /// The name of the secret decides.
    Secret,
    /// The pool decides.
    Pool,
    /// This grant of a plugin's command.
    Plugin(&'static str),
    /// The connection token itself: the request changes what runs in this process.
    Deployment,
    /// No caller yet, but a page of this host: the request signs in or out.
    Page,
    /// No caller: a load balancer or a supervisor probes the host.
    Probe,
}
