//! Measurements of the host, for its metrics.

use super::Host;

/// Counts and sizes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Open connections.
    pub connections: usize,
    /// Listed sessions.
    pub sessions: usize,
    pub awake_sessions: usize,
    /// Requests without a response.
    pub pending_requests: usize,
    /// Messages in the outboxes of all connections.
    pub outbox_messages: usize,
    /// Their size in bytes.
    pub outbox_bytes: usize,
    /// Runs that wait for their automation's earlier runs.
    pub waiting_runs: usize,
    /// Runs that have started and not ended.
    pub open_runs: usize,
    /// Messages in the mailboxes of awake sessions.
    pub session_messages: usize,
    /// Memory used for the states of awake sessions, and for calls of clients that their backends have not answered, in
    /// bytes.
    pub session_memory: usize,
    /// Memory used for messages, request bodies and responses, in bytes.
    pub budget_used: usize,
}

impl Host {
    /// Returns the current measurements.
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            sessions: self.sessions.count(),
            awake_sessions: self.sessions.awake(),
            session_messages: self.sessions.waiting_messages(),
            session_memory: self.sessions.memory_used(),
            budget_used: self.core.budget.used(),
            ..Gauges::default()
        };
        for client in self.access.clients.open() {
            let waiting = client.outbox().waiting();
            gauges.connections += 1;
            gauges.pending_requests += waiting.requests;
            gauges.outbox_messages += waiting.messages;
            gauges.outbox_bytes += waiting.bytes;
        }
        (gauges.open_runs, gauges.waiting_runs) = self.automations.run_counts();
        gauges
    }
}
