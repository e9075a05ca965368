//! The text of the users file, in a store that several hosts can share.
//!
//! It is no registration point: only the bundled stores implement it. Without such a store, users are in a file of the host.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::Thrown;
use crate::live::Pending;

/// A change of the text: receives the current one, if there is one, and returns the new one, or `None` to leave it. It is
/// repeated if the text changes before it is written.
pub type EditUsers = Arc<dyn Fn(Option<&str>) -> Result<Option<String>, Thrown> + Send + Sync>;

/// A store of the users file.
pub trait UsersStore: Debug + Send + Sync {
    /// Returns where it is, for messages.
    fn place(&self) -> String;

    /// Returns the text, if there is one.
    fn read(&self) -> Pending<Option<String>>;

    /// Returns how long a host may rely on the text after it began to read it. Without a limit, it relies on it until it reads
    /// another one: nobody else changes it, or it is on this computer.
    fn valid_for(&self) -> Option<Duration> {
        None
    }

    /// Changes the text, and returns what is stored afterwards. A change that fails changes nothing.
    fn change(&self, edit: EditUsers) -> Pending<Option<String>>;

    /// Sets the listener that is called when another writer may have changed the text. It must not block. A store whose
    /// readers look themselves ignores it.
    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>);
}
