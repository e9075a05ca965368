//! Limits of the memory that the host uses on behalf of its clients.

/// Limits of a host; each is a key of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of messages, bodies and answers of all connections in total.
    pub memory: usize,
    /// Bytes of messages and answers of one connection.
    pub connection_memory: usize,
    /// Bytes of bodies of unauthenticated senders: of signed calls before the verification, and of routes in
    /// JavaScript.
    pub unverified_bodies: usize,
    /// Bytes of the states of sessions in memory.
    pub session_memory: usize,
    /// The number of sessions in memory.
    pub awake_sessions: usize,
}

const MIB: usize = 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 192 * MIB,
            connection_memory: 96 * MIB,
            unverified_bodies: 64 * MIB,
            session_memory: 128 * MIB,
            awake_sessions: 2000,
        }
    }
}
