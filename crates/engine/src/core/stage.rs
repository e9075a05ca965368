//! The stages of a host's life.

/// How far the host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Plugins are being applied.
    Loading,
    /// The registry is built; nobody is let in yet.
    Built,
    /// Connections are accepted.
    Listening,
    /// New sessions and turns are refused.
    Stopping,
    /// It ends.
    Closing,
}
