//! The stages of a host's life.

/// The stage of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Plugins are being applied.
    Loading,
    /// The registry is built; connections are not accepted yet.
    Built,
    /// Connections are accepted.
    Listening,
    /// New sessions and turns are rejected.
    Stopping,
    /// The host ends.
    Closing,
}
