//! The spans of the engine: one per command, turn and run. Calls of plugins' functions are spans of the contract.

use ostler_protocol::wire::state::AutomationRunLifecycle;
use tracing::Span;
use tracing::field::Empty;

/// A client's or plugin's request, until it has its response. Its method is recorded once it is known to be valid.
pub fn command() -> Span {
    tracing::debug_span!(target: "ostler::command", "command", method = Empty, session = Empty, chat = Empty, outcome = Empty)
}

/// A turn, from its message to its end. It is part of the current span: that of the run that starts it, if one does.
pub fn turn(session: &str, chat: &str, turn: &str, provider: &str) -> Span {
    tracing::debug_span!(target: "ostler::turn", "turn", session, chat, turn, provider, outcome = Empty)
}

/// A run of an automation, from its start to its end.
pub fn run(run: &str, automation: &str) -> Span {
    tracing::debug_span!(target: "ostler::run", parent: None, "run", run, automation, outcome = Empty)
}

/// Records the outcome of a run in its span.
pub fn run_outcome(lifecycle: &AutomationRunLifecycle) -> &'static str {
    match lifecycle {
        AutomationRunLifecycle::Pending(_) => "pending",
        AutomationRunLifecycle::Running(_) => "running",
        AutomationRunLifecycle::Completed(_) => "complete",
        AutomationRunLifecycle::Cancelled(_) => "cancelled",
        _ => "failed",
    }
}
