//! What a caller needs for a request.

use ostler_engine::Principal;
use ostler_engine::users::Kind;
use ostler_protocol::grants::Grant;

use super::Refused;
use crate::control::Control;

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

impl Needs {
    /// The required grant, as documentation writes it.
    pub(super) fn grant(self) -> String {
        match self {
            Self::Nothing => "none".to_owned(),
            Self::Config(operation) => format!("config:{operation}"),
            Self::Diagnostics(operation) => format!("diagnostics:{operation}"),
            Self::Client(subject, operation) => format!("{subject}:{operation}"),
            Self::People(Kind::User, "list") => "user:list and role:list".to_owned(),
            Self::People(kind, operation) => format!("{}:{operation}", kind.name()),
            Self::Secret => "depends on the name".to_owned(),
            Self::Plugin(grant) => grant.to_owned(),
            Self::Pool => "none for own pools, usage:get for others".to_owned(),
            Self::Deployment => "the connection token".to_owned(),
            Self::Page => "none, from a page of this host".to_owned(),
            Self::Probe => "none, without a token".to_owned(),
        }
    }

    /// Whether the caller holds the grant. The connection token holds every grant.
    pub(super) fn admits(self, control: &Control, caller: &Principal) -> Result<(), Refused> {
        let gate = &control.host.access.gate;
        match self {
            // Without any token, what changes this computer is left to the commands on it.
            Self::Secret if *caller == Principal::Anyone => Err(Refused::Grant(
                "This host has no token, so secrets are set at its computer: ostler vault set".to_owned(),
            )),
            Self::Nothing | Self::Secret | Self::Pool | Self::Page | Self::Probe => Ok(()),
            Self::Diagnostics(operation) => Ok(gate.require(caller, &Grant::of("diagnostics", operation))?),
            Self::Client(subject, operation) => Ok(gate.require(caller, &Grant::of(subject, operation))?),
            Self::Plugin(grant) => match Grant::parse(grant) {
                Some(grant) => Ok(gate.require(caller, &grant)?),
                None => Err(Refused::NotThere),
            },
            Self::Config(operation) => Ok(gate.require(caller, &Grant::of("config", operation))?),
            Self::People(kind, operation) => {
                gate.require(caller, &Grant::of(kind.name(), operation))?;
                // A list of people shows the roles they have.
                match (kind, operation) {
                    (Kind::User, "list") => Ok(gate.require(caller, &Grant::of("role", "list"))?),
                    _ => Ok(()),
                }
            }
            Self::Deployment => match caller {
                Principal::Root => Ok(()),
                Principal::Person(person) => Err(Refused::Grant(format!(
                    "{} may not install or remove a plugin here; only the deployment token may",
                    person.id
                ))),
                Principal::Anyone => Err(Refused::Grant(
                    "This host has no token, so this is done at its computer, by the command".to_owned(),
                )),
                Principal::Plugin { .. } => Err(Refused::NotThere),
            },
        }
    }
}
