//! The providers without which the host does not serve some commands.

use ostler_engine_core::refusals::not_served;
use ostler_protocol::RpcError;

use super::Workspace;

/// A provider of commands.
#[derive(Debug, Clone, Copy)]
pub enum Provider {
    /// The terminal store.
    Terminals,
    /// The provider of dev containers.
    Containers,
    Worktrees,
}

impl Workspace {
    /// Returns the error of a command whose provider is not registered. It precedes the check of the grant.
    pub fn unserved(&self, provider: Provider, command: &str) -> Option<RpcError> {
        match provider {
            Provider::Terminals => self.terminal_store().is_none().then(|| not_served(command)),
            Provider::Containers => self.containers().is_none().then(|| RpcError::no_command(command)),
            Provider::Worktrees => self.worktrees().is_none().then(|| RpcError::no_command(command)),
        }
    }
}
