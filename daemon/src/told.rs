//! Hearing that the process is told to end.

use crate::exit::Exit;

/// Hears SIGTERM and Ctrl-C from the moment it is made.
pub struct Told {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Told {
    /// Begins to listen.
    ///
    /// # Errors
    /// Exit 1 where the system allows no handler.
    #[cfg(unix)]
    pub fn listen() -> Result<Self, Exit> {
        use tokio::signal::unix::{SignalKind, signal};
        let hear =
            |kind| signal(kind).map_err(|error| Exit::machine(format!("signals cannot be heard: {error}")));
        Ok(Self { terminate: hear(SignalKind::terminate())?, interrupt: hear(SignalKind::interrupt())? })
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// None here.
    #[cfg(not(unix))]
    pub fn listen() -> Result<Self, Exit> {
        Ok(Self {})
    }

    /// Resolves each time the process is told to end.
    pub async fn wait(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
